"""Models of other libraries: each is turned into ONNX by its own exporter, and every refusal names the package or the reason.

The libraries are no dependencies, so that stand-ins with their interface are put in their place; the last tests use the real ones where
they are installed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import flexmatch
from rewrite_compiler.apps import find_application
from rewrite_compiler.errors import FlexmatchError
from rewrite_compiler.frontend.exporters import as_onnx

DATA = find_application("digits_mlp").model.read_bytes()


def library_class(name: str, module: str, **members: Any) -> Any:
    """Return an object of a class that says it comes from a library."""
    return type("Net", (type(name, (), {"__module__": module, **members}),), {"__module__": "user"})()


def refusal(call: Callable[[], Any]) -> str:
    with pytest.raises(FlexmatchError) as caught:
        call()
    return str(caught.value)


class Part:
    """A part of a module in its own mode."""

    def __init__(self, training: bool) -> None:
        self.training = training


def torch_model(parts: list[Part]) -> Any:
    def evaluate(_: Any) -> None:
        for part in parts:
            part.training = False

    return library_class("Module", "torch.nn.modules.module", modules=lambda _: iter(parts), eval=evaluate, training=True)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Put a stand-in in torch's place, and return the calls of its exporter."""
    made: list[Any] = []
    torch = ModuleType("torch")

    class NoGradient:
        def __enter__(self) -> None: ...
        def __exit__(self, *_: object) -> None: ...

    def export(model: Any, arguments: Any, *, kwargs: Any, dynamo: bool) -> Any:
        made.append((arguments, kwargs, [part.training for part in model.modules()]))
        print("exporters talk")
        return SimpleNamespace(model_proto=SimpleNamespace(SerializeToString=lambda: DATA))

    torch.__dict__.update(no_grad=NoGradient, as_tensor=lambda x: ("tensor", x), onnx=SimpleNamespace(export=export))
    monkeypatch.setitem(sys.modules, "torch", torch)
    return made


@pytest.mark.parametrize(
    ("example_inputs", "arguments", "keywords"),
    [
        ("x", (("tensor", "x"),), {}),
        (("x", "z"), (("tensor", "x"), ("tensor", "z")), {}),
        ({"image": "x"}, (), {"image": ("tensor", "x")}),
    ],
)
def test_a_torch_module_is_exported_as_it_is_called(
    calls: list[Any], capsys: pytest.CaptureFixture[str], example_inputs: Any, arguments: Any, keywords: Any
) -> None:
    parts = [Part(True), Part(False)]
    assert as_onnx(torch_model(parts), example_inputs) == DATA
    assert calls == [(arguments, keywords, [False, False])]  # in evaluation: dropout does nothing
    assert [p.training for p in parts] == [True, False]
    assert capsys.readouterr() == ("", "")


def test_compile_takes_a_module(calls: list[Any]) -> None:
    plan = flexmatch.compile(torch_model([]), "flexasr", example_inputs=np.zeros((1, 1, 8, 8)))
    assert len(calls) == 1
    assert repr(plan) == "Plan(the model in memory: 3 linear on flexasr; nodes on the host: 1)"


def test_a_module_without_example_inputs(calls: list[Any]) -> None:
    said = "error[F107]: a torch.nn.Module is exported with example inputs\n  help: give example_inputs=(tensor, …), as forward takes them"
    assert refusal(lambda: flexmatch.compile(torch_model([]), "flexasr")) == said


def test_modes_come_back_when_the_exporter_fails(monkeypatch: pytest.MonkeyPatch, calls: list[Any]) -> None:
    def export(*_: object, **__: object) -> None:
        try:
            raise ValueError("\x1b[31mbranches on data\x1b[0m\nmore")
        except ValueError as error:
            raise RuntimeError("step 1 of 3 failed") from error

    monkeypatch.setattr(sys.modules["torch"], "onnx", SimpleNamespace(export=export))
    parts = [Part(True)]
    assert refusal(lambda: as_onnx(torch_model(parts), 1)) == (
        "error[F107]: torch.onnx.export cannot export Net: ValueError: branches on data\n"
        "  help: export it by hand, and give the path of the .onnx file"
    )
    assert parts[0].training


@pytest.mark.parametrize(
    ("model", "absent", "said"),
    [
        (
            torch_model([]),
            "torch",
            "error[F107]: torch.onnx.export needs the package torch to export Net\n  help: pip install onnxscript",
        ),
        (
            library_class("BaseEstimator", "sklearn.base"),
            "skl2onnx",
            "error[F107]: skl2onnx needs the package skl2onnx to export Net\n  help: pip install skl2onnx",
        ),
    ],
)
def test_an_exporter_that_is_not_there(monkeypatch: pytest.MonkeyPatch, model: Any, absent: str, said: str) -> None:
    monkeypatch.setitem(sys.modules, absent, None)
    assert refusal(lambda: as_onnx(model, 1)) == said


def test_a_keras_model_exports_itself() -> None:
    def export(_: Any, path: str, *, format: str, verbose: bool) -> None:
        assert (format, verbose) == ("onnx", False)
        Path(path).write_bytes(DATA)

    assert as_onnx(library_class("Model", "keras.src.models.model", export=export)) == DATA


def test_an_estimator_is_exported_for_single_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    skl2onnx, common, types = (ModuleType(name) for name in ("skl2onnx", "skl2onnx.common", "skl2onnx.common.data_types"))

    def to_onnx(model: Any, **options: Any) -> Any:
        seen.append({**options, "options": list((options["options"] or {}).values())})
        return SimpleNamespace(SerializeToString=lambda: DATA)

    skl2onnx.__dict__.update(to_onnx=to_onnx)
    types.__dict__.update(FloatTensorType=lambda shape: ("float", shape))
    for module in (skl2onnx, common, types):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    classifier = library_class("BaseEstimator", "sklearn.base", n_features_in_=7, predict_proba=None)
    assert as_onnx(classifier) == DATA
    assert as_onnx(library_class("BaseEstimator", "sklearn.base"), "table") == DATA
    assert seen == [
        {"initial_types": [("X", ("float", [1, 7]))], "options": [{"zipmap": False}]},
        {"X": "table", "options": []},
    ]


def test_what_is_no_model_is_left_to_the_reader() -> None:
    for model in (DATA, "app.onnx", Path("app.onnx"), 3, library_class("Tensor", "torch")):
        assert as_onnx(model) is model
    assert refusal(lambda: as_onnx("app.onnx", 3)) == (
        "error[F203]: example inputs are for models of torch, Keras and scikit-learn only\n  help: leave example_inputs out"
    )


def test_a_real_torch_module() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    net = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Dropout(), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    plan = flexmatch.compile(net, "flexasr", example_inputs=torch.zeros(1, 16))
    assert [o.mapping.name for o in plan.offloads] == ["flexasr.linear_relu", "flexasr.linear"]
    assert net.training


def test_a_real_estimator() -> None:
    pytest.importorskip("skl2onnx")
    from sklearn.linear_model import LogisticRegression

    x = np.random.default_rng(0).normal(size=(50, 16))
    plan = flexmatch.compile(LogisticRegression().fit(x, x[:, 0] > 0), "flexasr")
    assert [o.mapping.name for o in plan.offloads] == ["flexasr.linear"]
