"""Schedules: a mapping of a problem on clusters as tile sizes and loop orders, level by level, and the rules it must keep."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...errors import InputError
from ..problems.documents import check_keys, checked_list, checked_object, positive_integer
from ..problems.problem import Problem, Projection, check_dimension
from .clusters import Clusters
from .columns import Batch
from .sums import distinct_sums

Sizes = Mapping[str, int]


@dataclass(frozen=True)
class LevelMap:
    """What a level does: its temporal loops, outermost first, cut what it holds into tiles; its sub-clusters share each tile.

    `temporal` is the size of these tiles along each dimension, `spatial` the size of one sub-cluster's share.
    """

    cluster: str
    order: tuple[str, ...]
    temporal: Sizes
    spatial: Sizes
    bypass: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Schedule:
    """A mapping: what every level does, outermost first."""

    levels: tuple[LevelMap, ...]

    def document(self) -> list[dict[str, Any]]:
        """Return the mapping as JSON."""
        return [
            {
                "cluster": m.cluster, "order": list(m.order), "temporal": dict(m.temporal), "spatial": dict(m.spatial),
                **({"bypass": sorted(m.bypass)} if m.bypass else {}),
            }
            for m in self.levels
        ]  # fmt: skip


@dataclass(frozen=True)
class Violation:
    """A rule that a mapping breaks, at a level, with a sentence."""

    rule: int
    cluster: str
    sentence: str
    need: int = 0


def schedule_from(document: Any, problem: Problem, clusters: Clusters) -> Schedule:
    """Return the mapping of a JSON document; loops that turn at a level and stand in no order are its outermost, the last one first.

    Raises:
        InputError: the document is not a mapping of the problem on these clusters (F230).
    """
    levels = tuple(_level(entry, problem) for entry in checked_list(document, "The mapping"))
    names = [m.cluster for m in levels]
    if names != list(clusters.names):
        raise InputError("F230", f"The levels of the mapping must be {', '.join(clusters.names)}, not {', '.join(names) or 'none'}")
    holder = next((m for m, c in zip(levels, clusters.levels, strict=True) if m.bypass and (c.is_virtual or m is levels[0])), None)
    if holder is not None:
        reason = "the outermost memory holds every tensor" if holder is levels[0] else "it is virtual and holds none"
        raise InputError("F230", f"The mapping must have no bypass at {holder.cluster}: {reason}")
    counts = counts_of(Schedule(levels), problem, rests=True)
    return Schedule(tuple(_with_every_loop(m, temporal) for m, (temporal, _) in zip(levels, counts, strict=True)))


def _with_every_loop(m: LevelMap, counts: dict[str, int]) -> LevelMap:
    return replace(m, order=(*(d for d in reversed(counts) if counts[d] > 1 and d not in m.order), *m.order))


def _level(entry: Any, problem: Problem) -> LevelMap:
    check_keys(entry, "A level of the mapping", ("cluster", "order", "temporal", "spatial"), ("bypass",))
    name = entry["cluster"]
    order = tuple(checked_list(entry["order"], f"The order at {name}"))
    for d in order:
        check_dimension(d, problem.dimensions, f"The order at {name}")
    twice = next((d for d in order if order.count(d) > 1), None)
    if twice is not None:
        raise InputError("F230", f"The order at {name} must have each dimension once, not {twice} twice")
    sizes = {}
    for kind in ("temporal", "spatial"):
        tiles = checked_object(entry[kind], f"The {kind} tiles of {name}")
        for d, n in tiles.items():
            check_dimension(d, problem.dimensions, f"The {kind} tiles of {name}")
            positive_integer(n, f"The {kind} tile of {d} at {name}")
        sizes[kind] = dict(tiles)
    bypass = checked_list(entry.get("bypass", []), f"The bypass of {name}")
    for tensor in bypass:
        if not isinstance(tensor, str) or tensor not in problem.spaces:
            raise InputError("F230", f"The bypass of {name} must name tensors ({', '.join(problem.spaces)}), not {tensor!r}")
    return LevelMap(str(name), order, sizes["temporal"], sizes["spatial"], frozenset(bypass))


def counts_of(schedule: Schedule, problem: Problem, rests: bool = False) -> list[tuple[dict[str, int], dict[str, int]]]:
    """Return the loop counts of every level, outermost first: temporal and spatial; with `rests` the last, smaller tile counts."""
    size = dict(problem.dimensions)
    counts = []
    for m in schedule.levels:
        shares = {d: m.temporal.get(d, size[d]) for d in size}
        temporal = {d: _count(size[d], shares[d], rests) for d in size}
        size = {d: m.spatial.get(d, shares[d]) for d in size}
        counts.append((temporal, {d: _count(shares[d], size[d], rests) for d in size}))
    return counts


def _count(size: int, tile: int, rests: bool) -> int:
    return -(-size // tile) if rests else size // tile


def violations(
    problem: Problem, clusters: Clusters, schedule: Schedule, spans: bool = False, rests: bool = False
) -> tuple[Violation, ...]:  # fmt: skip
    """Return what is illegal about a mapping; nothing when it visits every point once with its tiles inside the memories.

    1: a tile is larger than what it is cut from. 2: more parts than sub-clusters. 3: tiles exceed a memory; with `spans`, an axis
    of a tile takes all positions from its first to its last. 4: points are left out; with `rests` the last tile may be smaller.
    """
    broken = [*_nesting(problem, schedule), *_fanout(problem, clusters, schedule, rests)]
    if broken:
        return tuple(broken)
    return (*_uncovered(problem, schedule, rests), *_capacities(problem, clusters, schedule, spans))


def _nesting(problem: Problem, schedule: Schedule) -> list[Violation]:
    broken = []
    size, source = dict(problem.dimensions), "the problem"
    for m in schedule.levels:
        for kind, tiles in (("temporal", m.temporal), ("spatial", m.spatial)):
            for d, n in size.items():
                tile = tiles.get(d, n)
                if tile > n:
                    sentence = f"The {kind} tile of {d} at {m.cluster} takes {tile:,} steps, its part of {source} has {n:,} (rule 1)"
                    broken.append(Violation(1, m.cluster, sentence, tile))
            size = {d: min(tiles.get(d, n), n) for d, n in size.items()}
            source = m.cluster
    return broken


def _fanout(problem: Problem, clusters: Clusters, schedule: Schedule, rests: bool) -> list[Violation]:
    broken = []
    for m, (_, spatial), c in zip(schedule.levels, counts_of(schedule, problem, rests), clusters.levels, strict=True):
        parts = {d: n for d, n in spatial.items() if n > 1}
        if math.prod(parts.values()) > c.children:
            counts = " × ".join(f"{n:,}" for n in parts.values())
            axis = f" over axis {c.axis}" if c.axis else f" below {m.cluster}"
            sentence = f"The {counts} parts of {', '.join(parts)}{axis} exceed its {c.children:,} sub-clusters (rule 2)"
            broken.append(Violation(2, m.cluster, sentence, math.prod(parts.values())))
    return broken


def _uncovered(problem: Problem, schedule: Schedule, rests: bool) -> list[Violation]:
    broken = []
    counts = counts_of(schedule, problem)
    innermost = schedule.levels[-1] if schedule.levels else LevelMap("", (), {}, {})
    for d, n in problem.dimensions.items():
        covered = math.prod(temporal[d] * spatial[d] for temporal, spatial in counts)
        if rests and innermost.spatial.get(d, innermost.temporal.get(d)) == 1:
            continue
        if covered != n:
            stands = "stands in no loop" if covered == 1 else "is cut into tiles that leave a rest"
            sentence = f"Dimension {d} of the problem {stands}: the mapping covers {covered:,} of its {n:,} steps (rule 4)"
            broken.append(Violation(4, schedule.levels[-1].cluster, sentence, covered))
    return broken


def _capacities(problem: Problem, clusters: Clusters, schedule: Schedule, spans: bool) -> list[Violation]:
    broken = []
    bypasses = bypasses_of(clusters, schedule, problem)
    size = dict(problem.dimensions)
    for m, c in zip(schedule.levels, clusters.levels, strict=True):
        extent, size = size, {d: m.spatial.get(d, m.temporal.get(d, n)) for d, n in size.items()}
        if c.is_virtual or c.capacity is None:
            continue
        tensors = [t for t in problem.spaces if t not in bypasses[clusters.row(m.cluster)]]
        need = sum(tile_elements(problem.spaces[t], extent, spans) for t in tensors)
        if need > c.capacity:
            cut = [d for d, n in extent.items() if n > 1]
            words = " or ".join(filter(None, [", ".join(cut[:-1]), cut[-1] if cut else ""]))
            remedy = f": cut {words} there" if cut else ""
            sentence = f"Tiles at {m.cluster} take {need:,} elements, the memory holds {c.capacity:,}{remedy} (rule 3)"
            broken.append(Violation(3, m.cluster, sentence, need))
    return broken


def tile_elements(axes: Sequence[Projection], extent: Sizes, spans: bool) -> int:
    """Return the elements of a tile: all positions between the first and the last of each axis, or those that occur."""
    if spans:
        return math.prod(1 + sum(c * (extent[d] - 1) for d, c in axis.items()) for axis in axes)
    return math.prod(distinct_sums((c, extent[d]) for d, c in axis.items()) for axis in axes)


def bypasses_of(clusters: Clusters, schedule: Schedule | None, problem: Problem) -> tuple[frozenset[str], ...]:
    """Return the tensors that each engine's row does not hold; the outermost level holds all."""
    tensors = frozenset(problem.spaces)
    passes = {m.cluster: m.bypass for m in schedule.levels} if schedule else {}
    return tuple(tensors if c.is_virtual else passes.get(c.name, frozenset()) for c in reversed(clusters.levels))


