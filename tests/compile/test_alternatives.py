"""Alternatives: plans that one more option gives, the cheapest first, all of them different."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from command import perceptron
from onnx import helper, numpy_helper

from rewrite_compiler.cli.main import main
from rewrite_compiler.compile import Options, compile_model
from rewrite_compiler.compile.alternatives import Alternatives, alternatives


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A linear layer and its ReLU."""
    path = tmp_path / "app.onnx"
    draw = np.random.default_rng(0).standard_normal
    weights = [numpy_helper.from_array(draw(s).astype(np.float32), n) for n, s in (("w", (32, 16)), ("b", (32,)))]
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["h"], name="layer", transB=1), helper.make_node("Relu", ["h"], ["y"], name="relu")]
    x, y = helper.make_tensor_value_info("x", 1, [4, 16]), helper.make_tensor_value_info("y", 1, [4, 32])
    graph = helper.make_graph(nodes, "app", [x], [y], weights)
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())
    return path


def test_each_alternative_is_what_its_option_gives(path: Path) -> None:
    best = compile_model(path, ["flexasr"])
    looked = alternatives(path, ["flexasr"], 5)
    found = looked.plans
    assert (looked.attempted, looked.incompleteness(300)) == (looked.choices, "")
    assert [a.option for a in found] == ["--without linear_relu", "--on host=layer"]
    costs = [tuple(best.extraction["cost"].values()), *(a.cost for a in found)]
    assert costs == sorted(costs)
    assert [a.plan.extraction["status"] for a in found] == ["optimal", "optimal"]
    again = compile_model(path, ["flexasr"], found[0].options)
    assert [o.mapping.name for o in again.offloads] == [o.mapping.name for o in found[0].plan.offloads] == ["flexasr.linear"]


def test_a_pinned_layer_stays_and_others_of_its_form_move(tmp_path: Path) -> None:
    """Two layers of one form on two targets that both have them: what the user pinned is no choice any more."""
    path = tmp_path / "two.onnx"
    onnx.save(perceptron((16, 16, 16)), path)
    best = compile_model(path, ["flexasr", "vta"])
    first, second = (o.nodes[0] for o in best.offloads)
    place = best.offloads[0].target.name
    found = alternatives(path, ["flexasr", "vta"], 9, Options(on=(f"{place}={first}",)))
    options = [a.option for a in found.plans]
    assert any(option.endswith(f"={second}") for option in options)
    assert not any(option.endswith(f"={first}") for option in options)
    for a in found.plans:
        assert next(o.target.name for o in a.plan.offloads if first in o.nodes) == place


def test_choices_without_time_are_counted_and_places_come_first(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ticks = itertools.chain((0, 299), itertools.repeat(300))
    monkeypatch.setattr(sys.modules[Alternatives.__module__], "monotonic", lambda: next(ticks))
    monkeypatch.setenv("COLUMNS", "200")
    stem = tmp_path / "plan"
    assert main(["compile", str(path), "--accel", "flexasr", "--alternatives", "5", "-o", str(stem)]) == 0
    unseen = "1 of 2 choices were not looked at within alternatives_seconds=300"
    said = " ".join(capsys.readouterr().out.split())
    assert f"{stem}.alternative1.json --on host=layer " in said
    assert said.endswith(unseen)
    assert unseen in json.loads(Path(f"{stem}.alternative1.json").read_text("utf-8"))["notes"]
