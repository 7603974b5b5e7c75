"""Lazily decoded results: quantised codes with pending clamps, and floats with a known range.

Between two offloads the floats may never be needed: clamping a value and quantising it for the next offload is one function of its
code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Protocol

import numpy as np

from ...ir.program import Data
from ...lang.formats import Fixed, Format
from ...readings.arrays.buffer_pool import pooled_array_with_strides
from ...readings.arrays.labelled_array import storage_dtype
from ...readings.kernels.format_conversion import decoder, encoder
from ...readings.kernels.layout_conversion import Conversion, composed, is_large_and_regular
from ...readings.straightline.code import REAL, Op

Ends = tuple[float, float]
Clamp = tuple[str, float]  # "max" or "min", and its number
SINGLE = np.dtype(np.float32)


def hull_of(ends: Iterable[Ends]) -> Ends:
    """Return the smallest interval that contains all intervals, (∞, −∞) for none."""
    low, high = np.inf, -np.inf
    for a, b in ends:
        low, high = min(low, a), max(high, b)
    return low, high


class Lazy(Protocol):
    """A lazy value, computed when its elements are requested."""

    @property
    def data(self) -> Data:
        """Its elements [samples, …]."""


Operand = Data | Lazy


def elements_of(x: Operand) -> Data:
    """Return the elements of a value, materialised if it is lazy."""
    return x if isinstance(x, np.ndarray) else x.data


@dataclass(frozen=True, eq=False)
class RangedFloats:
    """Floats with known least and largest element."""

    data: Data
    ends: Ends


@dataclass(frozen=True, eq=False)
class LazyCodes:
    """Codes of a format [samples, …] with pending clamps, and the range of the clamped values."""

    codes: Data
    format: Fixed
    ends: Ends
    limits: tuple[Clamp, ...] = ()

    @cached_property
    def data(self) -> Data:
        """The clamped float values, in the memory layout of the codes."""
        out = pooled_array_with_strides(self.codes.shape, self.codes.strides, SINGLE)
        conversion = decode_conversion(self.format, self.limits)
        assert conversion is not None
        conversion(out, self.codes)
        return out

    def clamped(self, *limits: Clamp) -> LazyCodes:
        """Return these values with further pending clamps."""
        low, high = self.ends
        for kind, number in limits:
            choose: Callable[..., float] = max if kind == "max" else min
            low, high = choose(low, number), choose(high, number)
        return replace(self, ends=(low, high), limits=(*self.limits, *limits))

    def encode_into(self, f: Format, part: Callable[[Data], Data], target: Data, after: Conversion | None) -> bool:
        """Write the codes in format `f` of a part of the values to `target`; False where the floats are needed for it."""
        conversion = recode_conversion(self.format, self.limits, f, after)
        codes = part(self.codes)
        if conversion is None or not is_large_and_regular(codes, target):
            return False
        conversion(target, codes)
        return True


def keeps_codes(f: Format) -> bool:
    """Tell whether values of a format are kept as codes: fixed-point of 8 or 16 bits, exact in float32."""
    return isinstance(f, Fixed) and f.width in (8, 16) and decode_conversion(f, ()) is not None


@lru_cache(maxsize=256)
def decode_conversion(f: Format, limits: tuple[Clamp, ...]) -> Conversion | None:
    """Return the conversion from codes to clamped float32 values, None where there is none."""
    conversion = decoder(f)
    for limit in limits:
        conversion = None if conversion is None else composed(conversion, SINGLE, clamp_conversion(*limit))
    return conversion


@lru_cache(maxsize=256)
def recode_conversion(f: Format, limits: tuple[Clamp, ...], other: Format, after: Conversion | None) -> Conversion | None:
    """Return the conversion from codes of one format, clamped, to codes of another, followed by `after`; None where there is none."""
    first, last = decode_conversion(f, limits), encoder(other, SINGLE)
    if first is None or last is None:
        return None
    conversion = composed(first, SINGLE, last)
    return conversion if after is None else composed(conversion, storage_dtype(other.codes), after)


@lru_cache(maxsize=256)
def clamp_conversion(kind: str, number: float) -> Conversion:
    """Return the conversion that clamps a float as numpy does: NaN propagates, and of equal operands the limit is the result."""
    ops: tuple[Any, ...] = (Op("array", (), (0, 0), REAL), Op("const", (), number, REAL, REAL))
    order = (0, 1) if kind == "max" else (1, 0)
    return Conversion((*ops, Op("le", order, None, 32, REAL), Op("select", (2, 1, 0), None, REAL, REAL)))
