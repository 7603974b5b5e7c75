"""Trimmed: a table without what repeats at both ends, so that the rest stays in a nearer cache; places beyond are the ends'."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from .binders import Table
from .expr import Expr, clamp
from .named import Data

LARGE = 1 << 17  # bytes: smaller tables are near anyway


def placed(table: Table, place: Expr) -> tuple[Data, Expr]:
    """Return entries of integers, and which one of them an entry of the whole table is."""
    entries, first = _varying(table)
    return entries, place if first is None else clamp(place, first, first + len(entries) - 1) - first


@lru_cache(maxsize=1024)
def _varying(table: Table) -> tuple[Data, int | None]:
    """Return the entries between those at the ends that repeat, and which one is the first; all where that saves little."""
    from .arrays import table_data

    entries = table_data(table)
    changes = np.flatnonzero(entries[1:] != entries[:-1]) if entries.nbytes >= LARGE else np.zeros(0, np.int64)
    if not changes.size or 2 * (changes[-1] - changes[0] + 2) > len(entries):
        return entries, None
    return entries[changes[0] : changes[-1] + 2].copy(), int(changes[0])
