"""Scan and Loop written out: the steps of a recurrence with known length, the same as onnxruntime's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper
from onnx_models import agrees, imported, model, refusal

from rewrite_compiler.compile.matching.match import match
from rewrite_compiler.ir.types import TensorType
from rewrite_compiler.limits import DEFAULT
from rewrite_compiler.rewrite.ruleset import shipped_rules
from rewrite_compiler.target import find_target

STEPS, WIDTH = 3, 16
FLOAT, INT64, BOOL = 1, 7, 9


def weights() -> dict[str, Any]:
    draw = np.random.default_rng(0)
    shapes = {"w": (WIDTH, WIDTH), "r": (WIDTH, WIDTH), "b": (WIDTH,), "h0": (1, WIDTH)}
    made = {name: (draw.standard_normal(shape) * 0.2).astype(np.float32) for name, shape in shapes.items()}
    return {**made, "h0": np.zeros((1, WIDTH), np.float32), "steps": np.array(STEPS, np.int64), "go": np.array(True)}


def value(name: str, kind: int, *shape: int) -> Any:
    return helper.make_tensor_value_info(name, kind, list(shape))


SUMS = {
    "sum": [helper.make_node("MatMul", ["h", "rt"], ["c"]), helper.make_node("Add", ["a", "c"], ["s"])],
    "gemm": [helper.make_node("Gemm", ["h", "rt", "a"], ["s"])],
    "gemm of a row": [helper.make_node("Squeeze", ["a"], ["row"]), helper.make_node("Gemm", ["h", "rt", "row"], ["s"])],
}  # as exporters write them; the last two are tf2onnx's


def cell(sums: str = "sum") -> list[Any]:
    """Return h' = tanh(x·wᵀ + h·rᵀ + b); the transposed weight does not depend on the step."""
    return [
        helper.make_node("Transpose", ["r"], ["rt"], perm=[1, 0]),
        helper.make_node("Gemm", ["xt", "w", "b"], ["a"], transB=1),
        *SUMS[sums],
        helper.make_node("Tanh", ["s"], ["hn"]),
        helper.make_node("Identity", ["hn"], ["yt"]),
    ]


def scan(**attributes: Any) -> Any:
    states = [value("h", FLOAT, 1, WIDTH), value("xt", FLOAT, 1, WIDTH)]
    body = helper.make_graph(cell(), "body", states, [value("hn", FLOAT, 1, WIDTH), value("yt", FLOAT, 1, WIDTH)])
    return helper.make_node("Scan", ["h0", "x"], ["last", "y"], body=body, num_scan_inputs=1, **attributes)


def loop(condition: str = "go", sums: str = "sum") -> Any:
    nodes = [helper.make_node("Gather", ["x", "n"], ["xt"], axis=0), *cell(sums), helper.make_node("Identity", ["cin"], ["cout"])]
    inputs = [value("n", INT64), value("cin", BOOL), value("h", FLOAT, 1, WIDTH)]
    body = helper.make_graph(nodes, "body", inputs, [value("cout", BOOL), value("hn", FLOAT, 1, WIDTH), value("yt", FLOAT, 1, WIDTH)])
    return helper.make_node("Loop", ["steps", condition, "h0"], ["last", "y"], body=body)


def whole(node: Any) -> Any:
    return model([node], {"x": TensorType((STEPS, 1, WIDTH))}, ["y", "last"], weights())


@pytest.mark.parametrize("node", [scan(), scan(scan_input_directions=[1], scan_output_directions=[1]), loop(), loop("")], ids=str)
def test_the_steps_are_those_of_the_loop(node: Any) -> None:
    nodes = agrees(whole(node)).program.nodes
    assert "opaque" not in {n.op for n in nodes}
    assert sum(n.op == "tanh" for n in nodes) == STEPS


@pytest.mark.parametrize("sums", SUMS)
def test_a_loop_is_one_recurrent_layer(sums: str) -> None:
    mappings = [m for m in find_target("flexasr").mappings.values() if m.operation in ("rnn", "linear")]
    names = {m.name: m.operation for m in mappings}
    found = match(imported(whole(loop(sums=sums))).program, shipped_rules(), mappings, DEFAULT)
    assert [names[n.op] for n in found.program.nodes if n.op in names] == ["rnn"]


