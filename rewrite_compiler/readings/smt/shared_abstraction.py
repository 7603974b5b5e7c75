"""Proving with less: what both sides of an equation share becomes a word of which only the bounds are known.

An equation that holds for every such word holds for what the word stands for; the other direction does not follow. Each
equation is a question of its own, its words numbered from 0: lanes that compute alike ask the same question, once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import z3

from ...lang.intervals import Interval
from .evaluator import Value, prove_equal, refute, within
from .solver import Verdict
from .subterms import parts_of
from .term_bounds import Bounds

Pair = tuple[Value, Value]
Question = tuple[z3.ExprRef, z3.ExprRef, list[z3.BoolRef]]
PLAIN_FIRST, WORDS = 0.05, 0.1  # of the time: the equations as they stand, a question about words, before the rest gets all


def prove_equal_sharing(
    pairs: Sequence[Pair], premises: Sequence[z3.BoolRef], seconds: float, ranges: Mapping[str, Interval] | None = None
) -> Verdict:
    """Prove that both sides of every pair are equal: by words for what they share, the rest as it stands.

    `ranges` are those of the variables, as the premises say them.
    """
    questions = _Questions(ranges or {}, seconds * WORDS)
    open_pairs = [pair for pair in pairs if not questions.is_proved(*pair)]
    if not open_pairs:
        return Verdict("proved")
    verdict = prove_equal(open_pairs, premises, PLAIN_FIRST * seconds)
    return verdict if verdict.outcome != "unknown" else prove_equal(open_pairs, premises, seconds)


class _Questions:
    """Questions about words, answered once each; terms are held, because z3 gives numbers of terms nobody holds to others."""

    def __init__(self, ranges: Mapping[str, Interval], seconds: float) -> None:
        self.bounds = Bounds(ranges)
        self.seconds = seconds
        self.answers: dict[tuple[int, ...], bool] = {}
        self.retained_questions: list[Question] = []

    def is_proved(self, a: Value, b: Value) -> bool:
        """Tell whether an equation is proved by words alone."""
        if not isinstance(a, z3.ExprRef) or not isinstance(b, z3.ExprRef):
            return not isinstance(a, z3.ExprRef) and not isinstance(b, z3.ExprRef) and bool(a == b)
        if a.eq(b):
            return True
        question = self._question(a, b)
        key = (question[0].get_id(), question[1].get_id(), *(c.get_id() for c in question[2]))
        if key not in self.answers:
            self.retained_questions.append(question)
            self.answers[key] = refute([question[0] != question[1], *question[2]], self.seconds).outcome == "proved"
        return self.answers[key]

    def _question(self, a: z3.ExprRef, b: z3.ExprRef) -> Question:
        """Return an equation with the largest integer subterms of b that a has, too, as words, and the bounds of these."""
        words = [(t, z3.Int(f"word {n}")) for n, t in enumerate(_shared_subterms(a, b))]
        limits = [c for t, word in words for c in within(np.array([word], object), self.bounds.of(t))]
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
    """Return the numbers of all subterms."""
    numbers = set[int]()
    work = [parts_of(root)]
    while work:
        t = work.pop()
        if t.number not in numbers:
            numbers.add(t.number)
            work.extend(t.parts)
    return numbers
