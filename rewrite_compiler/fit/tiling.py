"""Tiling: the split of an offload that exceeds a capacity into calls that fit.

Feasibility is monotone in the tile size; under that assumption the search finds the fewest calls, and among those the fewest
splits of summed dimensions, whose partial sums the host adds.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from collections.abc import Mapping as MappingOf
from dataclasses import dataclass
from typing import Any

from ..target import Limit, Mapping


@dataclass(frozen=True)
class Tiling:
    """Dimension sizes of an offload and of the largest tile; every call computes one tile.

    `bound` is a lower bound on the cost of every tiling, where a search for the cheapest one stopped early.
    """

    sizes: MappingOf[str, int]
    tile: MappingOf[str, int]
    bound: int | None = None

    @property
    def calls(self) -> int:
        """Number of device calls."""
        return math.prod(-(-n // self.tile[d]) if n else 1 for d, n in self.sizes.items())

    def slices(self) -> Iterator[dict[str, slice]]:
        """Yield for each call the slice of every dimension that it computes."""
        parts = [[(d, slice(at, min(at + self.tile[d], n))) for at in range(0, n, self.tile[d])] for d, n in self.sizes.items()]
        yield from (dict(call_slices) for call_slices in itertools.product(*parts))


@dataclass(frozen=True)
class Refusal:
    """Why not even the smallest tile fits: the capacity that it exceeds, or a sentence."""

    limit: Limit | str


def tile(mapping: Mapping, sizes: MappingOf[str, int], attributes: MappingOf[str, Any] | None = None) -> Tiling | Refusal:
    """Return the split of an operation into the fewest calls, or the capacity that its smallest tile exceeds."""
    empty = next((d for d, n in sizes.items() if not n), None)
    if empty is not None:
        return Refusal(f"{empty} must be at least 1, not 0: there is nothing to compute")
    if mapping.exceeded_limit(sizes, attributes) is None:
        return Tiling(dict(sizes), dict(sizes))
    units = mapping.unit_sizes(sizes)
    violated = mapping.exceeded_limit(units, attributes)
    if violated is not None:
        return Refusal(violated)
    summed = [d for d in sizes if d in mapping.axes.summed]
    order = [*summed, *(d for d in sizes if d not in summed)]
    best = _Search(mapping, sizes, units, order, attributes).best()
    return Tiling(dict(sizes), {d: best[d] for d in sizes})


class _Search:
    """Tries part counts dimension by dimension, summed ones first and fewest first; the last dimension is as large as fits."""

    def __init__(
        self,
        mapping: Mapping,
        sizes: MappingOf[str, int],
        units: MappingOf[str, int],
        order: list[str],
        attributes: MappingOf[str, Any] | None = None,
    ) -> None:
        self.mapping, self.sizes, self.units, self.order = mapping, sizes, units, order
        self.attributes = attributes
        self.fewest = math.inf
        self.best_sizes: dict[str, int] = dict(units)

    def best(self) -> dict[str, int]:
        self.extend({}, 1)
        return self.best_sizes

    def extend(self, fixed_sizes: dict[str, int], calls: int) -> None:
        """Choose the next dimension's tile; `calls` is the product of the parts so far."""
        dimension = self.order[len(fixed_sizes)]
        smallest = {d: self.units[d] for d in self.order[len(fixed_sizes) + 1 :]}
        if len(fixed_sizes) == len(self.order) - 1:
            size = self.largest(fixed_sizes, dimension, smallest)
            total = calls * -(-self.sizes[dimension] // size) if size else math.inf
            if total < self.fewest:
                self.fewest, self.best_sizes = total, {**fixed_sizes, dimension: size}
            return
        largest = self.largest(fixed_sizes, dimension, smallest)
        if not largest:
            return
        for size in self.tile_sizes(dimension, largest):
            parts = -(-self.sizes[dimension] // size)
            if calls * parts >= self.fewest:
                return
            self.extend({**fixed_sizes, dimension: size}, calls * parts)

    def tile_sizes(self, dimension: str, largest: int) -> Iterator[int]:
        """Yield tile sizes that fit, the one for the fewest parts first, parts of equal size."""
        total, unit = self.sizes[dimension], self.units[dimension]
        last = 0
        for parts in range(-(-total // largest), -(-total // unit) + 1):
            size = min(-(-total // (parts * unit)) * unit, total)
            if size <= largest and size != last:
                yield size
                last = size

    def largest(self, fixed_sizes: MappingOf[str, int], dimension: str, smallest: MappingOf[str, int]) -> int:
        """Return the largest tile of a dimension that fits, in units or whole; 0 when none does."""
        total, unit = self.sizes[dimension], self.units[dimension]
        if self.mapping.exceeded_limit({**fixed_sizes, **smallest, dimension: total}, self.attributes) is None:
            return total
        low, high = 0, -(-total // unit)
        while high - low > 1:
            middle = (low + high) // 2
            fits = self.mapping.exceeded_limit({**fixed_sizes, **smallest, dimension: middle * unit}, self.attributes) is None
            low, high = (middle, high) if fits else (low, middle)
        return low * unit
