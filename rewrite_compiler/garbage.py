"""Python's cyclic garbage collector, which traverses all objects again and again where many are made that stay."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

SPARING = 10_000, 10, 10  # thresholds as gc.set_threshold takes them: what is garbage meanwhile is some ten megabytes
RARE = 200_000, 20, 50


@contextmanager
def rare_collection(thresholds: tuple[int, int, int] = SPARING) -> Iterator[None]:
    """Collect garbage rarely while the body runs, most of whose objects live about as long as it does."""
    before = gc.get_threshold()
    gc.set_threshold(*thresholds)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def paused_collection() -> Iterator[None]:
    """Collect no garbage while the body runs; what it has made then counts as old, so that the next collection does not traverse it."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if not gc.get_freeze_count():  # else somebody's permanent objects would be among the old ones
                gc.freeze()
                gc.unfreeze()
            gc.enable()
