"""Contents of a mutable array, in which boxes may depend on batch axes that the rest does not have.

A sample axis, or the axis of a vectorised loop, is paid only for the boxes that were written with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .labelled_array import Axes, Axis, Data, Store

MAX_REGIONS = 64  # beyond, regions are joined instead of cut
Box = tuple[tuple[int, ...], tuple[int, ...]]  # first and last element, both inside


@dataclass(eq=False)
class Region:
    """A box of a memory whose contents have batch axes, so that they lie apart from the base contents."""

    low: tuple[int, ...]
    store: Store

    @property
    def high(self) -> tuple[int, ...]:
        """The last element of the box."""
        return tuple(a + n - 1 for a, n in zip(self.low, self.store.element_shape, strict=True))

    def intersects(self, low: Sequence[int], high: Sequence[int]) -> bool:
        """Tell whether the box intersects the box low … high."""
        return all(a <= h and b >= g for a, b, g, h in zip(self.low, self.high, low, high, strict=True))

    def contains(self, low: Sequence[int], high: Sequence[int]) -> bool:
        """Tell whether the box contains the box low … high."""
        return all(a <= g and b >= h for a, b, g, h in zip(self.low, self.high, low, high, strict=True))


class Memory(Store):
    """A mutable array: base contents without batch axes, and disjoint regions that lie over them."""

    def __init__(self, data: Data) -> None:
        """Take `data` as the base contents."""
        super().__init__(data)
        self.regions: list[Region] = []

    def window(self, low: Sequence[int], high: Sequence[int], axes: Axes) -> tuple[Store, Sequence[int]]:
        """Return the store that holds the box low … high; regions are joined where the box crosses their borders."""
        overlapping = [r for r in self.regions if r.intersects(low, high)]
        if not overlapping:
            return Store(self.data), [0] * len(low)
        if not (len(overlapping) == 1 and overlapping[0].contains(low, high)):
            overlapping = [self._joined(low, high, (), axes)]
        return overlapping[0].store, overlapping[0].low

    def writable_window(self, low: Sequence[int], high: Sequence[int], batch: Iterable[Axis], axes: Axes) -> tuple[Store, Sequence[int]]:
        """Return a store for writing low … high with the batch axes; its elements outside keep their contents."""
        batch_axes = tuple(batch)
        overlapping = [r for r in self.regions if r.intersects(low, high)]
        if not overlapping and not batch_axes:
            return Store(self.data), [0] * len(low)
        if not (len(overlapping) == 1 and overlapping[0].contains(low, high) and set(batch_axes) <= set(overlapping[0].store.batch)):
            overlapping = [self._joined(low, high, batch_axes, axes)]
        return overlapping[0].store, overlapping[0].low

    def replace_box(self, low: Sequence[int], value: Data, batch: tuple[Axis, ...]) -> bool:
        """Replace one whole box by `value`; False, and nothing changed, when a region without the box is not at most two boxes."""
        region = Region(tuple(low), Store(value, batch))
        overlapping = [r for r in self.regions if r.intersects(region.low, region.high)]
        remainders = [_without(r, region) for r in overlapping]
        remaining = [part for parts in remainders if parts is not None for part in parts]
        if any(parts is None for parts in remainders) or len(self.regions) + len(remaining) > MAX_REGIONS:
            return False
        self.regions = [r for r in self.regions if all(r is not m for m in overlapping)] + remaining
        if batch:
            self.regions.append(region)
        else:
            self.data[_slices(region.low, region.high)] = value
        return True

    def end_axis(self, axis: Axis) -> None:
        """Drop a batch axis at the end of its loop: contents become those of the last iteration."""
        for r in list(self.regions):
            if axis not in r.store.batch:
                continue
            place = r.store.batch.index(axis)
            last = np.moveaxis(r.store.data, place, 0)[-1]
            r.store = Store(last, tuple(b for b in r.store.batch if b != axis))
            if not r.store.batch:
                self.data[_slices(r.low, r.high)] = r.store.data
                self.regions.remove(r)

    def full(self, axes: Axes) -> Store:
        """Return the whole contents with every batch axis that any region has."""
        low, high = (0,) * self.data.ndim, tuple(n - 1 for n in self.data.shape)
        store, _ = self.window(low, high, axes) if self.data.size else (Store(self.data), ())
        return store

    def _joined(self, low: Sequence[int], high: Sequence[int], batch: Sequence[Axis], axes: Axes) -> Region:
        low, high = tuple(low), tuple(high)
        while True:
            overlapping = [r for r in self.regions if r.intersects(low, high)]
            hull = _hull([(low, high), *((r.low, r.high) for r in overlapping)])
            if hull == (low, high):
                break
            low, high = hull
        all_axes = axes.union(batch, *(r.store.batch for r in overlapping))
        base = self.data[_slices(low, high)]
        data: Any = np.array(np.broadcast_to(base, (*axes.shape(all_axes), *base.shape)))
        for r in overlapping:
            inner = _slices([a - b for a, b in zip(r.low, low, strict=True)], [a - b for a, b in zip(r.high, low, strict=True)])
            shape = tuple(axes.extent[a] if a in r.store.batch else 1 for a in all_axes)
            data[(..., *inner)] = r.store.data.reshape((*shape, *r.store.element_shape))
        self.regions = [r for r in self.regions if all(r is not m for m in overlapping)]
        region = Region(low, Store(data, all_axes))
        self.regions.append(region)
        return region


def _without(r: Region, box: Region) -> list[Region] | None:
    """Return what is left of a region without a box, as views of it; None when that is not at most two boxes."""
    cut = [n for n, (a, b) in enumerate(zip(box.low, r.low, strict=True)) if a > b or box.high[n] < r.high[n]]
    if len(cut) > 1:
        return None
    parts = []
    for n in cut:
        for first, last in ((r.low[n], box.low[n] - 1), (box.high[n] + 1, r.high[n])):
            if first <= last:
                key = (*[slice(None)] * (len(r.store.batch) + n), slice(first - r.low[n], last + 1 - r.low[n]))
                parts.append(Region((*r.low[:n], first, *r.low[n + 1 :]), Store(r.store.data[key], r.store.batch)))
    return parts


def samples_of(stores: Iterable[Store], axes: Axes) -> int:
    """Return the longest batch axis that a region of a memory has; 1 when there is none."""
    regions = [r for m in stores if isinstance(m, Memory) for r in m.regions]
    return max((axes.extent[b] for r in regions for b in r.store.batch), default=1)


def _hull(boxes: Sequence[Box]) -> Box:
    lows, highs = zip(*boxes, strict=True)
    return tuple(map(min, *lows)) if len(boxes) > 1 else lows[0], tuple(map(max, *highs)) if len(boxes) > 1 else highs[0]


def _slices(low: Sequence[int], high: Sequence[int]) -> tuple[slice, ...]:
    return tuple(slice(a, b + 1) for a, b in zip(low, high, strict=True))
