"""Parts of real functions as terms: polynomials, powers of two, digits and exponents, tables of integers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from ..arithmetic import maximum, minimum
from ..binders import Table
from ..expr import Expr, clamp, const, extract, floor, lift, select

DIGITS = 24
LARGEST_POWER = 75


def polynomial(x: Expr, coefficients: Sequence[Fraction | float]) -> Expr:
    """Return the sum of coefficients times powers of x, the last coefficient that of the highest power, by Horner's rule."""
    total = const(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        total = total * x + const(c)
    return total


def _power_of_two(k: Expr) -> Expr:
    """Return 2ᵏ for k = −75 … 75, exactly."""
    total, shifted = const(Fraction(1, 1 << LARGEST_POWER)), clamp(k, -LARGEST_POWER, LARGEST_POWER) + LARGEST_POWER
    for bit, power in ((0, 1), (1, 2), (2, 4), (3, 8), (4, 16), (5, 32), (6, 64), (7, 64), (7, 64)):  # 2¹²⁸ is no float
        total = total * select(extract(shifted, bit, 1), const(Fraction(1 << power)), const(Fraction(1)))
    return total


def exp_series(x: Expr) -> Expr:
    """Return e^x for |x| ≤ ln 2 / 2."""
    return polynomial(x, [Fraction(1, math.factorial(k)) for k in range(8)])


def scaled(x: Expr, n: Expr) -> Expr:
    """Return x · 2ⁿ for n = −150 … 129 and x near 1."""
    half = n >> 1
    return x * _power_of_two(half) * _power_of_two(n - half)


def split(x: Expr) -> tuple[Expr, Expr]:
    """Return y = 1 … 2 and e with x = 2ᵉ · y, for positive finite x."""
    y, e = x, lift(0)
    for _ in range(2):
        small = y < 1
        y, e = select(small, y * Fraction(1 << 75), y), select(small, e - 75, e)
    for k in (64, 32, 16, 8, 4, 2, 1):
        large = y >= Fraction(1 << k)
        y, e = select(large, y * Fraction(1, 1 << k), y), select(large, e + k, e)
    return y, e


def digits(x: Expr) -> tuple[Expr, Expr]:
    """Return an integer of 24 bits and e with x = 2ᵉ · digits / 2²³, for positive finite x; of other x some such pair."""
    y, e = split(x)
    limited = minimum(maximum(y * Fraction(1 << DIGITS - 1), const(Fraction(1 << DIGITS - 1))), const(Fraction((1 << DIGITS) - 1)))
    return clamp(floor(limited), 1 << DIGITS - 1, (1 << DIGITS) - 1), clamp(e, -150, 127)


def constants(name: str, values: Sequence[int], low: int = 0) -> Table:
    """Return a table of given integers, the first one for `low`."""

    def entry(k: Expr, first: int, count: int) -> Expr:
        if count == 1:
            return lift(values[first])
        half = count // 2
        return select(k < low + first + half, entry(k, first, half), entry(k, first + half, count - half))

    return Table(name, lambda k: entry(k, 0, len(values)), (low, low + len(values) - 1))
