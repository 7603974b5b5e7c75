"""VTA compute: GEMM and ALU, micro-ops inside two loops; each index is the micro-op's plus a factor a loop."""

from __future__ import annotations

from collections.abc import Callable

from rewrite_compiler.ila import Ila, Match
from rewrite_compiler.lang import (
    NOTHING,
    Array,
    Expr,
    Leaf,
    Step,
    assign,
    clamp,
    lift,
    loop,
    maximum,
    minimum,
    reduce,
    reduce_sum,
    require,
    seq,
    shift,
    signed,
    update,
    updates,
    when,
    wrap,
)

from .config import Config
from .fields import ADD, ALU, FINISH, GEMM, MAX, MIN, MUL, OPCODE, SHR, Encoding

Fields = dict[str, Expr]
Scalar = Callable[[Expr, Expr], Expr]  # row and column of an element → value
Written = tuple[Leaf, tuple[Expr, ...], Expr]
Body = Callable[[Expr, Expr, Expr], Step]  # destination, source and weight index → what one micro-op does
OPERATIONS = {
    "alu_min": (MIN, "Keep the smaller of two accumulators, or of an accumulator and the immediate."),
    "alu_max": (MAX, "Keep the larger one."),
    "alu_add": (ADD, "Add, modulo the accumulator's width."),
    "alu_shr": (SHR, "Shift right, towards −∞; a negative amount shifts left."),
    "alu_mul": (MUL, "Multiply, modulo the accumulator's width."),
}


_ELEMENTWISE: dict[str, Callable[[Expr, Expr], Expr]] = {
    "alu_min": minimum,
    "alu_max": maximum,
    "alu_add": lambda a, b: a + b,
    "alu_mul": lambda a, b: a * b,
}


def declare_compute(m: Ila, c: Config, e: Encoding) -> None:
    """Declare GEMM, the ALU operations of this encoding, and FINISH."""
    opcode = m.word("data", OPCODE.low, OPCODE.high)

    def gemm(**operands: Array) -> Step:
        """Add input · weightᵀ to accumulators, or clear them (reset)."""
        return _gemm(m, c, {key: leaf[()] for key, leaf in operands.items()})

    m.instruction("gemm", Match(opcode == GEMM, {"data": GEMM}), e.gemm)(gemm)
    for name, (number, _) in OPERATIONS.items():
        if number < 1 << e.alu_opcode.width:
            _declare_alu(m, c, e, name)

    def finish(**tokens: Array) -> Step:
        """Raise the done flag; the published ILA has no such instruction and ignores it."""
        return assign(m.s.done, 1)

    m.instruction("finish", Match(opcode == FINISH, {"data": FINISH}), e.tokens)(finish)


def _nest(m: Ila, c: Config, f: Fields, source: str, body: Body) -> Step:
    """Run the micro-ops uop_bgn … uop_end−1 in order inside both loops; loops of the published ILA run at least once."""
    least = 1 if m.parameters["behaviour"] == "ila" else 0
    count = maximum(f["uop_end"] - f["uop_bgn"], least)
    outer, inner = (maximum(f[n], least) for n in ("iter_out", "iter_in"))
    sorts = ("acc", source, *(("wgt",) if source == "inp" else ()))

    def micro_op(k: Expr) -> tuple[Expr, ...]:
        return c.indices(m.s.uop[(f["uop_bgn"] + k) % c.depth("uop")])

    def offset(n: int, y: Expr, x: Expr) -> Expr:
        name = ("dst", "src", "wgt")[n]
        return y * f[f"{name}_factor_out"] + x * f[f"{name}_factor_in"]

    def one(y: Expr, x: Expr, k: Expr) -> Step:
        index = [(i + offset(n, y, x)) % c.depth(sort) for n, (i, sort) in enumerate(zip(micro_op(k), sorts, strict=False))]
        return body(*index, *[lift(0)] * (3 - len(index)))

    def inside(n: int, sort: str) -> Step:
        last = reduce("max", lambda k: micro_op(k)[n], count) + offset(n, outer - 1, inner - 1)
        sentence = f"{{what}} element {{last}} of {sort}, which has {c.depth(sort)}"
        return require(last < c.depth(sort), "I103", sentence.format(what="a micro-op addresses", last="{last}"), last=last)

    ends = f["uop_bgn"] + count <= c.depth("uop")
    checks = seq(
        require(ends, "I103", f"uop_end must be at most {c.depth('uop')}, not {{end}}", end=f["uop_end"]),
        *(inside(n, sort) for n, sort in enumerate(sorts)),
    )
    run = loop(outer, lambda y: loop(inner, lambda x: loop(count, lambda k: one(y, x, k))))
    return when((outer > 0) & (inner > 0) & (count > 0), seq(checks, run))


