"""Unrolling of recurrences that no engine takes: one product for all inputs, then a product and gates for each step.

An unrolled program is used only where the objective prices it below the original.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ...ir.program import Builder, Data, Node, Program, Value
from ...ops.op import AttributeValue

RECURRENT = {"lstm": 4, "gru": 3, "rnn": 1}  # the gates of a step
MOST_NODES = 3000  # of all recurrences that are written out
STEP_NODES = 16  # at most, of one step


def unroll_recurrences(p: Program, host_nodes: Sequence[Node]) -> Program | None:
    """Return a program with the recurrences among `left`, nodes on the host, unrolled; None without any, or for too many steps."""
    expandable = _expandable(p, host_nodes)
    expanded = {n.outputs[0] for n in expandable}
    if not 0 < _size(p, expandable) <= MOST_NODES:
        return None
    work = _Work(p)
    for node in p.nodes:
        if node.outputs[0] in expanded and p.types[node.inputs[0]].shape[0]:
            _Layer(work, node).write()
        else:
            work.b.node(node)
    program = work.b.finish(p.outputs)
    names = ", ".join(dict.fromkeys(f'"{p.sources[k].name}"' for n in expandable for k in sorted(n.origins)))
    note = f"written out step by step, because no operation takes them whole: {names}"
    return replace(program, opaque=dict(p.opaque), absorbed=p.absorbed, notes=(*p.notes, note))


def excess_of_steps(p: Program) -> str:
    """Return why recurrences that are on the host in a program are not unrolled: how many nodes they would be; empty if they are few."""
    size = _size(p, _expandable(p, p.nodes))
    return f"written out step by step, the recurrences would be {size:,} nodes, more than {MOST_NODES:,}" if size > MOST_NODES else ""


def _expandable(p: Program, host_nodes: Sequence[Node]) -> list[Node]:
    """Return the recurrences of a program that are on the host and whose weights are known."""
    host_origins, tensors = {n.origins for n in host_nodes if n.op in RECURRENT}, known_tensors(p)
    return [n for n in p.nodes if n.op in RECURRENT and n.origins in host_origins and all(v in tensors for v in n.inputs[1:4])]


def known_tensors(p: Program) -> dict[Value, Data]:
    """Return the constants of a program and its tensors of one number, such as a bias that a model leaves out."""
    filled = {n.outputs[0]: dict(n.attributes)["value"] for n in p.nodes if n.op == "full"}
    return {**p.constants, **{v: np.full(p.types[v].shape, x, p.types[v].dtype) for v, x in filled.items()}}


def _size(p: Program, recurrences: Sequence[Node]) -> int:
    """Return about how many nodes the steps of recurrences are."""
    return STEP_NODES * sum(p.types[n.inputs[0]].shape[0] for n in recurrences)


class _Work:
    """A program under construction with the values of another."""

    def __init__(self, p: Program) -> None:
        self.p, self.b, self.known = p, Builder(p.name), known_tensors(p)
        self.b.types, self.b.names, self.b.inputs = list(p.types), list(p.names), list(p.inputs)
        self.b.constants, self.b.sources = dict(p.constants), list(p.sources)


class _Layer:
    """Unrolls one recurrence."""

    def __init__(self, work: _Work, node: Node) -> None:
        self.b, self.node, self.p = work.b, node, work.p
        self.constants: dict[tuple[tuple[int, ...], bytes], Value] = {}
        x, w, r, bias, *states = node.inputs
        self.time, self.batch, self.width = self.p.types[x].shape
        self.hidden, gates = self.p.types[r].shape[1], RECURRENT[node.op]
        self.w, self.r, biases = self.constant(work.known[w]), work.known[r], work.known[bias]
        self.from_x, self.from_h = biases[: gates * self.hidden], biases[gates * self.hidden :]
        self.x, self.states = x, states

    def write(self) -> None:
        """Add the nodes of all steps; the last ones define the results of the recurrence."""
        steps: dict[str, Callable[..., list[Value]]] = {"lstm": self._lstm, "gru": self._gru, "rnn": self._rnn}
        step = steps[self.node.op]
        is_joined = self.node.op != "gru"  # both biases are added to one sum
        rows = self.apply("reshape", self.x, shape=(self.time * self.batch, self.width))
        bias = self.from_x + self.from_h if is_joined else self.from_x
        inputs = self.apply("bias_add", self.apply("dense", rows, self.w), self.constant(bias), axis=1)
        states, history = list(self.states), []
        for t in range(self.time):
            states = step(self.part(inputs, t * self.batch, (t + 1) * self.batch, axis=0), *states)
            history.append(self.apply("reshape", states[0], shape=(1, self.batch, self.hidden)))
        sequence = history[0] if self.time == 1 else self.apply("concat", *history, axis=0)
        for value, result in zip(self.node.outputs, [sequence, *states], strict=True):
            self.apply("reshape", result, to=value, shape=self.p.types[value].shape)

    def _lstm(self, row: Value, h: Value, c: Value) -> list[Value]:
        total = self.apply("add", row, self.apply("dense", h, self.constant(self.r)))
        i, o, f = (self.apply("sigmoid", self.gate(total, n)) for n in range(3))
        new = self.apply("mul", i, self.apply("tanh", self.gate(total, 3)))
        cell = self.apply("add", self.apply("mul", f, c), new)
        return [self.apply("mul", o, self.apply("tanh", cell)), cell]

    def _gru(self, row: Value, h: Value) -> list[Value]:
        if self.attributes["linear_before_reset"]:
            from_h = self._biased(h, self.r, self.from_h)
            z, reset = (self._sigmoid_of_both(row, from_h, n) for n in range(2))
            candidate = self.apply("mul", reset, self.gate(from_h, 2))
        else:
            two = 2 * self.hidden
            from_h = self._biased(h, self.r[:two], self.from_h[:two])
            z, reset = (self._sigmoid_of_both(row, from_h, n) for n in range(2))
            candidate = self._biased(self.apply("mul", reset, h), self.r[two:], self.from_h[two:])
        new = self.apply("tanh", self.apply("add", self.gate(row, 2), candidate))
        update_complement = self.apply("sub", self.constant(np.ones((1, 1), np.float32)), z)
        return [self.apply("add", self.apply("mul", update_complement, new), self.apply("mul", z, h))]

    def _rnn(self, row: Value, h: Value) -> list[Value]:
        total = self.apply("add", row, self.apply("dense", h, self.constant(self.r)))
        return [self.apply(str(self.attributes["activation"]), total)]

    def _biased(self, x: Value, w: Data, b: Data) -> Value:
        return self.apply("bias_add", self.apply("dense", x, self.constant(w)), self.constant(b), axis=1)

    def _sigmoid_of_both(self, x: Value, h: Value, gate: int) -> Value:
        return self.apply("sigmoid", self.apply("add", self.gate(x, gate), self.gate(h, gate)))

    @property
    def attributes(self) -> Mapping[str, AttributeValue]:
        return dict(self.node.attributes)

    def gate(self, x: Value, number: int) -> Value:
        """Return the columns of one gate of x [batch, gates · hidden]."""
        return self.part(x, number * self.hidden, (number + 1) * self.hidden, axis=1)

    def part(self, x: Value, start: int, stop: int, *, axis: int) -> Value:
        """Return the slice start … stop along an axis, the value itself if that is all."""
        if self.b.types[x].shape[axis] == stop - start:
            return x
        return self.apply("slice", x, axis=axis, start=start, stop=stop, step=1)

    def constant(self, data: Data) -> Value:
        """Return a constant, shared for equal data."""
        key = (data.shape, data.tobytes())
        if key not in self.constants:
            self.constants[key] = self.b.constant(np.ascontiguousarray(data))
        return self.constants[key]

    def apply(self, op: str, *inputs: Value, to: Value | None = None, **attributes: AttributeValue) -> Value:
        """Add a node of this recurrence; `to` is the value that it defines, a new one if none is given."""
        (result,) = self.b.apply(op, inputs, attributes, origins=self.node.origins)
        if to is None:
            return result
        self.b.nodes[-1] = replace(self.b.nodes[-1], outputs=(to,))
        return to
