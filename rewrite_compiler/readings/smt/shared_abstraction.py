"""Proof by abstraction: the largest subterms that both sides of an equation share become variables with only their bounds.

An equation that holds for every value of these variables holds for the subterms; the converse does not. Variables are
numbered from 0 in each equation, so that lanes with equal code ask the same question, which is decided once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import z3

from ...lang.intervals import Interval
from .evaluator import Value, interval_constraints, prove_equal, refute
from .solver import Outcome, Verdict
from .subterms import parts_of
from .term_bounds import Bounds

Pair = tuple[Value, Value]
Question = tuple[z3.ExprRef, z3.ExprRef, list[z3.BoolRef]]
PLAIN_FIRST, WORDS = (
    0.05,
    0.1,
)  # shares of the time: for the equations unabstracted, for one abstract question, before the remaining ones get all


def prove_equal_sharing(
    pairs: Sequence[Pair], premises: Sequence[z3.BoolRef], seconds: float, ranges: Mapping[str, Interval] | None = None
) -> Verdict:
    """Prove that both sides of every pair are equal: by abstraction of shared subterms, else as they are.

    `ranges` are the intervals of the variables, which the premises imply.
    """
    questions = _Questions(ranges or {}, seconds * WORDS)
    open_pairs = [pair for pair in pairs if not questions.is_proved(*pair)]
    if not open_pairs:
        return Verdict(Outcome.PROVED)
    verdict = prove_equal(open_pairs, premises, PLAIN_FIRST * seconds)
    return verdict if verdict.outcome != Outcome.UNKNOWN else prove_equal(open_pairs, premises, seconds)


class _Questions:
    """Abstract questions, each decided once; terms are retained, because z3 reuses the ids of terms that are not."""

    def __init__(self, ranges: Mapping[str, Interval], seconds: float) -> None:
        self.bounds = Bounds(ranges)
        self.seconds = seconds
        self.answers: dict[tuple[int, ...], bool] = {}
        self.retained_questions: list[Question] = []

    def is_proved(self, a: Value, b: Value) -> bool:
        """Tell whether the abstraction of an equation is proved."""
        if not isinstance(a, z3.ExprRef) or not isinstance(b, z3.ExprRef):
            return not isinstance(a, z3.ExprRef) and not isinstance(b, z3.ExprRef) and bool(a == b)
        if a.eq(b):
            return True
        question = self._question(a, b)
        key = (question[0].get_id(), question[1].get_id(), *(c.get_id() for c in question[2]))
        if key not in self.answers:
            self.retained_questions.append(question)
            self.answers[key] = refute([question[0] != question[1], *question[2]], self.seconds).outcome == Outcome.PROVED
        return self.answers[key]

    def _question(self, a: z3.ExprRef, b: z3.ExprRef) -> Question:
        """Return an equation with shared integer subterms as variables, and the bounds of these."""
        words = [(t, z3.Int(f"word {n}")) for n, t in enumerate(_shared_subterms(a, b))]
        limits = [c for t, word in words for c in interval_constraints(np.array([word], object), self.bounds.of(t))]
        return (z3.substitute(a, *words), z3.substitute(b, *words), limits) if words else (a, b, limits)


def _shared_subterms(a: z3.ExprRef, b: z3.ExprRef) -> list[z3.ExprRef]:
    """Return the largest integer subterms of b that are subterms of a."""
    subterms, visited, shared = _subterms(a), set[int](), []
    work = [parts_of(b)]
    while work:
        t = work.pop()
        if t.number in visited:
            continue
        visited.add(t.number)
        if t.number in subterms and z3.is_int(t.term) and not z3.is_int_value(t.term):
            shared.append(t.term)
        else:
            work.extend(t.parts)
    return shared


def _subterms(root: z3.ExprRef) -> set[int]:
    """Return the z3 ids of all subterms."""
    numbers = set[int]()
    work = [parts_of(root)]
    while work:
        t = work.pop()
        if t.number not in numbers:
            numbers.add(t.number)
            work.extend(t.parts)
    return numbers
