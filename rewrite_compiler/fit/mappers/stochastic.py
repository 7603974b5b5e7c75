"""Mappers that draw: random, genetic, and anytime, which goes from one to the other and then downhill."""

from __future__ import annotations

import numpy as np

from ..mapping.space import CHUNK, Genomes
from ..models.model import Values
from .moves import crossed, descend, mutated
from .search import Search, Stop

POPULATION = 200
RATE = 0.15  # of genes that a child draws anew
ELITE = 0.25


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
    children = mutated(search.space, search.rng, crossed(search.rng, parents, count), RATE)
    union = parents.joined(children)
    union_values = np.concatenate([values[elite], search.values(children)])
    best = np.argsort(union_values, kind="stable")[: population.count]
    return union.selected(best), union_values[best]


def _first(search: Search, count: int) -> tuple[Genomes, Values]:
    population = search.space.sample(count, search.rng)
    return population, search.values(population)


def anytime(search: Search) -> Stop:
    """Draw, breed, and go downhill from the best points, one after the other, as long as there is budget."""
    while search.remaining > 0:
        share = max(search.remaining // 8, 64)
        population, values = _first(search, min(share, search.remaining))
        for _ in range(4):
            if search.remaining > 0:
                population, values = generation(search, population, values)
        for start in np.argsort(values, kind="stable")[:4].tolist():
            if search.remaining > 0 and np.isfinite(values[start]):
                descend(search, population.selected(slice(start, start + 1)), float(values[start]), search.remaining)
    return Stop.BUDGET
