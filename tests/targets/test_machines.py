"""GeneSys and HVX as targets: their drivers on the simulator give their numerics, with and without a sample axis, and their limits hold."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hvx_vectors import kept_program
from onnx import TensorProto, helper, numpy_helper

from rewrite_compiler.apps import find_application
from rewrite_compiler.compile import compile_model
from rewrite_compiler.compile.compile import Options
from rewrite_compiler.compile.formats.calibrate import calibrated
from rewrite_compiler.cosim import Settings, cosimulate
from rewrite_compiler.cosim.resident_run import inferences
from rewrite_compiler.lang import Fixed
from rewrite_compiler.lang.binders import Leaf
from rewrite_compiler.readings.kernels.evaluate import evaluate
from rewrite_compiler.target import Mapping, Target, find_target, simulated_device

SMALL = "genesys:array_n=16,ibuf_depth=2048,wbuf_depth=4096,obuf_depth=2048,bbuf_depth=1024,vmem_depth=2048"
DENSE = {"t": 3, "k": 21, "n": 37}
CONV = {"b": 2, "n": 19, "c": 5, "i": 6, "j": 7, "r": 3, "s": 2, "strides": (2, 1), "pads": (1, 0, 0, 2), "u": 3, "v": 8}
BORDER_ONLY = {**CONV, "i": 1, "j": 1, "r": 1, "s": 1, "strides": (1, 3), "pads": (0, 4, 4, 1), "u": 5, "v": 2}  # a column of zeros alone
POOL = {"b": 2, "c": 5, "i": 6, "j": 9, "kernel": (3, 2), "strides": (1, 2), "pads": (1, 0, 0, 1), "u": 5, "v": 5}
MEANS = {**{name: n for name, n in POOL.items() if name != "pads"}, "u": 4, "v": 4}
DEPTHWISE = {"b": 2, "c": 3, "o": 1, "i": 13, "j": 9, "r": 3, "s": 2, "strides": (1, 2), "pads": (1, 0, 0, 1), "u": 12, "v": 5, "group": 3}
ATTRIBUTES = ("kernel", "strides", "pads", "low", "high")
F = {name: Fixed(8, 4) for name in "xwzy"}


@cache
def target(text: str) -> Target:
    return find_target(text)


def operands(mapping: Mapping, sizes: dict[str, Any], seed: int) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(seed)
    shapes = {name: [sizes[d] for d in dims] for name, dims in mapping.axes.of.items() if name not in mapping.axes.results}
    codes = {}
    for name, shape in shapes.items():
        bits = 32 if name == "b" and mapping.operation in ("dense", "conv2d", "depthwise") else 8
        drawn = draw.integers(-(1 << bits - 1), 1 << bits - 1, shape)
        codes[name] = drawn.astype(np.int32 if bits == 32 else np.int8)
    return codes


def numerics(
    mapping: Mapping, codes: dict[str, np.ndarray], attributes: dict[str, Any], formats: dict[str, Fixed] = F
) -> np.ndarray:  # fmt: skip
    leaves = {name: Leaf(x.shape, (int(np.iinfo(x.dtype).min), int(np.iinfo(x.dtype).max)), False, name) for name, x in codes.items()}
    term = mapping.result_codes([*leaves.values()], formats, attributes)
    return np.asarray(evaluate(term, {leaves[name]: x for name, x in codes.items()}))


CASES = [
    (SMALL, "dense", DENSE), (SMALL, "dense_bias", DENSE), (SMALL, "dense_bias_relu", DENSE), (SMALL, "conv2d", CONV),
    (SMALL, "conv2d_bias_relu", CONV),
    (SMALL, "conv2d_bias", BORDER_ONLY),
    ("hvx", "add_2", {"a": 3, "b": 50}), ("hvx", "add_4", {"a": 2, "b": 3, "c": 5, "d": 9}),
    ("hvx", "dense", DENSE), ("hvx", "dense_relu", {"t": 3, "k": 130, "n": 130}),
    ("hvx", "conv2d", CONV), ("hvx", "conv2d_relu", BORDER_ONLY), ("hvx", "max_pool", POOL), ("hvx", "average_pool", MEANS),
    ("hvx", "depthwise", DEPTHWISE), ("hvx", "clip_2", {"a": 3, "b": 50, "low": -0.25, "high": 3.0}),
    ("hvx", "relu_2", {"a": 3, "b": 50}), ("hvx", "relu_4", {"a": 2, "b": 3, "c": 5, "d": 9}),
]  # fmt: skip


@pytest.mark.parametrize(("accel", "name", "sizes"), CASES, ids=lambda x: x if isinstance(x, str) else "")
def test_driver_gives_the_numerics(accel: str, name: str, sizes: dict[str, Any]) -> None:
    """In strict simulation, where nothing may be read that was not written."""
    t = target(accel)
    mapping = t.mappings[name]
    attributes = {k: sizes[k] for k in ATTRIBUTES if k in sizes}
    codes = operands(mapping, sizes, 4)
    device = simulated_device(t.ila(), reading="oracle", strict=True)
    y = mapping.run_driver(device, codes, F, attributes)
    assert np.array_equal(y, numerics(mapping, codes, attributes))


def test_codes_of_int32_sums_are_rounded_once_on_hvx() -> None:
    """Of all sizes of sums, factors and shifts: nearest, ties up, as integers without bounds say, for both types of code."""
    draw = np.random.default_rng(3)
    x = draw.integers(-(2**31), 2**31, (40, 5)).astype(np.int32)
    x[:20] >>= draw.integers(0, 31, (20, 5)).astype(np.int32)
    x[:5, :] = np.array([-(2**31), 2**31 - 1, 0, 1, -1])[:, None]
    for name, zero, low, high in (("uint8", 7, 3, 255), ("int8", -9, -128, 120)):
        factors, shifts = (tuple(draw.integers(*ends, 5).tolist()) for ends in ((1 << 23, 1 << 24), (25, 55)))
        attributes = {"multiplier": factors, "shift": shifts, "zero": zero, "low": low, "high": high}
        mapping = target("hvx").mappings[f"requantise_{name}_2"]
        y = mapping.run_driver(simulated_device(target("hvx").ila(), strict=True), {"x": x}, {}, attributes)
        exact = [[(s * m + 2 ** (n - 1)) // 2**n + zero for s, m, n in zip(row, factors, shifts, strict=True)] for row in x.tolist()]
        assert y.dtype == np.dtype(name)
        assert y.tolist() == np.clip(np.array(exact, object), low, high).tolist()


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("bias", [True, False])
def test_sums_of_codes_are_those_of_integers_on_hvx(dtype: str, bias: bool) -> None:
    """Blocks of four vectors and fewer, an odd row, words in part, sums that wrap at 32 bits."""
    draw, ends = np.random.default_rng(3), np.iinfo(dtype)
    mapping = target("hvx").mappings[f"dense{'_bias' * bias}_{dtype}"]
    for (t, k, n), zero in zip(((1, 5, 3), (3, 130, 170)), (int(ends.min), int(ends.max)), strict=True):
        codes = {"x": draw.integers(ends.min, ends.max, (t, k), dtype, endpoint=True), "w": draw.integers(-128, 128, (n, k), "int8")}
        codes |= {"b": draw.integers(-(2**31), 2**31, n).astype(np.int32)} if bias else {}
        exact = (codes["x"].astype(np.int64) - zero) @ codes["w"].T.astype(np.int64) + codes.get("b", 0)
        y = mapping.run_driver(simulated_device(target("hvx").ila(), strict=True), codes, {}, {"x_zero": zero})
        assert np.array_equal(y, exact.astype(np.int32))


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize(("sizes", "bias"), [(CONV, True), (BORDER_ONLY, False)])
def test_sums_of_convolutions_of_codes_are_those_of_integers_on_hvx(dtype: str, sizes: dict[str, Any], bias: bool) -> None:
    """Zero points at the ends of the type stand around the image and add nothing; sums wrap at 32 bits."""
    draw, ends = np.random.default_rng(3), np.iinfo(dtype)
    mapping = target("hvx").mappings[f"conv2d{'_bias' * bias}_{dtype}"]
    zero, kernel, (down, right), (top, left, bottom, far) = ends.max, (sizes["r"], sizes["s"]), sizes["strides"], sizes["pads"]
    x = draw.integers(ends.min, ends.max, [sizes[d] for d in "bcij"], dtype, endpoint=True)
    w = draw.integers(-128, 128, (sizes["n"], sizes["c"], *kernel), "int8")
    b = draw.integers(-(2**31), 2**31, sizes["n"]).astype(np.int32)
    image = np.pad(x.astype(np.int64) - zero, ((0, 0), (0, 0), (top, bottom), (left, far)))
    taps = np.lib.stride_tricks.sliding_window_view(image, kernel, (2, 3))[:, :, ::down, ::right]
    exact = np.einsum("bcuvrs,ncrs->bnuv", taps, w.astype(np.int64)) + (b[:, None, None] if bias else 0)
    codes, attributes = (
        {"x": x, "w": w} | ({"b": b} if bias else {}),
        {"x_zero": int(zero), "strides": (down, right), "pads": sizes["pads"]},
    )
    y = mapping.run_driver(simulated_device(target("hvx").ila(), strict=True), codes, {}, attributes)
    assert np.array_equal(y, exact.astype(np.int32))


def test_samples_run_together() -> None:
    t = target(SMALL)
    mapping, codes = t.mappings["dense_bias_relu"], operands(t.mappings["dense_bias_relu"], DENSE, 9)
    sampled = np.random.default_rng(1).integers(-128, 128, (3, 3, 21)).astype(np.int8)
    y = mapping.run_driver(simulated_device(t.ila(), strict=False, samples=3), {**codes, "x": sampled}, F, {})
    for n in range(3):
        assert np.array_equal(y[n], numerics(mapping, {**codes, "x": sampled[n]}, {}))


@pytest.mark.parametrize("fraction", [12, 10, 8, -2, -7, -8, -12, -60])
def test_sums_are_shifted_either_way_and_rounded_once(fraction: int) -> None:
    """Sums have 8 places, so codes of `fraction` places are nearest, ties up, whether HVX shifts once, twice or to the left."""
    mapping, t = target("hvx").mappings["dense"], target("hvx")
    codes = operands(mapping, {"t": 1, "k": 3, "n": 70}, 5)
    codes["b"] >>= np.arange(70, dtype=np.int32) % 32  # of every size
    if fraction > 8:
        codes["b"] >>= 12
    formats = {**F, "y": Fixed(8, fraction)}
    y = mapping.run_driver(simulated_device(t.ila(), strict=True), codes, formats, {})
    assert np.array_equal(y, numerics(mapping, codes, {}, formats))
    total = codes["x"].astype(object) @ codes["w"].T.astype(object) + codes["b"]
    wrapped = (total + 2**31) % 2**32 - 2**31
    shift = 8 - fraction
    exact = (wrapped + 2 ** (shift - 1)) // 2**shift if shift > 0 else wrapped * 2**-shift
    assert y.tolist() == np.clip(exact, -128, 127).tolist()


def test_layers_of_a_published_program_give_its_results() -> None:
    """Of `add_relu`, whose 512 results QEMU computed; sums saturate on both sides."""
    t = target("hvx")
    before, after = (x.view(np.int8) for x in kept_program("add_relu"))
    a, b, published = before[:512], before[1024:1536], after[2048:2560]
    assert np.any(np.abs(a.astype(int) + b) > 127)
    total = t.mappings["add_2"].run_driver(simulated_device(t.ila()), {"x": a.reshape(4, 128), "z": b.reshape(4, 128)}, F, {})
    y = t.mappings["relu_2"].run_driver(simulated_device(t.ila()), {"x": total.astype(np.int8)}, F, {})
    assert np.array_equal(y.ravel(), published)


def test_a_network_stays_as_accurate_on_hvx() -> None:
    app = find_application("digits_cnn")
    plan = compile_model(app.model, "hvx")
    assert plan.counts == {"hvx": {"conv2d": 2, "max_pool": 1, "dense": 1}}
    document = cosimulate(plan, app.data, calibrate=app.calibration, settings=Settings(samples=24, batch=8, threads=1)).document
    assert document["run"]["fallbacks"] == []
    assert document["paired"]["same_predictions"] >= 0.97
    assert all(o["validated_samples"] for o in document["offloads"])
    assert document["simulator"]["audited"] >= len(plan.offloads)


def layers(
    path: Path, nodes: Sequence[onnx.NodeProto], inputs: dict[str, list[int]], y: list[int], *, kind: int = TensorProto.FLOAT,
    **constants: np.ndarray,
) -> Path:  # fmt: skip
    """Write a model of floats, or of numbers of another type, whose result is y."""
    tensors = [helper.make_tensor_value_info(name, kind, shape) for name, shape in inputs.items()]
    result = [helper.make_tensor_value_info("y", kind, y)]
    known = [numpy_helper.from_array(np.ascontiguousarray(x, np.float32), name) for name, x in constants.items()]
    graph = helper.make_graph(nodes, "layers", tensors, result, known)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_a_published_program_follows_from_its_onnx_layers_on_hvx(tmp_path: Path) -> None:
    """`add_relu`: formats from samples whose sums fit, so that a code is a number; the published sums saturate."""
    nodes = [helper.make_node("Add", ["a", "b"], ["s"]), helper.make_node("Relu", ["s"], ["y"])]
    model = layers(tmp_path / "add_relu.onnx", nodes, {"a": [4, 128], "b": [4, 128]}, [4, 128])
    before, after = (x.view(np.int8) for x in kept_program("add_relu"))
    a, b, published = (x.reshape(1, 4, 128).astype(np.float32) for x in (before[:512], before[1024:1536], after[2048:2560]))
    plan = compile_model(model, "hvx", Options(objective="cycles"))
    assert plan.counts == {"hvx": {"add": 1, "relu": 1}}
    plan = calibrated(plan, {"a": np.clip(a, -63, 64), "b": np.clip(b, -63, 63)}, "samples whose sums fit")
    (found,) = inferences(plan, {"a": a, "b": b})
    assert np.array_equal(found.outputs["y"], published)
    assert np.any(a + b > 127)


@pytest.mark.shared
def test_a_published_program_follows_from_its_onnx_layers_on_genesys(tmp_path: Path, shared_dir: Path) -> None:
    """`conv_relu`, on the target's own tiles: its 9,216 sums are exact."""
    z = np.load(shared_dir / "golden/genesys/recorded/conv_relu/arrays.npz")
    image, published = (z[name].reshape(1, 12, 12, 64).transpose(0, 3, 1, 2).astype(np.float32) for name in ("data_nhwc", "out_nhwc"))
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["s"]), helper.make_node("Relu", ["s"], ["y"])]
    filters = z["weight_hwio"].reshape(1, 1, 64, 64).transpose(3, 2, 0, 1)
    model = layers(tmp_path / "conv_relu.onnx", nodes, {"x": [1, 64, 12, 12]}, [1, 64, 12, 12], w=filters, b=z["bias"])
    plan = calibrated(compile_model(model, "genesys"), {"x": image[None]}, "the published image")
    assert [o.mapping.name for o in plan.offloads] == ["genesys.conv2d_bias_relu"]
    (found,) = inferences(plan, {"x": image[None]})
    assert np.array_equal(found.outputs["y"][0], published)


