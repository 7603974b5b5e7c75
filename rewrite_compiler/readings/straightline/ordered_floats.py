"""Float32 values as signed words in the same order; not-a-number lies beyond both infinities."""

from __future__ import annotations

import numpy as np

from ..arrays.labelled_array import Data

MAGNITUDE_BITS = 0x7FFFFFFF  # all bits of a word but its sign
EMPTY_RANGE = np.array([MAGNITUDE_BITS, -MAGNITUDE_BITS - 1], np.int32)  # minimum and maximum of the empty set


def floats_of(words: Data) -> tuple[float, float]:
    """Return the floats of two ordered words; a zero has no sign."""
    low, high = (words ^ (words >> 31 & MAGNITUDE_BITS)).view(np.float32)
    return float(low) + 0.0, float(high) + 0.0
