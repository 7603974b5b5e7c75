"""The array algebra of drivers: what lays tensors of codes out as a device stores them, and takes results apart again.

Every function takes arrays of numpy integers and arrays of a proof's elements alike, which are integers and terms that stand
for integers (`prove.mappings.symbolic_device`); which of both an array holds is decided here and nowhere in a target.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np

from ..readings.arrays.labelled_array import Data
from ..readings.kernels.layout_conversion import copy_layout
from ..readings.smt.polynomial_terms import Term

BASE = 256  # values of a byte
MACHINE_WORDS = {1: "<i1", 2: "<i2", 4: "<i4", 8: "<i8"}  # signed words by their bytes
UNSIGNED_WORDS = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}  # by their bits


def _is_symbolic(x: Data) -> bool:
    """Tell whether elements are those of a proof rather than machine integers."""
    return x.dtype == object


# -- words and bytes


def split_bytes(words: Data, count: int = 1) -> Data:
    """Return words [… n] as bytes [… n·count], little-endian two's complement, `count` ≤ 8 bytes a word."""
    if _is_symbolic(words):
        digits = [words % BASE]
        for _ in range(count - 1):
            words = _shifted_down(words)
            digits.append(words % BASE)
        return np.stack(digits, axis=-1).reshape(*words.shape[:-1], -1)
    if words.dtype.itemsize == count or count in MACHINE_WORDS:
        kind = words.dtype if words.dtype.itemsize == count else MACHINE_WORDS[count]
        return np.ascontiguousarray(words, kind).view(np.uint8)
    return np.ascontiguousarray(words, np.int64)[..., None].view(np.uint8)[..., :count].reshape(*words.shape[:-1], -1)


def _shift_down(x: Any) -> Any:
    """Return ⌊x / 256⌋: a term has no floor division, but divides exactly; without its lowest digit it may be a number."""
    multiple = x - x % BASE
    return int(multiple) // BASE if isinstance(multiple, Integral) else multiple / BASE


_shifted_down = np.frompyfunc(_shift_down, 1, 1)


def join_bytes(digits: Data) -> Data:
    """Return signed words […] from their bytes [… count], little-endian two's complement."""
    count = digits.shape[-1]
    if _is_symbolic(digits) or count not in MACHINE_WORDS:
        wide = widen(digits)
        word, half = wide[..., 0], 1 << 8 * count - 1
        for n in range(1, count):
            word = word + (1 << 8 * n) * wide[..., n]
        return np.asarray((word + half) % (2 * half) - half)
    return _contiguous(digits.astype(np.uint8, copy=False)).view(MACHINE_WORDS[count])[..., 0]


def low_bits(x: Data, bits: int) -> Data:
    """Return x mod 2^bits: the low bits of each element as an unsigned word."""
    if _is_symbolic(x) or bits not in UNSIGNED_WORDS:
        return np.asarray(x % (1 << bits))
    return x.astype(UNSIGNED_WORDS[bits])


def widen(x: Data) -> Data:
    """Return elements in which sums and differences of codes do not wrap: integers of 64 bits; a proof's as they are."""
    return x if _is_symbolic(x) else x.astype(np.int64)


def row_sums(x: Data) -> Data:
    """Return the sum of each row of integers [… n]; rows of a proof's terms are summed at once."""
    if not _is_symbolic(x):
        return np.asarray(x.sum(axis=-1))
    sums = np.empty(x.shape[:-1], object)
    for place in np.ndindex(*sums.shape):
        table = next((t.terms for t in x[place] if isinstance(t, Term)), None)
        sums[place] = sum(x[place]) if table is None else table.total(x[place])
    return sums


def initial_sums(w: Data, b: Data | None, offset: int) -> Data | None:
    """Return the numbers at which sums of products start where each code of the other operand lacks an offset: weights [n, …] → [n].

    They are the biases, if there are any, and offset · Σ w; None where both are left out.
    """
    if not offset:
        return b
    missing = offset * row_sums(widen(w.reshape(len(w), -1)))
    return missing if b is None else np.asarray(widen(b) + missing)


# -- layouts


