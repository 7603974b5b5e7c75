"""Write conflicts: elements that the parts of one parallel step write more than once, so that their value is undefined.

What an address reads from the state is the same for all elements of a step where its index is, and counts as 0, and as 1, then. An address
that reads the state at varying places is not analysed: whether it conflicts depends on the instructions before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...errors import SpecError
from ...lang import intervals as iv
from ...lang.binders import Comprehension, Leaf, static_shape
from ...lang.expr import Expr, const
from ...lang.step import Update
from ...lang.substitution import substitute
from ...lang.traversal import terms_of
from ...readings.arrays.labelled_array import Data
from ...readings.kernels.evaluate import evaluate

STATES = (0, 1)  # what addresses read from the state: a conflict shows with either
MOST = 1 << 18  # elements that one update writes


def find_write_conflict(updates: Sequence[Update]) -> tuple[Leaf, tuple[int, ...]] | None:
    """Return a memory and the index of an element that parallel updates write more than once; None where none is found."""
    conflicts = [_conflict_at(updates, state) for state in STATES]
    return None if None in conflicts else conflicts[0]


def _conflict_at(updates: Sequence[Update], state: int) -> tuple[Leaf, tuple[int, ...]] | None:
    """Return a conflict where everything that addresses read from the state has one value."""
    places: dict[Leaf, list[Data]] = {}
    for u in updates:
        places.setdefault(u.memory, []).extend(_places(u, state))
    for memory, indices in places.items():
        sorted_indices = np.sort(np.concatenate([x.reshape(-1) for x in indices])) if indices else np.zeros(0)
        duplicates = sorted_indices[1:][sorted_indices[1:] == sorted_indices[:-1]]
        if len(duplicates):
            return memory, tuple(int(n) for n in np.unravel_index(int(duplicates[0]), static_shape(memory)))
    return None


def _without_state(address: Expr, variables: frozenset[Expr], state: int) -> Expr:
    """Return an address with a number for every reading of the state whose place is the same for all elements."""
    loads = [x for x in terms_of(address) if x.op == "load" and x.free.isdisjoint(variables) and iv.inside((state, state), x.interval)]
    return substitute(address, {x: const(state) for x in loads})


def _extent(u: Update, v: Expr, extent: Expr) -> int:
    """Return how many values of a variable are looked at: where its extent is not known one, or two where no address depends on it."""
    if extent.value is not None:
        return int(extent.value)
    high = extent.interval[1]
    return 2 if not any(v in a.free for a in u.address) and (high is None or high > 1) else 1


def _places(u: Update, state: int) -> list[Data]:
    """Return the flat indices of the elements that an update writes, outer loop variables being 0; nothing where they are unknown."""
    extents = [_extent(u, v, n) for v, n in zip(u.variables, u.extents, strict=True)]
    addresses = [_without_state(a, frozenset(u.variables), state) for a in u.address]
    is_known = not any(a.reads for a in addresses) and all(isinstance(n, int) for n in u.memory.shape)
    if not is_known or not 0 < math.prod(extents) <= MOST:
        return []
    outer = {v: const(0) for v in frozenset().union(*(a.free for a in addresses)) - frozenset(u.variables)}
    shape, variables = tuple(extents), u.variables
    try:
        terms = [substitute(a, outer) for a in addresses]
        axes = [np.asarray(evaluate(Comprehension(shape, t.interval, False, variables, t), {}), np.int64) for t in terms]
    except SpecError:  # a term without a value there, or a fold over a loop's variable
        return []
    bounds = static_shape(u.memory)
    if any((x < 0).any() or (x >= n).any() for x, n in zip(axes, bounds, strict=True)):
        return []  # outside of the memory, which is another problem
    return [np.ravel_multi_index(axes, bounds) if axes else np.zeros(shape, np.int64)]
