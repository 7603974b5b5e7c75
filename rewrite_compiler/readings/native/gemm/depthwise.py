"""Machine code of a float32 depthwise convolution, its input and output clamped, with channels innermost in memory.

Products are added to 0 from the window's first element on, each by a fused multiply-add; the bias comes last. A vector holds
channels, so that no sum is reordered; padding is 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from llvmlite import ir

from ...arrays.buffer_pool import pooled_array
from ...arrays.labelled_array import Data
from ...straightline.ordered_floats import EMPTY_RANGE, floats_of
from ..jit import function_of
from ..loops import WORD, emit_loop, word
from ..operators import declare_function, update_extrema

FLOAT, INT32 = ir.FloatType(), ir.IntType(32)
LANES = (16, 8, 4)
INTERLEAVED_WINDOWS = 4  # windows of a row whose sums are interleaved, so that no multiply-add waits for the one before
Bounds = tuple[float, float]


@dataclass(frozen=True)
class Window:
    """The key of compiled code: extents of the window, strides, zero padding, clamps of input and output, lanes of a vector."""

    kernel: tuple[int, int]
    strides: tuple[int, int]
    pads: tuple[int, int, int, int]  # before rows, before columns, after rows, after columns
    before: Bounds | None
    after: Bounds | None
    has_bias: bool
    lanes: int

    def padded(self, rows: int, columns: int) -> tuple[int, int]:
        """Return the extents with padding."""
        top, left, bottom, right = self.pads
        return rows + top + bottom, columns + left + right


def lanes_of(channels: int) -> int | None:
    """Return the lanes of a vector, a divisor of the number of channels; None where no width divides it."""
    return next((n for n in LANES if channels % n == 0), None)


@dataclass(frozen=True, eq=False)
class Convolution:
    """A depthwise convolution with packed weights [channels / lanes, rows · columns, lanes] and its bias [channels], if any."""

    window: Window
    weights: Data
    bias: Data

    def __call__(self, x: Data, y: Data) -> tuple[float, float]:
        """Set y to the convolution of x, both [n, c, rows, columns] with channel stride 1; return the least and the largest of y."""
        w, (n, channels, *extents) = self.window, x.shape
        workspace = pooled_array((*w.padded(*extents), channels), np.float32)
        workspace.fill(0)
        strides = [s // x.itemsize for a in (x, y) for s in (a.strides[0], *a.strides[2:])]
        numbers = np.array([n, channels // w.lanes, *extents, *y.shape[2:], *strides], np.int64)
        extrema = np.repeat(EMPTY_RANGE, w.lanes)
        window_function(w)(*(a.ctypes.data for a in (x, y, self.weights, self.bias, workspace, numbers, extrema)))
        return floats_of(np.array([extrema[: w.lanes].min(), extrema[w.lanes :].max()]))


def convolution(w: Window, weights: Data, bias: Data) -> Convolution:
    """Return a convolution with weights [channels, 1, rows, columns] packed: the channels of a vector are adjacent."""
    size = w.kernel[0] * w.kernel[1]
    packed = np.ascontiguousarray(weights.reshape(-1, w.lanes, size).transpose(0, 2, 1), np.float32)
    return Convolution(w, packed, np.ascontiguousarray(bias, np.float32))


@lru_cache(maxsize=256)
def window_function(w: Window) -> Callable[..., None]:
    """Return the compiled function of (x, y, weights, bias, workspace, numbers, extrema)."""
    function: Callable[..., None] = function_of(str(_Window(w).module), 3, 7)[1]
    return function


class _Window:
    """Emits one kernel. Numbers: samples, vectors of channels, extents of x and of y, then x's and y's element strides."""

    def __init__(self, w: Window) -> None:
        self.w, self.module = w, ir.Module("channelwise")
        self.vector = ir.VectorType(FLOAT, w.lanes)
        self.words = ir.VectorType(INT32, w.lanes)
        arguments = [*[FLOAT.as_pointer()] * 5, WORD.as_pointer(), INT32.as_pointer()]
        self.function = ir.Function(self.module, ir.FunctionType(ir.VoidType(), arguments), "run")
        for a in self.function.args:
            a.add_attribute("noalias")
        self.x, self.y, self.weights, self.bias, self.workspace, numbers, extrema_argument = self.function.args
        self.b = b = ir.IRBuilder(self.function.append_basic_block("entry"))
        extrema_pointers = [b.bitcast(b.gep(extrema_argument, [word(n * w.lanes)]), self.words.as_pointer()) for n in range(2)]
        self.extrema = [b.alloca(self.words) for _ in extrema_pointers]
        for place, end in zip(extrema_pointers, self.extrema, strict=True):
            b.store(b.load(place, align=4), end)
        scalars = [b.load(b.gep(numbers, [word(n)])) for n in range(12)]
        samples, self.vectors, self.rows, self.columns, self.out_rows, self.out_columns = scalars[:6]
        self.x_strides, self.y_strides = scalars[6:9], scalars[9:]
        self.channels = b.mul(self.vectors, word(w.lanes))
        self.row_size = b.mul(b.add(self.columns, word(w.pads[1] + w.pads[3])), self.channels)
        emit_loop(b, samples, self._sample)
        for place, end in zip(extrema_pointers, self.extrema, strict=True):
            b.store(b.load(end), place, align=4)
        b.ret_void()

    def _sample(self, n: ir.Value) -> None:
        """Emit the work of one sample: a padded copy of its input, then its windows, row by row."""
        b = self.b
        source, target = (b.mul(n, s[0]) for s in (self.x_strides, self.y_strides))
        emit_loop(b, self.rows, lambda row: emit_loop(b, self.columns, lambda column: self._copy_pixel(source, row, column)))
        full_groups = b.udiv(self.out_columns, word(INTERLEAVED_WINDOWS))
        remainder = b.sub(self.out_columns, b.mul(full_groups, word(INTERLEAVED_WINDOWS)))

        def row_windows(row: ir.Value) -> None:
            emit_loop(
                b, full_groups, lambda group: self._windows(target, row, b.mul(group, word(INTERLEAVED_WINDOWS)), INTERLEAVED_WINDOWS)
            )
            emit_loop(b, remainder, lambda n: self._windows(target, row, b.add(b.mul(full_groups, word(INTERLEAVED_WINDOWS)), n), 1))

        emit_loop(b, self.out_rows, row_windows)

    def _copy_pixel(self, source: ir.Value, row: ir.Value, column: ir.Value) -> None:
        b, (top, left, _, _) = self.b, self.w.pads
        source_offset = self._offset(source, self.x_strides, row, column)
        workspace_offset = b.add(b.mul(b.add(row, word(top)), self.row_size), b.mul(b.add(column, word(left)), self.channels))

        def vector(c: ir.Value) -> None:
            channel = b.mul(c, word(self.w.lanes))
            value = self._load(self.x, b.add(source_offset, channel))
            self._store(self._clamp(value, self.w.before), self.workspace, b.add(workspace_offset, channel))

        emit_loop(b, self.vectors, vector)

    def _windows(self, target: ir.Value, row: ir.Value, column: ir.Value, count: int) -> None:
        """Emit `count` adjacent windows of one row, all channels."""
        b, w = self.b, self.w
        places = [b.add(column, word(n)) for n in range(count)]
        row_start = b.mul(b.mul(row, word(w.strides[0])), self.row_size)
        window_start = b.add(row_start, b.mul(b.mul(column, word(w.strides[1])), self.channels))
        row_offsets = [b.add(window_start, b.mul(word(i), self.row_size)) for i in range(w.kernel[0])]
        targets = [self._offset(target, self.y_strides, row, place) for place in places]
        column_offsets = [b.mul(word(j), self.channels) for j in range(w.kernel[1] + (count - 1) * w.strides[1])]

        def vector(c: ir.Value) -> None:
            channel = b.mul(c, word(w.lanes))
            for place, total in zip(targets, self._sums(channel, row_offsets, column_offsets, count), strict=True):
                biased = b.fadd(total, self._load(self.bias, channel)) if w.has_bias else total
                value = self._clamp(biased, w.after)
                self._store(value, self.y, b.add(place, channel))
                update_extrema(b, b.bitcast(value, self.words), self.extrema)

        emit_loop(b, self.vectors, vector)

    def _sums(self, channel: ir.Value, row_offsets: list[ir.Value], column_offsets: list[ir.Value], count: int) -> list[ir.Value]:
        """Emit the sums of adjacent windows; an input that several of them share is loaded once."""
        b, w = self.b, self.w
        add = declare_function(self.module, f"llvm.fma.v{w.lanes}f32", ir.FunctionType(self.vector, [self.vector] * 3))
        totals = [ir.Constant(self.vector, [0.0] * w.lanes)] * count
        first = b.mul(channel, word(w.kernel[0] * w.kernel[1]))
        for i, row_offset in enumerate(row_offsets):
            inputs = [self._load(self.workspace, b.add(b.add(row_offset, offset), channel)) for offset in column_offsets]
            for j in range(w.kernel[1]):
                factor = self._load(self.weights, b.add(first, word((i * w.kernel[1] + j) * w.lanes)))
                totals = [b.call(add, [inputs[n * w.strides[1] + j], factor, total]) for n, total in enumerate(totals)]
        return totals

    def _clamp(self, x: ir.Value, bounds: Bounds | None) -> ir.Value:
        for sign, bound in zip("><", bounds or (), strict=False):
            if math.isfinite(bound):
                limit = ir.Constant(self.vector, [float(np.float32(bound))] * self.w.lanes)
                x = self.b.select(self.b.fcmp_unordered(sign, x, limit), x, limit)  # not-a-number stays
        return x

    def _offset(self, first: ir.Value, strides: list[ir.Value], row: ir.Value, column: ir.Value) -> ir.Value:
        return self.b.add(first, self.b.add(self.b.mul(row, strides[1]), self.b.mul(column, strides[2])))

    def _load(self, base: ir.Value, offset: ir.Value) -> ir.Value:
        return self.b.load(self.b.bitcast(self.b.gep(base, [offset]), self.vector.as_pointer()), align=4)

    def _store(self, value: ir.Value, base: ir.Value, offset: ir.Value) -> Any:
        return self.b.store(value, self.b.bitcast(self.b.gep(base, [offset]), self.vector.as_pointer()), align=4)
