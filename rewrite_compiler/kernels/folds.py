"""Reductions and folds of a kernel: loops with accumulators in registers, pairs of 16-bit products by dot-product instructions."""

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
from .vectors import WORD, NotLowered, Value, align_lanes, map_positions, resize, splat, uniform, width_of

MAX_UNROLLED = 8  # steps of the innermost loop of a sum up to which there is no loop
Values = list[Value]


def emit_reduction(p: Emission, e: Expr, bits: int) -> Values:
    """Emit a sum, a maximum or a minimum, in lanes of `bits`, at each jammed position."""
    monoid, variables = e.data
    extents = [_extent(x) for x in e.args[1:]]
    body = e.args[0]
    lane_bits = bits if monoid == "sum" else width_of(e.interval)
    if monoid == "sum" and iv.inside(e.interval, iv.of_width(bits, True)):
        lane_bits = width_of(e.interval)
    first = _neutral(monoid, e)
    if not min(extents, default=1):
        return [ir.Constant(ir.IntType(bits), first)]
    kind = ir.IntType(lane_bits)
    start: Value = ir.Constant(kind, first)
    if p.varies(body):
        start = uniform(p.schedule.lanes, lane_bits, first)
    pairs = _pairs(p, body, variables, extents) if monoid == "sum" and lane_bits <= 32 else None
    if pairs is not None:
        start = uniform(p.schedule.lanes, 32, 0)
    p.depth += 1
    totals = _nested(p, _Reduction(body, monoid, lane_bits, pairs), list(zip(variables, extents, strict=True)), [start] * p.positions(body))
    p.depth -= 1
    return [resize(p.b, x, bits) for x in totals]


@dataclass(frozen=True)
class _Pairs:
    """The variable along which two neighbouring values are added by one instruction, and how each load has them side by side."""

    variable: Expr
    layouts: Mapping[Expr, Layout]


class _Reduction:
    """The step of a reduction: one more value, or one more pair of values."""

    def __init__(self, body: Expr, monoid: str, bits: int, pairs: _Pairs | None) -> None:
        self.body, self.monoid, self.bits, self.pairs = body, monoid, bits, pairs

    def step(self, p: Emission, totals: Values) -> Values:
        """Return the totals with one more value, or with one more pair of values."""
        if self.pairs is not None:
            return self._pair(p, totals, self.pairs)
        values = p.evaluate(self.body, self.bits)
        if self.monoid == "sum":
            return map_positions(lambda t, x: p.b.add(*align_lanes(p.b, t, x)), totals, values)
        sign = "<" if self.monoid == "min" else ">"
        return map_positions(lambda t, x: _chosen(p, sign, *align_lanes(p.b, t, x)), totals, values)

    def _pair(self, p: Emission, totals: Values, pairs: _Pairs) -> Values:
        kind = ir.VectorType(ir.IntType(16), 2 * p.schedule.lanes)

        def halves(x: Value) -> Value:
            return x if x.type == kind else p.b.bitcast(splat(p.b, x, p.schedule.lanes), kind)

        loads = {load: [halves(x) for x in p.pairs(load, layout, pairs.variable)] for load, layout in pairs.layouts.items()}
        if _is_product(self.body):
            factors = [loads[load] for load in self.body.args]
        else:
            with p.paired_loads(loads):
                factors = [p.evaluate(self.body, 16), [uniform(kind.count, 16, 1)]]
        return map_positions(lambda t, x, y: add_pairs(p.b, p.features, t, x, y), totals, *factors)


def _chosen(p: Emission, sign: str, x: Value, y: Value) -> Value:
    return p.b.select(p.b.icmp_signed(sign, x, y), x, y)


def _nested(p: Emission, r: _Reduction, loops: Sequence[tuple[Expr, int]], totals: Values) -> Values:
    """Return the totals after loops over the variables that are left; the innermost one has few iterations of several steps."""
    if not loops:
        with p.scope():
            return r.step(p, totals)
    (variable, extent), inner_loops = loops[0], loops[1:]
    unit = 2 if r.pairs is not None and r.pairs.variable is variable else 1
    steps = -(-extent // unit)
    unrolled_steps = 1 if inner_loops else steps if steps <= MAX_UNROLLED else next(n for n in (4, 2, 1) if not steps % n)
    p.unit[variable] = unit

    def body(i: Value, partial_totals: Values) -> Values:
        for n in range(unrolled_steps):
            base = p.b.mul(i, WORD(unrolled_steps)) if unrolled_steps > 1 else i
            p.loop_counters[variable] = p.b.add(base, WORD(n)) if n else base
            with p.scope():
                partial_totals = _nested(p, r, inner_loops, partial_totals)
        del p.loop_counters[variable]
        return partial_totals

    final_totals = (
        body(WORD(0), totals) if unrolled_steps == steps else p.loop(p.number(steps // unrolled_steps, "steps", variable), totals, body)
    )
    del p.unit[variable]
    return final_totals


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
        pair_layouts = {load: layout for load, layout in layouts.items() if layout is not None}
        if len(pair_layouts) == len(layouts):
            return _Pairs(v, pair_layouts)
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


def emit_fold(p: Emission, a: FoldResult) -> Values:
    """Emit a fold of scalars and return one accumulator after its last step, at each jammed position."""
    key = "fold", a.fold
    results = next((m[key] for m in reversed(p.memo) if key in m), None)
    if results is None:
        results = p.memo[-1][key] = _folded(p, a)
    return list(results[a.component])


def _folded(p: Emission, a: FoldResult) -> list[Values]:
    f = a.fold
    parts = [_body(x) for x in (*f.initial, *f.bodies)]
    count, lanes = p.positions(*parts), p.varies(*parts)
    widths = [max(width_of(x.interval), _width_of_step(_body(y))) for x, y in zip(f.accumulators, f.bodies, strict=True)]

    def evaluated(e: Expr, bits: int) -> Values:
        values = p.evaluate(e, bits)
        return [splat(p.b, values[q % len(values)], p.schedule.lanes) if lanes else values[q % len(values)] for q in range(count)]

    start = [evaluated(_body(x), bits) for x, bits in zip(f.initial, widths, strict=True)]
    steps = _extent(f.extent)
    if not steps:
        return start

    def body(i: Value, flat: Values) -> Values:
        p.loop_counters[f.variable] = i
        p.accumulators.update({x: flat[n * count : (n + 1) * count] for n, x in enumerate(f.accumulators)})
        p.depth += 1
        next_values = [x for y, bits in zip(f.bodies, widths, strict=True) for x in evaluated(_body(y), bits)]
        p.depth -= 1
        del p.loop_counters[f.variable]
        for x in f.accumulators:
            del p.accumulators[x]
        return next_values

    last_values = p.loop(p.number(steps, "steps", f.variable), [x for values in start for x in values], body)
    return [last_values[n * count : (n + 1) * count] for n in range(len(start))]


def _width_of_step(e: Expr) -> int:
    """Return the width in which a step adds before it clamps: an accumulator of that width is not converted in every step."""
    while e.op in ("min", "max") and any(a.op == "const" for a in e.args):
        e = next(a for a in e.args if a.op != "const") if any(a.op != "const" for a in e.args) else e.args[0]
    return max(map(_value_width, e.args)) if e.op == "add" else 0


def _value_width(e: Expr) -> int:
    """Return the width of the narrowest lane of a value, 0 where there is none."""
    return width_of(e.interval) if iv.inside(e.interval, iv.of_width(WORD.width, True)) else 0


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
