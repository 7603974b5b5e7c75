"""An LSTM node unrolled step by step, as exporters write it that have no such node."""

from __future__ import annotations

from typing import Any

import numpy as np

from .rewriting import Graph

MAX_STEPS = 64  # steps
UNSUPPORTED_ATTRIBUTES = {
    "activations",
    "activation_alpha",
    "activation_beta",
    "clip",
    "input_forget",
    "layout",
}  # attributes of other equations


def lstm_as_steps(g: Graph, node: Any) -> list[Any] | None:
    """The equations of each step for LSTM"""
    attributes = {a.name: a for a in node.attribute}
    strides = {"forward": 1, "reverse": -1}
    stride = strides.get(attributes["direction"].s.decode() if "direction" in attributes else "forward")
    inputs = [*node.input, *[""] * (8 - len(node.input))]
    shape, weights = g.shape(inputs[0]), [g.data(n) for n in inputs[1:3]]
    biases = g.data(inputs[3]) if inputs[3] else None
    is_plain = (
        node.op_type == "LSTM" and stride is not None and not attributes.keys() & UNSUPPORTED_ATTRIBUTES and not inputs[4] and not inputs[7]
    )
    if not is_plain or shape is None or shape[0] > MAX_STEPS or any(w is None for w in weights) or (inputs[3] and biases is None):
        return None
    w, r = (np.asarray(x)[0] for x in weights)
    bias = np.zeros(2 * len(w), w.dtype) if biases is None else biases[0]
    return _Steps(g, node, w, r, bias, (shape[1], r.shape[1])).unrolled(range(shape[0])[::stride])


class _Steps:
    """The nodes that take the place of one LSTM node."""

    def __init__(self, g: Graph, node: Any, w: Any, r: Any, bias: Any, state: tuple[int, int]) -> None:
        self.g, self.node, self.state = g, node, state
        self.w, self.r = g.constant(w, "from_input"), g.constant(r, "from_state")
        self.a, self.b = (g.constant(half, "bias") for half in np.split(bias, 2))
        self.sizes = g.ints(*[state[1]] * 4)
        self.nodes: list[Any] = []

    def __call__(self, op: str, *inputs: str, outputs: int = 1, **attributes: Any) -> list[str]:
        """Add a node; return the names of its results."""
        names = [self.g.fresh(f"{op.lower()}_result") for _ in range(outputs)]
        self.nodes.append(self.g.node(op, inputs, names, **attributes))
        return names

    def unrolled(self, order: range) -> list[Any]:
        """Return the nodes of all steps in the order in which they are computed."""
        h, c = self.initial_state(5), self.initial_state(6)
        hidden_states: dict[int, str] = {}
        for t in order:
            h, c = self.step(t, h, c)
            hidden_states[t] = self("Unsqueeze", h, self.g.ints(0, 1))[0]
        every, last, cell = [*map(str, self.node.output), *[""] * (3 - len(self.node.output))]
        outputs = {every: ("Concat", [hidden_states[t] for t in sorted(hidden_states)], {"axis": 0})}
        outputs |= {name: ("Unsqueeze", [x, self.g.ints(0)], {}) for name, x in ((last, h), (cell, c))}
        self.nodes += [self.g.node(op, inputs, [name], **attributes) for name, (op, inputs, attributes) in outputs.items() if name]
        return self.nodes

    def initial_state(self, place: int) -> str:
        """Return the state before the first step."""
        name = self.node.input[place] if len(self.node.input) > place else ""
        return self("Squeeze", name, self.g.ints(0))[0] if name else self.g.constant(np.zeros(self.state, np.float32), "zero_state")

    def step(self, t: int, h: str, c: str) -> tuple[str, str]:
        """Add a step; return its states."""
        (x,) = self("Gather", self.node.input[0], self.g.constant(np.asarray(t, np.int64), "step"), axis=0)
        products = [*self("Gemm", x, self.w, self.a, transB=1), *self("Gemm", h, self.r, self.b, transB=1)]
        gates: list[str] = self("Split", *self("Add", *products), self.sizes, outputs=4, axis=1)
        i, o, f = (self("Sigmoid", z)[0] for z in gates[:3])
        (c,) = self("Add", *self("Mul", f, c), *self("Mul", i, *self("Tanh", gates[3])))
        return self("Mul", o, *self("Tanh", c))[0], c
