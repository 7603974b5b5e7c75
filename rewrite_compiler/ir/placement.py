"""Place: where the samples of a batch sit in a tensor — merged into one axis, whose extent they multiply.

An axis of extent n = outer · inner becomes outer · samples · inner: index (o, s, i). A place is the same row-major order
under every shape that keeps what lies before the samples, so it survives reshapes; `candidates` lists its spellings.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..ops.op import Shape
from .program import Data


@dataclass(frozen=True)
class Place:
    """The samples sit in `axis`, behind `outer` of its parts; with outer = 1 they vary slowest."""

    axis: int
    outer: int = 1

    def lead(self, shape: Shape) -> int:
        """Return the number of blocks before the samples in row-major order: all extents before the axis, times `outer`."""
        return math.prod(shape[: self.axis]) * self.outer

    def inner(self, shape: Shape) -> int:
        """Return how many indices of the axis belong together to one sample."""
        return shape[self.axis] // self.outer

    def split(self, shape: Shape) -> tuple[Shape, Shape]:
        """Return the extents before the samples and those behind them."""
        return (*shape[: self.axis], self.outer), (self.inner(shape), *shape[self.axis + 1 :])

    def scaled(self, shape: Shape, samples: int) -> Shape:
        """Return the shape of the tensor that holds all samples."""
        return (*shape[: self.axis], shape[self.axis] * samples, *shape[self.axis + 1 :])


def places_with_lead(shape: Shape, lead: int) -> Iterator[Place]:
    """Yield the places in `shape` with `lead` blocks before the samples: one row-major order, several spellings."""
    before = 1
    for axis, n in enumerate(shape):
        if before and lead % before == 0 and n and n % (lead // before) == 0:
            yield Place(axis, lead // before)
        before *= n


def equivalent_places(shape: Shape, place: Place) -> list[Place]:
    """Return the places with the same row-major order as `place` in a shape, itself first."""
    return [place, *(p for p in places_with_lead(shape, place.lead(shape)) if p != place)]


def merge_samples(batch: Data, place: Place) -> Data:
    """Return a batch [samples, …] as one tensor with the samples merged into the axis of their place."""
    samples, *shape = batch.shape
    before, behind = place.split(tuple(shape))
    parts = batch.reshape(samples, *before, *behind)
    return np.moveaxis(parts, 0, len(before)).reshape(place.scaled(tuple(shape), samples))


def split_samples(tensor: Data, place: Place | None, samples: int) -> Data:
    """Return the samples of a tensor as a batch [samples, …], the inverse of merging; without a place the tensor repeats."""
    if place is None:
        return np.broadcast_to(tensor, (samples, *tensor.shape))
    shape = (*tensor.shape[: place.axis], tensor.shape[place.axis] // samples, *tensor.shape[place.axis + 1 :])
    before, behind = place.split(shape)
    parts = tensor.reshape(*before, samples, *behind)
    return np.moveaxis(parts, len(before), 0).reshape(samples, *shape)


def repeat_per_sample(tensor: Data, place: Place, samples: int) -> Data:
    """Return a tensor repeated for every sample, the copies merged into the axis of the place."""
    return merge_samples(np.broadcast_to(tensor, (samples, *tensor.shape)), place)
