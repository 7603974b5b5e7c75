"""Undoing what is done to one word alone: subterms of a single variable that always equal the variable become it.

A driver takes words apart into bytes and the device puts them together again; that this gives the word back is a question
about one variable, asked once for each shape of subterm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import z3

from .intervals import Interval
from .smt import refute, within

SECONDS = 5.0


def restored(terms: Sequence[z3.ExprRef | int], ranges: Mapping[str, Interval]) -> list[z3.ExprRef | int]:
    """Return the terms with every subterm of one variable that is proved equal to it replaced; `ranges` are the variables'."""
    found = _Words(ranges)
    for t in terms:
        if isinstance(t, z3.ExprRef):
            found.visit(t)
    return [z3.substitute(t, *found.pairs) if found.pairs and isinstance(t, z3.ExprRef) else t for t in terms]


class _Words:
    def __init__(self, ranges: Mapping[str, Interval]) -> None:
        self.ranges = ranges
        self.pairs: list[tuple[z3.ExprRef, z3.ExprRef]] = []
        self.only: dict[int, z3.ExprRef | bool | None] = {}  # term id → its one variable, None for none, False for several
        self.held: list[z3.ExprRef] = []
        self.verdicts: dict[tuple[int, Interval], bool] = {}
        self.seen: set[int] = set()
        self.word = z3.Int("word")

    def variable(self, root: z3.ExprRef) -> z3.ExprRef | bool | None:
        """Return the one variable below a term."""
        work = [root]
        while work:
            t = work[-1]
            if t.get_id() in self.only:
                work.pop()
                continue
            children = t.children()
            waiting = [c for c in children if c.get_id() not in self.only]
            if waiting:
                work.extend(waiting)
                continue
            work.pop()
            self.held.append(t)
            self.only[t.get_id()] = self._joined(t, children)
        return self.only[root.get_id()]

    def _joined(self, t: z3.ExprRef, children: Sequence[z3.ExprRef]) -> z3.ExprRef | bool | None:
        if z3.is_const(t):
            return t if t.decl().kind() == z3.Z3_OP_UNINTERPRETED else None
        parts = [self.only[c.get_id()] for c in children]
        ones = [p for p in parts if p is not None]
        if any(p is False for p in ones) or t.decl().kind() == z3.Z3_OP_UNINTERPRETED:
            return False
        return ones[0] if ones and all(p.eq(ones[0]) for p in ones) else None if not ones else False  # type: ignore[union-attr]

    def visit(self, root: z3.ExprRef) -> None:
        """Collect the largest subterms that are their variable."""
        work = [root]
        while work:
            t = work.pop()
            if t.get_id() in self.seen or not t.num_args():
                continue
            self.seen.add(t.get_id())
            v = self.variable(t)
            if isinstance(v, z3.ExprRef) and z3.is_int(t) and self.is_word(t, v):
                self.pairs.append((t, v))
            else:
                work.extend(t.children())

    def is_word(self, t: z3.ExprRef, v: z3.ExprRef) -> bool:
        """Tell whether a term of one variable is proved to equal it."""
        interval = self.ranges.get(v.decl().name())
        if interval is None or not z3.is_int(v):
            return False
        shape = z3.substitute(t, (v, self.word))
        self.held.append(shape)
        key = (shape.get_id(), interval)
        if key not in self.verdicts:
            self.verdicts[key] = refute([shape != self.word, *within(np.array([self.word], object), interval)], SECONDS).outcome == "proved"
        return self.verdicts[key]
