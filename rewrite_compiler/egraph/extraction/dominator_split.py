"""Splitting an extraction problem at dominators: classes that every choice builds separate their users from their operands.

Costs are sums over classes, so parts that share nothing but such classes are solved one by one, each exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from ..graph.graph import ClassId
from .prune import Candidates, components, dominator_sets, pruned


@dataclass(frozen=True)
class Part:
    """An independent subproblem: its candidates by class, and the classes that must be built from them."""

    options: Candidates
    roots: tuple[ClassId, ...]


def parts(options: Candidates, roots: Iterable[ClassId]) -> list[Part]:
    """Return the independent parts of a problem; cheapest choices of all parts together are a cheapest choice of the problem."""
    needed = needed_classes(options, roots)
    ring = {c: n for n, component in enumerate(components(options)) for c in component}

    def is_inside(c: ClassId, d: ClassId) -> bool:
        return d not in needed or (c in ring and ring[c] == ring.get(d))

    separated = {
        c: [replace(o, children=frozenset(d for d in o.children if is_inside(c, d))) for o in candidates]
        for c, candidates in options.items()
    }
    independent = []
    for group in _groups(separated):
        part_roots = tuple(c for c in group if c in needed)
        part_options = {c: separated[c] for c in group}
        is_open = any(len(candidates) > 1 for candidates in part_options.values())
        independent.append(Part(pruned(part_options, part_roots) if is_open else part_options, part_roots))
    return independent


def needed_classes(options: Candidates, roots: Iterable[ClassId]) -> set[ClassId]:
    """Return the dominators: the classes that every acyclic choice below the roots builds."""
    order = list(_operands_first(options, roots))
    dominators = dominator_sets(options, order)
    needed_bits = 0
    for root in roots:
        needed_bits |= dominators[root]
    return {c for n, c in enumerate(order) if needed_bits >> n & 1}


def _operands_first(options: Candidates, roots: Iterable[ClassId]) -> Iterator[ClassId]:
    """Yield the classes below the roots, operands before users where there is no cycle."""
    visited: set[ClassId] = set()
    for root in roots:
        work = [(root, iter(_children(options, root)))] if root not in visited else []
        visited.add(root)
        while work:
            current, unvisited = work[-1]
            child = next((d for d in unvisited if d not in visited), None)
            if child is None:
                yield current
                work.pop()
            else:
                visited.add(child)
                work.append((child, iter(_children(options, child))))


def _children(options: Candidates, c: ClassId) -> list[ClassId]:
    return sorted({d for o in options[c] for d in o.children})


def _groups(options: Candidates) -> list[list[ClassId]]:
    """Return the connected components of classes and operands, in the order of their first class."""
    leader = {c: c for c in options}

    def find(c: ClassId) -> ClassId:
        while leader[c] != c:
            leader[c] = c = leader[leader[c]]
        return c

    for c in options:
        for d in _children(options, c):
            leader[find(d)] = find(c)
    groups: dict[ClassId, list[ClassId]] = {}
    for c in options:
        groups.setdefault(find(c), []).append(c)
    return list(groups.values())
