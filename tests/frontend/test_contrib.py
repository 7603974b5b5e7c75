"""Operators of com.microsoft, which onnx cannot infer: the host runs them, their types are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper
from onnx_models import agrees, imported, info, model, refusal, single

from rewrite_compiler.frontend.importer.declared_types import CONTRIB
from rewrite_compiler.ir.types import TensorType

X = ("uint8", (1, 4, 6, 6))
SCALE, ZERO = np.asarray(0.1, np.float32), np.asarray(3, np.uint8)
DOMAIN: dict[str, Any] = {"domain": "com.microsoft"}

GIVEN = ("float32", ())  # a scale that is computed at run time
CASES: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("QLinearConcat", [SCALE, ZERO, X, SCALE, ZERO, X, SCALE, ZERO], {"axis": -3}),
    ("QLinearAdd", [X, GIVEN, ZERO, ("uint8", (4, 1, 1)), SCALE, ZERO, SCALE, ZERO], {}),
    ("QLinearMul", [X, GIVEN, ZERO, X, SCALE, ZERO, SCALE, ZERO], {}),
    ("QLinearGlobalAveragePool", [X, GIVEN, ZERO, SCALE, ZERO], {}),
    ("QLinearGlobalAveragePool", [X, SCALE, ZERO, SCALE, ZERO], {"channels_last": 1}),
    ("QLinearAveragePool", [X, GIVEN, ZERO, SCALE, ZERO], {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 0]}),
    ("QLinearLeakyRelu", [X, SCALE, ZERO, SCALE, ZERO], {"alpha": 0.1}),
    ("QLinearSigmoid", [X, SCALE, ZERO, SCALE, ZERO], {}),
    ("QuantizeLinear", [(2, 3), GIVEN, np.asarray(3, np.int16)], {}),
    ("QuantizeLinear", [(2, 3), GIVEN], {}),
    ("DequantizeLinear", [("int16", (2, 3)), GIVEN], {}),
]


def weights(*shape: int) -> Any:
    """Return small numbers, the same every time."""
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32) * np.float32(0.3)


# fused operators, which are written as what onnxruntime fused: what the first operation is, and how many there are
FUSED: list[tuple[str, list[Any], dict[str, Any], str, int]] = [
    ("Gelu", [(2, 3)], {}, "mul", 5),
    ("FastGelu", [(2, 3), (3,)], {}, "add", 10),
    ("BiasGelu", [(2, 3), (3,)], {}, "add", 6),
    ("QuickGelu", [(2, 3)], {}, "mul", 3),
    ("SkipLayerNormalization", [(1, 2, 4), (1, 2, 4), weights(4), weights(4), weights(4)], {}, "add", 3),
    ("SkipLayerNormalization", [(1, 2, 4), (1, 2, 4), weights(4)], {}, "add", 2),
    ("SkipSimplifiedLayerNormalization", [(1, 2, 4), (1, 2, 4), weights(4)], {}, "add", 8),
    ("FusedMatMul", [(2, 3, 4), weights(5, 4)], {"transB": 1, "alpha": 0.5}, "matmul", 2),
    ("FusedMatMul", [(2, 4, 3), (2, 4, 5)], {"transA": 1}, "transpose", 2),
    ("FusedGemm", [(3, 4), weights(5, 4), weights(5)], {"transB": 1, "activation": "Relu"}, "dense", 3),
    ("FusedConv", [(1, 3, 6, 6), weights(4, 3, 3, 3), weights(4)], {"activation": "Relu", "kernel_shape": [3, 3]}, "conv", 3),
    ("Attention", [(1, 6, 8), weights(8, 24), weights(24)], {"num_heads": 2}, "matmul", 18),
    ("MultiHeadAttention", [(1, 6, 8), (1, 7, 8), (1, 7, 8), weights(24)], {"num_heads": 2}, "bias_add", 16),
]


@pytest.mark.parametrize(("op", "operands", "attributes", "first", "count"), FUSED, ids=[f"{c[0]} {n}" for n, c in enumerate(FUSED)])
def test_a_fused_operator_is_its_parts(op: str, operands: list[Any], attributes: dict[str, Any], first: str, count: int) -> None:
    nodes = agrees(single(op, operands, **DOMAIN, **attributes)).program.nodes
    assert (nodes[0].op, len(nodes)) == (first, count)


@pytest.mark.parametrize(
    ("op", "operands", "count"),
    [
        ("RMSNormalization", [(2, 3, 4), weights(4)], 7),
        ("Attention", [(1, 2, 6, 8), (1, 2, 6, 8), (1, 2, 6, 8), (1, 1, 6, 6)], 6),
    ],
)
def test_operators_of_opset_23_are_their_parts(op: str, operands: list[Any], count: int) -> None:
    nodes = agrees(single(op, operands, opset=23)).program.nodes
    assert len(nodes) == count
    assert "opaque" not in {n.op for n in nodes}


ROWS, HEADS = (1, 3, 8), (1, 2, 3, 4)


@pytest.mark.parametrize(
    ("operands", "ranks"),
    [([HEADS, ROWS, ROWS], "4, 3, 3"), ([ROWS, HEADS, HEADS], "3, 4, 4"), ([ROWS, ROWS, HEADS], "3, 3, 4"), ([(3, 8)] * 3, "2, 2, 2")],
)
@pytest.mark.parametrize("heads", [{}, {"q_num_heads": 2, "kv_num_heads": 2}])
def test_queries_keys_and_values_of_several_ranks_are_refused(operands: list[Any], ranks: str, heads: dict[str, int]) -> None:
    y = info("y0", TensorType((1, 3, 8)))
    node = helper.make_node("Attention", ["x0", "x1", "x2"], ["y0"], name="attention", **heads)
    proto = model([node], {f"x{n}": TensorType(shape) for n, shape in enumerate(operands)}, [y], opset=23)
    assert refusal(proto).split("\n")[0] == (
        f'app.onnx:node "attention": error[F131]: Queries, keys and values of Attention must all have rank 3 or all rank 4, not {ranks}'
    )


@pytest.mark.parametrize(("op", "operands", "attributes"), CASES, ids=[f"{c[0]} {n}" for n, c in enumerate(CASES)])
def test_the_type_of_a_result_is_known(op: str, operands: list[Any], attributes: dict[str, Any]) -> None:
    loaded = agrees(single(op, operands, **DOMAIN, **attributes), ops=["opaque"])
    (opaque,) = loaded.program.opaque.values()
    reasons = {1: "no core operators express it", 2: 'its scales, "x1", are computed at run time'}
    reason = "its channels are last" if attributes.get("channels_last") else reasons[1 + any(x is GIVEN for x in operands)]
    assert (opaque.label, opaque.reason) == (f"com.microsoft.{op}", reason)
    assert loaded.program.notes == ()


def test_what_onnxruntime_calls_simplified_layer_normalization_is_the_norm_by_root_mean_square() -> None:
    nodes = imported(single("SimplifiedLayerNormalization", [(2, 4), weights(4)], axis=-1)).program.nodes
    assert [n.op for n in nodes] == ["mul", "reduce_mean", "add", "sqrt", "reciprocal", "mul", "mul"]


def test_every_rule_is_tested_but_those_of_operators_that_the_host_lacks() -> None:
    assert set(CONTRIB) - {c[0] for c in (*CASES, *FUSED)} == {"QLinearSoftmax", "SimplifiedLayerNormalization"}
    assert imported(single("SimplifiedLayerNormalization", [(2, 4), (4,)], **DOMAIN)).program.types[-1].shape == (2, 4)
    quantised = [X, SCALE, ZERO, SCALE, ZERO]
    assert str(imported(single("QLinearSoftmax", quantised, **DOMAIN)).program.types[-1]) == "uint8[1, 4, 6, 6]"


@pytest.mark.parametrize(
    ("op", "operands", "attributes", "sentence"),
    [
        ("Mystery", [(2,)], {}, 'error[F160]: the shape of "y0", which com.microsoft.Mystery gives, is not known'),
        (
            "QLinearAveragePool",
            [X, SCALE, ZERO, SCALE, ZERO],
            {"kernel_shape": [2, 2], "channels_last": 1},
            "error[F160]: com.microsoft.QLinearAveragePool with channels last has no shape rule",
        ),
    ],
)
def test_a_type_that_is_not_known(op: str, operands: list[Any], attributes: dict[str, Any], sentence: str) -> None:
    assert refusal(single(op, operands, **DOMAIN, **attributes)).split("\n")[0] == f'app.onnx:node "{op.lower()}": {sentence}'
