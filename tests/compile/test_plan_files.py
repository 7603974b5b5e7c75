"""Plan files: what is written is read back; what has changed since is said in one sentence."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from small_models import SPELLINGS, node, written

from rewrite_compiler.compile import Plan, calibrated, compile_model, is_plan, plan_files, read_plan, to_json
from rewrite_compiler.compile.document import _device_layout, format_from
from rewrite_compiler.compile.formats.calibrate import scale_warnings
from rewrite_compiler.compile.plan.schema_check import FIGURE, PAIR, SECONDS, SIZE, misfit
from rewrite_compiler.cosim import Settings, cosimulate
from rewrite_compiler.errors import FlexmatchError, InputError
from rewrite_compiler.lang.formats import BFLOAT16, FLOAT16, AdaptivFloat, Fixed, Int
from rewrite_compiler.target import Mapping as Operation
from rewrite_compiler.target import load_target

AGAIN = "compile the model again"


def saved(plan: Plan, folder: Path, name: str = "plan") -> Path:
    files = plan_files(plan)
    (folder / f"{name}.onnx").write_bytes(files.onnx)
    path = folder / f"{name}.json"
    path.write_text(json.dumps(files.document))
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A calibrated plan of two linear layers, its ONNX and its model, in one folder."""
    folder = tmp_path_factory.mktemp("plan")
    model = SPELLINGS["two layers and a shortcut"][0](folder / "small.onnx")
    plan = compile_model(model, ["flexasr:sigmoid=3.4"])
    samples = np.random.default_rng(1).standard_normal((4, 2, 8)).astype(np.float32)
    return saved(calibrated(plan, {"x": samples}, "memory"), folder)


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    """A copy of the folder that a test may change; the plan still names the model by its first place."""
    for path in made.parent.iterdir():
        shutil.copy(path, tmp_path / path.name)
    change(tmp_path / "plan.json", lambda d: d["model"].update(path="small.onnx"))
    return tmp_path / "plan.json"


