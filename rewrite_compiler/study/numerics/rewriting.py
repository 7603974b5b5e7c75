"""Rewriting of numerics: terms replaced anywhere, inside of folds and tables too, and all intervals computed anew.

A rewritten term may have another range than the old one (an accumulator of more bits), which `lang.substitution` excludes.
An accumulator whose new body leaves its width is kept in a word of WIDE bits that saturates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...lang import intervals as iv
from ...lang.binders import Accumulator, Array, Comprehension, Fold, FoldResult, Table, array, reduction
from ...lang.expr import ARITHMETIC, Expr, as_real, binary, call, clamp, clz, extract, floor, lift, round_even, select, unary, wrap

WIDE = 48  # bits of a word that no sum of products of an application leaves
Rewrite = Callable[[Expr, Sequence[Expr]], Expr]  # a term and its rewritten operands → the term in its place

BUILDERS: Mapping[str, Rewrite] = {
    **{op: lambda e, args: binary(e.op, *args) for op in (*ARITHMETIC, "rdiv")},
    **{op: lambda e, args: unary(e.op, *args) for op in ("neg", "not")},
    "select": lambda e, args: select(*args),
    "extract": lambda e, args: extract(args[0], *e.data),
    "wrap": lambda e, args: wrap(args[0], *e.data),
    "clz": lambda e, args: clz(args[0], e.data),
    "floor": lambda e, args: floor(args[0]),
    "rint": lambda e, args: round_even(args[0]),
    "real": lambda e, args: as_real(args[0]),
    "call": lambda e, args: call(e.data, *args),
    "reduce": lambda e, args: reduction(e.data[0], e.data[1], tuple(args[1:]), args[0]),
}


class Rewriter:
    """Rewrites terms by a table from terms to what builds their successors; all others are built anew on rewritten operands."""

    def __init__(
        self, rewrites: Mapping[Expr, Rewrite], arrays: Mapping[Array, Array] | None = None, *, inlines: bool = False,
        swaps: Mapping[Expr, Expr] | None = None,
    ) -> None:  # fmt: skip
        """Begin with no term rewritten; `arrays` are arrays that stand for others, `swaps` terms in whose place others are rewritten.

        `inlines`: rewritten tables become their bodies, which few elements are computed by faster than a whole table is.
        """
        self.rewrites, self.inlines, self.swaps = rewrites, inlines, dict(swaps or {})
        self.replaced = dict(arrays or {})
        self.arrays: dict[Array, Array] = dict(self.replaced)
        self.folds: dict[int, Fold] = {}
        self.tables: dict[int, Table] = {}
        self.terms: dict[Expr, Expr] = {}

    def term(self, e: Expr) -> Expr:
        """Return a term rewritten."""
        if e not in self.terms:
            self.terms[e] = self._rewritten(e)
        return self.terms[e]

    def _rewritten(self, e: Expr) -> Expr:
        if e in self.swaps:
            other = self.swaps[e]  # which may have `e` in it, or be a part of it
            remaining = {k: x for k, x in self.swaps.items() if k is not e and k is not other}
            return Rewriter(self.rewrites, self.replaced, inlines=self.inlines, swaps=remaining).term(other)
        args = [self.term(a) for a in e.args]
        if e in self.rewrites:
            return self.rewrites[e](e, args)
        return self.rebuilt(e, args)

    def rebuilt(self, e: Expr, args: Sequence[Expr]) -> Expr:
        """Return a term on other operands, and on rewritten arrays and tables."""
        data = self.data_of(e)
        if data is e.data and all(a is b for a, b in zip(args, e.args, strict=True)):
            return e
        if e.op == "load":
            return lift(data[tuple(args)])
        if e.op == "table":
            return lookup(data, args, inlines=self.inlines and data is not e.data)
        return BUILDERS[e.op](e, args)

    def data_of(self, e: Expr) -> Any:
        """Return the array or the table that a term reads, rewritten; the static data of any other term."""
        if e.op == "load":
            return self.array(e.data)
        return self._table(e.data) if e.op == "table" else e.data

    def array(self, a: Array) -> Array:
        """Return an array rewritten."""
        if a not in self.arrays:
            self.arrays[a] = self._rewritten_array(a)
        return self.arrays[a]

    def _rewritten_array(self, a: Array) -> Array:
        if isinstance(a, Comprehension):
            shape = tuple(n if isinstance(n, int) else self.term(n) for n in a.shape)
            body = self.term(a.body)
            return a if body is a.body else Comprehension(shape, body.interval, body.real, a.variables, body)
        if isinstance(a, FoldResult):
            f = self.fold(a.fold)
            accumulator = f.accumulators[a.component]
            return a if f is a.fold else FoldResult(a.shape, accumulator.interval, a.real, f, a.component, a.history)
        return a

    def fold(self, f: Fold) -> Fold:
        """Return a fold rewritten, its accumulators as wide as the new bodies need."""
        if id(f) not in self.folds:
            initial = tuple(map(self.array, f.initial))
            bodies = tuple(map(self.array, f.bodies))
            is_unchanged = all(x is y for x, y in zip((*initial, *bodies), (*f.initial, *f.bodies), strict=True))
            self.folds[id(f)] = f if is_unchanged else self._wide_enough(f, initial, self.term(f.extent))
        return self.folds[id(f)]

    def _wide_enough(self, f: Fold, initial: tuple[Array, ...], extent: Expr) -> Fold:
        """Return a fold over new accumulators: of the old widths where all bodies fit them, else of WIDE bits."""
        for is_wide in (False, True):
            word = iv.of_width(WIDE, True)
            accumulators = tuple(Accumulator(a.shape, word if is_wide and not a.real else a.interval, a.real, a.name, f.variable)
                                 for a in f.accumulators)  # fmt: skip
            arrays: dict[Array, Array] = self.replaced | dict(zip(f.accumulators, accumulators, strict=True))
            inner = Rewriter(self.rewrites, arrays, inlines=self.inlines, swaps=self.swaps)
            bodies = tuple(map(inner.array, f.bodies))
            if is_wide:
                bodies = tuple(_clamped(b, a.interval) for b, a in zip(bodies, accumulators, strict=True))
            if all(iv.inside(x.interval, a.interval) for parts in (bodies, initial) for x, a in zip(parts, accumulators, strict=True)):
                break
        return Fold(f.variable, extent, initial, accumulators, bodies)

    def _table(self, table: Table) -> Table:
        if id(table) not in self.tables:
            body = self.term(table.body)
            self.tables[id(table)] = table if body is table.body else table_of(table, body)
        return self.tables[id(table)]


def lookup(table: Table, operands: Sequence[Expr], *, inlines: bool = False) -> Expr:
    """Return an entry of a table, at the nearest end where an operand may leave its domain; `inlines`: by its function."""
    inside = [clamp(x, *domain) for x, domain in zip(operands, table.domains, strict=True)]
    return lift(table.function(*inside)) if inlines else table(*inside)


def table_of(table: Table, body: Expr) -> Table:
    """Return a table of the same name and domain with another body on the same parameters."""

    def function(*operands: Expr) -> Expr:
        return Rewriter({p: _always(x) for p, x in zip(table.parameters, operands, strict=True)}).term(body)

    return Table(table.name, function, *table.domains)


def _always(x: Expr) -> Rewrite:
    """Return the rewrite to one term."""
    return lambda e, args: x


def _clamped(a: Array, interval: iv.Interval) -> Array:
    """Return an array with its elements limited to an interval."""
    return a if iv.inside(a.interval, interval) else array(lambda *i: clamp(a[i], *interval), a.shape)
