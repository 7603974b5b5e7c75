"""Quantised models become one integer form, and give the codes that onnxruntime gives."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx_models import imported, model, refusal, session, single

from rewrite_compiler.frontend.graph.emit import to_onnx
from rewrite_compiler.frontend.load import LoadedModel
from rewrite_compiler.frontend.normalise.dynamic_zero import less_zero_point
from rewrite_compiler.frontend.site.context import Unsupported
from rewrite_compiler.frontend.site.equal_weights import WeightIndex
from rewrite_compiler.hostrun import Session
from rewrite_compiler.ir.evaluate import run
from rewrite_compiler.ir.types import TensorType
from rewrite_compiler.ops.quantised import multiplier_of

R = np.random.default_rng(5)  # of what stands in this file; a test draws from a stream of its own, whichever run before it
MS: dict[str, Any] = {"domain": "com.microsoft"}
F, U, S = np.float32, np.uint8, np.int8


def f(*x: float) -> Any:
    return np.asarray(x if len(x) > 1 else x[0], F)


def codes(dtype: Any, *shape: int, draw: np.random.Generator = R) -> Any:
    info = np.iinfo(dtype)
    return draw.integers(info.min, info.max + 1, shape).astype(dtype)


X8, XU = ("int8", (1, 4, 6, 5)), ("uint8", (1, 4, 6, 5))
W8, WU = codes(S, 6, 2, 3, 2), codes(U, 6, 2, 3, 2)
WINDOW: dict[str, Any] = {"group": 2, "strides": [2, 1], "pads": [1, 0, 1, 1]}
BIAS = R.integers(-5000, 5000, 6).astype(np.int32)
SCALES = R.uniform(0.001, 0.02, 6).astype(F)
MATRIX, ROWS = codes(S, 7, 6), ("uint8", (3, 7))
SUMS = ["integer_conv", "bias_add", "requantize"]
MOVED = ["mul", "add"]  # of the sums of codes, where int8 weights have another zero point

# source operator, operands, attributes → the operations of the integer form
CASES: dict[str, tuple[str, list[Any], dict[str, Any], list[str]]] = {
    "quantize": ("QuantizeLinear", [(2, 3), f(0.1), np.asarray(3, U)], {}, ["quantize"]),
    "quantize channels": ("QuantizeLinear", [(2, 3), f(0.1, 0.2, 0.3), np.zeros(3, S)], {"axis": -1}, ["quantize"]),
    "quantize without zero point": ("QuantizeLinear", [(2, 3), f(0.1)], {}, ["quantize"]),
    "dequantize": ("DequantizeLinear", [("int8", (2, 3)), f(0.1), np.asarray(-3, S)], {}, ["dequantize"]),
    "dequantize channels": ("DequantizeLinear", [("uint8", (2, 3)), f(0.1, 0.2), np.full(2, 9, U)], {"axis": 0}, ["dequantize"]),
    "dequantize sums": ("DequantizeLinear", [("int32", (2, 3)), f(0.1)], {}, ["dequantize"]),
    "contrib quantize": ("QuantizeLinear", [(2, 3), f(0.1), np.asarray(3, np.uint16)], MS, ["quantize"]),
    "conv int8": (
        "QLinearConv", [X8, f(0.1), np.asarray(-7, S), W8, SCALES, np.zeros(6, S), f(0.3), np.asarray(5, S), BIAS], WINDOW, SUMS,
    ),
    "conv uint8": (
        "QLinearConv", [XU, f(0.1), np.asarray(120, U), WU, f(0.01), np.asarray(128, U), f(0.3), np.asarray(5, U)], WINDOW,
        ["integer_conv", "requantize"],
    ),
    "conv uint8 weights off centre": (
        "QLinearConv", [XU, f(0.1), np.asarray(255, U), WU, f(0.01), np.asarray(3, U), f(0.3), np.asarray(5, U), BIAS], WINDOW,
        ["integer_conv", *MOVED, *SUMS],
    ),
    "matmul": (
        "QLinearMatMul", [ROWS, f(0.1), np.asarray(4, U), MATRIX, SCALES, np.zeros(6, S), f(0.2), np.asarray(9, U)], {},
        ["integer_dense", "requantize"],
    ),
    "matmul of rows of a batch": (
        "QLinearMatMul", [("uint8", (2, 3, 7)), f(0.1), np.asarray(4, U), MATRIX, f(0.01), np.asarray(3, S), f(0.2), np.asarray(9, U)], {},
        ["integer_dense", "integer_dense", *MOVED, "requantize"],
    ),
    "matmul integer": ("MatMulInteger", [ROWS, MATRIX, np.asarray(4, U), np.asarray(1, S)], {}, ["integer_dense", "integer_dense", *MOVED]),
    "matmul integer without zero points": ("MatMulInteger", [("int8", (3, 7)), MATRIX], {}, ["integer_dense"]),
    "conv integer": ("ConvInteger", [XU, W8, np.asarray(9, U)], WINDOW, ["integer_conv"]),
    "gemm": (
        "QGemm", [ROWS, f(0.1), np.asarray(4, U), MATRIX, SCALES, np.zeros(6, S), BIAS, f(0.2), np.asarray(9, U)], MS,
        ["integer_dense", "bias_add", "requantize"],
    ),
    "gemm to real numbers": (
        "QGemm", [ROWS, f(0.1), np.asarray(4, U), MATRIX.T.copy(), f(0.2), np.asarray(0, S), BIAS], {**MS, "transB": 1},
        ["integer_dense", "bias_add", "dequantize"],
    ),
    "add": (
        "QLinearAdd", [XU, f(0.1), np.asarray(4, U), ("uint8", (4, 1, 1)), f(0.2), np.asarray(7, U), f(0.25), np.asarray(3, U)], MS,
        ["dequantize", "dequantize", "add", "quantize"],
    ),
    "add of one shape": (
        "QLinearAdd", [XU, f(0.1), np.asarray(4, U), XU, f(0.2137), np.asarray(7, U), f(0.25), np.asarray(3, U)], MS, ["quantized_add"],
    ),
    "mul": (
        "QLinearMul", [X8, f(0.1), np.asarray(4, S), X8, f(0.02), np.asarray(-7, S), f(0.25), np.asarray(3, S)], MS,
        ["dequantize", "dequantize", "mul", "quantize"],
    ),
    "average pool": (
        "QLinearAveragePool", [XU, f(0.1), np.asarray(4, U), f(0.1137), np.asarray(2, U)],
        {**MS, "kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 0]}, ["dequantize", "average_pool", "quantize"],
    ),
    "global average pool": (
        "QLinearGlobalAveragePool", [XU, f(0.1), np.asarray(4, U), f(0.05), np.asarray(2, U)], MS,
        ["integer_conv", "requantize"],
    ),
    "average pool of whole windows": (
        "QLinearAveragePool", [X8, f(0.1), np.asarray(4, S), f(0.0637), np.asarray(2, S)],
        {**MS, "kernel_shape": [3, 2], "strides": [2, 1]}, ["integer_conv", "requantize"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_an_operator_becomes_the_integer_form(case: tuple[str, list[Any], dict[str, Any], list[str]]) -> None:
    op, operands, attributes, expected = case
    proto = single(op, operands, **attributes)
    loaded = imported(proto)
    assert Counter(n.op for n in loaded.program.nodes if n.op not in ("reshape", "transpose")) == Counter(expected)
    gives_the_codes_of_the_host(proto, loaded)


def gives_the_codes_of_the_host(proto: Any, loaded: LoadedModel, most: int = 0) -> None:
    """Compare meaning and written model with onnxruntime on random inputs: at most `most` codes differ, by one."""
    p, draw = loaded.program, np.random.default_rng(5)
    fed = {v: random_values(p.types[v], draw) for v in p.inputs}
    named = {p.names[v]: x for v, x in fed.items()}
    wanted = session(proto).run(None, named)
    written = Session(to_onnx(p)).run(named)
    meant = {} if p.opaque else run(p, fed, real=np.float64)  # a conversion has no meaning here: the host makes it
    for v, expected, y in zip(p.outputs, wanted, written.values(), strict=True):
        for found in (y, *([meant[v]] if meant else [])):
            assert (found.shape, str(expected.dtype)) == (expected.shape, p.types[v].dtype)
            if expected.dtype.kind == "f":
                assert np.allclose(found, expected, rtol=1e-5, atol=1e-6)
            else:
                different = np.abs(found.astype(np.int64) - expected.astype(np.int64))
                assert np.count_nonzero(different) <= most
                assert different.max(initial=0) <= bool(most)


def random_values(t: TensorType, draw: np.random.Generator) -> Any:
    return draw.standard_normal(t.shape).astype(F) if t.is_float else draw.integers(*_bounds(t.dtype), t.shape).astype(t.dtype)


def _bounds(dtype: str) -> tuple[int, int]:
    info = np.iinfo(dtype)
    return max(info.min, -100_000), min(info.max, 100_000) + 1


def qdq(*, relu: bool = False, bias_scale: float = 1.0, clip: bool = False) -> Any:
    """Return a network as quantisers write it: pairs of QuantizeLinear and DequantizeLinear around real operators."""
    draw = np.random.default_rng(7)
    weights, s = codes(S, 6, 4, 3, 3, draw=draw), SCALES
    constants = {
        "w": weights, "ws": s, "wz": np.zeros(6, S), "b": BIAS, "bs": (f(0.02) * s * F(bias_scale)).astype(F), "bz": np.zeros(6, np.int32),
        "xs": f(0.02), "xz": np.asarray(3, U), "ys": f(0.05), "yz": np.asarray(7, U), "m": codes(S, 5, 6, draw=draw), "ms": f(0.01),
        "mz": np.asarray(0, S), "low": f(0.0), "high": f(2.5), "zs": f(0.08), "zz": np.asarray(90, U), "shape": np.asarray([1, 6]),
    }  # fmt: skip

    def pair(value: str, scale: str, zero: str) -> list[Any]:
        return [
            helper.make_node("QuantizeLinear", [value, scale, zero], [f"{value}_q"]),
            helper.make_node("DequantizeLinear", [f"{value}_q", scale, zero], [f"{value}_d"]),
        ]

    activation = [helper.make_node("Relu", ["c"], ["a"])] if relu else []
    activation = [helper.make_node("Clip", ["c", "low", "high"], ["a"])] if clip else activation
    name = "a" if activation else "c"
    nodes = [
        *pair("x", "xs", "xz"),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], axis=0),
        helper.make_node("DequantizeLinear", ["b", "bs", "bz"], ["bd"], axis=0),
        helper.make_node("Conv", ["x_d", "wd", "bd"], ["c"]),
        *activation,
        *pair(name, "ys", "yz"),
        helper.make_node("MaxPool", [f"{name}_d"], ["p"], kernel_shape=[4, 3]),
        *pair("p", "ys", "yz"),
        helper.make_node("Reshape", ["p_d", "shape"], ["r"]),
        helper.make_node("DequantizeLinear", ["m", "ms", "mz"], ["md"]),
        helper.make_node("Gemm", ["r", "md"], ["g"], transB=1),
        *pair("g", "zs", "zz"),
    ]
    used = {i for n in nodes for i in n.input}
    return model(nodes, {"x": TensorType((1, 4, 6, 5))}, ["g_d"], {k: v for k, v in constants.items() if k in used})


@pytest.mark.parametrize("how", [{}, {"relu": True}, {"clip": True}], ids=str)
def test_quantise_and_dequantise_around_real_operators_is_the_same_form(how: dict[str, Any]) -> None:
    proto = qdq(**how)
    loaded = imported(proto)
    operations = Counter(n.op for n in loaded.program.nodes if n.op != "reshape")
    assert operations == Counter(
        ["quantize", "integer_conv", "bias_add", "requantize", "max_pool", "integer_dense", "requantize", "dequantize"]
    )
    gives_the_codes_of_the_host(proto, loaded)
    bounds = next((dict(n.attributes)["low"], dict(n.attributes)["high"]) for n in loaded.program.nodes if n.op == "requantize")
    assert bounds == {"": (0, 255), "relu": (7, 255), "clip": (7, 57)}[next(iter(how), "")]
    assert set(loaded.program.absorbed.values()) <= {"part of the integer form", "constant folded"}


def test_a_bias_of_another_scale_stays_a_real_number() -> None:
    proto = qdq(bias_scale=1.5)
    loaded = imported(proto)
    assert [n.op for n in loaded.program.nodes][1:4] == ["integer_conv", "dequantize", "bias_add"]
    gives_the_codes_of_the_host(proto, loaded)


def test_what_is_read_elsewhere_stays() -> None:
    proto = qdq(relu=True)
    proto.graph.output.append(helper.make_tensor_value_info("c", 1, [1, 6, 4, 3]))
    loaded = imported(proto)
    assert Counter(n.op for n in loaded.program.nodes)["dequantize"] == 2
    gives_the_codes_of_the_host(proto, loaded)


@pytest.mark.parametrize("scale", [1.0, 0.1, 3e-5, 0.4999])
def test_a_multiplier_is_its_scale_exactly(scale: float) -> None:
    m, n = multiplier_of(float(F(scale)))
    assert m / 2**n == float(F(scale))
    assert 1 << 23 <= m < 1 << 24


def test_wrong_scales_are_refused() -> None:
    for wrong in (0.0, -1.0, np.nan, np.inf):
        sentence = f"error[F131]: Scale of QuantizeLinear must be positive and finite, not {F(wrong)}"
        assert refusal(single("QuantizeLinear", [(2, 3), f(wrong), np.asarray(3, U)])).split(": ", 1)[1].split("\n")[0] == sentence


@pytest.mark.parametrize(
    ("op", "operands", "reason"),
    [
        ("QLinearMatMul", [ROWS, f(0.1, 0.2, 0.3), np.zeros(3, U), MATRIX, f(0.1), np.asarray(0, S), f(0.2), np.asarray(9, U)],
         "its activations have a scale for each place of an axis"),
        ("MatMulInteger", [ROWS, ("int8", (2, 7, 6))], "its second operand is not a matrix"),
        ("MatMulInteger", [ROWS, ("int8", (7, 6)), ("uint8", ())], 'its weights, "x1", are computed at run time'),
        ("MatMulInteger", [ROWS, MATRIX, np.asarray(3, U), ("int8", ())], 'its zero points, "x3", are computed at run time'),
        ("QuantizeLinear", [(2, 3), f(0.1, 0.2, 0.3), np.asarray([1, 2, 3], U)], "its zero points differ"),
    ],
)  # fmt: skip
def test_what_has_no_integer_form_stays_whole(op: str, operands: list[Any], reason: str) -> None:
    attributes: dict[str, Any] = {"axis": 1} if op == "QuantizeLinear" else {}
    (opaque,) = imported(single(op, operands, **attributes)).program.opaque.values()
    assert (opaque.op_type, opaque.reason) == (op, reason)


OTHER = np.random.default_rng(6)
Z = ("uint8", ())
MOVING: dict[str, tuple[str, list[Any], dict[str, Any], list[str]]] = {
    "matrix": ("MatMulInteger", [ROWS, MATRIX, Z], {}, ["integer_dense", "opaque", "mul", "add"]),
    "list of one": ("MatMulInteger", [ROWS, MATRIX, ("uint8", (1,))], {}, ["integer_dense", "reshape", "opaque", "mul", "add"]),
    "stack": ("MatMulInteger", [("uint8", (2, 3, 7)), codes(U, 7, 5, draw=OTHER), Z, np.asarray(131, U)], {}, ["integer_dense"]),
    "vector": ("MatMulInteger", [("uint8", (7,)), codes(S, 7, 5, draw=OTHER), Z, codes(S, 5, draw=OTHER)], {}, ["integer_dense"]),
    "conv": ("ConvInteger", [("uint8", (1, 2, 6, 5)), codes(S, 3, 2, 3, 2, draw=OTHER), Z], {}, ["integer_conv", "opaque", "mul", "add"]),
    "padded conv": ("ConvInteger", [XU, W8, Z], WINDOW, ["integer_conv", "opaque", "mul", "add"]),
    "dilated conv": (
        "ConvInteger", [("uint8", (2, 2, 9)), codes(U, 3, 2, 3, draw=OTHER), Z, np.asarray(7, U)],
        {"dilations": [2], "pads": [3, 1], "strides": [2]},
        ["integer_conv"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", MOVING.values(), ids=MOVING)
def test_a_zero_point_that_is_computed_at_run_time_multiplies_sums_of_weights(
    case: tuple[str, list[Any], dict[str, Any], list[str]],
) -> None:
    op, operands, attributes, expected = case
    proto = single(op, operands, **attributes)
    loaded = imported(proto)
    found = [n.op for n in loaded.program.nodes]
    assert sorted(found) == sorted(expected) if len(expected) > 1 else expected[0] in found
    assert [o.op_type for o in loaded.program.opaque.values()] == ["Cast"]
    gives_the_codes_of_the_host(proto, loaded)


OFF_CENTRE: dict[str, tuple[str, list[Any], dict[str, Any], list[str]]] = {
    "conv with zero points of filters": (
        "QLinearConv", [XU, f(0.1), np.asarray(7, U), WU, SCALES, np.asarray([0, 3, 128, 200, 255, 9], U), f(0.3), np.asarray(5, U), BIAS],
        {**WINDOW, "group": 2}, ["integer_conv", *MOVED, *SUMS],
    ),
    "conv without groups": (
        "ConvInteger", [("uint8", (1, 2, 6, 5)), WU, np.asarray(9, U), np.asarray(0, U)], {**WINDOW, "group": 1},
        ["integer_conv", "integer_conv", *MOVED],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", OFF_CENTRE.values(), ids=OFF_CENTRE)
def test_zero_points_that_int8_cannot_have_are_a_multiple_of_the_sums_of_codes(
    case: tuple[str, list[Any], dict[str, Any], list[str]],
) -> None:
    test_an_operator_becomes_the_integer_form(case)


def test_one_constant_code_without_axes_is_dequantised() -> None:
    """The quantiser makes codes of single numbers, as of the one half in GELU."""
    nodes = [helper.make_node("DequantizeLinear", ["c", "s", "z"], ["h"]), helper.make_node("Mul", ["x", "h"], ["y"])]
    constants = {"c": np.asarray(200, U), "s": f(0.01), "z": np.asarray(100, U)}
    proto = model(nodes, {"x": TensorType((2, 3))}, ["y"], constants)
    gives_the_codes_of_the_host(proto, imported(proto))


def test_an_interpolation_of_codes_is_the_hosts() -> None:
    """A mean of codes may lie in the middle between two codes, and which one it becomes depends on the order of the sums."""
    scaled = ["s", "z"]
    nodes = [
        helper.make_node("DequantizeLinear", ["x", *scaled], ["r"]),
        helper.make_node("Resize", ["r", "", "factors"], ["w"], mode="linear"),
        helper.make_node("QuantizeLinear", ["w", *scaled], ["y"]),
    ]
    constants = {"s": f(0.0173), "z": np.asarray(118, U), "factors": np.asarray([1, 1, 2, 2], F)}
    proto = model(nodes, {"x": TensorType((1, 3, 8, 8), "uint8")}, ["y"], constants)
    loaded = imported(proto)
    assert [o.op_type for o in loaded.program.opaque.values()] == ["Resize"]
    gives_the_codes_of_the_host(proto, loaded)


@pytest.mark.parametrize("total", [1 << 31, -(1 << 31), 1 << 40])
def test_sums_of_weights_beyond_int32_leave_a_product_to_the_host(total: int) -> None:
    site: Any = None
    with pytest.raises(Unsupported, match="sums of its weights do not fit int32"):
        less_zero_point(site, 0, 1, np.array([[3, total]], np.int64))
    with pytest.raises(AttributeError):  # it goes on
        less_zero_point(site, 0, 1, np.array([[3, (1 << 31) - 1]], np.int64))


def test_equal_weights_are_found_unless_they_are_one_number_everywhere() -> None:
    """The sample may repeat its first number elsewhere."""
    index, v, w = WeightIndex(), 1, 2
    weights, zeros = np.array([0, 1, 0, 2], np.int8), np.zeros(4, np.int8)
    index.add(v, weights, "int8")
    index.add(w, zeros, "int8")
    assert index.find(weights.copy(), "int8", {v: weights, w: zeros}) == v
    assert index.find(zeros, "int8", {v: weights, w: zeros}) is None
    assert index.find(weights.copy(), "uint8", {v: weights, w: zeros}) is None


@pytest.mark.parametrize(("dtype", "pooled"), [(U, "uint8"), (np.uint16, "float32"), (np.int16, "float32")])
def test_pools_of_codes_are_those_that_onnx_has(dtype: Any, pooled: str) -> None:
    """The host has no MaxPool of 16 bits: its real numbers are pooled."""
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("QuantizeLinear", ["p", "scale", "zero"], ["c"]),
        helper.make_node("DequantizeLinear", ["c", "scale", "zero"], ["y"]),
    ]
    proto = model(nodes, {"x": TensorType((1, 2, 4, 4))}, ["y"], {"scale": f(0.01), "zero": np.asarray(7, dtype)})
    loaded = imported(proto)
    (pool,) = [n for n in loaded.program.nodes if n.op == "max_pool"]
    assert loaded.program.types[pool.inputs[0]].dtype == pooled
    x = np.random.default_rng(8).standard_normal((1, 2, 4, 4), F)
    (expected,), (found,) = session(proto).run(None, {"x": x}), Session(to_onnx(loaded.program)).run({"x": x}).values()
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kind", [TensorProto.INT4, TensorProto.UINT4])
def test_weights_of_four_bits_in_the_form_of_older_operator_sets(kind: int) -> None:
    """The quantiser of onnxruntime writes them so, below operator set 21."""
    rows = np.random.default_rng(9).integers(0, 8, (6, 5))
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "scales", "zeros"], ["v"], axis=1, **MS),
        helper.make_node("MatMul", ["x", "v"], ["y"]),
    ]
    initializers = [helper.make_tensor("w", kind, rows.shape, rows.reshape(-1)), helper.make_tensor("zeros", kind, [5], [1] * 5)]
    proto = model(
        nodes, {"x": TensorType((3, 6))}, ["y"], {"scales": np.linspace(0.1, 0.2, 5, dtype=F)}, opset=17, domains={"com.microsoft": 1}
    )
    proto.graph.initializer.extend(initializers)
    loaded = imported(proto)
    assert not loaded.program.opaque
    x = np.random.default_rng(10).standard_normal((3, 6), F)
    (expected,), (found,) = session(proto).run(None, {"x": x}), Session(to_onnx(loaded.program)).run({"x": x}).values()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
