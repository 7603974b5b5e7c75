"""Products of codes are the same on every processor: operands of one sign, with the results they had."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from onnx.external_data_helper import convert_model_to_external_data
from saturating import Saturating

from rewrite_compiler.hostrun import Session, coded_operators, reference, saturates
from rewrite_compiler.hostrun.session import saturates as kept
from rewrite_compiler.hostrun.sign_conversion import PRODUCTS, with_unsigned_codes

MS = "com.microsoft"
F, U, S = np.float32, np.uint8, np.int8
Array = np.ndarray[Any, Any]


def codes(kind: Any, *shape: int, seed: int = 3) -> Array:
    """Return codes of which every other is the least or the most of its type."""
    random, bounds = np.random.default_rng(seed), np.iinfo(kind)
    found = random.integers(bounds.min, bounds.max + 1, shape).astype(kind)
    ends = np.where(random.random(shape) < 0.5, bounds.min, bounds.max).astype(kind)
    return np.where(random.random(shape) < 0.5, ends, found)


def one(op: str, operands: list[Any], fed: tuple[int, ...] = (0,), domain: str = "", **attributes: Any) -> tuple[bytes, dict[str, Array]]:
    """Return a model of one node: operands by position, None where absent; those in `fed` are inputs."""
    names = ["" if x is None else f"i{n}" for n, x in enumerate(operands)]
    while names and not names[-1]:
        names.pop()
    node = helper.make_node(op, names, ["y"], domain=domain, **attributes)
    inputs = {f"i{n}": np.asarray(operands[n]) for n in fed}
    infos = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for name, x in inputs.items()]
    stored = [numpy_helper.from_array(np.asarray(x), f"i{n}") for n, x in enumerate(operands) if x is not None and n not in fed]
    graph = helper.make_graph([node], "one", infos, [onnx.ValueInfoProto(name="y")], stored)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid(MS, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString(), inputs


def here_and_elsewhere(model: bytes, inputs: dict[str, Array]) -> list[Array]:
    """Return the result on this processor, and on one whose products of uint8 and int8 saturate."""
    return [Session(model).run(inputs)["y"], Saturating.evaluated(with_unsigned_codes(model)).run(None, inputs)[0]]


KINDS = list(itertools.product((U, S), (U, S), ((0,), (0, 1))))
ZEROS = {U: 7, S: -5}


@pytest.mark.parametrize(("a", "b", "fed"), KINDS)
@pytest.mark.parametrize("zeros", [True, False])
def test_sums_of_products_are_exact(a: Any, b: Any, fed: tuple[int, ...], zeros: bool) -> None:
    for rows, common, columns in ((5, 64, 16), (1, 301, 33), (17, 513, 130)):
        x, w = codes(a, rows, common), codes(b, common, columns)
        points = [np.array(ZEROS[a], a), codes(b, columns)] if zeros else []
        model, inputs = one("MatMulInteger", [x, w, *points], fed)
        moved = [p.astype(np.int64) for p in points] or [0, 0]
        sums = (x.astype(np.int64) - moved[0]) @ (w.astype(np.int64) - moved[1])
        assert all(np.array_equal(found, sums) for found in here_and_elsewhere(model, inputs))


@pytest.mark.parametrize(("a", "b", "fed"), KINDS)
@pytest.mark.parametrize(("channels", "filters", "size", "group"), [(8, 16, 3, 1), (8, 16, 1, 1), (16, 16, 3, 16), (16, 32, 3, 4)])
def test_convolutions_are_exact(a: Any, b: Any, fed: tuple[int, ...], channels: int, filters: int, size: int, group: int) -> None:
    x, w = codes(a, 1, channels, 9, 9), codes(b, filters, channels // group, size, size)
    x_zero, w_zero = np.array(ZEROS[a], a), np.array(ZEROS[b], b)
    window = {"group": group, "pads": [size // 2] * 4, "strides": [2, 1]}
    moved = [(v.astype(np.float64) - int(z)) for v, z in ((x, x_zero), (w, w_zero))]
    real, _ = one("Conv", moved, (0, 1), **window)
    sums = onnx.reference.ReferenceEvaluator(onnx.load_from_string(real)).run(None, {"i0": moved[0], "i1": moved[1]})[0]
    model, inputs = one("ConvInteger", [x, w, x_zero, w_zero], fed, **window)
    assert all(np.array_equal(found, sums) for found in here_and_elsewhere(model, inputs))
    if (a, b) == (S, U):  # onnxruntime has no QLinearConv of these
        return
    scale, zero = F(np.abs(sums).max() / 100), np.array(128 if a == U else 0, a)
    whole = [x, F(1), x_zero, w, F(1), w_zero, scale, zero]
    model, inputs = one("QLinearConv", whole, tuple(3 * n for n in fed), **window)
    expected = np.rint(sums.astype(F) * (F(1) / scale)) + int(zero)
    assert all(np.array_equal(found, expected) for found in here_and_elsewhere(model, inputs))


X, W, BIAS = codes(U, 5, 64), codes(S, 64, 16), np.arange(16, dtype=np.int32)
SUMS = (X.astype(np.int64) - 7) @ (W.astype(np.int64) - 3)
SCALES = np.linspace(0.5, 2, 16, dtype=F)
SEVEN, THREE = np.array(7, U), np.array(3, S)
FUSED: dict[str, tuple[list[Any], Any]] = {
    "QGemm": ([X, F(1), SEVEN, W, F(0.5), THREE, BIAS], (SUMS + BIAS) * 0.5),
    "QGemm of scales without a zero point": ([X, F(1), SEVEN, W, SCALES, np.zeros(16, S)], (X.astype(int) - 7) @ W.astype(int) * SCALES),
    "MatMulIntegerToFloat": ([X, W, F(1), SCALES, SEVEN, np.full(16, 3, S)], SUMS * SCALES),
    "MatMulIntegerToFloat without zero points": ([X, W, F(1), SCALES], X.astype(int) @ W.astype(int) * SCALES),
    "DynamicQuantizeMatMul": ([X.astype(F), W, F(0.5), THREE], (X @ (W.astype(F) - 3)) * 0.5),
    "DynamicQuantizeMatMul without zero points": ([X.astype(F), W, SCALES], X.astype(F) @ W.astype(F) * SCALES),
}


@pytest.mark.parametrize("case", FUSED)
def test_products_that_onnxruntime_fuses_are_exact(case: str) -> None:
    operands, expected = FUSED[case]
    model, inputs = one(case.split()[0], operands, domain=MS)
    assert np.allclose(Session(model).run(inputs)["y"], expected, rtol=1e-6, atol=0)
    assert not mixed(model)


def test_a_matrix_of_codes_makes_codes_exactly() -> None:
    whole = [X, F(1), SEVEN, W, F(1), THREE, F(1e4), np.array(9, U)]
    model, inputs = one("QLinearMatMul", whole)
    expected = np.clip(np.rint(SUMS.astype(F) / F(1e4)) + 9, 0, 255)
    assert all(np.array_equal(found, expected) for found in here_and_elsewhere(model, inputs))


def small(*shape: int) -> Array:
    """Return int8 codes with which sums of two products fit 16 bits: onnxruntime's own are exact everywhere."""
    return np.random.default_rng(5).integers(-64, 65, shape).astype(S)


