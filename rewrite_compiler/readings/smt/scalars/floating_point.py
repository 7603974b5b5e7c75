"""Equality of scalar terms in IEEE 754 floating point, bit by bit, decided by z3.

Minimum and maximum are those of IEEE 754-2019: not-a-number where an operand is, and +0 is larger than −0. Functions and sums,
whose bits depend on a library, are uninterpreted: equal bits for equal operands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
import z3

from ..solver import lone_solver
from .scalar_term import ATTRIBUTE, Comparison, Scalar, Translation, Undecided

KINDS = {"float16": (z3.Float16, np.uint16, np.float16), "float32": (z3.Float32, np.uint32, np.float32)}
NEAREST = z3.RNE()
Difference = tuple[dict[str, str], str, str]  # operands by name, and what the terms are there


def difference(
    a: Scalar, b: Scalar, kind: str, work: int, *, up_to_zeros: bool = False, guard: Sequence[Comparison] = (), bounds: Sequence[Bound] = ()
) -> Difference | None:
    """Return operands of type `kind` at which two terms differ in their bits; None where none do.

    With `up_to_zeros` both zeros are equal, and operands and results are finite. `guard` compares float attributes, which are finite;
    elements of operands are within their `bounds`.

    Raises:
        Undecided: z3 exceeds `work` steps, an operator is not interpreted, or only uninterpreted functions tell the terms apart.
    """
    terms = _Terms(kind)
    try:
        left, right = terms.of(a), terms.of(b)
    except KeyError as unknown:
        raise Undecided(f"it does not read {unknown.args[0]}") from None
    finite = [x for (_, place), x in terms.leaves.items() if place == ATTRIBUTE]
    if up_to_zeros:
        finite += [*terms.leaves.values(), left, right]
    constraints = [*(terms.assumption(c) for c in guard), *(terms.within(b) for b in bounds)]
    constraints += [z3.Not(z3.Or(z3.fpIsNaN(x), z3.fpIsInf(x))) for x in finite]
    solver = lone_solver([*constraints, z3.Not(z3.fpEQ(left, right) if up_to_zeros else left == right)], work)
    answer = solver.check()
    if answer == z3.unsat:
        return None
    if answer == z3.unknown:
        raise Undecided(f"it gives up at {kind}")
    if terms.functions:
        raise Undecided(f"without the bits of {', '.join(sorted(terms.functions))} the sides may differ at {kind}")
    model = solver.model().translate(z3.main_ctx())
    operands = {(name if place == ATTRIBUTE else f"{name}[{place}]"): _decimal(model, x, kind) for (name, place), x in terms.leaves.items()}
    return operands, _decimal(model, left, kind), _decimal(model, right, kind)


def _decimal(model: z3.ModelRef, x: z3.FPRef, kind: str) -> str:
    if z3.is_true(model.eval(z3.fpIsNaN(x), model_completion=True)):
        return "nan"
    bits = model.eval(z3.fpToIEEEBV(x), model_completion=True).as_long()
    _, word_type, float_type = KINDS[kind]
    return repr(float(np.array(bits, word_type).view(float_type)))


class Bound(Protocol):
    """A bound of the elements of an operand, or of their magnitudes; `sign` is one of <, <=, > and >=."""

    @property
    def name(self) -> str:
        """The operand."""

    @property
    def is_magnitude(self) -> bool:
        """Whether magnitudes are bounded."""

    @property
    def sign(self) -> str:
        """How they compare with the limit."""

    @property
    def limit(self) -> float:
        """A number of the type."""


class _Terms(Translation):
    """Translates scalars to z3 terms of one type."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = KINDS[kind][0]()
        self.leaves: dict[tuple[str, int], z3.FPRef] = {}
        self.functions: dict[str, z3.FuncDeclRef] = {}

    def translate(self, x: Scalar) -> Any:
        """Return the term of a scalar."""
        if x.op == "leaf":
            name, place, _ = x.data
            return self.leaves.setdefault((name, place), z3.FP(name if place == ATTRIBUTE else f"{name}[{place}]", self.kind))
        if x.op == "const":
            return self._number(Fraction(x.data))
        operands = [self.of(a) for a in x.args]
        if x.op in ("call", "sum"):  # in which order a sum is added up is left to a library
            name = x.data if x.op == "call" else f"sums of {len(operands)}"
            function = self.functions.setdefault(name, z3.Function(name, *[self.kind] * (len(operands) + 1)))
            return function(*operands)
        if x.op == "real" and z3.is_bool(operands[0]):
            return z3.If(operands[0], self._number(Fraction(1)), self._number(Fraction(0)))
        return OPERATIONS[x.op](*operands)

    def assumption(self, comparison: Comparison) -> Any:
        """Return a comparison of float attributes and numbers."""
        left, kind, right = comparison
        return COMPARISONS[kind](self._side(left), self._side(right))

    def within(self, bound: Bound) -> Any:
        """Return that all elements of an operand are within a bound."""
        elements = [x for (name, place), x in self.leaves.items() if name == bound.name and place != ATTRIBUTE]
        limit = self._number(Fraction(bound.limit))
        return z3.And(*(SIGNS[bound.sign](z3.fpAbs(x) if bound.is_magnitude else x, limit) for x in elements))

    def _side(self, side: str | float) -> z3.FPRef:
        if isinstance(side, str):
            return self.leaves.setdefault((side, ATTRIBUTE), z3.FP(side, self.kind))
        if math.isinf(side):
            return z3.fpInfinity(self.kind, side < 0)
        return self._number(Fraction(side))

    def _number(self, n: Fraction) -> z3.FPRef:
        return z3.simplify(z3.fpRealToFP(NEAREST, z3.Q(n.numerator, n.denominator), self.kind))


def _extremum(a: z3.FPRef, b: z3.FPRef, *, largest: bool) -> z3.FPRef:
    is_less = z3.Or(z3.fpLT(a, b), z3.And(z3.fpIsZero(a), z3.fpIsZero(b), z3.fpIsNegative(a)))
    extremum = z3.If(is_less, b, a) if largest else z3.If(is_less, a, b)
    return z3.If(z3.fpIsNaN(a), a, z3.If(z3.fpIsNaN(b), b, extremum))


SIGNS: dict[str, Callable[..., Any]] = {"<": z3.fpLT, "<=": z3.fpLEQ, ">": z3.fpGT, ">=": z3.fpGEQ}
COMPARISONS: dict[str, Callable[..., Any]] = {"eq": z3.fpEQ, "ne": z3.fpNEQ, "lt": z3.fpLT, "le": z3.fpLEQ}
OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: z3.fpAdd(NEAREST, a, b),
    "sub": lambda a, b: z3.fpSub(NEAREST, a, b),
    "mul": lambda a, b: z3.fpMul(NEAREST, a, b),
    "rdiv": lambda a, b: z3.fpDiv(NEAREST, a, b),
    "neg": z3.fpNeg,
    "max": lambda a, b: _extremum(a, b, largest=True),
    "min": lambda a, b: _extremum(a, b, largest=False),
    "select": z3.If,
    "not": z3.Not,
    **COMPARISONS,
}
