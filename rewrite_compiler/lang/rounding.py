"""Rounding: a function of words that rounds them to leading bits, as what it does to the bits of a float.

Encoding a word in a short format and decoding it again is such a function. It is found from its values, and used only
where it gives every one of them, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from .named import Data

MANTISSA = 23
EXACT = 1 << MANTISSA + 1  # words up to here are floats
SIGN = 1 << 31
Function = Callable[[Data], Data]


@dataclass(frozen=True)
class Rounding:
    """A word as a float without its last `drop` bits, 0 below `least` and at most `most` (both as bits), times a power of two."""

    drop: int
    positive: int  # is added to the bits of a positive word before they are dropped
    negative: int
    least: int
    most: int
    scale: float

    @property
    def kept(self) -> int:
        """The mask of the bits that stay."""
        return (SIGN - 1) & -(1 << self.drop)

    def __call__(self, words: Data) -> Data:
        """Return what becomes of words."""
        bits = words.astype(np.float32).view(np.int32)
        size = (bits & (SIGN - 1)) + np.where(bits < 0, np.int32(self.negative), np.int32(self.positive)) & np.int32(self.kept)
        sign = bits & np.int32(-SIGN)
        found = (np.minimum(size, np.int32(self.most)) | sign).view(np.float32) * np.float32(self.scale)
        return np.where(size >= self.least, found, np.float32(0))


def rounding(function: Function, low: int, high: int) -> Rounding | None:
    """Return a function of the words from `low` to `high` as a rounding; None where it is none."""
    if not (-EXACT <= low <= -2 and 2 <= high <= EXACT):
        return None
    words = np.arange(low, high + 1, dtype=np.int32)
    values = function(words)
    kept, scale = _leading(values[-low:]) if np.isfinite(values).all() else (0, 0)
    sizes = np.abs(values)
    if not scale:
        return None
    least, most = (int((x / np.float32(scale)).view(np.int32)) for x in (sizes[sizes > 0].min(), sizes.max()))
    for up in _candidates(kept):
        for down in _candidates(kept):
            found = Rounding(MANTISSA - kept, up, down, least, most, scale)
            if _is_right(found, words[:: len(words) // 1000 + 1], values[:: len(words) // 1000 + 1]) and _is_right(found, words, values):
                return found
    return None


def _leading(positive: Data) -> tuple[int, float]:
    """Return how many bits behind the first one count, and what a word is multiplied by, from the values of 0, 1, 2 …"""
    best, scale = 0, 0.0
    for n in range(len(positive).bit_length() - 1):
        here = positive[1 << n : 2 << n]
        count = int(np.count_nonzero(np.diff(here))) + 1 - int(len(positive) > 2 << n and here[-1] == positive[2 << n])
        if here[0] > 0 and count.bit_length() - 1 > best:
            best, scale = count.bit_length() - 1, float(here[0]) / (1 << n)
    return best, scale


def _candidates(kept: int) -> Iterator[int]:
    """Yield what may be added: halves go up or down, or nothing goes up."""
    half = 1 << MANTISSA - kept - 1
    yield from (half, half - 1, 0)


def _is_right(found: Rounding, words: Data, values: Data) -> bool:
    return bool(np.array_equal(found(words).view(np.int32), values.view(np.int32)))
