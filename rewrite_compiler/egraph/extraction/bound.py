"""Incumbent bound: leaves out every candidate that no choice as cheap as a first incumbent can contain, without losing an optimum.

Costs are lexicographic and not negative, so a choice costs at least as much as its dearest chain of operands. Candidates are taken
in the order of their chains, as in Dijkstra's algorithm, until a chain is dearer than the incumbent; the rest is never priced.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ..graph.graph import ClassId, EGraph, ENode
from .prune import Candidate, Candidates, Cost, CostOf

Entry = tuple[Cost, int, ClassId, Candidate]  # what the dearest chain costs, the place among all e-nodes, the class, the candidate


def within_bound(graph: EGraph, cost_of: CostOf, constants: frozenset[ClassId], roots: Sequence[ClassId]) -> Candidates:
    """Return the candidates that some choice below the roots may have which costs no more than a greedy incumbent.

    A cost of None removes an e-node; classes in `given` are constants, which cost nothing.
    """
    offered: dict[int, Entry] = {}
    least: dict[ClassId, Candidate] = {}
    unbuilt_roots, limit = set(roots), None
    for entry in _cheapest_first(graph, cost_of, constants):
        chain, place, c, candidate = entry
        if limit is not None and chain > limit:
            break
        offered[place] = entry
        least.setdefault(c, candidate)
        unbuilt_roots.discard(c)
        if limit is None and roots and not unbuilt_roots:
            limit = _shared_cost(least, roots)
    bounded: Candidates = {}
    for place in sorted(offered):  # in the order of the e-graph, whatever they cost
        _, _, c, candidate = offered[place]
        bounded.setdefault(c, []).append(candidate)
    return bounded


def _cheapest_first(graph: EGraph, cost_of: CostOf, constants: frozenset[ClassId]) -> Iterator[Entry]:
    """Yield every candidate all of whose operands can be built, by the cost of the dearest chain that it ends."""
    nodes = _computed_nodes(graph, constants)
    users: dict[ClassId, list[int]] = {}
    for place, (_, _, children) in enumerate(nodes):
        for d in children:
            users.setdefault(d, []).append(place)
    unbuilt_operands = [len(children) for _, _, children in nodes]
    ready: list[Entry] = []

    def offer(place: int, dearest_operand: Cost) -> None:
        c, node, children = nodes[place]
        cost = cost_of(c, node)
        if cost is not None:
            chain = tuple([a + b for a, b in zip(cost, dearest_operand, strict=True)]) if dearest_operand else cost
            heapq.heappush(ready, (chain, place, c, Candidate(node, children, cost)))

    for place, count in enumerate(unbuilt_operands):
        if not count:
            offer(place, ())
    built_classes: set[ClassId] = set()
    while ready:
        cheapest = heapq.heappop(ready)
        yield cheapest
        chain, _, c, _ = cheapest
        for place in () if c in built_classes else users.get(c, ()):
            unbuilt_operands[place] -= 1
            if not unbuilt_operands[place]:  # its last operand is its dearest
                offer(place, chain)
        built_classes.add(c)


def _computed_nodes(graph: EGraph, constants: frozenset[ClassId]) -> list[tuple[ClassId, ENode, frozenset[ClassId]]]:
    """Return the e-nodes of classes that are no constants, with their class and the operands that are none; without direct cycles."""
    nodes = [(c, n) for c, e_class in graph.classes.items() if c not in constants for n in e_class.nodes if c not in n.children]
    operands = {children: frozenset(children).difference(constants) for children in {n.children for _, n in nodes}}
    return [(c, n, operands[n.children]) for c, n in nodes]


def _shared_cost(choice: Mapping[ClassId, Candidate], roots: Iterable[ClassId]) -> Cost:
    """Return the cost of a choice, each shared class counted once."""
    visited = set(roots)
    work, costs = list(visited), list[Cost]()
    while work:
        o = choice[work.pop()]
        costs.append(o.cost)
        work.extend(o.children - visited)
        visited |= o.children
    return tuple(map(sum, zip(*costs, strict=True)))
