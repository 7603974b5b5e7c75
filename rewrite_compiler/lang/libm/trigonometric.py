"""Sine and cosine in single precision as terms: whole turns are left out in integers, from a table of the digits of 1 / 2π."""

from __future__ import annotations

import math
from fractions import Fraction

from ..expr import Expr, as_real, clamp, extract, lift, select
from .polynomials import DIGITS, constants, digits, polynomial

WORD, WORDS = 30, 3
LOWEST, HIGHEST = -2, 127  # exponents of numbers that are at least a quarter
SMALL = Fraction(1, 2)
SINE = [Fraction((-1) ** k, math.factorial(2 * k + 1)) for k in range(6)]
COSINE = [Fraction((-1) ** k, math.factorial(2 * k)) for k in range(7)]


def _arctangent(n: int, bits: int) -> int:
    """Return arctan(1/n) · 2^bits, a few units less."""
    total, term, k = 0, (1 << bits) // n, 0
    while term:
        total += (-1) ** k * (term // (2 * k + 1))
        term, k = term // (n * n), k + 1
    return total


def _turns(exponent: int) -> int:
    """Return 2^exponent / 2²³ / 2π without whole turns, as an integer of three words."""
    bits = 300
    pi = 16 * _arctangent(5, bits) - 4 * _arctangent(239, bits)
    inverse = (1 << 2 * bits - 1) // pi  # 1 / 2π
    shift = bits - WORDS * WORD - exponent + DIGITS - 1
    return (inverse >> shift) & (1 << WORDS * WORD) - 1


TURNS = [_turns(e) for e in range(LOWEST, HIGHEST + 1)]
TABLES = [constants(f"turns{k}", [t >> WORD * (WORDS - 1 - k) & (1 << WORD) - 1 for t in TURNS], LOWEST) for k in range(WORDS)]


def _eighth(size: Expr) -> tuple[Expr, Expr]:
    """Return which quarter turn is nearest to an angle, counted from 0, and the rest, at most an eighth of a turn."""
    number, exponent = digits(size)
    at = clamp(exponent, LOWEST, HIGHEST)
    low = number * TABLES[2](at)
    middle = number * TABLES[1](at) + (low >> WORD)
    high = extract(number * TABLES[0](at) + (middle >> WORD), 0, WORD)
    quarter = (high + (1 << WORD - 3)) >> WORD - 2
    remainder = (high - quarter * (1 << WORD - 2)) * (1 << WORD) + extract(middle, 0, WORD)
    angle = as_real(remainder) * Fraction(2 * math.pi / 2 ** (2 * WORD))
    is_small = size < SMALL
    return select(is_small, lift(0), extract(quarter, 0, 2)), select(is_small, size, angle)


def _circle(x: Expr, quarters: int) -> Expr:
    """Return the sine of x, or of x and a quarter turn."""
    quarter, angle = _eighth(select(x < 0, -x, x))
    square = angle * angle
    sines, cosines = angle * polynomial(square, SINE), polynomial(square, COSINE)
    place = extract(quarter + quarters, 0, 2)
    value = select(extract(place, 0, 1), cosines, sines)
    value = select(extract(place, 1, 1), -value, value)
    return select(x - x == 0, value, x - x)


def sine(x: Expr) -> Expr:
    """The sine, by its series; of an infinite angle not a number."""
    value = _circle(x, 0)
    return select(x < 0, -value, value)


def cosine(x: Expr) -> Expr:
    """The cosine, by its series; of an infinite angle not a number."""
    return _circle(x, 1)
