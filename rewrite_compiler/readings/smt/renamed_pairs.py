"""Equations that are one up to the names of their variables: of the lanes of a result, which a device computes alike, one is asked."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator

from .polynomial_terms import Number, Term

Pair = tuple[Number, Number]


def distinct_pairs(pairs: Iterable[Pair]) -> list[Pair]:
    """Return the first of the pairs that differ in nothing but the names of variables of equal intervals."""
    first = dict[Hashable, Pair]()
    for pair in pairs:
        first.setdefault(shape_of(pair), pair)
    return list(first.values())


def shape_of(pair: Pair) -> Hashable:
    """Return both sides without the names of their variables: each subterm once, its operands before it, by their places."""
    places, rows = dict[int, int](), list[Hashable]()
    for t in _subterms(pair):
        places[t.number] = len(rows)
        is_variable = t.op == "var"
        rows.append((t.op, None if is_variable else t.data, t.interval if is_variable else None, *[places[a.number] for a in t.args]))
    return (*rows, *((places[x.number], "term") if isinstance(x, Term) else (x, "number") for x in pair))


def _subterms(pair: Pair) -> Iterator[Term]:
    """Yield each subterm of both sides once, after its operands."""
    visited = set[int]()
    work = [x for x in reversed(pair) if isinstance(x, Term)]
    while work:
        t = work[-1]
        pending = [a for a in reversed(t.args) if a.number not in visited]
        if pending and t.number not in visited:
            work.extend(pending)
            continue
        work.pop()
        if t.number not in visited:
            visited.add(t.number)
            yield t
