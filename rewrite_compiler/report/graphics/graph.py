"""The graph of a model's nodes: layered layout (Sugiyama), drawn as SVG in which no name is an attribute."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from html import escape
from typing import Any

from ...compile import Plan
from ...errors import printable
from ...ir.program import Program
from ...ir.types import TensorType
from .markup import definitions

WIDTH, HEIGHT, GAP_X, GAP_Y = 172, 40, 18, 34
MAX_NAME = 22  # characters of a name inside a box; the whole name is in the panel
SWEEPS = 4
BECAUSE = "because"
ARROW = (
    '<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path class="tip" d="M0 0L8 4L0 8z"></path></marker></defs>'
)


class Place(StrEnum):
    """Where a node of the model went."""

    OFFLOAD = "offload"
    """It is part of an offload."""
    HOST = "host"
    """It runs on the host."""
    ABSORBED = "absorbed"
    """Rewriting or constant folding left no operation of it."""


OFFLOAD, HOST, ABSORBED = Place


@dataclass(frozen=True)
class Box:
    """One source node: name, operator, where it went, rows of detail (label, text), and type and extents of its last result.

    Nodes of one offload have the same rows, and offloads derived alike the same chain of rules.
    """

    name: str
    op: str
    place: Place
    target: str
    rows: tuple[tuple[str, str], ...]
    result_type: str = ""
    chain: tuple[tuple[str, str], ...] = ()
    extents: str = ""


@dataclass(frozen=True)
class Graph:
    """Boxes in model order, and edges (producer, reader) by box number."""

    boxes: tuple[Box, ...]
    edges: tuple[tuple[int, int], ...]


def graph_of(plan: Plan, document: Mapping[str, Any], cosim: Mapping[str, Any] | None = None) -> Graph:
    """Return the graph of a plan's source model; details come from the documents of plan and co-simulation."""
    errors = {} if cosim is None else {o["id"]: o["relative_error"] for o in cosim["offloads"]}
    places = _places(document, errors)
    types = _result_types(plan.source)
    boxes = []
    for number, source in enumerate(plan.source.sources):
        place, target, rows = places[source.name]
        chain = tuple(row for row in rows if row[0] == BECAUSE)
        detail_rows = tuple(row for row in rows if row[0] != BECAUSE)
        result = types.get(number)
        result_type, extents = ("", "") if result is None else (str(result), "×".join(map(str, result.shape)) or "scalar")
        boxes.append(Box(source.name, source.op_type, place, target, detail_rows, result_type, chain, extents))
    return Graph(tuple(boxes), tuple(sorted(_edges(plan.source))))


def _places(document: Mapping[str, Any], errors: Mapping[str, float | None]) -> dict[str, tuple[Place, str, list[tuple[str, str]]]]:
    """Return place, target and rows of every source node by its name."""
    places: dict[str, tuple[Place, str, list[tuple[str, str]]]] = {}
    for o in document["offloads"]:
        rows = list(_offload_rows(o, errors.get(o["id"])))
        places.update((name, (OFFLOAD, o["target"], rows)) for name in o["nodes"])
    for h in document["host"]:
        places[h["node"]] = (HOST, "", [("on the host", h["why_not"])])
    for a in document["absorbed"]:
        places[a["node"]] = (ABSORBED, "", [("absorbed", a["by"])])
    return places


def _offload_rows(o: Mapping[str, Any], error: float | None) -> Iterable[tuple[str, str]]:
    yield "offload", f"{o['id']}: {o['operation']} on {o['target']}, stands for {', '.join(o['nodes'])}"
    yield "shape", ", ".join(f"{d}={n}" for d, n in o["shape"].items())
    calls = f"{o['device_calls']:,} device call{'' if o['device_calls'] == 1 else 's'}"
    yield "tiles", f"{calls}, each at most {', '.join(f'{d}={n}' for d, n in o['tiles'].items())}"
    yield "work", f"{o['macs']:,} multiply-accumulates"
    if o.get("cost"):
        yield "cost", ", ".join(f"{key} {value:,}" for key, value in o["cost"].items() if type(value) is int)
    if error is not None:
        yield "error", f"{100 * error:.3g}% of its meaning's values"
    for r in o["because"]:
        yield BECAUSE, f"{r['rule']} ({r['at']}), grade {r['grade']}"


def _result_types(p: Program) -> dict[int, TensorType]:
    """Return the type of the last result of each source node."""
    return {origin: p.types[n.outputs[0]] for n in p.nodes for origin in n.origins}


def _edges(p: Program) -> set[tuple[int, int]]:
    producer = p.producer()
    edges = set()
    for n in p.nodes:
        for v in n.inputs:
            origins = producer[v].origins if v in producer else frozenset()
            edges |= {(a, b) for a in origins - n.origins for b in n.origins - origins}
    return edges


