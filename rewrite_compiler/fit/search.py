"""The cheapest tiling: branch and bound over tile sizes, with a proof of optimality or a lower bound.

Of an operation with one dimension to split, every tile size is tried. With several, the proof rests on three facts about a
device. Feasibility is monotone: a capacity that a tile exceeds is exceeded by every larger one. Splitting a dimension never
saves anything, so chosen tile sizes cost at least what they do with all other dimensions undivided. The need of a tile
depends on its whole steps along a dimension, and its cost on these and on partly filled words, so that of all tilings into
so many parts one of these is cheapest.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from collections.abc import Mapping as MappingOf
from dataclasses import dataclass, field
from typing import Any

from ..target import Cost, Mapping, Resources
from .cost import Price, price
from .tiling import Refusal, Tiling, tile

MAX_NODES = 20_000  # tile sizes that are tried before the search stops with a bound
Key = tuple[int, int, int]  # what decides, the other one, calls


@dataclass(frozen=True)
class TilingResult:
    """The best tiling found, its price, a lower bound on every tiling's cost, and whether the search was complete."""

    tiling: Tiling
    price: Price
    bound: int
    nodes: int
    is_optimal: bool  # the search was complete


def cheapest_tiling(
    m: Mapping, sizes: MappingOf[str, int], attributes: MappingOf[str, Any], resources: Resources, by: str = "bytes", nodes: int = MAX_NODES
) -> TilingResult | Refusal:
    """Return the tiling with the fewest bytes (or the least time), then the least time (bytes), then the fewest calls.

    The operation must have a cost. After `nodes` tile sizes the search stops with its best tiling and a lower bound.
    """
    first = tile(m, sizes, attributes)
    if isinstance(first, Refusal):
        return first
    return _Search(m, sizes, attributes, resources, by, nodes).best(first)


