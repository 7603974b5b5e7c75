"""Sums of products of bytes by the processor's matrix unit, each beginning at a number of its column, as floats times a power of two.

Rows of A lie at equal distances and are read where they are; B's columns are packed in tiles: for each line of four bytes of 16
columns. Two tiles of rows are multiplied by one of columns; what is left of a row is a narrower tile, so that nothing is read
beyond it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from llvmlite import ir

from .named import Data
from .native_amx import BYTE, HALF, LINE, SIDE, WORDS, UnitCode, is_there, register_of
from .native_jit import function_of
from .native_loop import WORD, emitted_loop, word
from .native_ops import declared

ROWS = 2 * SIDE  # of a block
TOGETHER = 4  # rows of a tile that are made floats in turn
FLOAT, INT32 = ir.FloatType(), ir.IntType(32)
FLOATS = ir.VectorType(FLOAT, SIDE)
SUMS, LEFT, WHOLE, COLUMNS, COLUMNS_LEFT = (0, 1), (2, 3), (4, 5), 6, 7  # registers


@dataclass(frozen=True)
class Matrix:
    """Everything that the code depends on: bytes of a row behind whole lines, and what results are multiplied by."""

    rest: int
    scale: float


@dataclass(frozen=True, eq=False)
class Packed:
    """A sum that the unit computes, and what its function takes behind A and the result."""

    matrix: Matrix
    kept: tuple[Data, ...]

    @property
    def run(self) -> Any:
        """The function."""
        return matrix_function(self.matrix)


def packed(rows: Data, elements: Data, columns: Data, starts: Data, places: Data, scale: float) -> Packed | None:
    """Return the sum of rows, offsets in bytes, over columns [columns, bytes]; None where rows or bytes lie at odd distances.

    `elements` are the offsets of a row's bytes, of every fourth one; columns whose number is no multiple of 16 repeat the first.
    """
    apart = np.diff(rows)
    count, size = columns.shape
    if not is_there() or len(rows) < ROWS or (apart != apart[0]).any() or apart[0] < size:
        return None
    if len(elements) * 4 != size or (elements != np.arange(0, size, 4)).any():
        return None
    tiles = -(-count // SIDE)
    which = np.zeros(tiles * SIDE, np.intp)
    which[:count] = np.arange(count)
    words = np.ascontiguousarray(columns[which], np.int8).view(np.int32).reshape(tiles, SIDE, -1)
    left = np.clip(count - SIDE * np.arange(tiles), 0, SIDE)
    kept = (
        np.ascontiguousarray(words.transpose(0, 2, 1)),
        starts[which].astype(np.uint32).view(np.int32),
        places.astype(np.int64),
        (1 << left.astype(np.int64)) - 1,
        np.array([len(rows), tiles, size // LINE, apart[0], rows[0]], np.int64),
    )
    return Packed(Matrix(size % LINE, scale), kept)


@lru_cache(maxsize=256)
def matrix_function(matrix: Matrix) -> Any:
    """Return the function of A, the result, columns, starts, places of rows, masks of tiles, numbers, and what was seen."""
    return function_of(str(_Matrix(matrix).module), 3, 8)[1]


class _Matrix(UnitCode):
    """Prints the code. Numbers: rows, tiles of columns, whole lines of a row, the distance of rows, and where the first one is."""

    def __init__(self, matrix: Matrix) -> None:
        self.m, self.module = matrix, ir.Module("matrix")
        kinds = [BYTE, FLOAT, BYTE, INT32, WORD, WORD, WORD, INT32]
        function = ir.Function(self.module, ir.FunctionType(ir.VoidType(), [k.as_pointer() for k in kinds]), "run")
        self.b = b = ir.IRBuilder(function.append_basic_block("entry"))
        self.a, self.out, self.columns, self.starts, self.places, self.masks, numbers, seen = function.args
        self.rows, self.tiles, self.lines, self.apart, first = (b.load(b.gep(numbers, [word(n)])) for n in range(5))
        self.a = b.gep(self.a, [first])
        self.size = b.add(b.mul(self.lines, word(HALF)), word(matrix.rest * SIDE))  # of a tile of columns
        self.sums = self.room(word(2 * HALF))
        left = matrix.rest or LINE
        self.configured([LINE, LINE, left, left, *[LINE] * 4], [*[SIDE] * 7, left // 4])
        ends = [b.bitcast(b.gep(seen, [word(n * SIDE)]), WORDS.as_pointer()) for n in range(2)]
        blocks = b.udiv(b.add(self.rows, word(ROWS - 1)), word(ROWS))
        found = emitted_loop(b, blocks, self._block, [b.load(end, align=4) for end in ends])
        for x, end in zip(found, ends, strict=True):
            b.store(x, end, align=4)
        self.called("tilerelease", [])
        b.ret_void()

    def _block(self, n: ir.Value, seen: list[ir.Value]) -> list[ir.Value]:
        """Print 32 rows, all columns; the last block begins early enough to be whole."""
        b, last = self.b, self.b.sub(self.rows, word(ROWS))
        first = b.mul(n, word(ROWS))
        first = b.select(b.icmp_signed("<", first, last), first, last)
        base = b.gep(self.a, [b.mul(first, self.apart)])
        return emitted_loop(b, self.tiles, lambda tile, seen: self._tile(first, base, tile, seen), seen)

    def _tile(self, first: ir.Value, base: ir.Value, tile: ir.Value, seen: list[ir.Value]) -> list[ir.Value]:
        b = self.b
        columns, below = b.gep(self.columns, [b.mul(tile, self.size)]), b.gep(base, [b.mul(self.apart, word(SIDE))])
        for register in SUMS:
            self.called("tilezero", [register_of(register)])

        def line(k: ir.Value) -> None:
            at, start = b.mul(k, word(LINE)), b.gep(columns, [b.mul(k, word(HALF))])
            self._multiplied([b.gep(x, [at]) for x in (base, below)], WHOLE, start, COLUMNS)

        emitted_loop(b, self.lines, line)
        if self.m.rest:
            at, start = b.mul(self.lines, word(LINE)), b.gep(columns, [b.mul(self.lines, word(HALF))])
            self._multiplied([b.gep(x, [at]) for x in (base, below)], LEFT, start, COLUMNS_LEFT)
        for n, register in enumerate(SUMS):
            self.called("tilestored64", [register_of(register), b.gep(self.sums, [word(n * HALF)]), word(LINE)])
        return self._floats(first, tile, seen)

    def _multiplied(self, rows: list[ir.Value], registers: tuple[int, int], columns: ir.Value, register: int) -> None:
        """Add the products of bytes without a sign by bytes with one."""
        self.called("tileloadd64", [register_of(register), columns, word(LINE)])
        for n, x in zip(registers, rows, strict=True):
            self.called("tileloadd64", [register_of(n), x, self.apart])
        for total, n in zip(SUMS, registers, strict=True):
            self.called("tdpbusd", [register_of(total), register_of(n), register_of(register)])

    def _floats(self, first: ir.Value, tile: ir.Value, seen: list[ir.Value]) -> list[ir.Value]:
        """Write the floats of a block, and see the least and the largest word of each column."""
        b, column = self.b, self.b.mul(tile, word(SIDE))
        start = b.load(b.bitcast(b.gep(self.starts, [column]), WORDS.as_pointer()), align=4)
        mask = b.trunc(b.load(b.gep(self.masks, [tile])), ir.IntType(SIDE))
        lanes = b.bitcast(mask, ir.VectorType(ir.IntType(1), SIDE))
        scale = ir.Constant(FLOATS, [self.m.scale] * SIDE)
        kind = ir.FunctionType(ir.VoidType(), [FLOATS, FLOATS.as_pointer(), INT32, lanes.type])
        written = declared(self.module, f"llvm.masked.store.v{SIDE}f32.p0", kind)

        def some(n: ir.Value, seen: list[ir.Value]) -> list[ir.Value]:
            for row in (b.add(b.mul(n, word(TOGETHER)), word(k)) for k in range(TOGETHER)):
                place = b.bitcast(b.gep(self.sums, [b.mul(row, word(LINE))]), WORDS.as_pointer())
                total = b.add(b.load(place, align=LINE), start)
                to = b.add(b.load(b.gep(self.places, [b.add(first, row)])), column)
                floats = b.fmul(b.sitofp(total, FLOATS), scale)
                b.call(written, [floats, b.bitcast(b.gep(self.out, [to]), FLOATS.as_pointer()), ir.Constant(INT32, 4), lanes])
                seen = [b.select(b.icmp_signed(sign, total, x), total, x) for sign, x in zip("<>", seen, strict=True)]
            return seen

        return emitted_loop(b, word(ROWS // TOGETHER), some, seen)
