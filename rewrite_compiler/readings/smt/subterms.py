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


_interned: dict[int, Term] = {}


def parts_of(root: z3.ExprRef) -> Term:
    """Return a term with all its parts; those of equal numbers are one object until terms are forgotten."""
    if len(_interned) > KEPT:
        _interned.clear()
    term = _interned.get(root.get_id())
    if term is not None:
        return term
    work: list[tuple[z3.ExprRef, int, list[tuple[z3.ExprRef, int]] | None]] = [(root, root.get_id(), None)]
    while work:
        node, number, children = work.pop()
        if number in _interned:
            continue
        if children is None:
            children = [(c, c.get_id()) for c in node.children()]
            pending = [(c, n, None) for c, n in children if n not in _interned]
            if pending:
                work.append((node, number, children))
                work.extend(pending)
                continue
        _interned[number] = Term(node, number, tuple(_interned[n] for _, n in children))
    return _interned[root.get_id()]
