"""Counters of a mapping whose tiles leave rests: exact, by regions of equal tiles.

A loop over tiles that do not divide what they cut ends with a smaller one, and every loop inside of that one is shorter, too. A region
is what runs inside of some steps of the outer loops. How much it moves depends on the sizes of what it cuts alone, so that regions of
equal sizes are counted once; between two regions what the next one needs is compared with what the last one left.
A sub-cluster without a part keeps what it has until it has one again. Deliveries are read by loops, as every change of a tile.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from ...errors import InputError
from ..problems.problem import Problem
from .clusters import Clusters
from .schedule import Schedule, tile_elements
from .sums import MAX_RUNS, Runs, common, joined, run_size, runs_of, shifted, without

Interval = tuple[int, int]  # offset and steps; 0 steps are no part
Row = tuple[Interval, ...]  # what each sub-cluster has of a dimension
State = tuple[Row, ...]  # by dimension
Amounts = tuple[int, int]  # elements that all sub-clusters need, each once, and those that they get together


@dataclass(frozen=True)
class Loop:
    """A loop that cuts a dimension into tiles of a size, at a row of levels from the inside."""

    dimension: int
    size: int
    row: int
    is_spatial: bool


@dataclass(frozen=True)
class Region:
    """What runs inside of some steps: what it moves but for its beginning, and what it has at the beginning and at the end."""

    moved: Amounts
    first: State
    last: State


@dataclass(frozen=True)
class Totals:
    """Elements of one tensor at one level: the largest tile, instances with work, and counts over all instances or of the busiest one."""

    tile: int
    instances: int
    reads: int
    fills: int
    updates: int
    busiest: int  # reads and updates

    def counters(self) -> dict[str, int]:
        """Return the counts over all instances by name."""
        return {"tile": self.tile, "instances": self.instances, "reads": self.reads, "fills": self.fills, "updates": self.updates}


def loops_of(problem: Problem, schedule: Schedule) -> tuple[Loop, ...]:
    """Return the loops of a mapping that cut anything, outermost first; loops that no order names are outside of those of their level."""
    sizes, loops = dict(problem.dimensions), []
    for level, m in enumerate(schedule.levels):
        row = len(schedule.levels) - 1 - level
        for is_spatial, tiles in ((False, m.temporal), (True, m.spatial)):
            order = [*(d for d in reversed(problem.names) if d not in m.order), *m.order]
            for d in order:
                tile = min(tiles.get(d, sizes[d]), sizes[d])
                if tile < sizes[d]:
                    loops.append(Loop(problem.names.index(d), tile, row, is_spatial))
                sizes[d] = tile
    return tuple(loops)


def leaves_rests(problem: Problem, schedule: Schedule) -> bool:
    """Tell whether some tile does not divide what it cuts."""
    sizes = list(problem.dimensions.values())
    for loop in loops_of(problem, schedule):
        if sizes[loop.dimension] % loop.size:
            return True
        sizes[loop.dimension] = loop.size
    return False


@dataclass(frozen=True)
class Remainders:
    """Exact counters of one mapping; `bypasses` names the tensors that each row, from the inside, does not hold."""

    problem: Problem
    clusters: Clusters
    schedule: Schedule
    bypasses: tuple[frozenset[str], ...]

    @cached_property
    def loops(self) -> tuple[Loop, ...]:
        """The loops, outermost first."""
        return loops_of(self.problem, self.schedule)

    @cached_property
    def steps(self) -> int:
        """Temporal steps of the first unit, which has most: all others run beside it."""
        state = self._whole
        return math.prod(_temporal_steps([x for x in self.loops if x.dimension == k], row[0][1]) for k, row in enumerate(state))

    @property
    def _whole(self) -> State:
        return tuple(((0, n),) for n in self.problem.dimensions.values())

    def holds(self, tensor: str, level: int) -> bool:
        """Tell whether a level keeps a tensor."""
        return tensor not in self.bypasses[level]

    def totals(self, tensor: str, level: int) -> Totals:
        """Return the counters of a tensor at a level that holds it."""
        rows = len(self.schedule.levels)
        holders = [row for row in range(rows) if tensor not in self.bypasses[row]]
        child = max((row for row in holders if row < level), default=-1)
        parent = min((row for row in holders if row > level), default=None)
        is_output = tensor == self.problem.output
        reads = busiest = updates = instances = 0
        for state, count in self._instances(level):
            delivered = _Walk(self, tensor, child, level, whole=is_output or child < 0).total(state)[0]
            read = delivered - (self._distinct(tensor, level, state) if is_output else 0)
            update = delivered if is_output else 0
            busiest = max(busiest, read + update)
            reads, updates, instances = reads + count * read, updates + count * update, instances + count
        fills = 0
        if parent is not None:
            for state, count in self._instances(parent):
                fills += count * _Walk(self, tensor, level, parent, whole=is_output).total(state)[1]
        return Totals(self._tile(tensor, level), instances, reads, fills, updates, busiest)

    def _instances(self, level: int) -> Iterator[tuple[tuple[int, ...], int]]:
        """Yield the part that an instance of a level has of every spatial loop outside, with how many have parts of the same sizes."""
        outer = [k for k, x in enumerate(self.loops) if x.is_spatial and x.row > level]
        yield from _classes(self.loops, outer, [row[0][1] for row in self._whole])

    def _tile(self, tensor: str, level: int) -> int:
        sizes = list(self.problem.dimensions.values())
        for loop in self.loops:
            if loop.row > level:
                sizes[loop.dimension] = loop.size
        return tile_elements(self.problem.spaces[tensor], dict(zip(self.problem.names, sizes, strict=True)), spans=True)

    def _distinct(self, tensor: str, level: int, parts: tuple[int, ...]) -> int:
        """Return the distinct elements that an instance sees in the whole run."""
        outer = dict(zip((k for k, x in enumerate(self.loops) if x.is_spatial and x.row > level), parts, strict=True))
        sizes, total = self.problem.dimensions, 1
        for axis in self.problem.spaces[tensor]:
            chains = {d: self._chain(self.problem.names.index(d), level, outer) for d in axis}
            if len(axis) == 1:
                total *= math.prod(_count_seen(chains[d], sizes[d]) for d in axis)
            else:
                total *= run_size(runs_of([(_seen(chains[d], sizes[d]), c) for d, c in axis.items()]))
        return total

    def _chain(self, dimension: int, level: int, outer: Mapping[int, int]) -> tuple[tuple[int, int | None], ...]:
        """Return the tiles of the loops of a dimension outside of a level, with the part that is taken of a spatial one."""
        return tuple((x.size, outer.get(k)) for k, x in enumerate(self.loops) if x.dimension == dimension and x.row > level)


def _temporal_steps(loops: list[Loop], size: int) -> int:
    """Return how many steps the temporal loops of one dimension take in the first part of every spatial one."""
    if not loops:
        return 1
    loop, *inner = loops
    if loop.is_spatial:
        return _temporal_steps(inner, min(loop.size, size))
    full, rest = divmod(size, loop.size)
    return full * _temporal_steps(inner, loop.size) + (_temporal_steps(inner, rest) if rest else 0)


def _seen(chain: tuple[tuple[int, int | None], ...], steps: int) -> Runs:
    """Return the positions of a dimension that an instance sees: its own part of spatial loops, all steps of temporal ones."""
    if not chain or not steps:
        return ((0, steps),) if steps else ()
    (tile, part), inner = chain[0], chain[1:]
    if part is not None:
        return shifted(_seen(inner, max(min(tile, steps - part * tile), 0)), part * tile)
    full, rest = divmod(steps, tile)
    inner_runs = _seen(inner, tile)
    if inner_runs == ((0, tile),):
        return joined([((0, full * tile),), shifted(_seen(inner, rest), full * tile)])
    if full * len(inner_runs) > MAX_RUNS:
        raise InputError("F230", f"An axis with gaps must have at most {MAX_RUNS:,} runs of positions, not {full * len(inner_runs):,}")
    return joined([*(shifted(inner_runs, k * tile) for k in range(full)), shifted(_seen(inner, rest), full * tile)])


def _count_seen(chain: tuple[tuple[int, int | None], ...], steps: int) -> int:
    """Return how many positions an instance sees."""
    if not chain or not steps:
        return steps
    (tile, part), inner = chain[0], chain[1:]
    if part is not None:
        return _count_seen(inner, max(min(tile, steps - part * tile), 0))
    full, rest = divmod(steps, tile)
    return full * _count_seen(inner, tile) + _count_seen(inner, rest)


def _classes(loops: tuple[Loop, ...], outer: list[int], sizes: list[int]) -> Iterator[tuple[tuple[int, ...], int]]:
    """Yield parts of spatial loops, one of each that no count tells apart, with how many are like it."""
    by_dimension: list[list[tuple[tuple[int, ...], int]]] = []
    for d, n in enumerate(sizes):
        chain = [(loops[k], k in outer) for k in range(len(loops)) if loops[k].dimension == d]
        last = max((k for k, (_, is_outer) in enumerate(chain) if is_outer), default=-1)
        choices = [range(-(-_largest(chain, k, n) // x.size)) for k, (x, is_outer) in enumerate(chain) if is_outer]
        like: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
        for parts in itertools.product(*choices):
            sizes_seen = tuple(_sizes(chain[: last + 1], parts, n))
            if any(sizes_seen):
                like.setdefault(sizes_seen, []).append(parts)
        by_dimension.append([(group[0], len(group)) for group in like.values()])
    numbers = [[k for k in outer if loops[k].dimension == d] for d in range(len(sizes))]
    for choice in itertools.product(*by_dimension):
        part_of = {k: part for ks, (parts, _) in zip(numbers, choice, strict=True) for k, part in zip(ks, parts, strict=True)}
        yield tuple(part_of[k] for k in outer), math.prod(count for _, count in choice)


def _largest(chain: list[tuple[Loop, bool]], k: int, size: int) -> int:
    return chain[k - 1][0].size if k else size


def _sizes(chain: list[tuple[Loop, bool]], parts: tuple[int, ...], steps: int) -> Iterator[int]:
    """Yield what an instance has of a dimension in whole tiles and in rests of temporal loops, 0 where it has no part."""
    if not chain:
        yield steps
        return
    (loop, is_outer), inner = chain[0], chain[1:]
    if is_outer:
        yield from _sizes(inner, parts[1:], max(min(loop.size, steps - parts[0] * loop.size), 0))
        return
    full, rest = divmod(steps, loop.size)
    for tile in [*([loop.size] if full else []), *([rest] if rest or not full else [])]:
        yield from _sizes(inner, parts, tile)


@dataclass
class _Walk:
    """The deliveries of a tensor from an instance of a level to the children below it; `whole` tiles go whenever one changes."""

    of: Remainders
    tensor: str
    child: int
    level: int
    whole: bool
    regions: dict[tuple[int, State], Region | None] = field(default_factory=dict)
    kept: dict[tuple[tuple[Row, ...], ...], Amounts] = field(default_factory=dict)

    def total(self, parts: tuple[int, ...]) -> Amounts:
        """Return what the children of one instance get in the whole run, the first tiles included."""
        loops = self.of.loops
        numbers = [k for k, x in enumerate(loops) if x.is_spatial and x.row > self.level]
        self.parts: Mapping[int, int] = dict(zip(numbers, parts, strict=True))
        self.regions.clear()
        region = self.region(0, self.of._whole)
        if region is None:
            return 0, 0
        start = self.needs(region.first)
        return region.moved[0] + start[0], region.moved[1] + start[1]

    @cached_property
    def axes(self) -> list[list[tuple[int, int]]]:
        """Dimension and coefficient of every axis of the tensor."""
        index = {d: k for k, d in enumerate(self.of.problem.names)}
        return [[(index[d], c) for d, c in axis.items()] for axis in self.of.problem.spaces[self.tensor]]

    @cached_property
    def others(self) -> list[int]:
        """Dimensions that do not index the tensor."""
        indexing = {d for axis in self.axes for d, _ in axis}
        return [d for d in range(len(self.of.problem.names)) if d not in indexing]

    def region(self, k: int, state: State) -> Region | None:
        """Return what runs inside of the loops before one; None where no child has a part."""
        if not all(any(n for _, n in row) for row in state):
            return None
        key = k, state
        if key not in self.regions:
            self.regions[key] = self._counted(k, state)
        return self.regions[key]

    def _counted(self, k: int, state: State) -> Region | None:
        if k == len(self.of.loops) or self.of.loops[k].row <= self.child:
            return Region((0, 0), state, state)
        loop = self.of.loops[k]
        row, d = state[loop.dimension], loop.dimension
        if loop.is_spatial:
            part = self.parts.get(k)
            cut = tuple(_part(i, loop.size, part) for i in row) if part is not None else tuple(
                _part(i, loop.size, j) for i in row for j in range(-(-_most(loop, self.of.loops, self.of.problem, k) // loop.size))
            )  # fmt: skip
            return self.region(k + 1, (*state[:d], cut, *state[d + 1 :]))
        total: Amounts = (0, 0)
        first = last = None
        for start, count, tiles in _steps(row, loop.size):
            inner = self.region(k + 1, (*state[:d], tiles, *state[d + 1 :]))
            if inner is None:
                continue
            turn = self.moved(inner.last, _shifted(inner.first, d, loop.size)) if count > 1 else (0, 0)
            total = _plus(total, _times(inner.moved, count), _times(turn, count - 1))
            begin = _shifted(inner.first, d, start * loop.size)
            if last is None:
                first = begin
            else:
                total = _plus(total, self.moved(last, begin))
            end = _shifted(inner.last, d, (start + count - 1) * loop.size)
            last = end if last is None else (*end[:d], _latest(last[d], end[d]), *end[d + 1 :])
        return None if first is None or last is None else Region(total, first, last)

    def needs(self, state: State) -> Amounts:
        """Return all that the children have; copies along other dimensions are one element."""
        every, copies = 1, self._others(state)
        for axis in self.axes:
            coefficients = tuple(c for _, c in axis)
            union, total = self._elements(tuple(state[d] for d, _ in axis), coefficients)
            every, copies = every * union, copies * total
        return every, copies

    def moved(self, before: State, after: State) -> Amounts:
        """Return what the children lack after a step."""
        every, copies = self.needs(after)
        if self.child < 0:
            return every, copies
        kept_once, kept_copies = 1, self._others(after)
        for axis in self.axes:
            once, copy = self._kept(tuple(before[d] for d, _ in axis), tuple(after[d] for d, _ in axis), tuple(c for _, c in axis))
            kept_once, kept_copies = kept_once * once, kept_copies * copy
        return every - kept_once, copies - kept_copies

    def _others(self, state: State) -> int:
        """Return how many parts of the dimensions that do not index the tensor there are; later steps never have more than earlier ones."""
        return math.prod(sum(1 for _, n in state[d] if n) for d in self.others)

    def _elements(self, rows: tuple[Row, ...], coefficients: tuple[int, ...]) -> Amounts:
        """Return the elements along an axis that any child has, and those that children have, added."""
        sets = [_axis_set(x, coefficients) for x in itertools.product(*rows) if all(n for _, n in x)]
        return run_size(joined(sets)), sum(map(run_size, sets))

    def _kept(self, before: tuple[Row, ...], after: tuple[Row, ...], coefficients: tuple[int, ...]) -> Amounts:
        """Return the elements along an axis that every child that needs them has, and those that children have, added."""
        key = before, after
        if key in self.kept:
            return self.kept[key]
        every, kept_sets, lacking = list[Runs](), list[Runs](), list[Runs]()
        for old, new in zip(itertools.product(*before), itertools.product(*after), strict=True):
            if all(n for _, n in new):
                needs = _axis_set(new, coefficients)
                had = () if self.whole and old != new else common(needs, _axis_set(old, coefficients))
                every.append(needs)
                kept_sets.append(had)
                lacking.append(without(needs, had))
        self.kept[key] = run_size(without(joined(every), joined(lacking))), sum(map(run_size, kept_sets))
        return self.kept[key]


def _most(loop: Loop, loops: tuple[Loop, ...], problem: Problem, k: int) -> int:
    """Return the largest part that a loop cuts."""
    return next((x.size for x in reversed(loops[:k]) if x.dimension == loop.dimension), list(problem.dimensions.values())[loop.dimension])


def _part(interval: Interval, size: int, number: int) -> Interval:
    offset, n = interval
    return offset + number * size, max(min(size, n - number * size), 0)


def _steps(row: Row, size: int) -> Iterator[tuple[int, int, Row]]:
    """Yield runs of steps of a loop that cut equal tiles: the first one's number, how many, and the tiles as at the first step."""
    most = -(-max(n for _, n in row) // size)
    ends = sorted({min(n // size, most) for _, n in row} | {-(-n // size) for _, n in row} | {0, most})
    for start, stop in itertools.pairwise(ends):
        yield start, stop - start, tuple((offset, max(min(size, n - start * size), 0)) for offset, n in row)


def _latest(before: Row, after: Row) -> Row:
    """Return the last part that each sub-cluster had."""
    return tuple(b if b[1] else a for a, b in zip(before, after, strict=True))


def _shifted(state: State, d: int, distance: int) -> State:
    return (*state[:d], tuple((offset + distance, n) for offset, n in state[d]), *state[d + 1 :])


def _axis_set(intervals: tuple[Interval, ...], coefficients: tuple[int, ...]) -> Runs:
    """Return the positions along an axis."""
    return runs_of([(((offset, offset + n),), c) for (offset, n), c in zip(intervals, coefficients, strict=True)])


def _plus(*amounts: Amounts) -> Amounts:
    return sum(a for a, _ in amounts), sum(b for _, b in amounts)


def _times(amounts: Amounts, count: int) -> Amounts:
    return amounts[0] * count, amounts[1] * count
