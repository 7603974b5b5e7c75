"""Data-centric directives, the text that MAESTRO takes: a layer under a dataflow, as problem, clusters and mapping, and back."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from ...errors import InputError
from ..problems.problem import Problem
from .clusters import Cluster, Clusters
from .schedule import LevelMap, Schedule, counts_of

DIRECTIVE = re.compile(r"(SpatialMap|TemporalMap|Cluster)\((.+),(.+)\)\s*(\w*)")
SIZE = re.compile(r"Sz\((\w+)\)")
WINDOWS = {"Y": "R", "X": "S"}  # an input axis and the window that slides along it
HERTZ = 1_000_000_000


@dataclass(frozen=True)
class Directive:
    """A dimension that is cut into tiles of a size at an offset, one after the other or side by side."""

    is_spatial: bool
    dimension: str
    size: int
    offset: int


@dataclass(frozen=True)
class Dataflow:
    """A layer under a dataflow: what is computed, on how many units, and how."""

    problem: Problem
    clusters: Clusters
    schedule: Schedule


def dataflow_from(text: str, sizes: Mapping[str, int], units: int, stride: int = 1) -> Dataflow:
    """Return the dataflow of directives for a layer on so many units; steps along a window's axis are outputs.

    Raises:
        InputError: the text is no dataflow of the layer, or its tiles leave a rest (F230).
    """
    levels = _levels(text, sizes)
    inner = levels[1][1] if len(levels) > 1 else []
    group = levels[1][0] if len(levels) > 1 else 1
    problem = _problem(sizes, stride)
    outer_count = max(units // group, 1)
    steps = dict(problem.dimensions)
    tiles, parts, order = _cut(levels[0][1], steps, outer_count, sizes)
    _, inner_parts, _ = _cut(inner, {d: tiles[d] // parts.get(d, 1) for d in tiles}, group, sizes)
    share = {d: tiles[d] // parts.get(d, 1) for d in tiles}
    unit_share = {d: share[d] // inner_parts.get(d, 1) for d in share}
    ones = dict.fromkeys(problem.names, 1)
    schedule = Schedule(
        (
            LevelMap("DRAM", (), steps, steps),
            LevelMap("L2", tuple(order), tiles, share),
            LevelMap("group", (), share, unit_share),
            LevelMap("L1", tuple(problem.names), ones, ones),
        )
    )
    clusters = Clusters(
        "directives",
        (Cluster("DRAM"), Cluster("L2", children=outer_count), Cluster("group", children=group, is_virtual=True), Cluster("L1")),
        HERTZ,
    )
    return Dataflow(problem, clusters, schedule)


def _levels(text: str, sizes: Mapping[str, int]) -> list[tuple[int, list[Directive]]]:
    levels: list[tuple[int, list[Directive]]] = [(1, [])]
    for number, statement in enumerate(filter(None, (part.strip() for part in text.split(";"))), 1):
        match = DIRECTIVE.fullmatch(statement)
        if match is None:
            raise InputError("F230", f'Directive {number} must be SpatialMap, TemporalMap or Cluster with two numbers, not "{statement}"')
        kind, size, offset, dimension = match.groups()
        if kind == "Cluster":
            levels.append((_number(size, sizes, statement), []))
            continue
        if dimension not in sizes:
            raise InputError("F230", f'Directive "{statement}" must name a dimension of the layer ({" ".join(sizes)}), not "{dimension}"')
        levels[-1][1].append(Directive(kind == "SpatialMap", dimension, _number(size, sizes, statement), _number(offset, sizes, statement)))
    if len(levels) > 2:  # noqa: PLR2004 -- groups of units
        raise InputError("F230", f"A dataflow must have one Cluster directive at most, not {len(levels) - 1}")
    return levels


def _number(text: str, sizes: Mapping[str, int], statement: str) -> int:
    """Return the value of sums of numbers and sizes, as in 8+Sz(S)-1."""
    words = SIZE.sub(lambda m: str(sizes.get(m[1], m[0])), text.replace(" ", ""))
    if not re.fullmatch(r"\d+([+-]\d+)*", words):
        raise InputError("F230", f'Directive "{statement}" must have numbers and sizes of the layer, not "{text.strip()}"')
    total = sum(int(term) for term in re.findall(r"[+-]?\d+", words))
    if total < 1:
        raise InputError("F230", f'Directive "{statement}" must have positive numbers, not {total}')
    return total


def _problem(sizes: Mapping[str, int], stride: int) -> Problem:
    """Return a product of matrices for M, N, K, else a convolution, with outputs for the axes that windows slide along."""
    if set(sizes) == {"M", "N", "K"}:
        return Problem(
            dict(sizes),
            {"input": ({"M": 1}, {"K": 1}), "filter": ({"K": 1}, {"N": 1}), "output": ({"M": 1}, {"N": 1})},
            "output",
            tag="gemm",
        )
    missing = next((d for d in "KCYXRS" if d not in sizes), None)
    if missing is not None:
        raise InputError("F230", f"The layer must have the dimensions K C Y X R S, or M N K; {missing} is missing")
    outputs = {axis: (sizes[axis] - sizes[window]) // stride + 1 for axis, window in WINDOWS.items()}
    if min(outputs.values()) < 1:
        raise InputError("F230", f"A window of {sizes['R']} × {sizes['S']} does not fit in {sizes['Y']} × {sizes['X']} elements")
    spaces = {
        "input": ({"C": 1}, {"Y": stride, "R": 1}, {"X": stride, "S": 1}),
        "filter": ({"K": 1}, {"C": 1}, {"R": 1}, {"S": 1}),
        "output": ({"K": 1}, {"Y": 1}, {"X": 1}),
    }
    return Problem({**sizes, **outputs}, spaces, "output", tag="conv2d")


def _cut(
    directives: list[Directive], extents: Mapping[str, int], count: int, sizes: Mapping[str, int]
) -> tuple[dict[str, int], dict[str, int], list[str]]:
    """Return tiles, parts and the order of temporal steps of one level."""
    tiles, parts, order = dict(extents), {}, []
    for d in directives:
        extent = extents[d.dimension]
        window = WINDOWS.get(d.dimension)
        if window and d.size >= sizes[window]:
            outputs = (d.size - sizes[window]) // d.offset + 1
            tile = min(outputs if d.size > sizes[window] else 1, extent)
        else:
            tile = min(d.size, extent)
        side = min(count, math.ceil(extent / tile)) if d.is_spatial else 1
        if extent % (tile * side):
            raise InputError("F230", f"Tiles of {tile} × {side} leave a rest of the {extent:,} steps of {d.dimension}")
        tiles[d.dimension], parts[d.dimension] = tile * side, side
        order.append(d.dimension)
    return tiles, parts, order


def directives_text(schedule: Schedule, problem: Problem, clusters: Clusters) -> str:
    """Return a mapping as directives: every level's loops as tiles at offsets of their size.

    Raises:
        InputError: a level has more than one parallel dimension, for which a level of directives has one SpatialMap (F230).
    """
    lines: list[str] = []
    size = dict(problem.dimensions)
    for m, (temporal, spatial), c in zip(schedule.levels, counts_of(schedule, problem), clusters.levels, strict=True):
        parallel = [d for d, n in spatial.items() if n > 1]
        if len(parallel) > 1:
            raise InputError(
                "F230", f"Dimensions {', '.join(parallel)} are parallel at {m.cluster}: a level of directives has one SpatialMap"
            )
        share = {d: m.spatial.get(d, size[d]) for d in size}
        order = [*m.order, *(d for d in parallel if d not in m.order)]
        for d in order:
            kind = "SpatialMap" if d in parallel else "TemporalMap"
            if temporal[d] > 1 or d in parallel:
                lines.append(f"{kind}({share[d]},{share[d]}) {d};")
        if c.children > 1:
            lines.append(f"Cluster({math.prod(k.children for k in clusters.levels) // _outer(clusters, m.cluster)}, P);")
        size = share
    while lines and lines[-1].startswith("Cluster"):
        lines.pop()
    return "\n".join(lines) + "\n"


def _outer(clusters: Clusters, name: str) -> int:
    return math.prod(c.children for c in clusters.levels[: clusters.names.index(name) + 1])
