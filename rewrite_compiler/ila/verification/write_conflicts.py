"""Write conflicts: elements that the parts of one parallel step write more than once, so that their value is undefined.

An address that depends on the state is not analysed: whether it conflicts depends on the instructions before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...errors import SpecError
from ...lang.binders import Comprehension, Leaf, static_shape
from ...lang.expr import const
from ...lang.step import Update
from ...lang.substitution import substitute
from ...readings.arrays.labelled_array import Data
from ...readings.kernels.evaluate import evaluate

MOST = 1 << 18  # elements that one update writes


def find_write_conflict(updates: Sequence[Update]) -> tuple[Leaf, tuple[int, ...]] | None:
    """Return a memory and the index of an element that parallel updates write more than once; None where none is found."""
    places: dict[Leaf, list[Data]] = {}
    for u in updates:
        places.setdefault(u.memory, []).extend(_places(u))
    for memory, indices in places.items():
        sorted_indices = np.sort(np.concatenate([x.reshape(-1) for x in indices])) if indices else np.zeros(0)
        duplicates = sorted_indices[1:][sorted_indices[1:] == sorted_indices[:-1]]
        if len(duplicates):
            return memory, tuple(int(n) for n in np.unravel_index(int(duplicates[0]), static_shape(memory)))
    return None


def _places(u: Update) -> list[Data]:
    """Return the flat indices of the elements that an update writes, outer loop variables being 0; nothing where they are unknown."""
    extents = [n.value for n in u.extents]
    is_known = not any(a.reads for a in u.address) and all(isinstance(n, int) for n in u.memory.shape)
    if not is_known or None in extents or not 0 < math.prod(int(n or 0) for n in extents) <= MOST:
        return []
    outer = {v: const(0) for v in frozenset().union(*(a.free for a in u.address)) - frozenset(u.variables)}
    shape, variables = tuple(int(n or 0) for n in extents), u.variables
    try:
        terms = [substitute(a, outer) for a in u.address]
        axes = [np.asarray(evaluate(Comprehension(shape, t.interval, False, variables, t), {}), np.int64) for t in terms]
    except SpecError:  # a term without a value there, or a fold over a loop's variable
        return []
    bounds = static_shape(u.memory)
    if any((x < 0).any() or (x >= n).any() for x, n in zip(axes, bounds, strict=True)):
        return []  # outside of the memory, which is another problem
    return [np.ravel_multi_index(axes, bounds) if axes else np.zeros(shape, np.int64)]
