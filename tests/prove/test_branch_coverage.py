"""Branch coverage: the trials of the court take every way of every driver, or a comment says why none can."""

from __future__ import annotations

from pathlib import Path

import pytest
from known_wrong.drivers import Fault, planted

from rewrite_compiler.prove.mappings.branch_coverage import MARK, driver_coverage
from rewrite_compiler.target import find_target, target_names

TARGETS = Path(__file__).parents[2] / "targets"


@pytest.mark.parametrize("name", target_names())
def test_every_way_of_a_driver_is_taken_by_a_trial_or_marked(name: str) -> None:
    coverage = driver_coverage(find_target(name))
    assert len(coverage.ways) > 10
    assert not list(coverage.open_ways())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return results(device, m)", "return results(device if count < 10_000 else None, m)"),
        ("range(count)", "(range(count) if count else [1])"),
        ("return results", "for _ in range(count // 10_000):\n        pass\n    return results"),
    ],
)
def test_a_way_that_no_trial_takes_is_told(old: str, new: str) -> None:
    with planted(Fault("hvx.add_2", "hvx.sweeps", "_sweep", old, new)):
        ways = list(driver_coverage(find_target("hvx"), ["add_2"]).open_ways())
    assert ways
    assert all(way.startswith("sweeps.py:") for way in ways)


def test_marks_are_few_and_say_why() -> None:
    marks = [line for file in TARGETS.rglob("*.py") for line in file.read_text("utf-8").splitlines() if MARK in line]
    assert 0 < len(marks) < 12
    assert all(len(line.partition(MARK)[2].split()) > 3 for line in marks)
