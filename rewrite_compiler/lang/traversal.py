"""Traversal: the terms below a term, those inside of arrays included, each once."""

from __future__ import annotations

from collections.abc import Iterator

from .binders import Array, Comprehension, FoldResult
from .expr import Expr


def terms_of(e: Expr) -> Iterator[Expr]:
    """Yield every term below `e` once, those inside arrays included."""
    work, visited = [e], set[int]()
    while work:
        x = work.pop()
        if id(x) in visited:
            continue
        visited.add(id(x))
        yield x
        work.extend(inner_terms(x))


def inner_terms(e: Expr) -> tuple[Expr, ...]:
    """Return the terms directly below `e`, those inside arrays included."""
    return (*e.args, *bodies_of(e.data)) if e.op == "load" else e.args


def loads_of(e: Expr) -> Iterator[Expr]:
    """Yield every load below `e`, those inside arrays included."""
    return (x for x in terms_of(e) if x.op == "load")


def bodies_of(a: Array) -> list[Expr]:
    """Return the terms of an array's elements; none of one that lies in memory."""
    if isinstance(a, Comprehension):
        return [a.body]
    if isinstance(a, FoldResult):
        parts = (*a.fold.initial, *a.fold.bodies)
        return [x for p in parts for x in (bodies_of(p) or [p[tuple(0 for _ in p.shape)]])] + [a.fold.extent]
    return []
