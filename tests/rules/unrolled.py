"""Unrolled recurrences as ONNX models, in the spellings that exporters use; small, with reproducible weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

INPUTS, HIDDEN = 5, 4
GATES = {"lstm": 4, "gru": 3, "rnn": 1}


@dataclass
class Graph:
    """An ONNX graph under construction."""

    seed: int = 0
    nodes: list[Any] = field(default_factory=list)
    initializers: list[Any] = field(default_factory=list)

    def __call__(self, op: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """Add a node; return the name of its result, or of all results."""
        names = [f"{op}_{len(self.nodes)}_{n}" for n in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, name=names[0], **attributes))
        return names[0] if outputs == 1 else names

    def constant(self, data: Any) -> str:
        """Add an initializer."""
        name = f"c{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(np.asarray(data), name))
        return name

    def weight(self, *shape: int) -> str:
        """Add reproducible weights."""
        self.seed += 1
        return self.constant(np.random.default_rng(self.seed).uniform(-0.5, 0.5, shape).astype(np.float32))

    def ints(self, *values: int) -> str:
        """Add a list of integers."""
        return self.constant(np.asarray(values, np.int64))


Cell = Callable[[Graph, str, Sequence[str]], tuple[str, ...]]  # x, states → states


def gates_of(g: Graph, z: str, count: int) -> list[str]:
    """Split columns into gates."""
    return list(g("Split", z, outputs=count, axis=1, num_outputs=count))


def lstm_step(g: Graph, gates: Sequence[str], c: str) -> tuple[str, str]:
    """The equations of a cell on i, f, g, o."""
    i, f, new, o = gates
    cell = g("Add", g("Mul", g("Sigmoid", f), c), g("Mul", g("Sigmoid", i), g("Tanh", new)))
    return g("Mul", g("Sigmoid", o), g("Tanh", cell)), cell


def linear(g: Graph, x: str, w: str, b: str) -> str:
    """A layer as a product with a transposed weight and a bias."""
    return str(g("Gemm", x, w, b, transB=1))


def lstm_separate(g: Graph) -> Cell:
    """Two layers, their results added: PyTorch's LSTMCell."""
    n = 4 * HIDDEN
    wx, bx, wh, bh = g.weight(n, INPUTS), g.weight(n), g.weight(n, HIDDEN), g.weight(n)
    return lambda g, x, s: lstm_step(g, gates_of(g, g("Add", linear(g, x, wx, bx), linear(g, s[0], wh, bh)), 4), s[1])


def lstm_state_first(g: Graph) -> Cell:
    """The same with the state's layer first and one bias, added last."""
    n = 4 * HIDDEN
    wx, wh, b = g.weight(INPUTS, n), g.weight(HIDDEN, n), g.weight(n)
    return lambda g, x, s: lstm_step(g, gates_of(g, g("Add", b, g("Add", g("MatMul", s[0], wh), g("MatMul", x, wx))), 4), s[1])


def lstm_pair(g: Graph) -> Cell:
    """One layer on input and state side by side."""
    w, b = g.weight(4 * HIDDEN, INPUTS + HIDDEN), g.weight(4 * HIDDEN)
    return lambda g, x, s: lstm_step(g, gates_of(g, linear(g, g("Concat", x, s[0], axis=1), w, b), 4), s[1])


def lstm_four_products(g: Graph) -> Cell:
    """A pair of layers for every gate."""
    layers = [(g.weight(INPUTS, HIDDEN), g.weight(HIDDEN), g.weight(HIDDEN, HIDDEN)) for _ in range(4)]

    def cell(g: Graph, x: str, s: Sequence[str]) -> tuple[str, ...]:
        gates = [g("Add", g("Add", g("MatMul", x, w), b), g("MatMul", s[0], r)) for w, b, r in layers]
        return lstm_step(g, gates, s[1])

    return cell


def gru(g: Graph, *, interpolate: bool = False) -> Cell:
    """PyTorch's GRUCell; the last line also as n + z·(h − n)."""
    n = 3 * HIDDEN
    wx, bx, wh, bh = g.weight(n, INPUTS), g.weight(n), g.weight(n, HIDDEN), g.weight(n)
    one = g.constant(np.asarray(1.0, np.float32))

    def cell(g: Graph, x: str, s: Sequence[str]) -> tuple[str, ...]:
        xr, xz, xn = gates_of(g, linear(g, x, wx, bx), 3)
        hr, hz, hn = gates_of(g, linear(g, s[0], wh, bh), 3)
        r, z = g("Sigmoid", g("Add", xr, hr)), g("Sigmoid", g("Add", xz, hz))
        new = g("Tanh", g("Add", xn, g("Mul", r, hn)))
        if interpolate:
            return (g("Add", new, g("Mul", z, g("Sub", s[0], new))),)
        return (g("Add", g("Mul", g("Sub", one, z), new), g("Mul", z, s[0])),)

    return cell


