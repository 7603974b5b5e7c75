"""Calibration methods: the magnitudes they take, and that the plan says so."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from command import flexmatch, perceptron, samples

from rewrite_compiler.compile import compile_model, read_plan
from rewrite_compiler.compile.formats.calibrate import _sampled_values, observed
from rewrite_compiler.compile.formats.range_methods import KEPT_VALUES, magnitude, method_of
from rewrite_compiler.errors import FlexmatchError
from rewrite_compiler.ir.program import Builder
from rewrite_compiler.ir.types import TensorType
from rewrite_compiler.lang.formats import Fixed, Format
from rewrite_compiler.readings.kernels.format_conversion import codes_of, values_of


def int8(largest: float) -> Format:
    """The binary point that holds a magnitude in eight bits."""
    return Fixed(8, 6 - int(np.floor(np.log2(largest))), "half_even")


def outliers(seed: int = 0) -> Any:
    x = np.random.default_rng(seed).normal(0, 0.2, 20_000)
    x[::4000] = 50.0
    return x


def test_one_outlier_does_not_widen_what_methods_choose() -> None:
    x = outliers()
    largest = float(np.abs(x).max())
    found = {m: magnitude(m, largest, x, int8) for m in ("max", "percentile", "mse", "entropy")}
    assert found["max"] == largest
    assert found["percentile"] == np.sort(np.abs(x))[int(np.ceil(0.999 * (len(x) - 1)))]
    assert found["percentile"] < 1
    assert found["entropy"] < largest


def test_mse_takes_the_candidate_with_the_least_error() -> None:
    x = np.random.default_rng(1).laplace(0, 1, 5000)
    largest = float(np.abs(x).max())

    def error(size: float) -> float:
        f = int8(size)
        return float(((values_of(f, codes_of(f, x)) - x) ** 2).sum())

    found = magnitude("mse", largest, x, int8)
    assert error(found) == min(error(largest * 2.0**-k) for k in range(8))


@pytest.mark.parametrize("method", ["percentile", "mse", "entropy"])
def test_nothing_to_clip(method: str) -> None:
    assert magnitude(method, 0.0, np.zeros(5), int8) == 0.0
    even = np.tile([0.5, -0.5], 50)
    f = int8(magnitude(method, 0.5, even, int8))
    assert values_of(f, codes_of(f, even)).tolist() == even.tolist()


def test_methods_are_read_and_named() -> None:
    m = method_of("mse, linear_0.w=percentile,linear_1.x=max")
    assert (m.of("linear_0", "x", is_constant=False), m.of("linear_0", "w", is_constant=True)) == ("mse", "percentile")
    assert (m.of("linear_1", "x", is_constant=False), m.of("linear_1", "w", is_constant=True)) == ("max", "max")
    assert not method_of("").needs_values
    with pytest.raises(FlexmatchError) as caught:
        method_of("best")
    assert str(caught.value) == (
        'error[F203]: a calibration method must be one of max, percentile, mse, entropy, not "best"\n'
        "  help: or OFFLOAD.TENSOR=METHOD for one tensor"
    )


def test_a_plan_says_how_every_tensor_was_calibrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(perceptron((16, 8, 4)), "app.onnx")
    data = samples(Path("calibration.npz"), 100, 16)
    with np.load(data) as arrays:
        x = arrays["x"].copy()
    x[0, 0] = 40
    np.savez("calibration.npz", x=x)
    command = ("app.onnx", "--accel", "flexasr", "--calibrate", "calibration.npz", "-o", "plan", "-q", "--calibration-method")
    assert flexmatch(*command, "percentile,linear_1.x=max").code == 0
    document = json.loads(Path("plan.json").read_bytes())
    rows = {(r["offload"], r["tensor"]): r for r in document["calibration"]["tensors"]}
    assert {k: r["method"] for k, r in rows.items() if k[1] != "w" and k[1] != "b"} == {
        ("linear_0", "x"): "percentile", ("linear_0", "y"): "percentile", ("linear_1", "x"): "max", ("linear_1", "y"): "percentile",
    }  # fmt: skip
    assert rows["linear_0", "x"]["magnitude"] < rows["linear_0", "x"]["largest"] == np.abs(x).max()
    assert document["calibration"]["method"].startswith(
        "magnitude that 99.9 % of the values of a float32 run do not exceed; linear_1.x: max; "
    )
    read = read_plan(Path("plan.json"))
    again = compile_model("app.onnx", ["flexasr"], calibrate="calibration.npz", calibration_method="percentile,linear_1.x=max")
    assert [o.formats for o in read.offloads] == [o.formats for o in again.offloads]
    assert read.calibration == again.calibration
    answer = flexmatch(*command, "linear_7.x=mse")
    assert answer.err.startswith('error[F203]: there is no tensor "linear_7.x" to calibrate')


@pytest.mark.parametrize(("count", "parts", "step"), [(100, 1, 1), (KEPT_VALUES, 1, 1), (4 * KEPT_VALUES, 1, 4), (KEPT_VALUES, 3, 3)])
def test_of_a_tensor_evenly_spaced_values_are_kept(count: int, parts: int, step: int) -> None:
    x = np.arange(count, dtype=np.float32)
    assert np.array_equal(_sampled_values(x.reshape(2, -1), parts), x[::step])


@pytest.mark.parametrize(
    ("live_bytes", "sizes"), [(0, [8, 2]), (12, [8, 2]), (13, [7, 3]), (30, [3, 3, 3, 1]), (100, [1] * 10), (900, [1] * 10)]
)
def test_as_many_samples_are_observed_at_once_as_fit_into_the_bytes(
    live_bytes: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    def ran(values: dict[int, Any]) -> dict[int, Any]:
        seen.append(values[x])
        return {}

    b = Builder("net")
    x = b.input("x", TensorType((1, 2)))
    p = b.finish(b.apply("relu", [x]))
    monkeypatch.setattr(importlib.import_module("rewrite_compiler.compile.formats.calibrate"), "MOST_BYTES", 100)
    data = np.arange(10 * 2, dtype=np.float32).reshape(10, 1, 2)
    run: Any = SimpleNamespace(lowered=p, live_bytes=live_bytes, requested=[], run=ran)
    plan: Any = SimpleNamespace(offloads=[])
    observed(plan, {"x": data}, run, batch=8)
    assert [len(values) for values in seen] == sizes
    assert np.concatenate(seen).tolist() == data.tolist()
