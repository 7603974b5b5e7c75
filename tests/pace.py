"""Bounds on processor time in steps of a loop of Python, timed before and after: what slows a call slows the loop beside it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

STEPS = 200_000  # of a loop that is timed


def _seconds_a_step() -> float:
    begun, total = time.process_time(), 0
    for step in range(STEPS):
        total += step
    return (time.process_time() - begun) / STEPS


@contextmanager
def steps_of_python(most: int) -> Iterator[None]:
    """Fail if the block takes more processor time than so many steps of a loop; 25 million take about a second."""
    before, begun = _seconds_a_step(), time.process_time()
    yield
    seconds = time.process_time() - begun
    steps = seconds / max(before, _seconds_a_step())
    assert steps <= most, f"{steps:,.0f} steps ({seconds:.2f} s), where at most {most:,} are allowed"
