"""The space of mappings: ordered factorisations of every dimension over the levels, and an order of loops at each memory."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ...errors import InputError
from ..problems.problem import Problem
from .clusters import Clusters
from .columns import Batch, Column, equal_columns, lexical_keys
from .constraints import Constraints
from .engine import Reading
from .orders import MAX_LOOPS, Orders, covering_orders, representatives

Index = NDArray[np.intp]
FREE = Constraints()
CHUNK = 8192  # mappings that are evaluated at a time: their columns stay in the cache
MAX_FACTORISATIONS = 2_000_000  # of one dimension
MAX_DIVISOR = 1 << 20  # tried on a dimension


@dataclass(frozen=True)
class Slot:
    """A place where a dimension may be split: the loops of a row, temporal or spatial."""

    row: int
    is_spatial: bool


@dataclass(frozen=True)
class Genomes:
    """Points of a space as columns: the factorisation of each dimension, and the order at each memory, by their numbers."""

    factors: Index  # (dimension, column)
    orders: Index  # (ordered row, column)

    @property
    def count(self) -> int:
        """Number of points."""
        return int(self.factors.shape[1])

    def selected(self, columns: Index | slice) -> Genomes:
        """Return some of the points."""
        return Genomes(self.factors[:, columns], self.orders[:, columns])

    def joined(self, other: Genomes) -> Genomes:
        """Return these points and others."""
        return joined_all([self, other])


def joined_all(groups: Sequence[Genomes]) -> Genomes:
    """Return the points of all groups, one group behind the other."""
    return Genomes(np.concatenate([g.factors for g in groups], axis=1), np.concatenate([g.orders for g in groups], axis=1))


@dataclass(frozen=True)
class Splits:
    """A dimension's factorisations, those of equal parts on the spatial slots together: their numbers, sizes and first places.

    `after` gives by parts before it and group the number in `parts_after`, −1 where there are not as many sub-clusters.
    """

    rows: Index
    counts: Column
    starts: Column
    after: Index
    parts_after: Column


@dataclass(frozen=True)
class Space:
    """All mappings of a problem on clusters that keep the constraints and rules 1, 2 and 4; capacities are a model's to say."""

    problem: Problem
    clusters: Clusters
    constraints: Constraints = FREE
    reading: Reading = Reading.LOOPS  # which orders a model tells apart

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        """Where dimensions may be split, innermost first: temporal loops of memories, spatial ones below what has sub-clusters."""
        slots = []
        for row, cluster in enumerate(reversed(self.clusters.levels)):
            slots += [Slot(row, True)] if cluster.children > 1 else []
            slots += [] if cluster.is_virtual else [Slot(row, False)]
        return tuple(slots)

    @cached_property
    def spatial(self) -> list[int]:
        """Numbers of the spatial slots."""
        return [k for k, slot in enumerate(self.slots) if slot.is_spatial]

    @cached_property
    def fanout(self) -> Column:
        """Sub-clusters of each spatial slot."""
        return np.array([self.clusters.cluster(self.slots[k].row).children for k in self.spatial], np.int64)

    @cached_property
    def ordered_rows(self) -> tuple[int, ...]:
        """Rows whose order of loops a counter can see: memories but the innermost."""
        memories = [row for row, c in enumerate(reversed(self.clusters.levels)) if not c.is_virtual]
        return tuple(memories[1:])

    @cached_property
    def orders(self) -> tuple[Orders, ...]:
        """Orders of loops by ordered row: every class of every set of loops that turn is among them."""
        classes = covering_orders(self.problem, self._splittable, self.reading)
        fixed = self.constraints.orders
        return tuple(
            self._fixed_order(fixed[name]) if (name := self.clusters.cluster(row).name) in fixed else classes for row in self.ordered_rows
        )

    @cached_property
    def _splittable(self) -> tuple[str, ...]:
        return tuple(d for d, n in self.problem.dimensions.items() if n > 1)

    @property
    def has_every_order(self) -> bool:
        """Whether orders are all that counters tell apart, or, of very many loops, only some."""
        fixed = self.constraints.orders
        return len(self._splittable) <= MAX_LOOPS or all(self.clusters.cluster(row).name in fixed for row in self.ordered_rows)

    def _fixed_order(self, order: tuple[str, ...]) -> Orders:
        inner_first = [self.problem.names.index(d) for d in reversed(order)]
        return np.array([inner_first + [k for k in range(len(self.problem.names)) if k not in inner_first]], np.intp)

    @cached_property
    def tables(self) -> tuple[Column, ...]:
        """Counts by (factorisation, slot) of each dimension, within the constraints on it alone."""
        return tuple(self._table(d, n) for d, n in self.problem.dimensions.items())

    def _table(self, d: str, n: int) -> Column:
        table = factorisations(n, len(self.slots))
        keep = np.ones(len(table), np.bool_)
        for k, slot in enumerate(self.slots):
            name = self.clusters.cluster(slot.row).name
            if slot.is_spatial:
                allowed = d in self.constraints.parallel.get(name, (d,))
                keep &= table[:, k] <= (self.clusters.cluster(slot.row).children if allowed else 1)
        for (level, e), size in self.constraints.tiles.items():
            if e == d:
                row = self.clusters.row(level)
                inside = [k for k, slot in enumerate(self.slots) if slot.row <= row]
                keep &= table[:, inside].prod(axis=1) == size
        return table[keep]

    @cached_property
    def tilings(self) -> int:
        """Number of factorisations of all dimensions together, before rule 2."""
        return math.prod(len(t) for t in self.tables)

    def batch(self, genomes: Genomes) -> Batch:
        """Return points as columns of loop counts."""
        shape = (len(self.clusters.levels), len(self.tables), genomes.count)
        temporal, spatial = np.ones(shape, np.int64), np.ones(shape, np.int64)
        for d, table in enumerate(self.tables):
            columns = table[genomes.factors[d]]
            for k, slot in enumerate(self.slots):
                (spatial if slot.is_spatial else temporal)[slot.row, d] = columns[:, k]
        order = np.broadcast_to(np.arange(shape[1])[None, :, None], shape).copy()
        for k, row in enumerate(self.ordered_rows):
            order[row] = self.orders[k][genomes.orders[k]].T
        return Batch(self.problem, temporal, spatial, order)

    def parts(self, factors: Index) -> Column:
        """Return the product of the parts on each spatial slot, by column."""
        total = np.ones((len(self.spatial), factors.shape[1]), np.int64)
        for d, table in enumerate(self.tables):
            total *= table[:, self.spatial][factors[d]].T
        return total

    def keeps_rules(self, factors: Index) -> NDArray[np.bool_]:
        """Tell of each tiling whether it keeps rule 2 and the constraints on all dimensions together."""
        parts = self.parts(factors)
        keeps = np.asarray((parts <= self.fanout[:, None]).all(axis=0), np.bool_)
        c = self.constraints
        if c.least_utilisation > 0 or c.most_utilisation < 1:
            share = parts.prod(axis=0) / self.clusters.units
            keeps &= (share >= c.least_utilisation) & (share <= c.most_utilisation)
        if c.is_one_an_axis:
            split = sum((table[:, self.spatial][factors[d]].T > 1).astype(np.int64) for d, table in enumerate(self.tables))
            keeps &= np.asarray(split <= 1).all(axis=0)
        return keeps

    def every_tiling(self) -> Iterator[Index]:
        """Yield all tilings within rule 2 in chunks."""
        sizes = [len(t) for t in self.tables]
        for start in range(0, self.tilings, CHUNK):
            numbers = np.arange(start, min(start + CHUNK, self.tilings))
            factors = np.array(np.unravel_index(numbers, sizes), np.intp).reshape(len(sizes), -1)
            yield factors[:, self.keeps_rules(factors)]

    def turning(self, factors: Index) -> Column:
        """Return by ordered row and column which dimensions turn there, a bit each."""
        bits = np.zeros((len(self.ordered_rows), factors.shape[1]), np.int64)
        for k, row in enumerate(self.ordered_rows):
            slot = self.slots.index(Slot(row, False))
            for d, table in enumerate(self.tables):
                bits[k] |= (table[:, slot] > 1)[factors[d]].astype(np.int64) << d
        return bits

    def classes_of(self, k: int, bits: int) -> Index:
        """Return the numbers of the orders of an ordered row that differ where only some dimensions turn."""
        if len(self.orders[k]) == 1:
            return np.zeros(1, np.intp)
        return representatives(self.problem, self._splittable, bits, self.reading)

    @cached_property
    def count(self) -> int:
        """Number of mappings, exact: every tiling within rule 2 with the orders of its turning loops."""
        return _count(self)

    def sample(self, count: int, rng: np.random.Generator) -> Genomes:
        """Return points: tilings drawn uniformly from those within rule 2, then orders uniformly from their classes."""
        return self.with_orders(self._sample_tilings(count, rng), rng)

    def with_orders(self, factors: Index, rng: np.random.Generator) -> Genomes:
        """Return tilings with orders drawn uniformly from their classes."""
        bits = self.turning(factors)
        orders = np.zeros((len(self.ordered_rows), factors.shape[1]), np.intp)
        for k in range(len(orders)):
            for columns in equal_columns(bits[k]):
                orders[k, columns] = rng.choice(self.classes_of(k, int(bits[k, columns[0]])), len(columns))
        return Genomes(factors, orders)

    def sample_of_splits(self, splits: Column, count: int, rng: np.random.Generator, outer: Column | None = None) -> Index:
        """Return at most so many tilings within rule 2 that split dimensions over the units as some column of `splits` does.

        With `outer`, they are cut outside as often as its column says, too, as far as that is possible.
        """
        columns_drawn = rng.integers(splits.shape[1], size=count)
        drawn = splits[:, columns_drawn]
        factors = np.zeros(drawn.shape, np.intp)
        for d, table in enumerate(self.tables):
            parts, cuts = table[:, self.spatial].prod(axis=1), table[:, -1]
            keys = drawn[d : d + 1] if outer is None else np.stack([drawn[d], outer[d, columns_drawn]])
            for columns in equal_columns(lexical_keys(keys)):
                rows = np.flatnonzero(parts == keys[0, columns[0]])
                exact = rows[cuts[rows] == keys[-1, columns[0]]]
                factors[d, columns] = rng.choice(exact if outer is not None and len(exact) else rows, len(columns))
        return factors[:, self.keeps_rules(factors)]

    def _sample_tilings(self, count: int, rng: np.random.Generator) -> Index:
        """Draw dimension by dimension, each split over the sub-clusters by the number of tilings that it leaves."""
        factors = np.zeros((len(self.tables), count), np.intp)
        states = np.zeros(count, np.intp)
        for d, splits in enumerate(self._splits):
            shares = np.where(splits.after < 0, 0.0, (splits.counts * self._ways[d + 1][splits.after]).astype(np.float64))
            last = shares.shape[1] - 1 - (shares[:, ::-1] > 0).argmax(axis=1)  # what rounding may not exceed
            shares = np.cumsum(shares / shares.sum(axis=1, keepdims=True).clip(min=1.0), axis=1)
            groups = np.minimum((shares[states] <= rng.random(count)[:, None]).sum(axis=1), last[states])
            factors[d] = splits.rows[splits.starts[groups] + (rng.random(count) * splits.counts[groups]).astype(np.intp)]
            states = splits.after[states, groups]
        return factors[:, self.keeps_rules(factors)]

    @cached_property
    def _splits(self) -> tuple[Splits, ...]:
        """Of each dimension, its factorisations by their parts on the spatial slots, and what they make of the parts before it."""
        before, splits = np.ones((1, len(self.spatial)), np.int64), []
        for table in self.tables:
            splits.append(_splits_after(before, table[:, self.spatial], self.fanout))
            before = splits[-1].parts_after
        return tuple(splits)

    @cached_property
    def _ways(self) -> tuple[NDArray[np.object_], ...]:
        """By dimension and parts before it: how many tilings of it and those after it keep rule 2, exact."""
        ways = [np.ones(len(self._splits[-1].parts_after) if self._splits else 1, np.object_)]
        for splits in reversed(self._splits):
            left = np.append(ways[0], 0)[splits.after]  # the last entry is of what breaks the rule
            ways.insert(0, (left * splits.counts.astype(np.object_)).sum(axis=1))
        return tuple(ways)

    @cached_property
    def legal_tilings(self) -> int:
        """Number of tilings within rule 2; constraints on all dimensions together are not in it."""
        return int(self._ways[0][0])


