"""The parts of z3 terms, each asked for once: walking terms through z3's own objects costs more than most questions.

A term is held as long as its number is known, because z3 gives numbers of terms nobody holds to others.
"""

from __future__ import annotations

from dataclasses import dataclass

import z3

KEPT = 200_000  # terms, beyond which they are forgotten between two walks


@dataclass(slots=True, eq=False)
class Term:
    """A z3 term with its number and its parts."""

    term: z3.ExprRef
    number: int
    parts: tuple[Term, ...]


_known: dict[int, Term] = {}


def parts_of(root: z3.ExprRef) -> Term:
    """Return a term with all its parts; those of equal numbers are one object until terms are forgotten."""
    if len(_known) > KEPT:
        _known.clear()
    found = _known.get(root.get_id())
    if found is not None:
        return found
    work: list[tuple[z3.ExprRef, int, list[tuple[z3.ExprRef, int]] | None]] = [(root, root.get_id(), None)]
    while work:
        here, number, children = work.pop()
        if number in _known:
            continue
        if children is None:
            children = [(c, c.get_id()) for c in here.children()]
            waiting = [(c, n, None) for c, n in children if n not in _known]
            if waiting:
                work.append((here, number, children))
                work.extend(waiting)
                continue
        _known[number] = Term(here, number, tuple(_known[n] for _, n in children))
    return _known[root.get_id()]
