"""Kernel selection: terms traced to straight-line code over a grid, and the machine code that runs it.

Loads at affine indices are strided operands, uniform subterms are scalar operands, and subterms outside 64-bit integer code
are evaluated by numpy and passed as operands.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from ...lang.binders import Leaf, Table
from ...lang.expr import Expr
from ...lang.traversal import terms_of
from ..arrays.evaluator import table_data
from ..arrays.labelled_array import Axis, Data, LabelledArray, axis_of, strided_view, value_range, without_zero_terms
from ..arrays.scope import Evaluation
from ..straightline.code import REAL, Op, TooWide, Tracer, bits_of, is_operator, is_real_operator

UNIFORM_ELEMENTS = 1 << 12  # conditions of up to this size are computed first: a choice that is the same everywhere costs nothing
MAX_UNROLLED, MAX_OFFSET = 8, 16
MAX_INLINED = 40  # operators of a table's function that are faster than a read of its entry
Strides = dict[Axis, int]


@dataclass
class Operand:
    """An array read by a kernel: the first element, strides in elements, and the first value when it is an index."""

    data: Data
    strides: Strides
    start: int | None = None


@dataclass
class OperandTrace:
    """The operands of the straight-line code of a term."""

    ev: Evaluation
    operands: list[Operand] = field(default_factory=list)
    tables: list[Data] = field(default_factory=list)
    scalars: list[int] = field(default_factory=list)
    axes: set[Axis] = field(default_factory=set)
    work: int = 0  # operators and tables
    varying_terms: dict[Expr, bool] = field(default_factory=dict)
    batched_leaves: dict[Leaf, bool] = field(default_factory=dict)

    def leaf(self, e: Expr) -> Op | Expr | None:
        """Return the operand that stands for a term, or the term to trace in its place; None when its operator is part of the code."""
        if not self.varies(e):
            return self._scalar(e)
        if e in self.ev.hoisted or (e.op == "wrap" and e.args[0].op == "reduce"):
            return self._array(e, self.ev.value(e))
        if e.op == "var":
            return self._index(e)
        if e.op == "load":
            return self._load(e)
        if e.op == "select" and (branch := self._uniform_branch(e)) is not None:
            return branch
        if is_operator(e) or is_real_operator(e):
            self.work += 1
            return None
        return self._array(e, self.ev.value(e))

    def varies(self, e: Expr) -> bool:
        """Tell whether a term may differ between the elements of the grid."""
        is_varying = self.varying_terms.get(e)
        if is_varying is None:
            ev = self.ev
            is_varying = self.varying_terms[e] = any(ev.is_axis(v) for v in e.free) or any(map(self.is_sampled, e.reads))
        return is_varying

    def is_sampled(self, leaf: Leaf) -> bool:
        """Tell whether any region of a leaf has batch axes."""
        if leaf not in self.batched_leaves:
            self.batched_leaves[leaf] = bool(self.ev.batch_of(leaf))
        return self.batched_leaves[leaf]

    def table(self, e: Expr, entries: Data, at: int) -> Op:
        """Return the operator that reads the entries of a table."""
        number = next((n for n, existing in enumerate(self.tables) if existing is entries), len(self.tables))
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

    def _uniform_branch(self, e: Expr) -> Expr | None:
        condition = e.args[0]
        if not self.varies(condition):
            return e.args[1] if self.ev.number(condition) else e.args[2]
        condition_axes = [axis_of(v) for v in condition.free if self.ev.is_axis(v)]
        if any(map(self.is_sampled, condition.reads)) or math.prod(self.ev.axes.shape(condition_axes)) > UNIFORM_ELEMENTS:
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
        affine_indices = [ev.affine(i) for i in e.args]
        if store.data.dtype.kind not in "iuf" or 0 in store.element_shape or None in affine_indices:
            return self._array(e, ev.value(e))
        indices = [without_zero_terms(i) for i in affine_indices if i is not None]
        box = [value_range(i, ev.axes) for i in indices]
        if any(low < 0 or high >= n for (low, high), n in zip(box, store.element_shape, strict=True)):
            return self._array(e, ev.value(e))
        window, origin = store.window([b[0] for b in box], [b[1] for b in box], ev.axes)
        view, names = strided_view(window, origin, indices, ev.axes)
        return self._strided(e, view, names)

    def _array(self, e: Expr, x: LabelledArray) -> Op:
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
        for n, existing in enumerate(self.operands):
            distance = data.ctypes.data - existing.data.ctypes.data
            is_near = abs(distance) < MAX_OFFSET * data.itemsize and distance % data.itemsize == 0
            if is_near and existing.data.dtype == data.dtype and existing.strides == strides and start is existing.start is None:
                return Op("array", (), (n, distance // data.itemsize), REAL if e.real else bits_of(e))
        self.operands.append(Operand(data, strides, start))
        return Op("array", (), (len(self.operands) - 1, 0), REAL if e.real else bits_of(e))


class GridTracer(Tracer):
    """A tracer whose code has table reads; short tables are inlined as the terms of their entries."""

    def __init__(self, ev: Evaluation) -> None:
        """Read operands through `ev`."""
        self.operand_trace = OperandTrace(ev)
        super().__init__(self._leaf)

    def _leaf(self, e: Expr) -> Op | Expr | None:
        if e.op != "table" or e.real or not self.operand_trace.varies(e):
            return self.operand_trace.leaf(e)
        if is_short(e.data):
            return _inlined(e)
        flat: Expr | None = None
        for x, n, d in zip(e.args, e.data.shape, e.data.domains, strict=True):
            place = x - (d[0] or 0)
            flat = place if flat is None else flat * n + place
        assert flat is not None
        return self.operand_trace.table(e, table_data(e.data), self.trace(flat))


@lru_cache(maxsize=1024)
def _inlined(e: Expr) -> Expr:
    """Return the term that an entry of a table is."""
    body: Expr = e.data.function(*e.args)
    return body


@lru_cache(maxsize=1024)
def is_short(table: Table) -> bool:
    """Tell whether a table is cheaper computed than read: its function is vector code, a gather is not."""
    inner = [x for x in terms_of(table.body) if x.op not in ("const", "var")]
    return not table.body.real and len(inner) <= MAX_INLINED and all(map(is_operator, inner))


def machine_code_refusal() -> str:
    """Return why no machine code can be generated here, in a clause; an empty string where it can."""
    try:
        from ..native import jit

        jit.host()
    except (ImportError, OSError, RuntimeError) as error:
        return f"machine code cannot be made here: {error}"
    return ""


def has_machine_code() -> bool:
    """Tell whether the code generator is loaded: its start-up time is spent only on request."""
    return f"{(__package__ or '').rpartition('.')[0]}.native.jit" in sys.modules


def grid_launch(
    code: tuple[Op, ...], sides: Sequence[Operand], tables: Sequence[Data], order: Sequence[Axis], extent: Mapping[Axis, int],
    *, with_range: bool = False,
) -> tuple[Any, Data]:  # fmt: skip
    """Return the compiled grid function for a result and operands, loops nested in the `order` of axes, and its extents and strides.

    The extents and strides are its last argument; with `seen`, the address of two words for the range of the results follows.
    """
    from ..native.elementwise_nest import ANY_STRIDE, Access, GridKey, grid_function

    loops = merge_loops([(extent[a], [o.strides.get(a, 0) for o in sides]) for a in order if extent[a] > 1])
    unroll, steps = 1, [0] * len(sides)
    if len(loops) > 1 and loops[-1][0] <= MAX_UNROLLED and loops[-1][0] * len(code) <= MAX_UNROLLED * 32:
        unroll, steps = loops.pop()
    kinds = []
    for n, o in enumerate(sides):
        inner = loops[-1][1][n] if loops else 0
        is_fixed = o.start is not None and unroll > 1 and not any(s[n] for _, s in loops)
        kinds.append(Access(o.data.dtype.str, inner if inner in (0, 1) else ANY_STRIDE, steps[n], o.start if is_fixed else None))
    types = tuple(t.dtype.str for t in tables)
    key: GridKey = GridKey(code, kinds[0], tuple(kinds[1:]), types, len(loops), unroll, tracks_extrema=with_range)
    numbers = [n for n, _ in loops] + [s[k] for k in range(len(sides)) for _, s in loops]
    _, run = grid_function(key)
    return run, np.array(numbers or [0], np.int64)


def merge_loops(loops: list[tuple[int, list[int]]]) -> list[tuple[int, list[int]]]:
    """Collapse nested loops that are one arithmetic progression in every array; each loop is its extent and its strides."""
    merged_loops: list[tuple[int, list[int]]] = []
    for extent, strides in loops:
        if merged_loops and all(a == b * extent for a, b in zip(merged_loops[-1][1], strides, strict=True)):
            merged_loops[-1] = (merged_loops[-1][0] * extent, strides)
        else:
            merged_loops.append((extent, strides))
    return merged_loops
