"""Places: extraction that also chooses where boundary tensors lie, as one integer program.

Beside every class whose tensor a device could keep stands a second one, the tensor in a memory of that device. Offloads that
leave their result there, or find an operand there, are e-nodes of their own, cheaper by what does not cross the link;
`Load` brings the tensor to the host, `Upload` to the device, each paid once however many read it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

from ...egraph import EGraph, ENode, Extraction
from ...egraph.extraction.extract import reached
from ...egraph.extraction.prune import Candidate, CostOf
from ...egraph.graph.encode import operator_named
from ...egraph.graph.graph import ClassId, EClass
from ...target import Room
from ..host.order_preserving import keeps_order

LOAD, UPLOAD = "Load", "Upload"
Key = tuple[str, str, int, tuple[int, ...]]  # target, memory, size, form
Levels = tuple[int, ...]


@dataclass(frozen=True)
class Placed:
    """An offload as places see it: the rooms of its operands by position and of its first result, what it costs with some held."""

    operands: Mapping[int, Key]
    result: Key | None
    calls: int
    spent: Mapping[frozenset[int], int]  # by the positions that are held; RESULT stands for the result


RESULT = -1


@dataclass
class Places:
    """The e-graph with places, what its e-nodes cost, and what they are in the original."""

    graph: EGraph
    cost_of: CostOf
    placed: Mapping[int, Placed]  # by the id of an e-node
    classes: dict[ClassId, EClass] = field(default_factory=dict)
    costs: dict[int, Levels] = field(default_factory=dict)
    original: dict[int, tuple[ClassId, ENode] | None] = field(default_factory=dict)
    at: dict[tuple[ClassId, Key], ClassId] = field(default_factory=dict)
    known: dict[ClassId, list[ClassId]] = field(default_factory=dict)  # origins that were looked for

    def __post_init__(self) -> None:
        self.users: dict[tuple[ClassId, Key], list[ENode]] = {}
        self.makers: dict[ClassId, list[tuple[ClassId, ENode]]] = {}
        self.classes = dict(self.graph.classes)
        self.projections = {n.children[0]: c for c, n in self.results() if n.attributes[0] == 0}
        for c, e_class in self.graph.classes.items():
            for n in e_class.nodes:
                self.see(c, n)
        for place in self.wanted():
            self.at[place] = len(self.at) + 1 + max(self.graph.classes)
        for place in self.at:
            self.add(place)
        for c, e_class in self.graph.classes.items():
            self.extend(c, e_class)

    def results(self) -> Iterator[tuple[ClassId, ENode]]:
        """Yield the projections of operators of several results."""
        yield from ((c, n) for c, found in self.graph.classes.items() for n in found.nodes if n.op == "Result")

    def see(self, c: ClassId, n: ENode) -> None:
        """Take note of what an offload could leave or find."""
        one = self.placed.get(id(n))
        if one is None or self.cost_of(c, n) is None:
            return
        if one.result is not None:
            self.makers.setdefault(self.projections.get(c, c), []).append((c, n))
        for k, key in one.operands.items():
            self.users.setdefault((n.children[k], key), []).append(n)

    def wanted(self) -> list[tuple[ClassId, Key]]:
        """Return the places that can save something: an offload of the device makes the tensor, or several calls read it."""
        readers: dict[tuple[ClassId, Key], int] = {}
        self.readers = {(d, key): (c, users[0]) for (c, key), users in self.users.items() for d in self.origins(c)}
        for (c, key), users in self.users.items():
            calls = sum(self.placed[id(n)].calls for n in users)
            for d in self.origins(c):
                readers[d, key] = readers.get((d, key), 0) + calls
        found: dict[tuple[ClassId, Key], None] = {}
        for c, key in self.users:
            makers = [n for d in self.origins(c) for _, n in self.makers.get(d, ())]
            if any(self.placed[id(n)].result == key for n in makers) or any(readers[d, key] > 1 for d in self.origins(c)):
                found.update(dict.fromkeys((d, key) for d in self.origins(c)))
        return list(found)

    def origins(self, c: ClassId) -> list[ClassId]:
        """Return a class and those whose tensors it is in another shape."""
        if c in self.known:
            return self.known[c]
        found = [c]
        for d in found:
            moved = (n.children[0] for n in self.graph.classes[d].nodes if self.renames(n))
            found += [e for e in dict.fromkeys(moved) if e not in found and not self.graph.classes[e].fixed]
        self.known[c] = found
        return found

    def renames(self, n: ENode) -> bool:
        """Tell whether an e-node leaves all elements of its operand where they are."""
        op = operator_named(n.op)
        if op is None or not n.children or (t := self.graph.classes[n.children[0]].type) is None:
            return False
        return keeps_order(op, {a.name: v for a, v in zip(op.attributes, n.attributes, strict=True)}, t.shape)

    def add(self, place: tuple[ClassId, Key]) -> None:
        """Add the class of a tensor in a place: made there, moved there from the host, or reshaped there."""
        (c, key), nodes = place, list[ENode]()
        for owner, n in self.makers.get(c, ()):
            if self.placed[id(n)].result == key:
                nodes += self.made_here(c, owner, n)
        reader = self.readers.get(place)
        if reader is not None:
            nodes.append(self.upload(c, *reader))
        for n in self.graph.classes[c].nodes:
            if self.renames(n) and (n.children[0], key) in self.at and self.cost_of(c, n) is not None:
                nodes.append(self.virtual(n.op, (self.at[n.children[0], key],), self.only(c, n, 0), (c, n)))
        self.classes[self.at[place]] = EClass(self.graph.classes[c].type, False, tuple(nodes))

    def upload(self, c: ClassId, read: ClassId, n: ENode) -> ENode:
        """Return what brings the tensor of a class to the device once, as the reader of it (or of another shape of it) does."""
        one, k = self.placed[id(n)], n.children.index(read)
        once = (one.spent[frozenset()] - one.spent[frozenset({k})]) // one.calls
        return self.virtual(UPLOAD, (c,), self.only(read, n, once), None)

    def made_here(self, c: ClassId, owner: ClassId, n: ENode) -> list[ENode]:
        """Return an offload that leaves its result; of several results, the class of all of them gets a second one."""
        variants = self.variants(owner, n, frozenset({RESULT}))
        if owner == c:
            return variants
        both = 1 + max(*self.classes, *self.at.values())
        self.classes[both] = EClass(None, False, tuple(variants))
        made = []
        for d, r in self.results():
            if r.children[0] == owner and self.cost_of(d, r) is not None:
                node = self.virtual("Result", (both,), self.free(d, r), (d, r))
                if d == c:
                    made.append(node)
                else:
                    self.classes[d] = replace(self.classes[d], nodes=(*self.classes[d].nodes, node))
        return made

    def extend(self, c: ClassId, e_class: EClass) -> None:
        """Give a class the offloads that find an operand in its place, and what loads its tensor from one."""
        more = [v for n in e_class.nodes if id(n) in self.placed for v in self.variants(c, n, frozenset())[1:]]
        for (d, key), at in self.at.items():
            for owner, n in self.makers.get(d, ()) if d == c else ():
                one = self.placed[id(n)]
                if one.result == key:
                    load = one.spent[frozenset()] - one.spent[frozenset({RESULT})]
                    more.append(self.virtual(LOAD, (at,), self.only(owner, n, load), None))
                    break
        self.classes[c] = replace(self.classes[c], nodes=(*self.classes[c].nodes, *more))

    def variants(self, c: ClassId, n: ENode, held: frozenset[int]) -> list[ENode]:
        """Return an offload with every choice of operands that it finds in their places; `held` are others that stay."""
        one, cost = self.placed[id(n)], self.cost_of(c, n)
        if cost is None:
            return []
        able = [k for k, key in one.operands.items() if (n.children[k], key) in self.at]
        found = []
        for chosen in (frozenset(x) for count in range(len(able) + 1) for x in combinations(able, count)):
            children = tuple(self.at[d, one.operands[k]] if k in chosen else d for k, d in enumerate(n.children))
            spent = one.spent[held | chosen]
            found.append(self.virtual(n.op, children, (spent, *cost[1:]), (c, n)))
        return found

    def virtual(self, op: str, children: tuple[ClassId, ...], cost: Levels, original: tuple[ClassId, ENode] | None) -> ENode:
        """Return an e-node that stands for one of the original, or for none."""
        attributes = () if original is None else original[1].attributes
        made = ENode(op, children, attributes, -1, frozenset())
        self.costs[id(made)], self.original[id(made)] = cost, original
        return made

    def only(self, c: ClassId, n: ENode, spent: int) -> Levels:
        """Return a cost that is spent at the first level alone."""
        return (spent, *(0 for _ in self.levels_of(c, n)[1:]))

    def levels_of(self, c: ClassId, n: ENode) -> Levels:
        """Return what an e-node that may be chosen costs."""
        cost = self.cost_of(c, n)
        assert cost is not None
        return cost

    def free(self, c: ClassId, n: ENode) -> Levels:
        """Return what a projection costs."""
        return self.levels_of(c, n)

    def whole(self) -> EGraph:
        """Return the e-graph with places."""
        return EGraph(self.classes, self.graph.values)

    def cost(self, c: ClassId, n: ENode) -> Levels | None:
        """Return what an e-node of it costs."""
        return self.costs[id(n)] if id(n) in self.costs else self.cost_of(c, n)

    def projected(self, found: Extraction, roots: Sequence[ClassId]) -> Extraction | None:
        """Return the choice in the original e-graph, operands first; None where one class is built in two ways."""
        chosen: dict[ClassId, ENode] = {}
        for c, n in found.choice.items():
            meant = self.original.get(id(n), (c, n))
            if meant is not None and chosen.setdefault(meant[0], meant[1]) is not meant[1]:
                return None
        whole = {c: Candidate(n, frozenset(n.children), ()) for c, n in chosen.items()}
        return replace(found, choice={c: chosen[c] for c in reached(whole, roots)})


def key_of(target: str, room: Room) -> Key:
    """Return the place of a room on a target."""
    return target, room.memory, room.size, room.form
