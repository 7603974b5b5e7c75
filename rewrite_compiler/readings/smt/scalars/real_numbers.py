"""Equality of scalar terms over the real numbers, decided by z3 for all values of their operands.

A term is defined where no divisor is 0 and no logarithm or root is taken of a number that has none. Functions are uninterpreted
but for what orders them: where they are 0 or 1, that they increase, are odd, and invert each other.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import z3

from ..solver import lone_solver
from .scalar_term import ATTRIBUTE, Comparison, Scalar, Side, Translation, Undecided

Numbers = dict[tuple[str, int], float]  # operands by name and place
MAX_POWER = 8  # that is multiplied out
MAX_APPLICATIONS = 8  # of functions, whose order is told pair by pair


@dataclass(frozen=True)
class Curve:
    """What is known of an increasing function: its value at a point, bounds that it does not reach, and whether it is odd."""

    point: tuple[int, int]
    low: int | None = None
    high: int | None = None
    odd: bool = False


CURVES = {
    "exp": Curve((0, 1), low=0),
    "log": Curve((1, 0)),
    "tanh": Curve((0, 0), -1, 1, odd=True),
    "erf": Curve((0, 0), -1, 1, odd=True),
    "sqrt": Curve((0, 0)),
}
INVERSES = {("log", "exp"), ("exp", "log")}


def difference(left: Scalar, right: Scalar, guard: Sequence[Comparison], work: int) -> Numbers | None:
    """Return numbers at which the left term is defined and the right one is not or differs; None where there are none.

    `guard` compares operands, which are finite, by name. With functions that are not interpreted the numbers may be none.

    Raises:
        Undecided: z3 exceeds `work` steps, an operator is not read, or the guard makes an operand infinite.
    """
    terms = _Terms()
    try:
        values = terms.number(left), terms.number(right)
    except KeyError as unknown:
        raise Undecided(f"it does not read {unknown.args[0]}") from None
    constraints = [terms.assumption(c) for c in guard]
    constraints += [terms.defined(left), z3.Or(z3.Not(terms.defined(right)), values[0] != values[1]), *terms.axioms()]
    model = _model(constraints, work, has_functions=bool(terms.applications))
    return None if model is None else {key: _float(model.eval(x, model_completion=True)) for key, x in terms.leaves.items()}


def _model(constraints: Sequence[z3.BoolRef], work: int, *, has_functions: bool) -> z3.ModelRef | None:
    for tactic in ("",) if has_functions else ("", "qfnra"):
        solver = lone_solver(constraints, work, tactic)
        answer = solver.check()
        if answer == z3.unsat:
            return None
        if answer == z3.sat:
            return solver.model().translate(z3.main_ctx())
    raise Undecided(f"z3 gives up after {work:,} steps")


def _float(value: Any) -> float:
    if z3.is_algebraic_value(value):
        value = value.approx(20)
    return float(Fraction(value.numerator_as_long(), value.denominator_as_long()))


class _Terms(Translation):
    """Translates scalars to real terms of z3, and says where they are defined."""

    def __init__(self) -> None:
        super().__init__()
        self.leaves: dict[tuple[str, int], z3.ArithRef] = {}
        self.applications: dict[str, list[tuple[Any, Any]]] = {}  # operand and value of each function
        self.domains: dict[Scalar, Any] = {}

    def translate(self, x: Scalar) -> Any:
        """Return the term of a scalar."""
        if x.op == "leaf":
            name, place, _ = x.data
            return self.leaves.setdefault((name, place), z3.Real(f"{name}[{place}]"))
        if x.op == "const":
            return _number(x.data)
        if x.op == "select":
            return z3.If(self.truth(x.args[0]), self.number(x.args[1]), self.number(x.args[2]))
        if x.op == "not":
            return z3.Not(self.truth(x.args[0]))
        operands = [self.number(a) for a in x.args]
        if x.op == "call":
            return self._application(x, operands)
        if x.op in ("floor", "rint"):
            return self._uninterpreted(x.op, operands)
        return OPERATIONS[x.op](*operands)

    def number(self, x: Scalar) -> Any:
        """Return the term of a scalar as a number: a truth value is 0 or 1."""
        term = self.of(x)
        return z3.If(term, _number(1), _number(0)) if z3.is_bool(term) else term

    def truth(self, x: Scalar) -> Any:
        """Return the term of a scalar as a truth value: a number that is not 0 is true."""
        term = self.of(x)
        return term if z3.is_bool(term) else term != 0

    def _application(self, x: Scalar, operands: Sequence[Any]) -> Any:
        name = str(x.data)
        power = _power(x)
        if power is not None:
            return z3.Product([_number(1), *[operands[0]] * power])
        if x.args[0].op == "call" and (name, str(x.args[0].data)) in INVERSES:
            return self.of(x.args[0].args[0])
        return self._uninterpreted(name, operands)

    def _uninterpreted(self, name: str, operands: Sequence[Any]) -> Any:
        value = z3.Function(name, *[z3.RealSort()] * (len(operands) + 1))(*operands)
        self.applications.setdefault(name, []).append((operands[0], value))
        return value

    def assumption(self, comparison: Comparison) -> Any:
        """Return a comparison of finite operands and numbers."""
        left, kind, right = comparison
        infinite = [s for s in (left, right) if isinstance(s, float) and math.isinf(s)]
        if infinite:
            is_above = kind == "ne" or (kind in ("lt", "le") and (left == -math.inf or right == math.inf))
            if not is_above:
                raise Undecided("the guard leaves infinite numbers alone")
            return z3.BoolVal(True)
        return COMPARISONS[kind](*(self._side(s) for s in (left, right)))

    def _side(self, side: Side) -> Any:
        return (
            self.leaves.setdefault((side, ATTRIBUTE), z3.Real(f"{side}[{ATTRIBUTE}]")) if isinstance(side, str) else _number(Fraction(side))
        )

    def defined(self, x: Scalar) -> Any:
        """Return where a scalar is defined."""
        if x not in self.domains:
            self.domains[x] = z3.And(self._own_domain(x), *(self._operand_domains(x)))
        return self.domains[x]

    def _operand_domains(self, x: Scalar) -> list[Any]:
        if x.op != "select":
            return [self.defined(a) for a in x.args]
        condition, a, b = x.args
        return [self.defined(condition), z3.If(self.truth(condition), self.defined(a), self.defined(b))]

    def _own_domain(self, x: Scalar) -> Any:
        if x.op == "rdiv":
            return self.number(x.args[1]) != 0
        if x.op == "call" and x.data in DOMAINS:
            return DOMAINS[x.data](self.number(x.args[0]))
        if x.op == "call" and x.data == "pow" and _power(x) is None:  # which exponents a base admits is not interpreted
            return z3.Function("has pow", z3.RealSort(), z3.RealSort(), z3.BoolSort())(*(self.number(a) for a in x.args))
        return z3.BoolVal(True)

    def axioms(self) -> Iterator[Any]:
        """Yield what is known of the applications of functions."""
        for name, applications in self.applications.items():
            curve = CURVES.get(name)
            if curve is None or len(applications) > MAX_APPLICATIONS:
                continue
            in_domain = DOMAINS.get(name, lambda _: z3.BoolVal(True))
            point = tuple(map(_number, curve.point))
            for x, y in applications:
                bounds = [*([y > curve.low] if curve.low is not None else []), *([y < curve.high] if curve.high is not None else [])]
                yield z3.Implies(in_domain(x), z3.And(*bounds, *([y * y == x, y >= 0] if name == "sqrt" else [])))
            for (x, y), (v, w) in itertools.combinations([point, *applications], 2):
                increasing = z3.And((x < v) == (y < w), (x == v) == (y == w))
                yield z3.Implies(z3.And(in_domain(x), in_domain(v)), increasing)
                if curve.odd:
                    yield z3.Implies(x == -v, y == -w)
                if name == "exp":
                    yield z3.Implies(x == -v, y * w == 1)


def _power(x: Scalar) -> int | None:
    """Return the small whole exponent of a power, None of any other term."""
    if x.data != "pow" or x.args[1].op != "const":
        return None
    exponent = x.args[1].data
    return int(exponent) if exponent == int(exponent) and 0 <= exponent <= MAX_POWER else None


def _number(n: Any) -> z3.RatNumRef:
    fraction = Fraction(n)
    return z3.Q(fraction.numerator, fraction.denominator)


DOMAINS: dict[Any, Callable[[Any], Any]] = {"log": lambda x: x > 0, "sqrt": lambda x: x >= 0}
COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
}
OPERATIONS: dict[str, Callable[..., Any]] = {
    **COMPARISONS,
    "add": lambda a, b: a + b,
    "sum": lambda *xs: z3.Sum(xs),
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "rdiv": lambda a, b: a / b,
    "neg": lambda a: -a,
    "max": lambda a, b: z3.If(a < b, b, a),
    "min": lambda a, b: z3.If(b < a, b, a),
    "real": lambda a: a,
}
