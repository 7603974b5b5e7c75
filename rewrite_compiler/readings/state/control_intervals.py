"""Intervals of terms in the present control state, by a walk over terms that takes no grids of indices."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...lang import intervals as iv
from ...lang.binders import Leaf
from ...lang.expr import ARITHMETIC, Expr
from ...lang.intervals import Interval
from ..arrays.labelled_array import Data

Part = tuple[Leaf, tuple[tuple[int, int], ...]]  # of a leaf's contents: the first and the last element along each axis


def hull_of(data: Data, ranges: tuple[tuple[int, int], ...]) -> Interval:
    """Return the least and the largest value of a part of some contents."""
    part = data[tuple([slice(low, high + 1) for low, high in ranges])] if ranges else data
    return int(part.min()), int(part.max())


class ControlIntervals:
    """Intervals of terms: control state and operands have the values given, variables run to their extents.

    `parts` of the contents are those that were read: intervals depend on no more than the hull of each.
    """

    def __init__(self, contents: Mapping[Leaf, Data]) -> None:
        """Take `contents` as the values of control state and operands."""
        self.contents = contents
        self.parts: dict[Part, None] = {}
        self.variables: dict[Expr, Interval] = {}
        self.memo: dict[Expr, Interval] = {}

    def bind(self, variable: Expr, extent: Expr) -> bool:
        """Let a variable run to an extent; tell whether it may run at all."""
        high = self.interval(extent)[1]
        values: Interval = (0, None if high is None else max(high - 1, 0))
        if self.variables.get(variable, values) != values:
            self.memo.clear()
        self.variables[variable] = values
        return high is None or high > 0

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
        ranges = []
        for index, extent in zip(load.args, data.shape, strict=True) if data.ndim == len(load.args) else ():
            low, high = self.interval(index)
            if low is None or high is None or low < 0 or high >= extent:
                return load.interval
            ranges.append((low, high))
        part = load.data, tuple(ranges)
        self.parts[part] = None
        return hull_of(data, part[1])


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
