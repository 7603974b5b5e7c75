"""Attribution and repair: planted flaws are named, the flaw of HLSCNN's 8-bit design is found unaided, repairs hold on other samples."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from command import flexmatch, perceptron, refused, samples

from rewrite_compiler.apps import find_application
from rewrite_compiler.compile import Plan, calibrated, compile_model, plan_files
from rewrite_compiler.cosim.engine import Engine
from rewrite_compiler.cosim.metrics.loss_bound import band_of
from rewrite_compiler.cosim.metrics.metrics import metric_of
from rewrite_compiler.data import samples_for
from rewrite_compiler.errors import FlexmatchError
from rewrite_compiler.report.page.html import page
from rewrite_compiler.study.diagnosis.attribution import attribute
from rewrite_compiler.study.diagnosis.repair import repair
from rewrite_compiler.study.diagnosis.trials import Trials, with_float

CNN = find_application("digits_cnn")


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> tuple[Plan, Trials]:
    """Three linear layers on FlexASR, 24 samples, judged by the cosine to the host's outputs."""
    folder = tmp_path_factory.mktemp("chain")
    onnx.save(perceptron((16, 16, 16, 4)), folder / "app.onnx")
    data = samples(folder / "data.npz", 24, 16)
    plan = compile_model(folder / "app.onnx", ["flexasr"], calibrate=data)
    return plan, Trials(plan, samples_for(plan.source, data), metric_of("cosine"))


def planted(plan: Plan, offload: str, tensor: str, field: str, value: int | str) -> Plan:
    def spoilt(o: Any) -> Any:
        f = replace(o.formats[tensor], **{field: value})
        return replace(o, formats=o.mapping.with_format(o.formats, tensor, f)) if o.id == offload else o

    return replace(plan, offloads=tuple(spoilt(o) if o.id == offload else o for o in plan.offloads))


FLAWS = [("linear_0", "w", "bias", -2), ("linear_1", "x", "bias", -3), ("linear_1", "w", "bias", -3), ("linear_2", "y", "bias", -2)]


@pytest.mark.parametrize(("offload", "tensor", "field", "step"), FLAWS)
def test_a_planted_flaw_is_named_first(offload: str, tensor: str, field: str, step: int, chain: tuple[Plan, Trials]) -> None:
    plan, trials = chain
    (right,) = [vars(o.formats[tensor])[field] for o in plan.offloads if o.id == offload]
    spoilt = planted(plan, offload, tensor, field, min(max(right + step, 0), 7))
    assert spoilt != plan
    found = attribute(spoilt, trials)
    assert found["accelerated"]["loss"] > 10 * trials.run(plan).loss
    culprit = found["culprit"]
    assert (culprit["offload"], culprit["tensor"], culprit["field"]) == (offload, tensor, field)
    first = found["fields"][0]
    assert first["recovered_loss"] > 0.9
    assert found["offloads"][0]["id"] == offload


@pytest.mark.parametrize(("tensor", "value"), [("x", 9), ("b", 9)])
def test_of_two_formats_that_do_not_fit_the_one_that_was_moved_is_named(tensor: str, value: int) -> None:
    """Operand and bias of HLSCNN share a scale, so a mismatch can be mended at either."""
    plan = compile_model(CNN.model, ["hlscnn:revision=ext16"], calibrate=CNN.calibration)
    trials = Trials(plan, samples_for(plan.source, CNN.data).evenly(8), metric_of("cosine"))
    culprit = attribute(planted(plan, "conv2d_1", tensor, "fraction", value), trials)["culprit"]
    assert culprit == {"offload": "conv2d_1", "tensor": tensor, "field": "fraction", "before": value, "after": 7}


