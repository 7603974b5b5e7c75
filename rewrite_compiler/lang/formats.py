"""Format: a number format of `width` bits; its encoder and decoder are terms, read like every other term.

A decoder is exact. An encoder rounds and saturates; on the values of codes it gives the code back, except that a second
code of zero becomes the first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import SupportsIndex

from ..errors import SpecError
from . import intervals as iv
from .arithmetic import ROUNDINGS, maximum, minimum, rounded
from .expr import Expr, Operand, as_real, clamp, lift, sat, select
from .intervals import Interval


@dataclass(frozen=True)
class Format:
    """Base of the formats: what `encode` and `decode` mean for a code of `width` bits."""

    width: int

    @property
    def name(self) -> str:
        """The kind of the format, in lower case."""
        return type(self).__name__.lower()

    @property
    def parameters(self) -> dict[str, int | str]:
        """Everything that fixes the format, by name."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @property
    def codes(self) -> Interval:
        """The range of codes: bit patterns, or two's complement integers where the format is signed fixed point."""
        return 0, (1 << self.width) - 1

    @property
    def largest(self) -> Fraction:
        """The largest finite value."""
        raise NotImplementedError

    def encode(self, x: Operand) -> Expr:
        """Return the code of a real term."""
        raise NotImplementedError

    def decode(self, code: Operand) -> Expr:
        """Return the real value of a code."""
        raise NotImplementedError


@dataclass(frozen=True)
class AdaptivFloat(Format):
    """Sign, exponent, mantissa and a bias of the whole tensor: ±(1 + M/2^m) · 2^(E + bias + offset); E = M = 0 is zero.

    No subnormals and no infinities. `half_away` rounds to the nearest value, ties away from zero; `truncate` drops
    mantissa bits as FlexASR's own host encoder does. Below half of the smallest value the code is 0, below it the smallest.
    """

    width: int = 8
    exponent_bits: int = 3
    bias: int = 0
    offset: int = -10
    rounding: str = "half_away"

    def __post_init__(self) -> None:
        _check(self, self.rounding in ("half_away", "truncate"), 'rounding "half_away" or "truncate"', self.rounding)
        _check(self, self.exponent_bits >= 1 and self.mantissa_bits >= 1, "an exponent and a mantissa of at least one bit", self.width)

    @property
    def mantissa_bits(self) -> int:
        """Bits of the mantissa without its leading one."""
        return self.width - 1 - self.exponent_bits

    @property
    def unit(self) -> Fraction:
        """What one step of the smallest binade is worth: every value is an integer times it."""
        return Fraction(2) ** (self.bias + self.offset - self.mantissa_bits)

    @property
    def largest(self) -> Fraction:
        """The largest value."""
        return ((2 << self.mantissa_bits) - 1) * self.unit * (1 << (1 << self.exponent_bits) - 1)

    def encode(self, x: Operand) -> Expr:
        """Return the code of a real term."""
        m, value = self.mantissa_bits, as_real(lift(x))
        size = minimum(maximum(value, -value), 2 * self.largest) * (1 / (self.unit * (1 << m)))
        mantissa, exponent = _normalised(size, self.exponent_bits)
        scaled = rounded(mantissa * (1 << m), "floor" if self.rounding == "truncate" else "half_up")
        place = clamp((exponent << m) + scaled - (1 << m), 1, (1 << self.width - 1) - 1)
        return select(size < Fraction((1 << m) + 1, 2 << m), 0, place + select(value < 0, 1 << self.width - 1, 0))

    def integer(self, code: Operand) -> Expr:
        """Return the integer that a code is of `unit`."""
        c, m = _word(self, code), self.mantissa_bits
        size = _scaled_up(c[0:m] + (1 << m), c[m : self.width - 1], self.exponent_bits)
        return select(c[0 : self.width - 1] == 0, 0, select(c[self.width - 1], -size, size))

    def decode(self, code: Operand) -> Expr:
        """Return the real value of a code."""
        return as_real(self.integer(code)) * self.unit


@dataclass(frozen=True)
class Fixed(Format):
    """A binary fixed-point number: an integer of `width` bits times 2^−fraction; values outside saturate."""

    fraction: int = 0
    rounding: str = "half_even"
    signed: bool = True

    def __post_init__(self) -> None:
        _check(self, isinstance(self.fraction, SupportsIndex), "a whole number of fraction bits", repr(self.fraction))
        _check_integer(self, self.rounding)

    @property
    def codes(self) -> Interval:
        """The integers of this width."""
        return iv.of_width(self.width, self.signed)

    @property
    def largest(self) -> Fraction:
        """The largest value."""
        return (self.codes[1] or 0) / Fraction(2) ** self.fraction

    def encode(self, x: Operand) -> Expr:
        """Return the code of a real term."""
        low, high = self.codes
        scaled = as_real(lift(x)) * Fraction(2) ** self.fraction
        limited = minimum(maximum(scaled, low or 0), high or 0)  # its ends are integers: rounding keeps them
        return sat(rounded(limited, self.rounding), self.width, self.signed)

    def decode(self, code: Operand) -> Expr:
        """Return the real value of a code."""
        return as_real(_word(self, code)) * (1 / Fraction(2) ** self.fraction)


