"""An encoder as exporters write it, of any number of layers, for benchmarks of matching; its layers share one set of weights."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

WIDTH, HEADS, ROWS, INNER = 768, 12, 128, 3072


class Encoder:
    """Nodes and initializers under construction."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.initializers: dict[str, Any] = {}
        self.random = np.random.default_rng(0)

    def constant(self, name: str, data: Any) -> str:
        """Add an initializer once."""
        if name not in self.initializers:
            self.initializers[name] = numpy_helper.from_array(np.asarray(data), name)
        return name

    def weight(self, name: str, *shape: int) -> str:
        """Add drawn weights once."""
        return name if name in self.initializers else self.constant(name, self.random.normal(0, 0.02, shape).astype(np.float32))

    def __call__(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Add a node; return the name of its result."""
        name = f"{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=name, **attributes))
        return name

    def linear(self, x: str, name: str, k: int, n: int) -> str:
        """A layer as a product and a sum."""
        return self("Add", self("MatMul", x, self.weight(f"{name}_w", k, n)), self.weight(f"{name}_b", n))

    def norm(self, x: str, name: str) -> str:
        """A layer normalisation."""
        return self("LayerNormalization", x, self.weight(f"{name}_g", WIDTH), self.weight(f"{name}_b", WIDTH), axis=-1)

    def heads(self, x: str, perm: tuple[int, ...]) -> str:
        """Rows cut into heads."""
        shape = self.constant("heads", np.array([1, ROWS, HEADS, WIDTH // HEADS], np.int64))
        return self("Transpose", self("Reshape", x, shape), perm=perm)

    def attention(self, x: str) -> str:
        """Products of queries, keys and values, with a mask that all layers read."""
        q, k, v = (
            self.heads(self.linear(x, n, WIDTH, WIDTH), p) for n, p in (("q", (0, 2, 1, 3)), ("k", (0, 2, 3, 1)), ("v", (0, 2, 1, 3)))
        )
        scaled = self("Div", self("MatMul", q, k), self.constant("root", np.float32(math.sqrt(WIDTH // HEADS))))
        mixed = self("Transpose", self("MatMul", self("Softmax", self("Add", scaled, "mask"), axis=-1), v), perm=(0, 2, 1, 3))
        flat = self("Reshape", mixed, self.constant("rows", np.array([1, ROWS, WIDTH], np.int64)))
        return self.linear(flat, "o", WIDTH, WIDTH)

    def gelu(self, x: str) -> str:
        """The activation as five operators."""
        half, unit, root = (self.constant(n, np.float32(v)) for n, v in (("half", 0.5), ("one", 1.0), ("root2", math.sqrt(2))))
        return self("Mul", self("Mul", x, self("Add", self("Erf", self("Div", x, root)), unit)), half)


def encoder(layers: int) -> Any:
    """Return an ONNX model of so many layers."""
    g, x = Encoder(), "x"
    for _ in range(layers):
        x = g.norm(g("Add", g.attention(x), x), "first")
        x = g.norm(g("Add", g.linear(g.gelu(g.linear(x, "up", WIDTH, INNER)), "down", INNER, WIDTH), x), "second")
    shapes = {"x": (1, ROWS, WIDTH), "mask": (1, 1, 1, ROWS), x: (1, ROWS, WIDTH)}
    info = {n: helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()}
    graph = helper.make_graph(g.nodes, "encoder", [info["x"], info["mask"]], [info[x]], list(g.initializers.values()))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
