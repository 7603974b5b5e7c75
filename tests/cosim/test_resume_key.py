"""A log belongs to one run: a run that differs in any one field of its key does not go on with it."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from command import perceptron, samples

from rewrite_compiler.compile import Plan, compile_model
from rewrite_compiler.cosim import Settings, cosimulate
from rewrite_compiler.errors import FlexmatchError

SOME = Settings(batch=4, threads=1, tier="arrays", metric="f1")
SCORE = "def score(outputs, labels):\n    '''{}'''\n    return (outputs.reshape(len(outputs), -1).argmax(axis=1) == labels).astype(float)\n"
Run = tuple[Plan, Path, Settings]


@pytest.fixture
def first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run whose first batch is in its log."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    onnx.save(perceptron((16, 8, 4)), "app.onnx")
    Path("scored.py").write_text(SCORE.format("One."), "utf-8")
    return compiled(2), samples(Path("data.npz"), 12, 16, classes=4), replace(SOME, log=tmp_path / "run.log")


def compiled(seed: int) -> Plan:
    return compile_model("app.onnx", ["flexasr"], calibrate=samples(Path(f"calibration{seed}.npz"), 8, 16, seed=seed))


class Stopped(Exception):
    pass


def begin(run: Run) -> None:
    def stop(_done: int, _total: int) -> None:
        raise Stopped

    with pytest.raises(Stopped):
        cosimulate(run[0], run[1], settings=run[2], progress=stop)


def other_metric(run: Run, _: pytest.MonkeyPatch) -> Run:
    Path("scored.py").write_text(SCORE.format("Another."), "utf-8")
    sys.modules.pop("scored", None)
    return run


def other_version(run: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(importlib.import_module("rewrite_compiler.cosim.cosimulate"), "version", lambda _: "0.0.7")
    return run


def other_schema(run: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr("rewrite_compiler.cosim.journal.SCHEMA", "flexmatch log of samples 99")
    return run


def with_settings(**changes: object) -> Callable[[Run, pytest.MonkeyPatch], Run]:
    return lambda run, _: (run[0], run[1], replace(run[2], **changes))  # type: ignore[arg-type]


# field of the key → a run that differs in it, and in no field before it
OTHER: dict[str, Callable[[Run, pytest.MonkeyPatch], Run]] = {
    "schema": other_schema,
    "flexmatch": other_version,
    "plan": lambda run, _: (compiled(3), *run[1:]),
    "data": lambda run, _: (run[0], samples(Path("other.npz"), 12, 16, classes=4, seed=9), run[2]),
    "samples": with_settings(samples=8),
    "metric": with_settings(metric="top1"),
    "batch": with_settings(batch=3),
    "tier": with_settings(tier="native"),
    "audit": with_settings(audit=5),
    "host": with_settings(host="exact"),
    "metric's file": other_metric,
    "engine": with_settings(engine="simulator"),
}


@pytest.mark.parametrize("field", OTHER)
def test_a_run_that_differs_in_one_field_does_not_go_on(field: str, first: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    if field == "metric's file":
        first = (*first[:2], replace(first[2], metric="scored:score"))
    begin(first)
    with pytest.raises(FlexmatchError, match=rf"error\[C106\]: the log belongs to another run: its {field} is "):
        cosimulate(*(run := OTHER[field](first, monkeypatch))[:2], settings=run[2])


def test_every_field_of_the_key_has_another_run(first: Run) -> None:
    begin(first)
    assert first[2].log is not None
    header = first[2].log.read_bytes().splitlines()[0]
    assert list(json.loads(header[header.index(b"{") :])) == list(OTHER)
