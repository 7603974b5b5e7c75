"""Moves: neighbours, crossings and mutations of points of a space."""

from __future__ import annotations

import itertools

import numpy as np

from ..mapping.columns import Column, lexical_keys
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


def exchanges(space: Space, point: Genomes) -> Genomes:
    """Return every point in which two dimensions trade: one moves a factor from one place to another, the other one back.

    Tiles, parts and steps may so keep their sizes where a move of one dimension alone breaks a capacity or leaves units idle.
    """
    moves = [_moves(table, row) for table, row in zip(space.tables, point.factors[:, 0].tolist(), strict=True)]
    columns = [point.factors[:, :0]]
    for d, e in itertools.combinations(range(len(moves)), 2):
        (rows, source, target), (others, other_source, other_target) = moves[d], moves[e]
        first, second = np.nonzero((source[:, None] == other_target) & (target[:, None] == other_source))
        traded = np.repeat(point.factors, len(first), axis=1)
        traded[d], traded[e] = rows[first], others[second]
        columns.append(traded)
    tilings = np.concatenate(columns, axis=1)
    return Genomes(tilings, np.repeat(point.orders, tilings.shape[1], axis=1))


def _moves(table: Column, row: int) -> tuple[Index, Index, Index]:
    """Return the factorisations that move a factor between two places, and the places that lose and gain it."""
    rows = np.flatnonzero((table != table[row]).sum(axis=1) == 2)  # noqa: PLR2004 -- a pair of places
    source, target = (table[rows] < table[row]).argmax(axis=1), (table[rows] > table[row]).argmax(axis=1)
    keeps = table[rows, target] % table[row, target] == 0
    return rows[keeps], source[keeps], target[keeps]


def refine(search: Search, point: Genomes, value: float) -> None:
    """Let dimensions of a point trade, and go downhill from what is better, until neither helps."""
    while point.count and search.remaining and not search.is_close:
        traded = exchanges(search.space, point)
        traded = traded.selected(np.flatnonzero(search.bounds(traded.factors) < value))
        better, better_value = _least(traded, search.values(traded))
        if better_value >= value:
            return
        point, value = descend(search, better, np.array([better_value]), search.remaining)


def descend(search: Search, points: Genomes, values: Values, allowance: int) -> tuple[Genomes, float]:
    """Let points go to their best neighbours, all at once, until none has a better one; two that meet go on as one; return the best.

    Of other tilings those are priced whose bound lies below the point.
    """
    last = search.evaluated + allowance
    best, least = _least(points, values)
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
        best, least = min((best, least), _least(points, values), key=lambda pair: pair[1])
    return best, least


def _least(points: Genomes, values: Values) -> tuple[Genomes, float]:
    """Return the best point alone with its value, none where there are none."""
    first = np.argsort(values, kind="stable")[:1]
    return points.selected(first), float(values.min(initial=np.inf))


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
