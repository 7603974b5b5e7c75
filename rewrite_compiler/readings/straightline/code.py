"""Straight-line code of a term: operators in order of evaluation; subterms without an operator are operands.

The code of a term names no array and no extent, so that terms of the same form share compiled code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...lang import intervals as iv
from ...lang.expr import Expr

INT32, INT64 = iv.of_width(32, True), iv.of_width(64, True)
ARITHMETIC = {"add", "sub", "mul", "neg", "div", "mod", "tdiv", "tmod", "min", "max"}
BITS = {"not", "bitand", "bitor", "bitxor", "shl", "shr", "wrap", "extract", "clz"}
REAL_OPERATORS = {"add", "sub", "mul", "neg", "min", "max", "real", "floor", "rint", "eq", "ne", "lt", "le", "select"}
REAL = 0  # the width of a 64-bit float
OPERATORS = ARITHMETIC | BITS | {"eq", "ne", "lt", "le", "select"}


@dataclass(frozen=True)
class Op:
    """One operator on earlier results (by number): its result has `bits`; it is computed in words of `width`, or REAL."""

    name: str
    args: tuple[int, ...] = ()
    data: Any = None  # hashable
    bits: int = 32
    width: int = 32


Code = tuple[Op, ...]
Leaf = Callable[[Expr], Op | Expr | None]  # the operand that a term becomes, or a term in its place


class TooWide(Exception):
    """A value that no machine word holds."""


def bits_of(e: Expr) -> int:
    """Return the width of the machine word that holds an integer term: 32 or 64 bits.

    Raises:
        TooWide: the term is real, or its interval exceeds 64 bits.
    """
    if e.real:
        raise TooWide
    if iv.inside(e.interval, INT32):
        return 32
    if iv.inside(e.interval, INT64):
        return 64
    raise TooWide


def is_real_operator(e: Expr) -> bool:
    """Tell whether an operator on reals has machine code that computes as numpy does on 64-bit floats that are finite."""
    if e.op not in REAL_OPERATORS or not (e.real or any(a.real for a in e.args)):
        return False
    parts = [x for x in (e, *e.args) if not x.real]
    return all(iv.inside(x.interval, INT64 if x is not e else INT32) for x in parts)


def is_operator(e: Expr) -> bool:
    """Tell whether a term and its operands fit machine words and have machine code."""
    if e.op not in OPERATORS or e.real:
        return False
    try:
        for x in (e, *e.args):
            bits_of(x)
    except TooWide:
        return False
    low = e.args[0].interval[0]
    return e.op not in ("div", "mod", "tdiv", "tmod") or (low is not None and low > -(1 << 63))


class Tracer:
    """Linearises terms by value numbering; `leaf` decides which terms are operands."""

    def __init__(self, leaf: Leaf) -> None:
        """Start with no code."""
        self.leaf = leaf
        self.code: list[Op] = []
        self._terms: dict[Expr, int] = {}
        self._ops: dict[Op, int] = {}

    def trace(self, e: Expr) -> int:
        """Return the value number of `e`, appending the operators that it still needs.

        Raises:
            TooWide: a subterm fits no machine word.
        """
        number = self._terms.get(e)
        if number is None:
            number = self._terms[e] = self._emit(e)
        return number

    def _emit(self, e: Expr) -> int:
        if e.op == "const" and not e.real:
            return self.add(Op("const", (), int(e.data), bits_of(e)))
        if e.op == "const":
            return self.add(Op("const", (), float(e.data), REAL, REAL))
        operand = self.leaf(e)
        if isinstance(operand, Expr):
            return self.trace(operand)
        if operand is not None:
            return self.add(operand)
        args = tuple(self.trace(a) for a in e.args)
        if e.real or any(a.real for a in e.args):
            return self.add(Op(e.op, args, e.data, REAL if e.real else 32, REAL))
        bits = bits_of(e)
        return self.add(Op(e.op, args, e.data, bits, max(bits, *(bits_of(a) for a in e.args))))

    def add(self, op: Op) -> int:
        """Return the number of an operator, appending it when no equal one is there."""
        number = self._ops.get(op)
        if number is None:
            number = self._ops[op] = len(self.code)
            self.code.append(op)
        return number
