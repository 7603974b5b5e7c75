"""GeneSys's operations give what integers give, in tiles that the memories hold; a shipped application runs on them."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from quantised_models import residual_model

from rewrite_compiler.apps import find_application
from rewrite_compiler.compile import compile_model
from rewrite_compiler.cosim import Settings, cosimulate
from rewrite_compiler.ila import Ila
from rewrite_compiler.ila.simulation import read_sets, simulator
from rewrite_compiler.lang import Fixed
from rewrite_compiler.target import Mapping, Target, find_target, simulated_device
from rewrite_compiler.targets.genesys.base import config
from rewrite_compiler.targets.genesys.simd import Sweep

SMALL = "genesys:array_n=16,vmem_depth=2048"
Codes = np.ndarray[Any, Any]


@cache
def design(text: str) -> tuple[Target, Ila]:
    target = find_target(text)
    return target, target.ila()


def run(name: str, attributes: dict[str, Any] | None = None, **operands: Codes) -> Codes:
    target, ila = design(SMALL)
    m: Mapping = target.mappings[name]
    largest = dict.fromkeys(m.format_choices, 1.0)
    return np.asarray(m.run_driver(simulated_device(ila), operands, m.formats_for(largest), attributes or {}))


def drawn(seed: int, *shape: int, low: int = -128, high: int = 127) -> Codes:
    return np.random.default_rng(seed).integers(low, high + 1, shape)


def windows(x: Codes, kernel: int, stride: int) -> Codes:
    """Return the windows [b, c, u, v, r, s] of images."""
    return np.lib.stride_tricks.sliding_window_view(x, (kernel, kernel), axis=(2, 3))[:, :, ::stride, ::stride]


def test_elements() -> None:
    x, z = drawn(1, 1, 3, 40, 300), drawn(2, 1, 3, 40, 300)  # 36,000 elements: two tiles
    assert np.array_equal(run("add_4", x=x, z=z), x + z)
    assert np.array_equal(run("add_relu_4", x=x, z=z), np.maximum(x + z, 0))
    assert np.array_equal(run("relu_4", x=x), np.maximum(x, 0))
    assert np.array_equal(run("clip_2", {"low": -0.25, "high": 0.5}, x=x[0, 0]), np.clip(x[0, 0], -16, 32))  # codes of 1/64


def test_values_of_a_layer_are_counted_by_its_loops_though_it_clears_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The instruction that runs a layer ends with its loops cleared; what they count is known before it."""
    counts = []

    def counted(*arguments: Any) -> int:
        counts.append(read_sets.instruction_values(*arguments))
        return counts[-1]

    monkeypatch.setattr(simulator, "instruction_values", counted)
    target, ila = design(SMALL)
    m, (t, k, n) = target.mappings["dense"], (24, 32, 48)
    x, w = drawn(3, t, k).astype(np.int8), drawn(4, n, k).astype(np.int8)
    y = m.run_driver(simulated_device(ila, reading="native"), {"x": x, "w": w}, m.formats_for({"x": 1.0, "w": 1.0}), {})
    assert (np.asarray(y) == x.astype(np.int64) @ w.T.astype(np.int64)).all()
    assert t * k * n <= max(counts) <= 2 * t * k * n


def test_functions_are_near_what_they_are_named_after() -> None:
    x = np.arange(-128, 128)[None]
    target, _ = design(SMALL)
    f = target.mappings["sigmoid_2"].formats_for({"x": 8.0})
    assert f["y"] == Fixed(32, 16)
    m, real = target.mappings["sigmoid_2"], x * 2.0 ** -f["x"].fraction
    y = np.asarray(m.run_driver(simulated_device(design(SMALL)[1]), {"x": x}, f, {})) / 2.0**16
    assert np.abs(y - 1 / (1 + np.exp(-real))).max() < 0.02
    t = np.asarray(target.mappings["tanh_2"].run_driver(simulated_device(design(SMALL)[1]), {"x": x}, f, {})) / 2.0**16
    assert np.array_equal(t, np.clip(real, -1, 1))


@pytest.mark.parametrize("pad", [0, 1])
def test_pools(pad: int) -> None:
    x = drawn(3, 1, 37, 30, 30)  # of three blocks of channels one fits beside its results
    bordered = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)), constant_values=-128)
    at = {"kernel": (3, 3), "strides": (2, 2), "pads": (pad,) * 4}
    assert np.array_equal(run("max_pool", at, x=x), windows(bordered, 3, 2).max(axis=(-2, -1)))
    if not pad:
        mean = run("average_pool", {"kernel": (3, 3), "strides": (2, 2)}, x=x) / 2.0**8
        assert np.abs(mean - windows(x, 3, 2).mean(axis=(-2, -1))).max() < 0.02


