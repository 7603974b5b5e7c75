"""Calls of public functions with arguments that they do not have, or of another kind: one sentence, before anything is read."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flexmatch
from rewrite_compiler.apps import find_application
from rewrite_compiler.compile import Options
from rewrite_compiler.cosim import Settings
from rewrite_compiler.errors import UsageError

f: Any = flexmatch
APP = find_application("digits_mlp")
CALLED = ("assemble", "check", "compile", "cosimulate", "disassemble", "map", "prove", "rule", "Rule", "traffic")
SAMPLES = "samples or the file of them"
FORMS = "give a file, a dict of arrays by input name, one array, (inputs, labels), or batches of these"
MAKE: Any = Options
SET: Any = Settings


def refusal(call: Callable[[], Any]) -> str:
    with pytest.raises(UsageError) as caught:
        call()
    assert caught.value.problem.code in ("F203", "F201")
    return str(caught.value).partition(": ")[2]


@pytest.fixture(scope="module")
def plan() -> Any:
    return flexmatch.compile(APP.model, "vta", calibrate=APP.calibration)


@pytest.mark.parametrize("name", CALLED)
def test_a_keyword_that_there_is_not_is_told_by_the_public_name(name: str) -> None:
    function = getattr(flexmatch, name)
    sentence, _, remedy = refusal(lambda: function(zzz=1)).partition("\n")
    assert sentence == f'{name} has no argument "zzz"'
    assert remedy == f"  help: it has {', '.join(p for p in inspect.signature(function).parameters)}"


@pytest.mark.parametrize("name", [n for n in CALLED if n not in ("prove", "rule")])
def test_a_call_without_arguments_says_how_to_write_it(name: str) -> None:
    required = [p.name for p in inspect.signature(getattr(flexmatch, name)).parameters.values() if p.default is p.empty]
    said = f"the argument {required[0]} of {name} is missing\n  help: write {name}({', '.join(required)})"
    assert refusal(getattr(flexmatch, name)) == said


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda: f.compile("absent.onnx", "vta", calibration=3),
            'compile has no argument "calibration"\n  help: did you mean "calibrate"?',
        ),
        (
            lambda: f.compile("absent.onnx", "vta", objective="cycles"),
            'compile has no argument "objective"\n  help: give options=flexmatch.compile.Options(objective=…)',
        ),
        (
            lambda: f.cosimulate(None, None, host="exact"),
            'cosimulate has no argument "host"\n  help: give settings=rewrite_compiler.cosim.Settings(host=…)',
        ),
        (lambda: f.cosimulate(None, None, n_samples=3), 'cosimulate has no argument "n_samples"\n  help: did you mean "samples"?'),
        (
            lambda: f.compile("absent.onnx", "vta", MAKE(), 3),
            "compile takes at most 3 arguments without a name, not 4\n"
            "  help: name the others: example_inputs=…, calibrate=…, calibration_method=…, progress=…",
        ),
        (
            lambda: f.compile("absent.onnx", "vta", accel="vta"),
            "compile is given the argument accel twice, by its position and by its name\n  help: write compile(model, accel)",
        ),
        (lambda: f.compile("absent.onnx", {"vta"}), f"an accelerator must be {f.compile.compile.TARGET_FORMS}, not set"),
        (lambda: f.compile("absent.onnx", "vta", calibration_method=3), "calibration_method must be a name, not int"),
        (
            lambda: f.compile("absent.onnx", "vta", calibration_method="max"),
            "calibration_method has no effect without samples\n  help: give calibrate=…",
        ),
        (lambda: f.compile("absent.onnx", "vta", calibrate=3), f"calibrate must be {SAMPLES}, not int\n  help: {FORMS}"),
        (lambda: f.compile("absent.onnx", "vta", calibrate=True), f"calibrate must be {SAMPLES}, not bool\n  help: {FORMS}"),
        (lambda: f.prove(progress=3), "progress must be a function of a name, not int\n  help: give print, or none"),
        (lambda: f.check("vta", progress=3), "progress must be a function of a name, not int\n  help: give print, or none"),
        (lambda: f.check("vta", groups=0), "groups must be a whole number from 1 on, not 0"),
        (lambda: f.check("vta", seed="x"), "seed must be a whole number from 0 on, not str"),
        (lambda: f.check("vta", data="x.npz"), "data has no effect on vta, which is no plan\n  help: leave data out"),
        (lambda: f.check("absent.onnx", shapes={"x": "1x3"}), 'an entry of the shape of "x" must be a whole number from 1 on, not str'),
        (lambda: f.prove(jobs=0), "jobs must be a whole number from 1 on, not 0"),
        (lambda: f.prove(jobs="2"), "jobs must be a whole number from 1 on, not str"),
        (lambda: f.prove("vta"), '"vta" is no rule file but an accelerator\n  help: write prove(targets="vta")'),
        (
            lambda: f.prove(targets="vta", only="vta.gm"),
            'there is no operation called "vta.gm"\n  help: `flexmatch list` shows the names',
        ),
        (lambda: f.prove(only=3), "only must be a name or a sequence of names, not int"),
        (lambda: f.assemble(3, "vta"), "text must be a text, not int"),
        (lambda: f.disassemble([1.5], "vta"), "an entry of words must be a whole number from 0 on, not float"),
        (lambda: f.disassemble([-1], "vta"), "an entry of words must be a whole number from 0 on, not -1"),
        (lambda: f.disassemble([1 << 2000], "vta"), "word 0 must have at most 128 bits, not 2001"),
        (lambda: f.ila("flexasr", sigmoyd="3.2"), 'flexasr has no parameter "sigmoyd"\n  help: did you mean "sigmoid"?'),
        (lambda: f.ila(3), "name must be a name, not int"),
        (lambda: f.rule(3), "function must be a function of pattern variables, not int"),
        (lambda: MAKE(objectiv="edp"), 'flexmatch.compile.Options has no argument "objectiv"\n  help: did you mean "objective"?'),
        (lambda: MAKE(exact="yes"), "exact must be True or False, not str"),
        (lambda: MAKE(only=(3,)), "an entry of only must be a name, not int"),
        (lambda: MAKE(limits=3), "limits must be rewrite_compiler.limits.Limits, not int"),
        (lambda: MAKE(shapes=[1]), 'shapes must be a dict of shapes by input name, as {"x": (1, 3, 224, 224)}, not list'),
        (lambda: SET(samples=True), "samples must be a whole number from 0 on, not bool"),
        (lambda: SET(log=3), "log must be the path of a file, not int"),
    ],
)
def test_a_call_that_does_not_fit(call: Callable[[], Any], said: str) -> None:
    assert refusal(call) == said


def test_calibration_of_no_file_is_refused_before_the_model_is_read(plan: Any) -> None:
    for call in (lambda: f.compile("absent.onnx", "vta", calibrate="gone.npz"), lambda: f.cosimulate(plan, "d.npz", calibrate="gone.npz")):
        with pytest.raises(UsageError) as caught:
            call()
        assert str(caught.value) == "gone.npz: error[F101]: there is no such file or folder"
    assert refusal(lambda: f.cosimulate(plan, 3)) == f"data must be {SAMPLES}, not int\n  help: {FORMS}"
    assert refusal(lambda: f.cosimulate(plan, "absent.npz", calibrate=3)) == f"calibrate must be {SAMPLES}, not int\n  help: {FORMS}"


def test_progress_of_a_run_is_checked_before_it_begins(plan: Any) -> None:
    said = "progress must be a function of the samples finished and of all, not int\n  help: give print, or none"
    assert refusal(lambda: f.cosimulate(plan, "absent.npz", progress=3)) == said


def test_what_may_be_written_shorter_is_taken() -> None:
    settings, options = SET(samples=np.int64(3), log="run.log"), MAKE(only="linear", rules="mine.rules", shapes={"x": [1, np.int32(3)]})
    assert (type(settings.samples), settings.log) == (int, Path("run.log"))
    assert (options.only, options.rules, options.shapes) == (("linear",), (Path("mine.rules"),), {"x": (1, 3)})


def test_a_function_is_a_metric(plan: Any) -> None:
    def accuracy(outputs: Any, labels: Any) -> Any:
        return outputs.reshape(len(outputs), -1).argmax(1) == labels

    with np.load(APP.data) as archive:
        data = {name: archive[name][:40] for name in archive.files}
    own, named = (flexmatch.cosimulate(plan, data, metric=m).document for m in (accuracy, "top1"))
    assert own["metric"] == "accuracy"
    assert [own[side]["value"] for side in ("reference", "accelerated")] == [named[side]["value"] for side in ("reference", "accelerated")]

    def broken(outputs: Any, labels: Any) -> Any:
        raise ValueError("no such class")

    with pytest.raises(flexmatch.FlexmatchError, match=r"test_public_calls.py:\d+: error\[C108\]: metric broken failed: ValueError"):
        flexmatch.cosimulate(plan, data, metric=broken)
