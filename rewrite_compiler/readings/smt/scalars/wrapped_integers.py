"""Fixed-width integers as z3 bit-vectors: modular arithmetic, every operator exact and its result wrapped around."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import z3

from ..solver import lone_solver
from .scalar_term import Undecided

Word = Any  # z3.BitVecRef
Integers = Mapping[str, int]
NAME = re.compile(r"(u?)int(8|16|32|64)")


@dataclass(frozen=True)
class IntegerType:
    """An integer type: its width in bits, and whether it is signed."""

    width: int
    signed: bool

    def symbol(self, name: str) -> Word:
        """Return a variable of the type."""
        return z3.BitVec(name, self.width)

    def number(self, x: float) -> Word:
        """Return a constant of the type.

        Raises:
            Undecided: the type does not hold the number.
        """
        low = -(1 << self.width - 1) if self.signed else 0
        if x != int(x) or not low <= x < low + (1 << self.width):
            raise Undecided(f"{x:g} is no number of the type")
        return z3.BitVecVal(int(x), self.width)

    def apply(self, name: str, *operands: Word) -> Word:
        """Return an operator applied to operands.

        Raises:
            Undecided: the operator is not interpreted on integers.
        """
        if name not in OPERATIONS:
            raise Undecided(f"it does not read {name} on integers")
        return OPERATIONS[name](self, *operands)

    def less(self, a: Word, b: Word) -> z3.BoolRef:
        """Return whether one integer is less than another."""
        return a < b if self.signed else z3.ULT(a, b)

    def value(self, model: z3.ModelRef, x: Word) -> int:
        """Return the value of an integer in a model."""
        result = model.eval(x, model_completion=True)
        return int(result.as_signed_long() if self.signed else result.as_long())


def integer_type(dtype: str) -> IntegerType | None:
    """Return the integer type of an element type's name; None where it names no integers."""
    match = NAME.fullmatch(dtype)
    return None if match is None else IntegerType(int(match[2]), not match[1])


def difference(kind: IntegerType, left: Word, right: Word, symbols: Mapping[str, Word], work: int) -> tuple[Integers, int, int] | None:
    """Return integers at which two terms differ, with both values; None where none do.

    Raises:
        Undecided: z3 exceeds `work` steps.
    """
    solver = lone_solver([left != right], work)
    answer = solver.check()
    if answer == z3.unsat:
        return None
    if answer == z3.unknown:
        raise Undecided(f"z3 gives up at {kind.width} bits")
    model = solver.model().translate(z3.main_ctx())
    return {name: kind.value(model, x) for name, x in symbols.items()}, kind.value(model, left), kind.value(model, right)


def _absolute(kind: IntegerType, x: Word) -> Word:
    return z3.If(x < 0, -x, x) if kind.signed else x


def _floor(kind: IntegerType, x: Word, y: Word) -> Word:
    """Return ⌊x / y⌋ for a number y that is not 0."""
    divisor = z3.simplify(y)
    if not z3.is_bv_value(divisor) or divisor.as_long() == 0:
        raise Undecided("it divides integers by numbers only")
    if not kind.signed:
        return z3.UDiv(x, y)
    quotient, remainder = x / y, z3.SRem(x, y)
    return z3.If(z3.And(remainder != 0, (remainder < 0) != (y < 0)), quotient - 1, quotient)


OPERATIONS: dict[str, Callable[..., Word]] = {
    "add": lambda _, x, y: x + y,
    "sub": lambda _, x, y: x - y,
    "mul": lambda _, x, y: x * y,
    "neg": lambda _, x: -x,
    "relu": lambda kind, x: z3.If(x < 0, z3.BitVecVal(0, kind.width), x) if kind.signed else x,
    "abs": _absolute,
    "max": lambda kind, x, y: z3.If(kind.less(x, y), y, x),
    "min": lambda kind, x, y: z3.If(kind.less(y, x), y, x),
    "div": _floor,
}
