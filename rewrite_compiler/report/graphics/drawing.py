"""The graph of a model as files: SVG, and Graphviz."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .architecture import quoted
from .graph import Graph, svg

COLOURS = ("#cfe3ff", "#d5f2d5", "#ffe3c2", "#ecd9ff")
ON_HOST, ABSORBED = "#eeeeee", "#ffffff"


def graph_svg(graph: Graph, targets: Sequence[str]) -> str:
    """Return the page's drawing as a self-contained SVG file, with the page's style."""
    style = (Path(__file__).parents[1] / "page" / "page.css").read_text("utf-8")
    drawing = svg(graph, targets)
    head, end, content = drawing.partition(">")
    return f'{head} xmlns="http://www.w3.org/2000/svg"{end}<style>{style}</style>{content}\n'


def graph_dot(name: str, graph: Graph, targets: Sequence[str]) -> str:
    """Return the graph in Graphviz's language; boxes are numbered, names are labels."""
    boxes = [
        f"  n{n} [label={quoted(box.op, box.name)}, fillcolor={quoted(_colour(box.target, box.place, targets))}];"
        for n, box in enumerate(graph.boxes)
    ]
    edges = [f"  n{a} -> n{b};" for a, b in graph.edges]
    return "\n".join([f"digraph {quoted(name)} {{", "  node [shape=box, style=filled];", *boxes, *edges, "}", ""])


def _colour(target: str, place: str, targets: Sequence[str]) -> str:
    if target in targets:
        return COLOURS[targets.index(target) % len(COLOURS)]
    return ON_HOST if place == "host" else ABSORBED