def test_a_planted_flaw_is_repaired_by_its_field_and_not_by_another_design(chain: tuple[Plan, Trials]) -> None:
    plan, trials = chain
    bad = planted(plan, "linear_1", "x", "bias", int(plan.offloads[1].formats["x"].parameters["bias"]) - 3)
    loss = trials.run(bad).loss
    found = repair(bad, trials.data, trials.metric, band_of(f"{loss / 4:.9f}"))
    chosen = next(p for p in found.document["proposals"] if p["what"] == found.document["chosen"])
    assert [(c["offload"], c["tensor"], c["field"]) for c in chosen["changes"]] == [("linear_1", "x", "bias")]
    assert (chosen["parameters"], chosen["added_bits"]) == ([], 0)
    kinds = {p["kind"]: p for p in found.document["proposals"]}
    assert kinds["calibration"]["search"]["within"]  # all formats chosen anew repair it, too, and so would every design then
    assert "parameter" not in kinds


def test_two_flaws_are_repaired_together(chain: tuple[Plan, Trials]) -> None:
    plan, trials = chain
    bad, flaws = plan, (("linear_0", "x"), ("linear_2", "y"))
    for offload, tensor in flaws:
        o = next(o for o in plan.offloads if o.id == offload)
        bad = planted(bad, offload, tensor, "bias", int(o.formats[tensor].parameters["bias"]) - 3)
    loss = trials.run(bad).loss
    found = repair(bad, trials.data, trials.metric, band_of(f"{loss / 20:.9f}"))
    chosen = next(p for p in found.document["proposals"] if p["what"] == found.document["chosen"])
    assert not any(p["search"]["within"] for p in found.document["proposals"] if len(p["changes"]) == 1)
    assert {(c["offload"], c["tensor"], c["field"]) for c in chosen["changes"]} == {(*flaw, "bias") for flaw in flaws}


def test_float_and_device_halves_make_the_whole(chain: tuple[Plan, Trials]) -> None:
    plan, trials = chain
    everything = with_float(plan, {o.id for o in plan.offloads})
    assert not everything.offloads
    exact = trials.run(everything)
    assert exact.error < 1e-6
    assert with_float(plan, set()) is plan
    inputs = trials.inputs
    one = with_float(plan, {"linear_0", "linear_2"})
    assert [o.id for o in one.offloads] == ["linear_1"]
    alone = Engine(one, compared=0).run(inputs).outputs["y"]
    whole = Engine(plan, compared=0).run(inputs).outputs["y"]
    assert 0 < np.abs(alone - trials.expected).max() < np.abs(whole - trials.expected).max() * 2
    assert not np.array_equal(alone, whole)


def test_variants_side_by_side_give_what_each_alone_gives_and_run_once(chain: tuple[Plan, Trials]) -> None:
    plan, trials = chain
    ids = [o.id for o in plan.offloads]
    plans = [plan, *(with_float(plan, {key}) for key in ids), planted(plan, ids[1], "x", "bias", 0), plan]
    both = Trials(plan, trials.data, trials.metric, batch=8, threads=2)
    found = both.run_all(plans)
    assert both.runs == len(plans) - 1
    assert found[0] is both.run(plan)
    alone = [trials.run(p) for p in plans]
    assert [(t.value, t.loss, t.error) for t in found] == [(t.value, t.loss, t.error) for t in alone]


def test_a_plan_without_offloads_has_no_loss(chain: tuple[Plan, Trials]) -> None:
    plan, trials = chain
    with pytest.raises(FlexmatchError, match=r"error\[C100\]: the plan has no offloads: there is no loss to attribute"):
        attribute(with_float(plan, {o.id for o in plan.offloads}), trials)


@pytest.fixture
def digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    assert flexmatch(CNN.model, "--accel", "hlscnn", "--calibrate", CNN.calibration, "-o", "plan", "-q").code == 0
    return tmp_path


