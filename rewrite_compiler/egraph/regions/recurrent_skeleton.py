"""The skeleton of an unrolled recurrence: each step written as the recurrent layers that the e-graph of one step contains.

It is small enough for the rules that extend a layer by the next step; the other e-nodes of the steps are joined afterwards.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from ...errors import InputError
from ...ir.program import Node, Program, Value, topological_order
from ...ir.types import TensorType, result_types
from ...ops.op import LAYOUT, AttributeValue, Op
from ...ops.recurrent import GATES
from ..graph.graph import ClassId, EGraph, ENode
from ..graph.term_rows import operator_named
from .join import Form
from .regions import Region

STATE = 4  # the operand of a layer that its first result goes on from
Place = tuple[str, int]  # a value of the region by its place, or one that is new


class NoLayers(Exception):
    """A step cannot be written in recurrent layers."""


@dataclass(frozen=True)
class Operation:
    """An operation of a step written in layers: operands and results as places, origins as node numbers of the region."""

    op: str
    inputs: tuple[Place, ...]
    outputs: tuple[Place, ...]
    attributes: tuple[tuple[str, AttributeValue], ...]
    types: tuple[TensorType, ...]
    origins: tuple[int, ...]


@dataclass(frozen=True)
class Step:
    """A step as straight-line code, and the places of those outputs that are equal to another value of the region."""

    lines: tuple[Operation, ...]
    aliases: Mapping[int, Place]


def step_of(f: Form, graph: EGraph, states: Collection[Value]) -> Step:
    """Return the operations that define the outputs of a form, recurrent layers where its e-graph has them.

    `states` are the inputs of the region that other steps define.

    Raises:
        NoLayers: no layer defines an output, or the only choice is cyclic.
    """
    writer = _Writer(f, graph, states)
    outputs = {f.region.values.index(v): writer.place(writer.class_of[v]) for v in f.region.outputs}
    if not any(line.op in GATES for line in writer.lines):
        raise NoLayers
    writer.write_moves()
    return Step(tuple(writer.lines), {n: place for n, place in outputs.items() if place != ("region", n)})


def _is_layout(op: Op | None) -> bool:
    return op is not None and op.kind == LAYOUT


class _Writer:
    def __init__(self, f: Form, graph: EGraph, states: Collection[Value]) -> None:
        self.f, self.graph = f, graph
        self.class_of = {v: graph.values[form_value] for v, form_value in f.values.items()}
        self.states = {self.class_of[v] for v in states}
        self.places: dict[ClassId, Place] = {}  # of classes that are defined
        self.first_value: dict[ClassId, int] = {}  # the first value of the region in a class, by its place
        for n, v in enumerate(f.region.values):
            self.first_value.setdefault(self.class_of[v], n)
        for n, v in enumerate(f.region.values):
            if v in f.region.inputs or graph.classes[self.class_of[v]].fixed:
                self.places.setdefault(self.class_of[v], ("region", n))
        self.producer = {self.class_of[v]: (k, n) for k, n in reversed([*enumerate(f.region.nodes)]) for v in n.outputs}
        self.lines: list[Operation] = []
        self.open: set[ClassId] = set()
        self.count = 0

    def place(self, c: ClassId) -> Place:
        """Return where a class is, after the operations that make it."""
        if c in self.places:
            return self.places[c]
        if c in self.open:
            raise NoLayers
        self.open.add(c)
        try:
            self.write(c)
        finally:
            self.open.discard(c)
        return self.places[c]

    def write(self, c: ClassId) -> None:
        layer = self.layer(c)
        if layer is not None:
            self.add(layer[0], self.results(layer[1]))
            return
        if c in self.producer:
            self.write_original(*self.producer[c])
            return
        layout_nodes = [n for n in self.graph.classes[c].nodes if _is_layout(operator_named(n.op)) and c not in n.children]
        for n in sorted(layout_nodes, key=lambda n: (len(n.children), n.birth)):
            with suppress(NoLayers):
                self.add(n, {0: c})
                return
        raise NoLayers

    def write_moves(self) -> None:
        """Write the layout operators of the program and those on operands of a layer, too: rules of sequences begin with them."""
        for k, n in enumerate(self.f.region.nodes):
            if (
                _is_layout(n.operator)
                and all(self.class_of[v] in self.places for v in n.inputs)
                and not any(k in x.origins for x in self.lines)
            ):
                self.write_original(k, n)
        operands = {d for line in self.lines if line.op in GATES for d, place in self.places.items() if place == line.inputs[0]}
        for c in operands:
            for m in self.graph.classes[c].nodes:
                if _is_layout(operator_named(m.op)) and c not in m.children and all(x in self.places for x in m.children):
                    self.add(m, {})

    def write_original(self, k: int, n: Node) -> None:
        """Write a node of the region as it is."""
        inputs = tuple(self.place(self.class_of[v]) for v in n.inputs)
        types = tuple(self.type(self.class_of[v]) for v in n.outputs)
        outputs = tuple(self.new_place(self.class_of[v]) for v in n.outputs)
        self.lines.append(Operation(n.op, inputs, outputs, n.attributes, types, (k,)))

    def layer(self, c: ClassId) -> tuple[ENode, ClassId] | None:
        """Return the layer that defines a class, and the class of its tuple; one that reads a state first, since sums commute."""
        tuples = [n.children[0] for n in self.graph.classes[c].nodes if n.op == "Result"]
        layers = [
            (m, tuple_class) for tuple_class in tuples for m in self.graph.classes[tuple_class].nodes if m.op.removeprefix("o_") in GATES
        ]
        return min(layers, key=lambda x: (x[0].children[STATE] not in self.states, x[0].birth), default=None)

    def results(self, tuple_class: ClassId) -> dict[int, ClassId]:
        """Return the classes of the results of an operator by their numbers."""
        members = ((c, n) for c, e_class in self.graph.classes.items() for n in e_class.nodes)
        return {int(n.attributes[0]): c for c, n in members if n.op == "Result" and n.children == (tuple_class,)}  # type: ignore[arg-type]

    def add(self, n: ENode | None, results: Mapping[int, ClassId]) -> None:
        """Write an e-node."""
        op = None if n is None else operator_named(n.op)
        if n is None or op is None:
            raise NoLayers
        inputs = tuple(self.place(d) for d in n.children)
        attributes = tuple(zip((a.name for a in op.attributes), n.attributes, strict=True))
        types = result_types(op, [self.type(d) for d in n.children], dict(attributes))
        outputs = tuple(self.new_place(results[k]) if k in results else self.new() for k in range(op.outputs))
        origins = tuple(sorted(k - self.f.first_node for k in n.origins))
        self.lines.append(Operation(op.name, inputs, outputs, attributes, tuple(types), origins))

    def type(self, c: ClassId) -> TensorType:
        t = self.graph.classes[c].type
        if t is None:
            raise NoLayers
        return t

    def new_place(self, c: ClassId) -> Place:
        """Return a place for a class that is being defined: that of a value of the region, else a new one."""
        if c in self.places:
            return self.new()
        self.places[c] = ("region", self.first_value[c]) if c in self.first_value else self.new()
        return self.places[c]

    def new(self) -> Place:
        self.count += 1
        return "new", self.count


@dataclass(frozen=True)
class Skeleton:
    """The program with all steps in layers; `sources` are the source nodes of each of its origin numbers."""

    program: Program
    sources: Mapping[int, frozenset[int]]


@dataclass
class _Steps:
    types: list[TensorType]
    nodes: list[Node] = field(default_factory=list)
    sources: dict[int, frozenset[int]] = field(default_factory=dict)
    layout_results: dict[tuple[object, ...], tuple[Value, ...]] = field(default_factory=dict)  # layout operators are value-numbered
    aliases: dict[Value, Value] = field(default_factory=dict)  # value → the equal value that replaces it

    def add(self, n: Node, origins: frozenset[int]) -> None:
        number = len(self.nodes)
        self.sources[number] = origins
        self.nodes.append(replace(n, origins=frozenset({number}) if origins else origins))

    def step(self, r: Region, step: Step) -> None:
        """Add a step, written in layers."""
        places: dict[Place, Value] = {("region", n): v for n, v in enumerate(r.values)}
        for line in step.lines:
            inputs = tuple(places[x] for x in line.inputs)
            key = line.op, inputs, line.attributes
            if key in self.layout_results and all(kind == "new" for kind, _ in line.outputs):
                places.update(zip(line.outputs, self.layout_results[key], strict=True))
                continue
            for place, t in zip(line.outputs, line.types, strict=True):
                if place not in places:
                    places[place] = len(self.types)
                    self.types.append(t)
            outputs = tuple(places[x] for x in line.outputs)
            if not line.origins:
                self.layout_results[key] = outputs
            self.add(Node(line.op, inputs, outputs, line.attributes), frozenset(s for k in line.origins for s in r.nodes[k].origins))
        self.aliases.update((r.values[n], places[place]) for n, place in step.aliases.items())

    def renamed(self) -> list[Node]:
        """Return the nodes with aliases of values resolved."""

        def definition(v: Value) -> Value:
            while v in self.aliases:
                v = self.aliases[v]
            return v

        return [replace(n, inputs=tuple(map(definition, n.inputs))) if self.aliases else n for n in self.nodes]


def skeleton(p: Program, fixed: Collection[Value], cells: Sequence[tuple[Region, Step]]) -> Skeleton:
    """Return the program with the nodes of each step replaced by its layers; `fixed` are the compile-time constants.

    Raises:
        NoLayers: the replaced program is cyclic.
    """
    steps = _Steps(list(p.types))
    step_nodes = {id(n) for r, _ in cells for n in r.nodes if any(v not in fixed for v in n.outputs)}
    for n in p.nodes:
        if id(n) not in step_nodes:
            steps.add(n, n.origins)
    for r, step in cells:
        steps.step(r, step)
    names = (*p.names, *(f"step{n}" for n in range(len(p.types), len(steps.types))))
    try:
        order = topological_order(steps.renamed(), {*p.inputs, *p.constants})
    except InputError:
        raise NoLayers from None
    return Skeleton(replace(p, types=tuple(steps.types), names=names, nodes=tuple(order)), steps.sources)
