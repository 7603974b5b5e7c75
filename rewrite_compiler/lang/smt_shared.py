"""Proving with less: what both sides of an equation share becomes a word of which only the bounds are known.

An equation that holds for every such word holds for what the word stands for; the other direction does not follow.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import z3

from .smt import Value, Verdict, prove_equal, within
from .smt_bounds import Bounds

Pair = tuple[Value, Value]
PLAIN_FIRST, WORDS = 0.05, 0.25  # of the time: the equation as it stands, then with words, before it gets all


def prove_equal_sharing(pairs: Sequence[Pair], premises: Sequence[z3.BoolRef], seconds: float) -> Verdict:
    """Prove that both sides of every pair are equal; where the solver hesitates, with words for what they share."""
    verdict = prove_equal(pairs, premises, PLAIN_FIRST * seconds)
    if verdict.outcome != "unknown":
        return verdict
    words, bounds = with_words(pairs)
    if prove_equal(words, bounds, WORDS * seconds).outcome == "proved":
        return Verdict("proved")
    return prove_equal(pairs, premises, seconds)


def with_words(pairs: Sequence[Pair]) -> tuple[list[Pair], list[z3.BoolRef]]:
    """Return the pairs with the largest integer subterms of a right side that its left side has, too, as words; their bounds."""
    bounds, found, constraints = Bounds({}), list[Pair](), list[z3.BoolRef]()
    for n, (a, b) in enumerate(pairs):
        if not (isinstance(a, z3.ExprRef) and isinstance(b, z3.ExprRef)):
            found.append((a, b))
            continue
        words = [(t, z3.Int(f"word_{n}_{k}")) for k, t in enumerate(_shared(a, b))]
        for t, word in words:
            constraints += within(np.array([word], object), bounds.of(t))
        found.append((z3.substitute(a, *words), z3.substitute(b, *words)) if words else (a, b))
    return found, constraints


def _shared(a: z3.ExprRef, b: z3.ExprRef) -> list[z3.ExprRef]:
    """Return the largest integer subterms of b that are subterms of a."""
    known, seen, found = _subterms(a), set[int](), []
    work = [b]
    while work:
        t = work.pop()
        if t.get_id() in seen or not t.children():
            continue
        seen.add(t.get_id())
        if t.get_id() in known and z3.is_int(t):
            found.append(t)
        else:
            work.extend(t.children())
    return found


def _subterms(root: z3.ExprRef) -> dict[int, z3.ExprRef]:
    """Return all subterms by their number; they are held, because z3 gives numbers of terms nobody holds to others."""
    found: dict[int, z3.ExprRef] = {}
    work = [root]
    while work:
        t = work.pop()
        if t.get_id() not in found:
            found[t.get_id()] = t
            work.extend(t.children())
    return found
