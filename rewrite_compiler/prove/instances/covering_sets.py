"""The instances that a rule is tried at: drawn ones of all kinds as a net under its proof, small ones to refute it.

None of them proves anything: they show where sides differ, which operations they share, and how they round.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ...rewrite.rule import Rule
from .instance_search import Component, Instance, Search, TooMany, drawn, in_random_order, operands_key

RANKS = (4, 5, 6)  # the largest rank of an operand: the first of these that has an instance
SMALL, WIDE = 2, 3  # extents of the first drawn ones, and of those that show every two values
FIRST = 24  # of the first drawn ones
QUIET = 10  # draws in a row without a new pair of values after which there are enough
TRIED = 5_000  # candidates tried to draw those with every two values
TRIED_IN_A_DRAW = 1_000
GUARDED_IN_A_DRAW = 500  # candidates of a draw that are held against the guard
MOST, ELEMENTS = 100, 6_000  # of those with every two values, and elements of their patterns together
TRIED_SMALL, SMALLEST = 20_000, 400  # candidates tried for small ones, and how many of these are kept
GUARDED_EMPTY = 500  # candidates held against the guard in one draw of these
EMPTY = 10  # instances drawn with extents 0 and 1
Pair = frozenset[tuple[Component, Any]]


@dataclass(frozen=True)
class Instances:
    """Instances that are compared together, the smallest first."""

    chosen: tuple[Instance, ...]
    rank: int
    empty: tuple[Instance, ...] = ()  # some with an operand without elements: only their types can be judged

    @property
    def by_shape(self) -> tuple[Instance, ...]:
        """One instance for each combination of operand shapes, the largest."""
        return tuple({operands_key(i.operands): i for i in self.chosen}.values())


def instances_of(rule: Rule, count: int | None = None) -> Instances:
    """Return drawn instances of a rule: some with extents 1 and 2, and ones to 3 that show every two values; or `count` of them."""
    for rank in RANKS:
        instances = drawn(rule, range(1, SMALL + 1), rank, count or FIRST, draws=2)
        if count is None or not instances:
            instances += _covering_pairs(rule, rank)
        if instances:
            break
    else:  # a guard that few satisfy
        small = smallest(rule)
        instances, rank = [*small.chosen], small.rank
    empty = [i for i in drawn(rule, range(2), rank, EMPTY, draws=2, guarded=GUARDED_EMPTY) if any(0 in s for s in i.operands.values())]
    return Instances(_by_size(instances), rank, _by_size(empty))


def smallest(rule: Rule) -> Instances:
    """Return the smallest instances with extents 1 and 2, where a false rule mostly shows with few elements."""
    for rank in RANKS:
        search = Search(rule, range(1, SMALL + 1), rank, lambda candidates: candidates, TRIED_SMALL)
        instances: list[Instance] = []
        with suppress(TooMany):
            instances.extend(search.instances())
        if instances:
            break
    return Instances(_by_size(instances)[:SMALLEST], rank)


def _covering_pairs(rule: Rule, rank: int) -> list[Instance]:
    """Return random instances with extents up to 3 that cover pairs of values (pairwise testing): each has a new pair."""
    source, covered_pairs, quiet_draws = random.Random(0), set[Pair](), 0
    instances: list[Instance] = []
    candidates = elements = 0
    while quiet_draws < QUIET and candidates < TRIED and len(instances) < MOST and elements < ELEMENTS:
        search = Search(rule, range(1, WIDE + 1), rank, in_random_order(source), TRIED_IN_A_DRAW)
        search.left = GUARDED_IN_A_DRAW
        instance = None
        with suppress(TooMany):
            instance = next(search.instances(), None)
        candidates += max(TRIED_IN_A_DRAW - search.budget, 1)
        new_pairs = set() if instance is None else _pairs(search, instance) - covered_pairs
        quiet_draws = 0 if new_pairs else quiet_draws + 1
        covered_pairs |= new_pairs
        if new_pairs and instance is not None and max(map(_widest, instance.operands.values()), default=0) == WIDE:
            instances.append(instance)
            elements += instance.size
    return instances


def _widest(shape: Sequence[int]) -> int:
    return max(shape, default=0)


def _pairs(search: Search, instance: Instance) -> set[Pair]:
    """Return every two values of an instance: extents by operand, rank and axis, attributes by component."""
    parts: list[tuple[Component, Any]] = [((f"{n} {len(s)}", a), e) for n, s in instance.operands.items() for a, e in enumerate(s)]
    parts += [part for key, value in instance.values.items() for part in search.parts(key, value)]
    return {frozenset(p) for p in itertools.combinations(parts, 2)} | {frozenset((p,)) for p in parts}


def _by_size(instances: Sequence[Instance]) -> tuple[Instance, ...]:
    return tuple(sorted(instances, key=lambda i: i.size))