def counted(limit: int | None, *, rows: bool = False) -> Any:
    """Return a model as tf2onnx writes a Keras layer: a Loop without trip count that compares a number with a limit."""
    nodes = [
        helper.make_node("Add", ["t", "one"], ["tn"]),
        helper.make_node("Less", ["tn", "limit"], ["more"]),
        helper.make_node("MatMul", ["h", "u"], ["p"]),
        helper.make_node("Tanh", ["p"], ["hn"]),
        helper.make_node("Identity", ["hn"], ["row"]),
    ]
    inputs = [value("n", INT64), value("cin", BOOL), value("t", INT64), value("h", FLOAT, 1, WIDTH)]
    outputs = [value("more", BOOL), value("tn", INT64), value("hn", FLOAT, 1, WIDTH), value("row", FLOAT, 1, WIDTH)]
    body = helper.make_graph(nodes, "body", inputs, outputs)
    node = helper.make_node("Loop", ["", "go", "zero", "h0"], ["ty", "y", "rows" if rows else ""], body=body)
    data = {"one": np.array(1), "zero": np.array(0), "u": np.random.default_rng(3).standard_normal((WIDTH, WIDTH)).astype(np.float32)}
    given = {"h0": TensorType((1, WIDTH)), **({"limit": TensorType((), "int64")} if limit is None else {})}
    known = {"go": np.array(True), **({} if limit is None else {"limit": np.array(limit)})}
    out = value("rows", FLOAT, None, 1, WIDTH) if rows else value("y", FLOAT, 1, WIDTH)
    return model([node], given, [out], {**data, **known})


def test_a_condition_that_depends_on_no_data_ends_a_loop_without_trip_count() -> None:
    nodes = agrees(counted(STEPS, rows=True)).program.nodes
    assert "opaque" not in {n.op for n in nodes}
    assert sum(n.op == "tanh" for n in nodes) == STEPS


def test_a_loop_whose_length_depends_on_data_keeps_the_shapes_of_its_states() -> None:
    """A state that the body declares as it comes in has that type in every step; how many rows there are nobody knows."""
    loaded = imported(counted(None))
    reason = 'its number of steps depends on data: "more" is computed at run time'
    assert [o.reason for o in loaded.program.opaque.values()] == [reason]
    assert str(loaded.program.types[loaded.program.outputs[0]]) == f"float32[1, {WIDTH}]"
    sentence = f'error[F160]: the shape of "rows", which Loop gives, is not known: {reason}'
    said = refusal(counted(None, rows=True))
    assert sentence in said
    assert said.endswith("if it is always the same, or make what ends the loop a constant of the model (initializer)")  # as limit=… above


def test_a_loop_that_does_not_end_in_time_stays_whole() -> None:
    (opaque,) = imported(counted(10**9)).program.opaque.values()
    assert opaque.reason == "its condition holds for more than 10000 steps of 5 nodes"


def test_a_loop_without_products_stays_whole() -> None:
    nodes = [helper.make_node("Identity", ["cin"], ["cout"]), helper.make_node("Tanh", ["h"], ["hn"])]
    inputs = [value("n", INT64), value("cin", BOOL), value("h", FLOAT, 1, WIDTH)]
    body = helper.make_graph(nodes, "body", inputs, [value("cout", BOOL), value("hn", FLOAT, 1, WIDTH)])
    node = helper.make_node("Loop", ["steps", "go", "h0"], ["y"], body=body)
    out = value("y", FLOAT, 1, WIDTH)
    proto = model([node], {}, [out], weights())
    assert [o.reason for o in imported(proto).program.opaque.values()] == ["its steps make no products"]
    given = {"steps": TensorType((), "int64")}
    kept = {name: x for name, x in weights().items() if name != "steps"}
    assert [o.reason for o in imported(model([node], given, [out], kept)).program.opaque.values()] == [
        'its number of steps depends on data: "steps" is computed at run time'
    ]
