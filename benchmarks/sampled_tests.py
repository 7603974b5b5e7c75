"""A plugin of pytest (`-p sampled_tests`): a part of the cases of each test function.

`--each N` keeps at most N cases of a function, evenly spaced, and at most 10 N examples of a property; `--longest S` breaks a test
off after so many processor seconds; `--until S` starts no more tests once all have used S.
"""

from __future__ import annotations

import math
import os
import signal
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

EXAMPLES = 10  # of a property, for each case that is kept


class TookTooLong(BaseException):
    """A test has used up its processor time."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--each", type=int, default=0, help="at most so many cases of a test function (default: all)")
    parser.addoption("--longest", type=float, default=0.0, help="break a test off after so many processor seconds (default: never)")
    parser.addoption("--until", type=float, default=0.0, help="start no more tests after so many processor seconds in all (default: never)")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Sampled(config), "sampled")


def function_of(name: str) -> str:
    """Return the test function of a test's id."""
    return name.partition("[")[0]


def evenly(cases: list[pytest.Item], count: int) -> list[pytest.Item]:
    """Return at most so many cases, evenly spaced."""
    return cases if len(cases) <= count else [cases[k * len(cases) // count] for k in range(count)]


def shorten(test: Any, examples: int) -> None:
    """Let a property have at most so many examples, however long each takes."""
    given = test._hypothesis_internal_use_settings
    fewer = min(given.max_examples, examples)
    test._hypothesis_internal_use_settings = settings(
        given, max_examples=fewer, deadline=None, suppress_health_check=list(HealthCheck)
    )  # fmt: skip


def used() -> float:
    """Return the processor seconds of this process and those it has waited for."""
    return sum(os.times()[:4])


class Sampled:
    """What a run keeps and breaks off."""

    def __init__(self, config: pytest.Config) -> None:
        self.each, self.longest = int(config.getoption("--each")), float(config.getoption("--longest"))
        self.until = float(config.getoption("--until")) or math.inf
        self.seconds = 0.0  # of all tests so far

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self) -> bool | None:
        return True if self.seconds > self.until else None

    @pytest.hookimpl(hookwrapper=True, specname="pytest_runtest_protocol")
    def pytest_count_seconds(self) -> Iterator[None]:
        before = used()
        yield
        self.seconds += used() - before

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if not self.each:
            return
        cases: dict[str, list[pytest.Item]] = defaultdict(list)
        for item in items:
            cases[function_of(item.nodeid)].append(item)
        items[:] = [item for found in cases.values() for item in evenly(found, self.each)]
        for test in {getattr(item, "obj", None) for item in items}:
            if is_hypothesis_test(test):
                shorten(test, EXAMPLES * self.each)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self) -> Iterator[None]:
        if not self.longest:
            yield
            return

        def end(*_: object) -> None:
            raise TookTooLong

        before = signal.signal(signal.SIGPROF, end)
        signal.setitimer(signal.ITIMER_PROF, self.longest)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, before)
