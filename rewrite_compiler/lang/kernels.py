"""Kernels: terms of the arrays reading that machine code computes, over all axes at once; the others stay with numpy.

A term is traced to straight-line code. What it reads through affine indices is given as strided arrays, what is the same
on the whole grid as numbers, and what machine words cannot hold or machine code cannot do is evaluated by numpy first.
"""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ..errors import SpecError
from . import intervals as iv
from .binders import Fold, Leaf, Table
from .bytewise import byte_stored, word_loaded
from .expr import Expr, wrap
from .named import Axis, Data, Named, Store, axis_of, moving, reach, storage_dtype, strided
from .straight import REAL, Code, Op, TooWide, Tracer, bits_of, is_operator, is_real_operator
from .tape import Grid, Ran, Span, Unary
from .traversal import terms_of
from .trimmed import placed

if TYPE_CHECKING:
    from .arrays import Evaluator
    from .native_grid import Shape
    from .products import Multiplier
    from .tape import Tape

LEAST_ELEMENTS = 1 << 9  # below, a call costs more than numpy's own
UNIFORM_ELEMENTS = 1 << 12  # conditions of up to this size are computed first: a choice that is the same everywhere costs nothing
UNROLLED, NEAR = 8, 16
SHORT = 64  # a reduction of so many steps is compiled for its length
MOST_INLINED = 40  # operators of a table's function that are faster than a read of its entry
TOO_WIDE = "a value does not fit a word of 64 bits, or is no integer"
Strides = dict[Axis, int]


@dataclass
class Operand:
    """An array read by a kernel: the first element, strides in elements, and the first value when it is an index."""

    data: Data
    strides: Strides
    start: int | None = None


