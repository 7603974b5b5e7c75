"""Tiles of the first memory inside of the outermost one: what must cross between the two with each of them, in its best order.

A layer that does not fit there is brought in parts, some of it more than once: a bound on that is the least over all tiles that fit.
Where sums are cut on the outside and the result's tile is larger than the units hold, every part of a sum comes back to this memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..mapping.columns import Batch, Column, distinct_values, equal_columns, lexical_keys
from ..mapping.engine import Engine
from ..mapping.space import Index, Space
from ..models.model import CostModel, Values

MAX_TILES, MAX_ROWS = 20_000, 40_000  # that are looked at


@dataclass(frozen=True)
class OuterTiles:
    """By tile: how often dimensions are cut outside, elements that cross and their energy, parts of each sum, results in a tile."""

    counts: Column
    elements: Column
    energy: Values
    parts_of_sums: Column
    results: Column

    def selected(self, rows: Index) -> OuterTiles:
        """Return some of the tiles."""
        return OuterTiles(self.counts[:, rows], self.elements[rows], self.energy[rows], self.parts_of_sums[rows], self.results[rows])


def outer_tiles(space: Space, model: CostModel) -> OuterTiles | None:
    """Return the tiles that fit, but for those that another one is no worse than in everything; None where they are not looked at.

    That is where the outermost memory has sub-clusters, a tensor passes the next one by, or there are too many tiles or orders.
    """
    outermost, memory = space.clusters.levels[:2] if len(space.clusters.levels) > 1 else (None, None)
    if outermost is None or memory is None or outermost.children > 1 or memory.is_virtual or memory.capacity is None:
        return None
    if (
        not space.has_every_order
        or space.constraints.bypass.get(memory.name)
        or any(len(a) > 1 for a in space.problem.spaces[space.problem.output])
    ):
        return None
    counts = _counts(space)
    if counts is None:
        return None
    engine = model.engine(_batch(space, counts), (frozenset(), frozenset()))
    counts = counts[:, np.sum([engine.tile(t, 0) for t in space.problem.spaces], axis=0) <= memory.capacity]
    counts = _largest(space, counts)
    rows = _ordered(space, counts)
    if rows is None or not counts.shape[1]:
        return None
    tiles = _priced(space, model, counts, *rows)
    return tiles.selected(_undominated(tiles))


def _counts(space: Space) -> Column | None:
    """Return how often each dimension is cut on the outside, one column a tile."""
    last = len(space.slots) - 1
    choices = [distinct_values(table[:, last]) for table in space.tables]
    if math.prod(len(c) for c in choices) > MAX_TILES:
        return None
    grid = np.meshgrid(*choices, indexing="ij")
    return np.array(grid, np.int64).reshape(len(choices), -1)


def _batch(space: Space, counts: Column, order: Index | None = None) -> Batch:
    sizes = np.array(list(space.problem.dimensions.values()), np.int64)[:, None]
    temporal = np.stack([sizes // counts, counts])
    order = np.broadcast_to(np.arange(len(sizes))[:, None], counts.shape) if order is None else order
    return Batch(space.problem, temporal, np.ones_like(temporal), np.stack([order, order]))


def _largest(space: Space, counts: Column) -> Column:
    """Leave tiles out that fit as well with more of a summed dimension that no window shares: that is no worse in anything."""
    problem = space.problem
    shared = {d for axes in problem.spaces.values() for axis in axes if len(axis) > 1 for d in axis}
    for k, d in enumerate(problem.names):
        if d in problem.relevant(problem.output) or d in shared:
            continue
        sizes, number = np.unique(counts[k], return_inverse=True)
        _, group = np.unique(lexical_keys(np.delete(counts, k, axis=0)), return_inverse=True)
        fits = np.zeros((int(group.max(initial=-1)) + 1, len(sizes)), np.bool_)
        fits[group, number] = True
        divides = (sizes[None, :] % sizes[:, None] == 0) & (sizes[None, :] > sizes[:, None])
        counts = counts[:, ~(fits @ divides)[group, number]]
    return counts


def _ordered(space: Space, counts: Column) -> tuple[Index, Index] | None:
    """Return columns of tiles and orders of the outermost loops, each tile with every order that counters tell apart."""
    k = len(space.ordered_rows) - 1
    bits = ((counts > 1).astype(np.int64) << np.arange(len(counts))[:, None]).sum(axis=0)
    columns, orders, total = [], [], 0
    for members in equal_columns(bits):
        classes = space.classes_of(k, int(bits[members[0]]))
        total += len(members) * len(classes)
        if total > MAX_ROWS:
            return None
        columns.append(np.repeat(members, len(classes)))
        orders.append(np.tile(classes, len(members)))
    if not columns:
        return np.zeros(0, np.intp), np.zeros((len(counts), 0), np.intp)
    return np.concatenate(columns), space.orders[k][np.concatenate(orders)].T


def _priced(space: Space, model: CostModel, counts: Column, columns: Index, order: Index) -> OuterTiles:
    problem, (outermost, memory) = space.problem, space.clusters.levels[:2]
    engine = model.engine(_batch(space, counts[:, columns], order), (frozenset(), frozenset()))
    crossing, delivered = _crossing(engine)
    energies = space.clusters.energies
    energy = crossing * float(energies.get(outermost.name, 0)) + delivered * float(energies.get(memory.name, 0))
    least_elements, least_energy = np.full(counts.shape[1], np.iinfo(np.int64).max), np.full(counts.shape[1], np.inf)
    np.minimum.at(least_elements, columns, crossing)
    np.minimum.at(least_energy, columns, energy)
    summed = [k for k, d in enumerate(problem.names) if d not in problem.relevant(problem.output)]
    results = model.engine(_batch(space, counts), (frozenset(), frozenset())).tile(problem.output, 0)
    return OuterTiles(counts, least_elements, least_energy, counts[summed].prod(axis=0), results)


def _crossing(engine: Engine) -> tuple[Column, Column]:
    """Return accesses of the outermost memory, and elements that come to the next one."""
    problem = engine.batch.problem
    crossing = delivered = np.zeros(engine.batch.rows, np.int64)
    for tensor in problem.spaces:
        is_output = tensor == problem.output
        n = engine.deliveries(tensor, 0, 1, always=is_output)
        delivered = delivered + n
        crossing = crossing + (2 * n - engine.partition(tensor, 1) if is_output else n)
    return crossing, delivered


def _undominated(tiles: OuterTiles) -> Index:
    """Return tiles than which no other is as good in all and better in one."""
    table = np.stack([tiles.energy, tiles.elements, tiles.parts_of_sums, tiles.results])
    first = np.lexsort(table[::-1])
    table = table[:, first]
    keeps: list[int] = []
    for column in range(table.shape[1]):
        earlier = table[:, np.array(keeps, np.intp)]
        if not (earlier <= table[:, column : column + 1]).all(axis=0).any():
            keeps.append(column)
    return np.asarray(first[keeps], np.intp)
