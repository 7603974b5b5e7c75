"""Reuse: what a mapping moves between its memories, in closed form on columns, read as one of two published models reads it.

A tile is delivered anew whenever temporal loops outside of its level advance. Read by *loops*, every advance counts that changes
the tile. Read by *data*, an advance counts only if its own dimension indexes the tensor: when another one advances, the loops inside
of it wrap and the first tile must come back, which this reading takes as still present.
Partial sums of a result go to the memory outside when their tile changes, read by data at every step; they are read back but for the first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..problems.problem import Projection
from .columns import Batch, Column, Mask, TemporalLoop
from .sums import Digit, Sliding, distinct, sliding

Digits = Callable[[int], "Sequence[tuple[Column | int, Column]]"]  # of a dimension


class Reading(StrEnum):
    """How deliveries are counted."""

    LOOPS = "loops"
    """Every change of a tile."""
    DATA = "data"
    """Advances of a tensor's own dimensions; wraps of loops inside are forgotten."""


class Halo(StrEnum):
    """What a delivery brings of a tile that overlaps the one before."""

    PART = "part"
    """The elements that were not there."""
    TILE = "tile"
    """All of it."""


@dataclass(frozen=True)
class Counts:
    """Elements per instance of a memory, of one tensor: columns.

    A multicast is one read at its source. Of the output, `updates` are partial sums from below and `reads` those read back; `fills` are
    the elements that deliveries bring, the first included, and 0 at the outermost level, which holds everything from the start.
    """

    tile: Column
    instances: Column
    reads: Column
    fills: Column
    updates: Column

    def columns(self) -> dict[str, Column]:
        """Return the columns by name."""
        return {"tile": self.tile, "instances": self.instances, "reads": self.reads, "fills": self.fills, "updates": self.updates}


