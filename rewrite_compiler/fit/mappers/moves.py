"""Moves: neighbours, crossings and mutations of points of a space."""

from __future__ import annotations

import numpy as np

from ..mapping.space import Genomes, Space
from .search import Search


def neighbours(space: Space, point: Genomes) -> Genomes:
    """Return every point that differs in the factorisation of one dimension or, as counters see it, in one order."""
    factors, orders = [], []
    for d, table in enumerate(space.tables):
        columns = np.repeat(point.factors, len(table), axis=1)
        columns[d] = np.arange(len(table))
        factors.append(columns)
        orders.append(np.repeat(point.orders, len(table), axis=1))
    for k, bits in enumerate(space.turning(point.factors)[:, 0].tolist()):
        classes = space.classes_of(k, bits)
        columns = np.repeat(point.orders, len(classes), axis=1)
        columns[k] = classes
        orders.append(columns)
        factors.append(np.repeat(point.factors, len(classes), axis=1))
    return Genomes(np.concatenate(factors, axis=1), np.concatenate(orders, axis=1))


def descend(search: Search, point: Genomes, value: float, allowance: int) -> float:
    """Go to the best neighbour until none is better; return the last point's value."""
    last = search.evaluated + allowance
    while search.remaining and search.evaluated < last and not search.is_close:
        nearby = neighbours(search.space, point)
        nearby = nearby.selected(np.flatnonzero(search.bounds(nearby.factors) < value))
        if not nearby.count:
            return value
        if nearby.count > search.remaining:
            nearby = nearby.selected(search.rng.permutation(nearby.count)[: search.remaining])
        values = search.values(nearby)
        best = int(np.argmin(values))
        if not values[best] < value:
            return value
        point, value = nearby.selected(slice(best, best + 1)), float(values[best])
    return value


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
