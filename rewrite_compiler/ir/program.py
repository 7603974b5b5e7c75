"""Program: a typed tensor program in topological order; values are numbered, weights are constants.

Every node knows the source nodes it came from. An operator the engine does not know stays in the program as `opaque`,
with the source operator it stands for; the host runs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..ops import OPS, Op
from ..ops.op import AttributeValue
from .types import TensorType, result_types

OPAQUE = "opaque"
Value = int
Data = NDArray[Any]


@dataclass(frozen=True)
class Source:
    """One node of the source model: its name and operator."""

    name: str
    op_type: str


@dataclass(frozen=True)
class Node:
    """One operation: its operator's name, the values it reads and defines, its attributes, its source nodes."""

    op: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    attributes: tuple[tuple[str, AttributeValue], ...] = ()
    origins: frozenset[int] = frozenset()

    @property
    def operator(self) -> Op | None:
        """The operator, or None for an opaque or device operation."""
        return OPS.get(self.op)

    def attribute(self, name: str) -> AttributeValue:
        """Return the value of an attribute."""
        return dict(self.attributes)[name]


@dataclass(frozen=True)
class OpaqueOp:
    """A source operator the engine does not interpret: its names, the serialised node that the host runs, its operator set.

    `macs` are its multiply-accumulates, None where it is not known how many there are.
    """

    op_type: str
    domain: str
    payload: bytes
    reason: str
    version: int = 1
    macs: int | None = None

    @property
    def label(self) -> str:
        """The operator as people write it."""
        return f"{self.domain}.{self.op_type}" if self.domain else self.op_type


