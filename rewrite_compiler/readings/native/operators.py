"""LLVM code of straight-line operators, on words or on vectors of words of 32 and 64 bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from llvmlite import ir

from ..straightline.code import REAL, Code, Op

BIT = ir.IntType(1)
COMPARISON_SIGNS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<="}
TO_WORDS = {*COMPARISON_SIGNS, "floor", "rint"}


class Words:
    """Emits operators through a builder; `lanes` 0 stands for plain words."""

    def __init__(self, builder: ir.IRBuilder, lanes: int = 0) -> None:
        """Emit where `builder` stands."""
        self.b, self.lanes = builder, lanes

    def kind(self, bits: int) -> Any:
        """Return the type of a value of `bits`."""
        if bits == REAL:
            return ir.VectorType(ir.DoubleType(), self.lanes) if self.lanes else ir.DoubleType()
        return ir.VectorType(ir.IntType(bits), self.lanes) if self.lanes else ir.IntType(bits)

    def const(self, value: int, bits: int) -> ir.Constant:
        """Return a constant in every lane."""
        return ir.Constant(self.kind(bits), [value] * self.lanes if self.lanes else value)

    def splat(self, word: ir.Value, bits: int) -> ir.Value:
        """Return one word in every lane."""
        word = resize(self.b, word, ir.IntType(bits))
        if not self.lanes:
            return word
        kind, zero = self.kind(bits), ir.Constant(ir.IntType(32), 0)
        undefined = ir.Constant(kind, ir.Undefined)
        first = self.b.insert_element(undefined, word, zero)
        return self.b.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(zero.type, self.lanes), [0] * self.lanes))

    def fit(self, value: ir.Value, bits: int) -> ir.Value:
        """Return a value in words of `bits`."""
        return resize(self.b, value, self.kind(bits))

    def run(self, code: Code, operands: Mapping[int, ir.Value]) -> list[ir.Value]:
        """Emit all of `code` and return its values; those of its operands are `given`, by number."""
        values: list[ir.Value] = []
        for n, op in enumerate(code):
            if n in operands:
                values.append(operands[n])
            elif op.name == "const":
                values.append(self.const(op.data, op.bits))
            else:
                values.append(self.operator(op, values))
        return values

    def operator(self, op: Op, values: Sequence[ir.Value], *, is_single: bool = False) -> ir.Value:
        """Emit one operator; in float32 where it `is_single`."""
        if op.width == REAL:
            return _real_operator(self, op, [values[a] for a in op.args], ir.FloatType() if is_single else None)
        args = [self.fit(values[a], op.width) for a in op.args]
        return self.fit(EMIT[op.name](self, op, args), op.bits)


def _real_operator(w: Words, op: Op, operands: list[ir.Value], kind: Any = None) -> ir.Value:
    """Emit an operator on floats of 64 bits, or of a `kind`; comparisons and roundings of singles, which are exact, on those."""
    b = w.b
    if op.name == "select":
        condition = b.icmp_signed("!=", operands[0], ir.Constant(operands[0].type, 0))
        return b.select(condition, *(_as_float(w, x, kind or w.kind(REAL)) for x in operands[1:]))
    is_single = kind is not None or (op.name in TO_WORDS and all(isinstance(x.type, ir.FloatType) for x in operands))
    kind = kind or (ir.FloatType() if is_single else w.kind(REAL))
    if op.name == "single":
        return b.fptrunc(operands[0], kind) if isinstance(operands[0].type, ir.DoubleType) else operands[0]
    a = [_as_float(w, x, kind) for x in operands]
    if op.name in COMPARISON_SIGNS:
        return b.zext(b.fcmp_ordered(COMPARISON_SIGNS[op.name], *a), w.kind(32))
    if op.name in ("min", "max"):
        return b.select(b.fcmp_ordered("<" if op.name == "min" else ">", *a), *a)
    if op.name in ("floor", "rint"):
        name = f"llvm.{'floor' if op.name == 'floor' else 'roundeven'}.f{32 if is_single else 64}"
        return b.fptosi(b.call(declare_function(b.module, name, ir.FunctionType(kind, [kind])), a), w.kind(32))
    if op.name == "real":
        return a[0]
    return b.fneg(a[0]) if op.name == "neg" else {"add": b.fadd, "sub": b.fsub, "mul": b.fmul}[op.name](*a)


def _as_float(w: Words, x: ir.Value, kind: Any) -> ir.Value:
    """Return a word or a float as a float of a kind that holds it."""
    if x.type == kind:
        return x
    return w.b.fpext(x, kind) if isinstance(x.type, ir.FloatType) else w.b.sitofp(x, kind)


def ordered_words(b: ir.IRBuilder, bits: ir.Value) -> Any:
    """Return the bits of float32 values as signed words in the same order, lane by lane."""

    def number(n: int) -> ir.Constant:
        return ir.Constant(bits.type, [n] * bits.type.count if isinstance(bits.type, ir.VectorType) else n)

    return b.xor(bits, b.lshr(b.ashr(bits, number(31)), number(1)))


def update_extrema(b: ir.IRBuilder, bits: ir.Value, extrema: Sequence[ir.Value]) -> None:
    """Update a running minimum and maximum, two variables, by the bits of float32 values as ordered words."""
    word = ordered_words(b, bits)
    for order, end in zip("<>", extrema, strict=True):
        extremum = b.load(end)
        b.store(b.select(b.icmp_signed(order, word, extremum), word, extremum), end)


def scatter_lanes(b: ir.IRBuilder, vector: ir.Value, base: ir.Value) -> ir.Value:
    """Return the vector `old` with the elements of a shorter one scattered into it at a constant stride."""
    count, lanes = vector.type.count, base.type.count
    kind, stride = ir.VectorType(ir.IntType(32), lanes), lanes // count
    indices = ir.Constant(kind, [j // stride for j in range(lanes)])
    scattered = b.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), indices)
    return b.shuffle_vector(base, scattered, ir.Constant(kind, [j if j % stride else lanes + j for j in range(lanes)]))


def resize(b: ir.IRBuilder, value: ir.Value, kind: Any) -> ir.Value:
    """Return a value sign-extended or truncated to another width."""
    if value.type == kind:
        return value
    element = getattr(value.type, "element", value.type)
    target = getattr(kind, "element", kind)
    return b.sext(value, kind) if element.width < target.width else b.trunc(value, kind)


def declare_function(module: ir.Module, name: str, kind: ir.FunctionType) -> ir.Function:
    """Return an external function of the module, declaring it when it is new."""
    function = module.globals.get(name)
    return ir.Function(module, kind, name) if function is None else function


def _truth(w: Words, op: Op, condition: ir.Value) -> ir.Value:
    return w.b.zext(condition, w.kind(op.width))


def _compare(w: Words, op: Op, a: list[ir.Value]) -> ir.Value:
    return _truth(w, op, w.b.icmp_signed(COMPARISON_SIGNS[op.name], *a))


def _extremum(w: Words, op: Op, a: list[ir.Value]) -> ir.Value:
    return w.b.select(w.b.icmp_signed("<" if op.name == "min" else ">", *a), *a)


def _select(w: Words, op: Op, a: list[ir.Value]) -> ir.Value:
    return w.b.select(w.b.icmp_signed("!=", a[0], w.const(0, op.width)), a[1], a[2])


def _amount(w: Words, op: Op, n: ir.Value) -> ir.Value:
    """Return a shift amount in 0 … width − 1: in a branch that is not taken it may be anything."""
    if isinstance(n, ir.Constant):
        return n
    zero, top = w.const(0, op.width), w.const(op.width - 1, op.width)
    n = w.b.select(w.b.icmp_signed(">", n, zero), n, zero)
    return w.b.select(w.b.icmp_signed("<", n, top), n, top)


def _shift(w: Words, op: Op, a: list[ir.Value]) -> ir.Value:
    amount = _amount(w, op, a[1])
    if op.name == "shr":
        return w.b.ashr(a[0], amount)
    is_long = w.b.icmp_signed(">", a[1], w.const(op.width - 1, op.width))
    return w.b.select(is_long, w.const(0, op.width), w.b.shl(a[0], amount))


def _constant(a: ir.Value) -> int | None:
    if not isinstance(a, ir.Constant):
        return None
    value: Any = a.constant[0] if isinstance(a.constant, list) else a.constant
    return int(value.constant if isinstance(value, ir.Constant) else value)


def _divide(w: Words, op: Op, a: list[ir.Value]) -> ir.Value:
    x, y = a
    divisor = _constant(y)
    if op.name in ("div", "mod") and divisor and divisor > 0 and divisor & divisor - 1 == 0:
        return w.b.ashr(x, w.const(divisor.bit_length() - 1, op.width)) if op.name == "div" else w.b.and_(x, w.const(divisor - 1, op.width))
    zero, one = w.const(0, op.width), w.const(1, op.width)
    if divisor is None:
        y = w.b.select(w.b.icmp_signed("==", y, zero), one, y)  # in a branch that is not taken
    if op.name == "tdiv":
        return w.b.sdiv(x, y)
    remainder = w.b.srem(x, y)
    if op.name == "tmod":
        return remainder
    signs_differ = w.b.icmp_signed("<", w.b.xor(remainder, y), zero)
    rounds_down = w.b.and_(w.b.icmp_signed("!=", remainder, zero), signs_differ)
    if op.name == "div":
        return w.b.sub(w.b.sdiv(x, y), w.b.zext(rounds_down, w.kind(op.width)))
    return w.b.select(rounds_down, w.b.add(remainder, y), remainder)


def _wrap(w: Words, op: Op, a: list[ir.Value]) -> ir.Value:
    bits, is_signed = op.data
    if not is_signed:
        return w.b.and_(a[0], w.const((1 << bits) - 1, op.width)) if bits < op.width else a[0]
    if bits >= op.width:
        return a[0]
    shift = w.const(op.width - bits, op.width)
    return w.b.ashr(w.b.shl(a[0], shift), shift)


def _extract(w: Words, op: Op, a: list[ir.Value]) -> ir.Value:
    low, width = op.data
    if low >= op.width:
        return w.const(0, op.width)
    return w.b.and_(w.b.lshr(a[0], w.const(low, op.width)), w.const((1 << min(width, op.width - 1)) - 1, op.width))


def _leading_zeros(w: Words, op: Op, a: list[ir.Value]) -> ir.Value:
    kind, shape = w.kind(op.width), f"v{w.lanes}i{op.width}" if w.lanes else f"i{op.width}"
    count = declare_function(w.b.module, f"llvm.ctlz.{shape}", ir.FunctionType(kind, [kind, BIT]))
    return w.b.add(w.b.call(count, [a[0], ir.Constant(BIT, 0)]), w.const(op.data - op.width, op.width))


EMIT: dict[str, Callable[[Words, Op, list[ir.Value]], ir.Value]] = {
    "add": lambda w, op, a: w.b.add(*a),
    "sub": lambda w, op, a: w.b.sub(*a),
    "mul": lambda w, op, a: w.b.mul(*a),
    "neg": lambda w, op, a: w.b.neg(*a),
    "not": lambda w, op, a: w.b.xor(a[0], w.const(1, op.width)),
    "bitand": lambda w, op, a: w.b.and_(*a),
    "bitor": lambda w, op, a: w.b.or_(*a),
    "bitxor": lambda w, op, a: w.b.xor(*a),
    **dict.fromkeys(("div", "mod", "tdiv", "tmod"), _divide),
    **dict.fromkeys(("shl", "shr"), _shift),
    **dict.fromkeys(COMPARISON_SIGNS, _compare),
    **dict.fromkeys(("min", "max"), _extremum),
    "select": _select,
    "wrap": _wrap,
    "extract": _extract,
    "clz": _leading_zeros,
}
