"""A bound below every mapping of a space: what the units must take whatever the tiles, and every element once through each memory.

It is the least over all ways to split the dimensions over the units. The parts decide the steps, how many partial sums the innermost
memory reads back, and in how many of its instances an element lies; of everything else only what no mapping avoids is counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..mapping.columns import Column, distinct_values
from ..mapping.space import Index, Space
from ..mapping.sums import distinct_sums
from ..models.model import Objective, Values
from ..problems.problem import Problem
from .outer_tiles import OuterTiles

MAX_SPLITS = 2_000_000  # ways to split over the units that are looked at


@dataclass(frozen=True)
class SplitBounds:
    """Every split over the units as a column of parts by dimension, and a value of the objective that no mapping with it goes below."""

    parts: Column
    values: Values
    outer: Column | None = None  # how often each dimension is cut outside at the tile that gives the bound

    @property
    def least(self) -> float:
        """What no mapping goes below."""
        return float(self.values.min())


def split_bounds(space: Space, objective: Objective, tiles: OuterTiles | None = None) -> SplitBounds | None:
    """Return bounds by split over the units, None where the splits are too many to look at.

    With `tiles` they count what must cross the outermost link because not all fits inside.
    """
    parts = _splits(space)
    if parts is None:
        return None
    problem = space.problem
    elements = {t: _elements(problem, t) for t in problem.spaces}
    outer = float(sum(elements.values()) if tiles is None else tiles.elements.min())
    outer_counts = None if tiles is None else np.repeat(tiles.counts[:, [tiles.elements.argmin()]], parts.shape[1], axis=1)
    if objective is Objective.BYTES:
        return SplitBounds(parts, np.full(parts.shape[1], outer), outer_counts)
    steps = problem.points / parts.prod(axis=0)
    cycles = np.maximum(steps, max((t / width for t, width in _link_traffic(space, elements, outer)), default=0.0))
    if objective is Objective.CYCLES:
        return SplitBounds(parts, cycles, outer_counts)
    energy = _energy(space, elements, parts)
    if tiles is not None:
        refetches, best = _refetches(space, elements, parts, tiles)
        energy, outer_counts = energy + refetches, tiles.counts[:, best]
    return SplitBounds(parts, energy if objective is Objective.ENERGY else energy * cycles, outer_counts)


def _link_traffic(space: Space, elements: dict[str, int], outer: float) -> Iterator[tuple[float, int]]:
    """Yield for each limited link the elements that cross it at one instance at least, and its width: every element once at some."""
    bypasses = space.constraints.bypasses(space.problem, space.clusters)
    for name, width in space.clusters.limited_links:
        row = space.clusters.row(name)
        instances = math.prod(c.children for c in space.clusters.levels[: space.clusters.names.index(name)])
        once = sum(n for tensor, n in elements.items() if tensor not in bypasses[row]) / instances
        yield outer if name == space.clusters.names[0] else once, width


def _splits(space: Space) -> Column | None:
    """Return by dimension the parts of every split over all units, one column a split."""
    choices = [distinct_values(table[:, space.spatial].prod(axis=1)) for table in space.tables]
    splits = np.ones((0, 1), np.int64)
    for values in choices:
        if splits.shape[1] * len(values) > MAX_SPLITS:
            return None
        repeated = np.repeat(splits, len(values), axis=1)
        splits = np.concatenate([repeated, np.tile(values, splits.shape[1])[None]])
        splits = splits[:, splits.prod(axis=0) <= space.clusters.units]
    return splits


def _elements(problem: Problem, tensor: str) -> int:
    """Return the distinct elements of a tensor that the problem touches."""
    return math.prod(distinct_sums((c, problem.dimensions[d]) for d, c in axis.items()) for axis in problem.spaces[tensor])


def _energy(space: Space, elements: dict[str, int], parts: Column) -> np.ndarray:
    """Return femtojoules that a split over the units cannot avoid."""
    problem, clusters = space.problem, space.clusters
    bypasses = space.constraints.bypasses(problem, clusters)
    total = np.full(parts.shape[1], float(problem.points * clusters.operations.get(problem.unit, 0)))
    for row, cluster in enumerate(reversed(clusters.levels)):
        tensors = [t for t in problem.spaces if t not in bypasses[row]]
        joules = clusters.energies.get(cluster.name, 0)
        is_outermost = row == len(clusters.levels) - 1
        for tensor in tensors:
            copies = _copies(problem, tensor, parts)
            is_shared = any(space.slots[k].row <= row for k in space.spatial)  # some of the splits are inside of an instance
            is_inner = all(tensor in bypasses[k] for k in range(row))
            served = problem.points / (_sharing(problem, tensor, parts) if is_shared else 1)
            accesses = served if is_inner and tensor != problem.output else np.float64(elements[tensor])
            total += joules * (accesses + (0 if is_outermost else elements[tensor] * (1 if is_shared else copies)))
            if is_inner and tensor == problem.output:
                total += joules * _partial_sums(problem, copies, served, row == 0, elements[tensor])
    return total


def _refetches(space: Space, elements: dict[str, int], parts: Column, tiles: OuterTiles) -> tuple[np.ndarray, Index]:
    """Return femtojoules beyond every element once between the outermost memories, and the tile that needs least, for each split."""
    problem, clusters = space.problem, space.clusters
    outermost, memory = clusters.levels[:2]
    once = sum(elements.values()) * float(clusters.energies.get(outermost.name, 0) + clusters.energies.get(memory.name, 0))
    bypasses = space.constraints.bypasses(problem, clusters)
    y, last = problem.output, len(clusters.levels) - 2
    inner = next((row for row in reversed(range(last)) if y not in bypasses[row]), None)
    capacity = None if inner is None else clusters.cluster(inner).capacity
    if inner is None or capacity is None:
        return np.full(parts.shape[1], tiles.energy.min() - once), np.full(parts.shape[1], tiles.energy.argmin())
    indexing = problem.relevant(y)
    sharing = np.asarray(parts[[k for k, d in enumerate(problem.names) if d in indexing]].prod(axis=0), np.int64)
    is_shared = any(space.slots[k].row <= inner for k in space.spatial)
    fills = float(clusters.energies.get(clusters.cluster(inner).name, 0)) * (1 if is_shared else _copies(problem, y, parts))
    part_energy = elements[y] * (2.0 * clusters.energies.get(memory.name, 0) + fills)  # of a further part of the sums
    least, best = np.full(parts.shape[1], np.inf), np.zeros(parts.shape[1], np.intp)
    for number, (energy, count, results) in enumerate(zip(tiles.energy, tiles.parts_of_sums, tiles.results, strict=True)):
        leaves = results > capacity * sharing  # the results of the tile cannot stay with the units
        added = energy - once + np.where(leaves, part_energy * (count - 1), 0.0)
        best = np.where(added < least, number, best)
        least = np.minimum(least, added)
    return least, best


def _sharing(problem: Problem, tensor: str, parts: Column) -> np.ndarray:
    """Return how many units one access serves at most, by multicast or by a sum over units: windows that overlap share elements, too."""
    indexing = {d for axis in problem.spaces[tensor] if len(axis) == 1 for d in axis}
    return np.asarray(parts[[k for k, d in enumerate(problem.names) if d not in indexing]].prod(axis=0, dtype=np.float64))


def _copies(problem: Problem, tensor: str, parts: Column) -> np.ndarray:
    """Return to how many units an element goes at least: the parts of dimensions that do not index it."""
    indexing = problem.relevant(tensor)
    return np.asarray(parts[[k for k, d in enumerate(problem.names) if d not in indexing]].prod(axis=0, dtype=np.float64))


def _partial_sums(problem: Problem, copies: np.ndarray, served: Any, is_innermost: bool, elements: int) -> np.ndarray:
    """Return updates and reads of partial sums from the units beyond one update an element."""
    if not is_innermost or any(len(axis) > 1 for axis in problem.spaces[problem.output]):
        return np.zeros(len(copies))
    return np.asarray(np.maximum(served - elements * copies, 0.0) + np.maximum(served - elements, 0.0), np.float64)
