"""Machine code of plain sums of products by the processor's matrix unit, which multiplies bytes: modulo 2^32, of 16-bit factors.

A factor is 256 times its high byte, with a sign, and its low byte, without one: four products of bytes, put together in words
that wrap. A's rows are taken apart where they fit the cache, B's columns tile by tile: both as they are for other code.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from llvmlite import ir

from .named import Data
from .native_grid import element_type
from .native_jit import function_of, host
from .native_loop import WORD, emitted_loop, word
from .native_ops import declared, resized

FORM = "amx-int8"
NEEDED = {FORM, "amx-tile", "avx512vnni", "avx512vbmi", "avx512bw"}
ARCH_PRCTL, REQUEST, TILE_DATA = 158, 0x1023, 18  # x86-64 Linux: a process asks once for the tiles' registers
LINE, SIDE = 64, 16  # bytes of a row of a tile; its rows, and words of a row
HALF = LINE * SIDE  # a tile of high bytes, then one of low bytes
BOTH = 2 * HALF
ROOM = 1 << 18  # bytes of A that are taken apart together: half of what the nearer caches hold
MOST_GROUPS = 16
# measured: in sums that are smaller, what it takes to take factors apart is more than what faster products give
LEAST_ROWS, LEAST_TILES, LEAST_ELEMENTS, LEAST_WIDTH = 32, 4, 256, 8
MOST_ELEMENTS = 1 << 12  # of a row: 16 columns have 128 KiB
BYTE, INT16, INT32 = ir.IntType(8), ir.IntType(16), ir.IntType(32)
BYTES, WORDS = ir.VectorType(BYTE, LINE), ir.VectorType(INT32, SIDE)
AHEAD = 8  # lines of the next columns that are asked for while a block is multiplied
# register of the sums, those of A's and B's parts, instruction: s has a sign, u has none
PRODUCTS = ((0, 4, 6, "ss"), (1, 4, 7, "su"), (2, 5, 6, "us"), (3, 5, 7, "uu"))


@lru_cache(maxsize=1)
def is_there() -> bool:
    """Tell whether this processor has the unit, and the system lets this process use it."""
    if not sys.platform.startswith("linux") or not host()[1] >= NEEDED:
        return False
    return int(ctypes.CDLL(None).syscall(ARCH_PRCTL, REQUEST, TILE_DATA)) == 0


@dataclass(frozen=True)
class Tiling:
    """Everything that the code depends on: the result's type, elements of A side by side, those left at its end, a start.

    B is `split` where its tiles are already taken apart.
    """

    kind: str
    width: int
    rest: int
    has_start: bool
    split: bool = False


@lru_cache(maxsize=256)
def tiled_function(tiling: Tiling) -> Any:
    """Return the function of (arrays A, row offsets, step offsets: each an array of pointers), B, start, out, numbers."""
    return function_of(str(_Tiled(tiling).module), 3, 7)[1]


class UnitCode:
    """What prints code of the unit: its instructions, and the shapes of its registers."""

    b: ir.IRBuilder
    module: ir.Module

    def room(self, size: ir.Value) -> ir.Value:
        """Return so many bytes, from the start of a line on."""
        found = self.b.alloca(BYTE, size)
        found.align = LINE
        return found

    def called(self, name: str, operands: list[ir.Value]) -> None:
        """Print an instruction."""
        kind = ir.FunctionType(ir.VoidType(), [x.type for x in operands])
        self.b.call(declared(self.module, f"llvm.x86.{name}", kind), operands)

    def configured(self, widths: Sequence[int], heights: Sequence[int]) -> None:
        """Set the shapes of the eight registers: bytes of a row, and rows."""
        data = [1, *[0] * 15, *(x for n in widths for x in (n, 0)), *[0] * 16, *heights, *[0] * 8]
        kept = ir.GlobalVariable(self.module, ir.ArrayType(BYTE, LINE), "shape")
        kept.linkage, kept.global_constant, kept.align = "internal", True, LINE
        kept.initializer = ir.Constant(kept.type.pointee, data)
        self.called("ldtilecfg", [self.b.bitcast(kept, BYTE.as_pointer())])


def register_of(n: int) -> ir.Constant:
    """Return the number of a register as an operand."""
    return ir.Constant(BYTE, n)


class _Tiled(UnitCode):
    """Prints the code. Numbers: rows, tiles of columns, steps, columns of a row, how far rows of start values are apart, words of B."""

    def __init__(self, tiling: Tiling) -> None:
        self.t, self.module = tiling, ir.Module("tiles")
        pointers, plain = BYTE.as_pointer().as_pointer(), INT32.as_pointer()
        arguments = [pointers, pointers, pointers, plain, plain, element_type(tiling.kind).as_pointer(), WORD.as_pointer()]
        function = ir.Function(self.module, ir.FunctionType(ir.VoidType(), arguments), "run")
        self.b = b = ir.IRBuilder(function.append_basic_block("entry"))
        self.columns, self.start, self.out, numbers = function.args[3:]
        self.rows, self.tiles, self.steps, self.width, self.apart, self.words = (b.load(b.gep(numbers, [word(n)])) for n in range(6))
        kinds = (INT16, INT32, INT32)
        self.a, self.row_offsets, self.step_offsets = (
            b.bitcast(b.load(a), k.as_pointer()) for a, k in zip(function.args[:3], kinds, strict=True)
        )
        self.blocks = b.udiv(b.add(self.words, word(2 * SIDE - 1)), word(2 * SIDE))
        self.group = b.mul(self.blocks, word(BOTH))
        fitting = b.udiv(word(ROOM), self.group)
        groups = b.select(b.icmp_signed("<", fitting, word(MOST_GROUPS)), fitting, word(MOST_GROUPS))
        self.left, self.sums = (self.room(n) for n in (b.mul(groups, self.group), word(4 * HALF)))
        self.right = b.bitcast(self.columns, BYTE.as_pointer()) if tiling.split else self.room(self.group)
        self.configured([LINE] * 8, [SIDE] * 8)
        self.height = b.mul(groups, word(SIDE))
        panels = b.udiv(b.add(self.rows, b.sub(self.height, word(1))), self.height)
        emitted_loop(b, panels, self._panel)
        self.called("tilerelease", [])
        b.ret_void()

    def _panel(self, n: ir.Value) -> None:
        """Compute as many rows as have room, all columns."""
        b, first = self.b, self.b.mul(n, self.height)
        rest = b.sub(self.rows, first)
        rows = b.select(b.icmp_signed("<", rest, self.height), rest, self.height)
        emitted_loop(b, rows, lambda r: self._row(b.add(first, r), r))
        groups = b.udiv(b.add(rows, word(SIDE - 1)), word(SIDE))

        def column(tile: ir.Value) -> None:
            if not self.t.split:
                self._column(tile)
            emitted_loop(b, groups, lambda g: self._tile(first, rows, g, tile))

        emitted_loop(b, self.tiles, column)

    # -- factors taken apart

    def _row(self, row: ir.Value, place: ir.Value) -> None:
        """Take a row of A apart: bytes 64 k … 64 k + 63 go to block k of its group."""
        b = self.b
        base = b.gep(self.a, [b.sext(b.load(b.gep(self.row_offsets, [row])), WORD)])
        group, line = b.udiv(place, word(SIDE)), b.urem(place, word(SIDE))
        to = b.gep(self.left, [b.add(b.mul(group, self.group), b.mul(line, word(LINE)))])

        def step(k: ir.Value) -> None:
            self._halves(base, to, k, self.t.width)

        emitted_loop(b, self.steps, step)
        if self.t.rest:
            self._halves(base, to, self.steps, self.t.rest)

    def _halves(self, base: ir.Value, to: ir.Value, step: ir.Value, count: int) -> None:
        """Take some elements of A apart that lie side by side."""
        b, pairs = self.b, ir.VectorType(BYTE, 2 * count)
        offset = b.sext(b.load(b.gep(self.step_offsets, [step])), WORD)
        read = b.load(b.bitcast(b.gep(base, [offset]), pairs.as_pointer()), align=2)
        at = b.mul(step, word(self.t.width))
        place = b.gep(to, [b.add(b.mul(b.udiv(at, word(LINE)), word(BOTH)), b.urem(at, word(LINE)))])
        for part, distance in ((1, 0), (0, HALF)):
            half = self._shuffled(read, read, [2 * n + part for n in range(count)])
            b.store(half, b.bitcast(b.gep(place, [word(distance)]), half.type.as_pointer()), align=1)

    def _column(self, tile: ir.Value) -> None:
        """Take a tile of B's columns apart, two of its words at a time: four elements of each column; what is left is 0."""
        b = self.b
        words = b.gep(self.columns, [b.mul(tile, b.mul(self.words, word(SIDE)))])
        whole, zero = b.udiv(self.words, word(2)), ir.Constant(BYTES, [0] * LINE)

        def line(n: ir.Value) -> None:
            self._split(n, *(self._bytes(words, b.add(b.mul(n, word(2)), word(k))) for k in range(2)))

        emitted_loop(b, whole, line)
        is_odd = b.urem(self.words, word(2))
        emitted_loop(b, is_odd, lambda _: self._split(whole, self._bytes(words, b.mul(whole, word(2))), zero))
        used = b.add(whole, is_odd)
        left = b.sub(b.mul(self.blocks, word(SIDE)), used)
        emitted_loop(b, left, lambda n: self._split(b.add(used, n), zero, zero))

    def _bytes(self, words: ir.Value, n: ir.Value) -> ir.Value:
        place = self.b.gep(words, [self.b.mul(n, word(SIDE))])
        return self.b.load(self.b.bitcast(place, BYTES.as_pointer()), align=4)

    def _split(self, line: ir.Value, first: ir.Value, second: ir.Value) -> None:
        b = self.b
        at = b.add(b.mul(b.udiv(line, word(SIDE)), word(BOTH)), b.mul(b.urem(line, word(SIDE)), word(LINE)))
        place = b.gep(self.right, [at])
        for part, distance in ((1, 0), (0, HALF)):
            order = [4 * word_of + part + k for word_of in range(SIDE) for k in (0, 2, LINE, LINE + 2)]
            half = self._shuffled(first, second, order)
            b.store(half, b.bitcast(b.gep(place, [word(distance)]), BYTES.as_pointer()), align=LINE)

    def _shuffled(self, x: ir.Value, y: ir.Value, order: list[int]) -> ir.Value:
        return self.b.shuffle_vector(x, y, ir.Constant(ir.VectorType(INT32, len(order)), order))

    # -- products

    def _tile(self, first: ir.Value, rows: ir.Value, group: ir.Value, tile: ir.Value) -> None:
        """Compute 16 rows by 16 columns."""
        b = self.b
        left = b.gep(self.left, [b.mul(group, self.group)])
        right = b.gep(self.right, [b.mul(tile, self.group)]) if self.t.split else self.right
        for register, *_ in PRODUCTS:
            self.called("tilezero", [register_of(register)])

        def block(k: ir.Value) -> None:
            at = b.mul(k, word(BOTH))
            for register, base, distance in ((4, left, 0), (6, right, 0), (5, left, HALF), (7, right, HALF)):
                self.called("tileloadd64", [register_of(register), b.gep(base, [b.add(at, word(distance))]), word(LINE)])
            for total, x, y, signs in PRODUCTS:
                self.called(f"tdpb{signs}d", [register_of(total), register_of(x), register_of(y)])
            self._asked_for(b.add(b.mul(group, self.blocks), k), tile)

        emitted_loop(b, self.blocks, block)
        for register, *_ in PRODUCTS:
            self.called("tilestored64", [register_of(register), b.gep(self.sums, [word(HALF * register)]), word(LINE)])
        above = b.mul(group, word(SIDE))
        left_over = b.sub(rows, above)
        count = b.select(b.icmp_signed("<", left_over, word(SIDE)), left_over, word(SIDE))
        emitted_loop(b, count, lambda r: self._put_together(b.add(first, b.add(above, r)), r, tile))

    def _asked_for(self, turn: ir.Value, tile: ir.Value) -> None:
        """Ask for a part of the next tile's columns, which the caches farther away have."""
        b = self.b
        size = b.udiv(self.group, word(4)) if self.t.split else b.mul(self.words, word(SIDE))
        words = b.add(b.mul(b.add(tile, word(1)), size), b.mul(turn, word(AHEAD * SIDE)))
        kind = ir.FunctionType(ir.VoidType(), [BYTE.as_pointer(), INT32, INT32, INT32])
        ask = declared(self.module, "llvm.prefetch.p0", kind)
        for line in range(AHEAD):
            place = b.bitcast(b.gep(self.columns, [b.add(words, word(line * SIDE))]), BYTE.as_pointer())
            b.call(ask, [place, *(ir.Constant(INT32, n) for n in (0, 2, 1))])  # to read, soon, data

    def _put_together(self, row: ir.Value, line: ir.Value, tile: ir.Value) -> None:
        """Write a row of a tile: 2^16 high by high, 2^8 the mixed ones, and low by low, modulo 2^32."""
        b, shift = self.b, ir.Constant(WORDS, [8] * SIDE)
        high, mixed, other, low = (self._words(self.sums, b.add(b.mul(line, word(LINE)), word(HALF * n))) for n in range(4))
        total = b.add(b.shl(b.add(b.shl(high, shift), b.add(mixed, other)), shift), low)
        columns = b.mul(tile, word(SIDE))
        if self.t.has_start:
            place = b.gep(self.start, [b.add(b.mul(row, self.apart), columns)])
            total = b.add(total, b.load(b.bitcast(place, WORDS.as_pointer()), align=4))
        narrow = resized(b, total, ir.VectorType(element_type(self.t.kind), SIDE))
        b.store(narrow, b.bitcast(b.gep(self.out, [b.add(b.mul(row, self.width), columns)]), narrow.type.as_pointer()), align=1)

    def _words(self, base: ir.Value, at: ir.Value) -> ir.Value:
        return self.b.load(self.b.bitcast(self.b.gep(base, [at]), WORDS.as_pointer()), align=LINE)


