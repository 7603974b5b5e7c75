"""Moves: neighbours, crossings and mutations of points of a space."""

from __future__ import annotations

import numpy as np

from ..mapping.columns import lexical_keys
from ..mapping.space import Genomes, Index, Space, joined_all
from ..models.model import Values
from .search import Search


def other_tilings(space: Space, point: Genomes) -> Genomes:
    """Return every point that differs in the factorisation of one dimension."""
    factors = []
    for d, table in enumerate(space.tables):
        columns = np.repeat(point.factors, len(table), axis=1)
        columns[d] = np.arange(len(table))
        factors.append(np.delete(columns, point.factors[d], axis=1))
    tilings = np.concatenate(factors, axis=1)
    return Genomes(tilings, np.repeat(point.orders, tilings.shape[1], axis=1))


def other_orders(space: Space, point: Genomes) -> Genomes:
    """Return every point that differs, as counters see it, in one order."""
    orders = []
    for k, bits in enumerate(space.turning(point.factors)[:, 0].tolist()):
        classes = space.classes_of(k, bits)
        columns = np.repeat(point.orders, len(classes), axis=1)
        columns[k] = classes
        orders.append(columns)
    columns = np.concatenate([point.orders[:, :0], *orders], axis=1)
    return Genomes(np.repeat(point.factors, columns.shape[1], axis=1), columns)


def descend(search: Search, points: Genomes, values: Values, allowance: int) -> None:
    """Let points go to their best neighbours, all at once, until none has a better one; two that meet go on as one.

    Of other tilings those are priced whose bound lies below the point.
    """
    last = search.evaluated + allowance
    while points.count and search.remaining and search.evaluated < last and not search.is_close:
        nearby, owners = _hopeful(search, points, values)
        if nearby.count > search.remaining:
            drawn = search.rng.permutation(nearby.count)[: search.remaining]
            nearby, owners = nearby.selected(drawn), owners[drawn]
        nearby_values = search.values(nearby)
        ranked = np.lexsort((nearby_values, owners))
        first = ranked[np.unique(owners[ranked], return_index=True)[1]]  # of each point that has neighbours the best one
        better = first[nearby_values[first] < values[owners[first]]]
        keys = lexical_keys(np.concatenate([nearby.factors, nearby.orders])[:, better])
        better = better[np.sort(np.unique(keys, return_index=True)[1])]
        points, values = nearby.selected(better), nearby_values[better]


def _hopeful(search: Search, points: Genomes, values: Values) -> tuple[Genomes, Index]:
    """Return the neighbours of points whose bounds lie below these, and the number of the point that each is next to."""
    each = [points.selected(slice(k, k + 1)) for k in range(points.count)]
    tilings, orders = ([neighbours_of(search.space, p) for p in each] for neighbours_of in (other_tilings, other_orders))
    next_to = np.repeat(np.arange(points.count), [g.count for g in tilings])
    together = joined_all(tilings)
    hopeful = np.flatnonzero(search.bounds(together.factors) < values[next_to])
    nearby = joined_all([together.selected(hopeful), *orders])
    return nearby, np.concatenate([next_to[hopeful], np.repeat(np.arange(points.count), [g.count for g in orders])])


def crossed(rng: np.random.Generator, parents: Genomes, count: int) -> Genomes:
    """Return children that take each dimension, and each order, from one of two parents."""
    pairs = rng.integers(parents.count, size=(2, count))
    factors, orders = (
        np.where(rng.random((len(rows), count)) < 0.5, rows[:, pairs[0]], rows[:, pairs[1]])  # noqa: PLR2004 -- a fair coin
        for rows in (parents.factors, parents.orders)
    )
    return Genomes(factors, orders)


def mutated(space: Space, rng: np.random.Generator, points: Genomes, rate: float) -> Genomes:
    """Return points with some factorisations and orders drawn anew: another tile, another parallel dimension, another order."""
    factors, orders = points.factors.copy(), points.orders.copy()
    for d, table in enumerate(space.tables):
        columns = np.flatnonzero(rng.random(points.count) < rate)
        factors[d, columns] = rng.integers(len(table), size=len(columns))
    for k, classes in enumerate(space.orders):
        columns = np.flatnonzero(rng.random(points.count) < rate)
        orders[k, columns] = rng.integers(len(classes), size=len(columns))
    return Genomes(factors, orders)
