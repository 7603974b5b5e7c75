"""Bounds: a candidate that no choice as cheap as a known one can contain is dropped, exactly and before all else.

Costs are compared level by level and never negative, so a choice costs at least what its dearest chain of operands does. A cost
is one number here: each level counts more than all candidates spend together in the levels after it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from itertools import count

from .graph import ClassId
from .prune import Candidate, Candidates


def within_bound(given: Candidates, roots: Sequence[ClassId]) -> Candidates:
    """Return the candidates that some choice below the roots may have which costs no more than one that is found fast."""
    spent = _numbers(given)
    least = _chains(given, spent)
    if not roots or any(r not in least for r in roots):
        return given
    limit = _together({c: o for c, (_, o) in least.items()}, spent, roots)

    def fits(o: Candidate) -> bool:
        return o.children <= least.keys() and spent[id(o)] + max((least[d][0] for d in o.children), default=0) <= limit

    return {c: kept for c, found in given.items() if (kept := [o for o in found if fits(o)])}


def _numbers(given: Candidates) -> dict[int, int]:
    """Return the cost of each candidate as one number."""
    costs = {id(o): o.cost for found in given.values() for o in found}
    weights, weight = list[int](), 1
    for level in [sum(level) for level in zip(*costs.values(), strict=True)][::-1]:
        weights.append(weight)
        weight *= 1 + level
    weights.reverse()
    return {key: sum([n * w for n, w in zip(cost, weights, strict=True) if n]) for key, cost in costs.items()}


def _chains(given: Candidates, spent: Mapping[int, int]) -> dict[ClassId, tuple[int, Candidate]]:
    """Return what the dearest chain below each class that can be built costs at least, and the candidate for that: cheapest first."""
    users: dict[ClassId, list[tuple[ClassId, Candidate]]] = {}
    missing: dict[int, int] = {}
    order = count()
    ready: list[tuple[int, int, ClassId, Candidate]] = []
    for c, options in given.items():
        for o in options:
            missing[id(o)] = len(o.children)
            for d in o.children:
                users.setdefault(d, []).append((c, o))
            if not o.children:
                ready.append((spent[id(o)], next(order), c, o))
    heapq.heapify(ready)
    best: dict[ClassId, tuple[int, Candidate]] = {}
    while ready:
        cost, _, c, o = heapq.heappop(ready)
        if c in best:
            continue
        best[c] = cost, o
        for owner, user in users.get(c, ()):
            missing[id(user)] -= 1
            if not missing[id(user)] and owner not in best:  # its last operand is its dearest
                heapq.heappush(ready, (spent[id(user)] + cost, next(order), owner, user))
    return best


def _together(choice: Mapping[ClassId, Candidate], spent: Mapping[int, int], roots: Iterable[ClassId]) -> int:
    """Return what a choice costs, shared classes once."""
    seen = set(roots)
    work, total = list(seen), 0
    while work:
        o = choice[work.pop()]
        total += spent[id(o)]
        work.extend(o.children - seen)
        seen |= o.children
    return total
