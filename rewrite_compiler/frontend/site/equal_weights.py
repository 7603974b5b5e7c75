"""Twins: weights that are another one, or its transpose, element for element; an exporter may write them once for each step.

Only weights that are one value can be one layer's. What holds one number everywhere is known by that and stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...ir.program import Data, Value

FEWEST = 4  # elements of a weight that is compared
SAMPLED = 16  # elements by which twins are looked for
Key = tuple[tuple[int, ...], str, bytes]


class Twins:
    """The weights of a model by a sample of their elements."""

    def __init__(self) -> None:
        self.known: dict[Key, Value] = {}

    def find(self, data: Data, dtype: str, constants: Mapping[Value, Data]) -> Value | None:
        """Return the constant that some data are, None where they are new."""
        key = _key(data, dtype)
        v = self.known.get(key) if key is not None else None
        return v if v is not None and v in constants and np.array_equal(constants[v], data) else None

    def add(self, v: Value, data: Data, dtype: str) -> None:
        """Remember a constant."""
        key = _key(data, dtype)
        if key is not None:
            self.known[key] = v


def _key(data: Data, dtype: str) -> Key | None:
    """Return what twins have in common; None where they are few elements or one number."""
    if data.size < FEWEST or data.dtype == object:
        return None
    sample = data[np.unravel_index(np.linspace(0, data.size - 1, SAMPLED, dtype=np.int64), data.shape)]
    return (data.shape, dtype, sample.tobytes()) if (sample != sample[0]).any() else None
