"""Machine code of sums of products that begin at a number of their column, modulo 2^32, as floats times a power of two.

A's rows are read through offsets where they lie, as pairs of 16 bits or as four bytes without a sign by four with one, which
the processor multiplies and adds at once. The least and the largest word are seen on the way.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from llvmlite import ir

from .named import Data
from .native_jit import function_of
from .native_loop import WORD, word
from .native_matrix import packed
from .native_tiles import BYTE, FLOAT, FLOATS, INT32, LANES, PAIRS, ROWS, TILES, VECTOR, Tiled

NOTHING = np.repeat(np.array([2**31 - 1, -(2**31)], np.int32), LANES)  # seen before any sum
FOURS = "llvm.x86.avx512.vpdpbusd.512"


@dataclass(frozen=True)
class Affine:
    """Everything that the code depends on: whether factors are bytes, words of a step, and what results are multiplied by."""

    are_bytes: bool
    words: int
    scale: float


@dataclass(frozen=True, eq=False)
class Factors:
    """What does not depend on samples: offsets of rows and steps in A, in bytes, B [columns, elements], the columns' starts.

    A row's results lie side by side from its place on. The elements of A have `offset` added, which the sums are without.
    """

    rows: Data
    steps: Data
    columns: Data
    starts: Data
    places: Data
    offset: int = 0


class Sums:
    """A call of the code on its factors."""

    def __init__(self, affine: Affine, factors: Factors) -> None:
        """Pack the factors; rows and columns that are left of the last block are the first ones once more."""
        self.affine, f = affine, factors
        starts = f.starts.astype(np.int64) - f.offset * f.columns.sum(axis=1, dtype=np.int64)
        elements = (f.steps[:, None] + np.arange(0, 4 * affine.words, 4)).reshape(-1)
        by_unit = packed(f.rows, elements, f.columns, starts, f.places, affine.scale) if affine.are_bytes else None
        self.run, self.kept = (by_unit.run, by_unit.kept) if by_unit is not None else (_function(affine), self._packed(f, starts))
        self.addresses = tuple(x.ctypes.data for x in self.kept)

    def _packed(self, f: Factors, starts: Data) -> tuple[Data, ...]:
        count = len(f.columns)
        tiles = -(-count // (TILES * LANES)) * TILES
        columns = np.resize(np.arange(count), tiles * LANES) if count < tiles * LANES else np.arange(count)
        columns[count:] = 0
        rows = np.arange(-(-len(f.rows) // ROWS) * ROWS)
        rows[len(f.rows) :] = 0
        narrow = np.ascontiguousarray(f.columns[columns], np.int8 if self.affine.are_bytes else np.int16)
        words = narrow.view(np.int32).reshape(tiles // TILES, TILES, LANES, -1)
        left = np.clip(count - LANES * np.arange(tiles), 0, LANES)
        return (
            f.rows.astype(np.int64)[rows],
            f.steps.astype(np.int64),
            np.ascontiguousarray(words.transpose(0, 3, 1, 2)),
            starts[columns].astype(np.uint32).view(np.int32),
            f.places.astype(np.int64)[rows],
            (1 << left.astype(np.int64)) - 1,
            np.array([len(rows) // ROWS, tiles // TILES, len(f.steps)], np.int64),
        )

    def __call__(self, a: int, out: int) -> tuple[float, float]:
        """Compute a result from what lies at an address; return the least and the largest element."""
        seen = NOTHING.copy()
        self.run(a, out, *self.addresses, seen.ctypes.data)
        scale = np.float32(self.affine.scale)
        return float(np.float32(seen[:LANES].min()) * scale), float(np.float32(seen[LANES:].max()) * scale)


@lru_cache(maxsize=256)
def _function(affine: Affine) -> Any:
    return function_of(str(_Printed(affine).module), 3, 10)[1]


class _Printed(Tiled):
    """Prints the code. Arguments: A, the result, then what `Sums.kept` has, then what was seen."""

    def __init__(self, affine: Affine) -> None:
        kinds = [BYTE, FLOAT, WORD, WORD, INT32, INT32, WORD, WORD, WORD, INT32]
        super().__init__("affine", kinds, affine.words, 4, FOURS if affine.are_bytes else PAIRS)
        b, self.affine = self.b, affine
        self.a, self.out, self.rows, self.steps, self.packed, self.starts, self.places, self.masks, given, seen = self.arguments
        groups, pairs, self.count = (b.load(b.gep(given, [word(n)])) for n in range(3))
        ends = self.blocks(groups, pairs, [self.vector(b.gep(seen, [word(n * LANES)])) for n in range(2)])
        for n, x in enumerate(ends):
            b.store(x, b.bitcast(b.gep(seen, [word(n * LANES)]), VECTOR.as_pointer()), align=4)
        b.ret_void()

    def block(self, group: ir.Value, pair: ir.Value, seen: list[ir.Value]) -> list[ir.Value]:
        """Compute the sums of some rows and two tiles."""
        b, rows, tiles = self.b, self.rows_of(group), self.tiles_of(pair)
        found = self.sums(rows, pair, [self.vector(b.gep(self.starts, [b.mul(t, word(LANES))])) for t in tiles] * ROWS)
        places = [self.word(self.places, row) for row in rows]
        scale = ir.Constant(FLOATS, [self.affine.scale] * LANES)
        for t, tile in enumerate(tiles):
            lanes = self.lanes(self.word(self.masks, tile))
            for r, place in enumerate(places):
                value = b.fmul(b.sitofp(found[TILES * r + t], FLOATS), scale)
                self.store(value, b.gep(self.out, [b.add(place, b.mul(tile, word(LANES)))]), lanes)
        return [self._ends(found, sign, x) for sign, x in zip("<>", seen, strict=True)]

    def _ends(self, found: list[ir.Value], sign: str, seen: ir.Value) -> ir.Value:
        for x in found:
            seen = self.b.select(self.b.icmp_signed(sign, x, seen), x, seen)
        return seen
