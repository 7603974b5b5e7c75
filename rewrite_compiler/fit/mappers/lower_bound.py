"""A bound below every mapping of a space: what the units must take whatever the tiles, and every element once through each memory.

It is the least over all ways to split the dimensions over the units. The parts decide the steps, and how many partial sums the
innermost memory reads back; of everything else only what no mapping avoids is counted.
"""

from __future__ import annotations

import math

import numpy as np

from ..mapping.columns import Column
from ..mapping.space import Space
from ..mapping.sums import distinct_sums
from ..models.model import Objective
from ..problems.problem import Problem

MAX_SPLITS = 2_000_000  # ways to split over the units that are looked at


def lower_bound(space: Space, objective: Objective) -> float | None:
    """Return a value of the objective that no mapping goes below, None where the splits are too many to look at."""
    parts = _splits(space)
    if parts is None:
        return None
    problem, clusters = space.problem, space.clusters
    elements = {t: _elements(problem, t) for t in problem.spaces}
    outer = float(sum(elements.values()))
    if objective is Objective.BYTES:
        return outer
    steps = problem.points / parts.prod(axis=0)
    width = min((c.width for c in clusters.levels[1:2] if c.width is not None), default=None)
    cycles = steps if width is None else np.maximum(steps, outer / width)
    if objective is Objective.CYCLES:
        return float(cycles.min())
    energy = _energy(space, elements, parts)
    return float((energy if objective is Objective.ENERGY else energy * cycles).min())


def _splits(space: Space) -> Column | None:
    """Return by dimension the parts of every split over all units, one column a split."""
    choices = [np.unique(table[:, space.spatial].prod(axis=1)) for table in space.tables]
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
            is_inner = all(tensor in bypasses[k] for k in range(row))
            accesses = float(problem.points if is_inner and tensor != problem.output else elements[tensor])
            total += joules * (accesses + (0 if is_outermost else elements[tensor]))
            if is_inner and tensor == problem.output:
                total += joules * _partial_sums(problem, parts, row == 0, elements[tensor])
    return total


def _partial_sums(problem: Problem, parts: Column, is_innermost: bool, elements: int) -> np.ndarray:
    """Return updates and reads of partial sums from the units beyond one update an element."""
    names = list(problem.dimensions)
    summed = [k for k, d in enumerate(names) if d not in problem.relevant(problem.output)]
    if not is_innermost or any(len(axis) > 1 for axis in problem.spaces[problem.output]):
        return np.zeros(parts.shape[1])
    reads = problem.points - elements * parts[summed].prod(axis=0).astype(np.float64)
    return np.asarray(np.maximum(reads, 0.0) + problem.points - elements, np.float64)