@dataclass(frozen=True)
class Program:
    """A tensor program: typed, named values and nodes in topological order, with its constants and where it came from."""

    name: str
    types: tuple[TensorType, ...]
    names: tuple[str, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    nodes: tuple[Node, ...]
    constants: Mapping[Value, Data] = field(default_factory=dict)
    sources: tuple[Source, ...] = ()
    opaque: Mapping[str, OpaqueOp] = field(default_factory=dict)
    absorbed: Mapping[int, str] = field(default_factory=dict)  # source nodes that left no operation: folded, identities
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Name it with its size; `flexmatch.report` and notebooks show it whole."""
        reads, gives = (", ".join(f"{self.names[v]}: {self.types[v]}" for v in values) for values in (self.inputs, self.outputs))
        return f"Program({self.name}: {reads} -> {gives}, {len(self.nodes)} nodes)"

    def producer(self) -> dict[Value, Node]:
        """Return the defining node of each value (def chains)."""
        return {v: n for n in self.nodes for v in n.outputs}

    def users(self) -> dict[Value, list[Node]]:
        """Return the nodes that read each value (use chains)."""
        readers: dict[Value, list[Node]] = {}
        for n in self.nodes:
            for v in n.inputs:
                readers.setdefault(v, []).append(n)
        return readers

    def opaque_of(self, node: Node) -> OpaqueOp:
        """Return the source operator an opaque node stands for."""
        return self.opaque[str(node.attribute("key"))]

    def is_constant(self, value: Value) -> bool:
        """Tell whether a value is known at compile time."""
        return value in self.constants


class Builder:
    """A program under construction: values are numbered, the types of results are inferred by the operators."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.types: list[TensorType] = []
        self.names: list[str] = []
        self.inputs: list[Value] = []
        self.nodes: list[Node] = []
        self.constants: dict[Value, Data] = {}
        self.sources: list[Source] = []
        self.opaque: dict[str, OpaqueOp] = {}
        self.absorbed: dict[int, str] = {}
        self.notes: list[str] = []

    def value(self, type_: TensorType, name: str = "") -> Value:
        """Add a value of a type and return its number."""
        self.types.append(type_)
        self.names.append(name or f"v{len(self.types) - 1}")
        return len(self.types) - 1

    def input(self, name: str, type_: TensorType) -> Value:
        """Add a program input and return its value."""
        v = self.value(type_, name)
        self.inputs.append(v)
        return v

    def constant(self, data: Data, name: str = "", dtype: str | None = None) -> Value:
        """Add a constant and return its value."""
        v = self.value(TensorType(tuple(data.shape), dtype or str(data.dtype)), name)
        self.constants[v] = data
        return v

    def apply(
        self,
        op: str,
        inputs: Sequence[Value],
        attributes: Mapping[str, AttributeValue] | None = None,
        *,
        origins: Iterable[int] = (),
        names: Sequence[str] = (),
    ) -> tuple[Value, ...]:
        """Add a node of a known operator and return its results.

        Raises:
            ShapeError: the operator is not defined on its operands.
        """
        operator = OPS[op]
        values = {a.name: (attributes or {}).get(a.name, a.default) for a in operator.attributes}
        types = result_types(operator, [self.types[v] for v in inputs], values)  # type: ignore[arg-type]
        outputs = tuple(self.value(t, names[n] if n < len(names) else "") for n, t in enumerate(types))
        self.nodes.append(Node(op, tuple(inputs), outputs, tuple(values.items()), frozenset(origins)))  # type: ignore[arg-type]
        return outputs

    def node(self, node: Node) -> None:
        """Add a finished node (opaque or device operations)."""
        self.nodes.append(node)

    def finish(self, outputs: Sequence[Value]) -> Program:
        """Return the program with these outputs, dead nodes and constants eliminated."""
        live = set(outputs)
        live_nodes: list[Node] = []
        for n in reversed(self.nodes):
            if live.intersection(n.outputs):
                live_nodes.append(n)
                live.update(n.inputs)
        live_nodes.reverse()
        constants = {v: c for v, c in self.constants.items() if v in live}
        return Program(
            self.name, tuple(self.types), tuple(self.names), tuple(self.inputs), tuple(outputs), tuple(live_nodes), constants,
            tuple(self.sources), dict(self.opaque), dict(self.absorbed), tuple(self.notes),
        )  # fmt: skip


def topological_order(nodes: Sequence[Node], defined: Iterable[Value]) -> list[Node]:
    """Return nodes in topological order: every value is defined before it is read.

    Raises:
        InputError: the nodes form a cycle.
    """
    ready = set(defined)
    producer = {v: n for n, node in enumerate(nodes) for v in node.outputs}
    order: list[Node] = []
    state = [0] * len(nodes)
    for start in range(len(nodes)):
        work = [(start, iter(nodes[start].inputs))]
        while work:
            current, inputs = work[-1]
            state[current] = max(state[current], 1)
            following = next((producer[v] for v in inputs if v not in ready and v in producer and state[producer[v]] != 2), None)
            if following is None:
                if state[current] != 2:
                    order.append(nodes[current])
                    state[current] = 2
                work.pop()
            elif state[following] == 1:
                raise InputError("F120", f"the nodes form a cycle through {nodes[following].op}")
            else:
                work.append((following, iter(nodes[following].inputs)))
    return order


def renumber_values(p: Program) -> Program:
    """Return the program with values numbered in order of definition, unused ones dropped."""
    order: list[Value] = [*p.inputs, *p.constants, *(v for n in p.nodes for v in n.outputs)]
    place = {v: n for n, v in enumerate(order)}
    nodes = tuple(replace(n, inputs=tuple(place[v] for v in n.inputs), outputs=tuple(place[v] for v in n.outputs)) for n in p.nodes)
    return replace(
        p, types=tuple(p.types[v] for v in order), names=tuple(p.names[v] for v in order), inputs=tuple(place[v] for v in p.inputs),
        outputs=tuple(place[v] for v in p.outputs), nodes=nodes, constants={place[v]: c for v, c in p.constants.items()},
    )  # fmt: skip


def nodes_with_types(p: Program) -> Iterator[tuple[Node, list[TensorType]]]:
    """Yield each node with the types of its operands."""
    for n in p.nodes:
        yield n, [p.types[v] for v in n.inputs]


def total_macs(p: Program, nodes: Iterable[Node] | None = None) -> int:
    """Return the multiply-accumulates of a program, or of some of its nodes; opaque ones of unknown number count as 0."""
    counted = p.nodes if nodes is None else tuple(nodes)
    opaque_macs = sum(p.opaque_of(n).macs or 0 for n in counted if n.op == OPAQUE)
    return opaque_macs + sum(macs_of(n, [p.types[v] for v in n.inputs]) for n in counted)


def nodes_of_unknown_macs(p: Program) -> list[Node]:
    """Return the opaque nodes whose number of multiply-accumulates is unknown."""
    return [n for n in p.nodes if n.op == OPAQUE and p.opaque_of(n).macs is None]


def macs_of(node: Node, operands: Sequence[TensorType]) -> int:
    """Return the multiply-accumulates of one node."""
    operator = node.operator
    if operator is None or operator.macs is None:
        return 0
    return int(operator.macs(*(t.shape for t in operands), **dict(node.attributes)))


def zeros_of(t: TensorType) -> Data:
    """Return zeros of a type."""
    return np.zeros(t.shape, t.dtype if t.dtype in np.sctypeDict else np.float32)
