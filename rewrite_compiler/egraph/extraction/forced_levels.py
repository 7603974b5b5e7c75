"""Forced levels: cost levels whose lower bound is attained need no solver.

A class that every choice builds costs at least its cheapest candidate, any other class nothing. If candidates at these minima
still build the roots, they are all optima of the level, and the next level chooses among them.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..graph.graph import ClassId
from .dominator_split import Part, needed_classes
from .prune import Candidates, pruned

Key = tuple[tuple[int, ...], tuple[tuple[tuple[tuple[int, ...], tuple[int, ...]], ...], ...]]


def forced_candidates(options: Candidates, roots: Sequence[ClassId], first: int, levels: int) -> tuple[Candidates, int]:
    """Return the candidates of all optima of the forced levels from `first` on, and the first level that needs a search."""
    for level in range(first, levels):
        needed = needed_classes(options, roots)
        least = {c: min(o.cost[level] for o in candidates) if c in needed else 0 for c, candidates in options.items()}
        cheapest = pruned({c: [o for o in candidates if o.cost[level] == least[c]] for c, candidates in options.items()}, tuple(roots))
        if any(r not in cheapest for r in roots):
            return options, level
        options = cheapest
    return options, levels


def key_of(part: Part, first: int) -> Key:
    """Return the key of a part up to renaming of classes: its structure and its costs from level `first` on."""
    place = {c: n for n, c in enumerate(part.options)}
    rows = (
        tuple((tuple(sorted(place[d] for d in o.children)), o.cost[first:]) for o in candidates) for candidates in part.options.values()
    )
    return tuple(place[r] for r in part.roots), tuple(rows)