def batch_of(problem: Problem, clusters: Clusters, schedules: Sequence[Schedule]) -> Batch:
    """Return mappings as columns."""
    names, rows = problem.names, len(schedules)
    shape = (len(clusters.levels), len(names), rows)
    temporal, spatial = np.ones(shape, np.int64), np.ones(shape, np.int64)
    order = np.zeros(shape, np.intp)
    for column, schedule in enumerate(schedules):
        for level, (m, counts) in enumerate(zip(schedule.levels, counts_of(schedule, problem), strict=True)):
            row = len(schedule.levels) - 1 - level
            temporal[row, :, column] = [counts[0][d] for d in names]
            spatial[row, :, column] = [counts[1][d] for d in names]
            inner_first = [names.index(d) for d in reversed(m.order)]
            order[row, :, column] = inner_first + [k for k in range(len(names)) if k not in inner_first]
    return Batch(problem, temporal, spatial, order)


def schedule_of(batch: Batch, clusters: Clusters, column: int, bypasses: Sequence[frozenset[str]] = ()) -> Schedule:
    """Return one row of columns as a schedule; loops of one step are left out of the orders."""
    names = batch.problem.names
    levels = []
    for c in clusters.levels:
        row = clusters.row(c.name)
        turning = [k for k in batch.order[row, ::-1, column].tolist() if batch.temporal[row, k, column] > 1]
        share = batch.extent[row - 1, :, column].tolist() if row else [1] * len(names)
        tile = (batch.spatial[row, :, column] * np.array(share)).tolist()
        bypass = bypasses[row] if bypasses and not c.is_virtual else frozenset()
        sizes = (dict(zip(names, tile, strict=True)), dict(zip(names, share, strict=True)))
        levels.append(LevelMap(c.name, tuple(names[k] for k in turning), *sizes, bypass))
    return Schedule(tuple(levels))
