"""Pixels: how many an image may have before any of them is unpacked, and how long decoding may take."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TypeVar

from ..errors import BudgetError, InputError

MOST_PIXELS = 1 << 26
IMAGE_BYTES = 4 * MOST_PIXELS  # of a file
T = TypeVar("T")


def check_pixels(rows: int, columns: int) -> None:
    """Raise InputError C101 when an image would have no pixels, or too many."""
    if not 0 < rows * columns <= MOST_PIXELS:
        raise InputError("C101", f"an image must have 1 to {MOST_PIXELS} pixels, not {rows * columns}", help="make it smaller before")


def in_time(items: Sequence[T], seconds: float, place: str) -> Iterator[T]:
    """Yield the items; BudgetError C101 where one is asked for when the time is over."""
    start = time.monotonic()
    for n, item in enumerate(items):
        if time.monotonic() - start > seconds:
            sentence = f"{len(items)} images must be decoded within {seconds:g} seconds, not {n} of them"
            raise BudgetError("C101", sentence, place=place, help="make them smaller before, or raise --limits data_seconds=")
        yield item
