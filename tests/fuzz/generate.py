"""Random valid models of core operators, and mutants of models: structural and of bytes; all drawn from one seed."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

UNARY = ("Relu", "Tanh", "Sigmoid", "Neg", "Abs", "Identity", "Softplus")
BINARY = ("Add", "Sub", "Mul", "Max", "Min")
Random = random.Random


@dataclass
class Growing:
    """A model under construction: values with their shapes, and nodes."""

    rng: Random
    values: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)

    def constant(self, shape: tuple[int, ...], kind: Any = np.float32) -> str:
        name = f"c{len(self.constants)}"
        data = np.random.default_rng(self.rng.getrandbits(32)).normal(0, 0.5, shape)
        self.constants.append(numpy_helper.from_array(data.astype(kind), name))
        return name

    def list(self, *numbers: int) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(numbers, np.int64), name))
        return name

    def node(self, op: str, reads: list[str], shape: tuple[int, ...], **attributes: Any) -> None:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, reads, [name], name=f"{op.lower()}_{len(self.nodes)}", **attributes))
        self.values.append((name, shape))

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
    _unary, _unary, _binary, _binary, _matmul, _gemm, _conv, _pool, _flatten, _reshape, _transpose, _softmax, _concat,
)  # fmt: skip


def valid_model(seed: int, most: int = 12) -> Any:
    """Return a random model that onnx accepts: at most `most` operators on float32."""
    g = Growing(Random(seed))
    shape = g.rng.choice(((1, 16), (2, 8), (1, 2, 6, 6), (1, 3, 4, 8)))
    g.values.append(("x", shape))
    while len(g.nodes) < g.rng.randint(1, most) or not g.nodes:
        g.rng.choice(STEPS)(g)
        if int(np.prod(g.values[-1][1])) > 4096:
            break
    read = {i for n in g.nodes for i in n.input}
    ends = [(n, s) for n, s in g.values if n not in read and n != "x"]
    info = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s) for n, s in [("x", shape), *ends]]
    graph = helper.make_graph(g.nodes, "random", info[:1], info[1:], g.constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def byte_mutant(data: bytes, seed: int) -> bytes:
    """Return bytes with some flipped, removed, repeated or cut."""
    rng, out = Random(seed), bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(out))
        kind = rng.randrange(4)
        if kind == 0:
            out[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del out[at : at + rng.randint(1, 8)]
        elif kind == 2:
            out[at:at] = out[at : at + rng.randint(1, 16)]
        else:
            out = out[: max(at, 1)]
    return bytes(out) or b"\x00"


def _attribute(rng: Random, m: Any) -> None:
    holders = [n for n in m.graph.node if n.attribute]
    if holders:
        a = rng.choice(rng.choice(holders).attribute)
        odd = rng.choice((-1, 0, 1, 7, 1 << 31, 1 << 62, -(1 << 63)))
        if a.ints:
            a.ints[rng.randrange(len(a.ints))] = odd
        else:
            a.i = odd


def _edge(rng: Random, m: Any) -> None:
    names = [*(o for n in m.graph.node for o in n.output), "x", "", "gone"]
    n = rng.choice(m.graph.node)
    if n.input:
        n.input[rng.randrange(len(n.input))] = rng.choice(names)


def _drop(rng: Random, m: Any) -> None:
    del m.graph.node[rng.randrange(len(m.graph.node))]


def _repeat(rng: Random, m: Any) -> None:
    m.graph.node.append(rng.choice(m.graph.node))


def _operator(rng: Random, m: Any) -> None:
    rng.choice(m.graph.node).op_type = rng.choice((*UNARY, *BINARY, "Conv", "Gemm", "LSTM", "Loop", "Split", "TopK", "", "Nope"))


def _dimension(rng: Random, m: Any) -> None:
    holders = [t for t in m.graph.initializer if t.dims]
    if holders:
        t = rng.choice(holders)
        t.dims[rng.randrange(len(t.dims))] = rng.choice((-1, 0, 1, 3, 1 << 40))


def _type(rng: Random, m: Any) -> None:
    if m.graph.initializer:
        rng.choice(m.graph.initializer).data_type = rng.choice((0, 2, 6, 7, 8, 10, 11, 16, 22, 99))


def _input(rng: Random, m: Any) -> None:
    dims = m.graph.input[0].type.tensor_type.shape.dim
    if dims:
        rng.choice(dims).dim_value = rng.choice((-3, 0, 1, 5, 1 << 40))


MUTATIONS: tuple[Callable[[Random, Any], None], ...] = (_attribute, _edge, _drop, _repeat, _operator, _dimension, _type, _input)


def structural_mutant(model: Any, seed: int) -> Any:
    """Return a model with one to three changes that a writer could make by mistake or on purpose."""
    rng, made = Random(seed), copy.deepcopy(model)
    for _ in range(rng.randint(1, 3)):
        if made.graph.node:
            rng.choice(MUTATIONS)(rng, made)
    return made


def seeds(start: int, count: int) -> Iterator[int]:
    """Yield seeds from a start."""
    yield from range(start, start + count)
