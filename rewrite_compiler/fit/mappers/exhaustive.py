"""The exhaustive mapper: every tiling, its best orders only where the bound below all of them leaves hope."""

from __future__ import annotations

import itertools

import numpy as np

from ...errors import InputError
from ..mapping.columns import equal_columns, lexical_keys
from ..mapping.orders import MAX_LOOPS
from ..mapping.space import CHUNK, Genomes, Index
from .search import Search, Stop

MAX_TILINGS = 20_000_000  # that are listed at all


def exhaustive(search: Search) -> Stop:
    """Price what the bound does not rule out; the result is optimal if the search is complete.

    Raises:
        InputError: there are too many tilings, or loops whose orders to list (F231).
    """
    space = search.space
    if space.tilings > MAX_TILINGS:
        sentence = f"The exhaustive mapper lists at most {MAX_TILINGS:,} tilings, not {space.tilings:,}: constrain tiles, or use another"
        raise InputError("F231", sentence)
    if not space.has_every_order:
        sentence = (
            f"The exhaustive mapper lists the orders of at most {MAX_LOOPS} loops: constrain their order at each memory, or use another"
        )
        raise InputError("F231", sentence)
    for factors in space.every_tiling():
        if not factors.shape[1]:
            continue
        bounds = search.bounds(factors)
        ranked = np.argsort(bounds, kind="stable")
        hopeful = ranked[bounds[ranked] < search.best_value]
        for start in range(0, len(hopeful), CHUNK // 8):
            part = hopeful[start : start + CHUNK // 8]
            part = part[bounds[part] < search.best_value]
            search.values(every_order(search, factors[:, part]))
            if search.remaining <= 0:
                return Stop.BUDGET
    search.bound = search.best_value
    return Stop.COMPLETE


def every_order(search: Search, factors: Index) -> Genomes:
    """Return tilings with all orders that a counter can tell apart."""
    space = search.space
    bits = space.turning(factors)
    groups: list[Genomes] = []
    for columns in equal_columns(lexical_keys(bits)):
        choices = [space.classes_of(k, value).tolist() for k, value in enumerate(bits[:, columns[0]].tolist())]
        orders = np.array(list(itertools.product(*choices)), np.intp).reshape(-1, len(bits)).T
        groups.append(Genomes(np.repeat(factors[:, columns], orders.shape[1], axis=1), np.tile(orders, len(columns))))
    if not groups:
        return Genomes(factors, np.zeros((len(space.ordered_rows), 0), np.intp))
    return Genomes(np.concatenate([g.factors for g in groups], axis=1), np.concatenate([g.orders for g in groups], axis=1))
