"""Which offloads go beyond the closed forms."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper, numpy_helper

from rewrite_compiler.compile import Options, compile_model
from rewrite_compiler.compile.plan.lowered_counts import are_lowered
from rewrite_compiler.ir.program import Builder, Node, Program
from rewrite_compiler.ir.types import TensorType
from rewrite_compiler.target import find_target

LINEAR = next(m for m in find_target("flexasr").mappings.values() if m.operation == "linear")
CONVOLUTION = next(m for m in find_target("hlscnn").mappings.values() if m.operation == "conv2d")


def program() -> Program:
    """A convolution, a grouped one, a product with a weight and one of two moving tensors: sources 0 to 3."""
    b = Builder("small")
    image, rows, turned = b.input("i", TensorType((1, 4, 5, 5))), b.input("r", TensorType((2, 4))), b.input("t", TensorType((4, 3)))
    outputs = []
    for source, (width, group) in enumerate([(4, 1), (1, 4)]):
        w = b.constant(np.zeros((4, width, 3, 3), np.float32))
        given = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "group": group}
        outputs += b.apply("conv", [image, w], given, origins=[source])
    outputs += b.apply("matmul", [rows, b.constant(np.zeros((4, 3), np.float32))], origins=[2])
    outputs += b.apply("matmul", [rows, turned], origins=[3])
    return b.finish(outputs)


@pytest.mark.parametrize(
    ("mapping", "sources", "expected"),
    [
        (LINEAR, {0}, False),
        (LINEAR, {1}, True),
        (LINEAR, {2}, False),
        (LINEAR, {3}, True),
        (CONVOLUTION, {0}, False),
        (CONVOLUTION, {2}, True),
        (LINEAR, {2, 3}, False),  # one operation on several products is a form of its own
        (LINEAR, set(), False),
    ],
)
def test_what_is_beyond_the_closed_forms(mapping: object, sources: set[int], expected: bool) -> None:
    device = Node(mapping.name, (), (), (), frozenset(sources))  # type: ignore[attr-defined]
    assert are_lowered(program(), [device], {mapping.name: mapping}) == [expected]  # type: ignore[attr-defined, dict-item]


@pytest.mark.parametrize(
    ("target", "weight", "attributes", "expected"),
    [
        ("flexasr", (32, 8, 3, 3), {"group": 4}, {"linear": 2}),  # two blocks of sixteen channels
        ("flexasr", (32, 1, 3, 3), {"group": 32}, {"linear": 2}),
    ],
)
def test_lowerings_are_used_when_asked(
    tmp_path: Path, target: str, weight: tuple[int, ...], attributes: dict[str, int], expected: dict[str, int]
) -> None:
    path = tmp_path / "app.onnx"
    channels, axes = weight[1] * attributes["group"], len(weight) - 2
    x, y = ("x", [1, channels, *[4] * axes]), ("y", [1, weight[0], *[2] * axes])
    w = np.random.default_rng(0).standard_normal(weight).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], **attributes)], "app",
        [helper.make_tensor_value_info(x[0], 1, x[1])], [helper.make_tensor_value_info(y[0], 1, y[1])], [numpy_helper.from_array(w, "w")],
    )  # fmt: skip
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())
    plain = compile_model(path, [target])
    lowered = compile_model(path, [target], Options(rules=(Path("lowering"),)))
    assert (plain.counts[target], plain.lowered_counts[target]) == ({}, {})
    assert (lowered.counts[target], lowered.lowered_counts[target]) == ({}, expected)
    assert lowered.notes == ()


def test_a_convolution_over_one_axis_is_one_over_two(tmp_path: Path) -> None:
    w, b = (np.random.default_rng(0).standard_normal(s).astype(np.float32) for s in ((16, 32, 3), (16,)))
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["h"], pads=[1, 1]), helper.make_node("Relu", ["h"], ["y"])]
    ends = [[helper.make_tensor_value_info(n, 1, s)] for n, s in (("x", (1, 32, 8)), ("y", (1, 16, 8)))]
    graph = helper.make_graph(nodes, "app", *ends, [numpy_helper.from_array(w, "w"), numpy_helper.from_array(b, "b")])
    (tmp_path / "app.onnx").write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())
    plan = compile_model(tmp_path / "app.onnx", ["hlscnn"])
    assert (plan.counts["hlscnn"], plan.lowered_counts["hlscnn"]) == ({"conv2d": 1}, {})
    assert {h.op for h in plan.host} == set()


def test_a_convolution_of_codes_over_one_axis_is_one_over_two(tmp_path: Path) -> None:
    """Dynamic quantisation: the zero point is computed at run time, the products go to the device as they are."""
    w = np.random.default_rng(0).integers(-127, 128, (16, 32, 3)).astype(np.int8)
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("ConvInteger", ["q", "w", "z"], ["sums"], pads=[1, 1]),
        helper.make_node("Cast", ["sums"], ["real"], to=1),
        helper.make_node("Mul", ["real", "s"], ["y"]),
    ]
    ends = [[helper.make_tensor_value_info(n, 1, s)] for n, s in (("x", (1, 32, 8)), ("y", (1, 16, 8)))]
    graph = helper.make_graph(nodes, "app", *ends, [numpy_helper.from_array(w, "w")])
    (tmp_path / "app.onnx").write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())
    plan = compile_model(tmp_path / "app.onnx", ["vta"])
    assert plan.counts["vta"] == {"conv2d": 1}
    assert {h.op for h in plan.host} == {"DynamicQuantizeLinear", "Cast", "Mul"}
