"""Vector code of operators: exact in the narrowest lanes that hold operands and result, modulo a power of two where that suffices."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from llvmlite import ir

from ..lang import intervals as iv
from ..lang.expr import COMPARISONS, Expr
from ..lang.substitution import substitute
from ..lang.traversal import terms_of
from ..readings.native.operators import declare_function
from ..readings.native.printer import COMPARISON_SIGNS, table_entries
from .emission import Emission
from .vectors import BIT, WORD, NotLowered, Value, align_lanes, bits_of, constant_like, is_vector, map_positions, resize, width_of

Values = list[Value]
MAX_INLINED_NODES = 24  # tables of so few terms are computed and not looked up


def emit_operator(p: Emission, e: Expr, bits: int) -> Values:
    """Emit a term whose operator is neither a load nor a reduction, in lanes of `bits`, at each jammed position.

    Raises:
        NotLowered: the operator has no vector code.
    """
    if e.op == "select":
        return _selected(p, e, bits)
    if e.op in CONDITIONS:
        return [resize(p.b, x, bits, signed=False) for x in emit_condition(p, e)]
    lane_bits = WORD.width if p.in_index else bits
    if not p.in_index and iv.inside(e.interval, iv.of_width(bits, True)):
        lane_bits = min(bits, max(width_of(e.interval), _exact_part(e)))
    if e.op in RING or _is_low_part(e, lane_bits):
        values = RING[e.op](p, e, lane_bits) if e.op in RING else _low_part(p, e, lane_bits)
    elif e.op in EXACT:
        values = EXACT[e.op](p, e)
    else:
        raise NotLowered(e.op, "at all")
    return [resize(p.b, x, bits) for x in values]


def _needed(p: Emission, e: Expr) -> int:
    """Return the lanes in which operands and result are exact."""
    widest = max(width_of(x.interval) for x in (e, *e.args))
    return WORD.width if p.in_index else widest


def _operands(p: Emission, e: Expr, bits: int) -> list[Values]:
    return [p.evaluate(a, bits) for a in e.args]


def _ring(name: str) -> Callable[[Emission, Expr, int], Values]:
    def rule(p: Emission, e: Expr, bits: int) -> Values:
        function = instruction_of(p.b, name)
        operands = [p.constant_argument(a, bits) if name in ("add", "sub") else p.evaluate(a, bits) for a in e.args]
        return map_positions(lambda *xs: function(*align_lanes(p.b, *xs)), *operands)

    return rule


def instruction_of(b: ir.IRBuilder, name: str) -> Callable[..., Value]:
    """Return the builder method of an LLVM instruction."""
    instructions: dict[str, Callable[..., Value]] = {
        "add": b.add, "sub": b.sub, "mul": b.mul, "neg": b.neg, "and": b.and_, "or": b.or_, "xor": b.xor,
    }  # fmt: skip
    return instructions[name]


def _is_low_part(e: Expr, bits: int) -> bool:
    """Tell whether only lower bits of the operand matter, so that lanes of `bits` are enough for it."""
    if e.op == "wrap":
        return bits <= int(e.data[0])
    return (e.op == "mod" and _power(e.args[1]) is not None and int(e.args[1].data) <= 1 << bits - 1) or (
        e.op == "shl" and e.args[1].op == "const" and int(e.args[1].data) < bits
    )


def _low_part(p: Emission, e: Expr, bits: int) -> Values:
    xs = p.evaluate(e.args[0], bits)
    if e.op == "wrap":
        return xs
    n = int(e.args[1].data)
    if e.op == "mod":
        return [p.b.and_(x, constant_like(x, n - 1)) for x in xs]
    return map_positions(lambda x, n: p.b.shl(*align_lanes(p.b, x, n)), xs, p.constant_argument(e.args[1], bits))


def _exact_part(e: Expr) -> int:
    """Return the lanes in which the operand of a low part is exact where it must be: no conversion is cheaper than narrow lanes."""
    return width_of(e.args[0].interval) if e.op in ("mod", "extract", "wrap") and e.args[0].op in EXACT else 0


def _power(e: Expr) -> int | None:
    """Return the exponent of a constant that is a power of two."""
    n = int(e.data) if e.op == "const" else 0
    return n.bit_length() - 1 if n > 0 and not n & (n - 1) else None


def emit_condition(p: Emission, e: Expr) -> Values:
    """Emit a truth value as single bits, at each jammed position."""
    if e.op in COMPARISONS:
        bits = _needed(p, e)
        return map_positions(lambda x, y: p.b.icmp_signed(COMPARISON_SIGNS[e.op], *align_lanes(p.b, x, y)), *_operands(p, e, bits))
    if e.op in ("bitand", "bitor") and all(iv.inside(a.interval, iv.TRUTH) for a in e.args):
        function = p.b.and_ if e.op == "bitand" else p.b.or_
        return map_positions(lambda x, y: function(*align_lanes(p.b, x, y)), *(emit_condition(p, a) for a in e.args))
    if e.op == "not":
        return [p.b.not_(x) for x in emit_condition(p, e.args[0])]
    return [p.b.icmp_signed("!=", x, constant_like(x, 0)) for x in p.evaluate(e, WORD.width if p.in_index else width_of(e.interval))]


def _selected(p: Emission, e: Expr, bits: int) -> Values:
    c = e.args[0]
    if not c.reads and not p.varies(c) and p.positions(c) == 1:
        return _branched(p, e, bits)
    was_in_index, p.in_index = p.in_index, p.in_index or not c.reads
    conditions = emit_condition(p, c)
    p.in_index = was_in_index
    x, y = (p.evaluate(a, bits) for a in e.args[1:])
    return map_positions(lambda c, x, y: p.b.select(*_with_lanes(p, c, x, y)), conditions, x, y)


def _with_lanes(p: Emission, c: Value, x: Value, y: Value) -> list[Value]:
    """Return a decision with its operands: one bit decides of whole vectors."""
    x, y = align_lanes(p.b, x, y)
    return align_lanes(p.b, c, x, y) if is_vector(c) else [c, x, y]


def _branched(p: Emission, e: Expr, bits: int) -> Values:
    """Return a value that is decided for all lanes: only one side is computed."""
    was_in_index, p.in_index = p.in_index, True
    (c,) = emit_condition(p, e.args[0])
    p.in_index = was_in_index
    count, lanes = p.positions(*e.args[1:]), p.varies(*e.args[1:])
    sides = []
    end = p.function.append_basic_block()
    blocks = [p.function.append_basic_block() for _ in range(2)]
    p.b.cbranch(c, *blocks)
    for block, side in zip(blocks, e.args[1:], strict=True):
        p.b.position_at_end(block)
        with p.scope():
            side_values = p.evaluate(side, bits)
        values = [_filled(p, side_values[q % len(side_values)], lanes) for q in range(count)]
        sides.append((values, p.b.block))
        p.b.branch(end)
    p.b.position_at_end(end)
    phis = [p.b.phi(x.type) for x in sides[0][0]]
    for values, block in sides:
        for phi, x in zip(phis, values, strict=True):
            phi.add_incoming(x, block)
    return phis


def _filled(p: Emission, x: Value, lanes: bool) -> Value:
    kind = ir.VectorType(ir.IntType(bits_of(x)), p.schedule.lanes)
    return align_lanes(p.b, x, ir.Constant(kind, ir.Undefined))[0] if lanes else x


def _extreme(p: Emission, e: Expr) -> Values:
    sign = "<" if e.op == "min" else ">"

    def extreme(x: Value, y: Value) -> Value:
        x, y = align_lanes(p.b, x, y)
        return p.b.select(p.b.icmp_signed(sign, x, y), x, y)

    return map_positions(extreme, *_operands(p, e, _needed(p, e)))


def _bitwise(p: Emission, e: Expr) -> Values:
    function = instruction_of(p.b, e.op.removeprefix("bit"))
    return map_positions(lambda x, y: function(*align_lanes(p.b, x, y)), *_operands(p, e, _needed(p, e)))


def _shifted(p: Emission, e: Expr) -> Values:
    bits, (low, high) = _needed(p, e), e.args[1].interval
    if low is None or low < 0:
        raise NotLowered("a shift", f"by an amount in {e.args[1].interval}")

    def shifted(x: Value, n: Value) -> Value:
        x, n = align_lanes(p.b, x, n)
        if high is None or high >= bits:  # beyond, what is shifted to the left is 0, and to the right its sign
            most = constant_like(n, bits - 1)
            n = p.b.select(p.b.icmp_signed(">", n, most), most, n)
        return p.b.shl(x, n) if e.op == "shl" else p.b.ashr(x, n)

    return map_positions(shifted, p.evaluate(e.args[0], bits), p.constant_argument(e.args[1], bits))


def _divided(p: Emission, e: Expr) -> Values:
    bits, divisor = _needed(p, e), e.args[1]
    low, high = divisor.interval
    k = _power(divisor)
    if k is not None and e.op in ("div", "mod"):
        xs = p.evaluate(e.args[0], bits)
        return [p.b.ashr(x, constant_like(x, k)) if e.op == "div" else p.b.and_(x, constant_like(x, (1 << k) - 1)) for x in xs]
    if low is None or high is None or low <= 0 <= high:
        raise NotLowered("a division", f"by a divisor in {divisor.interval}")
    return map_positions(lambda x, y: _quotient(p, e.op, *align_lanes(p.b, x, y)), *_operands(p, e, bits))


def _quotient(p: Emission, op: str, x: Value, y: Value) -> Value:
    zero, remainder = constant_like(x, 0), p.b.srem(x, y)
    if op in ("tdiv", "tmod"):
        return p.b.sdiv(x, y) if op == "tdiv" else remainder
    below = p.b.and_(p.b.icmp_signed("<", p.b.xor(remainder, y), zero), p.b.icmp_signed("!=", remainder, zero))
    if op == "mod":
        return p.b.select(below, p.b.add(remainder, y), remainder)
    quotient = p.b.sdiv(x, y)
    return p.b.select(below, p.b.sub(quotient, constant_like(x, 1)), quotient)


def _wrapped(p: Emission, e: Expr) -> Values:
    width, signed = e.data
    bits = WORD.width if p.in_index else width_of(e.interval)
    values = p.evaluate(e.args[0], bits)
    if not signed:
        return [p.b.and_(x, constant_like(x, (1 << width) - 1)) for x in values]
    if width >= bits:
        return values
    return [p.b.ashr(p.b.shl(x, constant_like(x, bits - width)), constant_like(x, bits - width)) for x in values]


def _extracted(p: Emission, e: Expr) -> Values:
    low, width = e.data
    bits = _needed(p, e)
    values = p.evaluate(e.args[0], bits)
    if low >= bits:
        return [constant_like(x, 0) for x in values]
    return [p.b.and_(p.b.lshr(x, constant_like(x, low)), constant_like(x, (1 << min(width, bits - 1)) - 1)) for x in values]


def _leading_zeros(p: Emission, e: Expr) -> Values:
    bits = max(32, _needed(p, e))

    def zeros(x: Value) -> Value:
        kind = f"v{x.type.count}i{bits}" if is_vector(x) else f"i{bits}"
        count = declare_function(p.module, f"llvm.ctlz.{kind}", ir.FunctionType(x.type, [x.type, BIT]))
        return p.b.add(p.b.call(count, [x, BIT(0)]), constant_like(x, e.data - bits))

    return [zeros(x) for x in p.evaluate(e.args[0], bits)]


def _looked_up(p: Emission, e: Expr) -> Values:
    t = e.data
    if t.body.real:
        raise NotLowered("a table", "of real numbers")
    if sum(1 for _ in terms_of(t.body)) <= MAX_INLINED_NODES:
        return p.evaluate(substitute(t.body, dict(zip(t.parameters, e.args, strict=True))), width_of(e.interval))
    places: Values = [WORD(0)]
    for a, extent, domain in zip(e.args, t.shape, t.domains, strict=True):
        base = WORD(domain[0] or 0)
        places = map_positions(
            lambda at, x, n=extent, low=base: _place(p, at, x, n, low), places, p.evaluate(a, WORD.width)
        )  # fmt: skip
    kind = table_entries(t).dtype
    entries = [p.gather(p.source(t), x, kind) for x in places]
    return [resize(p.b, x, width_of(e.interval), signed=np.dtype(kind).kind == "i") for x in entries]


def _place(p: Emission, at: Value, x: Value, extent: int, low: Value) -> Value:
    at, x, n, first = align_lanes(p.b, at, x, WORD(extent), low)
    return p.b.add(p.b.mul(at, n), p.b.sub(x, first))


# results modulo 2^bits of operands modulo 2^bits
RING: dict[str, Callable[[Emission, Expr, int], Values]] = {name: _ring(name) for name in ("add", "sub", "mul", "neg")}
CONDITIONS = frozenset({*COMPARISONS, "not"})
EXACT: dict[str, Callable[[Emission, Expr], Values]] = {
    **dict.fromkeys(("min", "max"), _extreme),
    **dict.fromkeys(("bitand", "bitor", "bitxor"), _bitwise),
    **dict.fromkeys(("shl", "shr"), _shifted),
    **dict.fromkeys(("div", "mod", "tdiv", "tmod"), _divided),
    "wrap": _wrapped,
    "extract": _extracted,
    "clz": _leading_zeros,
    "table": _looked_up,
}
