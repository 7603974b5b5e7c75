"""Loops: a mapping as the loop counts of each memory, in the JSON that `flexmatch.traffic` takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import InputError
from ..problems.documents import check_keys, checked_list, positive_integer
from ..problems.problem import Problem, check_dimension
from .columns import Batch

Loop = tuple[str, int]


@dataclass(frozen=True)
class Level:
    """A memory, the spatial loops over the instances below it, and its temporal loops; innermost first."""

    memory: str
    spatial: tuple[Loop, ...]
    temporal: tuple[Loop, ...]


def levels_from(document: Any, problem: Problem) -> tuple[Level, ...]:
    """Return the levels of a mapping, innermost first.

    Raises:
        InputError: the document is not a legal mapping of the problem (F230).
    """
    if not checked_list(document, "The mapping"):
        raise InputError("F230", "The mapping must have at least one level, not none")
    levels = tuple(_level(entry, problem) for entry in document)
    names = [level.memory for level in levels]
    for name in names:
        if names.count(name) > 1:
            raise InputError("F230", f'The memories of a mapping must differ, not be "{name}" twice')
    for d, size in problem.dimensions.items():
        covered = math.prod(n for level in levels for e, n in (*level.spatial, *level.temporal) if e == d)
        if covered != size:
            raise InputError("F230", f"The loops over {d} must cover its {size:,} steps exactly, not {covered:,}")
    return levels


def _level(entry: Any, problem: Problem) -> Level:
    check_keys(entry, "A level of the mapping", ("memory",), ("spatial", "temporal"))
    name = entry["memory"]
    if not isinstance(name, str) or not name:
        raise InputError("F230", f"The memory of a level must be a name, not {name!r}")
    spatial, temporal = (_loops(entry.get(kind, []), name, kind, problem) for kind in ("spatial", "temporal"))
    return Level(name, spatial, temporal)


def _loops(entries: Any, memory: str, kind: str, problem: Problem) -> tuple[Loop, ...]:
    loops = []
    for loop in checked_list(entries, f"The {kind} loops of {memory}"):
        if not isinstance(loop, list | tuple) or len(loop) != 2:
            raise InputError("F230", f"A {kind} loop of {memory} must be a dimension and a count, not {loop!r}")
        check_dimension(loop[0], problem.dimensions, f"A {kind} loop of {memory}")
        loops.append((loop[0], positive_integer(loop[1], f"The {kind} loop of {memory} over {loop[0]}")))
    return tuple(loops)


def batch_of(problem: Problem, levels: Sequence[Level]) -> tuple[Batch, tuple[int, ...]]:
    """Return the one mapping as a batch, and the row of loops at which each memory ends.

    A level that runs a dimension twice takes several rows of loops.
    """
    index = {d: k for k, d in enumerate(problem.names)}
    temporal, spatial, order, ends = [], [], [], []
    for level in levels:
        for number, run in enumerate(_runs(level.temporal)):
            counts = [1] * len(index)
            for d, n in run:
                counts[index[d]] = n
            inside = level.spatial if number == 0 else ()
            temporal.append(counts)
            spatial.append([math.prod(n for e, n in inside if e == d) for d in index])
            turning = [index[d] for d, _ in run]
            order.append(turning + [k for k in range(len(index)) if k not in turning])
        ends.append(len(temporal) - 1)
    columns = [np.array(x, np.int64)[:, :, None] for x in (temporal, spatial)]
    return Batch(problem, columns[0], columns[1], np.array(order, np.intp)[:, :, None]), tuple(ends)


def _runs(loops: Sequence[Loop]) -> list[list[Loop]]:
    """Split loops where a dimension comes again."""
    runs: list[list[Loop]] = [[]]
    for d, n in loops:
        if d in (e for e, _ in runs[-1]):
            runs.append([])
        runs[-1].append((d, n))
    return runs