def layers_of(graph: Graph) -> list[list[int]]:
    """Return boxes by depth, each layer ordered by the mean position of its predecessors; rows of isolated boxes come last."""
    predecessors: dict[int, list[int]] = {}
    for a, b in graph.edges:
        predecessors.setdefault(b, []).append(a)
    connected = {n for edge in graph.edges for n in edge}
    depth: dict[int, int] = {}
    for n in _topological_order(connected, graph.edges):
        depth[n] = max((depth.get(a, -1) + 1 for a in predecessors.get(n, ())), default=0)
    layers: list[list[int]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for n in sorted(depth):
        layers[depth[n]].append(n)
    _order_layers(layers, predecessors)
    isolated = [n for n in range(len(graph.boxes)) if n not in connected]
    return [*layers, *_rows(isolated)]


def _topological_order(nodes: Iterable[int], edges: Iterable[tuple[int, int]]) -> list[int]:
    """Return nodes so that edges point forwards; those of a cycle, which fused nodes can form, come last in model order."""
    in_degrees = dict.fromkeys(sorted(nodes), 0)
    successors: dict[int, list[int]] = {}
    for a, b in edges:
        in_degrees[b] += 1
        successors.setdefault(a, []).append(b)
    ready = [n for n, count in in_degrees.items() if not count]
    for n in ready:
        for b in successors.get(n, ()):
            in_degrees[b] -= 1
            if not in_degrees[b]:
                ready.append(b)
    return [*ready, *(n for n, count in in_degrees.items() if count > 0)]


def _order_layers(layers: Sequence[list[int]], predecessors: Mapping[int, Sequence[int]]) -> None:
    place: dict[int, float] = {}
    for _ in range(SWEEPS):
        for layer in layers:
            centre = {n: _mean([place[a] for a in predecessors.get(n, ()) if a in place], len(place)) for n in layer}
            layer.sort(key=lambda n: (centre[n], n))
            place.update((n, k - len(layer) / 2) for k, n in enumerate(layer))


def _mean(values: Sequence[float], default: float) -> float:
    return sum(values) / len(values) if values else default


def _rows(nodes: Sequence[int], width: int = 8) -> list[list[int]]:
    return [list(nodes[k : k + width]) for k in range(0, len(nodes), width)]


def svg(graph: Graph, targets: Sequence[str], noun: str = "nodes") -> str:
    """Return the drawing; box n has the id n and a class by where it went."""
    layers = layers_of(graph)
    at = _positions(layers)
    width = max((len(layer) for layer in layers), default=1) * (WIDTH + GAP_X)
    height = max(len(layers), 1) * (HEIGHT + GAP_Y)
    edges = "".join(_edge(at[a], at[b]) for a, b in graph.edges if a in at and b in at)
    boxes = "".join(_box(n, box, at[n], targets) for n, box in enumerate(graph.boxes) if n in at)
    title = f"<title>The model: {len(graph.boxes)} {noun}</title>"
    labels = "".join(_extents(graph.boxes[n], at[n]) for n in sorted({a for a, _ in graph.edges} & at.keys()))
    view = f'<g id="view">{edges}{labels}{boxes}</g>'
    return f'<svg id="graph" viewBox="{-width // 2} -10 {width} {height}" role="group">{title}{ARROW}{view}</svg>'


def _positions(layers: Sequence[Sequence[int]]) -> dict[int, tuple[int, int]]:
    """Return the left upper corner of every box."""
    positions: dict[int, tuple[int, int]] = {}
    for y, layer in enumerate(layers):
        left_edge = -len(layer) * (WIDTH + GAP_X) // 2
        positions.update((n, (left_edge + x * (WIDTH + GAP_X), y * (HEIGHT + GAP_Y))) for x, n in enumerate(layer))
    return positions


def _extents(box: Box, at: tuple[int, int]) -> str:
    """Return the extents of what a box gives, beside the edges that leave it."""
    x, y = at[0] + WIDTH // 2 + 6, at[1] + HEIGHT + 14
    return f"<text class='s' x='{x}' y='{y}'>{escape(_short(box.extents))}</text>" if box.extents else ""


def _edge(a: tuple[int, int], b: tuple[int, int]) -> str:
    x, y, u, v = a[0] + WIDTH // 2, a[1] + HEIGHT, b[0] + WIDTH // 2, b[1]
    return f'<path d="M{x} {y}C{x} {y + GAP_Y} {u} {v - GAP_Y} {u} {v}" marker-end="url(#arrow)"></path>'


def _box(n: int, box: Box, at: tuple[int, int], targets: Sequence[str]) -> str:
    colour = f"t{targets.index(box.target) % 4}" if box.target in targets else box.place
    words = f"<text x='6' y='16'>{escape(_short(box.op))}</text><text class='s' x='6' y='32'>{escape(_short(box.name))}</text>"
    shape = f"<rect width='{WIDTH}' height='{HEIGHT}' rx='5'></rect>"
    return f"<g class='box {colour}' id='n{n}' tabindex='0' role='button' transform='translate({at[0]} {at[1]})'>{shape}{words}</g>"


def _short(name: str) -> str:
    label = printable(name)
    return label if len(label) <= MAX_NAME else f"{label[: MAX_NAME - 1]}…"


def detail_panels(graph: Graph) -> str:
    """Return the details of every box as hidden panels that the page's script shows; rows that boxes share are there once."""
    row_groups = [*(box.rows for box in graph.boxes), *(box.chain for box in graph.boxes)]  # chains come last
    shared = {rows: k for k, rows in enumerate(dict.fromkeys(row_groups))}
    panels = []
    for n, box in enumerate(graph.boxes):
        rows = f"#r{shared[box.rows]},#r{shared[box.chain]}"
        type_markup = definitions([("gives", box.result_type)] if box.result_type else [])
        heading = f"<h3>{escape(box.name)}</h3><p>{escape(box.op)}</p>"
        panels.append(f'<div class="detail" id="d{n}" data-rows="{rows}" hidden>{heading}{type_markup}</div>')
    return "".join([*panels, *(f'<div class="rows" id="r{k}" hidden>{definitions(rows)}</div>' for rows, k in shared.items())])
