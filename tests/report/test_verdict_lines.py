"""The first screen marks what a designer must look at: offloads that are far off although the metric holds, and those that are slow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from command import flexmatch
from onnx import TensorProto, helper, numpy_helper

from rewrite_compiler.report.page.headline import tiles
from rewrite_compiler.report.page.verdict import verdict_lines
from rewrite_compiler.report.terminal import inaccurate_text

NANOSECONDS = {"slower": (4_120, 700, "0.17"), "faster": (700, 84_000, "120"), "as fast": (700, 700, "1")}


def plan_with(offloads: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "offloads": offloads, "host": [], "extraction": {"cost": {"host_macs": 0}, "status": "optimal"}, "uncounted": [], "limited": [],
        "notes": [], "counts": {}, "lowered_counts": {}, "exact_counts": {}, "targets": [], "model": {"ops": 1},
    }  # fmt: skip


def marks(plan: dict[str, Any], cosim: dict[str, Any] | None) -> dict[str, tuple[str, str]]:
    figures = {t.label.lower(): (t.mark, " ".join((t.figure, *t.reasons[:1]))) for t in tiles(plan, cosim)}
    return {**figures, **{what: (mark, text) for mark, what, text in verdict_lines(plan, cosim)}}


def cosim_with(**errors: float | None) -> dict[str, Any]:
    return {
        "metric": "top1", "samples": 40, "accelerated": {"value": 1.0}, "reference": {"value": 1.0},
        "paired": {"interval": [-0.1, 0.1], "difference": 0.0}, "simulator": {"validated": 1, "audited": 8},
        "offloads": [{"id": name, "relative_error": e, "saturated": 0.0} for name, e in errors.items()],
    }  # fmt: skip


@pytest.mark.parametrize("case", NANOSECONDS)
def test_the_cost_is_against_one_host_core(case: str) -> None:
    device, host, ratio = NANOSECONDS[case]
    cost = {"cycles": 2060, "transfer_cycles": 2009, "bytes": 4592, "nanoseconds": device, "host_nanoseconds": host, "estimated": False}
    plan = plan_with([{"id": "a", "target": "t", "operation": "linear", "macs": 1, "cost": cost}])
    mark, text = marks(plan, None)["speed"]
    assert mark == ("✗" if case == "slower" else "✓")
    assert text.startswith(f"{ratio}× {case if case == 'as fast' else f'{case} than'} ")


@pytest.mark.parametrize(
    ("interval", "mark", "said"),
    [
        ([-0.1, 0.1], "✓", "no loss is shown; it may be up to 0.10"),
        ([-0.2, -0.1], "✗", "a loss of at least 0.10 is shown"),
        ([0.1, 0.2], "✓", "a gain is shown"),
        (None, "!", "no interval, so a difference may be chance"),
    ],
)
def test_the_accuracy_is_marked_by_what_its_interval_shows(interval: list[float] | None, mark: str, said: str) -> None:
    found = cosim_with(a=0.01)
    accuracy = tiles(plan_with([]), {**found, "paired": {**found["paired"], "interval": interval}})[0]
    assert (accuracy.mark, accuracy.reasons[0]) == (mark, f"top1 on 40 samples: {said}")


def test_what_is_offloaded_is_marked_by_its_share_of_the_work() -> None:
    few = [{"id": "a", "target": "t", "operation": "linear", "macs": 1}]
    assert (tiles(plan_with([]), None)[1].mark, tiles(plan_with(few), None)[1].mark) == ("✗", "✓")
    half = {**plan_with(few), "extraction": {"cost": {"host_macs": 1}}}
    assert (tiles(half, None)[1].mark, tiles(half, None)[1].figure) == ("!", "50.0%")


def test_an_offload_that_is_far_off_is_marked_although_the_metric_holds() -> None:
    plan = plan_with([])
    assert marks(plan, cosim_with(a=0.25, b=None))["accuracy"][0] == "✓"
    assert "far off" not in marks(plan, cosim_with(a=0.25, b=None))
    said = marks(plan, cosim_with(a=0.01, b=3.2, c=0.26, d=None))
    assert said["accuracy"][0] == "!"
    assert said["far off"] == ("!", "2 offloads by more than 25% of the exact result: b 320%, c 26%")


def test_only_the_worst_are_named() -> None:
    errors = [{"id": f"n{k}", "relative_error": k / 2} for k in range(7)]
    assert inaccurate_text(errors) == "6 offloads by more than 25% of the exact result: n6 300%, n5 250%, n4 200% and 3 more"


@pytest.mark.parametrize(("deviation", "is_rescaled"), [(0.5, False), (8.0, True)])
def test_a_layer_norm_outside_of_its_range_is_rescaled_and_named(
    deviation: float, is_rescaled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FlexASR sums squares in a word that wraps: large inputs would give nonsense."""
    monkeypatch.chdir(tmp_path)
    constants = [numpy_helper.from_array(f(32).astype(np.float32), n) for n, f in (("g", np.ones), ("b", np.zeros))]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, (4, 32)) for n in "xy")
    norm = helper.make_node("LayerNormalization", ["x", "g", "b"], ["y"], axis=-1, epsilon=1e-5)
    graph = helper.make_graph([norm], "norm", [x], [y], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "norm.onnx")
    np.savez("data.npz", x=np.random.default_rng(0).normal(0, deviation, (8, 4, 32)).astype(np.float32))
    answer = flexmatch("cosim", "norm.onnx", "--accel", "flexasr", "--data", "data.npz", "--calibrate", "data.npz", "--metric", "cosine")
    assert answer.code == 0, answer.err
    assert "far off" not in answer.out
    said = " ".join(answer.out.split())
    assert ("layer_norm_0 computes on operands times powers of two, x · 2^-3, epsilon · 2^-6: " in said) == is_rescaled