def gru_interpolated(g: Graph) -> Cell:
    """The other form of the last line."""
    return gru(g, interpolate=True)


def rnn(g: Graph) -> Cell:
    """PyTorch's RNNCell."""
    wx, bx, wh, bh = g.weight(HIDDEN, INPUTS), g.weight(HIDDEN), g.weight(HIDDEN, HIDDEN), g.weight(HIDDEN)
    return lambda g, x, s: (g("Tanh", g("Add", linear(g, x, wx, bx), linear(g, s[0], wh, bh))),)


CELLS: dict[str, tuple[str, Callable[[Graph], Cell]]] = {
    "separate": ("lstm", lstm_separate),
    "state first": ("lstm", lstm_state_first),
    "pair": ("lstm", lstm_pair),
    "four products": ("lstm", lstm_four_products),
    "gru": ("gru", gru),
    "interpolated gru": ("gru", gru_interpolated),
    "rnn": ("rnn", rnn),
}


def step_of(g: Graph, x: str, t: int, batch_first: bool) -> str:
    """Return the rows of one time step."""
    return str(g("Gather", x, g.constant(np.asarray(t, np.int64)), axis=int(batch_first)))


def unrolled(cell: str, steps: int, *, batch: int = 1, batch_first: bool = False, change: dict[int, Cell] | None = None) -> Any:
    """Return the model of a recurrence of some steps: outputs of all steps, last states; `change` exchanges the cell of some steps."""
    kind, make = CELLS[cell]
    g = Graph()
    run = make(g)
    states = [f"s{n}" for n in range(2 if kind == "lstm" else 1)]
    inputs, kept, axis = list(states), [], int(batch_first)
    for t in range(steps):
        states = list((change or {}).get(t, run)(g, step_of(g, "x", t, batch_first), states))
        kept.append(g("Unsqueeze", states[0], g.ints(axis)))
    outputs = [g("Concat", *kept, axis=axis), *states]
    shape = (batch, steps, INPUTS) if batch_first else (steps, batch, INPUTS)
    return model_of(g, {"x": shape, **dict.fromkeys(inputs, (batch, HIDDEN))}, outputs)


def bidirectional(cell: str, steps: int, *, join: str = "", batch_first: bool = False) -> Any:
    """Return the model of a recurrence that runs backwards (`join` empty) or both ways, the outputs joined step by step or as a whole.

    Backwards alone, the outputs are collected in the order in which they are computed, as `go_backwards` of Keras does.
    """
    kind, make = CELLS[cell]
    g, axis, count = Graph(), int(batch_first), 2 if kind == "lstm" else 1
    states: list[str] = []
    outputs: list[dict[int, str]] = []
    for way in (1, -1) if join else (-1,):
        run, state = make(g), [f"s{len(states) + n}" for n in range(count)]
        states += state
        outputs.append({})
        for t in range(steps)[::way]:
            state = list(run(g, step_of(g, "x", t, batch_first), state))
            outputs[-1][t] = g("Unsqueeze", state[0], g.ints(axis))
    if join == "steps":
        whole = [g("Concat", *(g("Concat", *(d[t] for d in outputs), axis=2) for t in range(steps)), axis=axis)]
    else:
        stacked = [g("Concat", *(d[t] for t in (sorted(d) if join else d)), axis=axis) for d in outputs]
        whole = [g("Concat", *stacked, axis=2)] if join else stacked
    shape = (1, steps, INPUTS) if batch_first else (steps, 1, INPUTS)
    return model_of(g, {"x": shape, **dict.fromkeys(states, (1, HIDDEN))}, [*whole, *state])


def node(kind: str, steps: int) -> Any:
    """Return the model of a recurrence as one node."""
    g, count = Graph(), GATES[kind] * HIDDEN
    weights = [g.weight(1, count, INPUTS), g.weight(1, count, HIDDEN), g.weight(1, 2 * count)]
    outputs = g(kind.upper(), "x", *weights, outputs=2 + (kind == "lstm"), hidden_size=HIDDEN)
    return model_of(g, {"x": (steps, 1, INPUTS)}, outputs)


def model_of(g: Graph, inputs: dict[str, tuple[int, ...]], outputs: Sequence[str]) -> Any:
    """Return the graph as a model of float32 inputs and outputs."""
    given = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()]
    made = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs]
    graph = helper.make_graph(g.nodes, "unrolled", given, made, g.initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def saved(model: Any, folder: Path) -> Path:
    """Write a model."""
    path = folder / "unrolled.onnx"
    onnx.save(model, path)
    return path
