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


SHARED = """
def common(names, known):
    return {n for n in names if n in known}

def few(names):
    return [n for n in names if n != "x"]
"""
JUDGE = """
import sys
sys.path.insert(0, "benchmarks")
from pathlib import Path
import changed_code, reliability_mutation as m
folder = Path(sys.argv[1])
changed_code.ROOT = m.ROOT = folder
m.restore = lambda folder, file: None
m.in_fresh_process = lambda *_: "noticed"

class Warm:
    names = []

    def answer(self, place, tests, seconds):
        return {"outcome": "survived", "failed": "", "seconds": 0.1}

file = "rewrite_compiler/errors.py"
nodes = changed_code.nodes_of(changed_code.parsed(file))
places = [m.Place("lang", file, n) for n, x in enumerate(nodes) if isinstance(x, changed_code.ast.comprehension)]
have = m.Known({p.key: {"t"} for p in places}, {"t": 0.1})
print([m.Court(folder / "copy", Warm(), have, 1.0, []).judged(p)[0] for p in places])
"""


def test_a_change_of_the_variables_that_an_inner_function_shares_is_asked_in_a_fresh_process(tmp_path: Path) -> None:
    """Without its filter the first set reads no variable of the function around it: its code cannot be exchanged."""
    for folder in (tmp_path, tmp_path / "copy"):
        (folder / "rewrite_compiler").mkdir(parents=True)
        (folder / "rewrite_compiler" / "errors.py").write_text(SHARED, "utf-8")
    answer = subprocess.run([sys.executable, "-c", JUDGE, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=True)
    assert answer.stdout == "['noticed', 'survived']\n"


UNMEASURED = """
import sys
sys.path.insert(0, "benchmarks")
from pathlib import Path
import changed_code, reliability_mutation as m
m.ROOT = folder = Path(sys.argv[1])
asked = []

class Warm:
    names = [f"tests/lang/test_{file}.py::{test}" for file in "abc" for test in ("one[1]", "one[2]", "wrong", "two")]

    def answer(self, place, tests, seconds):
        asked.append(tests)
        failed = [t for t in tests if place and t.endswith("two")] or [t for t in tests if "wrong" in t]
        return {"outcome": "noticed" if failed else "survived", "failed": failed[0] if failed else "", "seconds": 0.1}

place = m.Place("lang", "rewrite_compiler/lang/expr.py", 0)
have = m.Known({place.key: {"tests/lang/test_a.py::one[1]"}}, {"tests/lang/test_a.py::one[1]": 0.1})
court = m.Court(folder, Warm(), have, 1.0, [])
court._is_right = lambda test, place: "two" in test or have.wrong.add(test)
print(court._warm(place), [[t.removeprefix("tests/lang/test_") for t in tests] for tests in asked])
"""


def test_tests_that_name_the_module_and_were_not_measured_are_asked_before_a_change_survives(tmp_path: Path) -> None:
    """A file was measured, one names the module and one does not; of each function a case comes before the next."""
    (tmp_path / "tests" / "lang").mkdir(parents=True)
    for file, module in (("a", "expr"), ("b", "expr"), ("c", "step")):
        (tmp_path / "tests" / "lang" / f"test_{file}.py").write_text(f"import rewrite_compiler.lang.{module}\n", "utf-8")
    answer = subprocess.run([sys.executable, "-c", UNMEASURED, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=True)
    further = "'b.py::one[1]', 'b.py::wrong', 'b.py::two', 'b.py::one[2]'"
    assert answer.stdout == f"noticed [['a.py::one[1]'], [{further}]]\n"