@dataclass(frozen=True)
class Engine:
    """The counters of a batch of mappings; `bypasses` names the tensors that a level does not hold.

    With `spans`, a tile takes all positions of an axis from its first to its last.
    """

    batch: Batch
    reading: Reading = Reading.LOOPS
    halo: Halo = Halo.PART
    bypasses: tuple[frozenset[str], ...] = ()
    spans: bool = False

    @cached_property
    def _coefficients(self) -> Mapping[str, np.ndarray]:
        """By tensor: coefficient of each dimension along each axis."""
        names = self.batch.problem.names
        spaces = self.batch.problem.spaces
        return {
            t: np.array([[axis.get(d, 0) for d in names] for axis in axes], np.int64).reshape(-1, len(names)) for t, axes in spaces.items()
        }

    def _moves(self, tensor: str) -> Mask:
        """Tell of each dimension whether it indexes a tensor."""
        return np.asarray((self._coefficients[tensor] > 0).any(axis=0), np.bool_)

    @cached_property
    def _walks(self) -> dict[tuple[str, int], tuple[Column, Column]]:
        return {}

    @cached_property
    def _index(self) -> Mapping[str, int]:
        return {d: k for k, d in enumerate(self.batch.problem.names)}

    def holds(self, tensor: str, level: int) -> bool:
        """Tell whether a level keeps a tensor."""
        return level >= len(self.bypasses) or tensor not in self.bypasses[level]

    def child(self, tensor: str, level: int) -> int:
        """Return the next level inside of one that holds a tensor; −1 are the units."""
        return next((k for k in reversed(range(level)) if self.holds(tensor, k)), -1)

    def parent(self, tensor: str, level: int) -> int:
        """Return the next level outside of one that holds a tensor."""
        return next((k for k in range(level + 1, self.batch.levels) if self.holds(tensor, k)), self.batch.levels - 1)

    def counts(self, tensor: str, level: int) -> Counts:
        """Return tile, instances, reads, fills and updates of one tensor at one level that holds it."""
        b = self.batch
        zero = np.zeros(b.rows, np.int64)
        child = self.child(tensor, level)
        is_output = tensor == b.problem.output
        delivered = self.deliveries(tensor, child, level, always=is_output)
        fills = self.deliveries(tensor, level, level, always=is_output) if level < b.levels - 1 else zero
        reads = delivered - self.partition(tensor, level) if is_output else delivered
        return Counts(self.tile(tensor, level), b.instances[level], reads, fills, delivered if is_output else zero)

    def least(self, tensor: str, level: int) -> Counts:
        """Return counters that no order of the temporal loops goes below, level by level."""
        b = self.batch
        zero = np.zeros(b.rows, np.int64)
        is_output = tensor == b.problem.output
        delivered = self._least_deliveries(tensor, self.child(tensor, level), level)
        fills = self._least_deliveries(tensor, level, level) if level < b.levels - 1 else zero
        reads = np.maximum(delivered - self.partition(tensor, level), 0) if is_output else delivered
        return Counts(self.tile(tensor, level), b.instances[level], reads, fills, delivered if is_output else zero)

    def _least_deliveries(self, tensor: str, child: int, level: int) -> Column:
        """Let the loops of each level that do not index a tensor lie inside; of overlapping tiles, let every element come once."""
        if child < 0:
            return self.deliveries(tensor, child, level)
        b, is_output = self.batch, tensor == self.batch.problem.output
        if not is_output and self._has_halo(tensor):

            def digits(d: int) -> list[tuple[Column | int, Column]]:
                outer = [(b.temporal_step[k, d], b.temporal[k, d]) for k in range(child + 1, b.levels)]
                return [*self._union_digits(d, child, level), *outer]

            return self._footprint(tensor, digits)
        forgets = self.reading is Reading.DATA
        if forgets and is_output:
            return self.deliveries(tensor, child, level, always=True)
        moves = self._moves(tensor)
        has_changed = np.zeros(b.rows, np.bool_)
        total = self._footprint(tensor, lambda d: self._union_digits(d, child, level))
        for row in range(child + 1, b.levels):
            relevant, others = b.temporal[row][moves].prod(axis=0), b.temporal[row][~moves].prod(axis=0)
            total = total * relevant * (1 if forgets else np.where(has_changed, others, 1))
            has_changed |= relevant > 1
        return total

    def tile(self, tensor: str, level: int) -> Column:
        """Return the elements of a tensor that one instance of a level holds."""
        if not self.spans:
            return self._footprint(tensor, lambda d: [(1, self.batch.extent[level, d])])
        extent, total = self.batch.extent[level], np.ones(self.batch.rows, np.int64)
        for axis in self.batch.problem.spaces[tensor]:
            span: Column | int = 1 - sum(axis.values())
            for d, coefficient in axis.items():
                span = span + coefficient * extent[self._index[d]]
            total = total * span
        return total

    def partition(self, tensor: str, level: int) -> Column:
        """Return the distinct elements that one instance of a level sees in the whole run."""

        def digits(d: int) -> list[tuple[Column | int, Column]]:
            outer = [(self.batch.temporal_step[k, d], self.batch.temporal[k, d]) for k in range(level + 1, self.batch.levels)]
            return [(1, self.batch.extent[level, d]), *outer]

        return self._footprint(tensor, digits)

    def _footprint(self, tensor: str, digits: Digits) -> Column:
        """Return the elements that digits of each dimension reach."""
        rows = self.batch.rows
        total = np.ones(rows, np.int64)
        for axis in self.batch.problem.spaces[tensor]:
            total = total * _axis_count(axis, self._index, digits, rows)
        return total

    def deliveries(self, tensor: str, child: int, level: int, always: bool = False) -> Column:
        """Return the elements that all instances of a child below one instance of a level get in the whole run, each once.

        Units take their operands at every step. With `always`, as of partial sums, whole tiles go; read by data, at every step outside.
        """
        union = self._footprint(tensor, lambda d: self._union_digits(d, child, level))
        if child < 0:
            return union * self.batch.steps if level >= 0 else union
        if always and self.reading is Reading.DATA:
            return union * self._steps_outside(child)
        if always or (self.reading is Reading.LOOPS and (self.halo is Halo.TILE or not self._has_halo(tensor))):
            return union * self.changes(tensor, child)
        return self._incremental(tensor, child, self.parent(tensor, child))[level > child]

    def _steps_outside(self, level: int) -> Column:
        return np.asarray(self.batch.temporal[level + 1 :].prod(axis=(0, 1)), np.int64)

    def changes(self, tensor: str, level: int) -> Column:
        """Return how often the tile of an instance of a level changes, the first fill included."""
        moves = self._moves(tensor)
        has_changed = np.zeros(self.batch.rows, np.bool_)
        total = np.ones(self.batch.rows, np.int64)
        for loop in self.batch.outside(level):
            has_changed |= moves[loop.dimension] & loop.turns
            total *= np.where(has_changed, loop.count, 1)
        return total

    def _has_halo(self, tensor: str) -> bool:
        return any(len(axis) > 1 for axis in self.batch.problem.spaces[tensor])

    def _union_digits(self, d: int, child: int, level: int) -> list[tuple[Column | int, Column]]:
        """Return what the instances of a child below a level cover of a dimension at a time."""
        tile = [(1, self.batch.extent[child, d])] if child >= 0 else []
        return [*tile, *self._copies(d, child, level)]

    def _copies(self, d: int, child: int, level: int) -> list[tuple[Column | int, Column]]:
        return [(self.batch.spatial_step[k, d], self.batch.spatial[k, d]) for k in range(child + 1, level + 1)]

    def _incremental(self, tensor: str, child: int, level: int) -> tuple[Column, Column]:
        """Return what one instance of a child, and all below one instance of a level, get: the first tile and what each advance brings."""
        if (tensor, child) not in self._walks:
            walk = _Walk(self, tensor, child, level)
            one, every = math.prod(a.elements for a in walk.axes), math.prod(a.union for a in walk.axes)
            totals = one * np.ones_like(self.batch.steps), every * np.ones_like(self.batch.steps)
            for loop in self.batch.outside(child):
                is_relevant = walk.moves[loop.dimension] & loop.turns
                counted = np.flatnonzero(is_relevant if self.reading is Reading.DATA else loop.turns & (is_relevant | walk.wraps))
                if len(counted):
                    for total, part in zip(totals, walk.brought(loop, counted), strict=True):
                        total[counted] += loop.advances[counted] * part
                walk.enclose(loop, is_relevant)
            self._walks[tensor, child] = totals
        return self._walks[tensor, child]


