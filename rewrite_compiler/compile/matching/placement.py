"""Placement: extends the e-graph so that extraction also chooses the memory of boundary tensors, in one integer program.

A class whose tensor a device could keep gets a second class, the tensor in a memory of that device. Offloads that leave their
result there, or read an operand there, are further e-nodes, cheaper by the bytes that do not cross the link; `Load` brings the
tensor to the host, `Upload` to the device, each paid once for all readers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

from ...egraph.extraction.extract import Extraction, topological_choice
from ...egraph.extraction.prune import Candidate, CostOf
from ...egraph.graph.graph import ClassId, EClass, EGraph, ENode
from ...egraph.graph.term_rows import operator_named
from ...target import Room
from ..host.order_preserving import keeps_order

LOAD, UPLOAD = "Load", "Upload"
Key = tuple[str, str, int, tuple[int, ...]]  # target, memory, size, form
Levels = tuple[int, ...]


@dataclass(frozen=True)
class Placement:
    """The placement options of an offload: places of operands by position and of its first result, and its cost by resident subset."""

    operands: Mapping[int, Key]
    result: Key | None
    calls: int
    cost_by_residents: Mapping[frozenset[int], int]  # by the set of resident positions; RESULT is the result's


RESULT = -1


@dataclass
class PlacementGraph:
    """The e-graph extended by places, the costs of its e-nodes, and their originals."""

    graph: EGraph
    cost_of: CostOf
    placements: Mapping[int, Placement]  # by the id of an e-node
    classes: dict[ClassId, EClass] = field(default_factory=dict)
    costs: dict[int, Levels] = field(default_factory=dict)
    original: dict[int, tuple[ClassId, ENode] | None] = field(default_factory=dict)
    place_classes: dict[tuple[ClassId, Key], ClassId] = field(default_factory=dict)
    origin_cache: dict[ClassId, list[ClassId]] = field(default_factory=dict)  # memoised `origins`

    def __post_init__(self) -> None:
        self.users: dict[tuple[ClassId, Key], list[ENode]] = {}
        self.makers: dict[ClassId, list[tuple[ClassId, ENode]]] = {}
        self.classes = dict(self.graph.classes)
        self.projections = {n.children[0]: c for c, n in self.results() if n.attributes[0] == 0}
        for c, e_class in self.graph.classes.items():
            for n in e_class.nodes:
                self.record(c, n)
        for place in self.useful_places():
            self.place_classes[place] = len(self.place_classes) + 1 + max(self.graph.classes)
        for place in self.place_classes:
            self.add(place)
        for c, e_class in self.graph.classes.items():
            self.add_variants(c, e_class)

    def results(self) -> Iterator[tuple[ClassId, ENode]]:
        """Yield the projections of operators of several results."""
        yield from ((c, n) for c, e_class in self.graph.classes.items() for n in e_class.nodes if n.op == "Result")

    def record(self, c: ClassId, n: ENode) -> None:
        """Record the places that an offload could write or read."""
        placement = self.placements.get(id(n))
        if placement is None or self.cost_of(c, n) is None:
            return
        if placement.result is not None:
            self.makers.setdefault(self.projections.get(c, c), []).append((c, n))
        for k, key in placement.operands.items():
            self.users.setdefault((n.children[k], key), []).append(n)

    def useful_places(self) -> list[tuple[ClassId, Key]]:
        """Return the places that can save a transfer: an offload of the device defines the tensor there, or several calls read it."""
        readers: dict[tuple[ClassId, Key], int] = {}
        self.readers = {(d, key): (c, users[0]) for (c, key), users in self.users.items() for d in self.origins(c)}
        for (c, key), users in self.users.items():
            calls = sum(self.placements[id(n)].calls for n in users)
            for d in self.origins(c):
                readers[d, key] = readers.get((d, key), 0) + calls
        useful: dict[tuple[ClassId, Key], None] = {}
        for c, key in self.users:
            makers = [n for d in self.origins(c) for _, n in self.makers.get(d, ())]
            if any(self.placements[id(n)].result == key for n in makers) or any(readers[d, key] > 1 for d in self.origins(c)):
                useful.update(dict.fromkeys((d, key) for d in self.origins(c)))
        return list(useful)

    def origins(self, c: ClassId) -> list[ClassId]:
        """Return a class and the classes that it renames, transitively."""
        if c in self.origin_cache:
            return self.origin_cache[c]
        sources = [c]
        for d in sources:
            operands = (n.children[0] for n in self.graph.classes[d].nodes if self.is_renaming(n))
            sources += [e for e in dict.fromkeys(operands) if e not in sources and not self.graph.classes[e].fixed]
        self.origin_cache[c] = sources
        return sources

    def is_renaming(self, n: ENode) -> bool:
        """Tell whether an e-node keeps the elements of its operand in memory order."""
        op = operator_named(n.op)
        if op is None or not n.children or (t := self.graph.classes[n.children[0]].type) is None:
            return False
        return keeps_order(op, {a.name: v for a, v in zip(op.attributes, n.attributes, strict=True)}, t.shape)

    def add(self, place: tuple[ClassId, Key]) -> None:
        """Add the class of a tensor in a place: computed there, uploaded from the host, or renamed there."""
        (c, key), nodes = place, list[ENode]()
        for owner, n in self.makers.get(c, ()):
            if self.placements[id(n)].result == key:
                nodes += self.resident_results(c, owner, n)
        reader = self.readers.get(place)
        if reader is not None:
            nodes.append(self.upload(c, *reader))
        for n in self.graph.classes[c].nodes:
            if self.is_renaming(n) and (n.children[0], key) in self.place_classes and self.cost_of(c, n) is not None:
                nodes.append(self.new_node(n.op, (self.place_classes[n.children[0], key],), self.first_level_cost(c, n, 0), (c, n)))
        self.classes[self.place_classes[place]] = EClass(self.graph.classes[c].type, False, tuple(nodes))

    def upload(self, c: ClassId, read: ClassId, n: ENode) -> ENode:
        """Return the upload of a class's tensor, priced as one transfer of an operand by its reader `n`."""
        placement, k = self.placements[id(n)], n.children.index(read)
        once = (placement.cost_by_residents[frozenset()] - placement.cost_by_residents[frozenset({k})]) // placement.calls
        return self.new_node(UPLOAD, (c,), self.first_level_cost(read, n, once), None)

    def resident_results(self, c: ClassId, owner: ClassId, n: ENode) -> list[ENode]:
        """Return the e-nodes of an offload that leaves its result on the device; for several results their tuple gets a second class."""
        variants = self.variants(owner, n, frozenset({RESULT}))
        if owner == c:
            return variants
        second_tuple = 1 + max(*self.classes, *self.place_classes.values())
        self.classes[second_tuple] = EClass(None, False, tuple(variants))
        nodes = []
        for d, r in self.results():
            if r.children[0] == owner and self.cost_of(d, r) is not None:
                node = self.new_node("Result", (second_tuple,), self.projection_cost(d, r), (d, r))
                if d == c:
                    nodes.append(node)
                else:
                    self.classes[d] = replace(self.classes[d], nodes=(*self.classes[d].nodes, node))
        return nodes

    def add_variants(self, c: ClassId, e_class: EClass) -> None:
        """Add to a class the offloads with resident operands, and the loads of its tensor from places."""
        added_nodes = [v for n in e_class.nodes if id(n) in self.placements for v in self.variants(c, n, frozenset())[1:]]
        for (d, key), at in self.place_classes.items():
            for owner, n in self.makers.get(d, ()) if d == c else ():
                placement = self.placements[id(n)]
                if placement.result == key:
                    load = placement.cost_by_residents[frozenset()] - placement.cost_by_residents[frozenset({RESULT})]
                    added_nodes.append(self.new_node(LOAD, (at,), self.first_level_cost(owner, n, load), None))
                    break
        self.classes[c] = replace(self.classes[c], nodes=(*self.classes[c].nodes, *added_nodes))

    def variants(self, c: ClassId, n: ENode, results_resident: frozenset[int]) -> list[ENode]:
        """Return an offload with every subset of resident operands; `held` are further resident positions."""
        placement, cost = self.placements[id(n)], self.cost_of(c, n)
        if cost is None:
            return []
        placeable = [k for k, key in placement.operands.items() if (n.children[k], key) in self.place_classes]
        nodes = []
        for resident in (frozenset(x) for count in range(len(placeable) + 1) for x in combinations(placeable, count)):
            children = tuple(self.place_classes[d, placement.operands[k]] if k in resident else d for k, d in enumerate(n.children))
            resident_cost = placement.cost_by_residents[results_resident | resident]
            nodes.append(self.new_node(n.op, children, (resident_cost, *cost[1:]), (c, n)))
        return nodes

    def new_node(self, op: str, children: tuple[ClassId, ...], cost: Levels, original: tuple[ClassId, ENode] | None) -> ENode:
        """Return a new e-node with a cost, standing for an original one or for a transfer."""
        attributes = () if original is None else original[1].attributes
        node = ENode(op, children, attributes, -1, frozenset())
        self.costs[id(node)], self.original[id(node)] = cost, original
        return node

    def first_level_cost(self, c: ClassId, n: ENode, resources: int) -> Levels:
        """Return a cost that is `resources` at the first level and 0 at the others."""
        return (resources, *(0 for _ in self.levels_of(c, n)[1:]))

    def levels_of(self, c: ClassId, n: ENode) -> Levels:
        """Return the cost of an e-node that may be chosen."""
        cost = self.cost_of(c, n)
        assert cost is not None
        return cost

    def projection_cost(self, c: ClassId, n: ENode) -> Levels:
        """Return the cost of a projection."""
        return self.levels_of(c, n)

    def extended_graph(self) -> EGraph:
        """Return the extended e-graph."""
        return EGraph(self.classes, self.graph.values)

    def cost(self, c: ClassId, n: ENode) -> Levels | None:
        """Return the cost of an e-node of the extended e-graph."""
        return self.costs[id(n)] if id(n) in self.costs else self.cost_of(c, n)

    def project(self, extraction: Extraction, roots: Sequence[ClassId]) -> Extraction | None:
        """Return the extraction projected to the original e-graph, operands first; None where a class is built in two ways."""
        choice: dict[ClassId, ENode] = {}
        for c, n in extraction.choice.items():
            original = self.original.get(id(n), (c, n))
            if original is not None and choice.setdefault(original[0], original[1]) is not original[1]:
                return None
        candidates = {c: Candidate(n, frozenset(n.children), ()) for c, n in choice.items()}
        return replace(extraction, choice={c: choice[c] for c in topological_choice(candidates, roots)})


def key_of(target: str, room: Room) -> Key:
    """Return the key of a room on a target: memory, size and form."""
    return target, room.memory, room.size, room.form
