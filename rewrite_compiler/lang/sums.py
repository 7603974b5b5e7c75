"""Sums of products whose words are made floats of a result: what the code depends on, what it is given, and what is seen on the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .named import Data
from .rounding import Rounding
from .straight import Code

LANES = 16
NOTHING = (np.inf, -np.inf, 0.0)  # least, largest, how many at the end


@dataclass(frozen=True)
class Sums:
    """Everything that the code depends on: pairs of a step, code from a sum ("acc") and numbers of its column ("array") to a word."""

    pairs: int
    code: Code
    columns: int  # numbers of a column that the code reads
    rounding: Rounding
    largest: float  # the end of the range


@dataclass(frozen=True, eq=False)
class Factors:
    """What does not depend on samples: offsets of rows and steps in A, B [columns, elements], a column's numbers, and where results go.

    A place of −1 is of a row or a column whose results nobody reads; those of a tile lie side by side.
    """

    rows: Data
    steps: Data
    columns: Data
    numbers: Sequence[Data]
    row_places: Data
    column_places: Data


def seen_nothing() -> Data:
    """Return what was seen before any call, for each lane."""
    return np.repeat(np.array(NOTHING, np.float32), LANES)


def seen_in(found: Data) -> tuple[float, float, int]:
    """Return the least and the largest float, and how many were at the end of the range."""
    low, high, ends = found.reshape(len(NOTHING), LANES)
    return float(low.min()), float(high.max()), int(ends.view(np.int32).sum())