def change(path: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    document = json.loads(path.read_text())
    edit(document)
    path.write_text(json.dumps(document))


def refused(path: Path) -> tuple[str, str, str]:
    with pytest.raises(FlexmatchError) as caught:
        read_plan(path)
    problem = caught.value.problem
    return problem.code, problem.sentence, problem.help


def test_a_plan_comes_back_as_it_was(made: Path) -> None:
    written_document = json.loads(made.read_text())
    plan = read_plan(made)
    again = {k: v for k, v in plan_files(plan).document.items() if k != "run"}
    assert json.loads(json.dumps(again)) == {k: v for k, v in written_document.items() if k != "run"}
    assert plan.calibrated
    assert plan.targets[0].values["sigmoid"] == "3.4"


def test_a_plan_is_read_from_its_onnx_too(made: Path) -> None:
    model = made.with_suffix(".onnx")
    assert is_plan(made)
    assert is_plan(model)
    assert not is_plan(made.parent / "small.onnx")
    assert to_json(read_plan(model))["offloads"] == to_json(read_plan(made))["offloads"]


def test_the_two_files_name_each_other(made: Path) -> None:
    document = json.loads(made.read_text())
    model = onnx.load(made.with_suffix(".onnx"))
    assert {p.key: p.value for p in model.metadata_props}["flexmatch.plan_sha256"] == document["plan_sha256"]
    assert {f.domain for f in model.functions} == {"flexmatch.flexasr"}
    assert len(document["onnx_sha256"]) == 64


def test_a_changed_model_is_refused(copy: Path) -> None:
    model = copy.parent / "small.onnx"
    SPELLINGS["two layers and a shortcut"][0](model)
    proto = onnx.load(model)
    proto.doc_string = "changed"
    model.write_bytes(proto.SerializeToString())
    assert refused(copy) == ("F106", f"{model} is not the model the plan was made of: its sha256 differs", "compile again")


def test_a_missing_model_is_named(copy: Path) -> None:
    (copy.parent / "small.onnx").unlink()
    code, sentence, _ = refused(copy)
    assert (code, sentence) == ("F101", "there is no file small.onnx, which the plan was made of")


def test_a_changed_target_is_noted(copy: Path) -> None:
    change(copy, lambda d: d["targets"][0].update(sha256="0" * 64))
    assert "target flexasr changed since the plan" in read_plan(copy, ["flexasr:sigmoid=3.4"]).notes


def test_parameters_that_are_not_given_are_those_of_the_plan(copy: Path) -> None:
    for text, sigmoid, notes in (("flexasr", "3.4", ()), ("flexasr:sigmoid=3.2", "3.2", ("target flexasr changed since the plan",))):
        plan = read_plan(copy, [text])
        assert (plan.targets[0].values["sigmoid"], plan.notes) == (sigmoid, notes)


def test_a_target_of_the_same_name_does_not_stand_in_for_another(copy: Path) -> None:
    """A plan of a user's copy of FlexASR, say, which the command must name."""
    change(copy, lambda d: d["targets"][0].update(sha256="0" * 64))
    code, sentence, help_ = refused(copy)
    assert (code, help_) == ("F220", "name the one that it is to run on with --accel, or compile again")
    assert sentence == "flexasr is not the accelerator the plan was made for: its sha256 differs"


def test_a_plan_never_loads_a_file(copy: Path, tmp_path: Path) -> None:
    mark = tmp_path / "loaded"
    (tmp_path / "evil.py").write_text(f"open({str(mark)!r}, 'w')")
    change(copy, lambda d: d["targets"][0].update(name=str(tmp_path / "evil.py"), parameters={}))
    code, sentence, help_ = refused(copy)
    assert (code, help_) == ("F201", f"add --accel {tmp_path / 'evil.py'}")
    assert sentence == f"the plan was made for the accelerator in {tmp_path / 'evil.py'}, and a file is run only when the command names it"
    assert not mark.exists()


def test_other_targets_may_be_given(copy: Path) -> None:
    change(copy, lambda d: d["targets"][0].update(name="gone", parameters={}))
    plan = read_plan(copy, [load_target("flexasr")])
    assert [t.name for t in plan.targets] == ["flexasr"]


def test_a_plan_whose_offloads_moved_is_answered_with_no(copy: Path) -> None:
    change(copy, lambda d: d["offloads"][1].update(nodes=["another"]))
    with pytest.raises(FlexmatchError) as caught:
        read_plan(copy)
    assert caught.value.exit_code == 1
    document = json.loads(copy.read_text())
    assert caught.value.problem.sentence.startswith(f"the plan's rules or targets have changed: {document['offloads'][1]['id']} is now ")


TAMPERED: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "newer": (lambda d: d.update(schema="flexmatch.plan/2"), 'Schema of a plan must be "flexmatch.plan/1", not "flexmatch.plan/2"'),
    "no schema": (lambda d: d.pop("schema"), 'Schema of a plan must be "flexmatch.plan/1", not none'),
    "no model": (lambda d: d.pop("model"), 'plan has no key "model"'),
    "no settings": (lambda d: d.pop("settings"), 'plan has no key "settings"'),
    "offloads as text": (lambda d: d.update(offloads="none"), "plan.offloads must be a list, not a text"),
    "no formats": (lambda d: d["offloads"][0].pop("formats"), 'plan.offloads[0] has no key "formats"'),
    "another format": (
        lambda d: d["offloads"][0]["formats"]["x"].update(format="posit"),
        'there is no number format called "posit"',
    ),
    "a tensor without a format": (
        lambda d: d["offloads"][0]["formats"].pop("w"),
        "linear_0 must have formats for x, w, b, y, not x, b, y",
    ),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_a_tampered_plan_is_refused(what: str, copy: Path) -> None:
    edit, sentence = TAMPERED[what]
    change(copy, edit)
    code, found, _ = refused(copy)
    assert (code, found) == ("F220", sentence)


@pytest.mark.parametrize(
    ("text", "code", "sentence"),
    [
        (b"{", "F103", "the file is not a plan: Expecting property name enclosed in double quotes, line 1"),
        (b"\x80{}", "F103", "the file is not a plan: it is not UTF-8 text: byte 0"),
        (b"[" * 100_000, "F103", "the file is not a plan: it is nested too deeply"),
        (b"[]", "F220", 'Schema of a plan must be "flexmatch.plan/1", not none'),
    ],
)
def test_what_is_no_plan_is_refused(text: bytes, code: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(text)
    assert refused(path)[:2] == (code, sentence)


def test_a_missing_plan_is_named(tmp_path: Path) -> None:
    assert refused(tmp_path / "none.json") == ("F101", "a plan must be a file", "give a plan or a model")


# -- calibration


def formats(plan: Plan) -> list[dict[str, int]]:
    return [{n: f.parameters["bias"] for n, f in o.formats.items()} for o in plan.offloads]  # type: ignore[misc]


def layer_of(folder: Path, scale: float) -> Plan:
    """A linear layer that multiplies by `scale`."""
    model = written(folder / "layer.onnx", [node("Gemm", "x w b", "y", transB=1)], (2, 8), ["y"], w=np.eye(8, dtype=np.float32) * scale,
                    b=np.zeros(8, np.float32))  # fmt: skip
    return compile_model(model, ["flexasr"])


@pytest.mark.parametrize(("bad", "shown"), [(np.nan, "nan"), (np.inf, "inf"), (-np.inf, "-inf")])
def test_weights_that_are_not_finite_are_refused(tmp_path: Path, bad: float, shown: str) -> None:
    w = np.eye(8, dtype=np.float32)
    w[1, 2] = w[3, 4] = bad
    model = written(tmp_path / "layer.onnx", [node("Gemm", "x w b", "y", transB=1)], (2, 8), ["y"], w=w, b=np.zeros(8, np.float32))
    with pytest.raises(FlexmatchError) as caught:
        calibrated(compile_model(model, ["flexasr"]), {"x": np.ones((1, 2, 8), np.float32)}, "memory")
    assert caught.value.problem.code == "C102"
    assert caught.value.problem.sentence == f"constant w of linear_0 must be finite, not {shown} at [1, 2] (2 of 64 values)"


def test_a_tensor_beyond_every_scale_is_told(tmp_path: Path) -> None:
    plan = layer_of(tmp_path, 32.0)
    made = calibrated(plan, {"x": np.full((1, 2, 8), 0.5, np.float32)}, "memory")
    sentence = "w of linear_0 must be at most 31, the largest value of its format, not 32"
    assert [(w.code, w.sentence) for w in scale_warnings(made)] == [("C103", sentence)]
    report = cosimulate(made, {"x": np.full((2, 2, 8), 0.5, np.float32)}, settings=Settings(threads=1))
    assert report.document["warnings"] == [f"C103: {sentence}"]
    assert not scale_warnings(plan)
    for scale in (31.5, 0.0):  # the last binade ends at 32; zeros have every scale
        assert not scale_warnings(calibrated(layer_of(tmp_path, scale), {"x": np.full((1, 2, 8), 0.5, np.float32)}, "memory"))
    fixed = compile_model(tmp_path / "layer.onnx", ["vta"])  # any scale
    assert not scale_warnings(calibrated(fixed, {"x": np.full((1, 2, 8), 1e9, np.float32)}, "memory"))


@pytest.mark.parametrize(
    ("scale", "wrong"),
    [(1e30, "at most 31, the largest value of its format"), (1e-9, "large enough for its format, which makes zero of it")],
)
def test_a_tensor_far_beyond_every_scale_is_told(tmp_path: Path, scale: float, wrong: str) -> None:
    """Of the weights and of what they make."""
    made = calibrated(layer_of(tmp_path, scale), {"x": np.full((1, 2, 8), 0.5, np.float32)}, "memory")
    assert [w.sentence for w in scale_warnings(made)] == [
        f"{t} of linear_0 must be {wrong}, not {n:g}" for t, n in (("w", scale), ("y", scale / 2))
    ]


def test_the_bias_follows_the_largest_magnitude(tmp_path: Path) -> None:
    """bias = floor(log₂ largest) + 3 within 0 … 7; nothing but zeros is as small as it gets."""
    plan = layer_of(tmp_path, 4.0)
    for largest, bias in ((0.05, 0), (0.124, 0), (0.25, 1), (0.5, 2), (1.0, 3), (1.99, 3), (2.0, 4), (15.9, 6), (16.0, 7), (1e6, 7)):
        x = np.zeros((3, 2, 8), np.float32)
        x[1, 1, 3] = -largest
        times_four = min(max(math.floor(math.log2(4 * largest)) + 3, 0), 7)
        assert formats(calibrated(plan, {"x": x}, "memory")) == [{"x": bias, "w": 5, "b": 0, "y": times_four}]


def test_calibration_is_recorded(tmp_path: Path) -> None:
    plan = layer_of(tmp_path, 1.0)
    assert not plan.calibrated
    x = np.ones((5, 2, 8), np.float32)
    found = calibrated(plan, {"x": x}, "val.npz")
    assert found.calibrated
    assert found.calibration is not None
    assert (found.calibration.source, found.calibration.samples, len(found.calibration.sha256)) == ("val.npz", 5, 64)
    assert calibrated(plan, {"x": x}, "val.npz", "abc").calibration == replace(found.calibration, sha256="abc")
    listed = to_json(found)["formats"]
    assert [(f["target"], f["format"], f["from"]) for f in listed] == [
        ("flexasr", "adaptivfloat", source) for source in ("calibration", "weights", "weights", "calibration")
    ]


def test_batches_do_not_change_formats(tmp_path: Path) -> None:
    plan = layer_of(tmp_path, 1.0)
    x = np.random.default_rng(0).standard_normal((7, 2, 8)).astype(np.float32) * np.logspace(-1, 1, 7, dtype=np.float32)[:, None, None]
    assert formats(calibrated(plan, {"x": x}, "", batch=2)) == formats(calibrated(plan, {"x": x}, "", batch=64))


def test_inputs_that_cannot_calibrate_are_refused(tmp_path: Path) -> None:
    plan = layer_of(tmp_path, 1.0)
    with pytest.raises(FlexmatchError) as caught:
        calibrated(plan, {"x": np.zeros((0, 2, 8), np.float32)}, "empty.npz")
    problem = caught.value.problem
    assert (problem.code, problem.sentence, problem.place) == ("C100", "calibration needs at least one sample, not 0", "empty.npz")
    for bad in (np.nan, np.inf):
        with pytest.raises(FlexmatchError) as caught:
            calibrated(plan, {"x": np.full((1, 2, 8), bad, np.float32)}, "bad.npz")
        assert (caught.value.problem.code, caught.value.problem.help) == (
            "C102", "calibrate on samples of the magnitudes that the model is for"
        )  # fmt: skip
        assert caught.value.problem.sentence == (
            "x of linear_0 must be finite in the float32 run of calibration samples, not so in samples from 0 on"
        )


@pytest.mark.parametrize("form", [int, FIGURE, SIZE, SECONDS, (int, None), [int], PAIR], ids=str)
def test_whole_numbers_of_documents_are_words(form: Any) -> None:
    """Of 64 bits, as their readers compute with them."""
    for number, is_word in (((1 << 63) - 1, True), (1 << 63, False), (1 << 200, False)):
        said = misfit([number] if form == [int] else [number, 0] if form is PAIR else number, form)
        assert (said == "") is is_word
        assert is_word or "within 64 bits" in said or form is PAIR
    assert misfit(-(1 << 63), int) == ""
    assert misfit(-(1 << 63) - 1, int) == "plan must be within 64 bits"


@pytest.mark.parametrize(
    "change", [{"fraction": 2049}, {"fraction": -2049}, {"width": 65}, {"width": -65}, {"width": 8.0}, {"signed": 1}, {"bias": 0}]
)
def test_a_format_beyond_every_use_is_none(change: dict[str, Any]) -> None:
    """In either direction, before numbers of so many bits are made."""
    document = {"format": "fixed", "width": 8, "fraction": -2048, "rounding": "floor", "signed": True}
    assert format_from(document) == Fixed(8, -2048, "floor")
    with pytest.raises(InputError, match="there is no number format fixed with"):
        format_from({**document, **change})


def test_what_a_device_has_of_a_format_is_all_but_scale_and_rounding() -> None:
    formats = [
        Int(8),
        Int(8, False),
        Int(9),
        Fixed(8),
        Fixed(8, 0, "floor", False),
        AdaptivFloat(8, 3),
        AdaptivFloat(8, 4),
        FLOAT16,
        BFLOAT16,
    ]
    assert len({_device_layout(f) for f in formats}) == len(formats)
    for a, b in ((Fixed(8, 3), Fixed(8, 5, "floor")), (AdaptivFloat(8, 3, 1), AdaptivFloat(8, 3, 2, rounding="truncate"))):
        assert _device_layout(a) == _device_layout(b)


def test_a_plan_lies_beside_the_model_that_it_names(tmp_path: Path) -> None:
    model, plan = tmp_path / "app.onnx", tmp_path / "app.json"
    model.write_bytes(b"some model")
    assert not is_plan(model)
    digest = hashlib.sha256(b"some model").hexdigest()
    for text, is_beside in (
        (json.dumps({"onnx_sha256": digest}), True),
        (json.dumps({"onnx_sha256": digest[::-1]}), False),
        ("{}", False),
        ("[", False),
    ):
        plan.write_text(text)
        assert is_plan(model) is is_beside


def test_formats_that_follow_from_others_are_those(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Operation, "has_derived_formats", lambda self, formats: False)
    code, found, _ = refused(copy)
    assert code == "F220"
    assert found.startswith("linear_0 must have the formats of ")
    assert found.endswith(" that follow from the others")
