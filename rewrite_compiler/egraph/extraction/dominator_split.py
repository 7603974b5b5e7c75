"""Splitting an extraction: what every choice builds anyway separates what is above it from what is below.

Costs are added up class by class, so parts that share nothing but such classes are solved one by one, each exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from ..graph.graph import ClassId
from .prune import Candidates, components, pruned, unavoidable


@dataclass(frozen=True)
class Part:
    """Candidates that depend on no other part, and the classes that must be built from them."""

    options: Candidates
    roots: tuple[ClassId, ...]


def parts(options: Candidates, roots: Iterable[ClassId]) -> list[Part]:
    """Return independent parts; cheapest choices of all of them are a cheapest choice of the whole."""
    needed = needed_classes(options, roots)
    ring = {c: n for n, component in enumerate(components(options)) for c in component}

    def stays_inside(c: ClassId, d: ClassId) -> bool:
        return d not in needed or (c in ring and ring[c] == ring.get(d))

    separated = {
        c: [replace(o, children=frozenset(d for d in o.children if stays_inside(c, d))) for o in candidates] for c, candidates in options.items()
    }  # fmt: skip
    independent = []
    for group in _groups(separated):
        part_roots = tuple(c for c in group if c in needed)
        part_options = {c: separated[c] for c in group}
        is_open = any(len(found) > 1 for found in part_options.values())
        independent.append(Part(pruned(part_options, part_roots) if is_open else part_options, part_roots))
    return independent


def needed_classes(options: Candidates, roots: Iterable[ClassId]) -> set[ClassId]:
    """Return the classes that every choice below the roots builds."""
    order = list(_operands_first(options, roots))
    dominators = unavoidable(options, order)
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
    """Return the classes in groups that no candidate joins, in the order of their first class."""
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
