"""Capture-free substitution of subterms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .binders import Accumulator, Array, Comprehension, Extent, Fold, FoldResult, reduction
from .expr import Expr, binary, lift, node, var

SIMPLIFIED = frozenset({"add", "sub", "mul"})

NO_ARRAYS: Mapping[Any, Array] = {}


def substitute(e: Expr, replacements: Mapping[Expr, Expr], arrays: Mapping[Any, Array] = NO_ARRAYS) -> Expr:
    """Return `e` with each subterm that is a key of `replacements` replaced, and leaves that are keys of `arrays` by others.

    A replacement must lie in the interval of what it replaces; an array must have as many axes and as wide elements.
    """
    return _Substitution(replacements, arrays).expr(e)


class _Substitution:
    def __init__(self, replacements: Mapping[Expr, Expr], arrays: Mapping[Any, Array]) -> None:
        self.results: dict[Expr, Expr] = dict(replacements)
        self.arrays: dict[Array, Array] = dict(arrays)
        self.folds: dict[Fold, Fold] = {}

    def expr(self, e: Expr) -> Expr:
        result = self.results.get(e)
        if result is None:
            result = self.results[e] = self._rebuilt(e)
        return result

    def _rebuilt(self, e: Expr) -> Expr:
        args = [self.expr(a) for a in e.args]
        data = self._array(e.data) if e.op == "load" else e.data
        if data is e.data and all(a is b for a, b in zip(args, e.args, strict=True)):
            return e
        if e.op == "reduce":
            monoid, variables = e.data
            return reduction(monoid, variables, tuple(args[1:]), args[0])
        if e.op in SIMPLIFIED:
            return binary(e.op, *args)
        free = data.free.union(*(a.free for a in args)) if e.op == "load" else None
        return node(e.op, args, data, e.interval, e.real, free)

    def _array(self, a: Array) -> Any:
        if isinstance(a, Comprehension):
            shape = self._shape(a)
            body = self.expr(a.body)
            is_unchanged = body is a.body and all(lift(n) is lift(m) for n, m in zip(shape, a.shape, strict=True))
            return a if is_unchanged else Comprehension(shape, a.interval, a.real, a.variables, body)
        if isinstance(a, FoldResult):
            fold = self._fold(a.fold)
            return a if fold is a.fold else FoldResult(self._shape(a), a.interval, a.real, fold, a.component, a.history)
        return self.arrays.get(a, a)

    def _shape(self, a: Array) -> tuple[Extent, ...]:
        return tuple(n if isinstance(n, int) else self.expr(n) for n in a.shape)

    def _fold(self, f: Fold) -> Fold:
        """Return a fold with its terms replaced; a changed one binds a variable and accumulators of its own."""
        result = self.folds.get(f)
        if result is None:
            parts = self.expr(f.extent), tuple(map(self._array, f.initial)), tuple(map(self._array, f.bodies))
            is_unchanged = parts[0] is f.extent and all(
                x is y for new, old in ((parts[1], f.initial), (parts[2], f.bodies)) for x, y in zip(new, old, strict=True)
            )
            result = self.folds[f] = f if is_unchanged else self._bound(f, *parts)
        return result

    def _bound(self, f: Fold, extent: Expr, initial: tuple[Array, ...], bodies: tuple[Array, ...]) -> Fold:
        """Return a fold of these terms with a fresh variable and fresh accumulators."""
        variable = var(f.variable.data[0], f.variable.interval)
        shapes = (self._shape(a) for a in f.accumulators)
        accumulators = tuple(Accumulator(s, a.interval, a.real, a.name, variable) for s, a in zip(shapes, f.accumulators, strict=True))
        renaming = _Substitution({f.variable: variable}, dict(zip(f.accumulators, accumulators, strict=True)))
        return Fold(variable, extent, initial, accumulators, tuple(map(renaming._array, bodies)))
