"""Budgets of image decoding: pixels of an image and of all that are decoded at once, before any is unpacked, and time."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from ..errors import BudgetError, InputError

MAX_PIXELS = 1 << 26
IMAGE_BYTES = 4 * MAX_PIXELS  # of a file
T = TypeVar("T")


@dataclass(frozen=True)
class ImageHeader:
    """What an image declares before it is unpacked: its size, the type of its numbers, and how often all pixels are coded."""

    rows: int
    columns: int
    channels: int
    dtype: np.dtype[Any]
    scans: int = 1

    @property
    def pixels(self) -> int:
        """The pixels that decoding computes."""
        return self.rows * self.columns * self.scans


def check_pixels(rows: int, columns: int) -> None:
    """Check the number of pixels of an image.

    Raises:
        InputError: C101 when there are none, or too many.
    """
    if not 0 < rows * columns <= MAX_PIXELS:
        raise InputError("C101", f"an image must have 1 to {MAX_PIXELS} pixels, not {rows * columns}", help="make it smaller before")


def check_work(pixels: int, most: int, images: int, place: str) -> None:
    """Check the number of pixels of all images that are decoded at once.

    Raises:
        BudgetError: C101 when there are too many.
    """
    if pixels > most:
        sentence = f"{images} images that are decoded at once must have at most {most} pixels together, not {pixels}"
        raise BudgetError("C101", sentence, place=place, help="make them smaller before, or raise --limits data_pixels=")


def within_time(items: Sequence[T], seconds: float, place: str) -> Iterator[T]:
    """Yield the items while the time budget lasts.

    Raises:
        BudgetError: C101 when an item is requested after the deadline.
    """
    start = time.monotonic()
    for n, item in enumerate(items):
        if time.monotonic() - start > seconds:
            sentence = f"{len(items)} images must be decoded within {seconds:g} seconds, not {n} of them"
            raise BudgetError("C101", sentence, place=place, help="make them smaller before, or raise --limits data_seconds=")
        yield item
