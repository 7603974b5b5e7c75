"""What formats do to tensors, counted by hand; isolated and cumulative errors; warnings about data."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from command import flexmatch, perceptron, samples

from rewrite_compiler.compile import compile_model
from rewrite_compiler.cosim import Settings, cosimulate
from rewrite_compiler.cosim.format_errors import OffloadNumerics, TensorNumerics, first_diverging, tensor_document
from rewrite_compiler.lang.formats import Fixed

SUM_OF_SQUARES = """
import numpy as np
from rewrite_compiler.cosim.format_errors import squared_norm
print(squared_norm(np.random.default_rng(5).normal(size=100_003)).hex())
"""


def test_sums_of_squares_have_the_same_bits_on_every_processor() -> None:
    """BLAS chooses code by its variables as it does by the processor: `np.vdot` of this array gives several values."""
    results = set()
    for variables in ({"OPENBLAS_CORETYPE": core, "OPENBLAS_NUM_THREADS": threads} for core in ("Haswell", "Prescott") for threads in "12"):
        command = [sys.executable, "-c", SUM_OF_SQUARES]
        results.add(subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, check=True).stdout)
    assert len(results) == 1


def test_a_tensor_by_hand() -> None:
    f = Fixed(4, 2, "half_even")  # −2 … 1.75 in steps of a quarter
    x = np.array([0.0, 0.1, -0.1, 0.3, 1.75, 1.8, 9.0, -2.0, -5.0])
    seen = OffloadNumerics()
    seen.add_operand("x", x, f)
    t = seen.tensors["x"]
    held = np.array([0, 0, 0, 0.25, 1.75, 1.75, 1.75, -2, -2])
    assert (t.values, t.zeros, t.underflowed) == (9, 1, 2)
    assert t.saturated == 3  # 1.8, 9 and −5; −2 is a code
    assert (t.low, t.high) == (-5.0, 9.0)
    found = tensor_document("x", f, t)
    assert found["relative_error"] == pytest.approx(np.linalg.norm(held - x) / np.linalg.norm(x))
    assert found["histogram"]["first_exponent"] == -4
    assert found["histogram"]["counts"] == [2, 0, 1, 0, 2, 1, 1, 1]  # 0.1 twice; 0.3; 1.75 and 1.8; 2; 5; 9
    assert sum(found["histogram"]["counts"]) == found["values"] - found["zeros"]


def test_parts_are_the_whole() -> None:
    f, x = Fixed(8, 5, "floor"), np.random.default_rng(0).normal(0, 3, 400)
    whole, parts = OffloadNumerics(), OffloadNumerics()
    whole.add_operand("x", x, f)
    for k in range(0, 400, 130):
        part = OffloadNumerics()
        part.add_operand("x", x[k : k + 130], f)
        part.add_cumulative_error(x[k : k + 130], x[k : k + 130] * 1.5)
        parts.merge(OffloadNumerics.from_record(part.to_record()))
    a, b = (vars(n.tensors["x"]) for n in (whole, parts))
    assert {k: v for k, v in a.items() if "squar" not in k} == {k: v for k, v in b.items() if "squar" not in k}
    assert sum(b["squared_errors"]) == pytest.approx(sum(a["squared_errors"]))
    assert parts.cumulative == pytest.approx(1 / 3)
    empty = tensor_document("x", f, TensorNumerics())
    assert (empty["relative_error"], empty["histogram"]) == (None, {"first_exponent": None, "counts": []})


def test_the_first_offload_far_from_float() -> None:
    errors = [("a", 0.01), ("b", None), ("c", 0.2), ("d", 0.5)]
    assert first_diverging(errors, 0.1) == {"offload": "c", "relative_error": 0.2, "threshold": 0.1}
    assert first_diverging(errors, 0.5) is None


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("numerics")
    onnx.save(perceptron((16, 12, 8, 4)), folder / "app.onnx")
    data = samples(folder / "data.npz", 20, 16)
    plan = compile_model(folder / "app.onnx", ["flexasr"], calibrate=data)
    return cosimulate(plan, data, settings=Settings(batch=3, threads=1)).document


def test_errors_add_up_from_offload_to_offload(report: Any) -> None:
    """The first offload gets the float run's operands: both of its errors are one; later ones carry what came before."""
    first, *_, last = report["offloads"]
    assert first["cumulative_error"] == pytest.approx(first["relative_error"], rel=1e-5)
    assert last["cumulative_error"] > last["relative_error"] > 0
    for o in report["offloads"]:
        tensors = {t["tensor"]: t for t in o["tensors"]}
        assert list(tensors) == ["w", "b", "x", "y"]
        assert tensors["x"]["values"] == 20 * {"linear_0": 16, "linear_1": 12, "linear_2": 8}[o["id"]]
        assert 0 < tensors["w"]["relative_error"] < 0.05
        assert tensors["y"]["relative_error"] == pytest.approx(o["relative_error"], rel=1e-9)


def test_targets_that_are_not_finite_are_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(perceptron((16, 4)), "app.onnx")
    with np.load(samples(Path("data.npz"), 40, 16)) as arrays:
        targets = np.zeros((40, 4), np.float32)
        targets[7, 2] = np.nan
        np.savez("data.npz", x=arrays["x"], targets=targets)
    answer = flexmatch("cosim", "app.onnx", "--accel", "flexasr", "--data", "data.npz", "--metric", "mse")
    assert answer.code == 0
    assert "warning" in answer.out
    assert "targets has 1 values that are not finite, the first at [7, 2]" in " ".join(answer.out.split())
