"""Random valid models of core operators, drawn from one seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from wider_operators import WIDER

UNARY = ("Relu", "Tanh", "Sigmoid", "Neg", "Abs", "Identity", "Softplus")
BINARY = ("Add", "Sub", "Mul", "Max", "Min")
Random = random.Random


@dataclass
class Growing:
    """A model under construction: values with their shapes, and nodes."""

    rng: Random
    opset: int = 21
    values: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)
    ends: list[tuple[str, int, tuple[int, ...]]] = field(default_factory=list)  # outputs that are no floats

    def constant(self, shape: tuple[int, ...], near: float = 0.0) -> str:
        data = np.random.default_rng(self.rng.getrandbits(32)).normal(0, 0.5, shape)
        return self.stored(np.asarray(np.abs(data) + near if near > 0 else data + near, np.float32))

    def stored(self, data: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(data), name))
        return name

    def list(self, *numbers: int) -> str:
        return self.stored(np.asarray(numbers, np.int64))

    @property
    def last(self) -> str:
        return str(self.nodes[-1].output[0])

    def node(self, op: str, reads: list[str], shape: tuple[int, ...], **attributes: Any) -> None:
        self.nodes_of(op, reads, [shape], **attributes)

    def nodes_of(self, op: str, reads: list[str], shapes: list[tuple[int, ...]], **attributes: Any) -> None:
        """Add a node with several results."""
        names = self.inner(op, reads, len(shapes), **attributes)
        self.values.extend(zip(names, shapes, strict=True))

    def inner(self, op: str, reads: list[str], results: int = 1, **attributes: Any) -> list[str]:
        """Add a node whose results no other step takes."""
        number = len(self.nodes)
        names = [f"v{number}", *(f"v{number}_{n}" for n in range(1, results))]
        self.nodes.append(helper.make_node(op, reads, names, name=f"{op.lower()}_{number}", **attributes))
        return names

    def pick(self, rank: int = 0) -> tuple[str, tuple[int, ...]] | None:
        fitting = [v for v in self.values if not rank or len(v[1]) == rank]
        return self.rng.choice(fitting[-6:]) if fitting else None


def _unary(g: Growing) -> None:
    name, shape = g.rng.choice(g.values)
    g.node(g.rng.choice(UNARY), [name], shape)


def _binary(g: Growing) -> None:
    name, shape = g.rng.choice(g.values)
    same = [n for n, s in g.values if s == shape]
    other = g.rng.choice(same) if g.rng.random() < 0.6 else g.constant(shape[g.rng.randrange(len(shape)) :])
    g.node(g.rng.choice(BINARY), [name, other], shape)


def _matmul(g: Growing) -> None:
    found = g.pick(2)
    if found:
        m = g.rng.choice((1, 4, 8, 16))
        g.node("MatMul", [found[0], g.constant((found[1][1], m))], (found[1][0], m))


def _gemm(g: Growing) -> None:
    found = g.pick(2)
    if found:
        m, transposed = g.rng.choice((2, 8, 16)), g.rng.random() < 0.5
        w = g.constant((m, found[1][1]) if transposed else (found[1][1], m))
        g.node("Gemm", [found[0], w, g.constant((m,))], (found[1][0], m), transB=int(transposed))


def _conv(g: Growing) -> None:
    found = g.pick(4)
    if found and min(found[1][2:]) >= 2:
        (n, c, h, w), o, k = found[1], g.rng.choice((2, 4, 8)), g.rng.choice((1, 2))
        s = g.rng.choice((1, 2))
        shape = (n, o, (h - k) // s + 1, (w - k) // s + 1)
        g.node("Conv", [found[0], g.constant((o, c, k, k)), g.constant((o,))], shape, kernel_shape=[k, k], strides=[s, s])


def _pool(g: Growing) -> None:
    found = g.pick(4)
    if found and min(found[1][2:]) >= 2:
        n, c, h, w = found[1]
        op = g.rng.choice(("MaxPool", "AveragePool"))
        g.node(op, [found[0]], (n, c, h // 2, w // 2), kernel_shape=[2, 2], strides=[2, 2])


def _flatten(g: Growing) -> None:
    name, shape = g.rng.choice(g.values)
    g.node("Flatten", [name], (shape[0], int(np.prod(shape[1:]))), axis=1)


def _reshape(g: Growing) -> None:
    name, shape = g.rng.choice(g.values)
    whole = int(np.prod(shape))
    rows = g.rng.choice([d for d in range(1, whole + 1) if whole % d == 0])
    g.node("Reshape", [name, g.list(rows, -1)], (rows, whole // rows))


def _transpose(g: Growing) -> None:
    name, shape = g.rng.choice(g.values)
    perm = g.rng.sample(range(len(shape)), len(shape))
    g.node("Transpose", [name], tuple(shape[p] for p in perm), perm=perm)


def _softmax(g: Growing) -> None:
    name, shape = g.rng.choice(g.values)
    g.node("Softmax", [name], shape, axis=g.rng.randrange(len(shape)))


def _concat(g: Growing) -> None:
    name, shape = g.rng.choice(g.values)
    axis = g.rng.randrange(len(shape))
    g.node("Concat", [name, name], tuple(2 * n if k == axis else n for k, n in enumerate(shape)), axis=axis)


STEPS: tuple[Callable[[Growing], None], ...] = (
    _unary, _unary, _binary, _binary, _matmul, _gemm, _conv, _pool, _flatten, _reshape, _transpose, _softmax, _concat, *WIDER,
)  # fmt: skip


def valid_model(seed: int, most: int = 12, opset: int = 21) -> Any:
    """Return a random model that onnx accepts: at most `most` operators on float32."""
    g = Growing(Random(seed), opset)
    shape = g.rng.choice(((1, 16), (2, 8), (1, 2, 6, 6), (1, 3, 4, 8), (3, 2, 4)))
    g.values.append(("x", shape))
    wanted = int((most + 1) ** g.rng.random())
    while len(g.nodes) < wanted - 5 or not g.nodes:  # a step adds at most six
        g.rng.choice(STEPS)(g)
        if int(np.prod(g.values[-1][1])) > 4096:
            break
    read = {i for n in g.nodes for i in n.input}
    ends = [(n, s) for n, s in g.values if n not in read and n != "x"]
    typed = [*((n, onnx.TensorProto.FLOAT, s) for n, s in [("x", shape), *ends]), *g.ends]
    info = [helper.make_tensor_value_info(*each) for each in typed]
    graph = helper.make_graph(g.nodes, "random", info[:1], info[1:], g.constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def seeds(start: int, count: int) -> Iterator[int]:
    """Yield seeds from a start."""
    yield from range(start, start + count)