LAYERS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "DynamicQuantizeLSTM": (
        [np.linspace(-1, 1, 24, dtype=F).reshape(3, 1, 8), small(1, 8, 64), small(1, 16, 64), None, None, None, None, None,
         np.full(1, 0.01, F), np.zeros(1, S), np.full(1, 0.01, F), np.zeros(1, S)],
        {"hidden_size": 16},
    ),
    "QAttention": (
        [codes(U, 1, 4, 16), small(16, 48), np.zeros(48, F), F(0.01), F(0.01), None, SEVEN, np.array(2, S)], {"num_heads": 2},
    ),
}  # fmt: skip


@pytest.mark.parametrize("op", LAYERS)
def test_layers_of_codes_give_what_they_gave(op: str) -> None:
    operands, attributes = LAYERS[op]
    model, inputs = one(op, operands, domain=MS, **attributes)
    assert not mixed(model)
    exact, plain = (Session(model, is_exact=is_exact).run(inputs)["y"] for is_exact in (True, False))
    assert np.allclose(exact, plain, rtol=1e-6, atol=1e-7)


def mixed(model: bytes) -> list[str]:
    """Return the products of a model, rewritten, that still have an int8 weight beside activations that are not int8."""
    proto = onnx.load_from_string(with_unsigned_codes(model))
    signed = {t.name for t in proto.graph.initializer if t.data_type == onnx.TensorProto.INT8}
    nodes = [n for n in proto.graph.node if (n.domain, n.op_type) in PRODUCTS]
    assert nodes
    return [n.op_type for n in nodes if signed.intersection(n.input)]


