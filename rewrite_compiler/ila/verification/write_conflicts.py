"""Collisions: elements that the parts of one step write more than once in whatever state. Which of the values stays is not said.

An address that reads the state is not followed: whether it collides depends on what the instructions before have written.
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


def collision(updates: Sequence[Update]) -> tuple[Leaf, tuple[int, ...]] | None:
    """Return a memory and an element of it that updates which go together write more than once; None where none is known."""
    places: dict[Leaf, list[Data]] = {}
    for u in updates:
        places.setdefault(u.memory, []).extend(_places(u))
    for memory, found in places.items():
        every = np.sort(np.concatenate([x.reshape(-1) for x in found])) if found else np.zeros(0)
        twice = every[1:][every[1:] == every[:-1]]
        if len(twice):
            return memory, tuple(int(n) for n in np.unravel_index(int(twice[0]), static_shape(memory)))
    return None


def _places(u: Update) -> list[Data]:
    """Return the flat places of the elements that an update writes, the variables of loops around it 0; nothing where not known."""
    extents = [n.value for n in u.extents]
    is_known = not any(a.reads for a in u.address) and all(isinstance(n, int) for n in u.memory.shape)
    if not is_known or None in extents or not 0 < math.prod(int(n or 0) for n in extents) <= MOST:
        return []
    outer = {v: const(0) for v in frozenset().union(*(a.free for a in u.address)) - frozenset(u.variables)}
    shape, own = tuple(int(n or 0) for n in extents), u.variables
    try:
        terms = [substitute(a, outer) for a in u.address]
        axes = [np.asarray(evaluate(Comprehension(shape, t.interval, False, own, t), {}), np.int64) for t in terms]
    except SpecError:  # a term without a value there, or a fold over a loop's variable
        return []
    bounds = static_shape(u.memory)
    if any((x < 0).any() or (x >= n).any() for x, n in zip(axes, bounds, strict=True)):
        return []  # outside of the memory, which is another problem
    return [np.ravel_multi_index(axes, bounds) if axes else np.zeros(shape, np.int64)]
