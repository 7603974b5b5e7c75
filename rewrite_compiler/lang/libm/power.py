"""Powers x^y in single precision as a term: the logarithm in integers of 62 bits, so that 128 times it keeps 30 bits behind the point."""

from __future__ import annotations

import math
from fractions import Fraction

from ..arithmetic import maximum, minimum
from ..expr import Expr, as_real, clamp, const, floor, lift, select
from .polynomials import DIGITS, constants, digits, exp_series, scaled

LARGEST = const(Fraction((1 << DIGITS) - 1) * (1 << 104))
CELLS, POINT = 7, 46  # bits that choose a reciprocal; bits behind the point of logarithms
SERIES_POINT, ARGUMENT_POINT = 37, 31
LOGARITHM_BITS = 38  # bits of a logarithm
RESULT_POINT = 32
_NEAREST = [round(256 * 128 / (128 + k + 0.5)) for k in range(1 << CELLS)]
RECIPROCALS = [256, *_NEAREST[1:]]  # of 1 exactly, so that logarithms near 0 keep all of their bits
RECIPROCAL = constants("reciprocal", RECIPROCALS)
LOGARITHM = constants("logarithm", [round((8 - math.log2(r)) * 2**POINT) for r in RECIPROCALS])
SERIES = [round((-1) ** k * math.log2(math.e) / (k + 1) * 2**SERIES_POINT) for k in range(6)]


def power(x: Expr, y: Expr) -> Expr:
    """x^y = 2^(y · log₂|x|) with the sign of an odd power; for zeros, infinities and no numbers what IEEE 754 says."""
    size, zero = select(x < 0, -x, x), minimum(maximum(x, const(Fraction(0))), const(Fraction(0)))
    infinity = 1 / zero
    extreme = select((size > 1) == (y > 0), infinity, zero)
    ends = select((size == 0) == (y < 0), infinity, zero)
    is_end = (size == 0) | (size > LARGEST)
    magnitude = select((y > LARGEST) | (y < -LARGEST), extreme, select(is_end, ends, _positive(size, y)))
    magnitude = select(size == 1, const(Fraction(1)), magnitude)
    is_whole, is_odd = _parity(y)
    is_negative = is_odd & ((x < 0) | ((x == 0) & (1 / x < 0)))
    signed = select(is_negative, -magnitude, magnitude)
    difference = size - size  # no compiler knows that it is 0, so its quotient is made where the code runs, with that sign
    answer = select((x < 0) & ~is_end & ~is_whole, difference / difference, signed)
    is_one = (x == 1) | (y == 0)
    nan = select(x != x, x, y)  # not x + y: which of two payloads a sum keeps is up to the compiler
    return select(is_one, const(Fraction(1)), select((x != x) | (y != y), nan, answer))


def _parity(y: Expr) -> tuple[Expr, Expr]:
    """Tell whether y is a whole number, and an odd one; from 2²⁴ on every number is an even one."""
    bound = 1 << DIGITS
    is_large = (y >= Fraction(bound)) | (y <= Fraction(-bound))
    floored = floor(minimum(maximum(y, const(Fraction(-bound))), const(Fraction(bound))))
    return is_large | (as_real(floored) == y), ~is_large & (as_real(floored) == y) & (floored % 2)


def _positive(x: Expr, y: Expr) -> Expr:
    """Return x^y for positive finite x other than 1 and finite y other than 0."""
    logarithm, point = _logarithm(x)
    size, exponent = digits(select(y < 0, -y, y))
    product = logarithm * size
    product = select(y < 0, -product, product)
    point = point - exponent + (DIGITS - 1)  # of the product; below 48 its size is beyond 2¹²
    beyond = select(product < 0, lift(-(1 << 44)), lift(1 << 44))
    near = clamp(product >> clamp(point - RESULT_POINT, 0, 63), -(1 << 44), 1 << 44)
    exponent_bits = select(point < 48, beyond, near)
    binade = (exponent_bits + (1 << RESULT_POINT - 1)) >> RESULT_POINT
    fraction = clamp(exponent_bits - binade * (1 << RESULT_POINT), -(1 << RESULT_POINT - 1), 1 << RESULT_POINT - 1)
    value = exp_series(as_real(fraction) * Fraction(math.log(2) / 2**RESULT_POINT))
    return select(binade < -150, const(Fraction(0)), scaled(value, clamp(binade, -150, 129)))


def _logarithm(x: Expr) -> tuple[Expr, Expr]:
    """Return log₂ x as an integer of 38 bits, the first of which is set, and how many of them are behind the point."""
    size, exponent = digits(x)
    cell = clamp((size >> DIGITS - 1 - CELLS) - (1 << CELLS), 0, (1 << CELLS) - 1)
    remainder = clamp(size * RECIPROCAL(cell) - (1 << ARGUMENT_POINT), -(1 << 25), 1 << 25)
    series = lift(SERIES[-1])
    for c in reversed(SERIES[:-1]):
        series = c + (series * remainder >> ARGUMENT_POINT)
    exact = clamp(series * remainder, -(1 << 62), 1 << 62)
    rough = exponent * (1 << POINT) + LOGARITHM(cell)
    is_near = rough == 0
    logarithm = select(is_near, exact, rough + (exact >> SERIES_POINT + ARGUMENT_POINT - POINT))
    point = select(is_near, lift(SERIES_POINT + ARGUMENT_POINT), lift(POINT))
    for k in (16, 8, 4, 2, 1):
        large = (logarithm >= 1 << LOGARITHM_BITS - 1 + k) | (logarithm <= -(1 << LOGARITHM_BITS - 1 + k))
        logarithm, point = select(large, logarithm >> k, logarithm), select(large, point - k, point)
    return clamp(logarithm, -(1 << LOGARITHM_BITS), 1 << LOGARITHM_BITS), point
