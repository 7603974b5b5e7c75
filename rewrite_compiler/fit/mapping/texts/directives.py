"""Data-centric directives, the text that MAESTRO takes: a layer under a dataflow, as problem, clusters and mapping, and back."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ....errors import InputError
from ...problems.problem import Problem
from ..clusters import Cluster, Clusters
from ..schedule import LevelMap, Schedule, counts_of

DIRECTIVE = re.compile(r"(SpatialMap|TemporalMap|Cluster)\((.+),(.+)\)\s*(\S*)")
SIZE = re.compile(r"Sz\((\w+)\)")
WINDOWS = {"Y": "R", "X": "S"}  # an input axis and the window that slides along it
CLUSTER = re.compile(r"Cluster\(\s*([0-9]{1,18})\s*,\s*\w+\s*\)")
COMMENT = re.compile(r"//[^\n]*")
UNITS = re.compile(r"[0-9]{1,18} units")
OUTPUTS = {"n": "N", "k": "K", "c": "C", "r": "R", "s": "S", "p": "Y'", "q": "X'"}  # of a convolution
PRODUCT = {"m": "M", "n": "N", "k": "K"}
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
    for number, statement in enumerate(filter(None, (part.strip() for part in COMMENT.sub("", text).split(";"))), 1):
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
    """Return a mapping as directives for as many units as it uses: a group of them for each memory and each parallel dimension.

    Lines that begin with // say which level of the architecture a group is, and which tensors pass it by.
    """
    counts = counts_of(schedule, problem)
    names = {d: name for name, d in _names(problem).items()}
    inside = math.prod(n for _, spatial in counts for n in spatial.values())
    lines, group = [f"// {inside} units"], list[str]()
    size = dict(problem.dimensions)
    for m, (temporal, spatial) in zip(schedule.levels, counts, strict=True):
        passes = f" passes on {', '.join(sorted(m.bypass))}" if m.bypass else ""
        lines += [*group, f"Cluster({inside}, P);"] if len(group) > 1 else group
        group = [f"// {m.cluster}{passes}"]
        tile = {d: m.temporal.get(d, size[d]) for d in size}
        share = {d: m.spatial.get(d, tile[d]) for d in size}
        parallel = [d for d in problem.names if spatial[d] > 1]
        first = parallel[0] if parallel else ""
        for d in (*m.order, *(d for d in parallel if d not in m.order)):
            if d == first:
                group.append(f"SpatialMap({share[d]},{share[d]}) {names[d]};")
                inside //= spatial[d]
            elif temporal[d] > 1:
                group.append(f"TemporalMap({tile[d]},{tile[d]}) {names[d]};")
        for d in parallel[1:]:
            group += [f"Cluster({inside}, P);", f"SpatialMap({share[d]},{share[d]}) {names[d]};"]
            inside //= spatial[d]
        size = share
    return "\n".join([*lines, *group]) + "\n"


def _names(problem: Problem) -> dict[str, str]:
    """Return the dimensions of a problem by the names that directives have: K C R S Y' X' of a convolution, M N K of a product."""
    table = OUTPUTS if set(problem.names) <= OUTPUTS.keys() else PRODUCT if set(problem.names) <= PRODUCT.keys() else {}
    return {table.get(d, d): d for d in problem.names}


def directives_schedule(text: str, problem: Problem, clusters: Clusters) -> Schedule:
    """Return the mapping that directives describe: each group of units is a level as its comment says, or a level with sub-clusters.

    Raises:
        InputError: the text is no mapping of the problem on these clusters (F230).
    """
    units, levels = _groups(text, clusters)
    names = _names(problem)
    size, rows = dict(problem.dimensions), list[LevelMap]()
    for c, (passes, groups) in zip(clusters.levels, levels, strict=True):
        order, temporal, share = list[str](), dict(size), dict[str, int]()
        for statements, inner in groups:
            count, units = max(units // inner, 1), inner
            for statement in statements:
                kind, d, n = _directive(statement, names, problem)
                extent = temporal[d]
                parts = min(count, -(-extent // n)) if kind == "SpatialMap" else 1
                if extent % (n * parts):
                    raise InputError("F230", f'Directive "{statement}" leaves a rest of the {extent:,} steps of {d} at {c.name} (rule 4)')
                if extent > n * parts:
                    order.append(d)
                temporal[d] = n * parts
                if parts > 1:
                    share[d] = n
        rows.append(LevelMap(c.name, tuple(order), temporal, {**temporal, **share}, passes))
        size = dict(rows[-1].spatial)
    *outer, last = rows
    ones = dict.fromkeys(size, 1)
    rest = tuple(d for d in problem.names if size[d] > 1 and d not in last.order)  # steps of a unit that no directive orders
    unit_parts = {d: last.temporal[d] // n for d, n in last.spatial.items()}
    return Schedule((*outer, replace(last, order=(*last.order, *rest), temporal=unit_parts, spatial=ones)))


Group = tuple[list[str], int]  # statements, and the units in each cluster inside of the group


def _groups(text: str, clusters: Clusters) -> tuple[int, list[tuple[frozenset[str], list[Group]]]]:
    """Return the number of units and, by level, the tensors that pass it by and its groups."""
    units, level = clusters.units, ""
    passes: dict[str, frozenset[str]] = {}
    groups: list[tuple[str, Group]] = []
    statements: list[str] = []
    for line in text.splitlines():
        words, _, comment = (part.strip() for part in line.partition("//"))
        name = next((n for n in clusters.names if f"{comment} ".startswith(f"{n} ")), "")
        if UNITS.fullmatch(comment):
            units = int(comment.split()[0])
        elif name and statements:
            raise InputError("F230", f"The directives before // {name} must end with Cluster(N, P)")
        elif name:
            level = name
            passes[name] = frozenset(filter(None, comment.partition(" passes on ")[2].replace(",", " ").split()))
        for statement in filter(None, (part.strip() for part in words.split(";"))):
            cluster = CLUSTER.fullmatch(statement)
            if cluster is None:
                statements.append(statement)
            else:
                groups.append((level, (statements, max(int(cluster[1]), 1))))
                statements = []
    groups.append((level, (statements, 1)))
    if not level:
        return units, _by_spatial_level([group for _, group in groups], clusters)
    return units, [(passes.get(n, frozenset()), [group for at, group in groups if at == n]) for n in clusters.names]


def _by_spatial_level(groups: list[Group], clusters: Clusters) -> list[tuple[frozenset[str], list[Group]]]:
    """Give each group to a level with sub-clusters."""
    split = [c.name for c in clusters.levels if c.children > 1]
    if len(groups) > len(split):
        raise InputError(
            "F230", f"The {len(groups)} groups of directives must be at most the {len(split)} levels of {clusters.name} with sub-clusters; "
            f"a line as // {clusters.names[-1]} says which level follows",
        )  # fmt: skip
    by_level = dict(zip(split, groups, strict=False))
    return [(frozenset(), [by_level[n]] if n in by_level else []) for n in clusters.names]


def _directive(statement: str, names: Mapping[str, str], problem: Problem) -> tuple[str, str, int]:
    """Return kind, dimension and steps of a directive; elements of an input axis are as many steps as they hold windows."""
    match = DIRECTIVE.fullmatch(statement)
    if match is None or match[1] == "Cluster":
        raise InputError("F230", f'A directive must be SpatialMap or TemporalMap with two numbers, or Cluster(N, P), not "{statement}"')
    kind, size, offset, name = match.groups()
    sizes = {name: problem.dimensions[d] for name, d in names.items()}
    n = _number(size, sizes, statement)
    if name in names:
        if n != _number(offset, sizes, statement):
            raise InputError("F230", f'Directive "{statement}" must move by its size, or its tiles overlap or leave gaps')
        return kind, names[name], n
    d = names.get(f"{name}'")
    if d is None:
        raise InputError("F230", f'Directive "{statement}" must name a dimension of the problem ({" ".join(names)}), not "{name}"')
    axes = (axis for tensor in problem.spaces.values() for axis in tensor)
    window = next((axis for axis in axes if len(axis) > 1 and d in axis), {d: 1})
    reach = sum(c * (problem.dimensions[e] - 1) for e, c in window.items() if e != d)
    windows = max((n - reach - 1) // window[d] + 1, 1)
    if _number(offset, sizes, statement) != windows * window[d]:
        raise InputError("F230", f'Directive "{statement}" must move by the {windows * window[d]} elements of its {windows} windows')
    return kind, d, windows
