"""Folds and sums of a kernel: loops whose values stay in registers, pairs of products by the processor's instruction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from llvmlite import ir

from ..lang import intervals as iv
from ..lang.binders import Comprehension, FoldResult
from ..lang.expr import Expr
from .instructions import add_pairs
from .layout import Layout
from .vectors import WORD, NotLowered, Value, aligned, over_jam, resized, splat, width_of

if TYPE_CHECKING:
    from .printer import Printer

UNROLLED = 8  # steps of the innermost loop of a sum up to which there is no loop
Values = list[Value]


def reduced(p: Printer, e: Expr, bits: int) -> Values:
    """Return a sum, a largest or a smallest value."""
    monoid, variables = e.data
    extents = [_extent(x) for x in e.args[1:]]
    body = e.args[0]
    own = bits if monoid == "sum" else width_of(e.interval)
    if monoid == "sum" and iv.inside(e.interval, iv.of_width(bits, True)):
        own = width_of(e.interval)
    first = _neutral(monoid, e)
    if not min(extents, default=1):
        return [ir.Constant(ir.IntType(bits), first)]
    kind = ir.IntType(own)
    start: Value = ir.Constant(kind, first)
    if p.varies(body):
        start = ir.Constant(ir.VectorType(kind, p.schedule.lanes), [first & (1 << own) - 1] * p.schedule.lanes)
    pairs = _pairs(p, body, variables, extents) if monoid == "sum" and own <= 32 else None
    if pairs is not None:
        start = ir.Constant(ir.VectorType(ir.IntType(32), p.schedule.lanes), [0] * p.schedule.lanes)
    p.depth += 1
    totals = _nested(p, _Reduction(body, monoid, own, pairs), list(zip(variables, extents, strict=True)), [start] * p.positions(body))
    p.depth -= 1
    return [resized(p.b, x, bits) for x in totals]


class _Reduction:
    """What is done in every step of a reduction."""

    def __init__(self, body: Expr, monoid: str, bits: int, pairs: tuple[Expr, tuple[Layout, Layout]] | None) -> None:
        self.body, self.monoid, self.bits, self.pairs = body, monoid, bits, pairs

    def step(self, p: Printer, totals: Values) -> Values:
        """Return the totals with one more value, or with one more pair of products."""
        if self.pairs is not None:
            return self._pair(p, totals, *self.pairs)
        values = p.evaluated(self.body, self.bits)
        if self.monoid == "sum":
            return over_jam(lambda t, x: p.b.add(*aligned(p.b, t, x)), totals, values)
        sign = "<" if self.monoid == "min" else ">"
        return over_jam(lambda t, x: _chosen(p, sign, *aligned(p.b, t, x)), totals, values)

    def _pair(self, p: Printer, totals: Values, variable: Expr, layouts: tuple[Layout, Layout]) -> Values:
        def halves(x: Value) -> Value:
            lanes = ir.VectorType(ir.IntType(16), 2 * p.schedule.lanes)
            return x if x.type == lanes else p.b.bitcast(splat(p.b, x, p.schedule.lanes), lanes)

        found = [[halves(x) for x in p.pairs(load, layout, variable)] for load, layout in zip(self.body.args, layouts, strict=True)]
        return over_jam(lambda t, x, y: add_pairs(p.b, p.features, t, x, y), totals, *found)


def _chosen(p: Printer, sign: str, x: Value, y: Value) -> Value:
    return p.b.select(p.b.icmp_signed(sign, x, y), x, y)


def _nested(p: Printer, r: _Reduction, left: Sequence[tuple[Expr, int]], totals: Values) -> Values:
    """Return the totals after loops over the variables that are left; the innermost one has few iterations of several steps."""
    if not left:
        with p.scope():
            return r.step(p, totals)
    (variable, extent), rest = left[0], left[1:]
    unit = 2 if r.pairs is not None and r.pairs[0] is variable else 1
    steps = -(-extent // unit)
    together = 1 if rest else steps if steps <= UNROLLED else next(n for n in (4, 2, 1) if not steps % n)
    p.unit[variable] = unit

    def body(i: Value, now: Values) -> Values:
        for n in range(together):
            base = p.b.mul(i, WORD(together)) if together > 1 else i
            p.at[variable] = p.b.add(base, WORD(n)) if n else base
            with p.scope():
                now = _nested(p, r, rest, now)
        del p.at[variable]
        return now

    found = body(WORD(0), totals) if together == steps else p.loop(p.number(steps // together, "steps", variable), totals, body)
    del p.unit[variable]
    return found


def _pairs(p: Printer, body: Expr, variables: Sequence[Expr], extents: Sequence[int]) -> tuple[Expr, tuple[Layout, Layout]] | None:
    """Return along which variable neighbouring products are added by one instruction, and the layouts of both factors."""
    if body.op != "mul" or not p.varies(body) or any(a.op != "load" for a in body.args):
        return None
    x, y = body.args
    if not all(hasattr(a.data, "name") and a.data not in p.accumulators for a in (x, y)):
        return None
    for v, extent in zip(variables, extents, strict=True):
        if extent < 2:
            continue
        p.unit[v] = 2
        found = p.pair_layout(x, v), p.pair_layout(y, v)
        del p.unit[v]
        if found[0] is not None and found[1] is not None:
            return v, (found[0], found[1])
    return None


def fold_result(p: Printer, a: FoldResult) -> Values:
    """Return one accumulator of a fold of scalars after its last step."""
    key = "fold", a.fold
    found = next((m[key] for m in reversed(p.memo) if key in m), None)
    if found is None:
        found = p.memo[-1][key] = _folded(p, a)
    return list(found[a.component])


def _folded(p: Printer, a: FoldResult) -> list[Values]:
    f = a.fold
    parts = [_body(x) for x in (*f.initial, *f.bodies)]
    count, lanes = p.positions(*parts), p.varies(*parts)
    widths = [width_of(x.interval) for x in f.accumulators]

    def ready(e: Expr, bits: int) -> Values:
        found = p.evaluated(e, bits)
        return [splat(p.b, found[q % len(found)], p.schedule.lanes) if lanes else found[q % len(found)] for q in range(count)]

    start = [ready(_body(x), bits) for x, bits in zip(f.initial, widths, strict=True)]
    steps = _extent(f.extent)
    if not steps:
        return start

    def body(i: Value, flat: Values) -> Values:
        p.at[f.variable] = i
        p.accumulators.update({x: flat[n * count : (n + 1) * count] for n, x in enumerate(f.accumulators)})
        p.depth += 1
        made = [x for y, bits in zip(f.bodies, widths, strict=True) for x in ready(_body(y), bits)]
        p.depth -= 1
        del p.at[f.variable]
        for x in f.accumulators:
            del p.accumulators[x]
        return made

    made = p.loop(p.number(steps, "steps", f.variable), [x for values in start for x in values], body)
    return [made[n * count : (n + 1) * count] for n in range(len(start))]


def _body(a: object) -> Expr:
    assert isinstance(a, Comprehension)
    return a.body


def _extent(e: Expr) -> int:
    if e.value is None:
        raise NotLowered("a loop", "whose extent is not known")
    return int(e.value)


def _neutral(monoid: str, e: Expr) -> int:
    bound = 0 if monoid == "sum" else e.interval[0 if monoid == "max" else 1]
    if bound is None:
        raise NotLowered(monoid, "of values without an end")
    return bound