@dataclass
class _Search:
    m: Mapping
    sizes: MappingOf[str, int]
    attributes: MappingOf[str, Any]
    resources: Resources
    by: str
    max_nodes: int
    nodes: int = 0
    best_tile: dict[str, int] = field(default_factory=dict)
    best_key: Key = (0, 0, 0)
    steps: MappingOf[str, int] = field(default_factory=dict)
    words: MappingOf[str, int] = field(default_factory=dict)
    units: MappingOf[str, int] = field(default_factory=dict)
    split: tuple[str, ...] = ()
    tile_costs: dict[tuple[int, ...], Cost] = field(default_factory=dict)  # by the sizes of a tile
    open_bounds: list[int] = field(default_factory=list)  # of what was not looked at

    def best(self, first: Tiling) -> TilingResult:
        """Search below all tilings."""
        self.best_tile, self.best_key, self.units = dict(first.tile), self.key(first), self.m.unit_sizes(self.sizes)
        undivided = price(self.m, Tiling(self.sizes, self.sizes), self.attributes, self.resources)
        assert undivided is not None
        units = [u for u in self.resources.units if u.name == undivided.cost.unit]
        self.steps = {d: math.lcm(self.m.units.get(d, 1), *(u.step.get(d, 1) for u in units)) for d in self.sizes}
        self.words = {d: math.lcm(n, *(u.packs.get(d, 1) for u in units)) for d, n in self.steps.items()}
        choices = {d: -(-n // self.steps[d]) for d, n in self.sizes.items() if n > self.units[d]}
        self.split = tuple(sorted(choices, key=lambda d: choices[d]))
        if len(choices) == 1:
            self.try_all_sizes(self.split[0])
        elif first.calls > 1:
            self.extend({}, 0)
        bound = min([self.best_key[0], *self.open_bounds])
        tiling = Tiling(dict(self.sizes), {d: self.best_tile[d] for d in self.sizes}, bound if self.open_bounds else None)
        tiling_price = price(self.m, tiling, self.attributes, self.resources)
        assert tiling_price is not None
        return TilingResult(tiling, tiling_price, bound, self.nodes, not self.open_bounds)

    def key(self, tiling: Tiling) -> Key:
        """Return what a tiling costs, the level that decides first."""
        tiling_price = price(self.m, tiling, self.attributes, self.resources, tile_costs=self.tile_costs)
        assert tiling_price is not None, f"{self.m.name} has no cost"
        levels = (tiling_price.moved_bytes, tiling_price.picoseconds)
        return (*(levels if self.by == "bytes" else levels[::-1]), tiling.calls)

    def extend(self, fixed_sizes: dict[str, int], at: int) -> None:
        """Choose the tile of the next dimension that can be split."""
        if at == len(self.split):
            tiling = Tiling(self.sizes, {**self.sizes, **fixed_sizes})
            key = self.key(tiling)
            if key < self.best_key:
                self.best_key, self.best_tile = key, dict(tiling.tile)
            return
        d = self.split[at]
        bounds = ((self.bound({**fixed_sizes, d: size}), size) for size in self.fitting(fixed_sizes, d, at))
        for bound, size in sorted(bounds, key=lambda pair: (pair[0], -pair[1])):
            if bound >= self.best_key:
                return
            if self.nodes > self.max_nodes:
                self.open_bounds.append(bound[0])
                return
            self.extend({**fixed_sizes, d: size}, at + 1)

    def try_all_sizes(self, d: str) -> None:
        """Try every tile size of the only dimension that can be split."""
        last = self.largest(dict(self.sizes), d)
        for size in (self.sizes[d], *range(_round_down(last, self.units[d]), 0, -self.units[d])):
            if size > last:
                continue
            self.nodes += 1
            tiling = Tiling(self.sizes, {**self.sizes, d: size})
            key = self.key(tiling)
            if key < self.best_key:
                self.best_key, self.best_tile = key, dict(tiling.tile)

    def bound(self, fixed_sizes: MappingOf[str, int]) -> Key:
        """Return what chosen tiles cost at least: with every other dimension undivided."""
        self.nodes += 1
        return self.key(Tiling(self.sizes, {**self.sizes, **fixed_sizes}))

    def fitting(self, fixed_sizes: MappingOf[str, int], d: str, at: int) -> Iterator[int]:
        """Yield tile sizes of a dimension that fit with the smallest tiles of those not chosen yet, for every number of parts.

        Of as many parts, tiles of whole steps need least and tiles of whole words cost least; all where none of them fits.
        """
        total, unit = self.sizes[d], self.units[d]
        largest = self.largest({**self.sizes, **{e: self.units[e] for e in self.split[at + 1 :]}, **fixed_sizes}, d)
        if largest == total:
            yield total
        parts = 2 if largest == total else -(-total // largest)
        while parts <= -(-total // unit):
            low, high = _round_up(-(-total // parts), unit), min(largest, _round_down(-(-total // (parts - 1)) - 1, unit))
            full_sizes = {_round_up(low, self.steps[d]), _round_up(low, self.words[d])}
            yield from sorted(n for n in full_sizes if n <= high) or range(low, high + 1, unit)
            parts = -(-total // (low - unit)) if low > unit else total + 1

    def largest(self, sizes: dict[str, int], d: str) -> int:
        """Return the largest tile of a dimension that fits: several units, or all of it."""
        total, unit = self.sizes[d], self.units[d]
        if self.m.exceeded_limit({**sizes, d: total}, self.attributes) is None:
            return total
        low, high = 1, -(-total // unit)
        while high - low > 1:
            middle = (low + high) // 2
            fits = self.m.exceeded_limit({**sizes, d: middle * unit}, self.attributes) is None
            low, high = (middle, high) if fits else (low, middle)
        return low * unit


def _round_up(n: int, step: int) -> int:
    return -(-n // step) * step


def _round_down(n: int, step: int) -> int:
    return n // step * step