def _gemm(m: Ila, c: Config, f: Fields) -> Step:
    s = m.s
    bits = c.width("acc")

    def total(dst: Expr, src: Expr, wgt: Expr, b: Expr, o: Expr) -> Expr:
        dot = reduce_sum(lambda k: s.inp[src, b, k] * s.wgt[wgt, o, k], c.block)
        return wrap(s.acc[dst, b, o] + dot, bits)

    def micro_op(dst: Expr, src: Expr, wgt: Expr, is_reset: bool) -> Step:
        def results(b: Expr, o: Expr) -> tuple[Expr, Expr]:
            new = total(dst, src, wgt, b, o)
            return (lift(0), new) if is_reset else (new, new)  # a design with an OUT buffer computes its output before it clears

        return _results(m, c, dst, results)

    adding = _nest(m, c, f, "inp", lambda dst, src, wgt: micro_op(dst, src, wgt, False))
    return when(f["reset"], _nest(m, c, f, "inp", lambda dst, src, wgt: micro_op(dst, src, wgt, True)), adding)


def _results(m: Ila, c: Config, dst: Expr, values: Callable[[Expr, Expr], tuple[Expr, Expr]]) -> Step:
    """Write an accumulator element and, where there is an OUT buffer, the low bits of the output at the same place."""

    def rows(b: Expr, o: Expr) -> list[Written]:
        acc, out = values(b, o)
        kept: list[Written] = [(m.s.acc, (dst, b, o), acc)]
        has_output = m.parameters["behaviour"] != "fsim"
        return [*kept, (m.s.out, (dst, b, o), wrap(out, c.width("inp")))] if has_output else kept

    return updates((c.batch, c.block), rows)


def _declare_alu(m: Ila, c: Config, e: Encoding, name: str) -> None:
    number, doc = OPERATIONS[name]
    low, high = e.alu_opcode.low, e.alu_opcode.high
    decode = (m.word("data", OPCODE.low, OPCODE.high) == ALU) & (m.word("data", low, high) == number)

    def alu(**operands: Array) -> Step:
        f = {key: leaf[()] for key, leaf in operands.items()}
        by_immediate = _nest(m, c, f, "acc", lambda dst, src, _: _operate(m, c, name, dst, lambda b, o: f["imm"]))
        by_register = _nest(m, c, f, "acc", lambda dst, src, _: _operate(m, c, name, dst, lambda b, o: m.s.acc[src, b, o]))
        return seq(_available(m, name), when(f["use_imm"], seq(_immediate(m, name, f["imm"]), by_immediate), by_register))

    alu.__doc__ = doc
    m.instruction(name, Match(decode, {"data": ALU | number << low}), e.alu)(alu)


def _operate(m: Ila, c: Config, name: str, dst: Expr, operand: Scalar) -> Step:
    acc, bits = m.s.acc, c.width("acc")
    if name == "alu_mul" and m.parameters["behaviour"] == "hls":  # leaves ACC alone; OUT is undefined, 0 in the C simulation
        return update(m.s.out, (c.batch, c.block), lambda b, o: ((dst, b, o), 0))

    def results(b: Expr, o: Expr) -> tuple[Expr, Expr]:
        new = wrap(_value(m, name, acc[dst, b, o], operand(b, o)), bits)
        return new, new

    return _results(m, c, dst, results)


def _value(m: Ila, name: str, a: Expr, b: Expr) -> Expr:
    if name == "alu_shr":
        return shift(a, _amount(m, b))
    return _ELEMENTWISE[name](a, b)


def _amount(m: Ila, b: Expr) -> Expr:
    """The hardware takes the low five bits of the operand as a signed number; the functional simulator the whole operand.

    Amounts of 32 and more are undefined there; they are read modulo 32, as on the machines it runs on.
    """
    if m.parameters["behaviour"] != "fsim":
        return signed(b, 5)
    return clamp(b, 0, None) % 32 - clamp(-b, 0, None) % 32


def _available(m: Ila, name: str) -> Step:
    """Diagnose the operation that the HLS design decodes but does not do."""
    is_missing = name == "alu_mul" and m.parameters["behaviour"] == "hls"
    return require(0, "I101", "alu_mul does nothing in the HLS design") if is_missing else NOTHING


def _immediate(m: Ila, name: str, imm: Expr) -> Step:
    """Diagnose a shift by more than this design can."""
    if name != "alu_shr":
        return NOTHING
    low, high = (-31, 31) if m.parameters["behaviour"] == "fsim" else (-16, 15)
    return require((imm >= low) & (imm <= high), "I102", f"the amount of alu_shr must be in {low}…{high}, not {{imm}}", imm=imm)
