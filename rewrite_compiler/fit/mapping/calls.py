"""Calls: the outermost level of an offload's mapping, whose tiles are what one call of the device takes.

The last tile along a dimension may be smaller, so that calls fall into regions of equal tiles: one with whole tiles, and one for each
set of dimensions along which a rest is left.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...target import Limit


@dataclass(frozen=True)
class Tiling:
    """Dimension sizes of an offload and of the largest tile; every call computes one tile.

    `bound` is a lower bound on the cost of every tiling, where a search for the cheapest one stopped early.
    """

    sizes: Mapping[str, int]
    tile: Mapping[str, int]
    bound: int | None = None

    @property
    def parts(self) -> dict[str, int]:
        """Number of tiles along each dimension."""
        return {d: -(-n // self.tile[d]) if n else 1 for d, n in self.sizes.items()}

    @property
    def calls(self) -> int:
        """Number of device calls."""
        return math.prod(self.parts.values())

    def slices(self) -> Iterator[dict[str, slice]]:
        """Yield for each call the slice of every dimension that it computes."""
        parts = [[(d, slice(at, min(at + self.tile[d], n))) for at in range(0, n, self.tile[d])] for d, n in self.sizes.items()]
        yield from (dict(call_slices) for call_slices in itertools.product(*parts))

    def call_sizes(self) -> Iterator[dict[str, int]]:
        """Yield the tile sizes of every call, in order."""
        for slices in self.slices():
            yield {d: part.stop - part.start for d, part in slices.items()}

    def regions(self) -> Iterator[tuple[dict[str, int], int]]:
        """Yield each distinct tile's sizes with the number of calls that compute one."""
        kinds = []
        for d, n in self.sizes.items():
            size = self.tile[d]
            full_tiles, remainder = divmod(n, size) if size else (1, 0)
            kinds.append([(d, s, count) for s, count in ((size, full_tiles), (remainder, 1)) if count and (s or not n)])
        for tile_sizes in itertools.product(*kinds):
            yield {d: s for d, s, _ in tile_sizes}, math.prod(count for *_, count in tile_sizes)


@dataclass(frozen=True)
class Refusal:
    """Why not even the smallest tile fits: the capacity that it exceeds, or a sentence."""

    limit: Limit | str
