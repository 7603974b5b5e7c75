"""Products of matrices of 16-bit factors, exact in words of 32 bits or modulo 2^32, by the kernel of blocked folds.

The larger factor is read where it lies, through tables of offsets (no copy of the windows of a convolution); the other
one is packed, once where it does not depend on samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.lib.stride_tricks import as_strided

from . import intervals as iv
from .blocked import INT16, INT32, LANES, MOST_LANES, offsets, packed_columns, words_of
from .expr import Expr
from .named import Axes, Axis, Data, Named

if TYPE_CHECKING:
    from .tape import Tape

LEAST_WORK, MOST_BATCHES = 1 << 12, 64
MOST_OFFSET = 1 << 30
LARGEST_SPAN = 4  # elements converted for each element of a view


def is_exact(e: Expr, pair: Sequence[Expr], *, modular: bool) -> bool:
    """Tell whether a sum of products of `pair` is right in words of 32 bits: sums wrap there, and the whole must not, or may."""
    return not e.real and all(iv.inside(f.interval, INT16) for f in pair) and (modular or iv.inside(e.interval, INT32))


@dataclass(frozen=True)
class _Sides:
    """The axes of a product: of both factors and kept, of one factor, summed."""

    batch: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    summed: tuple[Axis, ...]


class Multiplier(Protocol):
    """What multiplies matrices."""

    lanes: int  # columns are filled up to a multiple of them
    rows: int  # rows, too

    def run(self, a: Factor, b: Data, out: Data, tape: Tape | None) -> None:
        """Set out[row, column] to the sum over steps of A's elements, side by side, times the packed words of B."""


@dataclass(frozen=True)
class Factor:
    """16-bit elements; how far the first one of each row and of each step is from the first; how many a step has."""

    data: Data
    rows: Data
    steps: Data
    width: int


def product(a: Named, b: Named, over: Sequence[Axis], axes: Axes, by: Multiplier) -> Named | None:
    """Return Σ_over a·b of 16-bit integers modulo 2^32; None where it is too small to be worth a call."""
    shared = [v for v in a.axes if v in b.axes]
    batch, summed = (tuple(v for v in shared if (v in over) is inner) for inner in (False, True))
    rows, columns = (tuple(v for v in x.axes if v not in shared) for x in (a, b))
    if not {v for v in over if axes.extent[v] > 1} <= set(shared) or not summed:
        return None
    count, m, n, k = (math.prod(axes.shape(x)) for x in (batch, rows, columns, summed))
    if count * m * n * k < LEAST_WORK or count > MOST_BATCHES:
        return None
    is_fixed = [axes.taping(x) is None for x in (rows, columns)]
    if is_fixed == [True, False] or (is_fixed[0] == is_fixed[1] and m < n):
        a, b, rows, columns = b, a, columns, rows
    return _multiplied(a, b, _Sides(batch, rows, columns, summed), axes, by)