def test_depthwise_convolutions() -> None:
    x, w, b = drawn(4, 1, 40, 60, 30, low=0, high=255), drawn(5, 40, 1, 3, 3), drawn(6, 40, low=-(1 << 31), high=(1 << 31) - 1)
    bordered = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=100) - 100
    sums = np.einsum("bcuvrs,crs->bcuv", windows(bordered, 3, 2), w[:, 0]) + b[:, None, None]
    at = {"strides": (2, 2), "pads": (1,) * 4, "group": 40, "x_zero": 100}
    assert np.array_equal(run("depthwise_bias_uint8", at, x=x, w=w, b=b), sums.astype(np.int32))  # they wrap


def test_codes_of_sums_are_the_nearest() -> None:
    x = drawn(7, 2, 21, 5, 7, low=-(1 << 20), high=1 << 20)
    x[0, 0, 0, 0], x[0, 1, 0, 0] = (1 << 31) - 1, -(1 << 31)
    factors, shifts = drawn(8, 21, low=1 << 22, high=(1 << 24) - 1), drawn(9, 21, low=30, high=54)
    exact = [
        [(v * m + (1 << n - 1)) >> n for v in x[:, c].reshape(-1).tolist()]  # of Python's integers, which do not wrap
        for c, (m, n) in enumerate(zip(factors.tolist(), shifts.tolist(), strict=True))
    ]
    want = np.clip(np.array(exact).reshape(21, 2, 5, 7).swapaxes(0, 1) + 3, 0, 250)
    at = {"multiplier": tuple(factors.tolist()), "shift": tuple(shifts.tolist()), "zero": 3, "low": 0, "high": 250}
    assert np.array_equal(run("requantise_uint8_4", at, x=x), want)


def test_sums_of_codes_are_the_nearest() -> None:
    x, z = drawn(10, 3, 50, low=0, high=255), drawn(11, 3, 50, low=0, high=255)
    at = {"multiplier": (11_184_811, 12_345_679), "shift": (24, 26), "zeros": (3, 100), "zero": 7, "low": 0, "high": 240}
    total = (x - 3) * (11_184_811 << 2) + (z - 100) * 12_345_679
    assert np.array_equal(run("quantized_add_uint8_2", at, x=x, z=z), np.clip((total + (1 << 25) >> 26) + 7, 0, 240))


def test_tiles_are_what_the_memories_hold() -> None:
    c = config(design(SMALL)[0].configured({}).values)
    m = Sweep(c, 2, 3, (32, 32), (3, 3), (2, 2), numbers=10, is_apart=True)
    assert m.tile == (2, 15)
    assert [(len(group), n, len(band)) for group, n, band in m.tiles] == [(2, 0, 15), (2, 1, 15), (1, 0, 15), (1, 1, 15)]
    banded = Sweep(c, 1, 3, (200, 32), (3, 3), (1, 1), is_apart=True)
    assert banded.tile == (1, 62)
    assert max(banded.needs(1, 62)) <= c.vmem_depth < max(banded.needs(1, 63))
    assert [len(band) for _, _, band in banded.tiles[:4]] == [62, 62, 62, 12]


def test_an_application_keeps_its_accuracy() -> None:
    app = find_application("digits_cnn")
    plan = compile_model(app.model, ["genesys"])
    settings = Settings(samples=24, batch=24, threads=1, audit=1, tier="arrays")
    found = cosimulate(plan, app.data, calibrate=app.calibration, settings=settings).document
    assert {o.mapping.operation for o in plan.offloads} >= {"conv2d", "dense", "max_pool"}
    assert found["paired"]["difference"] > -0.05
    assert all(o["validated_samples"] >= 1 for o in found["offloads"])
    assert found["run"]["fallbacks"] == []


def test_a_mobile_network_in_codes_is_on_the_device_but_for_its_ends(tmp_path: Path) -> None:
    plan = compile_model(residual_model(tmp_path / "residual.onnx", np.uint8), ["genesys"])
    kinds = Counter(o.mapping.variant for o in plan.offloads)
    whole = ("conv2d_uint8", "depthwise_bias_uint8", "max_pool_uint8", "depthwise_uint8", "quantized_add_uint8_4")
    assert kinds == {**dict.fromkeys(whole, 1), "requantise_uint8_4": 3}
    images = np.random.default_rng(7).standard_normal((6, 3, 14, 14)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=images, labels=np.zeros(6, np.int64))
    report = cosimulate(plan, tmp_path / "data.npz", metric="top1", settings=Settings(threads=1, audit=2, tier="arrays"))
    assert sum(o["differing_codes"] for o in report.document["offloads"]) == 0
    assert report.document["simulator"]["validated"] == len(plan.offloads)
    assert np.array_equal(report.accelerated["y"], report.reference["y"])
