"""Folds and sums of a kernel: loops whose values stay in registers, pairs of products by the processor's instruction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from llvmlite import ir

from ..lang import intervals as iv
from ..lang.binders import Comprehension, FoldResult
from ..lang.expr import Expr
from .emission import Emission
from .instructions import add_pairs
from .layout import Layout
from .vectors import WORD, NotLowered, Value, aligned, over_jam, resized, splat, width_of

UNROLLED = 8  # steps of the innermost loop of a sum up to which there is no loop
Values = list[Value]


def reduced(p: Emission, e: Expr, bits: int) -> Values:
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


@dataclass(frozen=True)
class _Pairs:
    """The variable along which two neighbouring values are added by one instruction, and how each load has them side by side."""

    variable: Expr
    layouts: Mapping[Expr, Layout]


class _Reduction:
    """What is done in every step of a reduction."""

    def __init__(self, body: Expr, monoid: str, bits: int, pairs: _Pairs | None) -> None:
        self.body, self.monoid, self.bits, self.pairs = body, monoid, bits, pairs

    def step(self, p: Emission, totals: Values) -> Values:
        """Return the totals with one more value, or with one more pair of values."""
        if self.pairs is not None:
            return self._pair(p, totals, self.pairs)
        values = p.evaluated(self.body, self.bits)
        if self.monoid == "sum":
            return over_jam(lambda t, x: p.b.add(*aligned(p.b, t, x)), totals, values)
        sign = "<" if self.monoid == "min" else ">"
        return over_jam(lambda t, x: _chosen(p, sign, *aligned(p.b, t, x)), totals, values)

    def _pair(self, p: Emission, totals: Values, pairs: _Pairs) -> Values:
        kind = ir.VectorType(ir.IntType(16), 2 * p.schedule.lanes)

        def halves(x: Value) -> Value:
            return x if x.type == kind else p.b.bitcast(splat(p.b, x, p.schedule.lanes), kind)

        loads = {load: [halves(x) for x in p.pairs(load, layout, pairs.variable)] for load, layout in pairs.layouts.items()}
        if _is_product(self.body):
            factors = [loads[load] for load in self.body.args]
        else:
            with p.paired(loads):
                factors = [p.evaluated(self.body, 16), [ir.Constant(kind, [1] * kind.count)]]
        return over_jam(lambda t, x, y: add_pairs(p.b, p.features, t, x, y), totals, *factors)


def _chosen(p: Emission, sign: str, x: Value, y: Value) -> Value:
    return p.b.select(p.b.icmp_signed(sign, x, y), x, y)


def _nested(p: Emission, r: _Reduction, left: Sequence[tuple[Expr, int]], totals: Values) -> Values:
    """Return the totals after loops over the variables that are left; the innermost one has few iterations of several steps."""
    if not left:
        with p.scope():
            return r.step(p, totals)
    (variable, extent), rest = left[0], left[1:]
    unit = 2 if r.pairs is not None and r.pairs.variable is variable else 1
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


def _pairs(p: Emission, body: Expr, variables: Sequence[Expr], extents: Sequence[int]) -> _Pairs | None:
    """Return along which variable neighbouring values are added by one instruction; None where there is none.

    They are products of two loads, or what lanes of 16 bits hold of such a product.
    """
    product = _product_in(body)
    if product is None or not p.varies(body):
        return None
    if any(not hasattr(a.data, "name") or a.data in p.accumulators for a in product.args):
        return None
    for v, extent in zip(variables, extents, strict=True):
        if extent < 2 or (extent % 2 and not any(_ends_with(a, v, extent) for a in product.args)):
            continue
        p.unit[v] = 2
        layouts = {load: p.pair_layout(load, v) for load in product.args}
        del p.unit[v]
        known = {load: layout for load, layout in layouts.items() if layout is not None}
        if len(known) == len(layouts):
            return _Pairs(v, known)
    return None


def _is_product(e: Expr) -> bool:
    return e.op == "mul" and all(a.op == "load" for a in e.args)


def _product_in(body: Expr) -> Expr | None:
    """Return the product of loads of which a term is a part that is 0 where the product is."""
    if _is_product(body):
        return body
    is_part = (body.op == "shr" and body.args[1].op == "const") or (body.op == "mod" and (body.args[1].value or 0) > 0)
    return body.args[0] if is_part and iv.inside(body.interval, iv.of_width(16, True)) and _is_product(body.args[0]) else None


def _ends_with(load: Expr, variable: Expr, extent: int) -> bool:
    """Tell whether a variable runs to the end of an axis on its own: behind an odd end lie zeros."""
    axes = [(i, n) for i, n in zip(load.args, load.data.shape, strict=True) if variable in i.free]
    return len(axes) == 1 and axes[0][0] is variable and axes[0][1] == extent


def fold_result(p: Emission, a: FoldResult) -> Values:
    """Return one accumulator of a fold of scalars after its last step."""
    key = "fold", a.fold
    found = next((m[key] for m in reversed(p.memo) if key in m), None)
    if found is None:
        found = p.memo[-1][key] = _folded(p, a)
    return list(found[a.component])


def _folded(p: Emission, a: FoldResult) -> list[Values]:
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