@dataclass(frozen=True)
class Int(Format):
    """An integer of `width` bits; values outside saturate."""

    signed: bool = True
    rounding: str = "half_even"

    def __post_init__(self) -> None:
        _check_integer(self, self.rounding)

    @property
    def as_fixed(self) -> Fixed:
        """The same format as fixed point without fraction bits."""
        return Fixed(self.width, 0, self.rounding, self.signed)

    @property
    def codes(self) -> Interval:
        """The integers of this width."""
        return iv.of_width(self.width, self.signed)

    @property
    def largest(self) -> Fraction:
        """The largest value."""
        return self.as_fixed.largest

    def encode(self, x: Operand) -> Expr:
        """Return the code of a real term."""
        return self.as_fixed.encode(x)

    def decode(self, code: Operand) -> Expr:
        """Return the real value of a code."""
        return self.as_fixed.decode(code)


@dataclass(frozen=True)
class IEEE(Format):
    """A binary interchange format, rounded to nearest even, with subnormals and infinities.

    As terms the codes are those of real numbers: zero has the code 0, values beyond the range that of infinity, and a
    code of infinity decodes to the value that its exponent would have; a code that is not a number has no value.
    """

    exponent_bits: int

    @property
    def mantissa_bits(self) -> int:
        """Bits of the mantissa without its leading one."""
        return self.width - 1 - self.exponent_bits

    @property
    def unit(self) -> Fraction:
        """The smallest positive value: every value is an integer times it."""
        return Fraction(2) ** (2 - (1 << self.exponent_bits - 1) - self.mantissa_bits)

    @property
    def infinity(self) -> int:
        """The code of infinity."""
        return (1 << self.exponent_bits) - 1 << self.mantissa_bits

    @property
    def largest(self) -> Fraction:
        """The largest finite value."""
        return ((2 << self.mantissa_bits) - 1) * self.unit * (1 << (1 << self.exponent_bits) - 3)

    def encode(self, x: Operand) -> Expr:
        """Return the code of a real term."""
        m, value = self.mantissa_bits, as_real(lift(x))
        size = minimum(maximum(value, -value), 2 * self.largest) * (1 / (self.unit * (1 << m)))
        mantissa, exponent = _normalised(size, self.exponent_bits)
        place = clamp((exponent << m) + rounded(mantissa * (1 << m), "half_even"), 0, self.infinity)
        return place + select(value < 0, 1 << self.width - 1, 0)

    def decode(self, code: Operand) -> Expr:
        """Return the real value of a code."""
        c, m = _word(self, code), self.mantissa_bits
        exponent = c[m : self.width - 1]
        significand = as_real(c[0:m] + select(exponent == 0, 0, 1 << m))
        size = _scaled_up(significand, maximum(exponent - 1, 0), self.exponent_bits) * self.unit
        return select(c[self.width - 1], -size, size)


FLOAT16, BFLOAT16, FLOAT32 = IEEE(16, 5), IEEE(16, 8), IEEE(32, 8)


def adaptivfloat_bias(largest: float, exponent_bits: int = 3, offset: int = -10) -> int:
    """Return the exponent bias of AdaptivFloat whose top binade holds the magnitude `largest`; a format may not offer it.

    Raises:
        SpecError: `largest` is not positive and finite.
    """
    if not (math.isfinite(largest) and largest > 0):
        raise SpecError("I102", f"the largest magnitude of a tensor must be positive and finite, not {largest}")
    return math.frexp(largest)[1] - 1 - ((1 << exponent_bits) - 1) - offset


def _normalised(x: Expr, bits: int) -> tuple[Expr, Expr]:
    """Return (x / 2^k, k) for the largest k < 2^bits that leaves at least 1, and k = 0 for x < 2."""
    exponent = lift(0)
    for bit in reversed(range(bits)):
        step = Fraction(2) ** (1 << bit)
        is_large = x >= step
        x = select(is_large, x * (1 / step), x)
        exponent = exponent + (is_large << bit)
    return x, exponent


def _scaled_up(x: Expr, exponent: Expr, bits: int) -> Expr:
    """Return x · 2^exponent."""
    for bit in range(bits):
        x = select(exponent[bit], x * (1 << (1 << bit)), x)
    return x


def _word(f: Format, code: Operand) -> Expr:
    c = lift(code)
    if not iv.inside(c.interval, f.codes):
        raise SpecError("I102", f"a code of {f.name} lies in {f.codes[0]}…{f.codes[1]}, not in {c.interval}")
    return c


def _check(f: Format, holds: bool, requirement: str, value: object) -> None:
    if not holds:
        raise SpecError("I102", f"{f.name} needs {requirement}, not {value}")


def _check_integer(f: Format, rounding: str) -> None:
    _check(f, rounding in ROUNDINGS, f"one of the roundings {', '.join(ROUNDINGS)}", rounding)
    _check(f, isinstance(f.width, SupportsIndex), "a whole number of bits", repr(f.width))
    _check(f, f.width >= 1, "a width of at least one bit", f.width)