def _splits_after(before: Column, parts: Column, most: Column) -> Splits:
    """Return the factorisations of a dimension, grouped, behind all parts that occur before it."""
    rows = list(equal_columns(lexical_keys(parts.T)))
    counts = np.array([len(group) for group in rows], np.int64)
    groups = parts[[group[0] for group in rows]].reshape(len(rows), parts.shape[1])
    products = before[:, None, :] * groups[None, :, :]
    keeps = (products <= most).all(axis=2)
    possible = products[keeps]
    _, first, number = np.unique(lexical_keys(possible.T), return_index=True, return_inverse=True)
    after = np.full(keeps.shape, -1, np.intp)
    after[keeps] = number.reshape(-1)
    ordered = np.concatenate([*rows, np.zeros(0, np.intp)])
    return Splits(ordered, counts, np.cumsum(counts) - counts, after, possible[first])


def factorisations(n: int, slots: int) -> Column:
    """Return all ordered factorisations of a number into so many factors, one a row.

    Raises:
        InputError: there are too many (F231).
    """
    tables: list[Column] = [np.ones((1, slots), np.int64)]
    total = 1
    for prime, power in prime_factors(n):
        total *= math.comb(power + slots - 1, slots - 1)
        if total > MAX_FACTORISATIONS:
            raise InputError("F231", f"A dimension must have at most {MAX_FACTORISATIONS:,} splits over {slots} loops; {n:,} has more")
        bars = itertools.combinations(range(power + slots - 1), slots - 1)
        cuts = np.array([[-1, *bar, power + slots - 1] for bar in bars], np.int64)
        tables.append(prime ** (np.diff(cuts, axis=1) - 1))
    table = tables[0]
    for powers in tables[1:]:
        table = (table[:, None, :] * powers[None, :, :]).reshape(-1, slots)
    return table


