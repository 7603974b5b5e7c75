"""Mappers that draw: random, genetic, and anytime, which goes from one to the other and then downhill."""

from __future__ import annotations

import numpy as np

from ..mapping.space import CHUNK, Genomes
from ..models.model import Values
from .feasibility import smallest_tiling
from .moves import crossed, descend, mutated, refine
from .search import Search, Stop

POPULATION = 200
RATE = 0.15  # of genes that a child draws anew
ELITE = 0.25
BROOD = 3  # children that are made for each that is priced: those of the least bounds
SHARES = 4  # rounds begin with one part of so many of what is left of the budget
MOST = 1024  # points that a round begins with
SPLITS = 16  # over the units that most points of a round have
DRAWS = 12  # tilings for each point of a round, of which those of the least bounds stay
STARTS = 8  # points of a round that go downhill
BARREN = 2  # rounds in a row without a better mapping, after which a search ends
NEAR = 0.02  # share that a better mapping may save where one such round is enough
UNIFORM = 8  # one point of so many is drawn from the whole space


def random(search: Search) -> Stop:
    """Price tilings and orders that are drawn uniformly."""
    while search.remaining > 0:
        search.values(search.space.sample(min(search.remaining, CHUNK), search.rng))
    return Stop.BUDGET


def genetic(search: Search) -> Stop:
    """Breed: children cross their parents by dimension; tiles, orders and parallel dimensions mutate; the old make room."""
    population, values = _first(search, min(POPULATION, max(search.budget // 8, 8)))
    while search.remaining > 0:
        population, values = generation(search, population, values)
    return Stop.BUDGET


def generation(search: Search, population: Genomes, values: Values) -> tuple[Genomes, Values]:
    """Return the next generation: the best of the last, and children of them."""
    ranked = np.argsort(values, kind="stable")
    elite = ranked[: max(int(len(ranked) * ELITE), 2)]
    parents = population.selected(elite)
    count = min(len(ranked), search.remaining)
    children = mutated(search.space, search.rng, crossed(search.rng, parents, BROOD * count), RATE)
    children = children.selected(np.argsort(search.bounds(children.factors), kind="stable")[:count])
    union = parents.joined(children)
    union_values = np.concatenate([values[elite], search.values(children)])
    best = np.argsort(union_values, kind="stable")[: population.count]
    return union.selected(best), union_values[best]


def _first(search: Search, count: int) -> tuple[Genomes, Values]:
    population = search.space.sample(count, search.rng)
    return population, search.values(population)


def anytime(search: Search) -> Stop:
    """Draw, breed, and go downhill from the best points, as long as there is budget and hope: near the bound, one round in vain ends it.

    A search that shows all it prices, without a tolerance, uses its budget up.
    """
    barren = 0
    while search.remaining > 0 and not search.is_close:
        if search.tolerance and (barren == BARREN or (barren and search.is_within(NEAR))):
            return Stop.LIMITED
        before = search.best_value
        population = _promising(search, min(max(search.remaining // SHARES, 64), MOST, search.remaining))
        values = search.values(population)
        if search.remaining > 0:
            population, values = generation(search, population, values)
        if search.best is None:  # memories are so small that few tilings fit: begin with the smallest
            population = search.space.with_orders(smallest_tiling(search.space), search.rng)
            values = search.values(population)
        best = np.argsort(values, kind="stable")[:STARTS]
        best = best[np.isfinite(values[best])]
        refine(search, *descend(search, population.selected(best), values[best], max(search.remaining // 2, 1)))
        barren = 0 if search.best_value < before or search.best is None else barren + 1
    return Stop.BOUND if search.is_close else Stop.BUDGET


def _promising(search: Search, count: int) -> Genomes:
    """Return points, most of them with the splits of the least bounds, and of the tilings drawn with these those of the least bounds."""
    space, splits = search.space, search.splits
    if splits is None or (splits.outer is None and not np.ptp(splits.values)):
        return space.sample(count, search.rng)
    is_flat = not np.ptp(splits.values)
    best = search.rng.permutation(len(splits.values))[:SPLITS] if is_flat else np.argsort(splits.values, kind="stable")[:SPLITS]
    parts, outer = splits.parts[:, best], None if splits.outer is None else splits.outer[:, best]
    draws = DRAWS * count if outer is None else DRAWS * count // 2
    factors = space.sample_of_splits(parts, draws, search.rng)
    if outer is not None:
        factors = np.concatenate([factors, space.sample_of_splits(parts, draws, search.rng, outer)], axis=1)
    ranked = np.argsort(search.bounds(factors), kind="stable")[: count - count // UNIFORM]
    promising = space.with_orders(factors[:, ranked], search.rng)
    return promising.joined(space.sample(count - promising.count, search.rng))
