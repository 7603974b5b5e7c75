"""The e-graph of a program with an unrolled recurrence: that of its layers, joined with copies of the e-graph of each step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from ...ir.program import Program
from ..graph.graph import NOWHERE, PROGRAM, ClassId, EClass, EGraph, ENode, Sources
from .join import Form, Representatives
from .recurrent_skeleton import Skeleton
from .regions import Region

Key = tuple[object, ...]


def states_of(regions: Sequence[Region], form_program: Representatives) -> list[list[int]]:
    """Return for each form the inputs that carry the state: those that other regions define in at least half of its regions."""
    region_outputs = {v for r in regions for v in r.outputs}
    states = []
    for n, f in enumerate(form_program.forms):
        same_form = [r for r, k in zip(regions, form_program.form_of, strict=True) if k == n]
        places = [
            place
            for place in range(len(f.region.inputs))
            if 2 * sum(r.inputs[place] in region_outputs for r in same_form) >= len(same_form)
        ]
        states.append([f.region.inputs[place] for place in places])
    return states


class StepJoiner:
    """Adds copies of the e-graphs of steps to that of the skeleton, hash-consed: an e-node that exists already is not added again."""

    def __init__(self, p: Program, layered: Skeleton, graph: EGraph, steps: EGraph) -> None:
        self.p, self.steps = p, steps
        self.values = {v: c for v, c in graph.values.items() if v < len(p.types)}
        self.types = {c: e_class.type for c, e_class in graph.classes.items()}
        self.fixed = {c for c, e_class in graph.classes.items() if e_class.fixed}
        self.next = max(graph.classes)
        self.nodes: dict[ClassId, dict[Key, ENode]] = {}
        self.place: dict[Key, ClassId] = {}
        self.orders: dict[int, list[tuple[ClassId, ENode]]] = {}
        for c, e_class in graph.classes.items():
            for n in e_class.nodes:
                self.add_node(c, replace(n, origins=Sources.of(n.origins, layered.sources)) if n.origins else n)

    def add_node(self, c: ClassId, n: ENode) -> None:
        """Add an e-node to a class; one that the rules made in a step replaces an equal one of the program."""
        key = n.op, n.children, n.attributes
        members = self.nodes.setdefault(c, {})
        if key not in members or members[key].birth == PROGRAM:
            members[key] = n
            self.place.setdefault(key, c)

    def add_step(self, r: Region, f: Form) -> None:
        """Add a copy of the e-graph of a form for one of its regions."""
        place = {
            self.steps.values[f.values[form_value]]: self.values[region_value] for form_value, region_value in self.shared_values(r, f)
        }
        sources = {f.first_node + k: n.origins for k, n in enumerate(r.nodes)}
        if id(f) not in self.orders:
            self.orders[id(f)] = _operands_first(self.steps, place, f)
        for c, n in self.orders[id(f)]:
            children = tuple([place[d] for d in n.children])
            if c not in place:
                existing = self.place.get((n.op, children, n.attributes))
                place[c] = self.new_class(c) if existing is None else existing
            if n.op not in ("Input", "Constant"):
                origins = frozenset([s for k in n.origins for s in sources[k]]) if n.origins else NOWHERE
                self.add_node(place[c], ENode(n.op, children, n.attributes, n.birth, origins))
        for form_value, region_value in zip(f.region.values, r.values, strict=True):
            self.values.setdefault(region_value, place[self.steps.values[f.values[form_value]]])

    def shared_values(self, r: Region, f: Form) -> Iterator[tuple[int, int]]:
        """Yield the pairs of form value and region value that the skeleton has too: the inputs, constants and outputs."""
        count = len(r.inputs) + len(r.constants)
        yield from (
            (form_value, region_value)
            for form_value, region_value in zip(f.region.outputs, r.outputs, strict=True)
            if region_value in self.values
        )
        yield from zip(f.region.values[:count], r.values[:count], strict=True)

    def new_class(self, c: ClassId) -> ClassId:
        """Return a new class of the type of a step's class."""
        number = self.next = self.next + 1
        self.types[number] = self.steps.classes[c].type
        if self.steps.classes[c].fixed:
            self.fixed.add(number)
        return number

    def result(self) -> EGraph:
        """Return the e-graph of the program."""
        return EGraph(
            {c: EClass(self.types[c], c in self.fixed, tuple(members.values())) for c, members in self.nodes.items()}, self.values
        )


def _operands_first(
    graph: EGraph, placed_classes: AbstractSet[ClassId] | Mapping[ClassId, ClassId], f: Form
) -> list[tuple[ClassId, ENode]]:
    """Return the e-nodes below a form's values in topological order, the classes of operands first."""
    ordered_classes, order = set(placed_classes), list[tuple[ClassId, ENode]]()
    unordered = {id(n): (c, n) for c in _classes_below(graph, [graph.values[v] for v in f.values.values()]) for n in graph.classes[c].nodes}
    while ready := [(key, c, n) for key, (c, n) in unordered.items() if all(d in ordered_classes for d in n.children)]:
        for key, c, n in ready:
            del unordered[key]
            ordered_classes.add(c)
            order.append((c, n))
    return order


def _classes_below(graph: EGraph, work: list[ClassId]) -> list[ClassId]:
    """Return the classes reachable from some through operands."""
    reached_classes: dict[ClassId, None] = {}
    while work:
        c = work.pop()
        if c not in reached_classes:
            reached_classes[c] = None
            work.extend(d for n in graph.classes[c].nodes for d in n.children)
    return sorted(reached_classes)