def test_products_in_branches_and_functions_are_exact() -> None:
    text = """<ir_version: 10, opset_import: ["": 21, "own": 1]>
    g (bool c, uint8[1, 4] x) => (int32[1, 2] y, int32[1, 2] z)
    <int8[4, 2] w = {127, -128, 127, -128, 127, -128, 127, -128}>
    {
        y = If (c) <then_branch = t () => (int32[1, 2] a) { a = MatMulInteger(x, w) },
                    else_branch = e () => (int32[1, 2] b) { b = MatMulInteger(x, w) b0 = Neg(b) }>
        z = own.product(x, w)
    }
    <domain: "own", opset_import: ["": 21]>
    product (x, w) => (y) { y = MatMulInteger(x, w) }"""
    model = onnx.parser.parse_model(text).SerializeToString()
    session = Saturating.evaluated(with_unsigned_codes(model))
    for c in (True, False):
        fed = {"c": np.array(c), "x": np.full((1, 4), 255, U)}
        for found in (Session(model).run(fed), dict(zip("yz", session.run(None, fed), strict=True))):
            assert {name: y.tolist() for name, y in found.items()} == {n: [[4 * 255 * 127, -4 * 255 * 128]] for n in "yz"}


def test_weights_beside_the_model_are_read(tmp_path: Path) -> None:
    model, inputs = one("MatMulInteger", [X, W, SEVEN, THREE])
    proto = onnx.load_from_string(model)
    convert_model_to_external_data(proto, location="weights", size_threshold=0)
    onnx.save(proto, tmp_path / "m.onnx")
    assert np.array_equal(reference(tmp_path / "m.onnx").run(inputs)["y"], SUMS)


def test_what_multiplies_no_codes_stays_as_it_is() -> None:
    for model in (one("Relu", [np.ones(3, F)])[0], one("MatMulInteger", [X, codes(U, 64, 3)])[0], b"QLinear, but no model"):
        assert onnx_or_bytes(with_unsigned_codes(model)) == onnx_or_bytes(model)
    assert coded_operators(one("Relu", [np.ones(3, F)])[0]) == []
    assert coded_operators(one("MatMulInteger", [X, W])[0]) == ["MatMulInteger"]
    assert coded_operators(one("DequantizeLinear", [X, F(1)])[0]) == ["DequantizeLinear"]


def onnx_or_bytes(model: bytes) -> Any:
    return model if model.startswith(b"Q") else onnx.load_from_string(model)


def test_a_processor_that_saturates_is_recognised(monkeypatch: pytest.MonkeyPatch) -> None:
    assert saturates() in (True, False)
    kept.cache_clear()
    monkeypatch.setattr(onnxruntime, "InferenceSession", Saturating)
    assert saturates()
    kept.cache_clear()
