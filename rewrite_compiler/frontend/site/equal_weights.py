"""Deduplication of weights: constants equal to another or to its transpose; an exporter may write one for each time step.

Only weights that are one value can be one layer's. A constant with one number everywhere is known by that number and stays.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...ir.program import Data, Value

MIN_ELEMENTS = 4  # elements of a weight that is compared
SAMPLE_ELEMENTS = 16  # elements by which twins are looked for
Key = tuple[tuple[int, ...], str, bytes]


class WeightIndex:
    """An index of the weights of a model by shape, type and a sample of their elements."""

    def __init__(self) -> None:
        self.constants: dict[Key, Value] = {}

    def find(self, data: Data, dtype: str, constants: Mapping[Value, Data]) -> Value | None:
        """Return the constant equal to `data`, or None."""
        key = _key(data, dtype)
        v = self.constants.get(key) if key is not None else None
        return v if v is not None and v in constants and np.array_equal(constants[v], data) else None

    def add(self, v: Value, data: Data, dtype: str) -> None:
        """Index a constant."""
        key = _key(data, dtype)
        if key is not None:
            self.constants[key] = v


def _key(data: Data, dtype: str) -> Key | None:
    """Return the hash key of equal weights; None for few elements or for one number everywhere."""
    if data.size < MIN_ELEMENTS or data.dtype == object:
        return None
    sample = data[np.unravel_index(np.linspace(0, data.size - 1, SAMPLE_ELEMENTS, dtype=np.int64), data.shape)]
    return (data.shape, dtype, sample.tobytes()) if (sample != sample[0]).any() else None
