"""Deadlines of runs on the host: each is met once or cancelled, and one thread watches all of them."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from functools import partial
from queue import SimpleQueue

import pytest

from rewrite_compiler.hostrun.deadlines import Deadlines

LONG = 3600.0  # seconds, which no test waits for


def watchers() -> int:
    return sum(t.name == "deadlines" for t in threading.enumerate())


def test_deadlines_end_in_their_order_whatever_the_order_they_are_added_in() -> None:
    ended, deadlines = SimpleQueue[str](), Deadlines()
    for seconds, name in ((LONG, "never"), (0.2, "last"), (0.05, "first"), (0.1, "second")):
        deadlines.add(seconds, lambda name=name: ended.put(name))
    assert [ended.get(timeout=30) for _ in range(3)] == ["first", "second", "last"]
    assert ended.empty()


def test_a_cancelled_deadline_does_not_end_anything() -> None:
    ended, deadlines = SimpleQueue[str](), Deadlines()
    kept = [deadlines.add(0.05, lambda: ended.put("cancelled")) for _ in range(3)]
    deadlines.add(0.1, lambda: ended.put("met"))
    for deadline in (kept[1], kept[0], kept[2]):
        deadlines.cancel(deadline)
    assert ended.get(timeout=30) == "met"
    assert ended.empty()


def test_runs_within_their_limit_start_one_thread_and_do_not_wake_it(monkeypatch: pytest.MonkeyPatch) -> None:
    deadlines, before = Deadlines(), watchers()
    first = deadlines.add(LONG, lambda: None)
    while deadlines._wakes == float("inf"):  # until the thread waits for the first one
        time.sleep(0.001)
    deadlines.cancel(first)
    monkeypatch.setattr(deadlines._changed, "notify", lambda: pytest.fail("the thread was woken"))
    for _ in range(1000):
        deadlines.cancel(deadlines.add(LONG, lambda: None))
    assert watchers() == before + 1
    assert len(deadlines._heap) <= 1


def test_an_earlier_deadline_is_met_while_a_later_one_is_waited_for() -> None:
    ended, deadlines = SimpleQueue[str](), Deadlines()
    deadlines.add(LONG, lambda: ended.put("never"))
    deadlines.add(0.05, lambda: ended.put("met"))
    assert ended.get(timeout=30) == "met"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_process_that_was_forked_watches_again() -> None:
    deadlines = Deadlines()
    deadlines.add(LONG, lambda: None)
    read, write = os.pipe()
    child = os.fork()
    if not child:
        deadlines.add(0.05, partial(os.write, write, b"met"))
        time.sleep(30)
        os._exit(1)
    is_ready, _, _ = select.select([read], [], [], 20)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert is_ready
