"""What benchmarks write down, and that each of them is described."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from house import ROOT

BENCHMARKS = ROOT / "benchmarks"


def run(code: str) -> object:
    """Run a line of Python among the benchmarks and read what it prints as JSON."""
    command = [sys.executable, "-c", f"import json, record\n{code}"]
    return json.loads(subprocess.run(command, cwd=BENCHMARKS, capture_output=True, text=True, check=True).stdout)


def test_a_spread_is_the_median_between_the_quartiles() -> None:
    assert run("print(json.dumps(record.spread([5.0, 1.0, 4.0, 2.0, 3.0])))") == {"low": 2.0, "median": 3.0, "high": 4.0}
    assert run("print(json.dumps(record.spread([7.0])))") == {"low": 7.0, "median": 7.0, "high": 7.0}


def test_a_record_names_what_was_measured_and_where(tmp_path: Path) -> None:
    file = tmp_path / "record.json"
    run(f"import pathlib; record.finish('startup', [{{'name': 'a', 'wall_seconds': 1.5}}], pathlib.Path({str(file)!r})); print(1)")
    record = json.loads(file.read_text("utf-8"))
    assert list(record) == ["schema", "benchmark", "command", "commit", "machine", "versions", "rows"]
    assert record["schema"] == "flexmatch.record/1"
    assert record["rows"] == [{"name": "a", "wall_seconds": 1.5}]
    assert record["machine"]["processor"]
    assert {"python", "numpy", "onnx"} <= record["versions"].keys()


def test_fresh_answers_are_computed_anew_but_verdicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways: a verdict of before is found, one that is given meanwhile is found later, and nothing is damaged."""
    monkeypatch.setenv("FLEXMATCH_CACHE", str(tmp_path))
    code = """
from rewrite_compiler.disk_cache import DiskCache, private_cache_folder as folder
kept = lambda name, *keys: [(DiskCache(folder(name)).get(key) or b'').decode() for key in keys]
DiskCache(folder('court')).put('a', b'1'), DiskCache(folder('saturation')).put('a', b'1')
with record.fresh_answers():
    DiskCache(folder('court')).put('b', b'2')
    found = [kept('court', 'a'), kept('saturation', 'a')]
print(json.dumps([*found, kept('court', 'a', 'b')]))
"""
    assert run(code) == [["1"], [""], ["1", "2"]]


def test_every_benchmark_is_in_the_list() -> None:
    listed = (BENCHMARKS / "README.md").read_text("utf-8")
    assert not [path.name for path in BENCHMARKS.glob("*.py") if path.name != "record.py" and f"`{path.name}`" not in listed]
