"""HLSCNN convolutions: the instruction stream on the model gives the numerics, and both give the golden results."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from command import onnx_model
from onnx import helper, numpy_helper
from vectors import arrays, traces

from rewrite_compiler.compile import compile_model
from rewrite_compiler.cosim import cosimulate
from rewrite_compiler.errors import SpecError
from rewrite_compiler.ila import Ila
from rewrite_compiler.ila.mmio import assemble
from rewrite_compiler.ila_models.hlscnn import REVISIONS
from rewrite_compiler.lang import leaf
from rewrite_compiler.prove.mappings.mappings import code_difference
from rewrite_compiler.readings.kernels.evaluate import evaluate
from rewrite_compiler.readings.kernels.format_conversion import codes_of
from rewrite_compiler.target import SimulatedDevice
from rewrite_compiler.targets.hlscnn import (
    Geometry,
    commands,
    conv2d_codes,
    drive_conv2d,
    formats,
    limits,
    operands_of,
    passes,
    target,
    weight_vectors,
)

TRACES, RESULTS = traces("hlscnn"), arrays("hlscnn", "results.npz")


@cache
def model(revision: str) -> Ila:
    return target.configured({"revision": revision}).ila()


def numerics(x: np.ndarray, w: np.ndarray, g: Geometry, revision: str, before: np.ndarray | None = None) -> np.ndarray:
    p = REVISIONS[revision]
    xs, ws = operands_of(g, p)
    start = None if before is None else leaf("before", before.shape, (-(1 << 15), (1 << 15) - 1))
    given = {xs: x, ws: w} | ({} if before is None or start is None else {start: before})
    return evaluate(conv2d_codes(xs, ws, g, p, start), given)


def device(revision: str, samples: int = 0) -> SimulatedDevice:
    return SimulatedDevice(model(revision).simulator(strict=True, samples=samples))


SIZES = {
    "one of everything": Geometry(1, 1, 1, 1, (1, 1)),
    "3×3": Geometry(16, 9, 8, 16, (3, 3)),
    "ragged": Geometry(19, 7, 10, 13, (3, 2), (2, 3)),
    "pointwise": Geometry(40, 5, 5, 24, (1, 1)),
    "large stride": Geometry(3, 15, 15, 9, (7, 7), (7, 4)),
    "bias": Geometry(9, 6, 6, 10, (3, 3), bias=-4321),
    "ReLU": Geometry(9, 6, 6, 10, (3, 3), relu=True),
    "bias and ReLU": Geometry(24, 6, 6, 3, (2, 2), (2, 2), bias=9999, relu=True),
}


def codes(rng: np.random.Generator, g: Geometry, revision: str, samples: tuple[int, ...] = ()) -> tuple[np.ndarray, np.ndarray]:
    """Small and extreme codes mixed, so that some steps saturate and others do not."""
    made = []
    for name, shape in (("x", (*samples, g.channels, g.rows, g.cols)), ("w", (g.filters, g.channels, *g.kernel))):
        low, high = formats(REVISIONS[revision])[name].codes
        small = rng.integers((low or 0) // 64, (high or 0) // 64 + 1, shape)
        made.append(np.where(rng.random(shape) < 0.1, rng.choice([low, high], shape), small))
    return made[0], made[1]


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("case", SIZES)
def test_stream_gives_the_numerics(case: str, revision: str) -> None:
    g = SIZES[case]
    x, w = codes(np.random.default_rng(11), g, revision)
    assert np.array_equal(drive_conv2d(device(revision), x, w, g, REVISIONS[revision]), numerics(x, w, g, revision))


@pytest.mark.parametrize("revision", REVISIONS)
def test_samples(revision: str) -> None:
    g = SIZES["ragged"]
    x, w = codes(np.random.default_rng(12), g, revision, (3,))
    found = drive_conv2d(device(revision, 3), x, w, g, REVISIONS[revision])
    assert found.shape == (3, 13, *g.out)
    for n in range(3):
        assert np.array_equal(found[n], numerics(x[n], w, g, revision))


@pytest.mark.parametrize("revision", ["ext8", "ext16"])
def test_channels_in_parts(revision: str) -> None:
    """Blocks of input channels in two calls with accumulation give the bits of one call."""
    whole = Geometry(24, 6, 6, 10, (3, 3), bias=777, relu=True)
    x, w = codes(np.random.default_rng(13), whole, revision)
    used, p = device(revision), REVISIONS[revision]
    drive_conv2d(used, x[:16], w[:, :16], replace(whole, channels=16, bias=None, relu=False), p)
    last = replace(whole, channels=8, accumulate=True)
    found = drive_conv2d(used, x[16:], w[:, 16:], last, p)
    assert np.array_equal(found, numerics(x, w, whole, revision))
    first = numerics(x[:16], w[:, :16], replace(whole, channels=16, bias=None, relu=False), revision)
    assert np.array_equal(found, numerics(x[16:], w[:, 16:], last, revision, first))


# -- golden results


def geometry_of(conv: dict[str, Any]) -> Geometry:
    channels, rows, cols = conv["inp"]
    return Geometry(
        channels, rows, cols, conv["filters"], tuple(conv["kernel"]), tuple(conv["stride"]), conv["bias"], bool(conv["relu"]),
        bool(conv["accum"]),
    )  # fmt: skip


ONE = sorted(n for n, t in TRACES.items() if len(t["convs"]) == 1)


@pytest.mark.parametrize("name", ONE)
def test_golden_result(name: str) -> None:
    """What the designs computed, by the numerics and by the stream."""
    revision, g = TRACES[name]["design"], geometry_of(TRACES[name]["convs"][0])
    x, w, y = (RESULTS[f"{name}.{k}"].astype(np.int64) for k in ("act", "wgt", "out"))
    assert np.array_equal(numerics(x, w, g, revision), y)
    assert np.array_equal(drive_conv2d(device(revision), x, w, g, REVISIONS[revision]), y)


@pytest.mark.parametrize("revision", sorted({t["design"] for t in TRACES.values()}))
def test_golden_result_in_two_passes(revision: str) -> None:
    name = f"{revision}__accum_two_pass"
    used, y = device(revision), None
    for n, conv in enumerate(TRACES[name]["convs"], 1):
        x, w = (RESULTS[f"{name}.{k}_pass{n}"].astype(np.int64) for k in ("act", "wgt"))
        g = geometry_of(conv)
        y = numerics(x, w, g, revision, y)
        found = drive_conv2d(used, x, w, g, REVISIONS[revision])
    assert np.array_equal(y, RESULTS[f"{name}.out"])
    assert np.array_equal(found, RESULTS[f"{name}.out"])


@pytest.mark.parametrize("name", ["ext8__layer_c16_f16_14x14_float", "ext16__layer_c16_f16_14x14_float"])
def test_host_conversion(name: str) -> None:
    f = formats(REVISIONS[TRACES[name]["design"]])
    assert np.array_equal(codes_of(f["x"], RESULTS[f"{name}.act_float"]), RESULTS[f"{name}.act"])
    assert np.array_equal(codes_of(f["w"], RESULTS[f"{name}.wgt_float"]), RESULTS[f"{name}.wgt"])


# -- the stream as the published driver writes it


def test_stream_is_the_published_one() -> None:
    """The assembled writes of one layer are those of its golden trace: the same bytes in SoC memory, the same registers."""
    trace = TRACES["ext8__k3s2_c16_f9"]
    g = geometry_of(trace["convs"][0])
    x, w = (RESULTS[f"{trace['name']}.{k}"] for k in ("act", "wgt"))
    data, registers = {}, {}
    for name, operands in commands(x, w, g, REVISIONS["ext8"]):
        for command in assembled(name, operands):
            place = data if command["virtual"] else registers
            place[command["addr"]] = command.get("data", 0)
    golden = [(int(a, 16), int(d, 16), v) for mode, a, d, v in trace["trace"] if mode == "W"]
    assert data == {a: d for a, d, v in golden if v}
    fill, trigger = 0x4000, 0x3200_0044
    wanted = {a: d for a, d, v in golden if not v}
    assert {a: d for a, d in registers.items() if a not in (fill, trigger)} == {a: d for a, d in wanted.items() if a not in (fill, trigger)}
    assert {fill, trigger} <= registers.keys() & wanted.keys()


def assembled(name: str, operands: dict[str, Any]) -> list[dict[str, int]]:
    instruction = model("ext8").instructions[name]
    rows = {k: v for k, v in operands.items() if isinstance(v, np.ndarray)}
    count = len(next(iter(rows.values()))) if rows else 1
    commands = []
    for n in range(count):
        values = {k: number(rows[k][n]) if k in rows else v for k, v in operands.items()}
        commands.append({"virtual": 0, **assemble(instruction, **values)})
    return commands


def number(row: np.ndarray) -> int:
    return int(row) if row.ndim == 0 else int.from_bytes(row.tobytes(), "little")


# -- capacities

EXCEEDED = {
    "filters": ("ext8", Geometry(8, 2, 2, 2048, (1, 1)), "filters 2,048, must be at most 2,047"),
    "channels": ("ext8", Geometry(2048, 2, 2, 1, (1, 1)), "input channels 2,048, must be at most 2,047"),
    "rows": ("orig", Geometry(8, 1024, 1, 1, (1, 1)), "rows or columns 1,024, must be at most 1,023"),
    "kernel": ("ext8", Geometry(8, 300, 300, 1, (256, 1)), "kernel size 256, must be at most 255"),
    "stride": ("ext8", Geometry(8, 30, 30, 1, (1, 1), (8, 1)), "stride 8, must be at most 7"),
    "weights": ("orig", Geometry(256, 7, 7, 64, (3, 3)), "bytes of SPAD0 147,456, must be at most 131,072"),
    "outputs": ("orig", Geometry(8, 32, 33, 8, (3, 3)), "bytes of SPAD1 135,168, must be at most 131,072"),
    "inputs": ("orig", Geometry(256, 20, 20, 1, (3, 3)), "bytes of SoC memory 207,360, must be at most 196,608"),
    "shared": ("uni16", Geometry(64, 31, 31, 8, (3, 3)), "bytes of SPAD1 136,464, must be at most 131,072"),
}


@pytest.mark.parametrize("case", EXCEEDED)
def test_limit(case: str) -> None:
    revision, g, sentence = EXCEEDED[case]
    assert sentence in [str(x) for x in limits(g, REVISIONS[revision]) if not x.holds]


@pytest.mark.parametrize("revision", REVISIONS)
def test_largest_number_of_filters_that_fits_runs(revision: str) -> None:
    """At the edge of a scratchpad the strict simulator accepts the layer; one filter more it would not."""
    p = REVISIONS[revision]
    g = Geometry(8, 16, 16, 1, (1, 1))
    most = next(n for n in range((1 << p.filter_bits) - 1, 0, -1) if all(x.holds for x in limits(replace(g, filters=n), p)))
    g = replace(g, filters=most)
    x, w = codes(np.random.default_rng(14), g, revision)
    assert np.array_equal(drive_conv2d(device(revision), x, w, g, p), numerics(x, w, g, revision))


def test_weights_that_do_not_fill_a_vector() -> None:
    w = np.arange(-4, 4).reshape(1, 8, 1, 1)
    assert weight_vectors(w, REVISIONS["ext8"]).tolist() == [[252, 253, 254, 255, 0, 1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0]]


# -- mappings: bias, ReLU, batch, channels in passes

VARIANTS = ("conv2d", "conv2d_relu", "conv2d_bias", "conv2d_bias_relu")


def trial(n: int, c: int, size: int, kernel: int, batch: int = 1) -> dict[str, Any]:
    out = size - kernel + 3
    return {
        "b": batch, "n": n, "c": c, "i": size, "j": size, "r": kernel, "s": kernel, "u": out, "v": out,
        "strides": (1, 1), "pads": (1, 1, 1, 1),
    }  # fmt: skip


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_mapping_gives_its_numerics(variant: str, revision: str) -> None:
    chosen = target.configured({"revision": revision}).mappings[variant]
    assert code_difference(chosen, model(revision), trial(9, 11, 5, 3, batch=2)) is None


# channels in passes: the weights of one do not fit the scratchpad, or the register of channels is too narrow
IN_PASSES = {"orig": (72, 280, 3, 3), "uni16": (40, 240, 3, 3), "ext8": (1, 2056, 2, 1)}


@pytest.mark.parametrize("revision", IN_PASSES)
def test_channels_take_as_many_passes_as_fit(revision: str) -> None:
    n, c, size, kernel = IN_PASSES[revision]
    chosen = target.configured({"revision": revision}).mappings["conv2d_bias_relu"]
    g = Geometry(c, size + 2, size + 2, n, (kernel, kernel))
    parts = passes(g, REVISIONS[revision], starts=True)
    assert (len(parts), parts[0].start, parts[0].stop, parts[1].stop) == (2, 0, parts[1].start, c)
    assert any(not x.holds for x in limits(g, REVISIONS[revision]))
    assert code_difference(chosen, model(revision), trial(n, c, size, kernel)) is None


def test_outputs_start_at_the_bias_of_their_filter() -> None:
    """Not at another filter's, and not after a rounding: the bias is a word of the activations."""
    chosen = target.configured({}).mappings["conv2d_bias"]
    made = chosen.formats_for(dict.fromkeys(chosen.format_choices, 1.0))
    x, w, b = np.zeros((1, 8, 2, 2), np.int64), np.ones((10, 8, 1, 1), np.int64), np.arange(10) * 1000 - 5000
    found = chosen.run_driver(device("ext8"), {"x": x, "w": w, "b": b}, made, {"strides": (1, 1), "pads": (0, 0, 0, 0)})
    assert np.array_equal(found, np.broadcast_to(b[None, :, None, None], (1, 10, 2, 2)))
    assert made["b"] == made["y"]


