"""The cheapest calls of an offload: the search over tiles with its target's own cost of every region of equal tiles as criterion."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ..target import Cost, Resources
from ..target import Mapping as Operation
from .call_search import CallSearch, Key, Sizes, round_up, tile
from .cost import Price, price
from .mapping.calls import Refusal, Tiling

MAX_NODES = 20_000  # tile sizes that are tried before the search stops with a bound


@dataclass(frozen=True)
class TilingResult:
    """The best tiling found, its price, a lower bound on every tiling's cost, and whether the search was complete."""

    tiling: Tiling
    price: Price
    bound: int
    nodes: int
    is_optimal: bool  # the search was complete


def cheapest_tiling(
    m: Operation, sizes: Sizes, attributes: Mapping[str, Any], resources: Resources, by: str = "bytes", nodes: int = MAX_NODES
) -> TilingResult | Refusal:
    """Return the tiling with the fewest bytes (or the least time), then the least time (bytes), then the fewest calls.

    The operation must have a cost. After `nodes` tile sizes the search stops with its best tiling and a lower bound.
    """
    first = tile(m, sizes, attributes)
    if isinstance(first, Refusal):
        return first
    criterion = LeastCost(m, sizes, attributes, resources, by)
    search = CallSearch(m, sizes, attributes, criterion, nodes)
    search.best_tile, search.best_key = dict(first.tile), criterion.key(first)
    if first.calls > 1 or len(criterion.order) == 1:
        search.extend({}, 0)
    bound = min([search.best_key[0], *search.open_bounds])
    tiling = Tiling(dict(sizes), {d: search.best_tile[d] for d in sizes}, bound if search.open_bounds else None)
    tiling_price = price(m, tiling, attributes, resources)
    assert tiling_price is not None
    return TilingResult(tiling, tiling_price, bound, search.nodes, not search.open_bounds)


@dataclass(frozen=True)
class LeastCost:
    """The fewest bytes or the least time at the target's own cost of every region of equal tiles, then the fewest calls."""

    m: Operation
    sizes: Sizes
    attributes: Mapping[str, Any]
    resources: Resources
    by: str
    tile_costs: dict[tuple[int, ...], Cost] = field(default_factory=dict)  # by the sizes of a tile

    @cached_property
    def order(self) -> tuple[str, ...]:
        """The dimensions that can be split, those of the fewest steps first."""
        units = self.m.unit_sizes(self.sizes)
        choices = {d: -(-n // self.steps[d]) for d, n in self.sizes.items() if n > units[d]}
        return tuple(sorted(choices, key=lambda d: choices[d]))

    @cached_property
    def steps(self) -> Sizes:
        """Whole steps of the unit along each dimension."""
        return {d: math.lcm(self.m.units.get(d, 1), *(u.step.get(d, 1) for u in self._units)) for d in self.sizes}

    @cached_property
    def _words(self) -> Sizes:
        return {d: math.lcm(n, *(u.packs.get(d, 1) for u in self._units)) for d, n in self.steps.items()}

    @cached_property
    def _units(self) -> list[Any]:
        undivided = price(self.m, Tiling(self.sizes, self.sizes), self.attributes, self.resources)
        assert undivided is not None
        return [u for u in self.resources.units if u.name == undivided.cost.unit]

    def key(self, tiling: Tiling) -> Key:
        """Return what decides, the other of bytes and picoseconds, and calls."""
        tiling_price = price(self.m, tiling, self.attributes, self.resources, tile_costs=self.tile_costs)
        assert tiling_price is not None, f"{self.m.name} has no cost"
        levels = (tiling_price.moved_bytes, tiling_price.picoseconds)
        return (*(levels if self.by == "bytes" else levels[::-1]), tiling.calls)

    def sizes_between(self, d: str, low: int, high: int) -> Iterable[int]:
        """Return whole steps, which need least, and whole words, which cost least; all where neither fits, or nothing else is cut."""
        unit = self.m.units.get(d, 1)
        full_sizes = {round_up(low, self.steps[d]), round_up(low, self._words[d])}
        whole_sizes = sorted(n for n in full_sizes if n <= high) if len(self.order) > 1 else ()
        return whole_sizes or range(low, high + 1, unit)

    def ranked(self, choices: Iterator[tuple[Key, int]]) -> Iterable[tuple[Key, int]]:
        """Return choices by their keys, the largest size first of equal ones."""
        return sorted(choices, key=lambda choice: (choice[0], -choice[1]))
