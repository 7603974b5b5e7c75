"""Blocked folds by numpy: each step is a product by BLAS and passes in place, over rows that stay in the cache.

Floats hold the integers exactly: what each operator can give is bounded before, by what the factors hold now or by their
intervals, and float32 is used where no magnitude is beyond 2^24, float64 where none is beyond 2^53. The bound of a sum of
products is that of Σ|a||w|, so every partial sum is exact in any order. A shift to the right takes the floor of a multiple
of 2^-n; where it follows a product, the factor of the columns is scaled instead.

A sum of products whose only use is a chain of added constants, a shift and a clamp may reach 2^25 in float32: both halves
of it are exact, their sum is exact up to 2^24, and beyond that its rounding cannot leave what the clamp makes one value,
because every pass is monotone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from . import intervals as iv
from .binders import Fold
from .blocked import Blocked, Factor, FoldTrace, Site, folded, magnitude
from .expr import Expr
from .float_passes import Made, Pass, clamped, last_uses, ranges_of, reach_of, scales_of, with_numbers
from .named import FLOAT32_EXACT, FLOAT64_EXACT, Axis, Data, Named, Store
from .straight import Code, TooWide

if TYPE_CHECKING:
    from .arrays import Evaluator

BLOCK_BYTES = 1 << 17  # of the result at once: a few of them fit a second-level cache
KEPT_ELEMENTS = 1 << 18  # of the factor of the rows that are converted at once
LEAST_ELEMENTS = 1 << 9


def in_floats(ev: Evaluator, f: Fold) -> Store | None:
    """Return the accumulator of a fold after its last step; None when floats cannot hold it or it is not a blocked fold."""
    return None if ev.axes.tape is not None else folded(ev, f, _Floats, _Trace)


@dataclass
class _Trace(FoldTrace):
    """The operands of a step, factors as they lie, and how large they can be by their intervals."""

    limits: list[tuple[int, int]] = field(default_factory=list)

    def refuse_wide(self, factors: Sequence[Expr], lanes: int) -> None:
        if any(not iv.is_bounded(f.interval) for f in factors):
            raise TooWide
        first, second = map(magnitude, factors)
        self.limits.append((first, second))

    def words(self, window: Store) -> Store:
        return window

    def is_block(self, lanes: int) -> bool:
        return lanes > 0


class _Floats(Blocked):
    """One fold in floats."""

    def result(self, kind: np.dtype[np.generic]) -> Named:
        size = self.ev.axes.shape
        m, n = math.prod(size(self.rows)), math.prod(size(self.columns))
        if m * n < LEAST_ELEMENTS:
            raise TooWide
        self.codes = [with_numbers(code, self.trace.scalars) for code in self.codes]
        self.scales = [scales_of(code) for code in self.codes]
        self.views = [self._views(s) for s in self.trace.sites]
        self.kind, self.halved = self._type()
        out = np.empty((m, n), kind)
        self._fill(out, self._start(m, n, m, n))
        return self.ev.axes.ordered(out.reshape(*size(self.rows), *size(self.columns)), (*self.rows, *self.columns))

    def _type(self) -> tuple[Any, frozenset[int]]:
        """Return the type in which all passes are exact, and the products that are computed in halves; TooWide where none is."""
        assert self.trace.accumulator is not None
        held, sites = self.trace.accumulator.interval, range(len(self.views))
        limits = [self._limit(number) for number in sites]
        ranges = [ranges_of(code, limits, held) for code in self.codes]
        if any(not iv.is_bounded(r) for found in ranges for r in found):
            raise TooWide
        largest = max(reach_of(r) for found in ranges for r in found)
        if largest <= FLOAT32_EXACT:
            return np.float32, frozenset()
        wide = frozenset(n for n in sites if limits[n] > FLOAT32_EXACT)
        chains = [clamped(code, wide) for code in self.codes]
        rest = [r for found, chain in zip(ranges, chains, strict=True) for n, r in enumerate(found) if chain is None or n not in chain]
        if None not in chains and max(map(reach_of, rest)) <= FLOAT32_EXACT and all(self._limit(n, 2) <= FLOAT32_EXACT for n in wide):
            return np.float32, wide
        if largest > FLOAT64_EXACT:
            raise TooWide
        return np.float64, frozenset()

    # -- operands

    def _views(self, s: Site) -> tuple[Data, Data]:
        """Return the factor of the rows over [rows …, steps …, lanes], and that of the columns as [columns, steps, lanes]."""
        a, b = s.factors
        inner = {x for x, _ in self.loops} | {s.lane}
        if not (frozenset(a.strides) - inner <= self.row_axes and frozenset(b.strides) - inner <= set(self.columns)):
            a, b = b, a
        columns = self._over(b, self.columns, s)
        steps = math.prod(n for _, n in self.loops)
        return self._over(a, self.rows, s), columns.reshape(-1, steps, columns.shape[-1])

    def _over(self, f: Factor, outer: Sequence[Axis], s: Site) -> Data:
        names, extent = tuple(f.strides), self.ev.axes.extent
        order = [*outer, *(x for x, _ in self.loops), *([s.lane] if s.lanes else [])]
        data = f.data.transpose([names.index(x) for x in order if x in names])
        for at, x in enumerate(order):
            if x not in names:
                data = np.expand_dims(data, at)
        data = np.broadcast_to(data, [extent[x] if x != s.lane else s.lanes for x in order])
        return data if s.lanes else data[..., None]

    def _limit(self, number: int, parts: int = 1) -> int:
        """Return a bound of Σ|a||w| over one of `parts`: by the intervals, or by what the factors hold where that may decide."""
        assert isinstance(self.trace, _Trace)
        (a, w), (first, second) = self.views[number], self.trace.limits[number]
        length = -(-w.shape[-1] // parts)
        known: int = first * second * length
        if known <= FLOAT32_EXACT or self.ev.is_steady:
            return known
        magnitudes = np.abs(w.astype(np.int64))
        sums = [int(magnitudes[..., low : low + length].sum(axis=-1).max()) for low in range(0, w.shape[-1], length)]
        return min(known, _largest(a) * max(sums))

    # -- blocks of rows

    def _fill(self, out: Data, start: Data | None) -> None:
        m, n = out.shape
        loops = tuple(count for _, count in self.loops)
        rows = max(1, min(m, BLOCK_BYTES // (n * self.kind().itemsize)))
        wide = sum(w.shape[-1] for _, w in self.views)
        steps = max(1, min(math.prod(loops), KEPT_ELEMENTS // (rows * wide)))
        self.kept = [np.empty(rows * steps * w.shape[-1], self.kind) for _, w in self.views]
        self.now = list(self.kept)
        columns = [self._columns(scales, code) for scales, code in zip(self.scales, self.codes, strict=True)]
        total = np.empty((rows, n), self.kind)
        buffers: list[Data] = []
        for place, first, count in _runs(self.ev.axes.shape(self.rows), rows):
            here = total[:count]
            here[...] = 0 if start is None else start[first : first + count]
            made = [self._passes(number, columns[number], here, buffers) for number in range(len(self.codes))]
            for step, at, length in _runs(loops, steps):
                self._read((*place, *step), count, length)
                for k in range(length):
                    is_last = at + k == math.prod(loops) - 1
                    for run in made[-1 if is_last else 0]:
                        run(k, at + k)
            out[first : first + count] = here

    def _read(self, place: tuple[Any, ...], count: int, length: int) -> None:
        """Convert the factors of some rows and steps, [rows, steps, lanes]."""
        for number, (view, _) in enumerate(self.views):
            block = view[place]
            self.now[number] = self.kept[number][: block.size].reshape(count, length, view.shape[-1])
            self.now[number].reshape(block.shape)[...] = block

    def _columns(self, scales: Sequence[int], code: Code) -> dict[int, Data]:
        """Return the factors of the columns as [steps, lanes, columns], scaled as the operators of one code need them."""
        found = {}
        for scale, op in zip(scales, code, strict=True):
            if op.name in ("dot", "product"):
                data = np.ascontiguousarray(self.views[op.data][1].transpose(1, 2, 0), self.kind)
                found[op.data] = data * self.kind(2.0**-scale) if scale else data
        return found

    def _passes(self, number: int, columns: dict[int, Data], total: Data, buffers: list[Data]) -> list[Pass]:
        """Return the calls of one step on a block; the last one writes `total`."""
        code, scales, made = self.codes[number], self.scales[number], Made(total, buffers, last_uses(self.codes[number]))
        for n, op in enumerate(code):
            if op.name in ("dot", "product"):
                made.product(n, self.now, op.data, columns[op.data], is_halved=op.data in self.halved)
            elif op.name == "acc":
                made.values[n] = total
            elif op.name == "const":
                made.values[n] = self.kind(op.data)
            elif op.name == "shr":
                amount = int(code[op.args[1]].data)
                made.shift(n, op, self.kind(2.0 ** (scales[op.args[0]] - amount)))
            else:
                made.plain(n, op, self.kind(2.0 ** -scales[n]))
        return made.passes


def _runs(shape: tuple[int, ...], most: int) -> Iterator[tuple[tuple[Any, ...], int, int]]:
    """Yield indices that cut a row-major grid into runs of at most `most` elements, with where each begins and its length."""
    depth = next((d for d in range(len(shape)) if math.prod(shape[d + 1 :]) <= most), 0)
    inner = math.prod(shape[depth + 1 :])
    if not shape:
        yield (), 0, 1
        return
    rest, step = (slice(None),) * (len(shape) - depth - 1), max(1, most // inner)
    for number, head in enumerate(np.ndindex(shape[:depth])):
        for low in range(0, shape[depth], step):
            high = min(low + step, shape[depth])
            yield (*head, slice(low, high), *rest), (number * shape[depth] + low) * inner, (high - low) * inner


def _largest(x: Data) -> int:
    return max(int(x.max()), -int(x.min())) if x.size else 0