class _Walk:
    """The temporal loops outside of a tile, from the inside: how far along each axis those so far go back when they wrap."""

    def __init__(self, engine: Engine, tensor: str, child: int, level: int) -> None:
        batch = engine.batch
        self.engine = engine
        self.coefficients = engine._coefficients[tensor].copy()  # the greatest common one of each axis taken out
        self.moves = engine._moves(tensor)
        self.wraps = np.zeros(batch.rows, np.bool_)
        self.back = [np.zeros(batch.rows, np.int64) for _ in self.coefficients]
        self.axes: list[Sliding] = []
        for projection, coefficients in zip(batch.problem.spaces[tensor], self.coefficients, strict=True):
            tile = _scaled(projection, engine._index, lambda d: [(1, batch.extent[child, d])], batch.rows)
            copies = _scaled(projection, engine._index, lambda d: engine._copies(d, child, level), batch.rows)
            self.axes.append(sliding(tile, copies, batch.rows, len(projection) < 2))  # noqa: PLR2004 -- one dimension
            coefficients //= max(int(np.gcd.reduce(coefficients)), 1)

    def brought(self, loop: TemporalLoop, rows: NDArray[np.intp]) -> tuple[Column, Column]:
        """Return what one advance of a loop brings to one copy and to all: the elements but those that stay on every axis."""
        forgets = self.engine.reading is Reading.DATA
        dimension, step = loop.dimension[rows], loop.step[rows]
        sizes = [np.ones(len(rows), np.int64)] * 2
        stays = [*sizes]
        for axis, coefficients, back in zip(self.axes, self.coefficients, self.back, strict=True):
            shift = coefficients[dimension] * step
            arrivals = axis.arrivals(shift if forgets else shift - back[rows], rows)
            for k, size in enumerate((axis.elements[rows], axis.union[rows])):
                sizes[k] = sizes[k] * size
                stays[k] = stays[k] * (size - arrivals[k])
        if self.engine.halo is Halo.TILE:
            return sizes[0], sizes[1]
        one, every = (size - stay for size, stay in zip(sizes, stays, strict=True))
        if not forgets:
            return one, every
        wraps = self.wraps[rows]
        return np.where(wraps, sizes[0], one), np.where(wraps, sizes[1], every)

    def enclose(self, loop: TemporalLoop, is_relevant: Mask) -> None:
        """Let a loop be inside of the loops to come."""
        self.wraps |= is_relevant
        distance = loop.step * (loop.count - 1)
        for k, coefficients in enumerate(self.coefficients):
            self.back[k] = self.back[k] + coefficients[loop.dimension] * distance


def _scaled(projection: Projection, index: Mapping[str, int], digits: Digits, rows: int) -> list[Digit]:
    """Return an axis' digits; those of one dimension that join are one, those that never turn are none."""
    common = int(np.gcd.reduce([*projection.values()])) if projection else 1
    columns: list[Digit] = []
    for d, coefficient in projection.items():
        for step, count in _joined(digits(index[d])):
            if (count > 1).any():
                columns.append((np.broadcast_to(step * (coefficient // common), rows), count))
    return columns


def _joined(digits: Sequence[tuple[Column | int, Column]]) -> list[tuple[Column | int, Column]]:
    """Join digits of one dimension whose steps continue each other in every row."""
    joined: list[tuple[Column | int, Column]] = []
    for step, count in digits:
        if joined and bool(((joined[-1][0] * joined[-1][1] == step) | (count == 1)).all()):
            joined[-1] = (joined[-1][0], joined[-1][1] * count)
        else:
            joined.append((step, count))
    return joined


def _axis_count(projection: Projection, index: Mapping[str, int], digits: Digits, rows: int) -> Column:
    if len(projection) == 1:  # digits of one dimension never meet
        (d,) = projection
        total = np.ones(rows, np.int64)
        for _, count in digits(index[d]):
            total = total * count
        return total
    return distinct(_scaled(projection, index, digits, rows), rows)
