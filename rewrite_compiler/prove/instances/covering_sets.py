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
from .instance_search import Component, Instance, Search, TooManyCandidates, drawn_instances, in_random_order, operands_key

RANKS = (4, 5, 6)  # the largest rank of an operand: the first of these that has an instance
SMALL, WIDE = 2, 3  # extents of the first drawn ones, and of those that show every two values
FIRST_DRAWS = 24  # of the first drawn ones
QUIET_DRAWS = 10  # draws in a row without a new pair of values after which there are enough
MAX_CANDIDATES = 5_000  # candidates tried to draw those with every two values
CANDIDATES_PER_DRAW = 1_000
GUARD_CHECKS_PER_DRAW = 500  # candidates of a draw that are held against the guard
MAX_INSTANCES, MAX_ELEMENTS = 100, 6_000  # of those with every two values, and elements of their patterns together
MAX_SMALL_CANDIDATES, MAX_SMALL_INSTANCES = 20_000, 400  # candidates tried for small ones, and how many of these are kept
GUARD_CHECKS_PER_EMPTY_DRAW = 500  # candidates held against the guard in one draw of these
EMPTY = 10  # instances drawn with extents 0 and 1
Pair = frozenset[tuple[Component, Any]]


@dataclass(frozen=True)
class Instances:
    """Instances that are compared together, the smallest first."""

    nonempty: tuple[Instance, ...]
    rank: int
    empty: tuple[Instance, ...] = ()  # some with an operand without elements: only their types can be judged

    @property
    def by_shape(self) -> tuple[Instance, ...]:
        """One instance for each combination of operand shapes, the largest."""
        return tuple({operands_key(i.operands): i for i in self.nonempty}.values())


def instances_of(rule: Rule, count: int | None = None) -> Instances:
    """Return drawn instances of a rule: some with extents 1 and 2, and ones to 3 that show every two values; or `count` of them."""
    for rank in RANKS:
        instances = drawn_instances(rule, range(1, SMALL + 1), rank, count or FIRST_DRAWS, draws=2)
        if count is None or not instances:
            instances += _covering_pairs(rule, rank)
        if instances:
            break
    else:  # a guard that few satisfy
        small = smallest_instances(rule)
        instances, rank = [*small.nonempty], small.rank
    empty = [
        i
        for i in drawn_instances(rule, range(2), rank, EMPTY, draws=2, guard_budget=GUARD_CHECKS_PER_EMPTY_DRAW)
        if any(0 in s for s in i.operands.values())
    ]
    return Instances(_by_size(instances), rank, _by_size(empty))


def smallest_instances(rule: Rule) -> Instances:
    """Return the smallest instances with extents 1 and 2, where a false rule mostly shows with few elements."""
    for rank in RANKS:
        search = Search(rule, range(1, SMALL + 1), rank, lambda candidates: candidates, MAX_SMALL_CANDIDATES)
        instances: list[Instance] = []
        with suppress(TooManyCandidates):
            instances.extend(search.instances())
        if instances:
            break
    return Instances(_by_size(instances)[:MAX_SMALL_INSTANCES], rank)


def first_instances(rule: Rule, count: int) -> list[Instance]:
    """Return the first instances in the order of the search, which begins with numbers."""
    search = Search(rule, range(1, SMALL + 1), RANKS[0], lambda candidates: candidates, MAX_SMALL_CANDIDATES)
    instances: list[Instance] = []
    with suppress(TooManyCandidates):
        instances.extend(itertools.islice(search.instances(), count))
    return instances


def _covering_pairs(rule: Rule, rank: int) -> list[Instance]:
    """Return random instances with extents up to 3 that cover pairs of values (pairwise testing): each has a new pair."""
    source, covered_pairs, quiet_draws = random.Random(0), set[Pair](), 0
    instances: list[Instance] = []
    candidates = elements = 0
    while quiet_draws < QUIET_DRAWS and candidates < MAX_CANDIDATES and len(instances) < MAX_INSTANCES and elements < MAX_ELEMENTS:
        search = Search(rule, range(1, WIDE + 1), rank, in_random_order(source), CANDIDATES_PER_DRAW)
        search.guard_budget = GUARD_CHECKS_PER_DRAW
        instance = None
        with suppress(TooManyCandidates):
            instance = next(search.instances(), None)
        candidates += max(CANDIDATES_PER_DRAW - search.typing_budget, 1)
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
