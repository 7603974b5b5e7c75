"""Compiling: what is offloaded in which spelling, where every source node went, what steers it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from plan_checks import check_account, check_semantics, verify_program
from small_models import SPELLINGS, W, node, written

from rewrite_compiler import apps
from rewrite_compiler.compile import Options, Plan, compile_model, plan_files, plan_onnx, to_json
from rewrite_compiler.errors import FlexmatchError

APPS = ("digits_cnn", "digits_mlp")
PlanOf = Callable[[str], Plan]


def linear(plan: Plan) -> tuple[int, int]:
    return plan.counts["flexasr"].get("linear", 0), plan.exact_counts["flexasr"].get("linear", 0)


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_spellings_are_matched_and_counted(spelling: str, model: Path) -> None:
    write, flexible, exact = SPELLINGS[spelling]
    plan = compile_model(write(model), ["flexasr"])
    assert linear(plan) == (flexible, exact)
    assert (plan.egraph["stop"]["reason"], plan.extraction["status"], plan.limited) == ("saturated", "optimal", ())
    verify_program(plan)
    check_account(plan)
    check_semantics(plan, model)


@pytest.mark.parametrize("name", APPS)
def test_applications_are_accounted_for_and_compute_the_same(name: str, plan_of: PlanOf) -> None:
    plan = plan_of(name)
    check_account(plan)
    verify_program(plan)
    check_semantics(plan, apps.find_application(name).model)


def test_what_the_applications_offload(plan_of: PlanOf) -> None:
    assert linear(plan_of("digits_mlp")) == (3, 3)
    assert linear(plan_of("digits_cnn")) == (3, 1)  # two convolutions with their normalisation, and the head
    assert {h.op for h in plan_of("digits_cnn").host} <= {"MaxPool", "Flatten"}
    because = [[r.rule for r in o.because] for o in plan_of("digits_cnn").offloads]
    assert "conv2d-as-dense-of-windows" in because[0]
    assert "batch-norm-as-scale-and-bias" in because[0]
    assert all(r.at.endswith(tuple("0123456789")) and ".py:" in r.at for o in plan_of("digits_cnn").offloads for r in o.because)


def test_a_batch_norm_belongs_to_the_offload_that_took_it(plan_of: PlanOf) -> None:
    first = plan_of("digits_cnn").offloads[0]
    ops = {s.name: s.op_type for s in plan_of("digits_cnn").source.sources}
    assert {"Conv", "BatchNormalization"} <= {ops[n] for n in first.nodes}


KEYS = [
    "schema", "model", "targets", "rules_sha256", "settings", "calibrated", "calibration", "counts", "lowered_counts", "exact_counts",
    "device_calls", "offloads", "host", "absorbed", "inserted", "formats", "egraph", "extraction", "limited", "notes", "run",
]  # fmt: skip
REASON = {"rule", "at", "grade", "covers", "ulp", "share_of_rounding", "error_bound_ratio"}
OFFLOAD = {
    "id", "target", "operation", "parts", "nodes", "shape", "macs", "because", "certificate", "device_calls", "tiles", "formats",
    "resident", "cost",
}  # fmt: skip


@pytest.mark.parametrize("name", APPS)
def test_the_document_has_every_promised_key(name: str, plan_of: PlanOf) -> None:
    document = to_json(plan_of(name))
    assert set(document) >= set(KEYS)
    assert document["schema"] == "flexmatch.plan/1"
    assert document["model"].keys() >= {"path", "sha256", "ops"}
    assert [t.keys() for t in document["targets"]] == [{"name", "parameters", "sha256"}]
    assert all(o.keys() >= OFFLOAD for o in document["offloads"])
    assert all(r.keys() == REASON for o in document["offloads"] for r in o["because"])
    assert all(h.keys() == {"node", "op", "why_not"} for h in document["host"])
    assert all(a.keys() == {"node", "by"} for a in document["absorbed"])
    assert all(i.keys() == {"op", "bytes", "for"} for i in document["inserted"])
    assert document["egraph"].keys() == {"regions", "forms", "rounds", "e_nodes", "e_classes", "growth", "rules", "fired", "stop"}
    assert document["extraction"].keys() == {"objective", "cost", "bound", "gap", "status"}
    assert document["extraction"]["cost"] == document["extraction"]["bound"]
    assert (document["calibrated"], document["calibration"]) == (False, None)
    assert json.loads(json.dumps(document, allow_nan=False)) == document


@pytest.mark.parametrize("name", APPS)
def test_a_second_run_gives_the_same_bytes(name: str, plan_of: PlanOf) -> None:
    first, second = plan_files(plan_of(name)), plan_files(compile_model(apps.find_application(name).model, ["flexasr"]))
    assert first.onnx == second.onnx
    documents = [json.dumps({k: v for k, v in f.document.items() if k != "run"}) for f in (first, second)]
    assert documents[0] == documents[1]


def test_costs_are_those_of_the_chosen_program(plan_of: PlanOf) -> None:
    plan = plan_of("digits_cnn")
    assert plan.extraction["cost"]["host_macs"] == 0
    assert plan.extraction["cost"]["device_calls"] == sum(o.tiling.calls for o in plan.offloads)
    assert plan.device_calls["flexasr"]["linear"] == 3
    assert sum(plan.device_calls["flexasr"].values()) == plan.extraction["cost"]["device_calls"]


# -- steering


def compiled(model: Path, **options: object) -> Plan:
    return compile_model(model, ["flexasr"], Options(**options))  # type: ignore[arg-type]


def test_exact_matching_uses_spellings_only(plan_of: PlanOf) -> None:
    plan = compiled(apps.find_application("digits_cnn").model, exact=True)
    assert linear(plan) == (1, 1)
    check_account(plan)
    assert {r.rule for o in plan.offloads for r in o.because} <= {
        "flexasr.linear", "flexasr.linear_relu", "matmul-as-dense", "commute-addition", "add-as-bias-1",
    }  # fmt: skip
    assert sorted(h.op for h in plan.host if h.op == "Conv") == ["Conv", "Conv"]


def test_mappings_and_rules_can_be_left_out(plan_of: PlanOf) -> None:
    model = apps.find_application("digits_cnn").model
    nothing = compiled(model, without=("linear",))
    assert linear(nothing)[0] == 0
    assert linear(compiled(model, without=("conv2d-as-dense-of-windows",)))[0] == 1
    only = compiled(model, only=("flexasr.linear",))
    assert linear(only)[0] == 3
    assert {o.mapping.name for o in only.offloads} == {"flexasr.linear"}
    check_account(nothing)
    check_account(only)


def test_what_is_offered_and_why_not(model: Path) -> None:
    written(model, [node("Relu", "x", "h"), node("Softmax", "h", "y")], (2, 8), ["y"])
    reasons = {h.op: h.why_not for h in compiled(model, only=("linear",)).host}
    assert reasons["Softmax"] == "no mapping for softmax; offered: flexasr.linear"


@pytest.mark.parametrize("option", ["only", "without"])
def test_an_unknown_name_is_refused(option: str, model: Path) -> None:
    written(model, [node("Relu", "x", "y")], (2, 8), ["y"])
    with pytest.raises(FlexmatchError) as caught:
        compiled(model, **{option: ("linaer",)})
    problem = caught.value.problem
    assert (problem.code, problem.sentence) == ("F203", 'there is no mapping or rule called "linaer"')


@pytest.mark.parametrize(
    ("accel", "code", "sentence"),
    [([], "F201", "no accelerator is given"), (["flexasr", "flexasr:sigmoid=3.4"], "F202", 'two targets are called "flexasr"')],
)
def test_targets_are_given_once_each(accel: list[str], code: str, sentence: str, model: Path) -> None:
    with pytest.raises(FlexmatchError) as caught:
        compile_model(model, accel)
    assert (caught.value.problem.code, caught.value.problem.sentence) == (code, sentence)


def back_and_forth(start: str) -> list[object]:
    return [node("Transpose", start, "t", perm=[1, 0]), node("Transpose", "t", "y", perm=[1, 0])]


OUTPUTS = {
    "a constant": ([node("Neg", "w", "y"), node("Relu", "x", "unused")], ["y"]),
    "a constant twice, and a weight": ([node("Neg", "w", "y"), node("Neg", "w", "z"), node("MatMul", "x v", "r")], ["y", "z", "r"]),
    "equal computations": ([node("Relu", "x", "y"), node("Relu", "x", "z")], ["y", "z"]),
    "the input": ([node("Identity", "x", "y")], ["y"]),
    "the input by a rule": (back_and_forth("x"), ["y"]),
    "another output by a rule": ([node("Relu", "x", "z"), *back_and_forth("z")], ["z", "y"]),
}


@pytest.mark.parametrize("what", OUTPUTS)
def test_outputs_keep_their_names(what: str, model: Path) -> None:
    nodes, outputs = OUTPUTS[what]
    plan = compiled(written(model, nodes, (2, 8), outputs, w=W, v=W.T.copy()))
    assert [plan.program.names[v] for v in plan.program.outputs] == outputs
    assert [o.name for o in onnx.load_from_string(plan_onnx(plan)).graph.output] == outputs
    verify_program(plan)
    check_account(plan)
    check_semantics(plan, model)


def test_an_explosion_still_gives_a_plan(model: Path) -> None:
    """Limits never cost the plan: what was reached before them is extracted and named."""
    from dataclasses import replace

    from rewrite_compiler.limits import DEFAULT

    plan = compiled(SPELLINGS["Conv + BatchNormalization"][0](model), limits=replace(DEFAULT, e_nodes=40))
    assert plan.egraph["stop"]["reason"] == "e_nodes"
    assert plan.limited
    assert plan.limited[0].startswith("saturation stopped: ")
    check_account(plan)
    check_semantics(plan, model)
