"""Incumbent bound: leaves out every candidate that no choice as cheap as a first incumbent can contain, without losing an optimum.

Costs are lexicographic and not negative, so a choice costs at least as much as its dearest chain of operands. Candidates are taken
in the order of their chains, as in Dijkstra's algorithm, until a chain is dearer than the incumbent; the rest is never priced. Of a
part of a problem, whose cost is its own, the incumbent is that of the part, and most of what can be built costs more.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import add

from ..graph.graph import ClassId, EGraph, ENode
from .prune import Candidate, Candidates, Cost, CostOf

Entry = tuple[Cost, int, ClassId, Candidate]  # what the dearest chain costs, the place among all e-nodes, the class, the candidate
Row = tuple[ClassId, frozenset[ClassId]]  # the class of a candidate and its operands


def within_bound(graph: EGraph, cost_of: CostOf, constants: frozenset[ClassId], roots: Sequence[ClassId]) -> Candidates:
    """Return the candidates that some choice below the roots may have which costs no more than a greedy incumbent.

    A cost of None removes an e-node; classes in `given` are constants, which cost nothing.
    """
    nodes: list[tuple[ClassId, ENode]] = [
        (c, n) for c, e_class in graph.classes.items() if c not in constants for n in e_class.nodes if c not in n.children
    ]
    rows: list[Row] = [(c, frozenset(n.children).difference(constants)) for c, n in nodes]

    def candidate(place: int) -> Candidate | None:
        cost = cost_of(*nodes[place])
        return None if cost is None else Candidate(nodes[place][1], rows[place][1], cost)

    return _within_bound(rows, candidate, roots)


def bounded(options: Candidates, roots: Sequence[ClassId]) -> Candidates:
    """Return the candidates of a part of a problem that some choice of the part may have which costs no more than a greedy incumbent."""
    flat = [(c, o) for c, candidates in options.items() for o in candidates]
    return _within_bound([(c, o.children) for c, o in flat], lambda place: flat[place][1], roots)


def _within_bound(rows: Sequence[Row], candidate_at: Callable[[int], Candidate | None], roots: Sequence[ClassId]) -> Candidates:
    offered: dict[int, Entry] = {}
    least: dict[ClassId, Candidate] = {}
    unbuilt_roots, limit = set(roots), None
    for entry in _cheapest_first(rows, candidate_at):
        chain, place, c, candidate = entry
        if limit is not None and chain > limit:
            break
        offered[place] = entry
        least.setdefault(c, candidate)
        unbuilt_roots.discard(c)
        if limit is None and roots and not unbuilt_roots:
            limit = _shared_cost(least, roots)
    candidates: Candidates = {}
    for place in sorted(offered):  # in the order of the e-graph, whatever they cost
        _, _, c, candidate = offered[place]
        candidates.setdefault(c, []).append(candidate)
    return candidates


def _cheapest_first(rows: Sequence[Row], candidate_at: Callable[[int], Candidate | None]) -> Iterator[Entry]:
    """Yield every candidate all of whose operands can be built, by the cost of the dearest chain that it ends."""
    users: dict[ClassId, list[int]] = {}
    for place, (_, children) in enumerate(rows):
        for d in children:
            users.setdefault(d, []).append(place)
    unbuilt_operands = [len(children) for _, children in rows]
    ready: list[Entry] = []

    def offer(place: int, dearest_operand: Cost) -> None:
        candidate = candidate_at(place)
        if candidate is not None:
            chain = tuple(map(add, candidate.cost, dearest_operand)) if dearest_operand else candidate.cost
            heapq.heappush(ready, (chain, place, rows[place][0], candidate))

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