def _multiplied(a: Named, b: Named, sides: _Sides, axes: Axes, by: Multiplier) -> Named:
    grid = (*sides.batch, *sides.rows, *sides.columns)
    m, n = (math.prod(axes.shape(x)) for x in (sides.rows, sides.columns))
    padded, tiles = -(-m // by.rows) * by.rows, -(-n // by.lanes)
    left = _in_place(a, sides, axes) or _copied(a, sides, axes)
    total = math.prod(count for _, count in left.steps)
    tables = offsets(left.along, padded), offsets(left.steps, total)
    tape = axes.taping(grid)
    shape = (len(left.parts), padded, tiles * by.lanes)
    out = np.empty(shape, np.int32) if tape is None else tape.empty(shape, np.int32)
    for x, y, z in zip(left.parts, _split(b, sides.batch), out, strict=True):
        packed = _packed(y, (*sides.columns, *left.order), (n, total, left.width), (tiles, by.lanes), axes.taping(b.axes))
        by.run(Factor(x.data, *tables, left.width), packed, z, tape)
    return axes.ordered(out[:, :m, :n].reshape(axes.shape(grid)), grid)


# -- the factor that is read through offsets


@dataclass(frozen=True)
class _Left:
    """16-bit elements for each value of the batch axes; how far rows and steps are apart; `order` of the summed axes."""

    parts: Sequence[Named]
    along: tuple[tuple[int, int], ...]
    steps: tuple[tuple[int, int], ...]
    width: int  # elements of a step, side by side
    order: tuple[Axis, ...]


def _in_place(a: Named, sides: _Sides, axes: Axes) -> _Left | None:
    """Return the factor where it lies; None where no summed axis has its elements side by side, an even number of them."""
    size, extent = a.data.itemsize, axes.extent
    stride = {v: s // size for v, s, n in zip(a.axes, a.data.strides, a.data.shape, strict=True) if n > 1}
    lane = max((v for v in sides.summed if stride.get(v) == 1 and extent[v] % 2 == 0), key=lambda v: extent[v], default=None)
    if lane is None or any(s % size for s in a.data.strides) or any(s < 0 for s in stride.values()):
        return None
    order = (*(v for v in sides.summed if v != lane), lane)
    width = max(w for w in range(2, MOST_LANES + 1, 2) if extent[lane] % w == 0)
    along = tuple((stride.get(v, 0), extent[v]) for v in sides.rows)
    steps = (*((stride.get(v, 0), extent[v]) for v in order[:-1]), (width, extent[lane] // width))
    if sum(s * (n - 1) for s, n in (*along, *steps)) >= MOST_OFFSET:
        return None
    words = _as_int16(a, axes)
    return None if words is None else _Left(_split(words, sides.batch), along, steps, width, order)


def _as_int16(a: Named, axes: Axes) -> Named | None:
    """Return a view with 16-bit elements: what lies between its first and its last element is converted as it lies."""
    data = a.data
    if data.dtype == np.int16:
        return a
    span = 1 + sum((n - 1) * s // data.itemsize for n, s in zip(data.shape, data.strides, strict=True))
    if span > LARGEST_SPAN * data.size:
        return None
    first = data[(slice(0, 1),) * data.ndim]
    flat = as_strided(first, (span,), (data.itemsize,))
    words = axes.copied(flat, a.axes, np.int16)
    return Named(as_strided(words, data.shape, [2 * (s // data.itemsize) for s in data.strides]), a.axes)


def _copied(a: Named, sides: _Sides, axes: Axes) -> _Left:
    """Return the factor as rows of 16-bit elements in one piece, filled up with zeros to whole steps."""
    rows, k = math.prod(axes.shape(sides.rows)), math.prod(axes.shape(sides.summed))
    whole = -(-k // LANES) * LANES
    grid = (*sides.batch, *sides.rows, *sides.summed)
    tape = axes.taping(a.axes)
    shape = (math.prod(axes.shape(sides.batch)), rows, whole)
    words = np.empty(shape, np.int16) if tape is None else tape.empty(shape, np.int16)
    axes.assign(words[..., k:], 0, a.axes)
    kept = words[..., :k].reshape(axes.shape(grid))
    axes.assign(kept, a.data.transpose([a.axes.index(v) for v in grid]), a.axes)
    parts = [Named(x, ()) for x in words]
    return _Left(parts, ((whole, rows),), ((LANES, whole // LANES),), LANES, sides.summed)


def _split(x: Named, batch: Sequence[Axis]) -> list[Named]:
    """Return a factor for each value of the batch axes."""
    rest = tuple(v for v in x.axes if v not in batch)
    data = x.data.transpose([x.axes.index(v) for v in (*batch, *rest)])
    return [Named(data[i], rest) for i in np.ndindex(data.shape[: len(batch)])]


# -- the factor that is packed


def _packed(b: Named, order: Sequence[Axis], shape: tuple[int, int, int], tiles: tuple[int, int], tape: Tape | None) -> Data:
    """Return [tiles, steps, words, columns of a tile]; packed again whenever a tape is played where it depends on samples."""
    places = [b.axes.index(v) for v in order]
    if tape is None:
        return _words(b.data, places, shape, tiles)
    now, steady = _words(b.data, places, shape, tiles), tape.steady(b.data)
    found = tape.empty(now.shape, now.dtype)
    found[...] = now
    tape.again(found, partial(_words, steady, places, shape, tiles))
    return found


def _words(b: Data, places: Sequence[int], shape: tuple[int, int, int], tiles: tuple[int, int]) -> Data:
    n, steps, width = shape
    rows = b.transpose(places).reshape(n, -1)
    if rows.shape[1] < steps * width:
        whole = np.zeros((n, steps * width), np.int16)
        whole[:, : rows.shape[1]] = rows
        rows = whole
    return packed_columns([words_of(rows.reshape(n, steps, width), is_pairs=True)], *tiles)
