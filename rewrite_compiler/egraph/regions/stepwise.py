"""Steps of a recurrence, saturated once for each form, then together as layers, then joined into the e-graph of the whole program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

from ...ir.program import Program
from ..graph.graph import PROGRAM, ClassId, EClass, EGraph, ENode, Sources
from ..saturation.outcome import Saturation
from .join import Form, Representatives, representatives
from .recurrent_skeleton import NoLayers, Skeleton, skeleton, step_of
from .recurrent_steps import cells_of
from .regions import Known, Region

Saturate = Callable[[Program, Sequence[str]], Saturation]
Key = tuple[object, ...]


def saturated_by_steps(p: Program, saturate: Saturate) -> Saturation | None:
    """Return the e-graph of a program with an unrolled recurrence; None where it has none, or its steps are not made of layers."""
    cells = cells_of(p)
    if not cells:
        return None
    regions = [r for _, r in cells]
    shared = representatives(p, regions, [form for form, _ in cells])
    step_saturation = saturate(shared.program, shared.commands)
    try:
        written_steps = [
            step_of(f, step_saturation.graph, states) for f, states in zip(shared.forms, _states(regions, shared), strict=True)
        ]
        layered = skeleton(p, Known(p).fixed, [(r, written_steps[n]) for r, n in zip(regions, shared.form_of, strict=True)])
    except NoLayers:
        return None
    saturation = saturate(layered.program, ())
    joiner = _Joiner(p, layered, saturation.graph, step_saturation.graph)
    for r, n in zip(regions, shared.form_of, strict=True):
        joiner.add_step(r, shared.forms[n])
    return _combined(replace(saturation, graph=joiner.result(), regions=len(regions) + 1, forms=len(shared.forms) + 1), step_saturation)


def _states(regions: Sequence[Region], shared: Representatives) -> list[list[int]]:
    """Return for each form the inputs of its region that in most regions of the form other regions make."""
    region_outputs = {v for r in regions for v in r.outputs}
    states = []
    for n, f in enumerate(shared.forms):
        same_form = [r for r, k in zip(regions, shared.form_of, strict=True) if k == n]
        places = [
            place
            for place in range(len(f.region.inputs))
            if 2 * sum(r.inputs[place] in region_outputs for r in same_form) >= len(same_form)
        ]
        states.append([f.region.inputs[place] for place in places])
    return states


def _combined(skeleton_saturation: Saturation, steps: Saturation) -> Saturation:
    """Return what both saturations say; the worse reason to stop."""
    unfinished = skeleton_saturation if skeleton_saturation.reason != "saturated" else steps
    return replace(
        skeleton_saturation, rounds=max(skeleton_saturation.rounds, steps.rounds), reason=unfinished.reason, detail=unfinished.detail, matches=_sum(skeleton_saturation.matches, steps.matches),
        made=_sum(skeleton_saturation.made, steps.made), held=_sum(skeleton_saturation.held, steps.held), grown=_sum(skeleton_saturation.grown, steps.grown),
        seconds=skeleton_saturation.seconds + steps.seconds, rule_seconds=_sum(skeleton_saturation.rule_seconds, steps.rule_seconds),
        is_kept=skeleton_saturation.is_kept and steps.is_kept,
    )  # fmt: skip


def _sum(a: Mapping[Any, Any], b: Mapping[Any, Any]) -> dict[Any, Any]:
    return {k: a.get(k, 0) + b.get(k, 0) for k in dict.fromkeys((*a, *b))}


class _Joiner:
    """Adds the e-graphs of steps to that of the skeleton; what is there already is not added again."""

    def __init__(self, p: Program, layered: Skeleton, graph: EGraph, steps: EGraph) -> None:
        self.p, self.steps = p, steps
        self.values = {v: c for v, c in graph.values.items() if v < len(p.types)}
        self.types = {c: found.type for c, found in graph.classes.items()}
        self.fixed = {c for c, found in graph.classes.items() if found.fixed}
        self.next = max(graph.classes)
        self.nodes: dict[ClassId, dict[Key, ENode]] = {}
        self.place: dict[Key, ClassId] = {}
        self.orders: dict[int, list[tuple[ClassId, ENode]]] = {}
        for c, e_class in graph.classes.items():
            for n in e_class.nodes:
                self.add_node(c, replace(n, origins=Sources.of(n.origins, layered.sources)))

    def add_node(self, c: ClassId, n: ENode) -> None:
        """Add an e-node to a class; where it is there as one of the program, it is what the rules made of a step."""
        key = n.op, n.children, n.attributes
        members = self.nodes.setdefault(c, {})
        if key not in members or members[key].birth == PROGRAM:
            members[key] = n
            self.place.setdefault(key, c)

    def add_step(self, r: Region, f: Form) -> None:
        """Add the e-graph of a form for one of its regions."""
        place = {self.steps.values[f.values[theirs]]: self.values[mine] for theirs, mine in self.shared_values(r, f)}
        sources = {f.first_node + k: n.origins for k, n in enumerate(r.nodes)}
        if id(f) not in self.orders:
            self.orders[id(f)] = _operands_first(self.steps, place, f)
        for c, n in self.orders[id(f)]:
            children = tuple([place[d] for d in n.children])
            if c not in place:
                existing = self.place.get((n.op, children, n.attributes))
                place[c] = self.new_class(c) if existing is None else existing
            if n.op not in ("Input", "Constant"):
                origins = frozenset(s for k in n.origins for s in sources[k])
                self.add_node(place[c], ENode(n.op, children, n.attributes, n.birth, origins))
        for form_value, region_value in zip(f.region.values, r.values, strict=True):
            self.values.setdefault(region_value, place[self.steps.values[f.values[form_value]]])

    def shared_values(self, r: Region, f: Form) -> Iterator[tuple[int, int]]:
        """Yield the values of a form and of a region that the skeleton has, too: both that are read and that others read."""
        count = len(r.inputs) + len(r.constants)
        yield from (
            (form_value, region_value)
            for form_value, region_value in zip(f.region.outputs, r.outputs, strict=True)
            if region_value in self.values
        )
        yield from zip(f.region.values[:count], r.values[:count], strict=True)

    def new_class(self, c: ClassId) -> ClassId:
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
    """Return the e-nodes below a form's values in an order in which the class of each operand comes first."""
    ordered_classes, order = set(placed_classes), list[tuple[ClassId, ENode]]()
    unordered = {id(n): (c, n) for c in _classes_below(graph, [graph.values[v] for v in f.values.values()]) for n in graph.classes[c].nodes}
    while ready := [(key, c, n) for key, (c, n) in unordered.items() if all(d in ordered_classes for d in n.children)]:
        for key, c, n in ready:
            del unordered[key]
            ordered_classes.add(c)
            order.append((c, n))
    return order


def _classes_below(graph: EGraph, work: list[ClassId]) -> list[ClassId]:
    """Return classes and all below them."""
    reached_classes: dict[ClassId, None] = {}
    while work:
        c = work.pop()
        if c not in reached_classes:
            reached_classes[c] = None
            work.extend(d for n in graph.classes[c].nodes for d in n.children)
    return sorted(reached_classes)
