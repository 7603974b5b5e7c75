"""Perturbations: each finds its place in a small model, the result is a valid model and computes the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from rewrite_compiler.errors import UsageError
from rewrite_compiler.frontend.perturb.perturb import NODE_REWRITES, PERTURBATIONS, perturbed

SHAPES = {"x": (1, 4, 6, 6), "s": (1, 3, 8), "m": (1, 2, 5), "t": (4, 1, 3), "h": (1, 1, 2), "c": (1, 1, 2)}


def small(opset: int = 17) -> Any:
    """Return a model in which every perturbation has a place."""
    random = np.random.default_rng(0)
    weights: list[Any] = []
    nodes: list[Any] = []

    def weight(*shape: int) -> str:
        name = f"w{len(weights)}"
        weights.append(numpy_helper.from_array(random.uniform(0.2, 1, shape).astype(np.float32), name))
        return name

    def node(op: str, *inputs: str, **attributes: Any) -> str:
        name = f"v{len(nodes)}"
        nodes.append(helper.make_node(op, list(inputs), [name], name=f"node{len(nodes)}", **attributes))
        return name

    y = node("Conv", "x", weight(4, 4, 3, 3), weight(4), pads=[1, 1, 1, 1], kernel_shape=[3, 3])
    y = node("BatchNormalization", y, *(weight(4) for _ in range(4)))
    y = node("Relu", y)
    y = node("Add", node("Mul", y, weight(1, 4, 1, 1)), y)
    y = node("Flatten", node("GlobalAveragePool", y), axis=1)
    y = node("Gemm", y, weight(5, 4), weight(5), transB=1)
    z = node("Conv", "s", weight(2, 3, 3), weight(2), pads=[1, 1], kernel_shape=[3])
    weights.append(numpy_helper.from_array(np.asarray([1, -1], np.int64), "flat"))
    z = node("Reshape", z, "flat")
    m = node("Add", node("MatMul", "m", weight(5, 3)), weight(3))
    lstm, back = ("t", weight(1, 8, 3), weight(1, 8, 2), weight(1, 16), "", "h", "c"), ("t", weight(1, 8, 3), weight(1, 8, 2))
    nodes.append(helper.make_node("LSTM", lstm, ["all", "last_h", "last_c"], name="lstm", hidden_size=2))
    nodes.append(helper.make_node("LSTM", back, ["", "back_h"], name="back", hidden_size=2, direction="reverse"))
    given = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in SHAPES.items()]
    outputs = {y: (1, 5), z: (1, 16), m: (1, 2, 3), "all": (4, 1, 1, 2), "last_h": (1, 1, 2), "last_c": (1, 1, 2), "back_h": (1, 1, 2)}
    made = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in outputs.items()]
    graph = helper.make_graph(nodes, "small", given, made, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def results(model: Any) -> list[Any]:
    """Run a model on reproducible data."""
    onnx.checker.check_model(model)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    random = np.random.default_rng(1)
    return list(session.run(None, {n: random.standard_normal(s).astype(np.float32) for n, s in SHAPES.items()}))


def agree(model: Any, other: Any) -> None:
    for a, b in zip(results(model), results(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("opset", [17, 21])
@pytest.mark.parametrize("name", PERTURBATIONS)
def test_one_perturbation_everywhere(name: str, opset: int) -> None:
    model = small(opset)
    before = model.SerializeToString()
    for seed in range(2):  # some choose between two forms
        changed, applied = perturbed(model, seed, [name], share=1.0)
        assert applied.keys() == {name}
        assert applied[name] > 0
        agree(model, changed)
    assert model.SerializeToString() == before


@pytest.mark.parametrize("seed", range(4))
def test_all_of_them_together(seed: int) -> None:
    model = small()
    changed, applied = perturbed(model, seed)
    assert len(applied) >= len(PERTURBATIONS) / 2
    agree(model, changed)


def test_a_seed_gives_one_model() -> None:
    first, second, other = (perturbed(small(), seed)[0].SerializeToString() for seed in (3, 3, 4))
    assert first == second != other


def test_there_are_many() -> None:
    assert len(PERTURBATIONS) >= 12
    assert all(f.__doc__ for f in NODE_REWRITES.values())


def test_an_unknown_perturbation_is_named() -> None:
    with pytest.raises(UsageError, match=r'^error\[F203\]: there is no perturbation called "mirror"\n'):
        perturbed(small(), 0, ["mirror"])


def test_old_operator_sets_are_refused() -> None:
    with pytest.raises(UsageError, match=r"^error\[F203\]: a model must be of operator set 13 or later to be perturbed, not 11$"):
        perturbed(small(11), 0)
