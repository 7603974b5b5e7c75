"""An ONNX graph or function body under construction; names are unique, equal literals are stored once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from onnx import helper, numpy_helper

from ...ir.program import Data
from ..file.tensors import CODES


class Names:
    """A supply of unique names, as close to the preferred ones as possible."""

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self._reserved = {"", *reserved}
        self._next: dict[str, int] = {}

    def unique(self, preferred: str) -> str:
        """Return the preferred name, with a number appended when it is in use."""
        base, name = preferred or "v", preferred or "v"
        while name in self._reserved:
            self._next[base] = self._next.get(base, 0) + 1
            name = f"{base}_{self._next[base]}"
        self._reserved.add(name)
        return name


class Writer:
    """Collects nodes in order; constants become initializers of a graph, or Constant nodes inside a function."""

    def __init__(self, names: Names, *, in_function: bool = False) -> None:
        self.names = names
        self.in_function = in_function
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self._derived: dict[tuple[Any, ...], str] = {}

    def node(self, op_type: str, inputs: Sequence[str], outputs: Sequence[str], domain: str = "", **attributes: Any) -> None:
        """Add one node; it is called after its first result."""
        self.nodes.append(helper.make_node(op_type, inputs, outputs, name=outputs[0], domain=domain or None, **attributes))

    def step(self, hint: str, op_type: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one result and return the result's name, made from `hint`."""
        result = self.names.unique(hint)
        self.node(op_type, inputs, [result], **attributes)
        return result

    def constant(self, name: str, data: Data, dtype: str) -> None:
        """Define `name` as a constant."""
        tensor = tensor_of(data, name, dtype)
        if self.in_function:
            self.node("Constant", [], [name], value=tensor)
        else:
            self.initializers.append(tensor)

    def literal(self, hint: str, data: Data, dtype: str) -> str:
        """Return the name of a small constant; equal ones are stored once."""
        return self.derived(hint, (dtype, data.shape, data.tobytes()), lambda: data, dtype)

    def derived(self, hint: str, key: tuple[Any, ...], make: Callable[[], Data], dtype: str) -> str:
        """Return the name of the constant identified by `key`, built on first use."""
        if key not in self._derived:
            self._derived[key] = self.names.unique(hint)
            self.constant(self._derived[key], make(), dtype)
        return self._derived[key]

    def integers(self, values: Sequence[int]) -> str:
        """Return the name of a list of 64-bit integers: a shape, axes, pads."""
        return self.literal("i64." + "x".join(map(str, values)), np.array(values, np.int64), "int64")


def tensor_of(data: Data, name: str, dtype: str) -> Any:
    """Return a constant as a TensorProto of the element type `dtype`."""
    tensor = numpy_helper.from_array(data if data.ndim == 0 else np.ascontiguousarray(data), name)
    if tensor.data_type == CODES[dtype]:
        return tensor
    return helper.make_tensor(name, CODES[dtype], data.shape, data.flatten())
