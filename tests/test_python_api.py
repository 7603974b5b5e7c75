"""The Python interface as people use it: what is there is seen, models and samples in memory are taken, objects are shown short."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest

import flexmatch
from rewrite_compiler.apps import find_application
from rewrite_compiler.compile import Options, to_json
from rewrite_compiler.cosim import Settings
from rewrite_compiler.errors import FlexmatchError
from rewrite_compiler.limits import Limits

APP = find_application("digits_mlp")
SAMPLES = 40


def refusal(call: Callable[[], Any]) -> str:
    with pytest.raises(FlexmatchError) as caught:
        call()
    return str(caught.value)


@pytest.fixture(scope="module")
def plan() -> Any:
    return flexmatch.compile(APP.model, "flexasr", calibrate=APP.calibration)


@pytest.fixture(scope="module")
def arrays() -> dict[str, Any]:
    with np.load(APP.data) as archive:
        return {name: archive[name][:SAMPLES] for name in archive.files}


def input_of(arrays: dict[str, Any]) -> str:
    return next(n for n in arrays if n != "labels")


def test_public_names_are_seen_before_they_are_used() -> None:
    code = "import flexmatch as f; print(*[n for n in dir(f) if not n.startswith('_')])"
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert seen == sorted(flexmatch.__all__)


@pytest.mark.parametrize("name", ["compile", "prove", "ila", "cosimulate", "check", "traffic"])
def test_signatures_name_the_parameters(name: str) -> None:
    signature = inspect.signature(getattr(flexmatch, name))
    named = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    assert named
    assert not [p for p in named if p.kind is inspect.Parameter.VAR_POSITIONAL or p.annotation in (inspect.Parameter.empty, "Any")]
    assert len(str(signature)) < 700


def test_one_accelerator_need_not_be_in_a_list(plan: Any) -> None:
    listed = flexmatch.compile(APP.model, ["flexasr"], calibrate=APP.calibration)
    assert {k: v for k, v in to_json(plan).items() if k != "run"} == {k: v for k, v in to_json(listed).items() if k != "run"}


def test_a_model_in_memory_has_the_plan_of_its_file(plan: Any) -> None:
    data = APP.model.read_bytes()
    for model in (data, onnx.load_from_string(data)):
        document = to_json(flexmatch.compile(model, "flexasr", calibrate=APP.calibration))
        assert document["model"].pop("path") == "the model in memory"
        expected = to_json(plan)
        assert {k: document[k] for k in ("counts", "offloads", "calibration")} == {
            k: expected[k] for k in ("counts", "offloads", "calibration")
        }


def test_what_is_no_model_is_refused() -> None:
    assert refusal(lambda: flexmatch.compile(3, "flexasr")) == (
        "error[F100]: a model must be an ONNX file, its bytes or a ModelProto, not int\n"
        "  help: give the path of an .onnx file, or a model of torch, Keras or scikit-learn"
    )
    assert refusal(lambda: flexmatch.compile(b"", "flexasr")) == "the model in memory: error[F102]: the file is empty"


def forms(arrays: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    x, labels = arrays[input_of(arrays)], arrays["labels"]
    batches = [slice(n, n + 16) for n in range(0, SAMPLES, 16)]
    yield "by name", arrays
    yield "lists of Python numbers", {input_of(arrays): x.tolist(), "labels": labels.tolist()}
    yield "pair", (x, labels)
    yield "pair of names and labels", ({input_of(arrays): x}, labels)
    yield "batches of pairs", ([x[b], labels[b]] for b in batches)
    yield "batches by name", [{input_of(arrays): x[b], "labels": labels[b]} for b in batches]
    yield "single samples", [(one, label) for one, label in zip(x, labels, strict=True)]


FORMS = "a name of `flexmatch list`, the path of a Python file, or a Target"


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda p: flexmatch.compile(APP.model, 5), f"an accelerator must be {FORMS}, not int"),
        (lambda p: flexmatch.compile(APP.model, ["vta", b"x"]), f"an accelerator must be {FORMS}, not bytes"),
        (lambda p: flexmatch.compile(APP.model, "vta", {"exact": True}), "options must be flexmatch.compile.Options, not dict"),
        (lambda p: flexmatch.cosimulate("digits.flexasr.json", APP.data), "plan must be what compile returns, not str"),
        (lambda p: flexmatch.cosimulate(p, APP.data, samples="4"), "samples must be a whole number from 0 on, not str"),
        (
            lambda p: flexmatch.cosimulate(p, APP.data, metric=["top1"]),
            "metric must be a name or a function (outputs, truth) → scores, not list",
        ),
        (lambda p: flexmatch.prove(5), "rules must be Rule objects or the path of a rule file, not int"),
        (lambda p: flexmatch.prove(targets=None), f"a target must be {FORMS}, not NoneType"),
        (lambda p: flexmatch.check(None), "subject must be the name of a target or the path of a file, not NoneType"),
    ],
)
def test_a_value_of_another_type_is_refused(call: Callable[[Any], Any], sentence: str, plan: Any) -> None:
    assert refusal(lambda: call(plan)) == f"error[F203]: {sentence}"


def test_a_path_of_a_target_may_be_an_object(tmp_path: Path) -> None:
    absent = tmp_path / "none.py"
    assert refusal(lambda: flexmatch.compile(APP.model, absent)).startswith(f"error[F201]: there is no target file {absent}\n")


def test_samples_in_memory_score_as_those_of_files(plan: Any, arrays: dict[str, Any]) -> None:
    settings = Settings(samples=0, tier="arrays", keep_outputs=True)
    expected = flexmatch.cosimulate(plan, arrays, settings=settings)
    for form, samples in forms(arrays):
        report = flexmatch.cosimulate(plan, samples, settings=settings)
        assert report.document["accelerated"] == expected.document["accelerated"], form
        assert report.document["offloads"] == expected.document["offloads"], form
        assert report.document["data"]["source"] == "the given samples"


def test_an_array_alone_calibrates(plan: Any) -> None:
    with np.load(APP.calibration) as archive:
        x = archive[archive.files[0]]
    made = flexmatch.compile(APP.model, "flexasr", calibrate=x)
    assert [o.formats for o in made.offloads] == [o.formats for o in plan.offloads]


def test_samples_that_mean_nothing_are_refused(plan: Any, arrays: dict[str, Any]) -> None:
    name, forms = input_of(arrays), "give a file, a dict of arrays by input name, one array, (inputs, labels), or batches of these"
    cases = {
        "error[F203]: data must be samples or the file of them, not object\n  help: " + forms: object(),
        f'the given samples: error[C100]: "{name}" must hold numbers, not <U1\n  help: ' + forms: {name: np.array(["a"])},
        "the given samples: error[C100]: data must have at least one sample, not 0": [],
        f'the given samples: error[C100]: there is no array for the input "{name}"\n'
        '  help: it has "y"; name arrays as the model\'s inputs, or describe the data in a .toml': {"y": arrays[name]},
    }  # fmt: skip
    for sentence, samples in cases.items():
        assert refusal(lambda samples=samples: flexmatch.cosimulate(plan, samples)) == sentence


def test_objects_are_shown_in_one_short_line(plan: Any, arrays: dict[str, Any]) -> None:
    report = flexmatch.cosimulate(plan, arrays, samples=4)
    for shown in (plan, plan.source, plan.program, plan.offloads[0], report, Options(), Settings(), Limits()):
        assert len(repr(shown)) < 300, repr(shown)[:300]
        assert "\n" not in repr(shown)
    assert repr(plan) == "Plan(mlp.onnx: 3 linear on flexasr; nodes on the host: 1)"
    assert repr(Options(objective="cycles")) == "Options(objective='cycles')"
    assert repr(Limits(rounds=3)) == "Limits(rounds=3)"


class Frame(dict[str, Any]):
    """What this program uses of a pandas.DataFrame."""


def test_results_as_tables(plan: Any, arrays: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    report = flexmatch.cosimulate(plan, arrays)
    monkeypatch.setitem(sys.modules, "pandas", None)
    said = "error[F108]: a table of results needs the package pandas\n  help: pip install pandas"
    assert [refusal(x.to_pandas) for x in (plan, report)] == [said, said]
    pandas = ModuleType("pandas")
    pandas.__dict__["DataFrame"] = Frame
    monkeypatch.setitem(sys.modules, "pandas", pandas)
    scores = report.to_pandas()
    assert list(scores) == ["host", "accelerated", "weight"]
    assert [np.mean(scores[side]) for side in ("host", "accelerated")] == [
        report.document[side]["value"] for side in ("reference", "accelerated")
    ]
    nodes = plan.to_pandas()
    assert sorted(nodes["node"]) == sorted({n for o in plan.offloads for n in o.nodes} | {x.node for x in (*plan.host, *plan.absorbed)})
    assert {"flexasr.linear", "host"} <= set(nodes["place"])
    assert all(nodes["why"])


def test_the_public_package_has_every_name_of_the_engine_and_no_other() -> None:
    import rewrite_compiler

    assert flexmatch.__all__ == rewrite_compiler.__all__
    assert all(getattr(flexmatch, name) is getattr(rewrite_compiler, name) for name in flexmatch.__all__)
    with pytest.raises(AttributeError, match="module 'flexmatch' has no attribute 'nothing'"):
        _ = flexmatch.nothing


def test_prove_takes_a_file_and_names(tmp_path: Path) -> None:
    (tmp_path / "mine.rules").write_text('rule same(x: tensor) grade E {\n    "A double negation."\n    neg(neg(x))\n        = x\n}\n')
    verdicts = flexmatch.prove(tmp_path / "mine.rules")
    assert [(p.name, p.is_proved) for p in verdicts.rules] == [("same", True)]
    assert (verdicts.mappings, verdicts.ilas) == ((), ())
    assert 'no accelerator called "flexasm"' in refusal(lambda: flexmatch.prove(targets="flexasm"))


def test_progress_that_is_no_function_is_refused_before_anything_is_read() -> None:
    number: Any = 3
    with pytest.raises(flexmatch.FlexmatchError) as refusal:
        flexmatch.compile("absent.onnx", "vta", progress=number)
    assert refusal.value.problem.sentence == "progress must be a function of a name, not int"
