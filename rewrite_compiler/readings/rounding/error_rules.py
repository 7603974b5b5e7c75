"""Error rules: how far a result may be off when its operands are, one rule for each operation, written once for numbers and terms.

A rule takes the operands' values, absolute bounds of their errors, and the result, and gives what the errors of the operands do to
the result (running error analysis, as in Higham, Accuracy and Stability of Numerical Algorithms, §3.3); `rounding` is what the
operation itself adds. Rules are no approximations to first order: they hold for errors of any size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

TINY = float(np.finfo(np.float64).tiny)
LARGEST_EXPONENT = 700.0  # of e, beyond which a bound is as good as none
CALL_ROUNDINGS = 4  # of a library function, in units of the last place


class Arithmetic(Protocol):
    """The operations of rules beside those that values have themselves (+, −, ·, /, comparisons)."""

    infinity: Any

    def absolute(self, x: Any) -> Any:
        """Return |x|."""

    def maximum(self, x: Any, y: Any) -> Any:
        """Return the larger one."""

    def minimum(self, x: Any, y: Any) -> Any:
        """Return the smaller one."""

    def where(self, truth: Any, x: Any, y: Any) -> Any:
        """Return x where it holds, else y."""

    def call(self, function: str, *operands: Any) -> Any:
        """Return a real function by its name."""


ErrorRule = Callable[[Arithmetic, Sequence[Any], Sequence[Any], Any], Any]


def rounding(size: Any, propagated: Any, unit: Any, least: Any, operations: Any = 1) -> Any:
    """Return what `operations` roundings add to a result of magnitude `size` that is off by `propagated`, underflow included.

    `unit` is the relative error of one operation, `least` the absolute one where results underflow.
    """
    return operations * (unit * (size + propagated) + least)


def _product(m: Arithmetic, v: Sequence[Any], e: Sequence[Any], _: Any) -> Any:
    return m.absolute(v[0]) * e[1] + m.absolute(v[1]) * e[0] + e[0] * e[1]


def _quotient(m: Arithmetic, v: Sequence[Any], e: Sequence[Any], x: Any) -> Any:
    room = m.absolute(v[1]) - e[1]
    return m.where(room > 0, (e[0] + m.absolute(x) * e[1]) / m.where(room > 0, room, 1), m.infinity)


def _choice(m: Arithmetic, v: Sequence[Any], e: Sequence[Any], _: Any) -> Any:
    """A condition on rounded values may choose the other branch."""
    return m.maximum(e[1], e[2]) + m.where(e[0] > 0, m.absolute(v[1] - v[2]), 0)


def _maximum(m: Arithmetic, v: Sequence[Any], e: Sequence[Any], _: Any) -> Any:
    """The larger operand remains it where they are further apart than their errors: then the other one's error is gone."""
    gap, error = v[0] - v[1], e[0] + e[1]
    return m.where(gap > error, e[0], m.where(-gap > error, e[1], m.maximum(e[0], e[1])))


def _minimum(m: Arithmetic, v: Sequence[Any], e: Sequence[Any], x: Any) -> Any:
    return _maximum(m, [-v[0], -v[1]], e, x)


def _comparison(m: Arithmetic, v: Sequence[Any], e: Sequence[Any], _: Any) -> Any:
    """A comparison comes out otherwise only where the sides are as close as their errors."""
    error = e[0] + e[1]
    return m.where(error > 0, m.where(m.absolute(v[0] - v[1]) <= error, 1, 0), 0)


def _exponential(m: Arithmetic, v: Sequence[Any], e: Sequence[Any], x: Any) -> Any:
    return m.absolute(x) * _growth(m, e[0])


def _growth(m: Arithmetic, e: Any) -> Any:
    """Return a bound of exp(e) − 1 that has the digits of a small e."""
    return e * m.call("exp", m.minimum(e, LARGEST_EXPONENT))


def _root(m: Arithmetic, v: Sequence[Any], e: Sequence[Any], x: Any) -> Any:
    return e[0] / m.maximum(x, m.call("sqrt", m.maximum(e[0], TINY)))


def _logarithm(m: Arithmetic, v: Sequence[Any], e: Sequence[Any], _: Any) -> Any:
    return m.where(v[0] > e[0], e[0] / m.maximum(v[0] - e[0], TINY), m.infinity)


def _power(m: Arithmetic, v: Sequence[Any], e: Sequence[Any], x: Any) -> Any:
    """Of an exact exponent y the largest slope y·tʸ⁻¹ within the error of the base; else x^y = exp(y·ln x), of positive bases only."""
    base, exponent = m.absolute(v[0]), v[1]
    room = base - e[0]
    farthest = m.where(exponent < 1, m.where(room > 0, room, 1), base + e[0])
    slope = m.where(exponent == 0, 0, m.absolute(exponent) * m.call("pow", farthest, exponent - 1))
    by_slope = m.where(e[0] > 0, m.where(exponent < 1, m.where(room > 0, slope * e[0], m.infinity), slope * e[0]), 0)
    is_positive = v[0] > e[0]
    logarithm = m.call("log", m.where(is_positive, v[0], 1))
    growth = (m.absolute(exponent) + e[1]) * e[0] / m.where(is_positive, room, 1) + m.absolute(logarithm) * e[1]
    by_logarithm = m.where(is_positive, m.absolute(x) * _growth(m, growth), m.infinity)
    return m.where(e[1] > 0, by_logarithm, by_slope)


EXACT = frozenset({"neg", "max", "min", "select", "real", "lt", "le", "eq", "ne", "not", "floor", "rint"})
ERROR_RULES: dict[str, ErrorRule] = {
    **dict.fromkeys(("add", "sub"), lambda m, v, e, x: e[0] + e[1]),
    "sum": lambda m, v, e, x: sum(e[1:], e[0]),
    "mul": _product,
    "rdiv": _quotient,
    "select": _choice,
    **dict.fromkeys(("neg", "real", "not"), lambda m, v, e, x: e[0]),
    "max": _maximum,
    "min": _minimum,
    **dict.fromkeys(("lt", "le", "eq", "ne"), _comparison),
    "exp": _exponential,
    "sqrt": _root,
    "log": _logarithm,
    "pow": _power,
    **dict.fromkeys(("tanh", "sin", "cos"), lambda m, v, e, x: e[0]),
    "erf": lambda m, v, e, x: 1.2 * e[0],
}
