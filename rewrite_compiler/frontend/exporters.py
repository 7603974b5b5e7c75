"""Exporters: models of PyTorch, Keras and scikit-learn as ONNX bytes, by the exporter of each library."""

from __future__ import annotations

import io
import logging
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import onnx

from ..errors import InputError, UsageError


class TorchModule(Protocol):
    """A torch.nn.Module."""

    training: bool

    def state_dict(self) -> Any:
        """Return its parameters."""


class KerasModel(Protocol):
    """A keras.Model."""

    def get_config(self) -> Any:
        """Return its layers."""


class Estimator(Protocol):
    """A fitted estimator of scikit-learn."""

    def get_params(self) -> Any:
        """Return its settings."""


KERAS_INPUTS = "give example_inputs=…, an array or what else the model is called with"
OTHER_BACKEND = "build the model with another backend of Keras, KERAS_BACKEND=jax or torch, or without these layers"
COLOURS = re.compile(r"\x1b\[[0-9;]*m")

LibraryModel: TypeAlias = TorchModule | KerasModel | Estimator


@dataclass(frozen=True)
class Exporter:
    """How a library's models become ONNX: its function, its name for messages, and the packages that it needs."""

    export: Callable[[Any, object], bytes]
    name: str
    packages: str


def as_onnx(model: Any, example_inputs: object = None) -> Any:
    """Return a model of another library as ONNX bytes, and anything else as it is.

    `example_inputs` are what the model is called with: one array or tensor, a tuple of them, or a dict by parameter name.

    Raises:
        UsageError: F107, the library's exporter is not installed, or example inputs are missing; F203, there are some for a file.
        InputError: F107, the exporter fails.
    """
    exporter = _exporter_of(model)
    if exporter is None:
        if example_inputs is not None:
            raise UsageError("F203", "example inputs are for models of torch, Keras and scikit-learn only", help="leave example_inputs out")
        return model
    kind = type(model).__qualname__
    try:
        return exporter.export(model, example_inputs)
    except (UsageError, InputError):
        raise
    except ImportError as error:
        missing = error.name or str(error)
        raise UsageError(
            "F107", f"{exporter.name} needs the package {missing} to export {kind}", help=f"pip install {exporter.packages}"
        ) from None
    except Exception as error:  # whatever an exporter of another project raises about this model
        cause = _root_cause(error)
        reason = next((line.strip() for line in COLOURS.sub("", str(cause)).splitlines() if line.strip()), "no reason")
        sentence = f"{exporter.name} cannot export {kind}: {type(cause).__name__}: {reason}"
        raise InputError("F107", sentence, help="export it by hand, and give the path of the .onnx file") from error


def _root_cause(error: BaseException) -> BaseException:
    """Return the error that began a chain of errors."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _exporter_of(model: Any) -> Exporter | None:
    """Return the exporter of a model's library; of classes only, not of tensors or arrays of the library."""
    bases = {f"{base.__module__.partition('.')[0]}.{base.__name__}" for base in type(model).__mro__}
    return next((exporter for base, exporter in EXPORTERS.items() if base in bases), None)


def _from_torch(model: Any, example_inputs: object) -> bytes:
    if example_inputs is None:
        raise UsageError(
            "F107", "a torch.nn.Module is exported with example inputs", help="give example_inputs=(tensor, …), as forward takes them"
        )
    import torch

    is_named = isinstance(example_inputs, Mapping)
    arguments = () if is_named else tuple(example_inputs) if isinstance(example_inputs, (tuple, list)) else (example_inputs,)
    keywords = dict(example_inputs) if isinstance(example_inputs, Mapping) else {}
    tensors = tuple(torch.as_tensor(x) for x in arguments)
    with _evaluating(model), torch.no_grad(), redirect_stdout(io.StringIO()):
        program = torch.onnx.export(model, tensors, kwargs={k: torch.as_tensor(x) for k, x in keywords.items()}, dynamo=True)
    return bytes(program.model_proto.SerializeToString())


@contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    """Put a module into evaluation for the body, and each of its parts back into the mode it had."""
    modes = [(part, part.training) for part in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


def _from_keras(model: Any, example_inputs: object) -> bytes:
    """Export a model for any number of samples, with other lengths as in the example inputs, where there are any."""
    inputs = getattr(model, "inputs", None)
    if example_inputs is None and not inputs and not model.built:
        raise UsageError("F107", "a keras.Model that was never called is exported with example inputs", help=KERAS_INPUTS)
    with tempfile.TemporaryDirectory() as folder, _without_remarks():
        path = Path(folder) / "model.onnx"
        signature = None if example_inputs is None and not inputs else [_keras_signature(model, example_inputs)]
        model.export(str(path), format="onnx", verbose=False, input_signature=signature)
        return _mended_export(path.read_bytes(), len(inputs) if inputs else None)


def _keras_signature(model: Any, example_inputs: object) -> Any:
    """Return the specifications of what a model is called with: its own inputs, else those of the example."""
    import keras

    def specification(x: Any, example: Any) -> Any:
        return keras.InputSpec(shape=(None, *example.shape[1:]), dtype=str(x.dtype), name=getattr(x, "name", None))

    examples = None if example_inputs is None else keras.tree.map_structure(np.asarray, example_inputs)
    if examples is not None:
        model(keras.tree.map_structure(keras.ops.convert_to_tensor, examples))
    if not (inputs := getattr(model, "inputs", None)):
        return keras.tree.map_structure(lambda x: specification(x, x), examples)
    shaped = inputs if examples is None else keras.tree.flatten(examples)
    specifications = [specification(x, example) for x, example in zip(inputs, shaped, strict=True)]
    return specifications if len(inputs) > 1 else specifications[0]


@contextmanager
def _without_remarks() -> Iterator[None]:
    """Leave out, for the body, what exporters of Keras say about themselves and other libraries."""
    log = logging.getLogger("tf2onnx")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        log.setLevel(level)


def _mended_export(data: bytes, count: int | None) -> bytes:
    """Return a model with one name for the number of samples of its `count` inputs (None: not known) and without operators that ONNX lacks.

    Raises:
        InputError: F107, values of the model became inputs of the file, so that they are lost.
    """
    model = onnx.load_from_string(data)
    inputs = model.graph.input
    if count is not None and len(inputs) > count:
        names = ", ".join(f'"{i.name}"' for i in [*inputs][count:])
        raise InputError("F107", f"keras.Model.export leaves values of the model out and makes inputs of them: {names}", help=OTHER_BACKEND)
    for i in inputs:
        leading = i.type.tensor_type.shape.dim[:1]
        if leading and not leading[0].HasField("dim_value"):
            leading[0].dim_param = "samples"
    nodes = [part for node in model.graph.node for part in (_complement(node) if node.op_type == "Erfc" else (node,))]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return bytes(model.SerializeToString())


def _complement(node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes that give 1 - Erf(x) for a node Erfc(x)."""
    (x,), (result,) = node.input, node.output
    one = onnx.helper.make_node("Constant", [], [f"{result}.one"], value_float=1.0)
    unit = onnx.helper.make_node("CastLike", [f"{result}.one", x], [f"{result}.unit"])
    error = onnx.helper.make_node("Erf", [x], [f"{result}.erf"])
    yield from (one, unit, error, onnx.helper.make_node("Sub", [f"{result}.unit", f"{result}.erf"], [result], name=node.name))


def _from_sklearn(model: Any, example_inputs: object) -> bytes:
    import skl2onnx
    from skl2onnx.common.data_types import FloatTensorType

    types: dict[str, object] = {"X": example_inputs}
    if example_inputs is None:
        types = {"initial_types": [("X", FloatTensorType([1, model.n_features_in_]))]}
    options = {id(model): {"zipmap": False}} if hasattr(model, "predict_proba") else None
    return bytes(skl2onnx.to_onnx(model, options=options, **types).SerializeToString())


# the class that all models of a library derive from → its exporter
EXPORTERS: Mapping[str, Exporter] = {
    "torch.Module": Exporter(_from_torch, "torch.onnx.export", "onnxscript"),
    "keras.Model": Exporter(_from_keras, "keras.Model.export", "tf2onnx"),
    "sklearn.BaseEstimator": Exporter(_from_sklearn, "skl2onnx", "skl2onnx"),
}