def test_a_layer_with_bias_and_relu_is_one_offload(tmp_path: Path) -> None:
    """Of a batch of three images, too; its results are within what the formats cost."""
    random = np.random.default_rng(3)
    constants = [
        numpy_helper.from_array(random.normal(0, 0.2, (5, 4, 3, 3)).astype(np.float32), "w"),
        numpy_helper.from_array(random.normal(0, 1, 5).astype(np.float32), "b"),
    ]
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]), helper.make_node("Relu", ["c"], ["y"])]
    onnx.save(onnx_model(nodes, {"x": [3, 4, 7, 7]}, ["y"], constants), tmp_path / "layer.onnx")
    plan = compile_model(tmp_path / "layer.onnx", ["hlscnn:revision=ext16"])
    assert [(o.mapping.name, o.tiling.calls) for o in plan.offloads] == [("hlscnn.conv2d_bias_relu", 1)]
    np.savez(tmp_path / "x.npz", x=random.normal(0, 1, (4, 3, 4, 7, 7)).astype(np.float32))
    report = cosimulate(plan, tmp_path / "x.npz", calibrate=tmp_path / "x.npz")
    assert all(o["relative_error"] < 0.02 for o in report.document["offloads"])


@pytest.mark.parametrize(
    ("filters", "kernel", "size", "sentence"),
    [
        (2048, 1, 1, "filters of a convolution must be at most 2,047, not 2,048"),
        (1, 256, 256, "kernel size of a convolution must be at most 255, not 256"),
        (1, 1, 1024, "rows or columns of a convolution must be at most 1,023, not 1,024"),
    ],
)
def test_a_driver_without_its_guard_names_the_limit(filters: int, kernel: int, size: int, sentence: str) -> None:
    m, w = target.configured({}).mappings["conv2d"], np.zeros((filters, 1, kernel, kernel), np.int64)
    chosen = m.formats_for(dict.fromkeys(m.format_choices, 1.0))
    operands = {"x": np.zeros((1, 1, size, size), np.int64), "w": w}
    with pytest.raises(SpecError) as refusal:
        m.run_driver(None, operands, chosen, {"strides": (1, 1), "pads": (0, 0, 0, 0)})
    assert (refusal.value.problem.code, refusal.value.problem.sentence) == ("I114", sentence)
