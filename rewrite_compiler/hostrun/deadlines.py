"""Deadlines of runs on the host: one thread watches all of them, because starting a thread for each takes longer than a small run."""

from __future__ import annotations

import heapq
import math
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(order=True)
class Deadline:
    """A time of the monotonic clock, in seconds, and what is called then unless it is cancelled before."""

    time: float
    number: int
    end: Callable[[], object] | None = field(compare=False)


class Deadlines:
    """Deadlines that one thread watches, which starts with the first of them."""

    def __init__(self) -> None:
        """Start without a deadline, and without a thread; so does a process that is forked, whatever this one's threads do then."""
        self._forget()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        self._changed = threading.Condition()
        self._heap: list[Deadline] = []
        self._thread: threading.Thread | None = None
        self._number = 0
        self._wakes = math.inf  # when the thread looks again by itself

    def add(self, seconds: float, end: Callable[[], object]) -> Deadline:
        """Return a new deadline; `end` is called in the thread that watches, and must not wait."""
        with self._changed:
            self._number += 1
            deadline = Deadline(time.monotonic() + seconds, self._number, end)
            heapq.heappush(self._heap, deadline)
            if self._thread is None:
                thread = threading.Thread(target=self._watch, name="deadlines", daemon=True)
                thread.start()
                self._thread = thread
            elif deadline.time < self._wakes:
                self._changed.notify()
        return deadline

    def cancel(self, deadline: Deadline) -> None:
        """Cancel a deadline; one that has passed stays so."""
        with self._changed:
            deadline.end = None
            if self._heap and self._heap[-1] is deadline:  # of equal limits the newest is the last
                self._heap.pop()

    def _watch(self) -> None:
        with self._changed:
            while True:
                while self._heap and self._heap[0].end is None:
                    heapq.heappop(self._heap)
                self._wakes = self._heap[0].time if self._heap else math.inf
                seconds = self._wakes - time.monotonic()
                if seconds > 0:
                    self._changed.wait(min(seconds, threading.TIMEOUT_MAX))
                    continue
                end = heapq.heappop(self._heap).end
                assert end is not None
                end()
