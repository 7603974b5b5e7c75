"""Recognition of windows (im2col): the axes of a gather as digits, each of which steps along one axis of the gathered value."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ...ir.program import Data

if TYPE_CHECKING:
    from ...kernels.windows import Windows

PROBED_ELEMENTS = 1 << 10  # elements by which a guess is refused
Parts = tuple[tuple[int, int], ...]  # extent and step of each digit of an axis, the fastest last
MAX_STEPS = 6  # different steps


def windows_of(places: Data, size: int) -> Windows | None:
    """Return the gather `places` (1 + element number, 0 for zero) from a value of `size` elements as windows; None where it is none.

    Digits are guessed from differences of neighbours and then verified on every element.
    """
    if places.size < 2 or not places.any():
        return None
    axes = [_parts(places, axis) for axis in range(places.ndim)]
    axis_parts = [a for a in axes if a is not None]
    if len(axis_parts) < len(axes):
        return None
    probes = np.random.default_rng(0).integers(0, places.size, min(PROBED_ELEMENTS, places.size))
    for parts in _split(axis_parts, has_zeros=not places.all()):
        for shape in _shapes(parts, size):
            windows = _windows_over(places, parts, shape)
            if windows is not None and all(_agrees_at(windows, places, size, numbers) for numbers in (probes, np.arange(places.size))):
                return windows
    return None


def _parts(places: Data, axis: int) -> Parts | None:
    """Return the digits of an axis by how far its neighbours are apart, where both are there."""
    p = np.moveaxis(places, axis, 0).reshape(places.shape[axis], -1).astype(np.int64)
    are_present = (p[1:] > 0) & (p[:-1] > 0)
    if not are_present.any(axis=1).all():
        return None
    first = are_present.argmax(axis=1)
    rows = np.arange(len(first))
    steps = p[1:][rows, first] - p[:-1][rows, first]
    places_along = np.concatenate([[0], np.cumsum(steps)])
    digits: list[tuple[int, int]] = []
    while len(places_along) > 1:
        distances = np.diff(places_along)
        breaks = np.flatnonzero(distances != distances[0])
        extent = int(breaks[0]) + 1 if len(breaks) else len(places_along)
        if len(places_along) % extent:
            return None
        digits.insert(0, (extent, int(distances[0])))
        places_along = places_along[::extent]
    return tuple(digits) or ((1, 0),)


def _split(axes: list[Parts], *, has_zeros: bool) -> Iterator[list[Parts]]:
    """Yield digits as they are, then with one of them as two: where its neighbours are as far apart everywhere, only zeros tell."""
    yield axes
    for axis, parts in enumerate(axes if has_zeros else ()):
        for n, (extent, step) in enumerate(parts):
            for inner in (k for k in range(2, extent // 2 + 1) if not extent % k):
                cut = (*parts[:n], (extent // inner, inner * step), (inner, step), *parts[n + 1 :])
                yield [*axes[:axis], cut, *axes[axis + 1 :]]


def _shapes(axes: list[Parts], size: int) -> Iterator[tuple[tuple[int, int], ...]]:
    """Yield what the axes of the smaller array may be: extent and step of each, the fastest last."""
    steps = sorted({step for parts in axes for _, step in parts if step > 0} | {1})
    if len(steps) > MAX_STEPS:
        return
    larger_steps = steps[1:]
    for count in range(len(larger_steps), -1, -1):
        for chosen_steps in itertools.combinations(larger_steps, count):
            bases = [1, *chosen_steps]
            ends = [*bases[1:], size]
            if all(not b % a for a, b in zip(bases, ends, strict=True)):
                yield tuple((b // a, a) for a, b in reversed(list(zip(bases, ends, strict=True))))


def _windows_over(places: Data, axes: list[Parts], shape: tuple[tuple[int, int], ...]) -> Windows | None:
    """Return windows over an array of this shape; where they begin is read from one element."""
    from ...kernels.windows import Digit, Windows

    digits = []
    for parts in axes:
        axis_digits = []
        for extent, step in parts:
            axis = next((n for n, (_, base) in enumerate(shape) if not step % base), None)
            if axis is None:
                return None
            axis_digits.append(Digit(extent, axis, step // shape[axis][1]))
        digits.append(tuple(axis_digits))
    at = int(np.flatnonzero(places)[0])
    place = int(places.reshape(-1)[at]) - 1
    first = [place // base % extent for extent, base in shape]
    quotient = at
    for d in reversed([d for group in digits for d in group]):
        first[d.axis] -= quotient % d.extent * d.step
        quotient //= d.extent
    return Windows(tuple(extent for extent, _ in shape), tuple(first), tuple(digits))


def _agrees_at(w: Windows, places: Data, size: int, numbers: Data) -> bool:
    """Tell whether elements of these numbers are where windows say."""
    if math.prod(w.shape) != size:
        return False
    quotients = numbers
    coordinates = [np.full(len(numbers), n, np.int64) for n in w.origin]
    for d in reversed([d for digits in w.digits for d in digits]):
        coordinates[d.axis] += quotients % d.extent * d.step
        quotients = quotients // d.extent
    is_inside = np.ones(len(numbers), bool)
    place = np.zeros(len(numbers), np.int64)
    for x, extent in zip(coordinates, w.shape, strict=True):
        is_inside &= (x >= 0) & (x < extent)
        place = place * extent + x
    return np.array_equal(np.where(is_inside, place + 1, 0), places.reshape(-1)[numbers])


class Movement(Protocol):
    """The interface of a move: a result whose elements are elements of one value, or zero."""

    @property
    def places(self) -> Data:
        """1 + the number of each element in the value, or 0 for zero."""

    def __call__(self, x: Data, zero: int = 0) -> Data:
        """Return the result [samples, …] from the value [samples, …]; `zero` stands for zero there."""


class WindowedCodes:
    """Codes of an operand of windows: those of its root [samples, …], gathered only where elements are read."""

    def __init__(self, root: Data, move: Movement, windows: Windows, zero: int) -> None:
        """Hold codes of a root; `zero` stands for zero."""
        self.root, self.move, self.windows, self.zero = root, move, windows, zero
        self.shape = (len(root), *move.places.shape)
        self.ndim = len(self.shape)

    @cached_property
    def data(self) -> Data:
        """All elements [samples, …], gathered at the first use."""
        return self.move(np.ascontiguousarray(self.root), self.zero)

    def __getitem__(self, place: Any) -> Data:
        """Return elements by numpy indexing of `data`."""
        elements: Data = self.data[place]
        return elements
