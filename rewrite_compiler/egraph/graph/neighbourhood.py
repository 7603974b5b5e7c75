"""Around: the part of an e-graph near one e-class, and what lies beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .graph import ClassId, EGraph


@dataclass(frozen=True)
class Around:
    """Classes near one, by how many edges they are away; and classes left out that are joined to one of them, by the nearest."""

    shown: Mapping[ClassId, int]
    cut: Mapping[ClassId, ClassId]


def around(graph: EGraph, start: ClassId, steps: int) -> Around:
    """Return what is at most so many edges away from a class, operands and readers alike."""
    adjacent = neighbours(graph)
    distances, edge = {start: 0}, [start]
    for step in range(1, steps + 1):
        edge = list(dict.fromkeys(d for c in edge for d in adjacent[c] if d not in distances))
        distances.update(dict.fromkeys(edge, step))
    border: dict[ClassId, ClassId] = {}
    for c in distances:
        for d in adjacent[c]:
            if d not in distances:
                border.setdefault(d, c)
    return Around(distances, border)


def neighbours(graph: EGraph) -> dict[ClassId, list[ClassId]]:
    """Return for each class those that its e-nodes read and those that read it, each once, in the order of the graph."""
    adjacency: dict[ClassId, dict[ClassId, None]] = {c: {} for c in graph.classes}
    for c, e_class in graph.classes.items():
        for d in (d for node in e_class.nodes for d in node.children):
            adjacency[c][d] = None
            adjacency.setdefault(d, {})[c] = None
    return {c: list(adjacent) for c, adjacent in adjacency.items()}
