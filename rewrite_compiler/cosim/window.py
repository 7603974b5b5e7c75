"""Windows: a sum of products that reads its factor where codes lie, zeros around them, in place of copies of every window.

The coordinates of an element in its source are a sum of what its row says and what its step says. Then the offsets of rows
and of steps say where it lies in any layout of the source, also where rows overlap.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ..lang.digits import digits_of
from ..lang.named import Data
from ..lang.tape import Ran
from .provenance import CONSTANT, Chain, NoShortcut, Origins, Source, looked_at_in

MOST_WIDTH = 16
Digits = list[list[int]]


@dataclass(frozen=True, eq=False)
class Window:
    """What a sum of products reads: coordinates along axes of `shape`, of rows and of the elements of a row that are ever set."""

    call: Ran
    source: Source
    chain: Chain
    shape: tuple[int, ...]
    digits: Digits  # of the axes of the source
    rows: Data  # [axes, rows]
    elements: Data  # [axes, elements]
    places: Data  # of these elements in a row of the factor

    @cached_property
    def lane(self) -> int:
        """The axis along which elements lie side by side."""
        return min(range(len(self.shape)), key=lambda n: (self._room(n), -self._width(n), -n))

    @property
    def key(self) -> tuple[Any, ...]:
        """What windows have in common that read one layout."""
        return self.source.first, self.chain, self.shape, self.lane

    @property
    def width(self) -> int:
        """How many elements lie side by side, an even number."""
        return self._width(self.lane)

    @property
    def ends(self) -> tuple[Data, Data]:
        """The first and the last coordinate along each axis."""
        low = self.rows.min(axis=1) + self.elements.min(axis=1)
        high = self.rows.max(axis=1) + self.elements.max(axis=1)
        last = self.rows[self.lane].max() + self.elements[self.lane].min() + self.width - 1
        high[self.lane] = max(high[self.lane], last)
        return low, high

    def _width(self, axis: int) -> int:
        reach = int(np.ptp(self.elements[axis])) + 1
        return reach + reach % 2

    def _room(self, axis: int) -> int:
        return len(np.unique(np.delete(self.elements, axis, axis=0), axis=1).T) * self._width(axis)

    def over(self, layout: Layout) -> Ran:
        """Return the call that reads a layout of the source."""
        read = self.read(layout)
        call: Ran = self.call.fold.over(self.call.out, read.rows.astype(np.int32), read.steps.astype(np.int32), read.factors, read.width)
        return call

    def read(self, layout: Layout, width: int = 0) -> Read:
        """Return what is read of a layout of the source, and the other factors in that order, `width` elements a step if given."""
        lane = self.lane
        others, which = np.unique(np.delete(self.elements, lane, axis=0), axis=1, return_inverse=True)
        first = int(self.elements[lane].min())
        width = width or max(n for n in range(2, MOST_WIDTH + 1, 2) if self.width % n == 0)
        steps = np.delete(layout.strides, lane) @ others
        steps = (steps[:, None] + first + width * np.arange(self.width // width)).reshape(-1)
        at = which.reshape(-1) * self.width + self.elements[lane] - first
        if len(np.unique(at)) != len(at):
            raise NoShortcut("a row reads an element twice")
        factors = self.call.fold.factors()
        moved = np.zeros((len(factors), len(steps) * width), np.int16)
        moved[:, at] = factors[:, self.places]
        return Read(layout.strides @ (self.rows - layout.low[:, None]), steps, moved, width)


class Read(NamedTuple):
    """Offsets of rows and of steps, other factors [columns, elements], and how many elements of a step lie side by side."""

    rows: Data
    steps: Data
    factors: Data
    width: int


@dataclass
class Layout:
    """A source with zeros around it: the coordinates that are read, and the strides of the axes in elements."""

    windows: list[Window] = field(default_factory=list)
    place: int = 0
    moved: bool = False

    @cached_property
    def low(self) -> Data:
        """The first coordinates."""
        found: Data = np.minimum.reduce([w.ends[0] for w in self.windows])
        return found

    @cached_property
    def extents(self) -> Data:
        """How many there are."""
        found: Data = np.maximum.reduce([w.ends[1] for w in self.windows]) - self.low + 1
        return found

    @cached_property
    def strides(self) -> Data:
        """Elements between neighbours along each axis; the lane's lie side by side."""
        lane, found, size = self.windows[0].lane, np.zeros(len(self.extents), np.int64), 1
        for n in (lane, *(n for n in reversed(range(len(self.extents))) if n != lane)):
            found[n] = size
            size *= int(self.extents[n])
        return found

    @cached_property
    def size(self) -> int:
        """All elements."""
        return math.prod(map(int, self.extents))

    @cached_property
    def box(self) -> tuple[slice, ...]:
        """The coordinates that are those of elements of the source."""
        w = self.windows[0]
        return tuple(
            slice(max(int(a), 0), min(int(a + n), size)) for a, n, size in zip(self.low, self.extents, w.shape, strict=True)
        )  # fmt: skip

    def view(self, memory: Data) -> Data:
        """Return the coordinates of the box in a memory of this size."""
        box = self.box
        first = sum((b.start - int(a)) * int(t) for b, a, t in zip(box, self.low, self.strides, strict=True))
        return as_strided(memory[first:], [b.stop - b.start for b in box], [memory.itemsize * int(t) for t in self.strides])


