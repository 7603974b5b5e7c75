"""Machine code of a float32 convolution of every channel by itself, between clamps, on arrays whose channels lie side by side.

Products are added to 0 from the window's first element on, each by one operation that rounds once; then comes the bias. A
vector holds channels, so that no sum is taken in another order; what lies outside of the array is 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from llvmlite import ir

from ...arrays.buffer_pool import recycled
from ...arrays.labelled_array import Data
from ...straightline.ordered_floats import NOTHING, floats_of
from ..jit import function_of
from ..loops import WORD, emitted_loop, word
from ..operators import declared, see

FLOAT, INT32 = ir.FloatType(), ir.IntType(32)
LANES = (16, 8, 4)
TOGETHER = 4  # neighbours of a row whose sums are taken in turn: one operation does not wait for the one before
Bounds = tuple[float, float]


@dataclass(frozen=True)
class Window:
    """Everything that the code depends on: the window, its steps, zeros before and after rows and columns, clamps."""

    kernel: tuple[int, int]
    strides: tuple[int, int]
    pads: tuple[int, int, int, int]  # before rows, before columns, after rows, after columns
    before: Bounds | None
    after: Bounds | None
    has_bias: bool
    lanes: int

    def padded(self, rows: int, columns: int) -> tuple[int, int]:
        """Return the extents with zeros around."""
        top, left, bottom, right = self.pads
        return rows + top + bottom, columns + left + right


def lanes_of(channels: int) -> int | None:
    """Return how many channels a vector holds; None where none do."""
    return next((n for n in LANES if channels % n == 0), None)


@dataclass(frozen=True, eq=False)
class Convolution:
    """A window with its weights [channels, 1, rows, columns] and its bias, if any, as code reads them."""

    window: Window
    weights: Data
    bias: Data

    def __call__(self, x: Data, y: Data) -> tuple[float, float]:
        """Set y[n, c, …] to the windows of x[n, c, …], the channels of both side by side; return the least and the largest float."""
        w, (n, channels, *extents) = self.window, x.shape
        room = recycled((*w.padded(*extents), channels), np.float32)
        room.fill(0)
        step = [s // x.itemsize for a in (x, y) for s in (a.strides[0], *a.strides[2:])]
        numbers = np.array([n, channels // w.lanes, *extents, *y.shape[2:], *step], np.int64)
        seen = np.repeat(NOTHING, w.lanes)
        window_function(w)(*(a.ctypes.data for a in (x, y, self.weights, self.bias, room, numbers, seen)))
        return floats_of(np.array([seen[: w.lanes].min(), seen[w.lanes :].max()]))


def convolution(w: Window, weights: Data, bias: Data) -> Convolution:
    """Return a window with its weights packed: all of a vector's channels for one element of the window side by side."""
    size = w.kernel[0] * w.kernel[1]
    packed = np.ascontiguousarray(weights.reshape(-1, w.lanes, size).transpose(0, 2, 1), np.float32)
    return Convolution(w, packed, np.ascontiguousarray(bias, np.float32))


@lru_cache(maxsize=256)
def window_function(w: Window) -> Callable[..., None]:
    """Return the function of (x, y, weights, bias, room, numbers, seen)."""
    found: Callable[..., None] = function_of(str(_Window(w).module), 3, 7)[1]
    return found


