"""Operating range: what calibration samples drive out of an operation's range stays on the host, and what is far off is said."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from rewrite_compiler.compile import Options, Plan, compile_model, plan_of_document, to_json
from rewrite_compiler.compile.operating import relative_errors
from rewrite_compiler.cosim import cosimulate

FEATURES = 32


@pytest.fixture(scope="module")
def norm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a layer normalisation of 32 features."""
    ones, zeros = (numpy_helper.from_array(np.full(FEATURES, v, np.float32), n) for v, n in ((1, "scale"), (0, "bias")))
    tensors = [helper.make_tensor_value_info(n, TensorProto.FLOAT, (1, FEATURES)) for n in ("x", "y")]
    node = helper.make_node("LayerNormalization", ["x", "scale", "bias"], ["y"], name="norm")
    graph = helper.make_graph([node], "g", tensors[:1], tensors[1:], [ones, zeros])
    path = tmp_path_factory.mktemp("norm") / "norm.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def samples(deviation: float) -> dict[str, np.ndarray]:
    drawn = np.random.default_rng(1).normal(0, deviation, (16, 1, FEATURES))
    return {"x": drawn.astype(np.float32)}


def planned(norm: Path, deviation: float, *on: str) -> Plan:
    return compile_model(norm, "flexasr", Options(on=on), calibrate=samples(deviation))


@pytest.mark.parametrize("deviation", [3.0, 8.0])
def test_what_zeros_would_be_nearer_to_is_on_the_host_with_the_reason(norm: Path, deviation: float) -> None:
    plan = planned(norm, deviation)
    (note,) = plan.notes
    assert (plan.offloads, [h.node for h in plan.host]) == ((), ["norm"])
    assert note.startswith("flexasr.layer_norm is not used for norm: its result would be ")
    assert note.endswith("% off on calibration samples; --on flexasr=norm uses it even so")
    again = plan_of_document(to_json(plan), norm, "plan.json", ["flexasr"])
    assert (again.offloads, again.settings["on"]) == ((), ["host=norm"])


@pytest.mark.parametrize("deviation", [0.5, 1.0])
def test_what_is_in_range_is_used_without_a_word(norm: Path, deviation: float) -> None:
    plan = planned(norm, deviation)
    assert ([o.id for o in plan.offloads], plan.notes, plan.settings["on"]) == (["layer_norm_0"], (), [])


def test_what_is_wanted_there_is_used_and_said(norm: Path) -> None:
    plan = planned(norm, 8.0, "flexasr=norm")
    (error,) = relative_errors(plan, samples(8.0)).values()
    assert error > 1
    assert [o.id for o in plan.offloads] == ["layer_norm_0"]
    assert plan.notes == (f"more than 25% off on calibration samples: layer_norm_0 {100 * error:.3g}%",)


def test_errors_are_those_that_a_cosimulation_measures(norm: Path) -> None:
    few = {"x": samples(8.0)["x"][:4]}
    plan = planned(norm, 8.0, "flexasr=norm")
    (error,) = relative_errors(plan, few).values()
    (measured,) = cosimulate(plan, few).document["offloads"]
    assert measured["relative_error"] == pytest.approx(error, rel=1e-3)


def test_results_that_are_zeros_are_not_far_off(norm: Path) -> None:
    plan = compile_model(norm, "flexasr", calibrate={"x": np.full((4, 1, FEATURES), 2, np.float32)})
    assert ([o.id for o in plan.offloads], plan.notes) == (["layer_norm_0"], ())
