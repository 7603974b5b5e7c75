"""The instances a rule is judged at: every shape within the bounds, with every value of the attributes or a covering set.

Where shapes and attributes multiply to too many instances, each combination of operand shapes keeps its own set in which
every two values of attributes that can occur together do: pads, strides and dilations count axis by axis.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from ..rewrite.rule import Rule
from .shapes import Component, Instance, Operands, Search, TooMany, drawn, in_random_order, largest_window, operands_key

RANKS = (4, 5, 6)  # the largest rank of an operand: the first of these that has an instance
TRIED = 60_000  # candidates tried for all instances, before sets are drawn for each combination of shapes
ALL = 1 << 30  # as a count of instances: every one, however long the search
EVERY = 15_000  # instances beyond which sets are drawn
WIDE, FEW = 3, 5_000  # extents up to which all shapes are judged where that makes few instances; else those up to 2, and drawn ones
TRIED_WIDE = 25_000  # candidates tried to see whether it does, and candidates tried to draw some
GUARDED_WIDE = 200_000  # candidates held against the guard to see whether it does
QUIET = 40  # draws in a row without a new pair of values after which a set with wide extents is complete
QUIET_COVERED = 24  # the same where a proof at all shapes covers every instance
MOST_WIDE, ELEMENTS_WIDE = 1_000, 60_000  # instances with wide extents that are drawn, and elements of their patterns together
MOST_COVERED, ELEMENTS_COVERED = 300, 12_000  # the same where a proof at all shapes covers every instance
ELEMENTS_FIRST = 4_000  # of the instances with wide extents that are judged before all small ones
ELEMENTS = 400_000  # elements of the patterns of all instances with wide extents, beyond which only some are judged
SMALLEST = 1_000  # instances that are judged before larger ones are looked for: a false rule mostly shows there
TRIED_FALSE, SMALLEST_FALSE = 20_000, 400  # the same two where a rule is known to be false
COMBINATIONS = 5_000  # combinations of operand shapes that are covered
EACH = 32  # instances of one combination that are all judged
DRAWN = 16  # instances drawn for one combination before what they lack is searched for
TRIED_FOR_A_PAIR = 4_000
GUARDED_IN_A_DRAW = 1_000  # candidates of a draw that are held against the guard
FIRST = 40  # instances drawn before a covering set is searched for: a false rule mostly shows there
GUARDED_EMPTY = 500  # candidates held against the guard in one draw of these
EMPTY = 20  # instances drawn with extents 0 and 1
DRAWN_WORDS = "drawn with seed 0"
Pair = frozenset[tuple[Component, Any]]


@dataclass(frozen=True)
class Instances:
    """The instances to judge, how they were chosen in words, and the bounds."""

    chosen: tuple[Instance, ...]
    choice: str
    limit: int
    rank: int
    empty: tuple[Instance, ...] = ()  # some with an operand without elements: only their types can be judged
    wide: tuple[Instance, ...] = ()  # of those chosen, some with larger extents than the bounds
    has_every_pair: bool = False  # whether the wide ones show every two values that were drawn together, or were bounded by cost

    @property
    def by_shape(self) -> tuple[Instance, ...]:
        """One instance for each combination of operand shapes, the largest."""
        return tuple({operands_key(i.operands): i for i in self.chosen}.values())

    @property
    def is_every_shape(self) -> bool:
        """Tell whether every shape within the bounds has an instance."""
        return not self.choice.endswith(DRAWN_WORDS)

    @property
    def strength(self) -> str:
        """The bounds of the certificate in words."""
        bounds = self.choice.format(f"extents 1…{self.limit}, ranks 0…{self.rank}")
        drawn_how = "every two values of extents and attributes drawn" if self.has_every_pair else DRAWN_WORDS
        return bounds + (f"; {len(self.wide)} with extents 1…{WIDE}, {drawn_how}" if self.wide else "")


Look = Callable[[Instances], None]
Covered = Callable[[Instances], bool | None]


def instances_of(
    rule: Rule, limit: int | None = None, count: int | None = None, look: Look = lambda _: None, covered: Covered = lambda _: False
) -> Instances:
    """Return the instances of a rule: at every shape, or at most `count` of all; `look` sees some before many are searched for.

    Without a limit they are all with extents up to 3 where these are few, else those up to 2 and some that are drawn. Where
    `covered` says of some that the rule is proved at all shapes, they are these and ones that cover every two values; None says
    that one of them refutes it: smaller ones are looked for, but not long.
    """
    for rank in RANKS:
        found = _unlimited(rule, rank, count, look, covered) if limit is None else _within(rule, limit, rank, count, look)
        if found.chosen:
            break
    empty = [
        i
        for i in drawn(rule, range(2), found.rank, EMPTY, draws=2, guarded=GUARDED_EMPTY)
        if any(0 in shape for shape in i.operands.values())
    ]
    return replace(found, empty=tuple(_by_size(empty)))


def _unlimited(rule: Rule, rank: int, count: int | None, look: Look, covered: Covered) -> Instances:
    if count is not None:
        return _within(rule, max(WIDE - 1, largest_window(rule)), rank, count, look)
    first = _first(rule, WIDE - 1, rank)
    holds = bool(first.chosen) and covered(first)
    if holds:
        wide, is_complete = _wide(rule, rank, MOST_COVERED, ELEMENTS_COVERED, QUIET_COVERED)
        return replace(first, chosen=tuple(_by_size([*first.chosen, *wide])), wide=tuple(wide), has_every_pair=is_complete)
    if holds is not None:
        look(_smallest_and_wide(rule, rank))
    small = _every(rule, WIDE - 1, rank, TRIED if holds is not None else TRIED_FALSE)
    if small:
        look(_smallest(small, rank, SMALLEST if holds is not None else SMALLEST_FALSE))
    if holds is None:
        look(first)
    limit = max(WIDE, largest_window(rule))
    every = None if small is None or len(small) > FEW else _every(rule, limit, rank, TRIED_WIDE, GUARDED_WIDE)
    if every is not None and len(every) <= FEW and _elements(every) <= ELEMENTS:
        return Instances(tuple(_by_size(every)), f"all {len(every)} instances with {{}}", limit, rank)
    found = _chosen(rule, WIDE - 1, rank, count, look, small)
    if not found.chosen:
        return found
    wide, is_complete = _wide(rule, rank)
    return replace(found, chosen=tuple(_by_size([*found.chosen, *wide])), wide=tuple(wide), has_every_pair=is_complete)


def _smallest_and_wide(rule: Rule, rank: int) -> Instances:
    """Return the first of all instances and a few with wide extents: some differences begin there."""
    search = Search(rule, range(1, WIDE), rank, _all, TRIED_FOR_A_PAIR)
    some = _wide(rule, rank, FIRST, ELEMENTS_FIRST)[0]
    with suppress(TooMany):
        some += itertools.islice(search.instances(), 1)
    return Instances(tuple(_by_size(some)), f"{len(some)} instances with {{}}, {DRAWN_WORDS}", WIDE, rank)


def _smallest(every: Sequence[Instance], rank: int, most: int) -> Instances:
    """Return the smallest of all instances: counter-examples are among them, and cost little."""
    some = _by_size(every)[:most]
    which = "all" if len(some) == len(every) else f"the {len(some)} smallest of"
    return Instances(tuple(some), f"{which} {len(every)} instances with {{}}", WIDE - 1, rank)


def _elements(instances: Sequence[Instance]) -> int:
    return sum(i.size for i in instances)


def _first(rule: Rule, limit: int, rank: int) -> Instances:
    """Return a few drawn instances."""
    first = drawn(rule, range(1, limit + 1), rank, FIRST, draws=2)
    return Instances(tuple(_by_size(first)), f"{len(first)} instances with {{}}, {DRAWN_WORDS}", limit, rank)


def _wide(rule: Rule, rank: int, most: int = MOST_WIDE, largest: int = ELEMENTS_WIDE, enough: int = QUIET) -> tuple[list[Instance], bool]:
    """Return drawn instances with extents up to 3, each with two values of extents or attributes that no other has together.

    The second tells whether draws ceased to show new ones; else candidates, instances or elements reached their bounds.
    """
    source, covered, quiet = random.Random(0), set[Pair](), 0
    kept: list[Instance] = []
    tried = elements = 0
    while quiet < enough:
        if tried >= TRIED_WIDE or len(kept) >= most or elements >= largest:
            return kept, False
        search = Search(rule, range(1, WIDE + 1), rank, in_random_order(source), TRIED_FOR_A_PAIR)
        search.left = GUARDED_IN_A_DRAW
        instance = None
        with suppress(TooMany):
            instance = next(search.instances(), None)
        tried += max(TRIED_FOR_A_PAIR - search.budget, 1)
        new = set() if instance is None else _pairs(search, instance) - covered
        quiet = 0 if new else quiet + 1
        covered |= new
        if new and instance is not None and max(map(_widest, instance.operands.values()), default=0) == WIDE:
            kept.append(instance)
            elements += instance.size
    return kept, True


def _widest(shape: Sequence[int]) -> int:
    return max(shape, default=0)


def _pairs(search: Search, instance: Instance) -> set[Pair]:
    """Return every two values of an instance: extents by operand, rank and axis, attributes by component."""
    parts: list[tuple[Component, Any]] = [((f"{n} {len(s)}", a), e) for n, s in instance.operands.items() for a, e in enumerate(s)]
    parts += [part for key, value in instance.values.items() for part in search.parts(key, value)]
    return {frozenset(p) for p in itertools.combinations(parts, 2)} | {frozenset((p,)) for p in parts}


def _within(rule: Rule, limit: int, rank: int, count: int | None, look: Look) -> Instances:
    return _chosen(rule, limit, rank, count, look, _every(rule, limit, rank, ALL if count == ALL else TRIED))


def _chosen(rule: Rule, limit: int, rank: int, count: int | None, look: Look, every: Sequence[Instance] | None) -> Instances:
    """Return all instances where they are few, else a covering set or some that are drawn; `every` is None where it is not known."""

    def made(chosen: Sequence[Instance], choice: str) -> Instances:
        return Instances(tuple(_by_size(chosen)), choice, limit, rank)

    wanted = EVERY if count is None else count
    if every is not None and len(every) <= wanted:
        return made(every, f"all {len(every)} instances with {{}}")
    if count is None:
        look(_first(rule, limit, rank))
        covering = _covering(rule, limit, rank)
        if covering is not None:
            return made(*covering)
    some = random.Random(0).sample(every, wanted) if every else drawn(rule, range(1, limit + 1), rank, count or COMBINATIONS)
    known = f"{len(every)}" if every else f"more than {len(some)}"
    return made(some, f"{len(some)} of {known} instances with {{}}, {DRAWN_WORDS}")


def _every(rule: Rule, limit: int, rank: int, budget: int, guarded: float = math.inf) -> list[Instance] | None:
    """Return all instances, None when there are too many candidates."""
    search = Search(rule, range(1, limit + 1), rank, _all, budget)
    search.left = guarded
    with suppress(TooMany):
        return list(search.instances())
    return None


def _all(candidates: Sequence[Any]) -> Sequence[Any]:
    return candidates


def _by_size(found: Sequence[Instance]) -> list[Instance]:
    return sorted(found, key=lambda i: i.size)


# -- covering sets


def _covering(rule: Rule, limit: int, rank: int) -> tuple[list[Instance], str] | None:
    """Return instances for every combination of operand shapes and the words for them, None when there are too many."""
    found: list[Instance] = []
    count = undecided = 0
    try:
        for operands in _combinations(rule, limit, rank):
            covered = _Cover(rule, limit, rank, operands)
            found += covered.instances()
            undecided += covered.undecided
            count += 1
    except TooMany:
        return None
    words = f"{len(found)} instances with {{}}: all {count} combinations of operand shapes, each with every two values of attributes"
    return found, words + (f" but {undecided} pairs of values that were not decided" if undecided else " that occur together")


def _combinations(rule: Rule, limit: int, rank: int) -> Iterator[Operands]:
    """Yield the shapes of operands that have an instance; TooMany beyond the bound."""
    search = Search(rule, range(1, limit + 1), rank, _all, COMBINATIONS * 100)
    for instance in search.instances():
        key = operands_key(instance.operands)
        search.finished.add(key)
        if len(search.finished) > COMBINATIONS:
            raise TooMany
        yield key


class _Cover:
    """Chooses instances of one combination of shapes so that all pairs of values of attributes occur."""

    def __init__(self, rule: Rule, limit: int, rank: int, operands: Operands) -> None:
        self.source = random.Random(0)
        self.rule, self.extents, self.rank, self.operands = rule, range(1, limit + 1), rank, dict(operands)
        self.domains: dict[Component, set[Any]] = {}
        self.whole: set[str] = set()
        self.noted: set[tuple[int, int]] = set()
        self.covered: set[Pair] = set()
        self.kept: list[Instance] = []
        self.undecided = 0

    def instances(self) -> list[Instance]:
        """Return all instances where they are few, else the covering set."""
        with suppress(TooMany):
            few = list(itertools.islice(self._search(_all, EACH * 10).instances(), EACH + 1))
            if len(few) <= EACH:
                return few
        for _ in range(DRAWN):
            self._found({})
        values = [(c, v) for c, domain in self.domains.items() for v in sorted(domain, key=str)]
        possible = [x for x in values if self._has(frozenset([x]))]
        for a, b in itertools.combinations(possible, 2):
            if a[0] != b[0]:
                self._has(frozenset((a, b)))
        return self.kept

    def _search(self, choose: Any, budget: int) -> Search:
        search = Search(self.rule, self.extents, self.rank, choose, budget)
        search.fixed, search.domains, search.whole, search.noted = self.operands, self.domains, self.whole, self.noted
        return search

    def _has(self, pair: Pair) -> bool:
        """Tell whether values occur together; keep an instance that shows it."""
        if pair in self.covered:
            return True
        try:
            return self._found(dict(pair))
        except TooMany:
            self.undecided += 1
            return False

    def _found(self, pins: dict[Component, Any]) -> bool:
        search = self._search(in_random_order(self.source), TRIED_FOR_A_PAIR)
        search.pins = pins
        instance = next(search.instances(), None)
        if instance is None:
            return False
        parts = [part for key, value in instance.values.items() for part in search.parts(key, value)]
        new = {frozenset(p) for n in (1, 2) for p in itertools.combinations(parts, n)} - self.covered
        if new:
            self.covered |= new
            self.kept.append(instance)
        return True
