"""Records of benchmarks: each from one clean commit of the history, with a command that runs from the root of a checkout.

Records that are not so yet are listed; a listed one that has become so must leave the list. The commands are
of one form: `python benchmarks/NAME.py --json benchmarks/results/NAME.json` on a clean commit.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from house import ROOT

from rewrite_compiler.fit.host import SHIPPED

RESULTS = ROOT / "benchmarks" / "results"
README_COMMITS = 150  # the most that a record of a figure in the README may be behind
OLD = """
    reliability reliability_mutation verilog
"""  # records to be made again
TO_REMAKE = frozenset(OLD.split())


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def ages() -> dict[str, int]:
    """Return how many commits each commit of the history is behind; the distance along all of it."""
    if git("rev-parse", "--is-shallow-repository").strip() != "false":
        pytest.skip("needs the history")
    return {commit: n for n, commit in enumerate(git("rev-list", "HEAD").split())}


def records() -> dict[str, dict[str, Any]]:
    return {p.stem: json.loads(p.read_text("utf-8")) for p in sorted(RESULTS.glob("*.json"))}


def problems(record: dict[str, Any], ages: dict[str, int]) -> Iterator[str]:
    commit = record["commit"]
    if commit.endswith("-dirty"):
        yield "it was measured on files that differ from its commit"
    if commit.removesuffix("-dirty") not in ages:
        yield f"its commit {commit} is not in the history"
    absolute = [a for a in record["command"] if Path(a.rpartition("=")[2]).is_absolute()]
    if absolute:
        yield f"its command names {absolute[0]}"


def test_records_are_of_clean_commits_and_their_commands_run_anywhere(ages: dict[str, int]) -> None:
    found = {name: list(problems(record, ages)) for name, record in records().items()}
    wrong = {name: why for name, why in found.items() if why}
    assert {name: why for name, why in wrong.items() if name not in TO_REMAKE} == {}
    assert sorted(TO_REMAKE - wrong.keys()) == []  # what was remade leaves the list


def test_the_figures_of_the_readme_are_not_old(ages: dict[str, int]) -> None:
    """For records that are not listed above: one that is listed is old in any case."""
    text = (ROOT / "README.md").read_text("utf-8")
    shown = set(re.findall(r"benchmarks/results/(\w+)\.json", text))
    assert shown
    recorded = records()
    assert shown <= recorded.keys()
    old = {name: ages.get(recorded[name]["commit"], README_COMMITS + 1) for name in shown - TO_REMAKE}
    assert {name: age for name, age in old.items() if age > README_COMMITS} == {}


def test_the_record_of_host_costs_lies_beside_the_table_that_ships() -> None:
    rows = records()["host_costs"]["rows"]
    shipped = {(r["per"], r["operator"]): round(1000 * r["shipped_nanoseconds"]) for r in rows}
    elements = {name: picoseconds for (per, name), picoseconds in shipped.items() if per == "element"}
    assert elements == {name: SHIPPED.element[name] for name in elements}
    products = {name.replace("depthwise conv", "grouped"): picoseconds for (per, name), picoseconds in shipped.items() if per == "mac"}
    assert (shipped["call", "tanh"], products) == (SHIPPED.call, SHIPPED.mac)


def test_plans_by_energy_times_time_are_never_worse_than_those_by_offloads() -> None:
    """On every shared model, at equal work left to the host, all operations priced; on some model other operations are chosen."""
    rows = [r for r in records()["objectives"]["rows"] if r["objective"] == "edp"]
    assert len(rows) >= 15
    assert all(r["unpriced_of_offloads"] == 0 and r["host"] == r["host_of_offloads"] for r in rows)
    assert [r["model"] for r in rows if r["picojoule_microseconds"] > r["picojoule_microseconds_of_offloads"]] == []
    assert any(r["operations"] != r["operations_of_offloads"] for r in rows)


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"commit": "0" * 40, "command": ["python", "x.py"]}, ["its commit 0{40} is not in the history"]),
        ({"commit": "HEAD-dirty", "command": ["python", "x.py"]}, ["it was measured on files that differ from its commit"]),
        ({"commit": "HEAD", "command": ["python", "x.py", "--json", "/tmp/x.json"]}, ["its command names /tmp/x.json"]),
        ({"commit": "HEAD", "command": ["python", "x.py", "--log=/tmp/x"]}, ["its command names --log=/tmp/x"]),
        ({"commit": "HEAD", "command": ["python", "x.py", "--json", "results/x.json"]}, []),
    ],
)
def test_a_bad_record_is_seen(record: dict[str, Any], said: list[str], ages: dict[str, int]) -> None:
    head = next(iter(ages))
    found = list(problems({**record, "commit": record["commit"].replace("HEAD", head)}, ages))
    assert len(found) == len(said)
    assert all(re.fullmatch(pattern, text) for pattern, text in zip(said, found, strict=True))
