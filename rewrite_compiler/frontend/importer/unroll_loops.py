"""Unrolling of Scan and Loop, where the trip count is known and the body multiplies.

Loop-invariant nodes are lowered once, so that every step reads the same weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...ir.program import Value
from ...ops.op import ShapeError
from ..graph.attributes import subgraphs
from ..graph.opaque import captured_names
from ..graph.scope import NodeContext, Scope
from ..site.context import Unsupported
from ..site.site import Site

MAX_NODES = 50_000  # of all steps
PRODUCTS = {"MatMul", "Gemm", "Conv", "LSTM", "GRU", "RNN", "Einsum", "FusedMatMul", "FusedGemm"}
Lower = Callable[[Sequence[tuple[int, Any]], NodeContext], None]


@dataclass(frozen=True)
class UnrolledBody:
    """The body of a Scan or Loop, its loop-dependent nodes, and their context."""

    site: Site
    graph: Any
    nodes: Sequence[tuple[int, Any]]
    body: NodeContext
    lower: Lower

    def run(self, step: int, operands: Sequence[Value]) -> list[Value]:
        """Lower one step on values for the inputs of the body and return its results."""
        scope = Scope(dict(zip((i.name for i in self.graph.input), operands, strict=True)), self.body.scope, f"{self.site.name}/{step}/")
        self.lower(self.nodes, replace(self.body, scope=scope))
        results = [scope.find(o.name) for o in self.graph.output]
        return [v for v in results if v is not None]


def unrolled_body(site: Site, body: NodeContext, count: int, lower: Lower, define: Callable[[Any, Scope], None]) -> UnrolledBody:
    """Lower the loop-invariant nodes of a Scan or Loop and return its steps.

    Raises:
        Unsupported: the body makes no products, or unrolling exceeds the bound on nodes.
    """
    graph = site.attributes["body"]
    if not any(n.op_type in PRODUCTS for n in graph.node):
        raise Unsupported("its steps make no products")
    if count * len(graph.node) > MAX_NODES:
        raise Unsupported(f"its {count} steps of {len(graph.node)} nodes are more than {MAX_NODES} nodes")
    scope = Scope({}, body.scope, f"{site.name}/")
    step_body = replace(body, scope=scope, origin=site.origin, depth=body.depth + 1, declared={})
    define(graph, scope)
    invariant, dependent = _split_invariant(graph)
    lower(invariant, step_body)
    return UnrolledBody(site, graph, dependent, step_body, lower)


def _split_invariant(graph: Any) -> tuple[list[tuple[int, Any]], list[tuple[int, Any]]]:
    """Return the loop-invariant nodes of a body, and the others."""
    names = {i.name for i in graph.input}
    invariant, dependent = [], []
    for number, n in enumerate(graph.node):
        if names.intersection((*n.input, *captured_names(n))) or subgraphs(n):
            names.update(n.output)
            dependent.append((number, n))
        else:
            invariant.append((number, n))
    return invariant, dependent


def check_scan(site: Site) -> None:
    """Check the operands of a Scan against the inputs of its body.

    Raises:
        ShapeError: their numbers do not match.
    """
    count, operands, input_count = int(site.get("num_scan_inputs", 0)), len(site.inputs), len(site.attributes["body"].input)
    if site.version >= 9 and not 1 <= count <= operands:
        raise ShapeError(f"num_scan_inputs of Scan must be 1 to its {operands} operands, not {count}")
    if site.version >= 9 and operands != input_count:
        raise ShapeError(f"Scan must have an operand for each of the {input_count} inputs of its body, not {operands}")


def unrolled_scan(site: Site, body: NodeContext, lower: Lower, define: Callable[[Any, Scope], None]) -> list[Value]:
    """Return the results of an unrolled Scan: last states, then the stacked outputs of the steps.

    Raises:
        ShapeError: sequences differ in length, or an axis is not valid.
        Unsupported: the operands are not states and sequences, or unrolling does not pay.
    """
    graph, sequences = site.attributes["body"], int(site.get("num_scan_inputs", 0))
    operands = site.values()
    states = operands[: len(operands) - sequences]
    if not sequences or len(operands) != len(graph.input) or site.version < 9:
        raise Unsupported("its inputs are not states and sequences")
    axes = _integer_list(site, "scan_input_axes", sequences)
    backwards = _integer_list(site, "scan_input_directions", sequences)
    reads = [_Sequence(site, v, a, bool(b)) for v, a, b in zip(operands[len(states) :], axes, backwards, strict=True)]
    if len({r.count for r in reads}) != 1:
        raise ShapeError(f"Sequences of Scan must be equally long, not {sorted({r.count for r in reads})}")
    count = reads[0].count
    steps = unrolled_body(site, body, count, lower, define)
    outputs = len(graph.output) - len(states)
    stacks: list[list[Value]] = [[] for _ in range(outputs)]
    for t in range(count):
        results = steps.run(t, [*states, *(r.at(t) for r in reads)])
        states = results[: len(states)]
        for stack, v in zip(stacks, results[len(states) :], strict=True):
            stack.append(v)
    scan_outputs = zip(
        stacks, _integer_list(site, "scan_output_axes", outputs), _integer_list(site, "scan_output_directions", outputs), strict=True
    )
    return [*states, *(_stacked(site, stack[::-1] if is_reversed else stack, axis) for stack, axis, is_reversed in scan_outputs)]


@dataclass(frozen=True)
class _Sequence:
    site: Site
    value: Value
    declared_axis: int
    is_reversed: bool

    @property
    def shape(self) -> tuple[int, ...]:
        return self.site.type(self.value).shape

    @property
    def axis(self) -> int:
        axis = self.declared_axis + len(self.shape) if self.declared_axis < 0 else self.declared_axis
        if not 0 <= axis < len(self.shape):
            raise ShapeError(f"Axis of a sequence of Scan must be one of {len(self.shape)}, not {self.declared_axis}")
        return axis

    @property
    def count(self) -> int:
        return self.shape[self.axis]

    def at(self, t: int) -> Value:
        place, axis = (self.count - 1 - t if self.is_reversed else t), self.axis
        element = self.site.apply("slice", self.value, axis=axis, start=place, stop=place + 1, step=1)
        return self.site.reshape(element, (*self.shape[:axis], *self.shape[axis + 1 :]))


def _integer_list(site: Site, name: str, count: int) -> tuple[int, ...]:
    values = tuple(int(n) for n in site.get(name, ())) or (0,) * count
    if len(values) != count:
        raise ShapeError(f"{name} of {site.op} must have {count} elements, not {len(values)}")
    return values


def _stacked(site: Site, parts: Sequence[Value], axis: int) -> Value:
    shape = site.type(parts[0]).shape
    place = axis + len(shape) + 1 if axis < 0 else axis
    rows = [site.reshape(v, (*shape[:place], 1, *shape[place:])) for v in parts]
    return rows[0] if len(rows) == 1 else site.apply("concat", *rows, axis=place)


def unrolled_loop(site: Site, body: NodeContext, lower: Lower, define: Callable[[Any, Scope], None]) -> list[Value]:
    """Return the results of an unrolled Loop: last states, then the stacked outputs of the steps.

    Without a trip count the condition ends it, which is known after each step where it depends on no data.

    Raises:
        Unsupported: the trip count or condition depends on data, the body does not fit, or unrolling does not pay.
    """
    graph = site.attributes["body"]
    count = _trip_count(site, MAX_NODES // max(1, len(graph.node)))
    states = [v for v in site.inputs[2:] if v is not None]
    outputs = len(graph.output) - 1 - len(states)
    if len(graph.input) != 2 + len(states) or outputs < 0 or count < 1:
        raise Unsupported("its body has another number of values, or it makes no step")
    steps = unrolled_body(site, body, count, lower, define)
    stacks: list[list[Value]] = [[] for _ in range(outputs)]
    is_ended = site.has(0)
    proceed = site.context.constant(np.array(True), f"{site.name}/going")
    for t in range(count):
        number = site.context.constant(np.array(t, np.int64), f"{site.name}/{t}/step")
        condition, *results = steps.run(t, [number, proceed, *states])
        states = results[: len(states)]
        for stack, v in zip(stacks, results[len(states) :], strict=True):
            stack.append(v)
        condition_data = site.context.data(condition)
        if condition_data is None:
            raise Unsupported(f'its number of steps depends on data: "{graph.output[0].name}" is computed at run time')
        if not np.all(condition_data):
            is_ended = True
            break
    if not is_ended:
        raise Unsupported(f"its condition holds for more than {count} steps of {len(graph.node)} nodes")
    return [*states, *(_stacked(site, stack, 0) for stack in stacks)]


def _trip_count(site: Site, most: int) -> int:
    """Return the trip count, `most` where only the condition ends the loop."""
    if site.has(0) and site.data(0) is None:
        raise Unsupported(f'its number of steps depends on data: "{site.name_of(0)}" is computed at run time')
    if site.has(1) and not np.all(site.required_data(1, "condition")):
        return 0
    return int(site.required_data(0, "steps").reshape(-1)[0]) if site.has(0) else most


UNROLLED = {"Scan": unrolled_scan, "Loop": unrolled_loop}
