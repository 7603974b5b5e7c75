"""The verb lift: what it writes is a target file that the court certifies; what it does not write is listed with a reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import flexmatch

from rewrite_compiler.prove import prove_mapping
from rewrite_compiler.target import load_target

ACCELERATORS = Path(__file__).parents[1] / "sched" / "accelerators"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_what_is_written_is_a_target(tmp_path: Path) -> None:
    (tmp_path / "vector.py").write_text((ACCELERATORS / "vector.py").read_text())
    answer = flexmatch("lift", "./vector.py", "--only", "max_", "--only", "dense", "--output", "lifted.py", "--json", "-")
    assert answer.code == 0
    document = json.loads(answer.out)
    assert [(x["name"], x["instructions"]) for x in document["lifted"]] == [("max_", ["max"])]
    assert document["refused"] == [{"name": "dense", "reason": "no instruction computes this from two operands"}]
    target = load_target("./lifted.py")
    assert [*target.mappings] == ["max_"]
    assert str(prove_mapping(target.mappings["max_"], target.ila()).verdict) == "proved"


def test_nothing_is_written_where_nothing_is_lifted(tmp_path: Path) -> None:
    answer = flexmatch("lift", str(ACCELERATORS / "vector.py"), "--only", "dense")
    assert (answer.code, answer.out) == (1, "not       dense: no instruction computes this from two operands\n")
    assert not [*tmp_path.iterdir()]


def test_an_unknown_operation_is_refused() -> None:
    answer = flexmatch("lift", str(ACCELERATORS / "vector.py"), "--only", "dens")
    assert answer.code == 2
    assert 'no operation "dens" is looked for' in answer.err
    assert "dense" in answer.err
