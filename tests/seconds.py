"""Processor seconds of each test file, of all processes of a run and those that they wait for: `--seconds FILE`, then this as a script."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

COLLECTION = "collection"


class Seconds:
    """A plugin that writes a line for each test, its file and seconds; collection has a line for each process."""

    def __init__(self, file: Path) -> None:
        self.file = file

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if session.items:  # the process that hands out tests has none
            self._write(COLLECTION, used())

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        before = used()
        result = yield
        self._write(item.nodeid.partition("::")[0], used() - before)
        return result

    def _write(self, name: str, seconds: float) -> None:
        with self.file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps([name, round(seconds, 3)]) + "\n")


def used() -> float:
    """Return the processor seconds of this process and of those that it has waited for."""
    return sum(os.times()[:4])


def table(text: str) -> Iterator[str]:
    """Yield a line for each file, the longest first, and the sum."""
    seconds, tests = Counter[str](), Counter[str]()
    for name, spent in map(json.loads, text.splitlines()):
        seconds[name] += spent
        tests[name] += 1
    for name, spent in seconds.most_common():
        yield f"{spent:8.1f} s {tests[name]:5d} × {name}"
    yield f"{sum(seconds.values()):8.1f} s in all"


if __name__ == "__main__":
    print("\n".join(table(Path(sys.argv[1]).read_text("utf-8"))))
