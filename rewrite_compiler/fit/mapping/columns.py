"""Columns of mappings: loop counts of many mappings of one problem, one row a mapping, levels innermost first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..problems.problem import Problem

Column = NDArray[np.int64]
Mask = NDArray[np.bool_]
MAX_KEY = 1 << 62


def distinct_values(column: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the distinct values of a column, the smallest first; np.unique alone would load masked arrays."""
    ordered = np.sort(column, axis=None)
    is_first = np.ones(len(ordered), np.bool_)
    is_first[1:] = ordered[1:] != ordered[:-1]
    return ordered[is_first]


def lexical_keys(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a number for each column of a table: two are equal, or one less, as the columns are read from the first row on."""
    keys, count = np.zeros(rows.shape[1], np.int64), 1
    for row in rows:
        least = int(row.min(initial=0))
        digits, span = row - least, int(row.max(initial=0)) - least + 1
        if count * span > MAX_KEY:
            keys, count = _ranks(keys)
            digits, span = _ranks(row)
        keys, count = keys * span + digits, count * span
    return keys


def equal_columns(keys: NDArray[np.int64]) -> Iterator[NDArray[np.intp]]:
    """Yield the places of each distinct key, the smallest key first."""
    if len(keys):
        order = np.argsort(keys, kind="stable")
        yield from np.split(order, np.flatnonzero(np.diff(keys[order])) + 1)


def _ranks(column: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    values, ranks = np.unique(column, return_inverse=True)
    return np.asarray(ranks.reshape(-1), np.int64), len(values)


@dataclass(frozen=True)
class TemporalLoop:
    """A temporal loop of every row: its count, the step it advances its dimension by, the dimension, and whether it turns at all."""

    count: Column
    step: Column
    dimension: NDArray[np.intp]
    turns: Mask
    advances: Column  # how often it advances itself: (count − 1) times the product of the loops outside


@dataclass(frozen=True)
class Batch:
    """Counts by (level, dimension, row), and the dimensions of each level's temporal loops, innermost first.

    Within a level the spatial loops are inside the temporal ones.
    """

    problem: Problem
    temporal: Column
    spatial: Column
    order: NDArray[np.intp]

    @property
    def rows(self) -> int:
        """Number of mappings."""
        return int(self.temporal.shape[2])

    @property
    def levels(self) -> int:
        """Number of levels."""
        return int(self.temporal.shape[0])

    @cached_property
    def spatial_step(self) -> Column:
        """How far a spatial loop's step goes along its dimension: the extents of all levels below."""
        extents = self.temporal * self.spatial
        return np.concatenate([np.ones_like(extents[:1]), np.cumprod(extents, axis=0)[:-1]])

    @cached_property
    def temporal_step(self) -> Column:
        """How far a temporal loop's step goes along its dimension."""
        return self.spatial_step * self.spatial

    @cached_property
    def extent(self) -> Column:
        """Steps of each dimension that one instance of a level runs through."""
        return self.temporal_step * self.temporal

    @cached_property
    def instances(self) -> tuple[Column, ...]:
        """Parallel instances of each level; the last entry counts the units."""
        per_level = self.spatial.prod(axis=1)
        counts = [np.ones(self.rows, np.int64)]
        for level in reversed(range(self.levels)):
            counts.append(counts[-1] * per_level[level])
        return (*reversed(counts[:-1]), counts[-1])

    @cached_property
    def steps(self) -> Column:
        """Temporal steps of the whole nest."""
        return np.asarray(self.temporal.prod(axis=(0, 1)), np.int64)

    @cached_property
    def loops(self) -> tuple[tuple[TemporalLoop, ...], ...]:
        """Temporal loops of each level, innermost first."""
        outer = np.ones(self.rows, np.int64)
        by_level: list[tuple[TemporalLoop, ...]] = []
        for level in reversed(range(self.levels)):
            order = self.order[level]
            counts = np.take_along_axis(self.temporal[level], order, axis=0)
            steps = np.take_along_axis(self.temporal_step[level], order, axis=0)
            ordered: list[TemporalLoop] = []
            for n, step, d in zip(counts[::-1], steps[::-1], order[::-1], strict=True):
                ordered.append(TemporalLoop(n, step, d, n > 1, (n - 1) * outer))
                outer = outer * n
            by_level.append(tuple(reversed(ordered)))
        return tuple(reversed(by_level))

    def outside(self, level: int) -> Iterator[TemporalLoop]:
        """Yield the temporal loops of the levels above one, innermost first; −1 stands for the units."""
        for loops in self.loops[level + 1 :]:
            yield from loops

    def selected(self, rows: NDArray[np.intp] | slice) -> Batch:
        """Return some of the rows."""
        return Batch(self.problem, self.temporal[:, :, rows], self.spatial[:, :, rows], self.order[:, :, rows])
