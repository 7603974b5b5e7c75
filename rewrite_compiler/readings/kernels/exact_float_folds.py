"""Blocked folds in exact floats: each step is a matrix product by BLAS and passes in place, over rows that stay in the cache.

Floats hold the integers exactly: what each operator can give is bounded before, by what the factors hold now or by their
intervals, and float32 is used where no magnitude is beyond 2^24, float64 where none is beyond 2^53. The bound of a sum of
products is that of Σ|a||w|, so every partial sum is exact in any order. A shift to the right takes the floor of a multiple
of 2^-n; where it follows a product, the factor of the columns is scaled instead.

A sum of products whose only use is a chain of added constants, a shift and a clamp may reach 2^25 in float32, where it is
exact below an edge from which on the clamp makes it one value, because every pass is monotone. One with a partial sum beyond
2^24 is itself large when the other products are small; else both halves of it are exact, and their sum is up to 2^24.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...lang import intervals as iv
from ...lang.binders import Fold
from ...lang.intervals import Interval
from ..arrays.labelled_array import FLOAT32_EXACT, FLOAT64_EXACT, Axis, Data, LabelledArray, Store
from ..arrays.scope import Evaluation
from ..blocks.grid import contiguous_runs
from ..blocks.passes import (
    Pass,
    StepPasses,
    clamped_operators,
    clips_of,
    last_uses,
    magnitude_of,
    ranges_of,
    scales_of,
    with_constant_scalars,
)
from ..straightline.code import Code, TooWide
from .fold_operands import Factor, FoldTrace, ProductSite, evaluate_blocked_fold

BLOCK_BYTES = 1 << 18  # of the result at once: two of them fit a second-level cache
CONVERTED_ELEMENTS = 1 << 18  # of the factor of the rows that are converted at once
MIN_ELEMENTS = 1 << 9  # of all steps together
MIN_GRID = 8  # of the result
INT32_EXACT = (1 << 31) - 1
Views = tuple[Data, Data]  # the factors of rows and of columns


def evaluate_fold_in_floats(ev: Evaluation, f: Fold) -> Store | None:
    """Evaluate a blocked fold in floats that hold every integer exactly; None when no float type does or it is no blocked fold."""
    return evaluate_blocked_fold(ev, f, _in_floats, MIN_ELEMENTS)


def _in_floats(
    ev: Evaluation, loops: Sequence[tuple[Axis, int]], trace: FoldTrace, codes: Sequence[Code], first: LabelledArray,
    kind: np.dtype[np.generic],
) -> LabelledArray:  # fmt: skip
    return _Floats(ev, loops, trace, codes, first).result(kind)


class _Floats:
    """One fold in floats."""

    def __init__(
        self, ev: Evaluation, loops: Sequence[tuple[Axis, int]], trace: FoldTrace, codes: Sequence[Code], first: LabelledArray
    ) -> None:
        self.ev, self.loops, self.trace, self.codes, self.first = ev, loops, trace, codes, first
        inner = {a for a, _ in loops}
        self.rows, self.columns = self._sides(inner)
        extra_axes = set(first.axes) - set(self.rows) - set(self.columns)
        self.rows = ev.axes.union(self.rows, tuple(extra_axes))

    def _sides(self, inner: set[Axis]) -> tuple[tuple[Axis, ...], tuple[Axis, ...]]:
        """Return the axes of rows and of columns: no product has one axis on both sides."""
        axes = [[frozenset(f.strides) - inner - {s.lane} for f in s.factors] for s in self.trace.sites]
        size = self.ev.axes.shape
        a, b = axes[0]
        if math.prod(size(tuple(a))) < math.prod(size(tuple(b))):
            a, b = b, a
        for first, second in axes:
            if not ((first <= a and second <= b) or (first <= b and second <= a)):
                raise TooWide
        if a & b or math.prod(size(tuple(a))) * math.prod(size(tuple(b))) < MIN_GRID:
            raise TooWide
        self.row_axes = a
        return self.ev.axes.union(tuple(a)), self.ev.axes.union(tuple(b))

    def result(self, kind: np.dtype[np.generic]) -> LabelledArray:
        size = self.ev.axes.shape
        m, n = math.prod(size(self.rows)), math.prod(size(self.columns))
        if m * n * math.prod(steps for _, steps in self.loops) < MIN_ELEMENTS:
            raise TooWide
        self.codes = [with_constant_scalars(code, self.trace.scalars) for code in self.codes]
        self.views = [self._views(s) for s in self.trace.sites]
        self.is_across = any(op.name == "product" for code in self.codes for op in code)
        self.kind, self.halved = self._type()
        self.scales = [scales_of(code) if self.kind is not np.int32 else (0,) * len(code) for code in self.codes]
        self.shape = size(self.rows)
        out = np.empty((m, n), kind)
        self._fill(out, self._start(m, n), self.views)
        return self.ev.axes.ordered(out.reshape(*size(self.rows), *size(self.columns)), (*self.rows, *self.columns))

    def _type(self) -> tuple[Any, frozenset[int]]:
        """Return the type in which all passes are exact, and the products that are computed in halves; TooWide where none is.

        What factors hold is looked at where their intervals leave no words of 32 bits.
        """
        choice = self._type_within([self._interval_bound(number) for number in range(len(self.views))])
        if choice is None or choice[0] is np.float64 or choice[1]:
            choice = self._type_within([self._content_bound(number) for number in range(len(self.views))]) or choice
        if choice is None:
            raise TooWide
        return choice

    def _type_within(self, limits: Sequence[int]) -> tuple[Any, frozenset[int]] | None:
        """Return the type for products within these limits, and the products that are computed in halves."""
        assert self.trace.accumulator is not None
        accumulator_range, sites = self.trace.accumulator.interval, range(len(self.views))
        ranges = [ranges_of(code, limits, accumulator_range) for code in self.codes]
        if any(not iv.is_bounded(r) for code_ranges in ranges for r in code_ranges):
            return None
        largest = max(magnitude_of(r) for ranges_of_code in ranges for r in ranges_of_code)
        if largest <= FLOAT32_EXACT:
            return np.float32, frozenset()
        if largest <= INT32_EXACT and not any(op.name == "dot" for code in self.codes for op in code):
            return np.int32, frozenset()
        wide = frozenset(n for n in sites if limits[n] > FLOAT32_EXACT)
        if self._is_clamped(ranges, [self._edge(n) if n in wide else 0 for n in sites]):
            return np.float32, frozenset()
        are_exact = all(self._content_bound(n, 2) <= FLOAT32_EXACT for n in wide)
        if are_exact and self._is_clamped(ranges, [FLOAT32_EXACT // 2 if n in wide else 0 for n in sites]):
            return np.float32, wide
        return (np.float64, frozenset()) if largest <= FLOAT64_EXACT else None

    def _is_clamped(self, ranges: Sequence[Sequence[Interval]], edges: Sequence[int]) -> bool:
        """Tell whether what is not exact, beyond its edge, is clamped to one value, and everything else is exact."""
        chains = [clamped_operators(code, tuple(edges)) for code in self.codes]
        if min(edges) < 0 or None in chains:
            return False
        unclamped = [
            r for code_ranges, chain in zip(ranges, chains, strict=True) for n, r in enumerate(code_ranges) if n not in (chain or ())
        ]
        return max(map(magnitude_of, unclamped)) <= FLOAT32_EXACT

    def _edge(self, number: int) -> int:
        """Return a magnitude below which a sum of products is exact in any order; −1 where there is none.

        A partial sum beyond 2^24 has so many products that the others cannot bring the whole near 0 again; each rounding
        of what is below 2^25 is by 1 at most.
        """
        (first, second), lanes = self.trace.magnitudes[number], self.views[number][1].shape[-1]
        product = first * second
        other_products = lanes - FLOAT32_EXACT // product - 1
        edge = FLOAT32_EXACT + 1 - other_products * product - lanes
        return edge if edge > 0 and product * lanes <= 2 * FLOAT32_EXACT else -1

    # -- operands

    def _start(self, m: int, n: int) -> Data | None:
        """Return the values before the first step; None when all are 0."""
        first = self.first
        if not first.axes and int(first.data) == 0:
            return None
        order = (*self.rows, *self.columns)
        grid = self.ev.axes.union(order)
        full = self.ev.axes.full(first, grid).transpose([grid.index(a) for a in order])
        return np.array(full, np.int32).reshape(m, n)

    def _views(self, s: ProductSite) -> tuple[Data, Data]:
        """Return the factor of the rows over [rows …, steps …, lanes], and that of the columns as [columns, steps, lanes]."""
        a, b = s.factors
        inner = {x for x, _ in self.loops} | {s.lane}
        if not (frozenset(a.strides) - inner <= self.row_axes and frozenset(b.strides) - inner <= set(self.columns)):
            a, b = b, a
        columns = self._over(b, self.columns, s)
        steps = math.prod(n for _, n in self.loops)
        return self._over(a, self.rows, s), columns.reshape(-1, steps, columns.shape[-1])

    def _over(self, f: Factor, outer: Sequence[Axis], s: ProductSite) -> Data:
        names, extent = tuple(f.strides), self.ev.axes.extent
        order = [*outer, *(x for x, _ in self.loops), *([s.lane] if s.lanes else [])]
        data = f.data.transpose([names.index(x) for x in order if x in names])
        for at, x in enumerate(order):
            if x not in names:
                data = np.expand_dims(data, at)
        data = np.broadcast_to(data, [extent[x] if x != s.lane else s.lanes for x in order])
        return data if s.lanes else data[..., None]

    def _interval_bound(self, number: int, parts: int = 1) -> int:
        """Return a bound of Σ|a||w| over one of `parts`, by the intervals."""
        (_, w), (first, second) = self.views[number], self.trace.magnitudes[number]
        bound: int = first * second * -(-w.shape[-1] // parts)
        return bound

    def _content_bound(self, number: int, parts: int = 1) -> int:
        """Return such a bound by what the factors hold, where the intervals' is beyond 2^24 and they do not change."""
        (a, w), bound = self.views[number], self._interval_bound(number, parts)
        if bound <= FLOAT32_EXACT:
            return bound
        length = -(-w.shape[-1] // parts)
        magnitudes = np.abs(w.astype(np.int64))
        sums = [int(magnitudes[..., low : low + length].sum(axis=-1).max()) for low in range(0, w.shape[-1], length)]
        return min(bound, _largest(a) * max(sums))

    # -- blocks of rows

    def _fill(self, out: Data, start: Data | None, views: Sequence[Views]) -> None:
        m, n = out.shape
        loops = tuple(count for _, count in self.loops)
        rows = max(1, min(m, BLOCK_BYTES // (n * self.kind().itemsize)))
        steps = max(1, min(math.prod(loops), CONVERTED_ELEMENTS // (rows * sum(w.shape[-1] for _, w in views))))
        operand_buffers = [np.empty(rows * steps * w.shape[-1], self.kind) for _, w in views]
        operands = list(operand_buffers)
        columns = [self._columns(scales, code, views) for scales, code in zip(self.scales, self.codes, strict=True)]
        total = np.empty(rows * n, self.kind)
        buffers: list[Data] = []
        for place, first, count in contiguous_runs(self.shape, rows):
            block = total[: count * n].reshape((n, count) if self.is_across else (count, n))
            rows_view = block.T if self.is_across else block
            rows_view[...] = 0 if start is None else start[first : first + count]
            passes = [self._passes(number, columns[number], block, buffers, operands) for number in range(len(self.codes))]
            for step, at, length in contiguous_runs(loops, steps):
                for number, (view, _) in enumerate(views):
                    rank = sum(isinstance(p, slice) for p in place)
                    operands[number] = self._read(view[(*place, *step)], rank, operand_buffers[number], (count, length))
                for k in range(length):
                    is_last = at + k == math.prod(loops) - 1
                    for run in passes[-1 if is_last else 0]:
                        run(k, at + k)
            out[first : first + count] = rows_view

    def _read(self, block: Data, rank: int, buffer: Data, size: tuple[int, int]) -> Data:
        """Convert factors of rows (the first `rank` axes) and steps, as [steps, rows, lanes]; across, as [steps, lanes, rows]."""
        (count, length), inner, lanes = size, block.ndim - rank, block.shape[-1]
        buffer = buffer[: block.size]
        if self.is_across:
            transposed = buffer.reshape(*block.shape[rank:], *block.shape[:rank])
            transposed.transpose(*range(inner, block.ndim), *range(inner))[...] = block
            return buffer.reshape(length, lanes, count)
        buffer.reshape(block.shape)[...] = block
        return buffer.reshape(count, length, lanes).transpose(1, 0, 2)

    def _columns(self, scales: Sequence[int], code: Code, views: Sequence[Views]) -> dict[int, Data]:
        """Return the factors of the columns as [steps, lanes, columns] or, where rows lie across, [steps, columns, lanes].

        They are scaled as the operators of one code need them.
        """
        columns = {}
        order = (1, 0, 2) if self.is_across else (1, 2, 0)
        for scale, op in zip(scales, code, strict=True):
            if op.name in ("dot", "product"):
                data = np.ascontiguousarray(views[op.data][1].transpose(order), self.kind)
                columns[op.data] = data * self.kind(2.0**-scale) if scale else data
        return columns

    def _passes(self, number: int, columns: dict[int, Data], total: Data, buffers: list[Data], operands: Sequence[Data]) -> list[Pass]:
        """Return the calls of one step on a block; the last one writes `total`."""
        code, scales, builder = self.codes[number], self.scales[number], StepPasses(total, buffers, last_uses(self.codes[number]))
        clips = clips_of(code)
        halves = {first for first, _ in clips.values()}
        for n, op in enumerate(code):
            if op.name in ("dot", "product"):
                half = -(-self.views[op.data][1].shape[-1] // 2) if op.data in self.halved else 0
                builder.product(n, operands, op.data, columns[op.data], half, is_across=self.is_across)
            elif n in clips:
                builder.clip(n, *clips[n])
            elif n in halves:
                builder.share_buffer(n, next(a for a in op.args if code[a].name != "const"))
            elif op.name == "acc":
                builder.values[n] = total
            elif op.name == "const":
                builder.values[n] = self.kind(op.data)
            elif op.name == "shr" and self.kind is np.int32:
                builder.operator(n, op, 1)
            elif op.name == "shr":
                amount = int(code[op.args[1]].data)
                builder.shift(n, op, self.kind(2.0 ** (scales[op.args[0]] - amount)))
            else:
                builder.operator(n, op, self.kind(2.0 ** -scales[n]) if scales[n] else 1)
        return builder.passes


def _largest(x: Data) -> int:
    return max(int(x.max()), -int(x.min())) if x.size else 0
