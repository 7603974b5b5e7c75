"""The best tiles of an offload's calls: one search, branch and bound over tile sizes, for the fewest calls or for the least cost.

What a tile must keep are the capacities of its target and its units; a criterion orders what keeps them. The proof rests on three facts
about a device. Feasibility is monotone: a capacity that a tile exceeds is exceeded by every larger one. Splitting a dimension never
saves anything, so chosen tile sizes cost at least what they do with all other dimensions undivided. The need of a tile depends on its
whole steps along a dimension, and its cost on these and on partly filled words, so that of all tilings into so many parts one of these
is cheapest.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from ..target import Mapping as Operation
from .mapping.calls import Refusal, Tiling

Sizes = Mapping[str, int]
Key = tuple[int, ...]


def tile(m: Operation, sizes: Sizes, attributes: Mapping[str, Any] | None = None) -> Tiling | Refusal:
    """Return the split of an operation into the fewest calls, or the capacity that its smallest tile exceeds.

    Among equal ones it has the fewest splits of summed dimensions, whose partial sums the host adds.
    """
    empty = next((d for d, n in sizes.items() if not n), None)
    if empty is not None:
        return Refusal(f"{empty} must be at least 1, not 0: there is nothing to compute")
    if m.exceeded_limit(sizes, attributes) is None:
        return Tiling(dict(sizes), dict(sizes))
    units = m.unit_sizes(sizes)
    violated = m.exceeded_limit(units, attributes)
    if violated is not None:
        return Refusal(violated)
    search = CallSearch(m, sizes, attributes or {}, FewestCalls(m, sizes))
    search.extend({}, 0)
    return Tiling(dict(sizes), {d: search.best_tile[d] for d in sizes})


class Criterion(Protocol):
    """What makes a tiling better."""

    @property
    def order(self) -> tuple[str, ...]:
        """The dimensions whose tiles are chosen, one after the other."""

    def key(self, tiling: Tiling) -> Key:
        """Return what a tiling costs; that of a tiling is never above that of one with smaller tiles."""

    def sizes_between(self, d: str, low: int, high: int) -> Iterable[int]:
        """Return the sizes to try of those that cut a dimension into equally many parts, all whole units."""

    def ranked(self, choices: Iterator[tuple[Key, int]]) -> Iterable[tuple[Key, int]]:
        """Return keys and sizes with the least key first."""


@dataclass(frozen=True)
class FewestCalls:
    """The fewest calls, then the fewest parts of one dimension after the other, summed ones first."""

    m: Operation
    sizes: Sizes

    @cached_property
    def order(self) -> tuple[str, ...]:
        """All dimensions, summed ones first."""
        summed = [d for d in self.sizes if d in self.m.axes.summed]
        return (*summed, *(d for d in self.sizes if d not in summed))

    def key(self, tiling: Tiling) -> Key:
        """Return calls, then parts by dimension."""
        parts = tiling.parts
        return (math.prod(parts.values()), *(parts[d] for d in self.order))

    def sizes_between(self, d: str, low: int, high: int) -> Iterable[int]:
        """Return the least size, which leaves most room; the last dimension takes what is left."""
        return (high if d == self.order[-1] else low,)

    def ranked(self, choices: Iterator[tuple[Key, int]]) -> Iterable[tuple[Key, int]]:
        """Return choices as they come: the fewest parts first."""
        return choices


@dataclass
class CallSearch:
    """Branch and bound over the tile sizes of one dimension after the other, with the best tile so far."""

    m: Operation
    sizes: Sizes
    attributes: Mapping[str, Any]
    criterion: Criterion
    max_nodes: int | None = None
    nodes: int = 0
    best_tile: dict[str, int] = field(default_factory=dict)
    best_key: Key | None = None
    open_bounds: list[int] = field(default_factory=list)  # of what was not looked at

    @cached_property
    def units(self) -> Sizes:
        """The smallest tile."""
        return self.m.unit_sizes(self.sizes)

    def extend(self, fixed_sizes: dict[str, int], at: int) -> None:
        """Choose the tile of the next dimension that can be split."""
        order = self.criterion.order
        if at == len(order):
            tiling = Tiling(self.sizes, {**self.sizes, **fixed_sizes})
            key = self.criterion.key(tiling)
            if self.best_key is None or key < self.best_key:
                self.best_key, self.best_tile = key, dict(tiling.tile)
            return
        d = order[at]
        choices = ((self.bound({**fixed_sizes, d: size}), size) for size in self.fitting(fixed_sizes, at))
        for bound, size in self.criterion.ranked(choices):
            if self.best_key is not None and bound >= self.best_key:
                return
            if self.max_nodes is not None and self.nodes > self.max_nodes and len(order) > 1:
                self.open_bounds.append(bound[0])
                return
            self.extend({**fixed_sizes, d: size}, at + 1)

    def bound(self, fixed_sizes: Sizes) -> Key:
        """Return what chosen tiles cost at least: with every other dimension undivided."""
        self.nodes += 1
        return self.criterion.key(Tiling(self.sizes, {**self.sizes, **fixed_sizes}))

    def fitting(self, fixed_sizes: Sizes, at: int) -> Iterator[int]:
        """Yield tile sizes of a dimension that fit with the smallest tiles of those not chosen yet, for every number of parts."""
        order = self.criterion.order
        d = order[at]
        total, unit = self.sizes[d], self.units[d]
        largest = self.largest({**self.sizes, **{e: self.units[e] for e in order[at + 1 :]}, **fixed_sizes}, d)
        if not largest:
            return
        if largest == total:
            yield total
        parts = 2 if largest == total else -(-total // largest)
        while parts <= -(-total // unit):
            low, high = round_up(-(-total // parts), unit), min(largest, round_down(-(-total // (parts - 1)) - 1, unit))
            yield from self.criterion.sizes_between(d, low, high)
            parts = -(-total // (low - unit)) if low > unit else total + 1

    def largest(self, sizes: Sizes, d: str) -> int:
        """Return the largest tile of a dimension that fits: several units, or all of it; 0 when none does."""
        total, unit = self.sizes[d], self.units[d]
        if self.m.exceeded_limit({**sizes, d: total}, self.attributes) is None:
            return total
        low, high = 0, -(-total // unit)
        while high - low > 1:
            middle = (low + high) // 2
            fits = self.m.exceeded_limit({**sizes, d: middle * unit}, self.attributes) is None
            low, high = (middle, high) if fits else (low, middle)
        return low * unit


def round_up(n: int, step: int) -> int:
    """Return the least multiple of a step from a number on."""
    return -(-n // step) * step


def round_down(n: int, step: int) -> int:
    """Return the greatest multiple of a step up to a number."""
    return n // step * step
