"""Placed: elements that indices of any form name, as a view with strides where the indices follow digits of their axes.

A recorded read or write through such indices is then one copy between two layouts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.lib.stride_tricks import as_strided

from .digits import digits_of, separated

if TYPE_CHECKING:
    from .named import Axes, Axis, Data, Named, Store

ELEMENTS = 1 << 22
MOST_DIMENSIONS = 16
Digits = list[list[int]]


def placed(store: Store, origin: Sequence[int], indices: Sequence[Named], reads: Sequence[Axis], axes: Axes) -> tuple[Data, Digits] | None:
    """Return store[indices] over its batch axes and the digits of `reads`, and those; None where the indices have none."""
    shape = axes.shape(reads)
    if any(b in reads for b in store.batch) or not reads or not 0 < math.prod(shape) <= ELEMENTS:
        return None
    lead, strides = len(store.batch), store.data.strides[len(store.batch) :]
    place = np.zeros(shape, np.int64)
    for i, start, stride in zip(indices, origin, strides, strict=True):
        place += (axes.full(i, tuple(reads)).astype(np.int64) - start) * stride
    found = separated(place)
    digits = [] if found is None else [digits_of(s[None]) for s in found[1]]
    if found is None or None in digits:
        return None
    known = [d or [1] for d in digits]
    steps = [int(s[math.prod(d[n + 1 :])]) if m > 1 else 0 for s, d in zip(found[1], known, strict=True) for n, m in enumerate(d)]
    if lead + len(steps) > MOST_DIMENSIONS:
        return None
    first = [int(axes.full(i, tuple(reads)).flat[0]) - start for i, start in zip(indices, origin, strict=True)]
    corner = store.data[(*[slice(None)] * lead, *(slice(p, p + 1) for p in first))]
    view = as_strided(corner, (*axes.shape(store.batch), *(m for d in known for m in d)), (*store.data.strides[:lead], *steps))
    return view, known


def split(data: Data, lead: int, digits: Digits) -> Data:
    """Return an array whose dimensions after the first `lead` are split into digits."""
    if all(math.prod(extents) == size for extents, size in zip(digits, data.shape[lead:], strict=True)):
        return data.reshape((*data.shape[:lead], *(n for extents in digits for n in extents)))  # a view: no axes are joined
    shape, strides = list(data.shape[:lead]), list(data.strides[:lead])
    for extents, stride in zip(digits, data.strides[lead:], strict=True):
        shape += extents
        strides += [stride * math.prod(extents[n + 1 :]) for n in range(len(extents))]
    return as_strided(data, shape, strides)
