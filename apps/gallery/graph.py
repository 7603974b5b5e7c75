"""Builds an ONNX model layer by layer, weights drawn with a seed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from onnx import ModelProto

OPSET, IR_VERSION = 17, 8


@dataclass(frozen=True)
class Value:
    """A tensor of the model being written."""

    name: str
    shape: tuple[int, ...]


class Graph:
    """An ONNX model under construction: every method adds nodes and returns their result."""

    def __init__(self, name: str, seed: int = 0) -> None:
        self.name = name
        self.random = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self.inputs: list[Value] = []

    def input(self, name: str, *shape: int) -> Value:
        """Add an input of the model."""
        self.inputs.append(Value(name, shape))
        return self.inputs[-1]

    def constant(self, value: np.ndarray) -> Value:
        """Add a constant."""
        from onnx import numpy_helper

        name = f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(value, name))
        return Value(name, value.shape)

    def weight(self, *shape: int, summed: int) -> Value:
        """Add a weight drawn from N(0, 1 / summed), which keeps the variance of a sum of so many products."""
        return self.constant(self.random.standard_normal(shape, dtype=np.float32) * np.float32(math.sqrt(1 / summed)))

    def ints(self, *values: int) -> Value:
        """Add a list of integers."""
        return self.constant(np.array(values, np.int64))

    def node(self, op: str, operands: Sequence[Value], shape: Sequence[int], **attributes: Any) -> Value:
        """Add a node with one result of the given shape."""
        return self.multi_node(op, operands, [shape], **attributes)[0]

    def multi_node(self, op: str, operands: Sequence[Value], shapes: Sequence[Sequence[int]], **attributes: Any) -> list[Value]:
        """Add a node with several results."""
        from onnx import helper

        name = f"{op.lower()}_{len(self.nodes)}"
        results = [Value(f"{name}.{n}", tuple(s)) for n, s in enumerate(shapes)]
        self.nodes.append(helper.make_node(op, [x.name for x in operands], [r.name for r in results], name, **attributes))
        return results

    def unary(self, op: str, x: Value, **attributes: Any) -> Value:
        """Add an operator that keeps the shape."""
        return self.node(op, [x], x.shape, **attributes)

    def binary(self, op: str, x: Value, y: Value) -> Value:
        """Add an elementwise operator with broadcasting."""
        return self.node(op, [x, y], np.broadcast_shapes(x.shape, y.shape))

    def reshape(self, x: Value, *shape: int) -> Value:
        """Give the elements another shape."""
        return self.node("Reshape", [x, self.ints(*shape)], shape)

    def transpose(self, x: Value, *perm: int) -> Value:
        """Permute the axes."""
        return self.node("Transpose", [x], [x.shape[p] for p in perm], perm=list(perm))

    def conv(self, x: Value, channels: int, kernel: int, stride: int = 1, groups: int = 1, *, bias: bool = False) -> Value:
        """Add a convolution of [n, c, …], padded so that the size is divided by the stride."""
        rank, pad = len(x.shape) - 2, kernel // 2
        inner = x.shape[1] // groups
        w = self.weight(channels, inner, *[kernel] * rank, summed=inner * kernel**rank)
        size = [(n + 2 * pad - kernel) // stride + 1 for n in x.shape[2:]]
        operands = [x, w, *([self.weight(channels, summed=channels)] if bias else [])]
        attributes = {"kernel_shape": [kernel] * rank, "strides": [stride] * rank, "pads": [pad] * 2 * rank, "group": groups}
        return self.node("Conv", operands, [x.shape[0], channels, *size], **attributes)

    def batch_norm(self, x: Value) -> Value:
        """Add a batch normalisation of [n, c, …] with drawn statistics."""
        c = x.shape[1]
        gamma, beta, mean = (self.weight(c, summed=4) for _ in range(3))
        variance = self.constant(self.random.uniform(0.5, 1.5, c).astype(np.float32))
        return self.node("BatchNormalization", [x, gamma, beta, mean, variance], x.shape)

    def gemm(self, x: Value, width: int) -> Value:
        """Add a fully connected layer of [n, k] with a bias: [n, width]."""
        k = x.shape[1]
        return self.node("Gemm", [x, self.weight(width, k, summed=k), self.weight(width, summed=width)], [x.shape[0], width], transB=1)

    def linear(self, x: Value, width: int) -> Value:
        """Add a fully connected layer of the last axis as MatMul and Add, as exporters write it for rank 3."""
        k = x.shape[-1]
        product = self.node("MatMul", [x, self.weight(k, width, summed=k)], [*x.shape[:-1], width])
        return self.binary("Add", product, self.weight(width, summed=width))

    def layer_norm(self, x: Value) -> Value:
        """Add a layer normalisation of the last axis."""
        k = x.shape[-1]
        return self.node("LayerNormalization", [x, self.weight(k, summed=4), self.weight(k, summed=4)], x.shape, axis=-1)

    def global_mean(self, x: Value) -> Value:
        """Add the mean over all positions of [n, c, h, w]: [n, c]."""
        pooled = self.node("GlobalAveragePool", [x], [*x.shape[:2], 1, 1])
        return self.node("Flatten", [pooled], x.shape[:2], axis=1)

    def finish(self, *results: Value) -> ModelProto:
        """Return the checked model with these outputs, named `y`, `y1`, …"""
        from onnx import TensorProto, checker, helper

        outputs = [Value("y" if n == 0 else f"y{n}", r.shape) for n, r in enumerate(results)]
        last = [
            helper.make_node("Identity", [r.name], [o.name], f"output_{n}") for n, (r, o) in enumerate(zip(results, outputs, strict=True))
        ]
        ends = [[helper.make_tensor_value_info(v.name, TensorProto.FLOAT, v.shape) for v in side] for side in (self.inputs, outputs)]
        graph = helper.make_graph([*self.nodes, *last], self.name, *ends, self.weights)
        opsets = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="rewrite_compiler.apps.gallery")
        checker.check_model(model, full_check=True)
        return model
