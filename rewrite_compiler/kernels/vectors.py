"""LLVM values of a kernel: a scalar where all lanes agree, a vector where they may differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from llvmlite import ir

from ..errors import SpecError
from ..lang import intervals as iv
from ..lang.intervals import Interval

WORD, INDEX, BIT = ir.IntType(64), ir.IntType(32), ir.IntType(1)
WIDTHS = (16, 32, 64)
Value = Any  # of llvmlite, which has no types


class NotLowered(SpecError):
    """A refusal: a term without vector code."""

    def __init__(self, term: str, why: str) -> None:
        super().__init__("I102", f"no kernel computes {term} {why}")


def width_of(interval: Interval) -> int:
    """Return the width, in bits, of the narrowest signed lane that holds every value of an interval.

    Raises:
        NotLowered: 64 bits do not hold it.
    """
    for bits in WIDTHS:
        if iv.inside(interval, iv.of_width(bits, True)):
            return bits
    raise NotLowered("a value", f"in {interval}, more than a word of 64 bits holds")


def is_vector(x: Value) -> bool:
    """Tell whether lanes may differ."""
    return isinstance(x.type, ir.VectorType)


def bits_of(x: Value) -> int:
    """Return the width of a lane in bits."""
    return int(x.type.element.width if is_vector(x) else x.type.width)


class _Uniform(ir.Constant):  # type: ignore[misc]
    """A vector of equal numbers, written as one: kernels have thousands of them."""

    def __init__(self, lanes: int, element: ir.Constant) -> None:
        super().__init__(ir.VectorType(element.type, lanes), ir.Undefined)
        self.element = element

    def _get_reference(self) -> str:
        return f"splat ({self.element})"


@lru_cache(maxsize=4096)
def uniform(lanes: int, bits: int, n: int) -> ir.Constant:
    """Return a vector of equal numbers modulo 2^bits."""
    return _Uniform(lanes, ir.Constant(ir.IntType(bits), n & (1 << bits) - 1))


def constant_like(x: Value, n: int) -> ir.Constant:
    """Return a constant of the type of another value."""
    bits = bits_of(x)
    return uniform(x.type.count, bits, n) if is_vector(x) else ir.Constant(x.type, n & (1 << bits) - 1)


def constant_of(bits: int, n: int) -> ir.Constant:
    """Return a number modulo 2^bits."""
    low = 1 << bits - 1
    return ir.Constant(ir.IntType(bits), (n + low) % (1 << bits) - low)


def splat(b: ir.IRBuilder, x: Value, lanes: int) -> Value:
    """Broadcast a scalar to all lanes of a vector."""
    if is_vector(x):
        return x
    if isinstance(x, ir.Constant):
        return uniform(lanes, x.type.width, x.constant)
    kind = ir.VectorType(x.type, lanes)
    first_lane = b.insert_element(ir.Constant(kind, ir.Undefined), x, INDEX(0))
    return b.shuffle_vector(first_lane, ir.Constant(kind, ir.Undefined), ir.Constant(ir.VectorType(INDEX, lanes), [0] * lanes))


def resize(b: ir.IRBuilder, x: Value, bits: int, *, signed: bool = True) -> Value:
    """Convert a value to lanes of another width: truncated, or sign- or zero-extended."""
    width = bits_of(x)
    if width == bits:
        return x
    if isinstance(x, ir.Constant) and not is_vector(x) and signed:
        return constant_of(bits, x.constant)
    kind = ir.VectorType(ir.IntType(bits), x.type.count) if is_vector(x) else ir.IntType(bits)
    return (b.trunc if width > bits else b.sext if signed else b.zext)(x, kind)


def align_lanes(b: ir.IRBuilder, *values: Value) -> list[Value]:
    """Broadcast values to the same number of lanes."""
    lanes = max((x.type.count for x in values if is_vector(x)), default=0)
    return [splat(b, x, lanes) for x in values] if lanes else list(values)


def extract_lanes(b: ir.IRBuilder, x: Value, start: int, count: int) -> Value:
    """Extract `count` consecutive lanes of a vector."""
    if count == x.type.count:
        return x
    return b.shuffle_vector(
        x, ir.Constant(x.type, ir.Undefined), ir.Constant(ir.VectorType(INDEX, count), list(range(start, start + count)))
    )


def concatenate(b: ir.IRBuilder, parts: Sequence[Value]) -> Value:
    """Concatenate vectors of equal length, a power of two of them."""
    vectors = list(parts)
    while len(vectors) > 1:
        mask = ir.Constant(ir.VectorType(INDEX, 2 * vectors[0].type.count), list(range(2 * vectors[0].type.count)))
        vectors = [b.shuffle_vector(x, y, mask) for x, y in zip(vectors[::2], vectors[1::2], strict=True)]
    return vectors[0]


def interleave(b: ir.IRBuilder, x: Value, y: Value, *, signed: bool) -> Value:
    """Interleave the lanes of two vectors of at most 16 bits, as 16-bit numbers."""
    low, high = (resize(b, v, 32, signed=is_signed) for v, is_signed in ((x, signed), (y, signed)))
    low, high = b.and_(low, constant_like(low, 0xFFFF)), b.shl(high, constant_like(high, 16))
    return b.bitcast(b.or_(low, high), ir.VectorType(ir.IntType(16), 2 * x.type.count))


def map_positions(function: Callable[..., Value], *operands: Sequence[Value]) -> list[Value]:
    """Map a function over the values at each jammed position; an operand with one value is shared by all."""
    count = max(map(len, operands))
    return [function(*(x[q % len(x)] for x in operands)) for q in range(count)]


def element_type(kind: object) -> ir.IntType:
    """Return the integer type of an element of a numpy type."""
    return ir.IntType(8 * np.dtype(kind).itemsize)  # type: ignore[call-overload]
