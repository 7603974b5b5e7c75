"""GeneSys's performance model: cycles, stalls and accesses of networks on a design, in the published rounding or exactly.

Batch 1, weight stationary (ow, oh, n, kw, kh, ic, oc from the inside), double-buffered systolic buffers, single-buffered
vector memories, no fusion. In the published behaviour a tile of channels need not divide its extent, and numbers of tiles are
then fractions; `exact` counts whole tiles. Accesses are in bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from .design import Design
from .systolic import Costs, SystolicLayer, Tile, published_tile, systolic_costs
from .vector import VectorLayer, vector_costs

SYSTOLIC, FREE = ("conv", "gemm"), ("coarse_flatten",)
CYCLES = ("SA compute", "SA stall", "SIMD compute", "SIMD stall")
Row = Mapping[str, object]  # of a table of layers: `op` and sizes
Tiler = Callable[[Design, SystolicLayer], Tile]


@dataclass(frozen=True)
class Performance:
    """The costs of a network on a design: one entry a layer, None for what costs nothing, and its tile on the systolic array."""

    layers: tuple[Costs | None, ...]
    tiles: tuple[Tile | None, ...]

    @property
    def total(self) -> Costs:
        """The sum of every cost over the layers, and `cycles`: compute and stalls of both arrays, one layer after the other."""
        sums: Costs = {}
        for costs in filter(None, self.layers):
            for name, value in costs.items():
                sums[name] = sums.get(name, 0) + value
        return {**sums, "cycles": sum(sums.get(name, 0) for name in CYCLES)}


def network_costs(d: Design, rows: Sequence[Row], tiler: Tiler = published_tile, *, exact: bool = False) -> Performance:
    """Return the costs of the layers of a network in order, with the tiles of a tiler."""
    costs: list[Costs | None] = []
    tiles: list[Tile | None] = []
    for n, row in enumerate(rows):
        follower = str(rows[n + 1]["op"]) if n + 1 < len(rows) else ""
        tiles.append(tiler(d, SystolicLayer.of(row)) if row["op"] in SYSTOLIC else None)
        costs.append(layer_costs(d, row, follower, tiles[-1], exact=exact))
    return Performance(tuple(costs), tuple(tiles))


def layer_costs(d: Design, row: Row, follower: str = "", tile: Tile | None = None, *, exact: bool = False) -> Costs | None:
    """Return the costs of a layer in front of the operator `follower`, with a tile or with that of the published rule."""
    if row["op"] in FREE:
        return None
    if row["op"] in SYSTOLIC:
        layer = SystolicLayer.of(row)
        return systolic_costs(d, layer, tile or published_tile(d, layer), exact=exact)
    return vector_costs(d, VectorLayer.of(row), follower in SYSTOLIC)
