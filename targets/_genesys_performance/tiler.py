"""A tiler for GeneSys's systolic array: the tile of the fewest cycles among the whole ones that fit and the published one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from .design import Design
from .systolic import SystolicLayer, Tile, fits, padded, published_tile, systolic_costs


@lru_cache(maxsize=1 << 14)
def search_tile(d: Design, layer: SystolicLayer, *, exact: bool = False) -> Tile:
    """Return the tile of the fewest cycles, compute and stalls together; in doubt the published one."""

    def cycles(t: Tile) -> float:
        costs = systolic_costs(d, layer, t, exact=exact)
        return costs["SA compute"] + costs["SA stall"]

    return min((published_tile(d, layer), *_candidates(d, layer)), key=cycles)


def _candidates(d: Design, layer: SystolicLayer) -> Iterator[Tile]:
    """Yield tiles that divide their extents and fit: every part of outputs and output channels, with the deepest inputs."""
    kernel = published_tile(d, layer)
    depths, widths = _divisors(padded(layer.ic, d.rows), d.rows), _divisors(padded(layer.oc, d.columns), d.columns)
    for oh, ow in _parts(layer):
        for oc in widths:
            tiles = (Tile(oc, ic, kernel.kh, kernel.kw, oh, ow) for ic in reversed(depths))
            deepest = next((t for t in tiles if fits(d, t, layer.stride)), None)
            if deepest is not None:
                yield deepest


def _parts(layer: SystolicLayer) -> list[tuple[int, int]]:
    """Return parts of the outputs: whole rows, or both sides in the same number of parts."""
    rows = {(oh, layer.ow) for oh in _divisors(layer.oh, 1)}
    squares = {(layer.oh // n, layer.ow // n) for n in _divisors(layer.oh, 1) if not layer.ow % n}
    return sorted(rows | squares)


def _divisors(extent: int, unit: int) -> list[int]:
    return [n for n in range(unit, extent + 1, unit) if not extent % n]
