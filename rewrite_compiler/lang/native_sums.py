"""Machine code of sums of products whose words are made floats of a result: what follows a sum is done in registers.

A's rows are read through offsets, B is packed in pairs of tiles, and floats go where a row's and a tile's offset say.
How large they are, and how many lie at the end of the range, is seen on the way.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import numpy as np
from llvmlite import ir

from .named import Data
from .native_jit import function_of
from .native_loop import WORD, word
from .native_tiles import FLOAT, FLOATS, INT16, INT32, LANES, PAIRS, ROWS, TILES, VECTOR, Tiled
from .rounding import SIGN
from .sums import Factors, Sums
from .tape import Call


class Summed:
    """A call of the code on its factors."""

    def __init__(self, sums: Sums, factors: Factors) -> None:
        """Pack the factors."""
        self.run = _function(sums)
        f = factors
        tiles = -(-len(f.columns) // (TILES * LANES)) * TILES
        padded = [_padded(x, tiles * LANES, 0) for x in (f.columns, *f.numbers)]
        words = np.ascontiguousarray(padded[0], np.int16).view(np.int32).reshape(tiles // TILES, TILES, LANES, -1)
        places = _padded(f.column_places, tiles * LANES, -1).reshape(tiles, LANES)
        groups = -(-len(f.rows) // ROWS)
        self.kept: tuple[Data, ...] = (
            _padded(f.rows.astype(np.int64), groups * ROWS, 0),
            f.steps.astype(np.int64),
            np.ascontiguousarray(words.transpose(0, 3, 1, 2)),
            np.array([x.astype(np.int32) for x in padded[1:]], np.int32),
            _padded(f.row_places.astype(np.int64), groups * ROWS, -1),
            (places - np.arange(LANES)).max(axis=1, initial=0, where=places >= 0).astype(np.int64),
            (places >= 0) @ (1 << np.arange(LANES)).astype(np.int64),
            np.array([groups, tiles // TILES, len(f.steps), tiles * LANES], np.int64),
        )

    def bind(self, a: int, out: int, seen: Data) -> Call:
        """Return the call for an array A, a result, and three numbers that say what was seen."""
        return partial(self.run, a, out, *(x.ctypes.data for x in self.kept), seen.ctypes.data)


def _padded(x: Data, size: int, value: int) -> Data:
    return np.concatenate([x, np.full((size - len(x), *x.shape[1:]), value, x.dtype)])


@lru_cache(maxsize=256)
def _function(sums: Sums) -> Any:
    return function_of(str(_Printed(sums).module), 3, 11)[1]


class _Printed(Tiled):
    """Prints the code. Arguments: A, the result, then what `Summed.kept` has, then what was seen."""

    def __init__(self, sums: Sums) -> None:
        kinds = [INT16, FLOAT, WORD, WORD, INT32, INT32, WORD, WORD, WORD, WORD, FLOAT]
        super().__init__("sums", kinds, sums.pairs, 2, PAIRS)
        b, self.made = self.b, sums
        self.a, self.out, self.rows, self.steps, self.packed, self.numbers, self.row_places, self.places, self.masks, given, seen = (
            self.arguments
        )
        groups, pairs, self.count, self.width = (b.load(b.gep(given, [word(n)])) for n in range(4))
        places = [b.bitcast(b.gep(seen, [word(n * LANES)]), k.as_pointer()) for n, k in enumerate((FLOATS, FLOATS, VECTOR))]
        ends = self.blocks(groups, pairs, [b.load(p, align=4) for p in places])
        for p, x in zip(places, ends, strict=True):
            b.store(x, p, align=4)
        b.ret_void()

    def block(self, group: ir.Value, pair: ir.Value, seen: list[ir.Value]) -> list[ir.Value]:
        """Compute the sums of some rows and two tiles, and what becomes of them."""
        b, rows = self.b, self.rows_of(group)
        found = self.sums(rows, pair, [self.words.const(0, 32)] * (ROWS * TILES))
        places = [self.word(self.row_places, row) for row in rows]
        for t, tile in enumerate(self.tiles_of(pair)):
            numbers = [
                self.vector(b.gep(self.numbers, [b.add(b.mul(self.width, word(n)), b.mul(tile, word(LANES)))]))
                for n in range(self.made.columns)
            ]
            mask, at = self.word(self.masks, tile), self.word(self.places, tile)
            for r, place in enumerate(places):
                chosen = self._chosen(mask, place)
                value = self._rounded(self._code(found[TILES * r + t], numbers))
                self.store(value, b.gep(self.out, [b.add(place, at)]), chosen)
                seen = self._looked_at(value, chosen, seen)
        return seen

    def _chosen(self, mask: ir.Value, place: ir.Value) -> ir.Value:
        """Return which lanes of a row are read by anybody."""
        return self.lanes(self.b.select(self.b.icmp_signed("<", place, word(0)), word(0), mask))

    def _code(self, total: ir.Value, numbers: list[ir.Value]) -> ir.Value:
        given = {
            n: total if op.name == "acc" else numbers[op.data]
            for n, op in enumerate(self.made.code)
            if op.name in ("acc", "array")
        }  # fmt: skip
        return self.words.fit(self.words.run(self.made.code, given)[-1], 32)

    def _rounded(self, x: ir.Value) -> ir.Value:
        """Return words as rounded floats."""
        b, r = self.b, self.made.rounding

        def const(n: int) -> ir.Constant:
            return self.words.const(n, 32)

        bits = b.bitcast(b.sitofp(x, FLOATS), VECTOR)
        added = b.and_(b.ashr(bits, const(31)), const(r.negative - r.positive))
        size = b.and_(b.add(b.add(b.and_(bits, const(SIGN - 1)), const(r.positive)), added), const(r.kept))
        short = b.select(b.icmp_signed("<", size, const(r.most)), size, const(r.most))
        value = b.fmul(b.bitcast(b.or_(short, b.and_(bits, const(-SIGN))), FLOATS), ir.Constant(FLOATS, [r.scale] * LANES))
        return b.select(b.icmp_signed(">=", size, const(r.least)), value, ir.Constant(FLOATS, [0.0] * LANES))

    def _looked_at(self, value: ir.Value, chosen: ir.Value, seen: list[ir.Value]) -> list[ir.Value]:
        b, (low, high, ends) = self.b, seen
        largest = ir.Constant(FLOATS, [self.made.largest] * LANES)
        size = b.bitcast(b.and_(b.bitcast(value, VECTOR), self.words.const(SIGN - 1, 32)), FLOATS)
        at_end = b.and_(b.fcmp_ordered(">=", size, largest), chosen)
        return [
            b.select(b.and_(b.fcmp_ordered("<", value, low), chosen), value, low),
            b.select(b.and_(b.fcmp_ordered(">", value, high), chosen), value, high),
            b.select(at_end, b.add(ends, self.words.const(1, 32)), ends),
        ]
