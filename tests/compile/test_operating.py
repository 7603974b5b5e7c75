"""Operating range: what calibration samples drive out of an operation's range is rescaled by a proved law, else it stays on the host."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from rewrite_compiler.apps import find_application
from rewrite_compiler.compile import Options, Plan, compile_model, operating, plan_of_document, rescaling, to_json
from rewrite_compiler.compile.formats.calibrate import calibration_run, observed
from rewrite_compiler.compile.operating import relative_errors
from rewrite_compiler.compile.rescaling import Scaling, _is_about_ranks, law_of, scalings, tensor_exponents
from rewrite_compiler.cosim import cosimulate
from rewrite_compiler.data import samples_for
from rewrite_compiler.errors import UsageError
from rewrite_compiler.ops.static import HasType, TermIsTrue
from rewrite_compiler.prove.rules.rules import prove_rule
from rewrite_compiler.prove.verdict import Theorem
from rewrite_compiler.rewrite.ruleset import shipped_rules
from rewrite_compiler.target import find_target

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


@pytest.fixture
def no_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no operation have a scaling."""
    monkeypatch.setattr(rescaling, "scalings", lambda m: [])


@pytest.mark.parametrize(("deviation", "exponent"), [(3.0, -2), (8.0, -3), (0.01, 3)])
def test_what_is_out_of_range_is_rescaled_by_a_proved_law(norm: Path, deviation: float, exponent: int) -> None:
    plan = planned(norm, deviation)
    (o,), (note,) = plan.offloads, plan.notes
    scaled = f"x · 2^{exponent}, epsilon · 2^{2 * exponent}"
    assert note.startswith(f"layer_norm_0 computes on operands times powers of two, {scaled}: ")
    assert plan.settings["scaled"] == [f"layer_norm_0: x{exponent:+}"]
    assert dict(o.node.attributes)["epsilon"] == 1e-5 * 4.0**exponent
    assert (o.because[-1].rule.startswith("layer-norm-on-x"), o.because[-1].covers) == (True, "all shapes")
    assert [n.op for n in plan.program.nodes] == ["mul", "flexasr.layer_norm"]
    assert [row["for"] for row in to_json(plan)["inserted"]] == [["layer_norm_0"]]
    (measured,) = cosimulate(plan, samples(deviation)).document["offloads"]
    assert measured["relative_error"] < 0.1
    again = plan_of_document(to_json(plan), norm, "plan.json", ["flexasr"])
    assert to_json(again)["offloads"] == to_json(plan)["offloads"]


def test_samples_after_the_first_few_count_too(norm: Path) -> None:
    mixed = {"x": np.concatenate([samples(0.5)["x"], samples(8.0)["x"]])}
    plan = compile_model(norm, "flexasr", calibrate=mixed)
    assert [text.partition(":")[0] for text in plan.settings["scaled"]] == ["layer_norm_0"]
    (measured,) = cosimulate(plan, mixed).document["offloads"]
    assert measured["relative_error"] < 0.1


def test_a_law_that_does_not_hold_is_not_proved(norm: Path) -> None:
    (o,) = compile_model(norm, "flexasr").offloads
    epsilon_too = law_of(o, Scaling({"x": 1}, {"epsilon": 2}, 0), -3)
    assert prove_rule(epsilon_too).is_proved
    assert rescaling._reason(o, Scaling({"x": 1}, {"epsilon": 2}, 0), -3)
    for wrong in (Scaling({"x": 1}, {"epsilon": 1}, 0), Scaling({"g": 1}, {}, 1), Scaling({"g": 1, "b": 1}, {}, 0)):
        assert not prove_rule(law_of(o, wrong, -3)).is_proved
        assert rescaling._reason(o, wrong, -3) is None


