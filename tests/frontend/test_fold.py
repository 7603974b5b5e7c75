"""Constant folding gives what onnxruntime gives, within its budget, and leaves no operation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper
from onnx_models import agrees, imported, model, refusal, single

from rewrite_compiler.frontend.site.constant_folding import FOLDS
from rewrite_compiler.ir.types import TensorType
from rewrite_compiler.limits import Limits

R = np.random.default_rng(11)
Array = np.ndarray[Any, Any]


def f(*values: float) -> Array:
    """A float32 constant."""
    return np.asarray(values, np.float32)


def i(*values: int) -> Array:
    """An int64 constant."""
    return np.asarray(values, np.int64)


def b(*values: bool) -> Array:
    """A bool constant."""
    return np.asarray(values)


def scalar(x: Array) -> Array:
    """A constant without axes."""
    return x.reshape(())


GRID = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
CASES: list[tuple[str, list[Array], dict[str, Any]]] = [
    *[(op, [f(1.5, -2, 3), f(0.5)], {}) for op in ("Add", "Sub", "Mul", "Div", "Max", "Min")],
    *[(op, [i(7, -7, 9), i(2, 2, -4)], {}) for op in ("Add", "Sub", "Mul", "Div", "Mod", "Max", "Min")],
    ("Mod", [f(7, -7, 5.5), f(2, 2, -4)], {"fmod": 1}),
    ("Pow", [f(1, 2, 3), f(2)], {}),
    ("Pow", [i(1, 2, 3), i(2)], {}),
    ("Sum", [f(1, 2), f(3), f(4, 5)], {}),
    *[(op, [f(1.5, -2.5, 0)], {}) for op in ("Neg", "Abs", "Sign", "Floor", "Ceil", "Round")],
    *[(op, [f(1.5, 2.5, 0.25)], {}) for op in ("Sqrt", "Exp", "Log", "Reciprocal")],
    *[(op, [b(True, True, False), b(True, False, False)], {}) for op in ("And", "Or", "Xor")],
    ("Not", [b(True, False)], {}),
    *[(op, [i(1, 2, 3), i(2)], {}) for op in ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")],
    ("IsNaN", [f(1, float("nan"))], {}),
    ("Where", [b(True, False), f(1), f(2, 3)], {}),
    ("Cast", [f(1.7, -1.7)], {"to": 7}),
    ("Cast", [i(0, 3)], {"to": 9}),
    ("Cast", [i(0, 3)], {"to": 1}),
    ("Concat", [i(1, 2), i(3)], {"axis": 0}),
    ("Gather", [GRID, i(1, -1)], {"axis": 2}),
    ("Gather", [i(4, 5, 6), scalar(i(-1))], {}),
    ("GatherElements", [GRID[0], i(0, 2, 1, 1).reshape(1, 4)], {"axis": 0}),
    ("GatherElements", [GRID[0], i(-1, 0).reshape(2, 1)], {"axis": 1}),
    ("GatherND", [GRID, i(0, 1, 1, 2).reshape(2, 2)], {}),
    ("ScatterND", [f(1, 2, 3), i(2, 0).reshape(2, 1), f(9, 8)], {}),
    ("ConstantOfShape", [i(2, 3)], {"value": numpy_helper.from_array(f(2.5))}),
    ("ConstantOfShape", [i(2, 3)], {"value": numpy_helper.from_array(i(7))}),
    ("ConstantOfShape", [i(2)], {}),
    ("Expand", [f(1, 2), i(3, 1)], {}),
    ("Tile", [i(1, 2), i(3)], {}),
    ("Range", [scalar(i(1)), scalar(i(10)), scalar(i(3))], {}),
    ("Range", [scalar(i(10)), scalar(i(1)), scalar(i(-2))], {}),
    ("Range", [scalar(f(0)), scalar(f(1)), scalar(f(0.3))], {}),
    ("Pad", [i(1, 2), i(1, 2), scalar(i(5))], {}),
    ("Trilu", [GRID], {"upper": 0}),
    ("Trilu", [GRID, scalar(i(1))], {}),
    ("CumSum", [i(1, 2, 3), scalar(i(0))], {}),
    ("NonZero", [GRID % 2], {}),
    ("ReduceSum", [i(1, 2, 3), i(0)], {"keepdims": 0}),
    ("ReduceProd", [i(1, 2, 3)], {"keepdims": 0}),
    ("ReduceMax", [GRID, i(1)], {}),
    ("ReduceMin", [GRID], {"keepdims": 0}),
    ("DequantizeLinear", [np.asarray([1, 200], np.uint8), scalar(f(0.5)), scalar(np.asarray(3, np.uint8))], {}),
    ("DequantizeLinear", [np.asarray([[1, -2], [3, -4]], np.int8), f(0.5, 0.25), np.asarray([1, -1], np.int8)], {"axis": 0}),
    ("Transpose", [GRID], {"perm": [2, 0, 1]}),
    ("Reshape", [GRID, i(4, -1)], {}),
    ("Slice", [GRID, i(3), i(-100), i(2), i(-2)], {}),
    ("Squeeze", [GRID.reshape(2, 1, 12), i(1)], {}),
    ("Unsqueeze", [GRID, i(0)], {}),
    ("Flatten", [GRID], {}),
    ("Identity", [GRID], {}),
]  # fmt: skip


@pytest.mark.parametrize(("op", "operands", "attributes"), CASES, ids=[f"{c[0]} {n}" for n, c in enumerate(CASES)])
def test_a_folded_node_gives_what_onnxruntime_gives(op: str, operands: list[Array], attributes: dict[str, Any]) -> None:
    proto = single(op, operands, **attributes)
    wanted = proto.graph.node.add()
    wanted.CopyFrom(helper.make_node("Identity", ["y0"], ["kept"]))
    proto.graph.output[0].name = "kept"
    loaded = agrees(proto, ops=["reshape"])
    assert loaded.program.absorbed == {0: "identity" if op == "Identity" else "constant folded"}


def test_every_folding_is_tested() -> None:
    assert set(FOLDS) <= {c[0] for c in CASES}


def test_shape_arithmetic_vanishes() -> None:
    """Shape → Gather → Unsqueeze → Concat → Reshape, as exporters write `view(n, -1)`."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Unsqueeze", ["n", "axes"], ["u"]),
        helper.make_node("Concat", ["u", "rest"], ["t"], axis=0),
        helper.make_node("Reshape", ["x", "t"], ["y"]),
    ]
    constants = {"zero": scalar(i(0)), "axes": i(0), "rest": i(-1)}
    loaded = agrees(model(nodes, {"x": TensorType((2, 3, 4))}, ["y"], constants), ops=["reshape"])
    assert loaded.program.absorbed == dict.fromkeys(range(4), "constant folded")
    assert loaded.program.constants == {}


