"""Small models for the catalogue, and what a case of it is."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT = TensorProto.FLOAT
Array = np.ndarray[Any, Any]
Write = Callable[[Path], None]


@dataclass(frozen=True)
class Case:
    """One bad input: the row of the catalogue, what writes its files, and the command that gets them; no command: it is only imported."""

    row: int
    write: Write
    command: tuple[str, ...] = ()
    shapes: Mapping[str, tuple[int, ...]] | None = None


def ints(*values: int) -> Array:
    """Return a constant of int64 elements."""
    return np.asarray(values, np.int64)


def value(name: str, shape: Sequence[object] | None = None, dtype: int = FLOAT) -> Any:
    """Return the declaration of a value, of unknown shape unless one is given."""
    return helper.make_tensor_value_info(name, dtype, shape)


def model(
    nodes: Sequence[Any], inputs: Sequence[Any] = (), outputs: Sequence[Any] = (), constants: Mapping[str, Any] | None = None, *,
    opset: int = 21, functions: Sequence[Any] = (), domains: Mapping[str, int] | None = None,
) -> Any:  # fmt: skip
    """Return a model; its input is a float x[2, 3] and its output y when nothing else is said."""
    tensors = [x if isinstance(x, TensorProto) else numpy_helper.from_array(np.asarray(x), n) for n, x in (constants or {}).items()]
    ends = [onnx.ValueInfoProto(name=o) if isinstance(o, str) else o for o in (outputs or ["y"])]
    graph = helper.make_graph(list(nodes), "app", list(inputs or [value("x", (2, 3))]), ends, tensors)
    imports = [helper.make_opsetid(d, v) for d, v in {"": opset, **(domains or {})}.items()]
    return helper.make_model(graph, opset_imports=imports, ir_version=10, functions=list(functions))


def node(op: str, reads: Sequence[str] = ("x",), gives: Sequence[str] = ("y",), **attributes: Any) -> Any:
    """Return a node named after its operator."""
    return helper.make_node(op, list(reads), list(gives), name=attributes.pop("name", op.lower()), **attributes)


def one(op: str, *operands: Any, results: int = 1, **attributes: Any) -> Any:
    """Return a model of one node: arrays are constants, tuples shapes of float inputs."""
    names = [f"x{n}" for n in range(len(operands))]
    constants = {n: x for n, x in zip(names, operands, strict=True) if isinstance(x, np.ndarray)}
    inputs = [value(n, x) for n, x in zip(names, operands, strict=True) if not isinstance(x, np.ndarray)]
    gives = ["y", *(f"y{n}" for n in range(1, results))]
    return model([node(op, names, gives, **attributes)], inputs, gives, constants)


def good() -> Any:
    """Return a model with nothing wrong: convolution, ReLU, reshape and a matrix product."""
    ramp = np.linspace(-1, 1, 24, dtype=np.float32)
    constants = {"w": ramp.reshape(2, 3, 2, 2), "shape": ints(1, -1), "m": ramp.reshape(8, 3)}
    nodes = [
        node("Conv", ["x", "w"], ["a"], strides=[1, 1]), node("Relu", ["a"], ["b"]), node("Reshape", ["b", "shape"], ["c"]),
        node("MatMul", ["c", "m"], ["y"]),
    ]  # fmt: skip
    return model(nodes, [value("x", (1, 3, 3, 3))], [value("y", (1, 3))], constants)


def changed(change: Callable[[Any], Any]) -> Any:
    """Return the good model, changed."""
    made = copy.deepcopy(good())
    change(made)
    return made


def linear() -> Any:
    """Return one linear layer x[1, 16] → y[1, 4], which every accelerator can have."""
    weights = {"w": np.linspace(-1, 1, 64, dtype=np.float32).reshape(16, 4), "b": np.zeros(4, np.float32)}
    return model([node("Gemm", ["x", "w", "b"])], [value("x", (1, 16))], ["y"], weights)


def file(name: str, data: bytes) -> Write:
    """Write a file."""
    return lambda folder: void((folder / name).write_bytes(data))


def proto(name: str, made: Callable[[], Any]) -> Write:
    """Write a model when it is asked for."""
    return lambda folder: void((folder / f"{name}.onnx").write_bytes(made().SerializeToString()))


def text(name: str, words: str) -> Write:
    """Write a text."""
    return file(name, words.encode())


def both(*writes: Write) -> Write:
    """Write several things."""

    def write(folder: Path) -> None:
        for each in writes:
            each(folder)

    return write


def void(_: object) -> None:
    """Return nothing of something."""


def imported(row: int, **models: Callable[[], Any]) -> dict[str, Case]:
    """Return cases of models that are imported."""
    return {name: Case(row, proto(name, made)) for name, made in models.items()}