def test_a_law_is_used_up_to_the_ranks_it_is_proved_for_and_of_no_integers(norm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (o,) = compile_model(norm, "flexasr").offloads
    scaling, rank = Scaling({"x": 1}, {"epsilon": 2}, 0), max(map(len, o.shapes))
    for ranks, is_used in ((None, True), (rank, True), (rank - 1, False)):
        monkeypatch.setattr(rescaling, "_theorem", lambda _, ranks=ranks: Theorem("this test", ranks))
        assert bool(rescaling._reason(o, scaling, -3)) is is_used
    monkeypatch.undo()
    integers = tuple(HasType(v, ("int32",)) for v in o.mapping.operands)
    of_integers = replace(o, mapping=replace(o.mapping, rule=replace(o.mapping.rule, where=(*o.mapping.rule.where, *integers))))
    assert rescaling._reason(of_integers, scaling, -3) is None


def test_a_scaling_without_effect_is_taken_back(norm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Formats of a plan are calibrated by a method that may clip what a scaling gains: here the error stays."""
    monkeypatch.setattr(operating, "_errors", lambda plan, _: {o.id: 0.5 for o in plan.offloads})
    plan = planned(norm, 3.0)
    assert (len(plan.offloads), plan.settings["scaled"]) == (1, [])
    assert plan.notes == ("more than 25% off on calibration samples: layer_norm_0 50%",)


def test_an_unproved_law_is_not_used(norm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rescaling, "_reason", lambda *_: None)
    assert planned(norm, 3.0).offloads == ()


def test_scalings_follow_from_the_pattern() -> None:
    mappings = find_target("flexasr").mappings
    found = {
        n: [f"{s} → {s.result}" for s in scalings(mappings[n])] for n in ("attention", "linear_sigmoid", "linear_relu", "max_pool", "lstm")
    }
    assert found == {
        "attention": ["q+1 e-1 → -1"], "linear_sigmoid": ["x+1 w-1 → 0"], "max_pool": ["x+1 → 1"], "lstm": ["x+1 w-1 → 0"],
        "linear_relu": ["w+1 b+1 → 1", "x+1 b+1 → 1", "x+1 w-1 → 0"],
    }  # fmt: skip
    assert [f"{s} → {s.result}" for s in scalings(mappings["layer_norm"])] == [
        "x+1 → 0", "g+1 b+1 → 1", "x+1 g+1 b+1 → 1", "x+1 g-1 b-1 → -1",
    ]  # fmt: skip
    for name in ("dense_int8", "max_pool_int8"):
        assert scalings(find_target("vta").mappings[name]) == []  # a model's own codes have their scales


def test_a_result_is_scaled_back(norm: Path) -> None:
    """A layer whose input and bias are doubled, and whose result is halved, gives what it gave."""
    app = find_application("digits_mlp")
    plans = [
        compile_model(app.model, "flexasr", Options(scaled=scaled), calibrate=app.calibration) for scaled in ((), ("linear_2: x+1 b+1",))
    ]
    assert [n.op for n in plans[1].program.nodes].count("mul") == 2
    plain, scaled = (cosimulate(p, app.data, samples=16).document["accelerated"]["value"] for p in plans)
    assert plain == scaled


@pytest.mark.parametrize("method", ["max", "mse"])
def test_what_a_float_run_shows_is_scaled_instead_of_running_again(method: str) -> None:
    """Magnitudes, values and first samples of a plan on scaled operands follow from those of the plan without."""
    app, texts = find_application("digits_mlp"), ("linear_2: x+1 b+1", "linear_1: w-2 b-2")
    plain, scaled = (compile_model(app.model, "flexasr", Options(scaled=t)) for t in ((), texts))
    inputs = samples_for(plain.source, app.calibration).inputs
    derived, run = (observed(p, inputs, calibration_run(p, inputs), method=method) for p in (plain, scaled))
    derived = derived.scaled(tensor_exponents(plain, texts))
    assert derived.largest == run.largest
    assert {key: [x.tolist() for x in parts] for key, parts in derived.values.items()} == {
        key: [x.tolist() for x in parts] for key, parts in run.values.items()
    }
    assert derived.first_samples.keys() == run.first_samples.keys()
    assert tensor_exponents(plain, texts)["linear_2", "y"] == 1


def test_trials_of_scalings_need_one_float_run(norm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []
    monkeypatch.setattr(operating, "calibration_run", lambda *arguments: runs.append(arguments) or calibration_run(*arguments))
    assert planned(norm, 3.0).settings["scaled"] == ["layer_norm_0: x-2"]
    assert len(runs) == 1


@pytest.mark.parametrize("text", ["nobody: x-3", "layer_norm_0: x", "layer_norm_0: g-3", "layer_norm_0: x-3 g-2", "layer_norm_0: x-99"])
def test_a_scaling_without_a_law_is_refused(norm: Path, text: str) -> None:
    with pytest.raises(UsageError, match=f'no law is proved for the scaling "{re.escape(text)}" of an offload'):
        compile_model(norm, "flexasr", Options(scaled=(text,)))


@pytest.mark.usefixtures("no_law")
@pytest.mark.parametrize("deviation", [3.0, 8.0])
def test_what_zeros_would_be_nearer_to_is_on_the_host_with_the_reason(norm: Path, deviation: float) -> None:
    plan = planned(norm, deviation)
    (note,) = plan.notes
    assert (plan.offloads, [h.node for h in plan.host]) == ((), ["norm"])
    assert note.startswith("flexasr.layer_norm is not used for norm: its result would be ")
    assert note.endswith("% off on calibration samples; --on flexasr=norm uses it even so")
    again = plan_of_document(to_json(plan), norm, "plan.json", ["flexasr"])
    assert (again.offloads, again.settings["on"]) == ((), ["host=norm"])


def test_samples_far_beyond_every_format_leave_a_layer_on_the_host() -> None:
    """All is saturated there, so that the result is 100 % off, as zeros would be."""
    app = find_application("digits_mlp")
    data = {name: 1e30 * values for name, values in np.load(app.calibration).items() if values.dtype == np.float32}
    plan = compile_model(app.model, "flexasr", calibrate={name: values[:16] for name, values in data.items()})
    assert plan.offloads == ()
    assert len(plan.notes) == 3
    said = re.compile(r"flexasr\.linear\w* is not used for .*: its result would be 100% off on calibration samples; .*")
    assert all(map(said.fullmatch, plan.notes)), plan.notes


@pytest.mark.parametrize("deviation", [0.5, 1.0])
def test_what_is_in_range_is_used_without_a_word(norm: Path, deviation: float) -> None:
    plan = planned(norm, deviation)
    assert ([o.id for o in plan.offloads], plan.notes, plan.settings["on"]) == (["layer_norm_0"], (), [])


@pytest.mark.usefixtures("no_law")
def test_what_is_wanted_there_is_used_and_said(norm: Path) -> None:
    plan = planned(norm, 8.0, "flexasr=norm")
    (error,) = relative_errors(plan, samples(8.0)).values()
    assert error > 1
    assert [o.id for o in plan.offloads] == ["layer_norm_0"]
    assert plan.notes == (f"more than 25% off on calibration samples: layer_norm_0 {100 * error:.3g}%",)


@pytest.mark.usefixtures("no_law")
def test_errors_are_those_that_a_cosimulation_measures(norm: Path) -> None:
    few = {"x": samples(8.0)["x"][:4]}
    plan = planned(norm, 8.0, "flexasr=norm")
    (error,) = relative_errors(plan, few).values()
    (measured,) = cosimulate(plan, few).document["offloads"]
    assert measured["relative_error"] == pytest.approx(error, rel=1e-3)


def test_results_that_are_zeros_are_not_far_off(norm: Path) -> None:
    plan = compile_model(norm, "flexasr", calibrate={"x": np.full((4, 1, FEATURES), 2, np.float32)})
    assert ([o.id for o in plan.offloads], plan.notes) == (["layer_norm_0"], ())


def test_tensors_that_are_zero_in_all_samples_are_named(norm: Path) -> None:
    """Not the bias, whose zeros are the model's own, and no tensor of an accelerator whose formats do not depend on magnitudes."""
    plan = compile_model(norm, "flexasr", calibrate={"x": np.zeros((4, 1, FEATURES), np.float32)})
    assert plan.notes == ("nothing but zeros in calibration samples, so that formats are guesses: x of layer_norm_0",)
    app = find_application("digits_cnn")
    zeros = {n: np.zeros_like(x[:4]) for n, x in np.load(app.calibration).items() if x.dtype == np.float32}
    assert compile_model(app.model, "hlscnn:revision=ext16", calibrate=zeros).notes == ()


@pytest.mark.parametrize(
    ("curve", "least", "tried"),
    [
        (lambda k: abs(k - 3) + 0.1, 3, 7),  # 1 … 5 and -1, -2: each side ends after two errors that rise far above the least
        (lambda k: 0.1 if k == 8 else 1.0, 8, 16),  # a plateau, where all codes are zeros, ends a side only when something is far better
        (lambda k: 5.0 if k < 0 else 1.0 / k, 12, 11),  # what still falls goes on to the end
    ],
)
def test_the_search_of_exponents_ends_where_errors_only_rise(
    curve: Callable[[int], float], least: int, tried: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rescaling, "_error", lambda p, o, s, k, samples: curve(k))
    nothing: Any = None
    errors = rescaling._outward_errors(nothing, nothing, nothing, {})
    assert min(errors, key=lambda k: errors[k]) == least
    assert len(errors) == tried


def test_a_law_on_scaled_operands_asks_for_ranks_only() -> None:
    """Extents, attributes and what compares them with ranks are the device's business."""
    rules = {r.name: [_is_about_ranks(c) for c in r.where if isinstance(c, TermIsTrue)] for r in shipped_rules()}
    assert rules["conv2d-as-dense-of-windows"] == [True, False]  # rank 4, and extents that are positive
    assert rules["halves-of-heads"][:4] == [True, True, False, False]
    assert rules["softmax-past-reshape"][0] is False  # an axis that is the last one
    assert sum(map(any, rules.values())) > 5
