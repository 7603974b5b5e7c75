"""Recurrences that no operation takes go to the device as products of steps, never against a mapping that takes them whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from rewrite_compiler.compile import Options, Plan, compile_model, plan_onnx
from rewrite_compiler.compile.verify import check_plan
from rewrite_compiler.cosim import Settings, cosimulate

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
WIDTH, HIDDEN = 6, 5
BOTH: dict[str, Any] = {"direction": "bidirectional"}


def written(path: Path, op: str, steps: int, batch: int, *, biased: bool = True, **attributes: Any) -> Path:
    """Write a model of one recurrent layer with drawn weights."""
    random = np.random.default_rng(2)
    directions, rows = 1 + (attributes.get("direction") == "bidirectional"), GATES[op] * HIDDEN
    shapes = {"W": (directions, rows, WIDTH), "R": (directions, rows, HIDDEN)} | ({"B": (directions, 2 * rows)} if biased else {})
    weights = [numpy_helper.from_array((random.standard_normal(s) / 2).astype(np.float32), n) for n, s in shapes.items()]
    node = helper.make_node(op, ["x", *shapes], ["y", "last"], name="cell", hidden_size=HIDDEN, **attributes)
    ends = {"x": (steps, batch, WIDTH), "y": (steps, directions, batch, HIDDEN), "last": (directions, batch, HIDDEN)}
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in ends.items()]
    graph = helper.make_graph([node], "net", infos[:1], infos[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    return path


def checked(path: Path, accel: list[str], objective: str = "offloads") -> Plan:
    plan = compile_model(path, accel, Options(objective=objective))
    found = check_plan(plan, plan_onnx(plan), path)
    assert found.against == "model"
    assert found.relative_difference is not None
    assert found.relative_difference < 2e-6
    return plan


# the layer, and how many products its four steps need: the first step of a state of zeros needs none of its own
LAYERS: dict[str, tuple[str, dict[str, Any], int]] = {
    "lstm": ("LSTM", {}, 4),
    "lstm of two directions": ("LSTM", BOTH, 8),
    "gru": ("GRU", {}, 8),
    "gru, linear before reset": ("GRU", {"linear_before_reset": 1}, 4),
    "rnn": ("RNN", {}, 4),
    "rnn of two functions": ("RNN", {**BOTH, "activations": ["Relu", "Sigmoid"]}, 8),
}


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("name", LAYERS)
def test_a_target_of_products_takes_its_steps(tmp_path: Path, name: str, batch: int) -> None:
    op, attributes, products = LAYERS[name]
    plan = checked(written(tmp_path / "net.onnx", op, 4, batch, **attributes), ["vta"])
    assert plan.counts == {"vta": {"dense": products}}
    assert plan.notes == ('written out step by step, because no operation takes them whole: "cell"',)


def test_a_bias_that_is_left_out_is_a_known_one(tmp_path: Path) -> None:
    plan = checked(written(tmp_path / "net.onnx", "LSTM", 4, 1, biased=False), ["vta"])
    assert plan.counts == {"vta": {"dense": 4}}


@pytest.mark.parametrize("op", ["LSTM", "GRU"])
def test_steps_whose_products_only_lowerings_take_go_with_them(tmp_path: Path, op: str) -> None:
    path = written(tmp_path / "net.onnx", op, 4, 1)
    (host,) = compile_model(path, ["hlscnn"]).host
    assert host.why_not == f"no mapping for {op.lower()}; with --rules lowering hlscnn.conv2d may take it; offered: hlscnn.conv2d"
    plan = compile_model(path, ["hlscnn"], Options(rules=(Path("lowering"),)))
    assert plan.counts["hlscnn"] or plan.lowered_counts["hlscnn"]
    assert not any(h.op == op for h in plan.host if "no mapping" in h.why_not)


@pytest.mark.parametrize(("op", "attributes"), [("LSTM", {}), ("GRU", {"linear_before_reset": 1}), ("RNN", {})])
def test_a_mapping_that_takes_it_whole_is_left_alone(tmp_path: Path, op: str, attributes: dict[str, Any]) -> None:
    plan = checked(written(tmp_path / "net.onnx", op, 4, 1, **attributes), ["flexasr", "vta"])
    assert plan.counts == {"flexasr": {op.lower(): 1}, "vta": {}}
    assert plan.notes == ()


def test_an_objective_that_the_steps_cost_more_by_keeps_it_whole(tmp_path: Path) -> None:
    plan = checked(written(tmp_path / "net.onnx", "LSTM", 4, 1), ["vta"], "cycles")
    assert plan.counts == {"vta": {}}
    assert [h.op for h in plan.host] == ["LSTM"]


@pytest.mark.parametrize("accel", ["hlscnn", "vta"])
def test_without_products_or_with_too_many_steps_it_stays_whole(tmp_path: Path, accel: str) -> None:
    steps = 4 if accel == "hlscnn" else 200
    plan = checked(written(tmp_path / "net.onnx", "GRU", steps, 1), [accel])
    assert plan.counts == {accel: {}}
    assert plan.host[0].why_not.startswith("no mapping for gru")
    excess = ", and written out step by step, the recurrences would be 3,200 nodes, more than 3,000; offered: "
    assert (excess in plan.host[0].why_not) == (accel == "vta")


def test_steps_are_simulated(tmp_path: Path) -> None:
    plan = compile_model(written(tmp_path / "net.onnx", "LSTM", 4, 1), "vta")
    data = {"x": np.random.default_rng(4).standard_normal((40, 4, 1, WIDTH)).astype(np.float32)}
    report = cosimulate(plan, data, settings=Settings(metric="cosine"))
    assert report.document["accelerated"]["value"] > 0.99
