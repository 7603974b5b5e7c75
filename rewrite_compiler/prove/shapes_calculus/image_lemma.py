"""The image lemma: an extremum over a range is one over the set of places that the range reaches, so equal sets are equal extrema.

Two indices of which only a·i + j is read reach 0 … (m − 1)·a + k − 1 for i below m and j below k, without a gap where
1 ≤ a ≤ k: one index of that extent reaches the same. A sum counts places, so for it a must be k. An extremum of extrema of
one kind, and a sum of sums, is one over all their indices.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from .atom_keys import height_of, integer_atoms, places, renamed
from .polynomials import ZERO, Facts, Poly, atom_number, long_division


class Range(NamedTuple):
    """A quantified body: index variables with their extents, and the key of what is read at them."""

    extents: list[Poly]
    variables: list[Poly]
    body: Any


def open_range(facts: Facts, fresh: Iterator[int], key: Any) -> Range:
    """Return a range with fresh index variables."""
    _, extents, body = key
    height = height_of(body)
    variables = [facts.index(("v", next(fresh)), e) for e in extents]
    names = {atom_number(("bound", height, k)): v for k, v in enumerate(variables)}
    return Range(list(extents), variables, renamed(body, names))


def rising(facts: Facts, index_range: Range) -> Range:
    """Return a range whose indices are turned round where every place that is read falls as they rise."""
    extents, variables, body = index_range
    for n, e in zip(variables, extents, strict=True):
        (v,) = n.atoms
        slopes = [facts.slope(p, v)[0] for p in places(body) if v in p.atoms]
        if slopes and all(s is not None and facts.nonnegative(s.times(-1) - 1) for s in slopes):
            body = renamed(body, {v: e - 1 - n})
    return Range(extents, variables, body)


def merge_indices(facts: Facts, fresh: Iterator[int], original: Range, *, counted: bool) -> Range | None:
    """Return a range in which one index replaces two that reach the same places, None where there are none; `counted`: each place once."""
    extents, variables, body = original
    for a, b in itertools.permutations(range(len(variables)), 2):
        (u,), (v,) = variables[a].atoms, variables[b].atoms
        if not counted and not facts.nonnegative(extents[a] - 1):
            continue
        for step in [extents[b]] if counted else _steps(facts, body, u, v, extents[b]):
            merged_extent = facts.norm(extents[b] + (extents[a] - 1) * step)
            merged_index = facts.index(("v", next(fresh)), merged_extent)
            merged_body = renamed(body, {v: merged_index - variables[a] * step})
            if u not in integer_atoms(merged_body):
                remaining = [n for n in range(len(variables)) if n not in (a, b)]
                return Range(
                    [merged_extent, *(extents[n] for n in remaining)], [merged_index, *(variables[n] for n in remaining)], merged_body
                )
    return None


def _steps(facts: Facts, body: Any, u: int, v: int, extent: Poly) -> Iterable[Poly]:
    """Yield how many places of one index a step of another may be, without a gap between them."""
    for p in sorted({p for p in places(body) if {u, v} <= p.atoms}, key=lambda p: p.terms):
        outer_slope, inner_slope = (facts.slope(p, x)[0] for x in (u, v))
        if outer_slope is None or inner_slope is None or inner_slope == ZERO:
            continue
        step, remainder = long_division(outer_slope, inner_slope)
        if remainder == ZERO and facts.nonnegative(step - 1) and facts.nonnegative(extent - step):
            yield step
