"""The documents other tools rely on: their keys, their agreement with each other, and the same bytes from the same inputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import pytest
from command import flexmatch, onnx_model
from onnx import helper

from rewrite_compiler.apps import APPS, GALLERY

PLAN = {
    "schema", "model", "targets", "rules_sha256", "settings", "calibrated", "calibration", "counts", "lowered_counts", "exact_counts",
    "device_calls", "offloads", "host", "uncounted", "absorbed", "inserted", "formats", "egraph", "extraction", "residency", "limited",
    "notes", "plan_sha256", "onnx_sha256", "run", "application",
}  # fmt: skip
OFFLOAD = {
    "id", "target", "operation", "parts", "nodes", "shape", "macs", "because", "certificate", "device_calls", "tiles", "formats",
    "resident", "cost",
}  # fmt: skip
COSIM = {
    "schema", "model", "targets", "metric", "lower_is_better", "samples", "data", "calibration", "reference", "accelerated",
    "hosts", "paired", "offloads", "first_diverging", "attribution", "simulator", "compared_samples", "warnings", "notes", "run",
}  # fmt: skip


def document(*arguments: str) -> Any:
    answer = flexmatch(*arguments, "--json", "-")
    assert (answer.code, answer.err) == (0, "")
    return json.loads(answer.out)


def test_the_plan_has_the_keys_of_its_contract(folder: Path) -> None:
    plan = document("app.onnx", "--accel", "flexasr", "--calibrate", "calibration.npz", "-o", "plan")
    assert set(plan) == PLAN
    assert plan["schema"] == "flexmatch.plan/1"
    assert set(plan["model"]) == {"path", "sha256", "ops", "opset"}
    assert (plan["model"]["path"], plan["model"]["ops"], plan["model"]["opset"]) == ("app.onnx", 3, 17)
    assert [set(t) for t in plan["targets"]] == [{"name", "parameters", "sha256"}]
    assert set(plan["calibration"]) == {"source", "sha256", "samples", "method", "formats_sha256", "tensors"}
    assert plan["calibrated"] is True
    for o in plan["offloads"]:
        assert set(o) == OFFLOAD
        assert [set(r) for r in o["because"]] == [{"rule", "at", "grade", "covers", "ulp", "share_of_rounding", "error_bound_ratio"}] * len(
            o["because"]
        )
        assert o["parts"][:2] == ["dense", "bias_add"]
        assert set(o["resident"]) == {"inputs", "outputs", "constants", "saved_bytes", "why_not"}
        assert o["cost"]["cycles"] > 0 < o["cost"]["bytes"]
    assert set(plan["egraph"]) == {"regions", "forms", "rounds", "e_nodes", "e_classes", "growth", "rules", "fired", "stop"}
    assert set(plan["extraction"]) == {"objective", "cost", "bound", "gap", "status"}
    assert {frozenset(f) for f in plan["formats"]} == {frozenset({"tensor", "target", "format", "parameters", "from"})}
    places = [*(n for o in plan["offloads"] for n in o["nodes"]), *(r["node"] for key in ("host", "absorbed") for r in plan[key])]
    assert sorted(places) == ["gemm0", "gemm1", "relu0"]
    assert plan["counts"] == plan["exact_counts"] == {"flexasr": {"linear": 2}}
    assert json.loads(Path("plan.json").read_text("utf-8"))["plan_sha256"] == plan["plan_sha256"]


def test_the_co_simulation_has_the_keys_of_its_contract(folder: Path) -> None:
    report = document("cosim", "ready.json", "--data", "test.npz")
    assert set(report) == COSIM
    assert report["schema"] == "flexmatch.cosim/1"
    assert (report["samples"], report["metric"], report["targets"]) == (48, "top1", ["flexasr"])
    assert {"difference", "interval", "better", "worse", "same_predictions"} <= set(report["paired"])
    for o in report["offloads"]:
        assert set(o) == {
            "id", "relative_error", "cumulative_error", "max_abs_error", "saturated", "compared_codes", "differing_codes",
            "range_in", "range_out", "tensors", "engine", "validated_samples", "certified",
        }  # fmt: skip
        assert (o["compared_codes"], o["differing_codes"]) == (None, None)  # its results are real numbers
    assert set(report["simulator"]) == {"tier", "engine", "validated", "host", "audited", "instructions"}
    assert {"wall_seconds", "cpu_seconds_per_sample", "reference_cpu_seconds_per_sample", "batch", "threads"} <= set(report["run"])


@pytest.mark.parametrize(
    "arguments",
    [
        ("app.onnx", "--accel", "flexasr", "--calibrate", "calibration.npz", "-o", "plan"),
        ("cosim", "ready.json", "--data", "test.npz"), ("list",), ("prove", "--only", "add-zero-bias"),
    ],
    ids=lambda a: a[0],
)  # fmt: skip
def test_two_runs_give_the_same_bytes(arguments: tuple[str, ...], folder: Path) -> None:
    def timeless(x: Any) -> Any:
        if isinstance(x, dict):
            return {k: timeless(v) for k, v in x.items() if k not in ("run", "seconds", "kept")}
        return [timeless(v) for v in x] if isinstance(x, list) else x

    first, second = (json.dumps(timeless(document(*arguments))) for _ in range(2))
    assert first == second


def test_a_model_its_plan_and_its_plan_as_onnx_give_one_metric(folder: Path) -> None:
    data = ("--data", "test.npz", "--calibrate", "calibration.npz")
    sources = (("app.onnx", "--accel", "flexasr"), ("app.flexasr.json",), ("app.flexasr.onnx",))
    reports = [document("cosim", *source, *data) for source in sources]
    reports.append(document("cosim", "ready.json", "--data", "test.npz"))  # formats chosen from the same samples
    assert all({**r, "run": None} == {**reports[0], "run": None} for r in reports)


@pytest.mark.parametrize("app", ["digits_cnn", "digits_mlp"])
def test_demo_compiles_and_simulates_each_application(app: str, folder: Path) -> None:
    made = document("demo", app, "--samples", "40")
    assert (made["schema"], set(made["plan"]), set(made["cosim"])) == ("flexmatch.demo/1", PLAN, COSIM)
    assert made["cosim"]["samples"] == 40
    assert made["plan"]["counts"]["flexasr"]["linear"] == 3
    assert made["cosim"]["accelerated"]["value"] > 0.9


def test_list_names_everything_with_its_place(folder: Path) -> None:
    listed = document("list")
    assert set(listed) == {"schema", "targets", "mappings", "formats", "rules", "apps"}
    assert {"flexasr", "hlscnn"} <= {t["name"] for t in listed["targets"]}
    assert all(set(r) == {"name", "about", "at", "grade", "phase"} and r["about"] for r in listed["rules"])
    assert all(":" in row["at"] for key in ("rules", "mappings") for row in listed[key])
    assert [a["name"] for a in listed["apps"]] == [a.name for a in (*APPS, *GALLERY)]


def test_prove_judges_one_rule(folder: Path) -> None:
    proofs = document("prove", "--only", "add-zero-bias")
    (proof,) = proofs["rules"]
    assert (proofs["schema"], proofs["mappings"]) == ("flexmatch.prove/1", [])
    assert {"name", "at", "verdict", "strength", "evidence", "counterexample", "grade", "seconds"} <= set(proof)
    assert (proof["name"], proof["verdict"]) == ("add-zero-bias", "proved")


def test_explain_a_node_that_left_nothing(folder: Path) -> None:
    nodes = [helper.make_node("Identity", ["x"], ["same"], name="same"), helper.make_node("Relu", ["same"], ["y"], name="relu")]
    onnx.save(onnx_model(nodes, {"x": [1, 16]}, ["y"], []), "same.onnx")
    (row,) = document("same.onnx", "--accel", "flexasr")["absorbed"]
    for given in (("same.onnx", "same", "--accel", "flexasr"), ("same.flexasr.json", "same")):
        found = document("explain", *given)
        assert (found["node"], found["place"], found["by"]) == (row["node"], "absorbed", row["by"]) == ("same", "absorbed", "identity")


def test_explain_a_node_wherever_it_went(folder: Path) -> None:
    Path("digits.onnx").write_bytes((Path(__file__).resolve().parents[2] / "apps/digits/cnn.onnx").read_bytes())
    plan = document("digits.onnx", "--accel", "flexasr")
    first = plan["offloads"][0]
    for name in (first["id"], first["nodes"][0]):
        found = document("explain", "digits.flexasr.json", name)
        assert (found["schema"], found["node"], found["place"]) == ("flexmatch.explain/1", name, "offload")
        assert found["offload"]["id"] == first["id"]
    host = plan["host"][0]
    found = document("explain", "digits.flexasr.json", host["node"])
    assert (found["place"], found["op"], found["why_not"]) == ("host", host["op"], host["why_not"])
    assert flexmatch("explain", "digits.flexasr.json", host["node"]).out.startswith(f"{host['node']} ({host['op']}) stays on the host\n")
