"""Bounds: a candidate that no choice as cheap as a known one can contain is left out, exactly and before all else.

Costs are compared level by level and never negative, so a choice costs at least what its dearest chain of operands does. Classes
are built cheapest chain first, until what is left is dearer than a choice that was found: that is not even priced.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ..graph.graph import ClassId, EGraph, ENode
from .prune import Candidate, Candidates, Cost, CostOf

Built = tuple[Cost, int, ClassId, Candidate]  # what the dearest chain costs, the place among all e-nodes, the class, the candidate


def within_bound(graph: EGraph, cost_of: CostOf, given: frozenset[ClassId], roots: Sequence[ClassId]) -> Candidates:
    """Return the candidates that some choice below the roots may have which costs no more than one that is found fast.

    A cost of None removes an e-node, and classes in `given` are there anyway.
    """
    found: dict[int, Built] = {}
    least: dict[ClassId, Candidate] = {}
    missing, limit = set(roots), None
    for built in _cheapest_first(graph, cost_of, given):
        chain, place, c, candidate = built
        if limit is not None and chain > limit:
            break
        found[place] = built
        least.setdefault(c, candidate)
        missing.discard(c)
        if limit is None and roots and not missing:
            limit = _together(least, roots)
    kept: Candidates = {}
    for place in sorted(found):  # in the order of the e-graph, whatever they cost
        _, _, c, candidate = found[place]
        kept.setdefault(c, []).append(candidate)
    return kept


def _cheapest_first(graph: EGraph, cost_of: CostOf, given: frozenset[ClassId]) -> Iterator[Built]:
    """Yield every candidate all of whose operands can be built, that with the cheapest chain below it first."""
    nodes: list[tuple[ClassId, ENode, frozenset[ClassId]]] = [
        (c, n, frozenset(n.children).difference(given))
        for c, e_class in graph.classes.items() if c not in given for n in e_class.nodes if c not in n.children
    ]  # fmt: skip
    users: dict[ClassId, list[int]] = {}
    for place, (_, _, children) in enumerate(nodes):
        for d in children:
            users.setdefault(d, []).append(place)
    left = [len(children) for _, _, children in nodes]
    ready: list[Built] = []

    def offer(place: int, below: Cost) -> None:
        c, node, children = nodes[place]
        cost = cost_of(c, node)
        if cost is not None:
            chain = tuple([a + b for a, b in zip(cost, below, strict=True)]) if below else cost
            heapq.heappush(ready, (chain, place, c, Candidate(node, children, cost)))

    for place, count in enumerate(left):
        if not count:
            offer(place, ())
    built: set[ClassId] = set()
    while ready:
        cheapest = heapq.heappop(ready)
        yield cheapest
        chain, _, c, _ = cheapest
        for place in () if c in built else users.get(c, ()):
            left[place] -= 1
            if not left[place]:  # its last operand is its dearest
                offer(place, chain)
        built.add(c)


def _together(choice: Mapping[ClassId, Candidate], roots: Iterable[ClassId]) -> Cost:
    """Return what a choice costs, shared classes once."""
    seen = set(roots)
    work, costs = list(seen), list[Cost]()
    while work:
        o = choice[work.pop()]
        costs.append(o.cost)
        work.extend(o.children - seen)
        seen |= o.children
    return tuple(map(sum, zip(*costs, strict=True)))
