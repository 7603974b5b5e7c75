"""Blocked folds: nests of scalar folds, and sums, over products of a row of A and a column of B, given to machine code.

The step between two products is whatever the specification says: rounding, saturation, shifts of single lanes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from ..errors import SpecError
from . import intervals as iv
from .binders import Accumulator, Comprehension, Fold, FoldResult
from .expr import Expr
from .kernels import Strides, Trace
from .named import Axes, Axis, Data, Named, Store, axis_of, moving, reach, storage_dtype, strided
from .shifted import shifted_sum, split_code, split_words
from .straight import Code, Op, TooWide, Tracer, bits_of, is_operator

if TYPE_CHECKING:
    from .arrays import Evaluator

INT16, INT32 = iv.of_width(16, True), iv.of_width(32, True)
LANES = 8  # products of one step of a plain sum
MOST_LANES = 16


@dataclass(frozen=True)
class Factor:
    """One factor of a product: an array seen along named axes, strides in elements."""

    data: Data
    strides: Strides


@dataclass(frozen=True)
class Site:
    """A sum of `lanes` products along the axis `lane`; 0 lanes: one product."""

    factors: tuple[Factor, Factor]
    lanes: int = 0
    lane: Axis = -1


@dataclass
class FoldTrace(Trace):
    """The operands of the step of a fold: products, numbers, the accumulator."""

    accumulator: Accumulator | None = None
    loops: tuple[Axis, ...] = ()
    is_last: bool = False  # whether the code of the last step is traced, which may be another one
    has_last: bool = False
    sites: list[Site] = field(default_factory=list)
    placed: dict[Expr, int] = field(default_factory=dict)

    def leaf(self, e: Expr) -> Op | Expr | None:
        """Return how a term is given to the code; TooWide when the step is of another kind."""
        if e.op == "load" and e.data is self.accumulator:
            return Op("acc", (), None, 32)
        if not self.varies(e):
            return self._scalar(e)
        if e.op == "select" and (chosen := self._chosen(e)) is not None:
            return chosen
        if e.op == "reduce" and e.data[0] == "sum" and len(e.data[1]) == 1:
            return self._dot(e)
        if e.op == "mul" and self.accumulator not in e.reads and all(x.op == "load" for x in e.args):
            return self._site(e, e.args, 0, -1)
        if is_operator(e):
            return None
        raise TooWide

    def varies(self, e: Expr) -> bool:
        """The accumulator varies."""
        return self.accumulator in e.reads or super().varies(e)

    def _chosen(self, e: Expr) -> Expr | None:
        found = super()._chosen(e)
        if found is not None:
            return found
        condition = self.ev.value(e.args[0])
        if not set(condition.axes) <= set(self.loops):
            return None
        order = self.ev.axes.union(self.loops)
        steps = self.ev.axes.full(condition, order).transpose([order.index(a) for a in self.loops]).reshape(-1)
        if (steps[:-1] != steps[0]).any():
            return None
        self.has_last = True
        return e.args[1] if steps[-1 if self.is_last else 0] else e.args[2]

    def _dot(self, e: Expr) -> Op:
        (variable,), body, lanes = e.data[1], e.args[0], self.ev.number(e.args[1])
        is_product = body.op == "mul" and self.accumulator not in e.reads and all(x.op == "load" for x in body.args)
        if not is_product or not self.is_block(lanes):
            raise TooWide
        with self.ev.inner(axes=[(variable, lanes)]):
            return self._site(e, body.args, lanes, axis_of(variable))

    def _site(self, e: Expr, factors: Sequence[Expr], lanes: int, lane: Axis) -> Op:
        name = "dot" if lanes else "product"
        if e in self.placed:
            return Op(name, (), self.placed[e], bits_of(e))
        self.refuse_wide(factors, lanes)
        first, second = (self._factor(f) for f in factors)
        self.placed[e] = len(self.sites)
        self.sites.append(Site((first, second), lanes, lane))
        return Op(name, (), self.placed[e], bits_of(e))

    def is_block(self, lanes: int) -> bool:
        """Tell whether so many products are one step."""
        return lanes % 2 == 0 and 0 < lanes <= MOST_LANES

    def refuse_wide(self, factors: Sequence[Expr], lanes: int) -> None:
        """Raise TooWide where a sum of products of two factors does not fit the words of the kernel."""
        if any(not iv.inside(f.interval, INT16) for f in factors):
            raise TooWide
        if max(lanes, 1) * math.prod(map(magnitude, factors)) >= 1 << 31:
            raise TooWide  # a sum of pairs could wrap

    def words(self, window: Store) -> Store:
        """Return contents in the type of the kernel's factors; larger ones are converted where they are packed."""
        if window.data.dtype == np.int16 or window.data.size >= 1 << 26:
            return window
        return Store(_as_int16(window, self.ev.axes), window.batch)

    def _factor(self, e: Expr) -> Factor:
        ev = self.ev
        store = ev.store_of(e.data)
        known = [ev.affine(i) for i in e.args]
        if store.data.dtype.kind not in "iu" or 0 in store.own or None in known:
            raise TooWide
        indices = [moving(i) for i in known if i is not None]
        box = [reach(i, ev.axes) for i in indices]
        if any(low < 0 or high >= n for (low, high), n in zip(box, store.own, strict=True)):
            raise TooWide
        window, origin = store.window([b[0] for b in box], [b[1] for b in box], ev.axes)
        window = self.words(window)
        view, names = strided(window, origin, indices, ev.axes)
        strides = {a: s // view.itemsize for a, s, n in zip(names, view.strides, view.shape, strict=True)}
        return Factor(view, strides)


def _as_int16(store: Store, axes: Axes) -> Data:
    tape = axes.taping(store.batch)
    return np.ascontiguousarray(store.data, np.int16) if tape is None else tape.copied(store.data, np.int16)


def magnitude(e: Expr) -> int:
    """Return the largest magnitude of a bounded term."""
    low, high = e.interval
    return max(abs(low or 0), abs(high or 0))


# -- folds


def innermost(f: Fold) -> tuple[list[Fold], Expr] | None:
    """Return a nest of folds that run through one scalar accumulator, and its step."""
    folds = [f]
    while True:
        f = folds[-1]
        if len(f.accumulators) != 1 or f.accumulators[0].shape or f.accumulators[0].real:
            return None
        body = f.bodies[0]
        if not isinstance(body, Comprehension):
            return None
        step = body.body
        if step.op != "load" or not isinstance(step.data, FoldResult) or step.data.history:
            return folds, step
        inner = step.data.fold
        first = inner.initial[0]
        passed = isinstance(first, Comprehension) and first.body.op == "load" and first.body.data is f.accumulators[0]
        if len(inner.initial) != 1 or not passed:
            return None
        folds.append(inner)


def folded(ev: Evaluator, f: Fold, made: type[Blocked] | None = None, traced: type[FoldTrace] = FoldTrace) -> Store | None:
    """Return the accumulator of a fold after its last step; None when it is not a blocked fold.

    `made` computes it, machine code where it is not given; `traced` decides what its steps may be.
    """
    nest = innermost(f)
    if nest is None:
        return None
    folds, step = nest
    start = f.initial[0]
    if not isinstance(start, Comprehension) or not iv.inside(f.accumulators[0].interval, INT32):
        return None
    variables = [x.variable for x in folds]
    try:
        if any(not x.extent.free.isdisjoint(variables) for x in folds):
            return None
        loops = [(x.variable, ev.number(x.extent)) for x in folds]
        if math.prod(n for _, n in loops) == 0:
            return None
        first = ev.whole(start.body)
        with ev.inner(axes=loops):
            trace = traced(ev, accumulator=folds[-1].accumulators[0], loops=tuple(axis_of(v) for v, _ in loops))
            codes = [_code(trace, step)]
            if trace.has_last:
                trace.is_last = True
                codes.append(_code(trace, step))
            if not trace.sites:
                return None
            run = (made or Blocked)(ev, [(axis_of(v), n) for v, n in loops], trace, codes, first)
            found = run.result(np.dtype(storage_dtype(f.accumulators[0].interval)))
    except (TooWide, SpecError):
        return None
    return Store(found.data, found.axes)


def _code(trace: FoldTrace, step: Expr) -> Code:
    """Return the code of a step; its last operator is its value."""
    tracer = Tracer(trace.leaf)
    if tracer.trace(step) != len(tracer.code) - 1:
        raise TooWide
    return tuple(tracer.code)


class Blocked:
    """One call of a kernel."""

    def __init__(self, ev: Evaluator, loops: Sequence[tuple[Axis, int]], trace: FoldTrace, codes: Sequence[Code], first: Named) -> None:
        self.ev, self.loops, self.trace, self.codes, self.first = ev, loops, trace, codes, first
        inner = {a for a, _ in loops}
        self.rows, self.columns = self._sides(inner)
        rest = set(first.axes) - set(self.rows) - set(self.columns)
        self.rows = ev.axes.union(self.rows, tuple(rest))

    def _sides(self, inner: set[Axis]) -> tuple[tuple[Axis, ...], tuple[Axis, ...]]:
        """Return the axes of rows and of columns: no product has one axis on both sides."""
        axes = [[frozenset(f.strides) - inner - {s.lane} for f in s.factors] for s in self.trace.sites]
        size = self.ev.axes.shape
        a, b = axes[0]
        if math.prod(size(tuple(a))) < math.prod(size(tuple(b))):
            a, b = b, a
        for one, other in axes:
            if not ((one <= a and other <= b) or (one <= b and other <= a)):
                raise TooWide
        if a & b or math.prod(size(tuple(a))) * math.prod(size(tuple(b))) < LANES:
            raise TooWide
        self.row_axes = a
        return self.ev.axes.union(tuple(a)), self.ev.axes.union(tuple(b))

    def result(self, kind: np.dtype[np.generic]) -> Named:
        """Return the accumulator after the last step, stored in `kind`."""
        from .native_fold import FORMS, ROWS, Kernel, best_form, run_fold

        form = best_form()
        lanes, _ = FORMS[form]
        size = self.ev.axes.shape
        m, n = math.prod(size(self.rows)), math.prod(size(self.columns))
        padded, tiles = -(-m // ROWS) * ROWS, -(-n // lanes)
        tables, slots, operators = self._operands()
        packed = self._packed(slots, tiles, lanes)
        start = self._start(m, n, padded, tiles * lanes)
        codes = [tuple(self._placed(op, operators) for op in c) for c in self.codes]
        (code, *last), packed = self._shifted(codes, packed)
        tape = self.ev.axes.taping(self.rows, self.columns)
        out = np.empty((padded, tiles * lanes), kind) if tape is None else tape.empty((padded, tiles * lanes), kind)
        kernel = Kernel(
            code, len(tables), packed.shape[2], kind.str, form, start is not None, last[0] if last else (), len(self.trace.scalars)
        )
        steps = math.prod(n for _, n in self.loops)
        numbers = [padded, tiles, steps, tiles * lanes, *self.trace.scalars]
        along = [(a, self.ev.axes.extent[a]) for a in self.rows]
        given = []
        for f in tables:
            rows, step = offsets(_moves(f, along), padded), offsets(_moves(f, self.loops), steps)
            if max(int(rows[-1]), int(step[-1])) >= 1 << 30:
                raise TooWide
            given.append((f.data, rows, step))
        run_fold(kernel, given, packed, start, out, numbers, tape)
        return self.ev.axes.ordered(out[:m, :n].reshape(*size(self.rows), *size(self.columns)), (*self.rows, *self.columns))

    def _shifted(self, codes: list[Code], packed: Data) -> tuple[list[Code], Data]:
        """Return codes and columns with two sums in place of products that are shifted one by one, where there are."""
        found = [shifted_sum(c) for c in codes]
        if packed.shape[-1] < MOST_LANES or self.ev.axes.taping(*(b.strides for b, _ in self.factors)) is not None:
            return codes, packed
        if None in found or len({f[2] for f in found if f is not None}) > 1 or found[0] is None or len(found[0][1]) != packed.shape[2]:
            return codes, packed
        return [split_code(c, f) for c, f in zip(codes, found, strict=True) if f is not None], split_words(packed, found[0][2])

    def _start(self, m: int, n: int, padded: int, width: int) -> Data | None:
        """Return the values before the first step; None when all are 0."""
        first = self.first
        if not first.axes and int(first.data) == 0:
            return None
        order = (*self.rows, *self.columns)
        grid = self.ev.axes.union(order)
        full = self.ev.axes.full(first, grid).transpose([grid.index(a) for a in order])
        tape = self.ev.axes.taping(grid)
        start = np.zeros((padded, width), np.int32) if tape is None else tape.empty((padded, width), np.int32)
        self.ev.axes.assign(start[:m, :n].reshape(full.shape), full, grid)
        return start

    def _operands(self) -> tuple[list[Factor], list[Data], list[tuple[int, int, int, int]]]:
        """Return the tables of A, the slots of B as [columns, steps, words], and each site's (table, offset, slot, pairs)."""
        tables: list[Factor] = []
        slots: list[Data] = []
        factors: list[tuple[Factor, Site]] = []
        found = []
        for s in self.trace.sites:
            a, b = s.factors
            inner = {x for x, _ in self.loops} | {s.lane}
            if not (frozenset(a.strides) - inner <= self.row_axes and frozenset(b.strides) - inner <= set(self.columns)):
                a, b = b, a
            a = self._rows_of(a, s)
            table, delta = _table_of(tables, a, s.lane)
            found.append((table, delta, sum(x.shape[2] for x in slots), s.lanes // 2))
            slots.append(self._columns_of(b, s))
            factors.append((b, s))
        self.factors = factors
        return tables, slots, found

    def _packed(self, slots: Sequence[Data], tiles: int, lanes: int) -> Data:
        """Return the columns of B in tiles; packed again whenever a tape is played where they depend on samples."""
        packed = packed_columns(slots, tiles, lanes)
        tape = self.ev.axes.taping(*(b.strides for b, _ in self.factors))
        if tape is None:
            return packed
        found = tape.empty(packed.shape, packed.dtype)
        found[...] = packed
        extent = self.ev.axes.fixed().extent
        steady = [(Factor(tape.steady(b.data), b.strides), s) for b, s in self.factors]
        tape.again(found, lambda: packed_columns([self._columns_of(b, s, extent) for b, s in steady], tiles, lanes))
        return found

    def _rows_of(self, a: Factor, s: Site) -> Factor:
        """Return A with 16-bit elements, lanes side by side."""
        if a.data.dtype == np.int16 and (not s.lanes or a.strides.get(s.lane) == 1):
            return a
        names = tuple(a.strides)
        order = [*(x for x in names if x != s.lane), *([s.lane] if s.lanes else [])]
        if s.lanes and s.lane not in names:
            raise TooWide
        tape = self.ev.axes.taping(names)
        data = a.data.transpose([names.index(x) for x in order])
        data = np.ascontiguousarray(data, np.int16) if tape is None else tape.copied(data, np.int16)
        return Factor(data, {x: n // 2 for x, n in zip(order, data.strides, strict=True)})

    def _columns_of(self, b: Factor, s: Site, extent: Mapping[Axis, int] | None = None) -> Data:
        """Return B as [columns, steps, words]: a word holds two lanes, or one factor in its lower half."""
        names = tuple(b.strides)
        order = [*self.columns, *(x for x, _ in self.loops), *([s.lane] if s.lanes else [])]
        extent = extent or self.ev.axes.extent
        shape = [extent[x] for x in order[: len(order) - bool(s.lanes)]] + ([s.lanes] if s.lanes else [])
        missing = [x for x in order if x not in names]
        data = b.data.transpose([names.index(x) for x in order if x in names])
        for x in missing:
            data = np.expand_dims(data, order.index(x))
        data = np.broadcast_to(data, shape).reshape(math.prod(shape[: len(self.columns)]), -1, max(s.lanes, 1))
        return words_of(data, is_pairs=s.lanes > 0)

    def _placed(self, op: Op, operators: Sequence[tuple[int, int, int, int]]) -> Op:
        if op.name not in ("dot", "product"):
            return op
        return Op(op.name, (), operators[op.data], op.bits)


def words_of(data: Data, *, is_pairs: bool) -> Data:
    """Return factors [columns, steps, lanes] as 32-bit words: pairs of lanes, or each in a lower half."""
    if is_pairs:
        return np.ascontiguousarray(data, np.int16).view(np.int32)
    return data.astype(np.int32) & 0xFFFF


def packed_columns(slots: Sequence[Data], tiles: int, lanes: int) -> Data:
    """Return [columns, steps, words] as [tiles, steps, words, columns of a tile], missing columns 0."""
    joined = slots[0] if len(slots) == 1 else np.concatenate(slots, axis=2)
    n, steps, words = joined.shape
    if n < tiles * lanes:
        joined = np.concatenate([joined, np.zeros((tiles * lanes - n, steps, words), joined.dtype)])
    return np.ascontiguousarray(joined.reshape(tiles, lanes, steps, words).transpose(0, 2, 3, 1))


def _table_of(tables: list[Factor], a: Factor, lane: Axis) -> tuple[int, int]:
    """Return which table has the offsets of `a`, and how far its elements are from those."""
    moves = {x: n for x, n in a.strides.items() if x != lane}
    for n, known in enumerate(tables):
        apart = a.data.ctypes.data - known.data.ctypes.data
        if {x: s for x, s in known.strides.items() if x != lane} == moves and abs(apart) < 64:
            return n, apart // 2
    tables.append(a)
    return len(tables) - 1, 0


def _moves(f: Factor, along: Sequence[tuple[Axis, int]]) -> tuple[tuple[int, int], ...]:
    return tuple((f.strides.get(a, 0), n) for a, n in along)


@lru_cache(maxsize=256)
def offsets(moves: tuple[tuple[int, int], ...], length: int) -> Data:
    """Return Σ stride · position over a grid, row-major, the last one repeated up to `length`."""
    total = np.zeros(1, np.int64)
    for stride, n in moves:
        total = (total[:, None] + stride * np.arange(n)).reshape(-1)
    found = np.empty(length, np.int32)
    found[: len(total)] = total
    found[len(total) :] = total[-1]
    return found
