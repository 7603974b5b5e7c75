"""Mappers that construct: heuristic fills the arrays and the innermost memory, decoupled decides off-chip traffic first."""

from __future__ import annotations

import numpy as np

from ..mapping.space import Genomes, Index
from ..models.model import Objective, Values
from .exhaustive import every_order
from .moves import descend
from .search import Search, Stop

STARTS = 48
SAMPLES = 2048


def heuristic(search: Search) -> Stop:
    """Make the largest dimensions parallel and the innermost tiles full, let the order keep one tensor still, then go downhill."""
    space = search.space
    pool = space.sample(SAMPLES, search.rng).factors
    used = space.parts(pool).prod(axis=0).astype(np.float64)
    occupancy = _innermost(search, pool)
    legal = np.flatnonzero(np.isfinite(occupancy))
    ranked = legal[np.lexsort((-occupancy[legal], -used[legal]))][:STARTS]
    if not len(ranked):
        return Stop.LIMITED
    starts = _stationary(search, pool[:, ranked])
    values = search.values(starts)
    best = np.argsort(values, kind="stable")[:3]
    best = best[np.isfinite(values[best])]
    descend(search, starts.selected(best), values[best], search.remaining)
    return Stop.LIMITED if search.remaining > 0 else Stop.BUDGET


def _innermost(search: Search, factors: Index) -> Values:
    """Return the elements in the innermost memory, infinite where tiles do not fit."""
    batch = search.space.batch(Genomes(factors, np.zeros((len(search.space.ordered_rows), factors.shape[1]), np.intp)))
    engine = search.model.engine(batch, search.bypasses)
    occupancy = np.sum([engine.tile(t, 0) for t in search.space.problem.spaces], axis=0).astype(np.float64)
    return np.where(search.model.fits(search.space.clusters, batch, search.bypasses), occupancy, np.inf)


def _stationary(search: Search, factors: Index) -> Genomes:
    """Return tilings with orders that keep one tensor still at each memory."""
    space = search.space
    picks = []
    names = space.problem.names
    for k in range(len(space.ordered_rows)):
        stationary_orders = set()
        for tensor in space.problem.spaces:
            relevant = np.array([d in space.problem.relevant(tensor) for d in names])
            inside = np.cumprod(~relevant[space.orders[k]], axis=1).sum(axis=1)
            stationary_orders.add(int(np.argmax(inside)))
        picks.append(sorted(stationary_orders))
    grid = np.array(np.meshgrid(*picks, indexing="ij"), np.intp).reshape(len(picks), -1) if picks else np.zeros((0, 1), np.intp)
    return Genomes(np.repeat(factors, grid.shape[1], axis=1), np.tile(grid, factors.shape[1]))


def decoupled(search: Search) -> Stop:
    """Find the on-chip tiles with the least off-chip traffic first, then split these over the array and the innermost memory."""
    space = search.space
    pool = space.sample(SAMPLES, search.rng)
    off_chip = _off_chip(search, pool)
    outer_counts: set[tuple[int, ...]] = set()
    for start in np.argsort(off_chip, kind="stable").tolist():
        if search.remaining <= 0:
            return Stop.BUDGET
        extents = tuple(int(t[f, _outermost(search)]) for t, f in zip(space.tables, pool.factors[:, start].tolist(), strict=True))
        if not np.isfinite(off_chip[start]) or extents in outer_counts:
            continue
        outer_counts.add(extents)
        _on_chip(search, extents)
        if len(outer_counts) == STARTS:
            break
    if search.best is not None and search.remaining > 0:
        descend(search, search.best, np.array([search.best_value]), search.remaining)
    return Stop.LIMITED if search.remaining > 0 else Stop.BUDGET


def _outermost(search: Search) -> int:
    return len(search.space.slots) - 1


def _off_chip(search: Search, pool: Genomes) -> Values:
    """Return what crosses the outermost link at least."""
    batch = search.space.batch(pool)
    fits = search.model.fits(search.space.clusters, batch, search.bypasses)
    values = search.model.bound(search.space.clusters, batch, search.bypasses).values(Objective.BYTES)
    return np.where(fits, values, np.inf)


def _on_chip(search: Search, outer: tuple[int, ...]) -> None:
    """Price splits of on-chip tiles: outer counts stay, all else is drawn; then all orders of the best."""
    space = search.space
    allowed = [np.flatnonzero(t[:, _outermost(search)] == n) for t, n in zip(space.tables, outer, strict=True)]
    count = max(min(search.budget // (2 * STARTS), 512), 16)
    factors = np.stack([search.rng.choice(rows, 4 * count) for rows in allowed])
    factors = factors[:, space.keeps_rules(factors)][:, :count]
    if not factors.shape[1]:
        return
    bounds = search.bounds(factors)
    best = np.argsort(bounds, kind="stable")[:4]
    orders = every_order(search, factors[:, best[np.isfinite(bounds[best])]])
    limit = min(orders.count, count)
    search.values(orders.selected(search.rng.permutation(orders.count)[:limit]))
