"""Levels of a cost that need no solver: a choice that spends only what every choice spends is cheapest.

A class that every choice builds costs at least its cheapest candidate, any other class nothing. Where the candidates that
cost just that still build the roots, they are all the optima of the level, and the next level chooses among them.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..graph.graph import ClassId
from .dominator_split import Part, needed_classes
from .prune import Candidates, pruned

Key = tuple[tuple[int, ...], tuple[tuple[tuple[tuple[int, ...], tuple[int, ...]], ...], ...]]


def settled(options: Candidates, roots: Sequence[ClassId], first: int, levels: int) -> tuple[Candidates, int]:
    """Return the candidates of all choices that are cheapest in the levels from `first` on, and the first level left open."""
    for level in range(first, levels):
        needed = needed_classes(options, roots)
        least = {c: min(o.cost[level] for o in candidates) if c in needed else 0 for c, candidates in options.items()}
        cheapest = pruned({c: [o for o in found if o.cost[level] == least[c]] for c, found in options.items()}, tuple(roots))
        if any(r not in cheapest for r in roots):
            return options, level
        options = cheapest
    return options, levels


def key_of(part: Part, first: int) -> Key:
    """Return what the cheapest choice of a part depends on: its form and its open costs, whatever its classes are called."""
    place = {c: n for n, c in enumerate(part.options)}
    rows = (
        tuple((tuple(sorted(place[d] for d in o.children)), o.cost[first:]) for o in candidates) for candidates in part.options.values()
    )
    return tuple(place[r] for r in part.roots), tuple(rows)
