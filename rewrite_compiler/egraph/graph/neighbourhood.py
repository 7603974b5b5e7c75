"""Neighbourhood of an e-class: the classes within a distance, and the border beyond them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .graph import ClassId, EGraph


@dataclass(frozen=True)
class Neighbourhood:
    """Distance in edges of each class of a neighbourhood, and for each class just outside it the adjacent class inside."""

    distances: Mapping[ClassId, int]
    border: Mapping[ClassId, ClassId]


def neighbourhood_of(graph: EGraph, start: ClassId, steps: int) -> Neighbourhood:
    """Return the neighbourhood of a class: what is at most `steps` edges away, along operands and users alike (breadth first)."""
    adjacent = adjacency_of(graph)
    distances, edge = {start: 0}, [start]
    for step in range(1, steps + 1):
        edge = list(dict.fromkeys(d for c in edge for d in adjacent[c] if d not in distances))
        distances.update(dict.fromkeys(edge, step))
    border: dict[ClassId, ClassId] = {}
    for c in distances:
        for d in adjacent[c]:
            if d not in distances:
                border.setdefault(d, c)
    return Neighbourhood(distances, border)


def adjacency_of(graph: EGraph) -> dict[ClassId, list[ClassId]]:
    """Return the undirected adjacency of classes: operands and users of each, without duplicates, in the order of the graph."""
    adjacency: dict[ClassId, dict[ClassId, None]] = {c: {} for c in graph.classes}
    for c, e_class in graph.classes.items():
        for d in (d for node in e_class.nodes for d in node.children):
            adjacency[c][d] = None
            adjacency.setdefault(d, {})[c] = None
    return {c: list(adjacent) for c, adjacent in adjacency.items()}
