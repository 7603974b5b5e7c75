"""Recall: whether a loop is parallel is asked once, where a loop around it decides nothing but some addresses.

The answer of one iteration of the loop around holds in the others for every memory that is addressed in the same way. Only
the memories whose addresses move with it are looked at again.
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
class Answer:
    """What was found: parallel or not, and how many elements the largest statement of all iterations touches."""

    parallel: bool
    elements: int


@dataclass(frozen=True)
class _Control:
    """What decides about a loop: the variables that it takes from outside, and the memories whose addresses move."""

    free: tuple[Expr, ...]
    moved: frozenset[Leaf]
    is_fixed: bool  # nothing else moves, and no iteration writes what decides


@dataclass
class Recall:
    """Answers about the loops inside a loop over `variable`, whose iterations write nothing that is steady."""

    variable: Expr | None  # of a first iteration: None, nothing is kept
    is_steady: Callable[[Leaf], bool]
    answers: dict[Any, Answer] = field(default_factory=dict)
    controls: dict[Loop, _Control] = field(default_factory=dict)

    def key(self, ev: Evaluator, loop: Loop, extent: int) -> tuple[Any, frozenset[Leaf]]:
        """Return what the answer about a loop is kept by, and the memories to look at again; a key of None: nothing is kept."""
        if self.variable is None:
            return None, frozenset()
        control = self.controls.get(loop)
        if control is None:
            control = self.controls[loop] = self._control(ev, loop)
        if not control.is_fixed:
            return None, control.moved
        known, axes = ev.scope.known, ev.axes
        bound = (known[v] if v in known else (axes.start.get(axis_of(v)), axes.extent.get(axis_of(v))) for v in control.free)
        return (loop, extent, *bound), control.moved

    def _control(self, ev: Evaluator, loop: Loop) -> _Control:
        free, moved, is_fixed = set[Expr](), set[Leaf](), True
        written = frozenset(u.memory for u in updates_of(loop))
        for e, leaf in _deciding(loop, written):
            free |= e.free
            is_fixed = is_fixed and all(map(self.is_steady, e.reads)) and (leaf is not None or self.variable not in e.free)
            if leaf is not None and self.variable in e.free:
                moved.add(leaf)
        outside = [v for v in free - {self.variable} if ev.is_bound(v)]
        return _Control(tuple(sorted(outside, key=axis_of)), frozenset(moved), is_fixed)


def _deciding(step: Step, written: frozenset[Leaf]) -> Iterator[tuple[Expr, Leaf | None]]:
    """Yield the terms that decide what a step does: of an address with the memory, of a condition or a length without."""
    if isinstance(step, Update):
        yield from ((n, None) for n in step.extents)
        yield from ((a, step.memory) for a in step.address)
        yield from _inside(step.value, written)
    elif isinstance(step, Loop):
        yield step.extent, None
    elif isinstance(step, When):
        yield step.condition, None
    elif isinstance(step, Let):
        yield from _inside(step.array[(0,) * step.array.rank], written)
    for part in children(step):
        yield from _deciding(part, written)


def _inside(e: Expr, written: frozenset[Leaf]) -> Iterator[tuple[Expr, Leaf | None]]:
    """Yield what decides where a value reads what is written, and how long its parts are."""
    for x in terms_of(e):
        if x.op == "reduce":
            yield from ((n, None) for n in x.args[1:])
        elif x.op == "load" and isinstance(x.data, Leaf):
            yield from ((i, x.data) for i in x.args if x.data in written)
        elif x.op == "load":
            yield from ((lift(n), None) for n in (*x.data.shape, *([x.data.fold.extent] if isinstance(x.data, FoldResult) else [])))
