"""Children of z3 terms, cached: traversing terms through z3's own objects costs more than most questions.

A term is retained as long as its id is cached, because z3 reuses the ids of terms that are not.
"""

from __future__ import annotations

from dataclasses import dataclass

import z3

CACHE_SIZE = 200_000  # terms, beyond which the cache is cleared between two traversals


@dataclass(slots=True, eq=False)
class Subterm:
    """A z3 term with its id and its children."""

    term: z3.ExprRef
    number: int
    parts: tuple[Subterm, ...]


_interned: dict[int, Subterm] = {}


def parts_of(root: z3.ExprRef) -> Subterm:
    """Return a term with its children, recursively; equal terms are one object until the cache is cleared."""
    if len(_interned) > CACHE_SIZE:
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
        _interned[number] = Subterm(node, number, tuple(_interned[n] for _, n in children))
    return _interned[root.get_id()]
