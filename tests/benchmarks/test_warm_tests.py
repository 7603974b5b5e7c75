"""Tests that are asked of a changed copy in a process of its own: they pass as it is, fail after a change, and end in time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from house import ROOT

ASK = """
import sys
sys.path.insert(0, "benchmarks")
from pathlib import Path
from warm_tests import in_fresh_process
folder, seconds, *more = sys.argv[1:]
print(in_fresh_process(Path(folder), [f"{folder}/test_copy.py"], float(seconds), more))
"""
TESTS = """
import time

from rewrite_compiler.errors import NO

def spend(seconds):
    ends = time.process_time() + seconds
    while time.process_time() < ends:
        pass

def test_in_time():
    spend(0.3)
    assert NO in (1, 2)

def test_at_last():
    assert NO == 1
"""


@pytest.mark.parametrize(
    ("number", "seconds", "more", "outcome"),
    [
        (1, 10.0, (), "survived"),
        (1, 10.0, ("--each", "1"), "survived"),
        (2, 10.0, (), "noticed"),
        (2, 0.1, (), "survived"),  # the second test is not begun
    ],
)
def test_a_fresh_process_says_what_tests_say(
    number: int, seconds: float, more: tuple[str, ...], outcome: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "--require-shared")  # of a run around this one
    package = tmp_path / "rewrite_compiler"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "errors.py").write_text(f"NO = {number}\n", "utf-8")
    (tmp_path / "test_copy.py").write_text(TESTS, "utf-8")
    command = [sys.executable, "-c", ASK, str(tmp_path), str(seconds), *more]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert answer.stdout == f"{outcome}\n"
