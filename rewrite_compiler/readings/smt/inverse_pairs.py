"""Elimination of inverse pairs: a subterm of a single variable that is proved equal to the variable is replaced by it.

A driver splits words into bytes and the device joins them; that this is the identity is a question about one variable, asked
once for each form of subterm.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import z3

from ...lang.intervals import Interval
from .evaluator import interval_constraints, refute
from .solver import Outcome
from .subterms import Subterm, parts_of

SECONDS = 5.0


def without_inverse_pairs(terms: Sequence[z3.ExprRef | int], ranges: Mapping[str, Interval]) -> list[z3.ExprRef | int]:
    """Return the terms without inverse pairs; `ranges` are the intervals of the variables, by name."""
    search = _IdentitySearch(ranges)
    return [search.without_pairs(t) if isinstance(t, z3.ExprRef) else t for t in terms]


class _IdentitySearch:
    def __init__(self, ranges: Mapping[str, Interval]) -> None:
        self.ranges = ranges
        self.pairs: dict[int, tuple[z3.ExprRef, z3.ExprRef] | None] = {}  # term id → the term and its variable, where they are equal
        self.sole_variables: dict[int, z3.ExprRef | bool | None] = {}  # term id → its only variable; None: it has none, False: several
        self.retained_terms: list[z3.ExprRef] = []
        self.verdicts: dict[tuple[int, Interval], bool] = {}
        self.word = z3.Int("word")

    def sole_variable(self, root: Subterm) -> z3.ExprRef | bool | None:
        """Return the only variable of a term; None where it has none, False where it has several."""
        work = [root]
        while work:
            t = work[-1]
            pending = [p for p in t.parts if p.number not in self.sole_variables] if t.number not in self.sole_variables else []
            if pending:
                work.extend(pending)
                continue
            work.pop()
            if t.number not in self.sole_variables:
                self.retained_terms.append(t.term)
                self.sole_variables[t.number] = self._sole_variable_of_parts(t)
        return self.sole_variables[root.number]

    def _sole_variable_of_parts(self, t: Subterm) -> z3.ExprRef | bool | None:
        is_free = t.term.decl().kind() == z3.Z3_OP_UNINTERPRETED
        if not t.parts:
            return t.term if is_free else None
        variables = [p for p in (self.sole_variables[part.number] for part in t.parts) if p is not None]
        if is_free or any(p is False for p in variables):
            return False
        return variables[0] if variables and all(p.eq(variables[0]) for p in variables) else None if not variables else False  # type: ignore[union-attr]

    def without_pairs(self, root: z3.ExprRef) -> z3.ExprRef:
        """Return a term without its inverse pairs: z3 looks for each pair that it is given, so it is given those that occur."""
        pairs = list(self.pairs_in(root))
        return z3.substitute(root, *pairs) if pairs else root

    def pairs_in(self, root: z3.ExprRef) -> Iterator[tuple[z3.ExprRef, z3.ExprRef]]:
        """Yield the largest subterms that equal their only variable, each with the variable."""
        work, visited = [parts_of(root)], set[int]()
        while work:
            t = work.pop()
            if t.number in visited or not t.parts:
                continue
            visited.add(t.number)
            if t.number not in self.pairs:
                self.pairs[t.number] = self._pair(t)
            pair = self.pairs[t.number]
            if pair is not None:
                yield pair
            else:
                work.extend(t.parts)

    def _pair(self, t: Subterm) -> tuple[z3.ExprRef, z3.ExprRef] | None:
        v = self.sole_variable(t)
        return (t.term, v) if isinstance(v, z3.ExprRef) and z3.is_int(t.term) and self.is_identity(t.term, v) else None

    def is_identity(self, t: z3.ExprRef, v: z3.ExprRef) -> bool:
        """Tell whether a term of one variable is proved to equal it."""
        interval = self.ranges.get(v.decl().name())
        if interval is None or not z3.is_int(v):
            return False
        shape = z3.substitute(t, (v, self.word))
        self.retained_terms.append(shape)
        key = (shape.get_id(), interval)
        if key not in self.verdicts:
            self.verdicts[key] = (
                refute([shape != self.word, *interval_constraints(np.array([self.word], object), interval)], SECONDS).outcome
                == Outcome.PROVED
            )
        return self.verdicts[key]