LEFT: list[tuple[str, list[Array], dict[str, Any]]] = [
    ("CumSum", [f(1, 2), scalar(i(0))], {"reverse": 1}),
    ("CumSum", [f(1, 2), scalar(i(0))], {"exclusive": 1}),
    ("ScatterND", [f(1, 2, 3), i(2).reshape(1, 1), f(9)], {"reduction": "add"}),
    ("GatherND", [GRID, i(0, 1).reshape(2, 1)], {"batch_dims": 1}),
    ("ReduceProd", [np.zeros((0, 2), np.float32)], {}),
    ("Cast", [f(1, 2)], {"to": 16}),
    ("DequantizeLinear", [np.ones((2, 4), np.int8), np.ones((2, 2), np.float32)], {"axis": 1, "block_size": 2}),
    ("TopK", [f(1, 2, 3), i(2)], {}),
]


@pytest.mark.parametrize(("op", "operands", "attributes"), LEFT, ids=[f"{c[0]} {n}" for n, c in enumerate(LEFT)])
def test_what_is_not_folded_is_left_to_the_host(op: str, operands: list[Array], attributes: dict[str, Any]) -> None:
    loaded = imported(single(op, operands, results=2 if op == "TopK" else 1, **attributes))
    assert [o.op_type for o in loaded.program.opaque.values()] == [op]


def test_constant_pads_by_the_edge_are_gathered() -> None:
    agrees(single("Pad", [GRID, i(0, 0, 1, 0, 0, 1)], mode="edge"))