class _Window:
    """Prints one kernel. Numbers: samples, vectors of channels, extents of x and of y, then x's and y's strides."""

    def __init__(self, w: Window) -> None:
        self.w, self.module = w, ir.Module("channelwise")
        self.vector = ir.VectorType(FLOAT, w.lanes)
        self.words = ir.VectorType(INT32, w.lanes)
        arguments = [*[FLOAT.as_pointer()] * 5, WORD.as_pointer(), INT32.as_pointer()]
        self.function = ir.Function(self.module, ir.FunctionType(ir.VoidType(), arguments), "run")
        for a in self.function.args:
            a.add_attribute("noalias")
        self.x, self.y, self.weights, self.bias, self.room, numbers, seen = self.function.args
        self.b = b = ir.IRBuilder(self.function.append_basic_block("entry"))
        kept = [b.bitcast(b.gep(seen, [word(n * w.lanes)]), self.words.as_pointer()) for n in range(2)]
        self.ends = [b.alloca(self.words) for _ in kept]
        for place, end in zip(kept, self.ends, strict=True):
            b.store(b.load(place, align=4), end)
        found = [b.load(b.gep(numbers, [word(n)])) for n in range(12)]
        samples, self.vectors, self.rows, self.columns, self.out_rows, self.out_columns = found[:6]
        self.of, self.to = found[6:9], found[9:]
        self.channels = b.mul(self.vectors, word(w.lanes))
        self.line = b.mul(b.add(self.columns, word(w.pads[1] + w.pads[3])), self.channels)
        emitted_loop(b, samples, self._sample)
        for place, end in zip(kept, self.ends, strict=True):
            b.store(b.load(end), place, align=4)
        b.ret_void()

    def _sample(self, n: ir.Value) -> None:
        """Emit what one sample takes: a copy with zeros around, then its windows; memory is read and written as it lies."""
        b = self.b
        source, target = (b.mul(n, s[0]) for s in (self.of, self.to))
        emitted_loop(b, self.rows, lambda row: emitted_loop(b, self.columns, lambda column: self._copied(source, row, column)))
        whole = b.udiv(self.out_columns, word(TOGETHER))
        left = b.sub(self.out_columns, b.mul(whole, word(TOGETHER)))

        def along(row: ir.Value) -> None:
            emitted_loop(b, whole, lambda group: self._windows(target, row, b.mul(group, word(TOGETHER)), TOGETHER))
            emitted_loop(b, left, lambda n: self._windows(target, row, b.add(b.mul(whole, word(TOGETHER)), n), 1))

        emitted_loop(b, self.out_rows, along)

    def _copied(self, source: ir.Value, row: ir.Value, column: ir.Value) -> None:
        b, (top, left, _, _) = self.b, self.w.pads
        first = self._at(source, self.of, row, column)
        inside = b.add(b.mul(b.add(row, word(top)), self.line), b.mul(b.add(column, word(left)), self.channels))

        def vector(c: ir.Value) -> None:
            channel = b.mul(c, word(self.w.lanes))
            value = self._load(self.x, b.add(first, channel))
            self._store(self._clamped(value, self.w.before), self.room, b.add(inside, channel))

        emitted_loop(b, self.vectors, vector)

    def _windows(self, target: ir.Value, row: ir.Value, column: ir.Value, count: int) -> None:
        """Emit neighbours of one row, all channels."""
        b, w = self.b, self.w
        places = [b.add(column, word(n)) for n in range(count)]
        line = b.mul(b.mul(row, word(w.strides[0])), self.line)
        first = b.add(line, b.mul(b.mul(column, word(w.strides[1])), self.channels))
        lines = [b.add(first, b.mul(word(i), self.line)) for i in range(w.kernel[0])]
        to = [self._at(target, self.to, row, place) for place in places]
        apart = [b.mul(word(j), self.channels) for j in range(w.kernel[1] + (count - 1) * w.strides[1])]

        def vector(c: ir.Value) -> None:
            channel = b.mul(c, word(w.lanes))
            for place, total in zip(to, self._sums(channel, lines, apart, count), strict=True):
                whole = b.fadd(total, self._load(self.bias, channel)) if w.has_bias else total
                value = self._clamped(whole, w.after)
                self._store(value, self.y, b.add(place, channel))
                see(b, b.bitcast(value, self.words), self.ends)

        emitted_loop(b, self.vectors, vector)

    def _sums(self, channel: ir.Value, lines: list[ir.Value], apart: list[ir.Value], count: int) -> list[ir.Value]:
        """Emit the sums of neighbours; what several of their windows have is read once."""
        b, w = self.b, self.w
        add = declared(self.module, f"llvm.fma.v{w.lanes}f32", ir.FunctionType(self.vector, [self.vector] * 3))
        totals = [ir.Constant(self.vector, [0.0] * w.lanes)] * count
        first = b.mul(channel, word(w.kernel[0] * w.kernel[1]))
        for i, line in enumerate(lines):
            read = [self._load(self.room, b.add(b.add(line, at), channel)) for at in apart]
            for j in range(w.kernel[1]):
                factor = self._load(self.weights, b.add(first, word((i * w.kernel[1] + j) * w.lanes)))
                totals = [b.call(add, [read[n * w.strides[1] + j], factor, total]) for n, total in enumerate(totals)]
        return totals

    def _clamped(self, x: ir.Value, bounds: Bounds | None) -> ir.Value:
        for sign, bound in zip("><", bounds or (), strict=False):
            if math.isfinite(bound):
                limit = ir.Constant(self.vector, [float(np.float32(bound))] * self.w.lanes)
                x = self.b.select(self.b.fcmp_unordered(sign, x, limit), x, limit)  # not-a-number stays
        return x

    def _at(self, first: ir.Value, strides: list[ir.Value], row: ir.Value, column: ir.Value) -> ir.Value:
        return self.b.add(first, self.b.add(self.b.mul(row, strides[1]), self.b.mul(column, strides[2])))

    def _load(self, base: ir.Value, at: ir.Value) -> ir.Value:
        return self.b.load(self.b.bitcast(self.b.gep(base, [at]), self.vector.as_pointer()), align=4)

    def _store(self, value: ir.Value, base: ir.Value, at: ir.Value) -> Any:
        return self.b.store(value, self.b.bitcast(self.b.gep(base, [at]), self.vector.as_pointer()), align=4)
