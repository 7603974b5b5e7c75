"""Value counts: about how many values a step computes in the present control state, each addend of a sum counted.

Loops run as seldom as they may, and of two branches that may be taken the longer one is. Control state has its values before the
step: what an instruction clears at its end decides nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache

from ...lang.binders import FoldResult, Leaf
from ...lang.expr import Expr, lift
from ...lang.step import Let, Loop, Seq, Step, Together, Update, When
from ...lang.traversal import inner_terms
from ..arrays.labelled_array import Data
from .control_intervals import ControlIntervals, Part


def value_count(step: Step, contents: Mapping[Leaf, Data]) -> tuple[int, Collection[Part]]:
    """Return about how many values `step` computes; `contents` are the values of control state and operands before it.

    The count depends on the hulls of those parts of them that are returned, too.
    """
    count = _Count(contents)
    return count.step(step), count.parts


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


class _Count(ControlIntervals):
    """The values that steps compute, counted."""

    def step(self, step: Step) -> int:
        """Return the count of a step."""
        if isinstance(step, Update):
            may_run = all(self.bind(v, n) for v, n in zip(step.variables, step.extents, strict=True))
            return self.elements(step.extents, step.value) if may_run else 0
        if isinstance(step, Seq | Together):
            return sum(map(self.step, step.steps if isinstance(step, Seq) else step.updates))
        if isinstance(step, When):
            low, high = self.interval(step.condition)
            return max(self.step(side) for side, may_run in ((step.then, high != 0), (step.otherwise, not low)) if may_run)
        if isinstance(step, Loop):
            return self.least(step.extent) * self.step(step.body) if self.bind(step.variable, step.extent) else 0
        if isinstance(step, Let):
            return self.elements(map(lift, step.array.shape), step.array[(0,) * step.array.rank]) + self.step(step.body)
        return 0

    def elements(self, extents: Iterable[Expr], value: Expr) -> int:
        """Return the count of an array: its elements, times the addends of the deepest nest of reductions in one."""
        return math.prod(map(self.least, extents)) * max(math.prod(map(self.least, nest)) for nest in _nested_reductions(value))

    def least(self, extent: Expr) -> int:
        """Return the least value of an extent."""
        return max(self.interval(extent)[0] or 0, 0)
