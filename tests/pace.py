"""Bounds on processor time in steps of a loop of Python, timed before and after: what slows a call slows the loop beside it."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")
STEPS = 200_000  # of a loop that is timed
RUNS = 3  # threads and caches of earlier tests slow one of them, a slow call all


def _seconds_a_step() -> float:
    begun, total = time.process_time(), 0
    for step in range(STEPS):
        total += step
    return (time.process_time() - begun) / STEPS


def within_steps(most: int, action: Callable[[], Result]) -> Result:
    """Return the action's result; fail if it takes more processor time than so many steps of a loop, on each of three runs.

    25 million steps take about a second. What earlier tests have left is not collected meanwhile, which may take seconds.
    """
    taken = []
    for _ in range(RUNS):
        before = _seconds_a_step()
        gc.freeze()
        try:
            begun = time.process_time()
            result = action()
            seconds = time.process_time() - begun
        finally:
            gc.unfreeze()
        steps = seconds / max(before, _seconds_a_step())
        if steps <= most:
            return result
        taken.append(f"{steps:,.0f} steps ({seconds:.2f} s)")
    raise AssertionError(f"{', '.join(taken)}, where at most {most:,} are allowed")
