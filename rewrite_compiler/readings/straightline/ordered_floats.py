"""Floats of 32 bits as words with a sign that are ordered as they are; what is not a number lies beyond both infinities."""

from __future__ import annotations

import numpy as np

from ..arrays.labelled_array import Data

REST = 0x7FFFFFFF  # the bits of a word but its sign
NOTHING = np.array([REST, -REST - 1], np.int32)  # the least and the largest of no words


def floats_of(words: Data) -> tuple[float, float]:
    """Return two floats; a zero is one without a sign."""
    low, high = (words ^ (words >> 31 & REST)).view(np.float32)
    return float(low) + 0.0, float(high) + 0.0
