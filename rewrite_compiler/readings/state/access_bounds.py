"""Access bounds: for each memory the hull of the elements that a step may read or write, by intervals of its addresses.

They follow from control state and operands, as a footprint does, but take a walk over terms and no grids of indices. They may name
elements that are not touched: what is disjoint by bounds is disjoint, what overlaps must be decided by footprints.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from ...lang import intervals as iv
from ...lang.binders import Array, FoldResult, Leaf
from ...lang.expr import ARITHMETIC, Expr, lift
from ...lang.intervals import Interval
from ...lang.step import Let, Loop, Seq, Step, Together, Update, When, updates_of
from ...lang.traversal import inner_terms
from ..arrays.labelled_array import Data
from .dependence_test import loads_and_binders

Bounds = tuple[int, int]


@dataclass
class AccessBounds:
    """The first and the last row-major element number that may be accessed, by memory, and at most how many values are computed."""

    reads: dict[Leaf, Bounds] = field(default_factory=dict)
    writes: dict[Leaf, Bounds] = field(default_factory=dict)
    values: int = 0  # of updates, each as often as its loops run, a sum counted by its addends


def access_bounds(step: Step, result: Array | None, memories: Mapping[Leaf, Sequence[int]], contents: Mapping[Leaf, Data]) -> AccessBounds:
    """Return bounds of what `step`, followed by a read of `result`, accesses in `memories`, given by their shapes.

    `contents` are the values of control state and operands before the step; all values of a column of operands count.
    """
    updated_memories = frozenset(u.memory for u in updates_of(step))
    walk = _Walk(memories, {leaf: x for leaf, x in contents.items() if leaf not in updated_memories})
    walk.step(step)
    if result is not None:
        walk.loads(result[(0,) * result.rank])
    return walk.bounds


@lru_cache(maxsize=4096)
def _loads_and_binders(e: Expr) -> tuple[list[Expr], dict[Expr, Expr]]:
    return loads_and_binders(e)


@lru_cache(maxsize=4096)
def _nested_reductions(e: Expr) -> frozenset[tuple[Expr, ...]]:
    """Return the extents of every nest of reductions and folds below a term, outermost first."""
    nests: dict[Expr, frozenset[tuple[Expr, ...]]] = {}

    def visit(x: Expr) -> frozenset[tuple[Expr, ...]]:
        if x not in nests:
            extents = x.args[1:] if x.op == "reduce" else (x.data.fold.extent,) if isinstance(x.data, FoldResult) else ()
            inner_nests = frozenset().union(*map(visit, inner_terms(x))) or {()}
            nests[x] = frozenset((*extents, *nest) for nest in inner_nests)
        return nests[x]

    return visit(e)


class _Walk:
    def __init__(self, memories: Mapping[Leaf, Sequence[int]], contents: Mapping[Leaf, Data]) -> None:
        self.memories, self.contents = memories, contents
        self.bounds = AccessBounds()
        self.variables: dict[Expr, Interval] = {}
        self.memo: dict[Expr, Interval] = {}
        self.iterations = 1  # of the loops around

    # -- steps

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
                iterations, self.iterations = self.iterations, self.iterations * self.largest(step.extent)
                self.step(step.body)
                self.iterations = iterations
        elif isinstance(step, Let):
            self.count(step.array[(0,) * step.array.rank], map(lift, step.array.shape))
            self.loads(step.array[(0,) * step.array.rank])
            self.step(step.body)

    def update(self, u: Update) -> None:
        """Add the accesses of an update: what it writes, what its value and its address read."""
        if not all(self.bind(v, n) for v, n in zip(u.variables, u.extents, strict=True)):
            return
        self.access(self.bounds.writes, u.memory, u.address)
        for term in (u.value, *u.address):
            self.loads(term)
        self.count(u.value, u.extents)

    def count(self, value: Expr, extents: Iterable[Expr]) -> None:
        """Count the values of an array: its elements, times the addends of the deepest nest of reductions in one."""
        addends = max(math.prod(map(self.largest, nest)) for nest in _nested_reductions(value))
        self.bounds.values += self.iterations * math.prod(map(self.largest, extents)) * addends

    def largest(self, extent: Expr) -> int:
        """Return the largest value of an extent, 1 where none is known."""
        return max(self.interval(extent)[1] or 1, 1)

    def loads(self, term: Expr) -> None:
        """Add the loads below a term."""
        loads, extents = _loads_and_binders(term)
        for variable, extent in extents.items():
            self.bind(variable, extent)
        for load in loads:
            self.access(self.bounds.reads, load.data, load.args)

    def bind(self, variable: Expr, extent: Expr) -> bool:
        """Let a variable run to an extent; tell whether it may run at all."""
        high = self.interval(extent)[1]
        values: Interval = (0, None if high is None else max(high - 1, 0))
        if self.variables.get(variable, values) != values:
            self.memo.clear()
        self.variables[variable] = values
        return high is None or high > 0

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

    # -- values

    def interval(self, e: Expr) -> Interval:
        """Return an interval of a term's values in the present control state."""
        if e.op == "const" or e.real:
            return e.interval
        values = self.memo.get(e)
        if values is None:
            values = self.memo[e] = _meet(self._interval(e), e.interval)
        return values

    def _interval(self, e: Expr) -> Interval:
        if e.op == "var":
            return self.variables.get(e, e.interval)
        if e.op == "load":
            return self._contents(e)
        if e.op == "wrap":
            x = self.interval(e.args[0])
            return x if iv.inside(x, e.interval) else e.interval
        if e.op == "select":
            low, high = self.interval(e.args[0])
            sides = [self.interval(x) for x, is_possible in zip(e.args[1:], (high != 0, low == 0), strict=True) if is_possible]
            return iv.hull(*sides) if sides else e.interval
        if e.op in COMPARED:
            return COMPARED[e.op](*(self.interval(a) for a in e.args))
        return ARITHMETIC[e.op](*(self.interval(a) for a in e.args)) if e.op in ARITHMETIC else e.interval

    def _contents(self, load: Expr) -> Interval:
        data = self.contents.get(load.data)
        if data is None or not data.size:
            return load.interval
        places = []
        for index, extent in zip(load.args, data.shape, strict=True) if data.ndim == len(load.args) else ():
            low, high = self.interval(index)
            if low is None or high is None or low < 0 or high >= extent:
                return load.interval
            places.append(slice(low, high + 1))
        part = data[tuple(places)]
        return int(part.min()), int(part.max())


