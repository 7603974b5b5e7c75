"""An ONNX model under rewriting: its shapes and constants, and the nodes and constants added to it."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...ir.program import Data


@dataclass
class Graph:
    """A model under rewriting: random source, shapes of values, constants by name, names in use, counts of applied rewritings."""

    model: Any
    source: random.Random
    share: float
    shapes: Mapping[str, tuple[int, ...]]
    constants: dict[str, Any] = field(default_factory=dict)
    reserved_names: set[str] = field(default_factory=set)
    applied: dict[str, int] = field(default_factory=dict)

    @property
    def version(self) -> int:
        """The operator set of the model."""
        return next(int(o.version) for o in self.model.opset_import if o.domain in ("", "ai.onnx"))

    def fresh(self, stem: str) -> str:
        """Return a new name that begins with `stem`."""
        name, n = stem, 0
        while name in self.reserved_names:
            n += 1
            name = f"{stem}_{n}"
        self.reserved_names.add(name)
        return name

    def node(self, op: str, inputs: Sequence[str], outputs: Sequence[str] = (), **attributes: Any) -> Any:
        """Make a node; without names for its results it has one result with a new name."""
        from onnx import helper

        results = list(outputs) or [self.fresh(f"{op.lower()}_result")]
        return helper.make_node(op, list(inputs), results, name=self.fresh(f"{op}_made"), **attributes)

    def constant(self, data: Data, stem: str = "constant") -> str:
        """Add an initializer and return its name."""
        from onnx import numpy_helper

        name = self.fresh(stem)
        self.constants[name] = numpy_helper.from_array(np.asarray(data, order="C"), name)
        self.model.graph.initializer.append(self.constants[name])
        return name

    def ints(self, *values: int) -> str:
        """Add a list of 64-bit integers and return its name."""
        return self.constant(np.asarray(values, np.int64), "ints")

    def data(self, name: str) -> Data | None:
        """Return the elements of a constant, None for anything else."""
        from onnx import numpy_helper

        tensor = self.constants.get(name)
        return None if tensor is None or tensor.data_location else np.asarray(numpy_helper.to_array(tensor))

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Return the static shape of a value, or None."""
        return self.shapes.get(name)

    def draw(self) -> bool:
        """Decide at random whether this place is rewritten."""
        return self.source.random() < self.share
