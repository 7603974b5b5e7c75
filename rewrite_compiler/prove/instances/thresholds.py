"""Thresholds of a rule: the integers that its index arithmetic and guards compute with, near which two sides may part."""

from __future__ import annotations

from functools import cache
from typing import Any

from ...lang.expr import Expr
from ...ops.op import Apply, subterms
from ...ops.static import ELEMENTS, Condition, Ints
from ...rewrite.rule import Rule

LEAST, MOST = 3, 128  # smaller ones are among all draws, larger ones out of their reach


@cache
def thresholds_of(rule: Rule) -> tuple[int, ...]:
    """Return the integers that terms of attributes and guards compute with, in order; none that a rank is compared with."""
    patterns = (x for pair in rule.pairs for side in pair for x in subterms(side) if isinstance(x, Apply))
    work: list[Any] = [*(v for x in patterns for v in x.attributes.values()), *rule.where]
    integers, visited = set[int](), set[int]()
    while work:
        x = work.pop()
        if id(x) in visited:
            continue
        visited.add(id(x))
        if isinstance(x, Expr):
            elements = [ELEMENTS[a] for a in (x, *x.args) if a in ELEMENTS]
            work += [*x.args, *(part for e in elements for part in (e.base, e.index))]
            if all(e.kind != "length" for e in elements):
                integers.update(int(a.data) for a in x.args if a.op == "const" and not a.real)
        elif isinstance(x, Ints | Condition):
            work += vars(x).values()
        elif isinstance(x, tuple):
            work += x
    return tuple(sorted(n for n in integers if LEAST <= n <= MOST))


def near(thresholds: tuple[int, ...]) -> tuple[int, ...]:
    """Return thresholds, their neighbours and their doubles."""
    return tuple(sorted({m for n in thresholds for m in (n - 1, n, n + 1, 2 * n)}))