def tile_count(size: int, extent: int) -> int:
    """Return how many tiles of an extent hold a size."""
    return -(-size // extent)


def bordered_codes(x: Data, pads: Sequence[int], code: int = 0) -> Data:
    """Return images [… i, j] with a code around them: above, left, below, right."""
    margins = [(0, 0)] * (x.ndim - 2) + [(pads[0], pads[2]), (pads[1], pads[3])]
    return np.pad(x, margins, constant_values=code)


def window_taps(x: Data, kernel: Sequence[int], strides: Sequence[int]) -> Data:
    """Return the elements of windows of images [… b, c, i, j] tap by tap, the first of every window first: [… tap, b, c, u, v]."""
    counts = [(size - n) // step + 1 for size, n, step in zip(x.shape[-2:], kernel, strides, strict=True)]
    taps = []
    for place in np.ndindex(*kernel):
        rows, cols = (slice(at, at + (n - 1) * step + 1, step) for at, n, step in zip(place, counts, strides, strict=True))
        taps.append(x[..., rows, cols])
    return np.stack(taps, axis=-5)


def _contiguous(x: Data) -> Data:
    """Return an array as it lies in memory row by row, copied where it does not."""
    if x.flags.c_contiguous:
        return x
    rows = np.empty(x.shape, x.dtype)
    copy_layout(rows, x)
    return rows


def pad_axis(x: Data, axis: int, size: int) -> Data:
    """Return an array with zeros appended along an axis, up to a size; one that is as long as that already, as it is."""
    axis %= x.ndim
    if x.shape[axis] >= size:
        return x
    longer = np.zeros((*x.shape[:axis], size, *x.shape[axis + 1 :]), x.dtype)
    longer[(*[slice(None)] * axis, slice(x.shape[axis]))] = x
    return longer


def tile(x: Data, tiles: Mapping[int, int], margins: Mapping[int, tuple[int, int]] | None = None) -> Data:
    """Return an array with axes cut into tiles: [… number of tiles …, elements of a tile …], row by row in memory.

    `tiles` says how many elements a tile has along each axis that is cut; the axes of a tile come last, in its order, and
    zeros fill the last tile up. `margins` says of other axes how many zeros go before and after their elements.
    """
    sizes = {axis % x.ndim: size for axis, size in tiles.items()}
    zeros = {axis % x.ndim: counts for axis, counts in (margins or {}).items()}
    extents = [-(-n // sizes[a]) if a in sizes else n + sum(zeros.get(a, ())) for a, n in enumerate(x.shape)]
    is_full = not any(map(any, zeros.values())) and not any(x.shape[a] % size for a, size in sizes.items())
    blocks = (np.empty if is_full else np.zeros)((*extents, *sizes.values()), x.dtype)
    interior = blocks[tuple(slice(zeros[a][0], zeros[a][0] + n) if a in zeros else slice(None) for a, n in enumerate(x.shape))]
    for parts in itertools.product(*(_parts(x.shape[a], size) for a, size in sizes.items())):
        copy_layout(*_regions(interior, x, dict(zip(sizes, parts, strict=True))))
    return blocks


def untile(blocks: Data, axes: Sequence[int]) -> Data:
    """Return the array that `tile` cut along `axes`, with the zeros that fill its tiles up; the inverse of `tile`.

    The axes of a tile are the last ones of `blocks`, in the order of `axes`, which count from the end of the result.
    """
    rank = blocks.ndim - len(axes)
    tiled_axes = [axis % rank for axis in axes]
    interleaved = np.moveaxis(blocks, range(rank, blocks.ndim), [a + 1 + sum(b < a for b in tiled_axes) for a in tiled_axes])
    lengths = dict(zip(tiled_axes, blocks.shape[rank:], strict=True))
    return _contiguous(interleaved).reshape([n * lengths.get(a, 1) for a, n in enumerate(blocks.shape[:rank])])


@dataclass(frozen=True)
class _Part:
    """Elements of an axis that is cut into tiles, and the tiles they lie in, which are filled to one length."""

    first: int
    first_tile: int
    count: int
    length: int

    @property
    def elements(self) -> slice:
        """The elements of the axis."""
        return slice(self.first, self.first + self.count * self.length)

    @property
    def tiles(self) -> slice:
        """The tiles that they lie in."""
        return slice(self.first_tile, self.first_tile + self.count)


def _parts(extent: int, size: int) -> list[_Part]:
    """Return the full tiles of an axis, and the last one where it is not full."""
    full, remainder = divmod(extent, size)
    parts = (_Part(0, 0, full, size), _Part(full * size, full, 1, remainder))
    return [part for part in parts if part.count and part.length]


def _regions(blocks: Data, x: Data, parts: Mapping[int, _Part]) -> tuple[Data, Data]:
    """Return views of the tiles that hold a part of each cut axis, and of the elements that go there in the same order."""
    axes, full_slice = range(x.ndim), slice(None)
    tiles = (parts[a].tiles if a in parts else full_slice for a in axes)
    region = blocks[(*tiles, *(slice(part.length) for part in parts.values()))]
    elements = x[tuple(parts[a].elements if a in parts else full_slice for a in axes)]
    source = elements.reshape([n for a in axes for n in ((parts[a].count, parts[a].length) if a in parts else (x.shape[a],))])
    return region, np.moveaxis(source, [a + 1 + sum(b < a for b in parts) for a in parts], range(-len(parts), 0))
