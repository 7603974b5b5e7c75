"""Plans that cannot be used: damaged, of another schema, of another model; and plans never load code."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from command import Answer, flexmatch, perceptron, refused

AGAIN = "\n  help: compile the model again"


def cosim(plan: str, *more: str) -> Answer:
    return flexmatch("cosim", plan, "--data", "test.npz", "--samples", "4", *more)


def edited(**changes: Any) -> Callable[[Any], Any]:
    return lambda plan: {**plan, **changes}


def without(key: str) -> Callable[[Any], Any]:
    return lambda plan: {k: v for k, v in plan.items() if k != key}


def formats(found: Any) -> Callable[[Any], Any]:
    return lambda plan: {**plan, "offloads": [{**plan["offloads"][0], "formats": found}, *plan["offloads"][1:]]}


DAMAGED: dict[str, tuple[Callable[[Any], Any], int, str]] = {
    "newer schema": (
        edited(schema="flexmatch.plan/2"), 3, 'error[F220]: Schema of a plan must be "flexmatch.plan/1", not "flexmatch.plan/2"' + AGAIN,
    ),
    "another document": (
        edited(schema="flexmatch.cosim/1"), 3, 'error[F220]: Schema of a plan must be "flexmatch.plan/1", not "flexmatch.cosim/1"' + AGAIN,
    ),
    "a list": (lambda plan: [plan], 3, 'error[F220]: Schema of a plan must be "flexmatch.plan/1", not none' + AGAIN),
    "no schema": (without("schema"), 3, 'error[F220]: Schema of a plan must be "flexmatch.plan/1", not none' + AGAIN),
    "no model": (without("model"), 3, 'error[F220]: plan has no key "model"' + AGAIN),
    "null model": (edited(model=None), 3, "error[F220]: plan.model must be an object, not null" + AGAIN),
    "model without path": (edited(model={"sha256": ""}), 3, 'error[F220]: plan.model has no key "path"' + AGAIN),
    "settings as list": (edited(settings=[]), 3, "error[F220]: plan.settings must be an object, not a list" + AGAIN),
    "settings without exact": (edited(settings={}), 3, 'error[F220]: plan.settings has no key "exact"' + AGAIN),
    "exact as number": (
        lambda plan: {**plan, "settings": {**plan["settings"], "exact": 1}}, 3,
        "error[F220]: plan.settings.exact must be true or false, not a whole number" + AGAIN,
    ),
    "shape as text": (
        lambda plan: {**plan, "settings": {**plan["settings"], "shapes": {"x": "1,16"}}}, 3,
        "error[F220]: plan.settings.shapes.x must be a list, not a text" + AGAIN,
    ),
    "target without name": (edited(targets=[{}]), 3, 'error[F220]: plan.targets[0] has no key "name"' + AGAIN),
    "offload without id": (edited(offloads=[{}]), 3, 'error[F220]: plan.offloads[0] has no key "id"' + AGAIN),
    "offloads that are not there": (edited(offloads=[]), 1, "error[F220]: the plan's rules or targets have changed: "
                                    "linear_0 is now gemm0, relu0\n  help: compile again"),
    "calibration as text": (edited(calibration="c"), 3, "error[F220]: plan.calibration must be an object, not a text" + AGAIN),
    "calibration without hash": (edited(calibration={"source": "c"}), 3, 'error[F220]: plan.calibration has no key "sha256"' + AGAIN),
    "formats of other tensors": (
        formats({"x": {"format": "adaptivfloat", "bias": 3}}), 3, "error[F220]: linear_0 must have formats for x, w, b, y, not x" + AGAIN,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_plan(name: str, folder: Path) -> None:
    change, code, said = DAMAGED[name]
    Path("ready.json").write_text(json.dumps(change(json.loads(Path("ready.json").read_text("utf-8")))), "utf-8")
    refused(cosim("ready.json"), code, f"ready.json: {said}")
    refused(flexmatch("explain", "ready.json", "gemm0"), code, f"ready.json: {said}")


BYTES = {
    "truncated": (lambda plan: plan[:500], "the file is not a plan: ", 3),
    "no text": (lambda plan: b"\xff\xfe\x00", "the file is not a plan: it is not UTF-8 text: byte 0", 3),
    "nested": (lambda plan: b"[" * 100_000, "the file is not a plan: it is nested too deeply", 3),
    "empty": (lambda plan: b"", "the file is not a plan: Expecting value, line 1", 3),
}


@pytest.mark.parametrize("name", BYTES)
def test_a_file_that_is_no_plan(name: str, folder: Path) -> None:
    change, said, code = BYTES[name]
    Path("ready.json").write_bytes(change(Path("ready.json").read_bytes()))
    answer = cosim("ready.json")
    assert (answer.code, answer.out, answer.new) == (code, "", ())
    assert answer.err.startswith(f"ready.json: error[F103]: {said}")
    assert answer.err.endswith(f"{AGAIN}\n")


def test_a_folder_named_as_a_plan(folder: Path) -> None:
    Path("plans.json").mkdir()
    refused(cosim("plans.json"), 2, "plans.json: error[F100]: a plan must be a file\n  help: give a plan or a model")


def test_formats_that_do_not_exist(folder: Path) -> None:
    plan = json.loads(Path("ready.json").read_text("utf-8"))
    good = plan["offloads"][0]["formats"]
    for bad, said in (
        ({"format": "posit"}, 'there is no number format called "posit"\n  help: known: adaptivfloat, fixed, int, ieee'),
        ({"format": "int", "size": 1}, f'there is no number format int with {{"size": 1}}{AGAIN}'),
        ({"format": "fixed", "width": 1 << 63}, f'there is no number format fixed with {{"width": 9223372036854775808}}{AGAIN}'),
        (
            {"format": "ieee", "width": 64, "exponent_bits": 40},
            f'there is no number format ieee with {{"width": 64, "exponent_bits": 40}}{AGAIN}',
        ),
        ({"format": "fixed", "fraction": -(1 << 40)}, f'there is no number format fixed with {{"fraction": -1099511627776}}{AGAIN}'),
        ({"format": "adaptivfloat", "bias": "a"}, f'there is no number format adaptivfloat with {{"bias": "a"}}{AGAIN}'),
    ):
        Path("bad.json").write_text(json.dumps(formats({**good, "x": bad})(plan)), "utf-8")
        answer = cosim("bad.json")
        assert (answer.code, answer.out, answer.new) == (3, "", ())
        assert answer.err == f"bad.json: error[F220]: {said}\n"


def test_formats_that_the_device_does_not_have(folder: Path) -> None:
    plan = json.loads(Path("ready.json").read_text("utf-8"))
    good = plan["offloads"][0]["formats"]
    built = "adaptivfloat(width=8, exponent_bits=3)"
    for bad, said in (
        ({**good["x"], "width": 9}, "adaptivfloat(width=9, exponent_bits=3)"),
        ({**good["x"], "exponent_bits": 4}, "adaptivfloat(width=8, exponent_bits=4)"),
        ({"format": "fixed", "width": 8, "fraction": 4}, "fixed(width=8, signed=True)"),
    ):
        Path("bad.json").write_text(json.dumps(formats({**good, "x": bad})(plan)), "utf-8")
        refused(cosim("bad.json"), 3, f"bad.json: error[F220]: x of linear_0 must have the format {built} of its target, not {said}{AGAIN}")


def test_a_model_that_changed_or_is_gone(folder: Path) -> None:
    onnx.save(perceptron((16, 8, 4), seed=5), "app.onnx")
    said = "ready.json: error[F106]: app.onnx is not the model the plan was made of: its sha256 differs\n  help: compile again"
    refused(cosim("ready.json"), 3, said)
    Path("app.onnx").unlink()
    said = "ready.json: error[F101]: there is no file app.onnx, which the plan was made of\n  help: put the model back"
    refused(cosim("ready.json"), 2, said)


def test_a_plan_that_moved_with_its_model(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("elsewhere").mkdir()
    for name in ("app.onnx", "ready.json", "ready.onnx"):
        shutil.move(name, f"elsewhere/{name}")
    for plan in ("ready.json", "ready.onnx"):
        answer = cosim(f"elsewhere/{plan}", "-q")
        assert (answer.code, answer.err) == (0, "")


def test_a_plan_never_loads_a_file(folder: Path) -> None:
    Path("evil.py").write_text("open('loaded', 'w').close()\n", "utf-8")
    for name in ("./evil.py", "evil.py", f"{folder}/evil.py", "../evil"):
        plan = json.loads(Path("ready.json").read_text("utf-8"))
        plan["targets"][0]["name"] = name
        Path("evil.json").write_text(json.dumps(plan), "utf-8")
        answer = cosim("evil.json")
        assert (answer.code, answer.out) == (2, "")
        said = f"the plan was made for the accelerator in {name}, and a file is run only when the command names it"
        assert answer.err == f"error[F201]: {said}\n  help: add --accel {name}\n"
        assert not Path("loaded").exists()


@pytest.mark.parametrize("option", [("--exact",), ("--only", "linear"), ("--without", "linear"), ("--shape", "x=1,16")], ids=lambda o: o[0])
def test_options_of_compilation_do_not_change_a_plan(option: tuple[str, ...], folder: Path) -> None:
    said = f"ready.json: error[F203]: {option[0]} cannot change a plan that is already made\n  help: compile its model again"
    refused(cosim("ready.json", *option), 2, said)
