"""Models of other libraries: each is turned into ONNX by its own exporter, and every refusal names the package or the reason.

The libraries are no dependencies, so that stand-ins with their interface are put in their place; the last tests use the real ones where
they are installed.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnxruntime
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


def as_written(inputs: dict[str, list[Any]], nodes: list[Any]) -> bytes:
    """Return the ONNX bytes of a model whose last node gives its output."""
    declared = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, shape) for n, shape in inputs.items()]
    output = onnx.helper.make_tensor_value_info(nodes[-1].output[0], onnx.TensorProto.FLOAT, None)
    graph = onnx.helper.make_graph(nodes, "model", declared, [output])
    return bytes(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 15)], ir_version=8).SerializeToString())


@pytest.fixture
def keras(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Put a stand-in in Keras's place, and return what makes a model of it that exports these bytes."""
    module = ModuleType("keras")
    module.__dict__.update(
        InputSpec=lambda shape, dtype, name: (shape, dtype, name),
        tree=SimpleNamespace(map_structure=lambda f, x: [f(v) for v in x] if isinstance(x, list) else f(x), flatten=list),
        ops=SimpleNamespace(convert_to_tensor=lambda x: x),
    )
    monkeypatch.setitem(sys.modules, "keras", module)

    def model(data: bytes, **members: Any) -> Any:
        def export(self: Any, path: str, *, format: str, verbose: bool, input_signature: Any) -> None:
            assert (format, verbose) == ("onnx", False)
            self.signatures.append(input_signature)
            Path(path).write_bytes(data)

        call = {"__call__": lambda self, x: self.signatures.append(("called", x))}
        return library_class("Model", "keras.src.models.model", export=export, signatures=[], **{**call, **members})

    return model


def spec(name: str | None, *shape: int | None) -> Any:
    return SimpleNamespace(shape=shape, dtype="float32", name=name)


def test_a_keras_model_is_exported_for_any_number_of_samples(keras: Callable[..., Any]) -> None:
    """Also one that was never called; its inputs get one name for the number of samples, which tf2onnx names apart."""
    data = as_written({"a": ["unk__1", 8], "b": ["unk__2", 8]}, [onnx.helper.make_node("Add", ["a", "b"], ["y"])])
    model = keras(data, inputs=[spec("a", None, 8), spec("b", None, 8)], built=True)
    graph = onnx.load_from_string(as_onnx(model)).graph
    assert model.signatures == [[[((None, 8), "float32", "a"), ((None, 8), "float32", "b")]]]
    assert [i.type.tensor_type.shape.dim[0].dim_param for i in graph.input] == ["samples", "samples"]
    assert repr(flexmatch.compile(model, "vta")) == "Plan(the model in memory: no offload; nodes on the host: 1)"


def test_example_inputs_fix_the_other_lengths_of_a_keras_model(keras: Callable[..., Any]) -> None:
    data = as_written({"x": ["unk__1", 9, 8]}, [onnx.helper.make_node("Relu", ["x"], ["y"])])
    examples = np.zeros((2, 9, 8), np.float32)
    model = keras(data, inputs=[spec("x", None, None, 8)], built=True)
    as_onnx(model, [examples])
    assert model.signatures[1] == [((None, 9, 8), "float32", "x")]
    unbuilt = keras(data, built=False)
    as_onnx(unbuilt, examples)
    assert unbuilt.signatures[1] == [((None, 9, 8), "float32", None)]
    assert refusal(lambda: as_onnx(keras(data, built=False))) == (
        "error[F107]: a keras.Model that was never called is exported with example inputs\n"
        "  help: give example_inputs=…, an array or what else the model is called with"
    )


def test_a_gelu_of_keras_has_an_operator_of_onnx(keras: Callable[..., Any]) -> None:
    data = as_written({"x": ["unk__1", 8]}, [onnx.helper.make_node("Erfc", ["x"], ["y"])])
    mended = as_onnx(keras(data, inputs=[spec("x", None, 8)], built=True))
    x = np.linspace(-3, 3, 8, dtype=np.float32).reshape(1, 8)
    (y,) = onnxruntime.InferenceSession(mended).run(None, {"x": x})
    assert np.allclose(y, [[math.erfc(v) for v in x[0]]], atol=1e-6)


def test_values_that_an_export_of_keras_loses_are_named(keras: Callable[..., Any]) -> None:
    data = as_written({"x": ["unk__1", 8], "mean": [1, 8]}, [onnx.helper.make_node("Sub", ["x", "mean"], ["y"])])
    assert refusal(lambda: as_onnx(keras(data, inputs=[spec("x", None, 8)], built=True))) == (
        'error[F107]: keras.Model.export leaves values of the model out and makes inputs of them: "mean"\n'
        "  help: build the model with another backend of Keras, KERAS_BACKEND=jax or torch, or without these layers"
    )


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


def test_a_real_keras_model() -> None:
    keras = pytest.importorskip("keras")
    pytest.importorskip("tf2onnx")
    net = keras.Sequential([keras.Input((16,)), keras.layers.Dense(16, activation="relu"), keras.layers.Dense(4, activation="softmax")])
    plan = flexmatch.compile(net, "flexasr")
    assert [o.mapping.name for o in plan.offloads] == ["flexasr.linear_relu", "flexasr.linear"]
