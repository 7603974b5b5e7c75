"""Nodes between which shapes depend on data: one opaque node from the last known shapes to the next ones, or a refusal that says where."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx_models import FILE, agrees, info, model, refusal

from rewrite_compiler.compile import compile_model, plan_onnx
from rewrite_compiler.hostrun import Session
from rewrite_compiler.ir.types import TensorType

MATRIX = TensorType((3, 4))
WEIGHT = np.linspace(-1, 1, 20, dtype=np.float32).reshape(4, 5)


def selected(*tail: Any, output: Any = "y") -> Any:
    """Return a model of the rows of a product whose first element is positive, and what is done with them."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], name="product"),
        helper.make_node("Greater", ["p", "zero"], ["positive"]),
        helper.make_node("NonZero", ["positive"], ["places"], name="places"),
        helper.make_node("Gather", ["places", "first"], ["rows"]),
        helper.make_node("Gather", ["p", "rows"], ["chosen"], name="chosen"),
        *tail,
    ]
    return model(nodes, {"x": MATRIX}, [output], {"w": WEIGHT, "zero": np.float32(0), "first": np.int64(0), "axes": np.asarray([0])})


SUM = helper.make_node("ReduceSum", ["chosen", "axes"], ["y"], name="sum", keepdims=0)


def test_a_sum_of_chosen_rows_is_one_node() -> None:
    loaded = agrees(selected(SUM))
    (opaque,) = [n for n in loaded.program.nodes if n.op == "opaque" and len(n.origins) > 1]
    assert {loaded.program.sources[k].op_type for k in opaque.origins} == {"NonZero", "Gather", "ReduceSum"}
    assert loaded.program.opaque_of(opaque).reason == 'the shape of "places", which NonZero gives, is not known: it depends on data'


@pytest.mark.parametrize("target", ["vta", "flexasr"])
def test_what_comes_before_is_offloaded_and_the_plan_is_the_model(target: str, tmp_path: Any) -> None:
    path = tmp_path / FILE
    path.write_bytes(selected(SUM).SerializeToString())
    plan = compile_model(path, target)
    assert sum(plan.counts[target].values()) == 1
    assert {h.node: h.why_not for h in plan.host}["chosen"].startswith('unsupported operator: NonZero (the shape of "places"')
    written = plan_onnx(plan)
    onnx.checker.check_model(onnx.load_from_string(written), full_check=True)
    for seed in range(3):
        values = {"x": np.random.default_rng(seed).standard_normal(MATRIX.shape, np.float32)}
        (expected,), (found,) = (Session(m).run(values).values() for m in (path.read_bytes(), written))
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_one_part_in_two_regions_and_an_inner_result_of_known_shape() -> None:
    tail = [
        SUM,
        helper.make_node("ReduceMax", ["chosen"], ["top"], keepdims=0),
        helper.make_node("Mul", ["y", "top"], ["z"], name="scaled"),
    ]
    loaded = agrees(selected(*tail, output="z"), values={"x": np.ones(MATRIX.shape, np.float32)})
    assert [n.op for n in loaded.program.nodes].count("mul") == 1


def test_extents_that_an_input_gives() -> None:
    nodes = [
        helper.make_node("Expand", ["x", "shape"], ["wide"], name="wide"),
        helper.make_node("Relu", ["wide"], ["y"], name="relu"),
    ]
    proto = model(nodes, {"x": TensorType((1, 4)), "shape": TensorType((2,), "int64")}, [info("y", TensorType((3, 4)))])
    loaded = agrees(proto, values={"shape": np.asarray([3, 4])})
    assert {o.label for o in loaded.program.opaque.values()} == {"Expand"}


def test_a_sequence_whose_length_depends_on_data() -> None:
    nodes = [
        helper.make_node("SplitToSequence", ["x", "sizes"], ["parts"], name="parts", axis=1),
        helper.make_node("ConcatFromSequence", ["parts"], ["y"], name="joined", axis=1),
    ]
    proto = model(nodes, {"x": MATRIX, "sizes": TensorType((2,), "int64")}, [info("y", MATRIX)])
    agrees(proto, values={"sizes": np.asarray([1, 3])})


def test_random_results_are_not_computed_twice() -> None:
    nodes = [
        helper.make_node("Expand", ["x", "shape"], ["wide"], name="wide"),
        helper.make_node("RandomNormalLike", ["wide"], ["noise"], name="noise"),
        helper.make_node("Add", ["noise", "wide"], ["y"], name="sum"),
    ]
    proto = model(nodes, {"x": TensorType((1, 4)), "shape": TensorType((2,), "int64")}, [info("y", TensorType((3, 4)))])
    assert 'the shape of "wide", which Expand gives, is not known' in refusal(proto)


def test_an_output_of_unknown_shape_is_refused_with_what_can_be_compiled() -> None:
    text = refusal(selected(output=helper.make_tensor_value_info("chosen", TensorProto.FLOAT, ["n", 5])))
    assert 'node "places": error[F160]: the shape of "places", which NonZero gives, is not known: it depends on data' in text
    assert f'onnx.utils.extract_model("{FILE}", "part.onnx", ["x"], ["positive", "p"])' in text


def test_the_help_of_a_first_node_names_no_part() -> None:
    node = helper.make_node("NonZero", ["x"], ["y"], name="places")
    text = refusal(model([node], {"x": MATRIX}, [helper.make_tensor_value_info("y", TensorProto.INT64, [2, "n"])]))
    assert "it depends on data" in text
    assert "extract_model" not in text


def test_declared_extents_of_an_open_batch_are_bound() -> None:
    declared = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4]) for name in ("x", "y")]
    node = helper.make_node("Strange", ["x"], ["y"], name="strange", domain="com.example")
    proto = model([node], {"x": declared[0]}, [declared[1]], domains={"com.example": 1})
    from rewrite_compiler.frontend.load import load

    loaded = load(proto)
    assert [loaded.program.types[v] for v in loaded.program.outputs] == [TensorType((1, 4))]