def _below(a: Interval, b: Interval, *, strict: bool) -> Interval:
    """Return the truth of a < b, or of a ≤ b where it is not `strict`, as an interval."""
    if a[1] is not None and b[0] is not None and (a[1] < b[0] or (not strict and a[1] == b[0])):
        return 1, 1
    if a[0] is not None and b[1] is not None and (a[0] > b[1] or (strict and a[0] == b[1])):
        return 0, 0
    return iv.TRUTH


def _equal(a: Interval, b: Interval) -> Interval:
    """Return the truth of a = b as an interval."""
    if a[0] is not None and a == b and a[0] == a[1]:
        return 1, 1
    return (0, 0) if (0, 0) in (_below(a, b, strict=False), _below(b, a, strict=False)) else iv.TRUTH


def _negated(a: Interval) -> Interval:
    return 1 - (a[1] or 0), 1 - (a[0] or 0)


def _meet(a: Interval, b: Interval) -> Interval:
    """Return what is in both intervals; the second one where that is nothing."""
    low = a[0] if b[0] is None or (a[0] is not None and a[0] > b[0]) else b[0]
    high = a[1] if b[1] is None or (a[1] is not None and a[1] < b[1]) else b[1]
    return b if low is not None and high is not None and low > high else (low, high)


COMPARED: dict[str, Callable[..., Interval]] = {
    "lt": lambda a, b: _below(a, b, strict=True), "le": lambda a, b: _below(a, b, strict=False),
    "eq": _equal, "ne": lambda a, b: _negated(_equal(a, b)), "not": _negated,
}  # fmt: skip
