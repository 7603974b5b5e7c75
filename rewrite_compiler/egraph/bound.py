"""Bounds: a candidate that no choice as cheap as a known one can contain is dropped, exactly and before all else.

Costs are compared level by level and never negative, so a choice costs at least what its dearest chain of operands does.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from itertools import count

from .graph import ClassId
from .prune import Candidate, Candidates, Cost

Combined = Callable[[Cost, Cost], Cost]


def within_bound(given: Candidates, roots: Sequence[ClassId]) -> Candidates:
    """Return the candidates that some choice below the roots may have which costs no more than the best of two that are found fast."""
    if not roots or any(r not in given for r in roots):
        return given
    trees, chains = _grown(given, _sum), _grown(given, max)
    if any(r not in trees for r in roots):
        return given
    limit = min(_spent({c: o for c, (_, o) in found.items()}, roots) for found in (trees, chains))
    least = {c: cost for c, (cost, _) in chains.items()}

    def fits(o: Candidate) -> bool:
        return all(d in least for d in o.children) and _sum(o.cost, _dearest(o, least)) <= limit

    return {c: kept for c, found in given.items() if (kept := [o for o in found if fits(o)])}


def _sum(a: Cost, b: Cost) -> Cost:
    return tuple([x + y for x, y in zip(a, b, strict=True)])


def _dearest(o: Candidate, least: dict[ClassId, Cost]) -> Cost:
    return max((least[d] for d in o.children), default=(0,) * len(o.cost))


def _grown(given: Candidates, joined: Combined) -> dict[ClassId, tuple[Cost, Candidate]]:
    """Return the least cost of each class that can be built, operands joined so, and the candidate that has it: cheapest first."""
    users: dict[ClassId, list[tuple[ClassId, Candidate]]] = {}
    missing: dict[int, int] = {}
    known: dict[int, Cost] = {}  # what the operands so far cost together
    order = count()
    ready: list[tuple[Cost, int, ClassId, Candidate]] = []
    for c, options in given.items():
        for o in options:
            missing[id(o)] = len(o.children)
            for d in o.children:
                users.setdefault(d, []).append((c, o))
            if not o.children:
                ready.append((o.cost, next(order), c, o))
    heapq.heapify(ready)
    best: dict[ClassId, tuple[Cost, Candidate]] = {}
    while ready:
        cost, _, c, o = heapq.heappop(ready)
        if c in best:
            continue
        best[c] = cost, o
        for owner, user in users.get(c, ()):
            key = id(user)
            known[key] = joined(known[key], cost) if key in known else cost
            missing[key] -= 1
            if not missing[key] and owner not in best:
                heapq.heappush(ready, (_sum(user.cost, known[key]), next(order), owner, user))
    return best


def _spent(choice: dict[ClassId, Candidate], roots: Iterable[ClassId]) -> Cost:
    """Return what a choice costs, shared classes once."""
    seen = set(roots)
    work = list(seen)
    total: Cost = (0,) * len(choice[work[0]].cost)
    while work:
        o = choice[work.pop()]
        total = _sum(total, o.cost)
        work.extend(o.children - seen)
        seen |= o.children
    return total
