"""Memoises the dependence test of an inner loop across the iterations of an outer loop that only shifts addresses.

The result for one iteration of the outer loop holds in the others for every memory that is addressed in the same way. Only
the memories whose addresses depend on the outer variable are tested again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ...lang.binders import FoldResult, Leaf
from ...lang.expr import Expr, lift
from ...lang.step import Let, Loop, Step, Update, When, children, updates_of
from ...lang.traversal import terms_of
from ..arrays.evaluator import Evaluator
from ..arrays.labelled_array import axis_of


@dataclass(frozen=True)
class DependenceResult:
    """The result of a dependence test, and the number of elements that the largest statement touches in all iterations."""

    parallel: bool
    elements: int


@dataclass(frozen=True)
class _Control:
    """What the test of a loop depends on: the variables free in it, and the memories whose addresses the outer loop shifts."""

    free: tuple[Expr, ...]
    shifted_memories: frozenset[Leaf]
    is_fixed: bool  # nothing else moves, and no iteration writes what decides


@dataclass
class DependenceCache:
    """Cached results for the loops inside a loop over `variable`; leaves that `is_steady` are invariant in it."""

    variable: Expr | None  # of a first iteration: None, nothing is kept
    is_invariant: Callable[[Leaf], bool]
    results: dict[Any, DependenceResult] = field(default_factory=dict)
    controls: dict[Loop, _Control] = field(default_factory=dict)

    def key(self, ev: Evaluator, loop: Loop, extent: int) -> tuple[Any, frozenset[Leaf]]:
        """Return the cache key of a loop (None: its result must not be cached) and the memories to test again."""
        if self.variable is None:
            return None, frozenset()
        control = self.controls.get(loop)
        if control is None:
            control = self.controls[loop] = self._control(ev, loop)
        if not control.is_fixed:
            return None, control.shifted_memories
        numbers, axes = ev.scope.bound_numbers, ev.axes
        bound = (numbers[v] if v in numbers else (axes.start.get(axis_of(v)), axes.extent.get(axis_of(v))) for v in control.free)
        return (loop, extent, *bound), control.shifted_memories

    def _control(self, ev: Evaluator, loop: Loop) -> _Control:
        free, shifted_memories, is_fixed = set[Expr](), set[Leaf](), True
        written_memories = frozenset(u.memory for u in updates_of(loop))
        for e, leaf in _controlling_terms(loop, written_memories):
            free |= e.free
            is_fixed = is_fixed and all(map(self.is_invariant, e.reads)) and (leaf is not None or self.variable not in e.free)
            if leaf is not None and self.variable in e.free:
                shifted_memories.add(leaf)
        outer_variables = [v for v in free - {self.variable} if ev.is_bound(v)]
        return _Control(tuple(sorted(outer_variables, key=axis_of)), frozenset(shifted_memories), is_fixed)


def _controlling_terms(step: Step, written_memories: frozenset[Leaf]) -> Iterator[tuple[Expr, Leaf | None]]:
    """Yield the terms that decide what a step does: of an address with the memory, of a condition or a length without."""
    if isinstance(step, Update):
        yield from ((n, None) for n in step.extents)
        yield from ((a, step.memory) for a in step.address)
        yield from _controlling_terms_of_value(step.value, written_memories)
    elif isinstance(step, Loop):
        yield step.extent, None
    elif isinstance(step, When):
        yield step.condition, None
    elif isinstance(step, Let):
        yield from _controlling_terms_of_value(step.array[(0,) * step.array.rank], written_memories)
    for part in children(step):
        yield from _controlling_terms(part, written_memories)


def _controlling_terms_of_value(e: Expr, written_memories: frozenset[Leaf]) -> Iterator[tuple[Expr, Leaf | None]]:
    """Yield what decides where a value reads what is written, and how long its parts are."""
    for x in terms_of(e):
        if x.op == "reduce":
            yield from ((n, None) for n in x.args[1:])
        elif x.op == "load" and isinstance(x.data, Leaf):
            yield from ((i, x.data) for i in x.args if x.data in written_memories)
        elif x.op == "load":
            yield from ((lift(n), None) for n in (*x.data.shape, *([x.data.fold.extent] if isinstance(x.data, FoldResult) else [])))
