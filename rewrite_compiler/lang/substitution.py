"""Capture-free substitution of subterms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import SpecError
from .binders import Array, Comprehension, FoldResult, reduction
from .expr import Expr, binary, lift, node

SIMPLIFIED = frozenset({"add", "sub", "mul"})


def substitute(e: Expr, replacements: Mapping[Expr, Expr]) -> Expr:
    """Return `e` with each subterm that is a key of `replacements` replaced.

    A replacement must lie in the interval of what it replaces.

    Raises:
        SpecError: a replaced subterm lies inside a fold.
    """
    return _Substitution(replacements).expr(e)


class _Substitution:
    def __init__(self, replacements: Mapping[Expr, Expr]) -> None:
        self.results: dict[Expr, Expr] = dict(replacements)

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
            shape = tuple(n if isinstance(n, int) else self.expr(n) for n in a.shape)
            body = self.expr(a.body)
            is_unchanged = body is a.body and all(lift(n) is lift(m) for n, m in zip(shape, a.shape, strict=True))
            return a if is_unchanged else Comprehension(shape, a.interval, a.real, a.variables, body)
        if isinstance(a, FoldResult) and not a.free.isdisjoint(self.results):
            raise SpecError("I102", "a term inside a fold cannot be replaced")
        return a