@dataclass
class Trace:
    """The code of one term, and its operands."""

    ev: Evaluator
    operands: list[Operand] = field(default_factory=list)
    tables: list[Data] = field(default_factory=list)
    scalars: list[int] = field(default_factory=list)
    axes: set[Axis] = field(default_factory=set)
    work: int = 0  # operators and tables
    moved: dict[Expr, bool] = field(default_factory=dict)
    sampled: dict[Leaf, bool] = field(default_factory=dict)

    def leaf(self, e: Expr) -> Op | Expr | None:
        """Return how a term is given to the code; None when it is an operator of it."""
        if not self.varies(e):
            return self._scalar(e)
        if e in self.ev.ahead or (e.op == "wrap" and e.args[0].op == "reduce"):
            return self._array(e, self.ev.value(e))
        if (word := word_loaded(self.ev, e)) is not None:
            self.work += 1
            return self._strided(e, *word)
        if e.op == "var":
            return self._index(e)
        if e.op == "load":
            return self._load(e)
        if e.op == "select" and (chosen := self._chosen(e)) is not None:
            return chosen
        if is_operator(e) or is_real_operator(e):
            self.work += 1
            return None
        return self._array(e, self.ev.value(e))

    def varies(self, e: Expr) -> bool:
        """Tell whether a term may differ between the elements of the grid."""
        found = self.moved.get(e)
        if found is None:
            ev = self.ev
            found = self.moved[e] = any(ev.is_axis(v) for v in e.free) or any(map(self.is_sampled, e.reads))
        return found

    def is_sampled(self, leaf: Leaf) -> bool:
        """Tell whether any part of a leaf has batch axes."""
        if leaf not in self.sampled:
            self.sampled[leaf] = bool(self.ev.batch_of(leaf))
        return self.sampled[leaf]

    def table(self, e: Expr, entries: Data, at: int) -> Op:
        """Return the operator that reads the entries of a table."""
        number = next((n for n, known in enumerate(self.tables) if known is entries), len(self.tables))
        if number == len(self.tables):
            self.tables.append(entries)
        self.work += 1
        return Op("table", (at,), number, bits_of(e))

    def _scalar(self, e: Expr) -> Op:
        value = self.ev.value(e)
        if value.axes or e.real:
            return self._array(e, value)
        self.scalars.append(int(value.data))
        return Op("scalar", (), len(self.scalars) - 1, bits_of(e))

    def _chosen(self, e: Expr) -> Expr | None:
        condition = e.args[0]
        if not self.varies(condition):
            return e.args[1] if self.ev.number(condition) else e.args[2]
        around = [axis_of(v) for v in condition.free if self.ev.is_axis(v)]
        if any(map(self.is_sampled, condition.reads)) or math.prod(self.ev.axes.shape(around)) > UNIFORM_ELEMENTS:
            return None
        data = np.asarray(self.ev.value(condition).data)
        if data.size and (data == data.flat[0]).all():
            return e.args[1] if data.flat[0] else e.args[2]
        return None

    def _index(self, e: Expr) -> Op:
        axis = axis_of(e)
        start, count = self.ev.axes.start[axis], self.ev.axes.extent[axis]
        return self._operand(e, np.arange(start, start + count, dtype=np.int32 if bits_of(e) == 32 else np.int64), {axis: 1}, start)

    def _load(self, e: Expr) -> Op:
        ev = self.ev
        store = ev.store_of(e.data)
        known = [ev.affine(i) for i in e.args]
        if store.data.dtype.kind not in "iuf" or 0 in store.own or None in known:
            return self._array(e, ev.value(e))
        indices = [moving(i) for i in known if i is not None]
        box = [reach(i, ev.axes) for i in indices]
        if any(low < 0 or high >= n for (low, high), n in zip(box, store.own, strict=True)):
            return self._array(e, ev.value(e))
        window, origin = store.window([b[0] for b in box], [b[1] for b in box], ev.axes)
        view, names = strided(window, origin, indices, ev.axes)
        return self._strided(e, view, names)

    def _array(self, e: Expr, x: Named) -> Op:
        if not x.axes and e.real:
            raise TooWide
        if not x.axes:
            self.scalars.append(int(x.data))
            return Op("scalar", (), len(self.scalars) - 1, bits_of(e))
        return self._strided(e, x.data, x.axes)

    def _strided(self, e: Expr, data: Data, axes: Sequence[Axis]) -> Op:
        is_known = data.dtype.kind in "iu" and data.dtype != np.uint64 and not e.real
        if not (is_known or (data.dtype == np.float64 and e.real)) or any(s % data.itemsize for s in data.strides):
            raise TooWide
        strides = {a: s // data.itemsize for a, s, n in zip(axes, data.strides, data.shape, strict=True) if n != 1}
        self.axes.update(axes)
        return self._operand(e, data, strides)

    def _operand(self, e: Expr, data: Data, strides: Strides, start: int | None = None) -> Op:
        self.axes.update(strides)
        for n, known in enumerate(self.operands):
            apart = data.ctypes.data - known.data.ctypes.data
            is_near = abs(apart) < NEAR * data.itemsize and apart % data.itemsize == 0
            if is_near and known.data.dtype == data.dtype and known.strides == strides and start is known.start is None:
                return Op("array", (), (n, apart // data.itemsize), REAL if e.real else bits_of(e))
        self.operands.append(Operand(data, strides, start))
        return Op("array", (), (len(self.operands) - 1, 0), REAL if e.real else bits_of(e))


class GridTracer(Tracer):
    """The tracer of a grid: tables are operators of it."""

    def __init__(self, ev: Evaluator) -> None:
        """Read operands through `ev`."""
        self.found = Trace(ev)
        super().__init__(self._leaf)

    def _leaf(self, e: Expr) -> Op | Expr | None:
        if e.op != "table" or e.real or not self.found.varies(e):
            return self.found.leaf(e)
        if is_short(e.data):
            return _inlined(e)
        flat: Expr | None = None
        for x, n, d in zip(e.args, e.data.shape, e.data.domains, strict=True):
            place = x - (d[0] or 0)
            flat = place if flat is None else flat * n + place
        assert flat is not None
        entries, place = placed(e.data, flat)
        return self.found.table(e, entries, self.trace(place))


@lru_cache(maxsize=1024)
def _inlined(e: Expr) -> Expr:
    """Return the term that an entry of a table is."""
    body: Expr = e.data.function(*e.args)
    return body


@lru_cache(maxsize=1024)
def is_short(table: Table) -> bool:
    """Tell whether an entry is computed sooner than it is read: vectors of machine words are, reads of a table are not."""
    inner = [x for x in terms_of(table.body) if x.op not in ("const", "var")]
    return not table.body.real and len(inner) <= MOST_INLINED and all(map(is_operator, inner))


def loaded_kernels() -> Kernels | str:
    """Return kernels without a history, or why there is no machine code on this machine."""
    try:
        from . import native_jit

        native_jit.host()
    except (ImportError, OSError, RuntimeError) as error:
        return f"machine code cannot be made here: {error}"
    return Kernels()


def kernels_in_use() -> Kernels | None:
    """Return kernels where machine code has been made already, else None: nobody waits for it who did not ask for it."""
    return Kernels() if f"{__package__}.native_jit" in sys.modules else None


class Kernels:
    """The machine code of an evaluator, and what it has done."""

    def __init__(self) -> None:
        """Start with counts of 0."""
        self.grids = 0
        self.products = 0
        self.folds = 0
        self.refused: dict[str, None] = {}  # why numpy computed what is large

    def value(self, ev: Evaluator, e: Expr, order: Sequence[Axis] = ()) -> Named | None:
        """Return the value of a term over its axes, those of `order` innermost; None when numpy has to compute it."""
        if e.op in ("const", "var", "load") or e.real:
            return None
        if (parts := byte_stored(ev, e, order)) is not None and (whole := self._bytes(ev, *parts, order)) is not None:
            return whole
        tracer = GridTracer(ev)
        try:
            if not tracer.found.varies(e) or self._is_small(ev, e):
                return None
            last = tracer.trace(e)
        except TooWide:
            self.refused[TOO_WIDE] = None
            return None
        except SpecError as refusal:
            self.refused[refusal.problem.sentence] = None
            return None
        found, kind = tracer.found, np.dtype(storage_dtype(e.interval))
        axes = ev.axes.union(tuple(found.axes))
        if not found.work or not axes or 0 in ev.axes.shape(axes):
            return None
        if kind.hasobject:  # a choice that is the same everywhere may be of words, though the other one is not
            self.refused[TOO_WIDE] = None
            return None
        code = tracer.code if last == len(tracer.code) - 1 else [*tracer.code, Op("wrap", (last,), (64, True), bits_of(e), 64)]
        self.grids += 1
        return _run(found, tuple(code), _loop_order(axes, order), kind, launch=self.launched)

    def _bytes(self, ev: Evaluator, word: Expr, variable: Expr, count: int, order: Sequence[Axis]) -> Named | None:
        """Return the bytes of words, all of a word at once."""
        axis = axis_of(variable)
        words = self.value(ev, word if word.op == "wrap" else wrap(word, 8 * count, False), [a for a in order if a != axis])
        if words is None or words.data.dtype.itemsize != count:
            return None
        inner = [a for a in order if a in words.axes]
        layout = [*(a for a in words.axes if a not in inner), *inner]
        data = words.data.transpose([words.axes.index(a) for a in layout])
        if not data.flags.c_contiguous:
            return None
        found = data.view(np.uint8).reshape(*data.shape, count)
        return ev.axes.ordered(found, [*layout, axis])

    def fold(self, ev: Evaluator, f: Fold) -> list[Store] | None:
        """Return the accumulator after the last step of a blocked fold; None when numpy has to compute it."""
        from .blocked import folded

        found = folded(ev, f)
        if found is None:
            self.refused["a fold is not one over sums of products of 16-bit factors"] = None
            return None
        self.folds += 1
        return [found]

    def product(
        self, ev: Evaluator, e: Expr, pair: Sequence[Expr], values: tuple[Named, Named], over: Sequence[Axis], *, modular: bool
    ) -> Named | None:
        """Return Σ over a·b, modulo 2^32 when `modular`; None when numpy has to compute it."""
        from .products import is_exact, product

        if not is_exact(e, pair, modular=modular) or not all(isinstance(x.data, np.ndarray) for x in values):
            return None
        found = product(*values, over, ev.axes, self.multiplier())
        self.products += found is not None
        return found

    def multiplier(self) -> Multiplier:
        """Return what multiplies matrices."""
        from .native_products import native_products

        return native_products()

    def reduced(
        self, ev: Evaluator, monoid: str, body: Expr, variables: Sequence[Expr], count: int, *, modular: bool = False
    ) -> Named | None:  # fmt: skip
        """Return a sum (modulo 2^32 when `modular`), maximum or minimum over bound variables; None when numpy has to compute it."""
        bound = iv.maximum(body.interval, iv.neg(body.interval))[1]
        if body.op in ("const", "var") or body.real or bound is None or bound * count >= 1 << 63:
            return None
        tracer = GridTracer(ev)
        try:
            if not tracer.found.varies(body) or self._is_small(ev, body):
                return None
            last = tracer.trace(body)
        except (TooWide, SpecError):
            return None
        found, over = tracer.found, [axis_of(v) for v in variables]
        if not set(over) <= found.axes or last != len(tracer.code) - 1:
            return None
        kept = [a for a in ev.axes.union(tuple(found.axes)) if a not in over]
        inner = next((a for a in (over[-1], *(reversed(kept) if monoid == "sum" else ())) if _in_runs(found, a)), None)
        if inner is None:
            return None
        self.grids += 1
        order = [*kept, *over] if inner == over[-1] else [*(a for a in kept if a != inner), *over, inner]
        kind = np.dtype(np.int32 if modular or bound * count < 1 << 31 else np.int64)
        return _run(found, tuple(tracer.code), order, kind, over, monoid, launch=self.launched)

    def of_samples(
        self, ev: Evaluator, pair: Sequence[Expr], variables: Sequence[Expr], count: int, *, modular: bool
    ) -> Named | None:  # fmt: skip
        """Return a sum of products of a matrix and a vector that both depend on samples: read once each, nothing is worth packing."""
        around = [{a for a in self._axes_of(ev, f) if ev.axes.extent[a] > 1} - {axis_of(v) for v in variables} for f in pair]
        if ev.axes.taping(around[0] & around[1]) is None or not (around[0] <= around[1] or around[1] <= around[0]):
            return None
        return self.reduced(ev, "sum", pair[0] * pair[1], variables, count, modular=modular)

    def launched(
        self, code: tuple[Op, ...], sides: Sequence[Operand], tables: Sequence[Data], scalars: Sequence[int], order: Sequence[Axis],
        extent: Mapping[Axis, int], monoid: str = "",
    ) -> tuple[Any, Data]:  # fmt: skip
        """Return the function of addresses that computes a grid, and the numbers it is given last."""
        return launched(code, sides, tables, scalars, order, extent, monoid)

    def _axes_of(self, ev: Evaluator, e: Expr) -> set[Axis]:
        return {axis_of(v) for v in e.free if ev.is_axis(v)}.union(*(ev.batch_of(leaf) for leaf in e.reads))

    def _is_small(self, ev: Evaluator, e: Expr) -> bool:
        is_recorded = ev.axes.taping(*(ev.batch_of(leaf) for leaf in e.reads)) is not None
        return not is_recorded and ev.elements(e.free, e.reads) < LEAST_ELEMENTS


def _run(
    found: Trace, code: tuple[Op, ...], order: list[Axis], kind: np.dtype[np.generic], over: Sequence[Axis] = (), monoid: str = "",
    *, launch: Callable[..., tuple[Any, Data]],
) -> Named:  # fmt: skip
    """Compute the grid into a new array with its axes in `order`; those of `over`, the last ones, are reduced by a monoid."""
    extent = found.ev.axes.extent
    kept = [a for a in order if a not in over]
    shape = tuple(extent[a] for a in kept)
    tape = found.ev.axes.taping(order)
    out = np.empty(shape, kind) if tape is None else tape.empty(shape, kind)
    result = Operand(out, {a: s // out.itemsize for a, s in zip(kept, out.strides, strict=True)})
    run, given = launch(code, [result, *found.operands], found.tables, found.scalars, order, extent, monoid)
    tables = [t.ctypes.data for t in found.tables]
    if order and monoid and _moves(order, kept, extent):
        out.fill(0)
        run = partial(_from_zero, run, out.nbytes)
    run(out.ctypes.data, *(o.data.ctypes.data for o in found.operands), *tables, given.ctypes.data)
    if tape is not None:
        tape.keep(*found.tables)
        rest = (*tables, tape.address(given))
        steady = [replace(o, data=tape.steady(o.data)) for o in found.operands]
        reads = [_span(o, order, extent, _deltas(code, n)) for n, o in enumerate(steady)]
        key = (code, monoid, rest[:-1], given.tobytes())
        call = Ran(tape.steady(out), reads, lambda places: partial(run, *places, *rest), None if monoid else code, key)
        extents = [extent[a] for a in order]
        call.unary = None if monoid else _unary(tape, found, code, extents, order)
        call.grid = None if monoid else _grid(found, code, steady, extents, order)
        tape.calls.append(call)
    return found.ev.axes.ordered(out, kept)


def _unary(tape: Tape, found: Trace, code: Code, shape: Sequence[int], order: Sequence[Axis]) -> Unary | None:
    """Return what code computes from one element each; None where it reads any other."""
    if len(found.operands) != 1 or _deltas(code, 0) != [0] or not tape.owns(found.operands[0].data):
        return None
    return Unary(_plain(found, code), tuple(found.tables), tape.steady(_over(found.operands[0], shape, order)))


def _grid(found: Trace, code: Code, kept: Sequence[Operand], shape: Sequence[int], order: Sequence[Axis]) -> Grid | None:
    """Return what code computes from an element of each operand; None where it looks up tables, or reads other elements."""
    if found.tables or any(_deltas(code, n) != [0] for n in range(len(kept))):
        return None
    return Grid(_plain(found, code), tuple(_over(o, shape, order) for o in kept))


def _over(o: Operand, shape: Sequence[int], order: Sequence[Axis]) -> Data:
    """Return an operand along all axes of a grid."""
    return as_strided(o.data[(slice(0, 1),) * o.data.ndim], shape, [o.strides.get(a, 0) * o.data.itemsize for a in order])


def _plain(found: Trace, code: Code) -> Code:
    """Return code with numbers in place of scalars."""
    return tuple(Op("const", (), found.scalars[op.data], op.bits) if op.name == "scalar" else op for op in code)


def _in_runs(found: Trace, axis: Axis) -> bool:
    """Tell whether all operands have their elements side by side along an axis, or do not move."""
    return all(o.strides.get(axis, 0) in (0, 1) for o in found.operands) and found.ev.axes.extent[axis] > 1


def _moves(order: Sequence[Axis], kept: Sequence[Axis], extent: Mapping[Axis, int]) -> bool:
    """Tell whether the innermost loop moves the result, so that elements are added to it."""
    inner = next((a for a in reversed(order) if extent[a] > 1), None)
    return inner in kept


def _from_zero(run: Callable[..., None], size: int, first: int, *rest: int) -> None:
    ctypes.memset(first, 0, size)
    run(first, *rest)


def _deltas(code: Iterable[Op], number: int) -> list[int]:
    """Return how far from an operand's first element code reads it."""
    return [op.data[1] for op in code if op.name == "array" and op.data[0] == number] or [0]


def _span(o: Operand, order: Sequence[Axis], extent: Mapping[Axis, int], deltas: Sequence[int]) -> Span:
    """Return the elements of an operand that a loop nest reads."""
    far = [o.strides.get(a, 0) * (extent[a] - 1) for a in order]
    low, high = sum(min(f, 0) for f in far) + min(deltas), sum(max(f, 0) for f in far) + max(deltas)
    return Span(o.data, low, high + 1)


def launched(
    code: tuple[Op, ...], sides: Sequence[Operand], tables: Sequence[Data], scalars: Sequence[int], order: Sequence[Axis],
    extent: Mapping[Axis, int], monoid: str = "", *, seen: bool = False,
) -> tuple[Any, Data]:  # fmt: skip
    """Return the function for a result and operands that lie along the axes of `order`, and the numbers it is given last.

    With a monoid, the last axes, along which the result does not move, are reduced. Where it is `seen`, a place for two words follows.
    """
    from .native_grid import ANY_STRIDE, Shape, Side, grid_function

    loops = merged([(extent[a], [o.strides.get(a, 0) for o in sides]) for a in order if extent[a] > 1])
    loops = loops if loops or not monoid else [(1, [0] * len(sides))]
    unroll, steps = 1, [0] * len(sides)
    if not monoid and len(loops) > 1 and loops[-1][0] <= UNROLLED and loops[-1][0] * len(code) <= UNROLLED * 32:
        unroll, steps = loops.pop()
    kinds = []
    for n, o in enumerate(sides):
        inner = loops[-1][1][n] if loops else 0
        is_fixed = o.start is not None and unroll > 1 and not any(s[n] for _, s in loops)
        kinds.append(Side(o.data.dtype.str, inner if inner in (0, 1) else ANY_STRIDE, steps[n], o.start if is_fixed else None))
    types = tuple(t.dtype.str for t in tables)
    key: Shape = Shape(code, kinds[0], tuple(kinds[1:]), types, len(loops), unroll, *_reduction(loops, monoid), seen)
    numbers = [n for n, _ in loops] + [s[k] for k in range(len(sides)) for _, s in loops] + list(scalars)
    _, run = grid_function(key)
    return run, np.array(numbers or [0], np.int64)


def _reduction(loops: Sequence[tuple[int, list[int]]], monoid: str) -> tuple[str, int, int]:
    """Return the monoid, how many of the innermost loops it reduces, and the length of the last one where it is short."""
    if not monoid:
        return "", 0, 0
    if loops[-1][1][0]:
        return monoid, 0, 0  # the innermost loop moves the result: elements are added to it
    outer = max((n + 1 for n, (_, strides) in enumerate(loops) if strides[0]), default=0)
    return monoid, len(loops) - outer, loops[-1][0] if loops[-1][0] <= SHORT else 0


def _loop_order(axes: tuple[Axis, ...], order: Sequence[Axis]) -> list[Axis]:
    """Return the axes from the outermost loop to the innermost: those of `order`, where a diagonal is twice, after the others."""
    inner = [a for a in dict.fromkeys(order) if a in axes]
    return [*(a for a in axes if a not in inner), *inner]


def merged(loops: list[tuple[int, list[int]]]) -> list[tuple[int, list[int]]]:
    """Join loops that are one progression in every array."""
    found: list[tuple[int, list[int]]] = []
    for extent, strides in loops:
        if found and all(a == b * extent for a, b in zip(found[-1][1], strides, strict=True)):
            found[-1] = (found[-1][0] * extent, strides)
        else:
            found.append((extent, strides))
    return found