def test_constant_pads_that_cut_are_not_folded() -> None:
    assert [n.op for n in agrees(single("Pad", [f(1, 2, 3), i(1, -1)])).program.nodes] == ["pad"]


def test_a_reduction_of_nothing_is_its_operand() -> None:
    agrees(single("ReduceSum", [i(1, 2), i()], noop_with_empty_axes=1), ops=["reshape"])


@pytest.mark.parametrize(("op", "dividend"), [("Div", i(1, 2)), ("Mod", i(1, 2)), ("Div", ("int64", (2,))), ("Mod", ("int64", (2,)))])
def test_integers_are_not_divided_by_a_constant_zero(op: str, dividend: Any) -> None:
    text = refusal(single(op, [dividend, i(0)]))
    assert text == f'app.onnx:node "{op.lower()}": error[F131]: {op} must not divide integers by a constant 0'


OUTSIDE: list[tuple[str, list[Array], dict[str, Any], str]] = [
    ("GatherElements", [GRID[0], i(3).reshape(1, 1)], {"axis": 0}, "Index of GatherElements must be in -3…2, not 3"),
    ("GatherND", [GRID, i(0, 5).reshape(1, 2)], {}, "Index of GatherND must be in -3…2, not 5"),
]


@pytest.mark.parametrize(("op", "operands", "attributes", "sentence"), OUTSIDE, ids=[c[0] for c in OUTSIDE])
def test_a_constant_index_outside_its_axis(op: str, operands: list[Array], attributes: dict[str, Any], sentence: str) -> None:
    assert refusal(single(op, operands, **attributes)) == f'app.onnx:node "{op.lower()}": error[F131]: {sentence}'


def test_a_range_without_a_step_is_not_made() -> None:
    text = refusal(single("Range", [scalar(i(1)), scalar(i(2)), scalar(i(0))]))
    assert text == 'app.onnx:node "range": error[F131]: Step of Range must not be 0'


def test_weights_are_shared_and_not_copied() -> None:
    """One weight through Identity, Transpose and Reshape to several users stays one buffer."""
    w = R.standard_normal((64, 64)).astype(np.float32)
    nodes = [
        helper.make_node("Identity", ["w"], ["w1"]),
        helper.make_node("Identity", ["w1"], ["w2"]),
        helper.make_node("Gemm", ["x", "w1"], ["a"]),
        helper.make_node("Gemm", ["a", "w2"], ["b"]),
        helper.make_node("Transpose", ["w"], ["wt"], perm=[1, 0]),
        helper.make_node("MatMul", ["b", "wt"], ["c"]),
        helper.make_node("Reshape", ["w", "shape"], ["wr"]),
        helper.make_node("Add", ["c", "wr"], ["y"]),
    ]
    proto = model(nodes, {"x": TensorType((64, 64))}, ["y"], {"w": w, "shape": i(64, -1)})
    p = agrees(proto).program
    dense = [n for n in p.nodes if n.op == "dense"]
    assert dense[0].inputs[1] == dense[1].inputs[1]
    buffers = {x.__array_interface__["data"][0] for x in p.constants.values()}
    assert len(buffers) == 1
    assert not any(x.flags.owndata for x in p.constants.values())


def test_the_folding_budget_leaves_operations() -> None:
    proto = single("Add", [np.ones((64, 64), np.float32), np.ones((64, 64), np.float32)])
    assert [n.op for n in imported(proto).program.nodes] == ["reshape"]
    p = imported(proto, limits=Limits(folding_bytes=1000)).program
    assert [n.op for n in p.nodes] == ["add"]
    assert p.notes == ("constant folding stopped at its limit of 1000 bytes (--limits folding_bytes=)",)


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(-9, 9), st.integers(-9, 9), st.sampled_from([-3, -2, -1, 1, 2, 3])), min_size=1, max_size=3),
    st.booleans(),
)
def test_slices_clamp_as_onnxruntime_does(bounds: list[tuple[int, int, int]], constant: bool) -> None:
    starts, ends, steps = (np.asarray(c, np.int64) for c in zip(*bounds, strict=True))
    data: Any = GRID if constant else (2, 3, 4)
    proto = single("Slice", [data, starts, ends, np.arange(len(bounds), dtype=np.int64), steps])
    agrees(proto)
