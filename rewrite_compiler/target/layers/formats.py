"""Formats of layers in fixed point: codes of a byte with a power of two as step, and sums of products of two of these."""

from __future__ import annotations

import math

from ...lang.formats import Fixed, Int

BYTE, WORD = 8, 32


def integer_format(dtype: str) -> Int:
    """Return the format of a model's own integers, "int8", "uint8" or "int32"."""
    return Int(int(dtype.removeprefix("u").removeprefix("int")), not dtype.startswith("u"))


def fixed_byte(largest: float) -> Fixed:
    """Return the 8-bit format with the finest power-of-two step in which `largest` does not saturate."""
    if not largest > 0:
        return Fixed(BYTE, BYTE - 1)
    mantissa, exponent = math.frexp(largest)
    return Fixed(BYTE, BYTE - 1 - exponent - (mantissa > 127 / 128))


def fixed_products(x: Fixed, w: Fixed) -> Fixed:
    """Return the 32-bit format of sums of products: its step is the product of both steps."""
    return Fixed(WORD, x.fraction + w.fraction)


def fixed_nearest(x: float, f: Fixed) -> int:
    """Return the code nearest to a number, ties to even; one of the ends where it is outside, or infinite."""
    low, high = (end or 0 for end in f.codes)
    scaled = x * 2.0**f.fraction
    return round(min(max(scaled, low), high))
