"""Access bounds: for each memory the hull of the elements that a step may read or write, by intervals of its addresses.

They follow from control state and operands, as a footprint does, but take a walk over terms and no grids of indices. They may name
elements that are not touched: what is disjoint by bounds is disjoint, what overlaps must be decided by footprints.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from ...lang import intervals as iv
from ...lang.binders import Array, Leaf
from ...lang.expr import Expr
from ...lang.step import Let, Loop, Seq, Step, Together, Update, When, updates_of
from ..arrays.labelled_array import Data
from .control_intervals import ControlIntervals, Part
from .dependence_test import loads_and_binders

Bounds = tuple[int, int]


@dataclass
class AccessBounds:
    """The first and the last row-major element number that may be accessed, by memory."""

    reads: dict[Leaf, Bounds] = field(default_factory=dict)
    writes: dict[Leaf, Bounds] = field(default_factory=dict)


def access_bounds(
    step: Step, result: Array | None, memories: Mapping[Leaf, Sequence[int]], contents: Mapping[Leaf, Data]
) -> tuple[AccessBounds, Collection[Part]]:
    """Return bounds of what `step`, followed by a read of `result`, accesses in `memories`, given by their shapes.

    `contents` are the values of control state and operands before the step; all values of a column of operands count. The bounds
    depend on the hulls of those parts of them that are returned, too.
    """
    updated_memories = frozenset(u.memory for u in updates_of(step))
    walk = _Walk(memories, {leaf: x for leaf, x in contents.items() if leaf not in updated_memories})
    walk.step(step)
    if result is not None:
        walk.loads(result[(0,) * result.rank])
    return walk.bounds, walk.parts


@lru_cache(maxsize=4096)
def _loads_and_binders(e: Expr) -> tuple[list[Expr], dict[Expr, Expr]]:
    return loads_and_binders(e)


class _Walk(ControlIntervals):
    """The accesses of steps, collected."""

    def __init__(self, memories: Mapping[Leaf, Sequence[int]], contents: Mapping[Leaf, Data]) -> None:
        super().__init__(contents)
        self.memories, self.bounds = memories, AccessBounds()

    def step(self, step: Step) -> None:
        """Add the accesses of a step."""
        if isinstance(step, Update):
            self.update(step)
        elif isinstance(step, Seq | Together):
            for part in step.steps if isinstance(step, Seq) else step.updates:
                self.step(part)
        elif isinstance(step, When):
            low, high = self.interval(step.condition)
            self.loads(step.condition)
            if high != 0:
                self.step(step.then)
            if low == 0 or low is None:
                self.step(step.otherwise)
        elif isinstance(step, Loop):
            if self.bind(step.variable, step.extent):
                self.step(step.body)
        elif isinstance(step, Let):
            self.loads(step.array[(0,) * step.array.rank])
            self.step(step.body)

    def update(self, u: Update) -> None:
        """Add the accesses of an update: what it writes, what its value and its address read."""
        if not all(self.bind(v, n) for v, n in zip(u.variables, u.extents, strict=True)):
            return
        self.access(self.bounds.writes, u.memory, u.address)
        for term in (u.value, *u.address):
            self.loads(term)

    def loads(self, term: Expr) -> None:
        """Add the loads below a term."""
        loads, extents = _loads_and_binders(term)
        for variable, extent in extents.items():
            self.bind(variable, extent)
        for load in loads:
            self.access(self.bounds.reads, load.data, load.args)

    def access(self, accesses: dict[Leaf, Bounds], memory: Leaf, address: Sequence[Expr]) -> None:
        """Add an access: whole vectors, which run along the last of several axes."""
        shape = self.memories.get(memory)
        if shape is None:
            return
        first, last, size = 0, 0, math.prod(shape)
        for axis, (index, extent) in enumerate(zip(address, shape, strict=True)):
            low, high = self.interval(index)
            if axis and axis == len(shape) - 1:
                low, high = iv.hull((low, high), (0, extent - 1))
            if low is None or high is None:
                first, last = 0, size - 1
                break
            first, last = first * extent + low, last * extent + high
        first, last = max(first, 0), min(last, size - 1)
        if first <= last:
            before = accesses.get(memory, (first, last))
            accesses[memory] = min(before[0], first), max(before[1], last)
