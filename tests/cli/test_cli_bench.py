"""bench: seconds of phases and simulators, and the answer to what became slower."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command import flexmatch, refused

ONCE = ("bench", "app.onnx", "--accel", "flexasr", "--runs", "1")


def edited(document: dict[str, Any], factor: float, path: str) -> str:
    """Write a document whose seconds are some times as many, and return its name."""
    made = json.loads(json.dumps(document))
    for row in made["run"]["phases"]:
        row["cpu_seconds"]["median"] *= factor
    Path(path).write_text(json.dumps(made))
    return path


def test_phases_are_measured_and_compared(folder: Path) -> None:
    answer = flexmatch(*ONCE, "--json", "now.json", "-v")
    assert (answer.code, answer.err) == (0, "")
    document = json.loads(Path("now.json").read_text())
    phases = document["run"]["phases"]
    assert [p["name"] for p in phases] == ["read", "saturate", "extract", "plan"]
    assert all(0 < p[kind]["low"] <= p[kind]["median"] <= p[kind]["high"] for p in phases for kind in ("cpu_seconds", "wall_seconds"))
    assert document["run"]["simulators"] == []
    led = {r["rule"]: r["offloads"] for r in document["rules"]}
    assert led["add-zero-bias"] == 0  # its layers have biases
    assert sum(n for rule, n in led.items() if rule.startswith("flexasr.")) == document["offloads"]
    assert "add-zero-bias" in answer.out
    fast = flexmatch(*ONCE, "--against", edited(document, 1000, "slow.json"), "--max-slowdown", "2")
    assert (fast.code, fast.err) == (0, "")
    assert "before" in fast.out
    slow = flexmatch(*ONCE, "--against", edited(document, 0.001, "fast.json"), "--max-slowdown", "2")
    assert slow.code == 1
    assert slow.err.startswith("fast.json: error[F217]: processor seconds may grow at most 2 times, not: read ")


@pytest.mark.parametrize("text", ["", "[" * 100_000, '{"schema": "flexmatch.bench/1", "model": {}, "run": {"phases": [3]}}'])
def test_what_is_no_earlier_document_is_refused_before_anything_is_measured(text: str, folder: Path) -> None:
    Path("before.json").write_text(text)
    answer = flexmatch(*ONCE, "--against", "before.json")
    said = "before.json: error[F103]: the file must be a document of flexmatch bench, not something else"
    assert (answer.code, answer.err.splitlines()[0]) == (3, said)


def test_a_document_of_another_model_is_refused(folder: Path) -> None:
    made = {"schema": "flexmatch.bench/1", "model": {"sha256": "0"}, "run": {"phases": [], "simulators": []}}
    Path("other.json").write_text(json.dumps(made))
    answer = flexmatch(*ONCE, "--against", "other.json")
    assert answer.code == 3
    assert "what --against names must be a document of flexmatch bench for the same model" in answer.err


def test_a_slowdown_below_one_means_nothing() -> None:
    said = (
        'error[F203]: --max-slowdown must be a number from 1 on, not "0.5"'
        "\n  help: --max-slowdown X: answer no (exit 1) beyond X times it (default: 1.5)"
    )
    refused(flexmatch(*ONCE, "--max-slowdown", "0.5"), 2, said)
