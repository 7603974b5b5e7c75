"""Mutants of models: structural and of bytes; all drawn from one seed."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from generate import BINARY, UNARY

Random = random.Random


def byte_mutant(data: bytes, seed: int) -> bytes:
    """Return bytes with some flipped, removed, repeated or cut."""
    rng, out = Random(seed), bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(out)) if out else 0
        kind = rng.randrange(4) if out else 2
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


def _sibling(rng: Random, m: Any) -> None:
    """Put another operator of as many operands in a node's place."""
    n = rng.choice(m.graph.node)
    kinds = next((k for k in (UNARY, BINARY) if n.op_type in k), None)
    if kinds:
        n.op_type = rng.choice(kinds)


def _constant(rng: Random, m: Any) -> None:
    """Change one number of a constant, often to one that is none."""
    holders = [t for t in m.graph.initializer if t.data_type == 1 and t.raw_data]
    if holders:
        t = rng.choice(holders)
        data = np.frombuffer(t.raw_data, np.float32).copy()
        data[rng.randrange(len(data))] = rng.choice((0.0, -0.0, 1.0, 1e-40, 3e38, np.inf, -np.inf, np.nan))
        t.raw_data = data.tobytes()


def _output(rng: Random, m: Any) -> None:
    """Make an inner value an output."""
    names = {o.name for o in m.graph.output}
    inner = [o for n in m.graph.node for o in n.output if o not in names]
    if inner:
        m.graph.output.append(onnx.ValueInfoProto(name=rng.choice(inner)))


MUTATIONS: tuple[Callable[[Random, Any], None], ...] = (
    _attribute,
    _edge,
    _drop,
    _repeat,
    _operator,
    _dimension,
    _type,
    _input,
    _sibling,
    _constant,
    _output,
    _sibling,
    _constant,
    _output,
)


def structural_mutant(model: Any, seed: int) -> Any:
    """Return a model with one to three changes that a writer could make by mistake or on purpose."""
    rng, made = Random(seed), copy.deepcopy(model)
    for _ in range(rng.choice((1, 1, 2, 3))):
        if made.graph.node:
            rng.choice(MUTATIONS)(rng, made)
    return made
