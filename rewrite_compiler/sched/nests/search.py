"""Search: the configurations in which a nest does an operation, found at two sets of sizes at once.

Loops of the nest are those of the operation that move the same words. A register holds a size, an attribute or a constant: the first
combinations are kept for which every loop has the length that it must have, every word the element that it must be, and every
condition of the instruction holds.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ...ila import Ila
from ...lang.binders import Leaf
from ...lang.expr import Expr
from ...lang.printer import show
from ...lang.traversal import terms_of
from ..instructions.control import is_register, setters
from ..instructions.copies import NoCopy
from .nest import Bounds, Nest, symbolic_parts
from .places import Access, Configuration, Layout, NoPlaces
from .terms import Grid

ONCE = "1"  # what a loop of one step takes
MOST_TRIED, MOST_TRIED_IN_ALL = 1500, 6000  # combinations of values of registers, for one way to take the loops and for all
LENGTH, PLACE, CONDITION = range(3)  # kinds of demands, in the order in which they decide what registers hold
MOST_TOGETHER = 3  # registers that one demand decides, of which all values are tried; of more, all but two are 0
SWITCHED = 4  # values of a register that decides what is computed


@dataclass(frozen=True)
class Probe:
    """Sizes and attributes by name, and the shapes of tensors at them."""

    at: Mapping[str, int]
    shapes: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Goal:
    """An operation: what its result, its words and what it starts from are, the loops of result and sums, and two probes."""

    result: Access
    accesses: tuple[Access, ...]
    initial: Access | None
    loops: tuple[str, ...]
    steps: tuple[str, ...]
    probes: tuple[Probe, ...]

    def moving(self, a: Access) -> frozenset[str]:
        """Return the loops that move an access."""
        return frozenset(n for place in a.places for term in place for n in term) & {*self.loops, *self.steps}

    def related(self, loop: str) -> list[str]:
        """Return the names that stand beside a loop in the place of an axis, itself first."""
        if loop == ONCE:
            return [ONCE]
        places = [(p, d) for a in self.accesses for p, d in zip(a.places, a.dims, strict=True) if any(loop in term for term in p)]
        return [loop, *(n for p, d in places for n in (*(n for term in p for n in term), d))]


class Search:
    """One search for an operation on a nest; `furthest` says what stood in the way of the way that came furthest."""

    def __init__(self, ila: Ila, nest: Nest, goal: Goal) -> None:
        """Take what is looked for."""
        self.ila, self.nest, self.goal = ila, nest, goal
        self.furthest: tuple[int, str] = (0, "its loops move other words than those of the operation")
        self.settable = {**setters(ila)}.keys() | {n for n, o in nest.summary.instruction.operands.items() if not o.leaf.shape}
        self.left, self.total = MOST_TRIED, MOST_TRIED_IN_ALL

    def configurations(self) -> Iterator[Configuration]:
        """Yield configurations, with switches as they are at first."""
        every = [(words, *choice) for words in self._assignments() for choice in self._choices(words)]
        for words, loops, steps in sorted(every, key=lambda x: (self._rank(x[1]), self._rank(x[2]))):
            self.left = min(MOST_TRIED, self.total)
            self.total -= self.left
            yield from self._with_registers(Configuration(self.nest, self.goal.result, loops, steps, words, {}, self.goal.initial))
            self.total += max(self.left, 0)
            if self.total <= 0:
                self.note(depth=100, reason=f"the search ended after {MOST_TRIED_IN_ALL:,} combinations of registers")
                return

    def note(self, depth: int, reason: str) -> None:
        """Keep a reason if it came further than others."""
        if depth > self.furthest[0]:
            self.furthest = depth, reason

    # -- which word is what, which loop is which

    def _assignments(self) -> Iterator[tuple[Access | None, ...]]:
        """Yield what each word is; accumulators, words of the memory that results go to, may be none."""
        memories = {store.memory.name for _, store in self.nest.stores}
        steps = {v for v, _ in self.nest.steps}
        optional = [symbolic_parts(w)[0].memory in memories and not w.free & steps for w in self.nest.words]
        count = len(self.goal.accesses)
        if not len(self.nest.words) - sum(optional) <= count <= len(self.nest.words):
            self.note(1, f"it computes with {len(self.nest.words)} words, the operation with {count}")
            return
        for subset in itertools.combinations(range(len(self.nest.words)), count):
            if all(n in subset or optional[n] for n in range(len(self.nest.words))):
                for order in itertools.permutations(self.goal.accesses):
                    assignment = dict(zip(subset, order, strict=True))
                    yield tuple(assignment.get(n) for n in range(len(self.nest.words)))

    def _choices(self, words: Sequence[Access | None]) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
        """Yield the loop of the operation that each loop of the nest takes: those that move the same words, in their order first."""

        reached = {x: frozenset(n for n, a in enumerate(words) if a is not None and x in self.goal.moving(a)) for x in self._names}

        def options(v: Expr, names: Sequence[str]) -> list[str]:
            signature = frozenset(n for n, (w, a) in enumerate(zip(self.nest.words, words, strict=True)) if a is not None and v in w.free)
            return [*(x for x in names if reached[x] == signature), ONCE]

        result = [*itertools.product(*(options(v, self.goal.loops) for v, _ in self.nest.loops))]
        sums = [*itertools.product(*(options(v, self.goal.steps) for v, _ in self.nest.steps))]
        yield from (
            (loops, steps)
            for loops in result
            for steps in sums
            if {*steps} - {ONCE} == {*self.goal.steps}
            and _is_shared_by_lanes(self.nest.loops, loops)
            and _is_shared_by_lanes(self.nest.steps, steps)
        )

    def _rank(self, names: Sequence[str]) -> tuple[int, int, int]:
        """Return what puts choices in order: those first that take most loops of the operation, none but those, and in their order."""
        order = [self._names.index(n) for n in dict.fromkeys(names) if n != ONCE]
        return -len(order), names.count(ONCE), _inversions(order)

    @property
    def _names(self) -> tuple[str, ...]:
        return (*self.goal.loops, *self.goal.steps)

    # -- what registers hold

    def _with_registers(self, c: Configuration) -> Iterator[Configuration]:
        """Yield a configuration with each combination of registers that fits."""
        bounds = zip((*self.nest.loops, *self.nest.steps), (*c.loops, *c.steps), strict=True)
        demands = [(registers_of(n), self._has_length(v, n, name, c), self.goal.related(name), LENGTH) for (v, n), name in bounds]
        if not all(demand(c) for registers, demand, *_ in demands if not registers & self.settable):
            self.note(2, "a loop of a fixed length has another in the operation")
            return
        demands = [d for d in demands if d[0] & self.settable]
        words = [(w, a) for w, a in zip(self.nest.words, c.words, strict=True) if a is not None]
        demands += [
            (self._word_registers(w), self._is_placed(w, a), [*a.dims, *(n for p in a.places for t in p for n in t)], PLACE)
            for w, a in words
        ]
        demands.append((self._store_registers(), self._is_stored, [*self.goal.loops], PLACE))
        demands += [(registers_of(x), self._holds(x), [], CONDITION) for x in (*self.nest.conditions, *self.nest.summary.requires)]
        yield from self._solved(c, demands, 3)

    def _solved(self, c: Configuration, demands: Sequence[Demand], depth: int) -> Iterator[Configuration]:
        if not demands:
            yield c
            return
        missing = [len(d[0] & self.settable - c.registers.keys()) for d in demands]
        first = min(range(len(demands)), key=lambda n: (missing[n] > 0, demands[n][3], missing[n], n))
        registers, demand, related, _ = demands[first]
        others = [d for n, d in enumerate(demands) if n != first]
        names = sorted(registers & self.settable - c.registers.keys())
        for candidate in self._settings(c, names, related if demands[first][3] == LENGTH or len(names) > 1 else ["0", *related]):
            self.left -= 1
            if self.left < 0:
                self.note(depth, f"{MOST_TRIED} combinations of registers were tried")
                return
            if demand(candidate):
                yield from self._solved(candidate, others, depth + 1)

    def _settings(self, c: Configuration, names: Sequence[str], related: Sequence[str]) -> Iterator[Configuration]:
        """Yield a configuration with values of registers, those of related names first."""
        sizes = [n for n in self.goal.probes[0].at if n not in related]
        order = [*dict.fromkeys([*(n for n in related if n in self.goal.probes[0].at or n == "0"), "0", *sizes, "1"])]
        for values in _few_at_once(order, len(names)) if len(names) > MOST_TOGETHER else _by_rank(order, len(names)):
            yield replace(c, registers={**c.registers, **dict(zip(names, values, strict=True))})

    def _layouts(self, c: Configuration) -> Iterator[Layout]:
        for probe in self.goal.probes:
            host = {n: 0 for n in self.goal.loops if n not in c.loops}
            yield Layout(self.ila, c, probe.shapes, probe.at, host)

    def _has_length(self, v: Expr, n: Expr, name: str, c: Configuration) -> Callable[[Configuration], bool]:
        """Return whether a loop has the length of one of the operation, that of lanes beside it divided out."""
        mine = [x for x, loop in zip((*self.nest.loops, *self.nest.steps), (*c.loops, *c.steps), strict=True) if loop == name]
        lanes = 1
        for other, extent in mine:
            lanes *= int(extent.value) if extent.value is not None and other is not v else 1

        def demand(candidate: Configuration) -> bool:
            for probe in self.goal.probes:
                try:
                    x = Grid({}, candidate.control(self.ila, probe.at)).of(n)
                except NoCopy:
                    return False
                is_lane = n.value is not None and len(mine) > 1
                if not is_lane and x != -(-probe.at.get(name, 1) // lanes):
                    return False
            return True

        return demand

    def _is_placed(self, word: Expr, access: Access) -> Callable[[Configuration], bool]:
        def demand(c: Configuration) -> bool:
            return self._each(c, lambda layout: layout.word(word, access), 4)

        return demand

    def _is_stored(self, c: Configuration) -> bool:
        return self._each(c, lambda layout: layout.results(), 5)

    def _holds(self, condition: Expr) -> Callable[[Configuration], bool]:
        def demand(c: Configuration) -> bool:
            if all(layout.holds((condition,)) for layout in self._layouts(c)):
                return True
            self.note(6, f"{show(condition).replace('[]', '')} does not hold")
            return False

        return demand

    def _each(self, c: Configuration, evaluate: Callable[[Layout], object], depth: int) -> bool:
        try:
            for layout in self._layouts(c):
                evaluate(layout)
        except (NoPlaces, NoCopy) as reason:
            self.note(depth, str(reason) or "an address depends on data")
            return False
        return True

    def _word_registers(self, word: Expr) -> frozenset[str]:
        names = registers_of(word)
        for p in symbolic_parts(word):
            fill = self.nest.fills.get(p.memory)
            names |= registers_of(fill.value) if fill is not None else frozenset()
        return names

    def _store_registers(self) -> frozenset[str]:
        terms = [x for conditions, s in self.nest.stores for x in (*conditions, *s.address, *s.extents)]
        return frozenset[str]().union(*map(registers_of, terms))

    def switches(self, c: Configuration) -> list[dict[str, str]]:
        """Return settings of the registers that nothing but the value depends on, all at 0 first."""
        names = sorted(registers_of(self.nest.update.value) & self.settable - c.registers.keys())
        intervals = {s.leaf.name: s.leaf.interval for s in self.ila.states.values() if is_register(self.ila, s.name)}
        options = [
            [str(x) for x in range(min(int(intervals[n][1] or 0), SWITCHED - 1) + 1)] if intervals[n][1] == 1 else ["0"] for n in names
        ]
        return [dict(zip(names, values, strict=True)) for values in itertools.product(*options)]


Demand = tuple[frozenset[str], Callable[[Configuration], bool], list[str], int]


def _by_rank(order: Sequence[str], count: int) -> Iterator[tuple[str, ...]]:
    """Yield all combinations, those of different values first, and those near the front of the order."""
    ranks = {x: n for n, x in enumerate(order)}
    every = itertools.product(order, repeat=count)
    yield from every if count == 1 else sorted(every, key=lambda x: (count - len({*x}), sum(ranks[v] for v in x)))


def _few_at_once(order: Sequence[str], count: int) -> Iterator[tuple[str, ...]]:
    """Yield combinations in which all but a few values are 0."""
    values = [x for x in order if x != "0"]
    for size in range(MOST_TOGETHER):
        for places in itertools.combinations(range(count), size):
            for others in itertools.product(values, repeat=size):
                at = dict(zip(places, others, strict=True))
                yield tuple(at.get(n, "0") for n in range(count))


def _is_shared_by_lanes(bounds: Bounds, names: Sequence[str]) -> bool:
    """Tell whether at most one loop of a counted length takes each loop of the operation."""
    counted = [name for (_, n), name in zip(bounds, names, strict=True) if n.value is None and name != ONCE]
    return len({*counted}) == len(counted)


def _inversions(order: Sequence[int]) -> int:
    """Return how many pairs are not in order."""
    return sum(a > b for a, b in itertools.combinations(order, 2))


def registers_of(e: Expr) -> frozenset[str]:
    """Return the names of the leaves without axes below a term."""
    return frozenset(x.data.name for x in terms_of(e) if x.op == "load" and isinstance(x.data, Leaf) and not x.args)