def test_the_flaw_of_the_8_bit_design_is_found_and_repaired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With formats alone: compiling with samples rescales the filters, and leaves little of the flaw."""
    monkeypatch.chdir(tmp_path)
    plan_without_formats = compile_model(CNN.model, ["hlscnn"])
    inputs = samples_for(plan_without_formats.source, CNN.calibration).inputs
    files = plan_files(calibrated(plan_without_formats, inputs, "calibration.npz"))
    Path("plan.onnx").write_bytes(files.onnx)
    Path("plan.json").write_text(json.dumps(files.document), "utf-8")
    data = ("--data", CNN.data, "--samples", "12", "--threads", "1", "--metric", "cosine", "-q")
    assert flexmatch("cosim", "plan.json", *data, "--attribute", "--json", "report.json").code == 0
    report = json.loads(Path("report.json").read_bytes())
    culprit = report["attribution"]["culprit"]
    assert (culprit["tensor"], culprit["field"], culprit["before"]) == ("w", "rounding", "floor")
    plan = json.loads(Path("plan.json").read_bytes())
    markup = page(plan, report)
    assert "Where the loss comes from" in markup
    assert markup.count("alone on the device") == len(plan["offloads"])
    assert flexmatch("show", "plan.json", "--cosim", "report.json").out.count("loss from") == 1
    assert flexmatch("repair", "plan.json", *data, "--within", "0.005", "--json", "repair.json", "-o", "fixed").code == 0
    found = json.loads(Path("repair.json").read_bytes())
    assert found["samples"] == {"search": 6, "verify": 6}
    chosen = next(p for p in found["proposals"] if p["what"] == found["chosen"])
    assert (chosen["added_bits"], chosen["search"]["within"], chosen["verify"]["within"]) == (0, True, True)
    wide = next(p for p in found["proposals"] if p["parameters"] == [{"target": "hlscnn", "parameter": "revision", "value": "ext16"}])
    assert (wide["added_bits"], wide["search"]["within"]) == (8, True)
    assert any(p["kind"] == "binary point" for p in found["proposals"])
    assert not found["holds_already"]
    assert found["before"]["search"]["loss"] > 0.005
    assert flexmatch("cosim", "fixed.json", *data, "--within", "0.005").code == 0
    answer = flexmatch("cosim", "plan.json", *data, "--within", "0.005")
    assert (answer.code, answer.err.splitlines()[0][:49]) == (1, "error[C105]: cosine may lose at most 0.005, not 0")


def test_a_sweep_has_a_line_for_every_point(digits: Path) -> None:
    command = (
        "sweep",
        CNN.model,
        "--accel",
        "hlscnn",
        "--data",
        CNN.data,
        "--calibrate",
        CNN.calibration,
        "--samples",
        "8",
        "--threads",
        "1",
    )
    answer = flexmatch(*command, "--over", "hlscnn.revision=ext8,ext16", "--over", "calibration-method=mse", "--json", "sweep.json")
    assert answer.code == 0
    found = json.loads(Path("sweep.json").read_bytes())
    wanted = [{"hlscnn.revision": r, "calibration-method": "mse"} for r in ("ext8", "ext16")]
    assert [p["at"] for p in found["points"]] == wanted
    errors = [p["worst_offload_error"] for p in found["points"]]
    assert errors[0] > 1.5 * errors[1]  # although the filters of 8 bits are rescaled
    for text, said in (
        ("hlscnn.size=3", '--over must name a parameter, not "hlscnn.size"'),
        ("hlscnn.revision=ext9", 'hlscnn.revision must be one of ext8, orig, ext16, uni16, ext16_a3p16, ext16_a3p8, not "ext9"'),
    ):
        assert flexmatch(*command, "--over", text).err.splitlines()[0] == f"error[F203]: {said}"


def test_bands_are_points_shares_or_numbers(digits: Path) -> None:
    for text, allowed in (("1pt", 0.01), ("5%", 0.04), ("0.02", 0.02), (".5", 0.5), ("0", 0.0)):
        assert band_of(text).allowed(-0.8) == pytest.approx(allowed)
    assert band_of("1pt").holds(0.91 - 0.9, 0.9)
    assert not band_of("1pt").holds(0.0101, 0.9)
    for text in ("", "1 point", "-1", "nan", "1ptx"):
        refused(
            flexmatch("cosim", "plan.json", "--data", CNN.data, f"--within={text}"), 2,
            f'error[F203]: --within must be a loss such as 1pt, 5% or 0.02, not "{text}"\n  help: --within LOSS: '
            "answer no (exit 1) when the metric loses more: 1pt, 5%, 0.02",
        )  # fmt: skip