def window(call: Ran, o: Origins, s: Source) -> Window:
    """Return what a sum of products reads of a source; NoShortcut where coordinates of rows and steps are no sums."""
    if o.constants[o.numbers == CONSTANT].any():
        raise NoShortcut("what lies around the codes is not zero")
    every, some, places, chosen = looked_at_in(call)
    if o.numbers.size != every.size + some.size:
        raise NoShortcut("all elements of a factor are numbered, not those that are looked at")
    first, all_of_some = o.numbers[: every.size].reshape(every.shape), o.numbers[every.size :].reshape(some.shape)
    for shape, digits in _shapes(s, all_of_some):
        found = _sums(first - s.first, all_of_some - s.first, s.first, shape, places, chosen)
        if found is not None:
            return Window(call, s, o.chain, shape, digits, *found)
    raise NoShortcut("a product's factor is no window of codes")


def _shapes(s: Source, numbers: Data) -> Iterator[tuple[tuple[int, ...], Digits]]:
    """Yield the source's shape, and with axes split where steps along them are rows of something."""
    yield s.shape, [[n] for n in s.shape]
    row = numbers[np.argmax((numbers != CONSTANT).sum(axis=1))]
    row = row[row != CONSTANT] - s.first
    if not row.size:
        return
    digits: Digits = []
    for n, x in zip(s.shape, np.unravel_index(row, s.shape), strict=True):
        steps = np.unique(x)[None]
        extents = digits_of(steps - steps[:, :1]) or [1]
        strides = [int(steps[0, math.prod(extents[k + 1 :])] - steps[0, 0]) for k, m in enumerate(extents) if m > 1]
        digits.append(_split(n, sorted({t for t in strides if 1 < t < n}, reverse=True)))
    if any(len(d) > 1 for d in digits):
        yield tuple(m for d in digits for m in d), digits


def _split(extent: int, strides: Sequence[int]) -> list[int]:
    """Return the extents of digits with these strides, outermost first; one where a stride does not divide what is left."""
    found, left = [], extent
    for stride in strides:
        if left % stride:
            return [extent]
        found.append(left // stride)
        left = stride
    return [*found, left]


def _sums(
    first: Data, some: Data, base: int, shape: tuple[int, ...], looked: Data, chosen: Data
) -> tuple[Data, Data, Data] | None:  # fmt: skip
    """Return coordinates of rows, of elements, and the places of these, where coordinates are their sums and else outside."""
    known, known_some = (x != CONSTANT - base for x in (first, some))
    row = int(np.argmax(np.count_nonzero(known_some, axis=1)))
    start = known_some[row]
    usable = known & start[looked]
    if not start.any() or not usable.any(axis=1).all():
        return None
    coords = _coordinates(np.where(start, some[row], 0), shape)
    elements = np.where(start, coords - coords[:, [int(np.argmax(start))]], 0)
    step = np.argmax(usable, axis=1)
    rows = _coordinates(first[np.arange(len(first)), step], shape) - elements[:, looked[step]]
    late = known_some.any(axis=0) & ~start
    for k in np.flatnonzero(late):
        m = int(np.argmax(known_some[:, k]))
        elements[:, k] = _coordinates(some[m, k], shape) - rows[:, chosen[m]]
    places = np.flatnonzero(start | late)
    kept = np.isin(looked, places)
    if known[:, ~kept].any():
        return None
    pairs = (first[:, kept], known[:, kept], rows, elements[:, looked[kept]]), (
        some[:, places], known_some[:, places], rows[:, chosen], elements[:, places],
    )  # fmt: skip
    if any(not _are_sums(*p, shape) for p in pairs):
        return None
    return rows, elements[:, places], places


def _coordinates(numbers: Data, shape: tuple[int, ...]) -> Data:
    return np.stack(np.unravel_index(numbers, shape)).astype(np.int64)


def _are_sums(numbers: Data, known: Data, rows: Data, elements: Data, shape: tuple[int, ...]) -> bool:
    """Tell whether coordinates are sums where elements are known, and outside of the shape where they are zero."""
    strides = np.array([math.prod(shape[n + 1 :]) for n in range(len(shape))], np.int64)
    r, e = ((strides @ x).astype(numbers.dtype) for x in (rows, elements))
    if ((r[:, None] + e != numbers) & known).any():
        return False
    is_inside = np.ones(numbers.shape, bool)
    for r, e, extent in zip(rows, elements, shape, strict=True):
        if r.min() + e.min() < 0 or r.max() + e.max() >= extent:
            total = r.astype(np.int32)[:, None] + e.astype(np.int32)
            is_inside &= (total >= 0) & (total < extent)
    return bool((is_inside == known).all())