# -- which sums


@dataclass(frozen=True, eq=False)
class Ready:
    """A sum that the unit computes, and the offsets of steps and the numbers that its function takes."""

    tiling: Tiling
    steps: Data
    numbers: Data


def ready(tiling: Tiling, steps: Data, numbers: Data) -> Ready | None:
    """Return what computes a sum of `tiling.width` products a step for a kernel's numbers; None where other code is faster."""
    rows, tiles, count, width, apart = numbers[:5].tolist()
    elements = count * tiling.width
    if rows < LEAST_ROWS or tiles < LEAST_TILES or not LEAST_ELEMENTS <= elements <= MOST_ELEMENTS or not is_there():
        return None
    wide, rest, first = joined(steps[:count].tobytes(), tiling.width)
    if wide < LEAST_WIDTH:
        return None
    given = np.array([rows, tiles, len(first) - bool(rest), width, apart, elements // 2], np.int64)
    return Ready(Tiling(tiling.kind, wide, rest, tiling.has_start), first, given)


def split(columns: Data) -> Data:
    """Return packed columns with their tiles taken apart, as `Tiling.split` has them."""
    tiles, steps, words, lanes = columns.shape
    blocks = -(-steps * words // (2 * SIDE))
    pairs = np.zeros((tiles, blocks * 2 * SIDE, lanes), np.int32)
    pairs[:, : steps * words] = columns.reshape(tiles, -1, lanes)
    halves = pairs.view(np.uint8).reshape(tiles, blocks, SIDE, 2, lanes, 2, 2)  # …, lines, words, columns, elements, low and high
    return np.ascontiguousarray(halves[..., ::-1].transpose(0, 1, 6, 2, 4, 3, 5))


@lru_cache(maxsize=256)
def joined(steps: bytes, width: int) -> tuple[int, int, Data]:
    """Return how many elements of A lie side by side in all runs but the last, in that one if fewer, and where runs begin.

    The offsets of steps are words of 32 bits.
    """
    part = width & -width  # a power of two: so many runs fill a line of 64
    pieces = (np.frombuffer(steps, np.int32)[:, None] + np.arange(0, width, part)).reshape(-1)
    for count in (n // part for n in (64, 32, 16, 8, 4, 2) if n > part):
        first = pieces[::count]
        apart = pieces - np.repeat(first, count)[: len(pieces)]
        if (apart == np.resize(np.arange(count) * part, len(pieces))).all():
            return count * part, len(pieces) % count * part, first.astype(np.int32)
    return part, 0, pieces.astype(np.int32)
