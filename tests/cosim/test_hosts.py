"""A report on the exact host says how onnxruntime's outputs differ from its own."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rewrite_compiler.apps import find_application
from rewrite_compiler.compile import calibrated, compile_model
from rewrite_compiler.cosim import Settings, cosimulate
from rewrite_compiler.cosim.cosimulate import dataset_for
from rewrite_compiler.cosim.metrics.host_comparison import compare_hosts, hosts_text
from rewrite_compiler.cosim.metrics.scores import Scores

SAMPLES = 6


def test_a_report_on_the_exact_host_compares_it_with_onnxruntime(tmp_path: Path) -> None:
    """The figures are those of two runs, one on each host; a run that goes on from its log says the same."""
    a = find_application("digits_cnn")
    plan = compile_model(a.model, ["hlscnn"])
    plan = calibrated(plan, dataset_for(plan, a.calibration).evenly(8).inputs, "calibration.npz", "")
    data = dataset_for(plan, a.data).evenly(SAMPLES)
    exact = cosimulate(plan, data, settings=Settings(host="exact", threads=1, batch=4))
    other = cosimulate(plan, data, settings=Settings(threads=1, batch=4))
    assert other.document["hosts"] is None
    found = exact.document["hosts"]
    x, y = (np.concatenate([v.reshape(SAMPLES, -1) for v in r.accelerated.values()], axis=1) for r in (exact, other))
    assert found == {
        "other": "onnxruntime", "value": other.document["accelerated"]["value"], "values": SAMPLES * 10,
        "differing_values": int((x != y).sum()), "differing_samples": int((x != y).any(axis=1).sum()),
        "largest_difference": float(np.abs(x.astype(float) - y.astype(float)).max()),
    }  # fmt: skip
    assert exact.document["notes"][-1] == hosts_text("exact", "top1", exact.document["accelerated"]["value"], found)
    for _ in range(2):
        logged = cosimulate(plan, data, settings=Settings(host="exact", threads=1, batch=4, log=tmp_path / "log"))
        assert logged.document["hosts"] == found
    assert logged.document["run"]["resumed_samples"] == SAMPLES
    assert all(0 < r.document["run"]["wall_seconds"] < 1000 for r in (exact, other))  # the last one ran nothing: it may round to 0


@pytest.mark.parametrize(
    ("count", "told"), [(0, "all 1,200 output values are equal"), (3, "3 of 1,200 output values differ, by at most 0.5")]
)
def test_hosts_that_differ_or_not_are_told_in_one_sentence(count: int, told: str) -> None:
    document = {"other": "onnxruntime", "value": None, "values": 1200, "differing_values": count, "largest_difference": 0.5}
    assert hosts_text("exact", "top-1", 0.25, document) == f"hosts exact and onnxruntime: {told}; top-1 is 0.25 and undefined"


@example([(math.nan, math.nan)])
@example([(math.nan, 1.0), (math.inf, math.inf), (math.nan, math.nan)])
@given(st.lists(st.tuples(*[st.floats(width=32, allow_subnormal=False)] * 2), min_size=1, max_size=6))
def test_values_that_are_no_numbers_are_equal(pairs: list[tuple[float, float]]) -> None:
    x, y = ({"y": np.array([p[k] for p in pairs], np.float32)[None]} for k in (0, 1))
    found = compare_hosts(x, y, Scores(np.zeros(1), np.ones(1)))
    differing = sum(a != b and not (a != a and b != b) for a, b in pairs)
    assert (found.values, found.differing, found.differing_samples) == (len(pairs), differing, int(differing > 0))
    assert (found.largest > 0) <= (differing > 0)
