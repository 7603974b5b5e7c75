"""Induction on the length of a reduction: the loop-carried dependence of an accumulator is the same function at every step.

At two lengths the results of driver and numerics are one term. Of such a term, what was computed from earlier steps only is
an accumulator: it becomes a symbol. What remains must be the same function of symbols and elements of the last step at both
lengths, and so must be the function that gives the accumulator from its predecessor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence

import numpy as np

from ...readings.arrays.labelled_array import Data
from ...readings.smt.polynomial_terms import Number, Term

Parts = tuple[tuple[int, Term], ...]  # a sum of terms, each times a number
COMMUTATIVE = ("mul", "min", "max", "eq", "ne")


class Steps:
    """Terms as functions of accumulators; an element has a position along the reduction, and one along the other axes."""

    def __init__(self, operands: Mapping[str, Data], axes: Mapping[str, tuple[str, ...]], dimension: str) -> None:
        self.positions, self.cross_positions = _places(operands, axes, dimension)
        self.spans: dict[int, tuple[int, int] | None] = {}

    def span(self, root: Term) -> tuple[int, int] | None:
        """Return the first and the last place along the reduction that a term reads, None when it reads none."""
        work = [root]
        while work:
            t = work[-1]
            pending = [a for a in t.args if a.number not in self.spans] if t.number not in self.spans else []
            work.extend(pending)
            if pending:
                continue
            work.pop()
            if t.number not in self.spans:
                operand_spans = [s for s in (self.spans[a.number] for a in t.args) if s is not None]
                if t.number in self.positions:
                    operand_spans.append((self.positions[t.number], self.positions[t.number]))
                self.spans[t.number] = (min(s[0] for s in operand_spans), max(s[1] for s in operand_spans)) if operand_spans else None
        return self.spans[root.number]

    def function(self, value: Parts | Number, last: int) -> tuple[Hashable, list[Parts]]:
        """Return a value as a function of its accumulators and of the elements from place `last` on, and the accumulators."""
        reading = _Reading(self, last)
        if isinstance(value, tuple):
            return (reading.sum(0, value) if len(value) > 1 or value[0][0] != 1 else reading.term(value[0][1])), reading.accumulators
        return (reading.term(value) if isinstance(value, Term) else value), reading.accumulators


class _Reading:
    """One traversal of a term, which abstracts its accumulators."""

    def __init__(self, steps: Steps, last: int) -> None:
        self.steps, self.last = steps, last
        self.accumulators: list[Parts] = []
        self.shapes: dict[int, Hashable] = {}

    def accumulator(self, parts: Parts) -> Hashable:
        if parts not in self.accumulators:
            self.accumulators.append(parts)
        return "accumulator", self.accumulators.index(parts)

    def term(self, t: Term) -> Hashable:
        """Return the shape of a term: what does not read along the reduction stays itself."""
        if t.number not in self.shapes:
            self.shapes[t.number] = self._term(t)
        return self.shapes[t.number]

    def _term(self, t: Term) -> Hashable:
        span = self.steps.span(t)
        if span is None:
            return t
        if span[1] < self.last:
            return self.accumulator(((1, t),))
        if t.op == "var":
            return self.steps.positions[t.number] - self.last, self.steps.cross_positions[t.number]
        if t.op == "sum":
            return self.sum(t.data[0], tuple(zip(t.data[1], t.args, strict=True)))
        parts = [self.term(a) for a in t.args]
        return t.op, t.data, frozenset(Counter(parts).items()) if t.op in COMMUTATIVE else tuple(parts)

    def sum(self, constant: int, parts: Parts) -> Hashable:
        """Return the shape of a sum: what earlier steps gave is one accumulator."""
        spans = [self.steps.span(t) for _, t in parts]
        old = tuple(p for p, s in zip(parts, spans, strict=True) if s is not None and s[1] < self.last)
        new = [(c, self.term(t)) for (c, t), s in zip(parts, spans, strict=True) if s is None or s[1] >= self.last]
        accumulated = [(1, self.accumulator(old))] if old else []
        return "sum", constant, frozenset(Counter([*new, *accumulated]).items())


def induction_failure(results: Sequence[tuple[int, Sequence[Number]]], steps: Steps, step: int) -> str:
    """Return why results at two lengths, each with its length, are no induction in steps of so many elements, nothing when they are."""
    (_, short), (length, long) = results
    for a, b in zip(short, long, strict=True):
        short_function, short_accumulators = steps.function(a, length - 2 * step)
        long_function, long_accumulators = steps.function(b, length - step)
        if short_function != long_function:
            return "what becomes of the accumulator depends on the length"
        for reason in _step_failures(long_accumulators, short_accumulators, steps, length - 2 * step, step):
            return reason
    return ""


def _step_failures(accumulators: Sequence[Parts], previous: Sequence[Parts], steps: Steps, last: int, step: int) -> Iterator[str]:
    """Yield why accumulators do not advance step by step; `previous` are those before the last step, as the shorter length makes them."""
    for parts in accumulators:
        step_function, predecessors = steps.function(parts, last)
        if len(predecessors) != 1:
            yield f"the accumulator is made of {len(predecessors)} earlier ones"
        elif predecessors[0] not in previous:
            yield "the accumulator depends on the length"
        elif steps.function(predecessors[0], last - step)[0] != step_function:
            yield "two steps are not the same function of the accumulator"


def _places(
    operands: Mapping[str, Data], axes: Mapping[str, tuple[str, ...]], dimension: str
) -> tuple[dict[int, int], dict[int, Hashable]]:  # fmt: skip
    """Return of every element where it lies along a dimension, and where along the others."""
    positions, cross_positions = dict[int, int](), dict[int, Hashable]()
    for name, array in operands.items():
        if dimension not in axes[name]:
            continue
        axis = axes[name].index(dimension)
        for place in np.ndindex(*array.shape):
            element: object = array[place]
            if isinstance(element, Term):
                positions[element.number] = place[axis]
                cross_positions[element.number] = name, place[:axis] + place[axis + 1 :]
    return positions, cross_positions
