"""Exporters: models of PyTorch, Keras and scikit-learn as ONNX bytes, by the exporter of each library."""

from __future__ import annotations

import io
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

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


def _from_keras(model: Any, _: object) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        model.export(str(path), format="onnx", verbose=False)
        return path.read_bytes()


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