def prime_factors(n: int) -> list[tuple[int, int]]:
    """Return the primes of a number below 2^63 with their powers.

    Raises:
        InputError: not all are found by divisors up to `MAX_DIVISOR` (F231).
    """
    factors, candidates, remaining = [], np.arange(2, min(MAX_DIVISOR, math.isqrt(n)) + 1), n
    for p in candidates[n % candidates == 0].tolist():
        power = 0
        while remaining % p == 0:
            remaining, power = remaining // p, power + 1
        if power:
            factors.append((p, power))
    if remaining > MAX_DIVISOR**2:
        raise InputError("F231", f"The primes of a dimension must be found by divisors up to {MAX_DIVISOR:,}, not so {n:,}")
    return [*factors, (remaining, 1)] if remaining > 1 else factors


def _count(space: Space) -> int:
    """Count tilings by which dimensions turn at each ordered row, then orders of each."""
    slots = [space.slots.index(Slot(row, False)) for row in space.ordered_rows]
    states: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {(tuple([1] * len(space.spatial)), tuple([0] * len(slots))): 1}
    for d, table in enumerate(space.tables):
        kinds: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
        for parts, turns in zip(table[:, space.spatial].tolist(), (table[:, slots] > 1).astype(int).tolist(), strict=True):
            key = (tuple(parts), tuple(t << d for t in turns))
            kinds[key] = kinds.get(key, 0) + 1
        following: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
        for (state, bits), ways in states.items():
            for (parts, turns), count in kinds.items():
                product = tuple(a * b for a, b in zip(state, parts, strict=True))
                if all(a <= b for a, b in zip(product, space.fanout.tolist(), strict=True)):
                    place = (product, tuple(a | b for a, b in zip(bits, turns, strict=True)))
                    following[place] = following.get(place, 0) + ways * count
        states = following
    sizes: dict[tuple[int, int], int] = {}
    total = 0
    for (_, bits), ways in states.items():
        orders = 1
        for k, value in enumerate(bits):
            if (k, value) not in sizes:
                sizes[k, value] = len(space.classes_of(k, value))
            orders *= sizes[k, value]
        total += ways * orders
    return total
