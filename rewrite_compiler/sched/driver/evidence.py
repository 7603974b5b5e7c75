"""Evidence: at which sizes the ways of an operation were tried against its numerics, so that sizes of the same class need no trial.

What an element of the result is follows from the numerics, from what the computations do, and from how a sum is cut into commands; all
other loops move addresses, which fields do by equations. Sizes at which those are the same are one class, and a sum of more terms
reaches what one of fewer does, with zeros behind it. A size outside of every class is tried on the simulator.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from ...ila import Ila
from ...lang.binders import Array, Comprehension, FoldResult, Leaf
from ...lang.expr import Expr
from .loop_split import name_of_parts
from .matching import Match
from .operation import Operation
from .schedule import Schedule

Form = tuple[Hashable, ...]


@dataclass(eq=False)
class Evidence:
    """Ways that were tried, latest last, and of each form of their schedules the longest sum."""

    ways: list[Any] = field(default_factory=list)
    longest: dict[Form, int] = field(default_factory=dict)

    def covers(self, chain: Sequence[Schedule], op: Operation) -> bool:
        """Tell whether schedules have the form of some that were tried with sums as long."""
        return self.longest.get(form_of(chain, op), 0) >= length_of(op)

    def add(self, way: Any, chain: Sequence[Schedule], op: Operation) -> None:
        """Note that a way was tried, and the schedules that it gave."""
        if all(way is not earlier for earlier in self.ways):
            self.ways.append(way)
        form = form_of(chain, op)
        self.longest[form] = max(length_of(op), self.longest.get(form, 0))


@lru_cache(maxsize=1 << 10)
def evidence_of(ila: Ila, numerics: Hashable) -> Evidence:
    """Return the evidence of an operation whose numerics are these but for sizes, one for a process."""
    return Evidence()


def length_of(op: Operation) -> int:
    """Return of how many terms a result is the sum."""
    length = 1
    for v, n in op.loops:
        length *= n if v in op.reduced else 1
    return length


def form_of(chain: Sequence[Schedule], op: Operation) -> Form:
    """Return what decides how schedules of an operation compute one element of the result."""
    return tuple(_form(s, dict(op.loops)) for s in chain)


def steps_of(m: Match, loop: str) -> int:
    """Return how many steps a loop takes, its parts together."""
    outer = name_of_parts(loop)
    return m.outer.get(loop, 1) * (steps_of(m, outer) if outer in m.outer else 1)


def _form(s: Schedule, extents: Mapping[str, int]) -> Form:
    m, reduced = s.match, s.match.operation.reduced
    filled = tuple(v for v, n in extents.items() if v in reduced and steps_of(m, v) * m.lane_extent(v) != n)
    starter = _form(s.starter, extents) if isinstance(s.starter, Schedule) else s.starter
    places = tuple((p.memory, p.base is None, p.slot.reach.name) for p in s.places)
    nests = (tuple(v if v in reduced else "" for v in loops) for loops in (s.inside, dict(s.outside)))
    return (
        m.computation, tuple(m.lanes.items()), m.starts, m.initial and m.initial.name, tuple(sorted(s.switches.items())),
        *(tuple(v for v, _ in itertools.groupby(nest)) for nest in nests), filled, places, s.tiled, s.is_tiled, bool(s.table), starter,
    )  # fmt: skip


def skeleton(a: Array) -> Hashable:
    """Return an array but for lengths: its operators, its numbers, and in which order it reads operands."""
    s = _Skeleton()
    s.array(a)
    return tuple(s.lines)


class _Skeleton:
    """Terms and arrays numbered in the order in which they occur, one line each; lengths and intervals are left out."""

    def __init__(self) -> None:
        self.lines: list[Hashable] = []
        self.numbers: dict[Expr | Array, int] = {}

    def term(self, e: Expr) -> int:
        """Return the number of a term."""
        if e not in self.numbers:
            below = tuple([self.term(x) for x in (e.args[:1] if e.op == "reduce" else e.args)])
            data = None if e.op == "var" else self.array(e.data) if isinstance(e.data, Array) else e.data
            if e.op == "reduce":
                data = e.data[0], self.terms(e.data[1])
            self._add(e, (e.op, data, below))
        return self.numbers[e]

    def terms(self, every: Iterable[Expr]) -> tuple[int, ...]:
        """Return the numbers of terms."""
        return tuple([self.term(e) for e in every])

    def array(self, a: Array) -> int:
        """Return the number of an array."""
        if a not in self.numbers:
            self._add(a, self._line(a))
        return self.numbers[a]

    def _line(self, a: Array) -> Hashable:
        if isinstance(a, Comprehension):
            return "array", self.terms(a.variables), self.term(a.body)
        if isinstance(a, FoldResult):
            arrays = (*a.fold.accumulators, *a.fold.initial, *a.fold.bodies)
            return "fold", a.component, a.history, self.term(a.fold.variable), tuple([self.array(x) for x in arrays])
        return type(a).__name__, a.name if type(a) is Leaf else ""

    def _add(self, x: Expr | Array, line: Hashable) -> None:
        self.numbers[x] = len(self.lines)
        self.lines.append(line)
