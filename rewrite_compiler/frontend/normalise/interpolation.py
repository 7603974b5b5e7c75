"""Linear interpolation by whole factors as depthwise convolution and depth-to-space.

Each element of the input gives as many results along an axis as the factor says, and each of these is a sum of neighbours with
weights that are the same everywhere: one filter for each. Where a neighbour does not exist, the outermost element stands in.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np

from ...ir.program import Data, Value
from ..site.context import Unsupported
from ..site.site import Site

Coordinate = Callable[[int, int], Fraction]  # where element n of an axis enlarged by a factor lies in the smaller one


def phase_weights(factor: int, coordinate: Coordinate) -> tuple[int, Data]:
    """Return the least offset of a neighbour, and the weights [factor, neighbours] of those from there on."""
    places = [coordinate(n, factor) for n in range(factor)]
    first = min(math.floor(c) for c in places)
    last = max(math.ceil(c) for c in places)
    weights = np.zeros((factor, last - first + 1), np.float32)
    for n, c in enumerate(places):
        base = math.floor(c)
        weights[n, base - first] += float(1 - (c - base))
        if c > base:
            weights[n, base + 1 - first] += float(c - base)
    return first, weights


def interpolated(site: Site, factors: Sequence[int], coordinate: Coordinate) -> Value:
    """Lower linear interpolation by a factor for each axis.

    Raises:
        Unsupported: samples or channels are interpolated, or their places need more axes than there may be.
    """
    site.require_float()
    shape, spatial = site.shape(0), factors[2:]
    if len(shape) < 3 or max(factors[:2]) > 1:
        raise Unsupported("it interpolates between samples or channels")
    if 2 + 2 * len(spatial) > site.context.limits.rank:
        raise Unsupported(f"it has {len(spatial)} axes, and to spread channels over them takes twice as many")
    x, kernel = site.value(0), np.ones((1, 1), np.float32)
    for axis, factor in enumerate(spatial, start=2):
        first, weights = phase_weights(factor, coordinate)
        x = _with_edges(site, x, axis, -first, first + weights.shape[1] - 1)
        kernel = np.einsum("pt,qu->pqtu", kernel, weights).reshape(len(kernel) * factor, -1)
    taps = [phase_weights(factor, coordinate)[1].shape[1] for factor in spatial]
    channels = shape[1]
    site.context.charge_folding(kernel.nbytes * channels)
    filters = site.constant(np.tile(kernel, (channels, 1)).reshape(-1, 1, *taps), "filters")
    ones, zeros = (1,) * len(spatial), (0,) * 2 * len(spatial)
    y = site.apply("conv", x, filters, strides=ones, pads=zeros, dilations=ones, group=channels)
    split = site.reshape(y, (*shape[:2], *spatial, *shape[2:]))
    rank = len(spatial)
    places = itertools.chain.from_iterable((2 + rank + n, 2 + n) for n in range(rank))
    return site.reshape(site.transpose(split, (0, 1, *places)), [n * f for n, f in zip(shape, factors, strict=True)])


def _with_edges(site: Site, x: Value, axis: int, before: int, after: int) -> Value:
    """Return a tensor with its outermost elements along an axis repeated before and after it."""
    extent = site.shape(0)[axis]
    first, last = (site.apply("slice", x, axis=axis, start=n, stop=n + 1, step=1) for n in (0, extent - 1))
    parts = [first] * before + [x] + [last] * after
    return x if len(parts) == 1 else site.apply("concat", *parts, axis=axis)
