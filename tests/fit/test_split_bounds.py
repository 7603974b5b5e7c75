"""The bound of a split over the units counts parts of sums where the results of a tile do not stay with the units, and only there."""

from __future__ import annotations

import numpy as np
import pytest

from rewrite_compiler.fit.mappers.lower_bound import split_bounds
from rewrite_compiler.fit.mappers.outer_tiles import OuterTiles
from rewrite_compiler.fit.mapping.clusters import Cluster, Clusters
from rewrite_compiler.fit.mapping.space import Space
from rewrite_compiler.fit.models.model import Objective
from rewrite_compiler.fit.problems.layers import layer_problem

PROBLEM = layer_problem("gemm:m=8,n=4,k=6")
CAPACITY, PARTS, ENERGY = 3, 5, {"DRAM": 100, "L2": 7, "L1": 1}
LEVELS = (Cluster("DRAM"), Cluster("L2", 64, 4, "X"), Cluster("L1", CAPACITY))


def bounds_of(results: int) -> dict[tuple[int, ...], float]:
    """Return the femtojoules of every split by the parts of m, n and k, for one tile with so many results."""
    column = np.array([results], np.int64)
    tiles = OuterTiles(np.ones((3, 1), np.int64), np.array([500]), np.array([70_000.0]), np.array([PARTS]), column)
    space = Space(PROBLEM, Clusters("three levels", LEVELS, 10**9, ENERGY, {"mac2": 2}, "this test"))
    bounds = split_bounds(space, Objective.ENERGY, tiles)
    assert bounds is not None
    return {tuple(c): float(v) for c, v in zip(bounds.parts.T.tolist(), bounds.values, strict=True)}


@pytest.mark.parametrize("results", [1, 3, 4, 6, 7, 9, 10, 12, 13, 32])
def test_parts_of_sums_come_back_where_all_units_together_hold_fewer_results(results: int) -> None:
    """A unit holds 3 words and m × n units share the results: each further part is written to L2, read, and brought to k units."""
    least, found = bounds_of(1), bounds_of(results)
    assert {m * n for m, n, _ in found} == {1, 2, 4}
    for (m, n, k), value in found.items():
        is_moved = results > CAPACITY * m * n
        a_part = 32 * (2 * ENERGY["L2"] + k * ENERGY["L1"])  # of all 8 × 4 results
        assert value - least[m, n, k] == (PARTS - 1) * a_part * is_moved, (m, n, k)