@pytest.mark.shared
def test_published_sums_follow_from_their_onnx_layer_on_genesys(tmp_path: Path, shared_dir: Path) -> None:
    """`add`: 2,048 sums of int32, and a sum that wraps."""
    z = np.load(shared_dir / "golden/genesys/recorded/add/arrays.npz")
    nodes = [helper.make_node("Add", ["a", "b"], ["y"], name="sum")]
    model = layers(tmp_path / "add.onnx", nodes, {"a": [1, 2048], "b": [1, 2048]}, [1, 2048], kind=TensorProto.INT32)
    a, b, published = (z[name].reshape(1, 1, 2048) for name in ("op1", "op2", "out"))
    plan = calibrated(compile_model(model, "genesys", Options(on=("genesys=sum",))), {"a": a, "b": b}, "the published operands")
    assert [o.mapping.name for o in plan.offloads] == ["genesys.add_int32_2"]
    (found,) = inferences(plan, {"a": a, "b": b})
    assert np.array_equal(found.outputs["y"], published)
    a[0, 0, 0], b[0, 0, 0] = 2**31 - 1, 1
    (found,) = inferences(plan, {"a": a, "b": b})
    assert found.outputs["y"].reshape(-1)[0] == -(2**31)


def test_a_residual_block_runs_on_hvx(tmp_path: Path) -> None:
    """As ResNet-20 has it: convolutions, a sum with what went around them, ReLU, a mean of each channel, a classifier."""
    draw, around = np.random.default_rng(3), {"pads": [1, 1, 1, 1]}
    filters = {name: draw.normal(0, 0.2, (4, 4, 3, 3)) for name in ("v", "w")}
    vectors = {"c": draw.normal(0, 0.1, 4), "d": draw.normal(0, 0.1, 4), "m": draw.normal(0, 0.5, (6, 4)), "n": draw.normal(0, 0.1, 6)}
    nodes = [
        helper.make_node("Conv", ["x", "v", "c"], ["p"], **around), helper.make_node("Relu", ["p"], ["q"]),
        helper.make_node("Conv", ["q", "w", "d"], ["r"], **around), helper.make_node("Add", ["r", "x"], ["s"]),
        helper.make_node("Relu", ["s"], ["t"]), helper.make_node("AveragePool", ["t"], ["a"], kernel_shape=[5, 5]),
        helper.make_node("Flatten", ["a"], ["f"]), helper.make_node("Gemm", ["f", "m", "n"], ["y"], transB=1),
    ]  # fmt: skip
    model = layers(tmp_path / "residual.onnx", nodes, {"x": [1, 4, 5, 5]}, [1, 6], **filters, **vectors)
    plan = compile_model(model, "hvx", Options(objective="cycles"))
    assert set(plan.counts["hvx"]) == {"conv2d", "add", "relu", "average_pool", "dense"}
    samples = {"x": draw.normal(0, 1, (8, 1, 4, 5, 5)).astype(np.float32)}
    plan = calibrated(plan, samples, "drawn")
    y = np.stack([found.outputs["y"][0] for found in inferences(plan, {"x": samples["x"][:2]})])
    session = onnxruntime.InferenceSession(model)
    expected = np.stack([session.run(None, {"x": x})[0] for x in samples["x"][:2]])
    assert np.linalg.norm(y - expected) / np.linalg.norm(expected) < 0.04
