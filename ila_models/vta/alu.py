"""VTA ALU: an operation on accumulators, with another accumulator or an immediate, inside the loops of the micro-ops."""

import operator
from collections.abc import Callable
from functools import partial

from rewrite_compiler.ila import Fields, Ila
from rewrite_compiler.lang import NOTHING, Expr, Step, maximum, minimum, require, seq, shift, signed, update, when, wrap

from .compute import nest, results
from .config import Config
from .fields import ADD, ALU, MAX, MIN, MUL, SHR, Words

# instruction → alu_opcode, what it makes of two operands, documentation
OPERATIONS: dict[str, tuple[int, Callable[[Expr, Expr], Expr], str]] = {
    "alu_min": (MIN, minimum, "Keep the smaller of two accumulators, or of an accumulator and the immediate."),
    "alu_max": (MAX, maximum, "Keep the larger one."),
    "alu_add": (ADD, operator.add, "Add, modulo the accumulator's width."),
    "alu_shr": (SHR, shift, "Shift right, towards −∞; a negative amount shifts left."),
    "alu_mul": (MUL, operator.mul, "Multiply, modulo the accumulator's width."),
}


def declare_alu(m: Ila, c: Config, words: Words) -> None:
    """Declare the operations of this encoding."""
    for name, (number, _, doc) in OPERATIONS.items():
        if number < 1 << words["alu"]["alu_opcode"].width:
            m.encoded(name, words["alu"], {"opcode": ALU, "alu_opcode": number}, partial(_alu, m, c, name), doc=doc)


def _alu(m: Ila, c: Config, name: str, f: Fields) -> Step:
    def by(operand: Callable[[Expr, Expr, Expr], Expr]) -> Step:
        """The loop nest with this second operand: of the source index, row and column of an element."""
        return nest(m, c, f, ("acc", "acc"), lambda dst, src: _operate(m, c, name, dst, lambda b, o: operand(src, b, o)))

    if (name, c.behaviour) == ("alu_mul", "hls"):  # is decoded, but leaves ACC alone; OUT is undefined, 0 in the C simulation
        cleared = nest(m, c, f, ("acc", "acc"), lambda dst, _: update(m.s.out, (c.batch, c.block), lambda b, o: ((dst, b, o), 0)))
        return seq(require(0, "I101", "alu_mul does nothing in the HLS design"), cleared)
    by_immediate, by_register = by(lambda *_: f.imm), by(lambda *element: m.s.acc[element])
    return when(f.use_imm, seq(_immediate(c, name, f.imm), by_immediate), by_register)


def _operate(m: Ila, c: Config, name: str, dst: Expr, operand: Callable[[Expr, Expr], Expr]) -> Step:
    def values(b: Expr, o: Expr) -> tuple[Expr, Expr]:
        second = _amount(c, operand(b, o)) if name == "alu_shr" else operand(b, o)
        result = wrap(OPERATIONS[name][1](m.s.acc[dst, b, o], second), c.width("acc"))
        return result, result

    return results(m, c, dst, values)


def _amount(c: Config, b: Expr) -> Expr:
    """The hardware takes the low five bits of the operand as a signed number; the functional simulator the whole operand.

    Amounts of 32 and more are undefined there; they are read modulo 32, as on the machines it runs on.
    """
    return signed(b, 5) if c.behaviour != "fsim" else maximum(b, 0) % 32 - maximum(-b, 0) % 32


def _immediate(c: Config, name: str, imm: Expr) -> Step:
    """Diagnose a shift by more than this design can."""
    if name != "alu_shr":
        return NOTHING
    low, high = (-31, 31) if c.behaviour == "fsim" else (-16, 15)
    return require((imm >= low) & (imm <= high), "I102", f"the amount of alu_shr must be in {low}…{high}, not {{imm}}", imm=imm)
