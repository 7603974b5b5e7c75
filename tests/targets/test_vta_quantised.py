"""VTA for a quantised model's own integers: equal int32 sums, equal codes after requantisation, and whole models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from quantised_models import quantised_model, residual_model

import flexmatch
from rewrite_compiler.ir.evaluate import run_op
from rewrite_compiler.ops import OPS
from rewrite_compiler.ops.quantised import multiplier_of
from rewrite_compiler.prove.mappings.mappings import prove_mapping
from rewrite_compiler.target import Target, find_target, simulated_device

NAMES = [
    *(f"{kind}{bias}_{dtype}" for kind in ("dense", "conv2d", "depthwise") for bias in ("", "_bias") for dtype in ("int8", "uint8")),
    *(f"{kind}_{dtype}_{rank}" for kind in ("requantise", "quantized_add") for dtype in ("int8", "uint8") for rank in (2, 4)),
    "max_pool_int8", "max_pool_uint8",
]  # fmt: skip
PROVED_HERE = (
    "dense_bias_uint8",
    "conv2d_int8",
    "requantise_uint8_2",
    "depthwise_int8",
    "quantized_add_uint8_4",
)  # the campaign proves all


@pytest.fixture(scope="module")
def vta() -> Target:
    return find_target("vta")


def test_every_mapping_of_codes_is_there_and_priced(vta: Target) -> None:
    assert {n for n, m in vta.mappings.items() if not m.format_choices} == set(NAMES)
    assert all(vta.mappings[n].price is not None for n in NAMES)


@pytest.mark.parametrize("name", PROVED_HERE)
def test_the_driver_gives_the_numerics(vta: Target, name: str) -> None:
    proof = prove_mapping(vta.mappings[name], vta.ila())
    assert proof.verdict == "proved", proof.evidence


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_requantisation_gives_the_codes_of_its_meaning(vta: Target, dtype: str) -> None:
    random = np.random.default_rng(3)
    pairs = [multiplier_of(float(np.float32(x))) for x in 2.0 ** random.uniform(-20, -1.01, 19)]
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    given: dict[str, Any] = {
        "multiplier": tuple(m for m, _ in pairs), "shift": tuple(n for _, n in pairs), "zero": 7, "low": low, "high": high,
    }  # fmt: skip
    x = random.integers(-(2**31), 2**31, (1, 19, 9, 5)).astype(np.int32)
    x[..., 1:] >>= random.integers(0, 31, x[..., 1:].shape).astype(np.int32)  # of every size, around every tie
    m = vta.mappings[f"requantise_{dtype}_4"]
    found = m.run_driver(simulated_device(vta.ila()), {"x": x}, m.formats_for({}), given)
    (meant,) = run_op(OPS["requantize"], [x], {**given, "axis": 1, "to": dtype}, np.float64)
    assert np.array_equal(found, meant)


def test_a_tie_is_rounded_up_and_its_codes_are_counted(vta: Target) -> None:
    m = vta.mappings["requantise_int8_2"]
    given: dict[str, Any] = {"multiplier": (1 << 23,), "shift": (25,), "zero": 0, "low": -128, "high": 127}  # a quarter
    x = np.arange(-8, 9, dtype=np.int32)[None]
    found = m.run_driver(simulated_device(vta.ila()), {"x": x}, m.formats_for({}), given)
    assert found[0].tolist() == [int(np.floor(v / 4 + 0.5)) for v in range(-8, 9)]
    (meant,) = run_op(OPS["requantize"], [x], {**given, "axis": 1, "to": "int8"}, np.float64)
    assert np.count_nonzero(meant != found) == 2  # −1.5 and 0.5; −0.5 and 1.5 are even above


def test_factors_out_of_range_are_refused(vta: Target) -> None:
    m = vta.mappings["requantise_int8_2"]
    given = {"multiplier": (1 << 23,), "shift": (55,)}
    assert str(m.exceeded_limit({"a": 1, "b": 1}, given)) == "bits that a factor is shifted by 55, must be at most 54"
    given = {"multiplier": (1 << 23,), "shift": (24,)}
    assert str(m.exceeded_limit({"a": 1, "b": 1}, given)) == "bits that a factor is shifted by, short of 25 1, must be at most 0"
    hls = find_target("vta").configured({"behaviour": "hls"}).mappings["requantise_int8_2"]
    assert str(hls.exceeded_limit({"a": 1, "b": 1}, given)) == "multiplications of the ALU 1, must be at most 0"


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_a_sum_of_codes_is_that_of_its_meaning_for_all_pairs_of_codes(vta: Target, dtype: str) -> None:
    info, random = np.iinfo(dtype), np.random.default_rng(6)
    x, z = (a.astype(dtype) for a in np.meshgrid(*[np.arange(info.min, info.max + 1)] * 2))
    m = vta.mappings[f"quantized_add_{dtype}_2"]
    for scales in 2.0 ** random.uniform(-6, 2.9, (1, 2)):
        multiplier, shift = (tuple(n) for n in zip(*(multiplier_of(float(np.float32(s))) for s in scales), strict=True))
        given: dict[str, Any] = {"multiplier": multiplier, "shift": shift, "zeros": (3, -7 if info.min else 200), "zero": 11}
        given |= {"low": int(info.min), "high": int(info.max)}
        assert m.exceeded_limit({"a": 256, "b": 256}, given) is None
        found = m.run_driver(simulated_device(vta.ila()), {"x": x, "z": z}, m.formats_for({}), given)
        (meant,) = run_op(OPS["quantized_add"], [x, z], {**given, "to": dtype}, np.float64)
        assert np.array_equal(found, meant)


def test_codes_of_a_sum_that_lie_between_two_are_rounded_up_and_counted(vta: Target) -> None:
    m = vta.mappings["quantized_add_int8_2"]
    given: dict[str, Any] = {"multiplier": (1 << 23, 1 << 23), "shift": (24, 24), "zeros": (0, 0), "zero": 0, "low": -128, "high": 127}
    x = np.arange(-4, 5, dtype=np.int8)[None]
    found = m.run_driver(simulated_device(vta.ila()), {"x": x, "z": 0 * x}, m.formats_for({}), given)
    assert found[0].tolist() == [-2, -1, -1, 0, 0, 1, 1, 2, 2]
    (meant,) = run_op(OPS["quantized_add"], [x, 0 * x], {**given, "to": "int8"}, np.float64)
    assert np.count_nonzero(meant != found) == 2  # −3/2 and 1/2; −1/2 and 3/2 are even above


def test_factors_of_sums_out_of_range_are_refused(vta: Target) -> None:
    m = vta.mappings["quantized_add_int8_2"]
    refused = {
        (20, 20): "bits that a sum is shifted by, short of 21 1, must be at most 0",
        (51, 52): "bits that a sum is shifted by 52, must be at most 50",
        (24, 42): "bits of a factor over the common power of two 42, must be at most 41",
    }
    for shift, sentence in refused.items():
        assert str(m.exceeded_limit({"a": 1, "b": 1}, {"multiplier": (1 << 23, 1 << 23), "shift": shift})) == sentence


def test_a_pool_whose_row_does_not_fit_is_refused(vta: Target) -> None:
    m = vta.mappings["max_pool_int8"]
    given = {"kernel": (3, 3), "strides": (2, 2), "pads": (0, 0, 0, 0)}
    assert m.exceeded_limit({"i": 601, "j": 585}, given) is None
    assert str(m.exceeded_limit({"i": 601, "j": 587}, given)) == "accumulator elements of a band 2,054, must be at most 2,048"


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_a_quantised_model_gives_the_codes_of_the_host_on_the_device(tmp_path: Path, dtype: Any) -> None:
    name = np.dtype(dtype).name
    plan = flexmatch.compile(quantised_model(tmp_path / "quantised.onnx", dtype), accel=["vta"])
    assert sorted(o.mapping.variant for o in plan.offloads) == sorted(
        [f"conv2d_bias_{name}", f"dense_{name}", f"requantise_{name}_2", f"requantise_{name}_4"]
    )
    assert plan.calibrated
    images = np.random.default_rng(5).standard_normal((24, 3, 8, 8)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=images, labels=np.zeros(24, np.int64))
    report = flexmatch.cosimulate(plan, tmp_path / "data.npz", metric="top1", batch=12, threads=1)
    assert report.document["samples"] == 24
    assert [(o["differing_codes"], o["max_abs_error"]) for o in report.document["offloads"]] == [(0, 0.0)] * 4
    assert np.array_equal(report.accelerated["y"], report.reference["y"])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_a_depthwise_network_with_sums_and_pools_is_on_the_device_but_for_its_ends(tmp_path: Path, dtype: Any) -> None:
    name = np.dtype(dtype).name
    plan = flexmatch.compile(residual_model(tmp_path / "residual.onnx", dtype), accel=["vta"])
    whole = [f"{kind}_{name}" for kind in ("conv2d", "depthwise_bias", "max_pool", "depthwise")]
    each = [f"{kind}_{name}_4" for kind in ("requantise", "requantise", "quantized_add", "requantise")]
    assert sorted(o.mapping.variant for o in plan.offloads) == sorted(whole + each)
    images = np.random.default_rng(7).standard_normal((6, 3, 14, 14)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=images, labels=np.zeros(6, np.int64))
    report = flexmatch.cosimulate(plan, tmp_path / "data.npz", metric="top1", threads=1)
    assert sum(o["differing_codes"] for o in report.document["offloads"]) == 0
    assert np.array_equal(report.accelerated["y"], report.reference["y"])


def test_float_operations_do_not_take_codes(tmp_path: Path) -> None:
    plan = flexmatch.compile(quantised_model(tmp_path / "quantised.onnx", np.int8), accel=["flexasr", "hlscnn"])
    assert not plan.offloads
