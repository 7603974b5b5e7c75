"""Older operator sets: converted upwards, node by node, with the same results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx_models import agrees, imported, model, single

from rewrite_compiler.errors import InputError
from rewrite_compiler.frontend.graph.opset_upgrade import BASE, NEWEST, Upgrader
from rewrite_compiler.ir.types import TensorType

R = np.random.default_rng(9)


def normal(*shape: int) -> np.ndarray[Any, Any]:
    """A constant of normal elements."""
    return R.standard_normal(shape).astype(np.float32)


# operator, operands, attributes as they were spelt up to an operator set
OLD: list[tuple[str, list[Any], dict[str, Any], int, int]] = [
    ("Relu", [(2, 3)], {}, 6, 20),
    ("Add", [(2, 3), (3,)], {}, 7, 20),
    ("Sum", [(2, 3), (2, 3)], {}, 8, 20),
    ("Clip", [(2, 3)], {"min": -0.5, "max": 0.25}, 6, 10),
    ("Softmax", [(2, 3, 4)], {"axis": 1}, 7, 12),
    ("Softmax", [(2, 3, 4)], {"axis": 1}, 13, 20),
    ("LogSoftmax", [(2, 3, 4)], {}, 7, 12),
    ("Gemm", [(3, 4), normal(4, 5), normal(5)], {"alpha": 0.5}, 7, 20),
    ("MatMul", [(3, 4), normal(4, 5)], {}, 1, 20),
    ("BatchNormalization", [(2, 3, 4, 4), normal(3), normal(3), normal(3), normal(3) ** 2], {}, 9, 20),
    ("Dropout", [(2, 3)], {"ratio": 0.3}, 7, 11),
    ("Flatten", [(2, 3, 4)], {"axis": 2}, 1, 20),
    ("Squeeze", [(1, 3, 1)], {"axes": [0, 2]}, 1, 12),
    ("Unsqueeze", [(3,)], {"axes": [0, 2]}, 1, 12),
    ("Slice", [(5, 6)], {"starts": [1, -4], "ends": [4, 9], "axes": [0, 1]}, 1, 9),
    ("Pad", [(2, 3)], {"pads": [0, 1, 2, 0], "value": 0.5}, 7, 10),
    ("Reshape", [(2, 3), np.asarray([3, -1])], {}, 7, 20),
    ("Transpose", [(2, 3)], {}, 1, 20),
    ("Concat", [(2, 3), (2, 1)], {"axis": 1}, 4, 20),
    ("ReduceMean", [(2, 3, 4)], {"axes": [1]}, 1, 17),
    ("ReduceSum", [(2, 3, 4)], {"axes": [1], "keepdims": 0}, 1, 12),
    ("ReduceMax", [(2, 3, 4)], {"axes": [-1]}, 11, 17),
    ("ReduceL2", [(2, 3, 4)], {"axes": [0]}, 1, 17),
    ("AveragePool", [(1, 2, 6, 6)], {"kernel_shape": [2, 2], "strides": [2, 2]}, 7, 20),
    ("MaxPool", [(1, 2, 6, 6)], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}, 8, 20),
    ("Gather", [(5, 3), np.asarray([0, 2])], {"axis": 0}, 1, 20),
    ("Upsample", [(1, 1, 2, 2), np.asarray([1, 1, 2, 2], np.float32)], {"mode": "nearest"}, 9, 9),
    ("Upsample", [(1, 1, 2, 2)], {"scales": [1.0, 1.0, 2.0, 2.0]}, 7, 8),
    ("TopK", [(2, 5)], {"k": 2, "axis": 1}, 7, 9),
    ("LSTM", [(3, 2, 4), normal(1, 20, 4), normal(1, 20, 5)], {"hidden_size": 5}, 7, 20),
    ("InstanceNormalization", [(2, 3, 4, 4), normal(3), normal(3)], {}, 6, 20),
    ("PRelu", [(2, 3), normal(3)], {}, 7, 20),
    ("HardSigmoid", [(2, 3)], {}, 6, 20),
    ("Cast", [(2, 3)], {"to": 6}, 9, 20),
]  # fmt: skip


@pytest.mark.parametrize(("op", "operands", "attributes", "first", "last"), OLD, ids=[f"{c[0]}-{c[3]}-{c[4]}" for c in OLD])
def test_old_spellings_mean_the_same(op: str, operands: list[Any], attributes: dict[str, Any], first: int, last: int) -> None:
    for opset in {first, last}:
        results = 2 if op == "TopK" else 1
        loaded = agrees(single(op, operands, opset=opset, results=results, **attributes))
        assert loaded.opset == BASE


@pytest.mark.parametrize(
    ("op", "operands", "attributes", "version", "reason"),
    [
        ("PRelu", [(2, 3), normal(3)], {}, 6, "the axes of its second operand have changed"),
        ("Add", [(2, 3, 4), normal(3)], {"broadcast": 1, "axis": 1}, 6, "attribute axis is gone"),
        ("Mul", [(2, 3), normal(2, 3)], {}, 6, "the default of broadcast has changed"),
        ("Dropout", [(2, 3)], {}, 6, "is_test is 0: it is to be trained"),
        ("BatchNormalization", [(2, 3, 4), *(abs(normal(3)) for _ in range(4))], {"is_test": 0}, 6, "is_test is 0: it is to be trained"),
        ("Reshape", [(2, 3)], {"shape": [3, 2]}, 4, "an attribute has become an operand"),
        ("Selu", [(2, 3)], {}, 5, "the default of alpha has changed"),
        ("Pad", [(2, 3)], {"paddings": [0, 1, 0, 0]}, 1, "attribute paddings is gone"),
    ],
)
def test_what_has_changed_before_operator_set_7_is_refused(
    op: str, operands: list[Any], attributes: dict[str, Any], version: int, reason: str
) -> None:
    """The converter would drop the attribute without a word."""
    with pytest.raises(InputError) as refusal:
        imported(single(op, operands, opset=version, **attributes))
    assert f"error[F111]: {op} of operator set {version} has no conversion to {BASE}: {reason}\n" in str(refusal.value)


def test_split_has_had_three_spellings() -> None:
    for opset in (7, 12):
        agrees(single("Split", [(2, 7)], results=2, opset=opset, axis=1, split=[2, 5]), ops=["slice", "slice"])
        agrees(single("Split", [(2, 6)], results=3, opset=opset, axis=1), ops=["slice"] * 3)
    agrees(single("Split", [(2, 7), np.asarray([2, 5])], results=2, opset=13, axis=-1), ops=["slice", "slice"])
    agrees(single("Split", [(2, 7)], results=3, opset=18, axis=1, num_outputs=3), ops=["slice"] * 3)


def test_a_softmax_that_was_over_several_axes() -> None:
    agrees(single("Softmax", [(2, 3, 4)], opset=12, axis=1), ops=["reshape", "softmax", "reshape"])
    agrees(single("Softmax", [(2, 3, 4)], opset=12, axis=2), ops=["softmax"])


def test_a_group_norm_that_had_one_factor_a_group() -> None:
    proto = single("GroupNormalization", [(2, 6, 4, 3), normal(3), normal(3)], opset=18, num_groups=3)
    assert not agrees(proto).program.opaque


def test_newer_operator_sets_stay() -> None:
    for opset in range(BASE, NEWEST + 1):
        assert imported(single("Relu", [(2, 3)], opset=opset)).opset == opset
    assert agrees(single("Sin", [(2, 3)], opset=7)).opset == BASE


def test_one_conversion_serves_all_equal_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    from onnx import version_converter

    calls: list[int] = []
    real = version_converter.convert_version
    monkeypatch.setattr(version_converter, "convert_version", lambda m, target: calls.append(len(m.graph.node)) or real(m, target))
    nodes = [helper.make_node("Unsqueeze", [f"v{n}"], [f"v{n + 1}"], axes=[n % 2]) for n in range(4)]
    loaded = imported(model(nodes, {"v0": TensorType((2, 3))}, ["v4"], opset=11))
    assert calls == [2]
    assert [sorted(n.origins) for n in loaded.program.nodes] == [[0], [1], [2], [3]]


def test_nodes_that_a_conversion_adds_belong_to_their_source() -> None:
    loaded = imported(single("Upsample", [(1, 1, 2, 2)], opset=8, scales=[1.0, 1.0, 1.5, 1.5]))
    assert [(n.op, sorted(n.origins)) for n in loaded.program.nodes] == [("opaque", [0])]


def test_what_is_not_converted_is_the_node_itself() -> None:
    node = helper.make_node("Relu", ["x"], ["y"])
    assert Upgrader(21).replacements([node], 21, ["here"]) == [(node,)]
    assert Upgrader(21).replacements([node], 14, ["here"]) == [(node,)]


def test_what_a_branch_captures_keeps_its_type() -> None:
    """A node is converted by itself, with operands of one made-up type: what the converter infers from it is of no worth."""
    branches = {
        branch: helper.make_graph(
            [
                helper.make_node("Concat", order, [f"{branch}_shape"], axis=0),
                helper.make_node("Expand", ["x", f"{branch}_shape"], [branch]),
            ],
            branch,
            [],
            [helper.make_tensor_value_info(branch, TensorProto.FLOAT, None)],
        )
        for branch, order in (("then_branch", ["rows", "columns"]), ("else_branch", ["columns", "rows"]))
    }
    nodes = [
        helper.make_node("Identity", ["n"], ["rows"], name="rows"),
        helper.make_node("If", ["c"], ["wide"], name="choice", **branches),
        helper.make_node("ReduceSum", ["wide"], ["y"], name="sum", keepdims=0),
    ]
    inputs = {"x": TensorType((1, 1)), "n": TensorType((1,), "int64"), "c": TensorType((), "bool")}
    proto = model(nodes, inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, [])], {"columns": np.asarray([3])}, opset=17)
    agrees(proto, values={"n": np.asarray([4]), "c": np.asarray(True)})
