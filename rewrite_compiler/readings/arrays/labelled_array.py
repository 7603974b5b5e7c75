"""Labelled arrays: numpy arrays whose axes carry the variables they stand for, the values of the arrays reading.

Only the axes a term depends on are materialised. `gather` and `scatter` read and write a store through index terms, by a
strided view where the indices are affine and by numpy's advanced indexing elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from ...lang import intervals as iv
from ...lang.expr import Expr, lift
from ...lang.intervals import Interval

Data = NDArray[Any]
Axis = int  # the serial number of the variable it stands for: terms cannot be compared with ==
FLOAT32_EXACT, FLOAT64_EXACT = 1 << 24, 1 << 53
MAX_TESTED_VALUES = 1 << 16  # most values of an index over several axes that are tested for being affine


@dataclass(frozen=True)
class LabelledArray:
    """`data` with one dimension for each of `axes`, in the order of binding."""

    data: Any  # ndarray, or a Python number when there are no axes
    axes: tuple[Axis, ...]


@dataclass(eq=False)
class Store:
    """The contents of an array: `batch` axes first, then its own dimensions."""

    data: Data
    batch: tuple[Axis, ...] = ()

    @property
    def element_shape(self) -> tuple[int, ...]:
        """The array's own dimensions."""
        return self.data.shape[len(self.batch) :]

    @cached_property
    def magnitude(self) -> int:
        """The largest magnitude of an integer element; for contents that do not change."""
        return _largest(self.data) if self.data.size else 0

    def window(self, low: Sequence[int], high: Sequence[int], axes: Axes) -> tuple[Store, Sequence[int]]:
        """Return a store that contains the box low … high, and the index of its first element in the whole array."""
        return self, [0] * len(low)

    def split_along(self, axes: Container[Axis]) -> list[Store]:
        """Return a store for each position along those of the batch axes that are in `axes`.

        An iteration writes its own element in the copies of all iterations, as the last copy is the one that remains.
        """
        place = next((n for n, b in enumerate(self.batch) if b in axes), None)
        if place is None:
            return [self]
        remaining_batch = (*self.batch[:place], *self.batch[place + 1 :])
        copies = [Store(copy, remaining_batch) for copy in np.moveaxis(self.data, place, 0)]
        return [part for copy in copies for part in copy.split_along(axes)]


def dtype_of(*intervals: Interval) -> Any:
    """Return the integer type in which values of all intervals are exact; object when none is."""
    word = iv.width_of(iv.hull(*intervals))
    if word is None:
        return np.int64
    bits, signed = word
    bits += 0 if signed else 1
    return np.int32 if bits <= 32 else np.int64 if bits <= 64 else object


def storage_dtype(interval: Interval, real: bool = False) -> Any:
    """Return the narrowest numpy type that stores values of the interval."""
    if real:
        return np.float64
    word = iv.width_of(interval)
    if word is None:
        return np.int64
    bits, signed = word
    kinds = (np.int8, np.int16, np.int32, np.int64) if signed else (np.uint8, np.uint16, np.uint32, np.uint64)
    return next((k for k, b in zip(kinds, (8, 16, 32, 64), strict=True) if bits <= b), object)


class Axes:
    """The axes that are bound now, in order, with their extents."""

    def __init__(self) -> None:
        self.order: dict[Axis, int] = {}
        self.extent: dict[Axis, int] = {}
        self.start: dict[Axis, int] = {}

    def add(self, axis: Axis, extent: int, start: int = 0) -> None:
        """Bind an axis to start … start+extent−1; its place in the order is that of its first binding."""
        if axis not in self.order:
            self.order[axis] = len(self.order)
        self.extent[axis] = extent
        self.start[axis] = start

    def union(self, *groups: Sequence[Axis]) -> tuple[Axis, ...]:
        """Return all axes of the groups, in binding order."""
        return tuple(sorted({a for g in groups for a in g}, key=self.order.__getitem__))

    def union_of_ordered(self, *groups: tuple[Axis, ...]) -> tuple[Axis, ...]:
        """Return all axes of groups that are in binding order themselves."""
        widest = max(groups, key=len)
        return widest if all(g in ((), widest) for g in groups) else self.union(*groups)

    def shape(self, axes: Sequence[Axis]) -> tuple[int, ...]:
        """Return the extents of `axes`."""
        return tuple(self.extent[a] for a in axes)

    def align(self, x: LabelledArray, axes: tuple[Axis, ...]) -> Any:
        """Return the data of `x` with a dimension (1 where absent) for each of `axes`."""
        if x.axes in ((), axes):
            return x.data
        present = dict(zip(x.axes, x.data.shape, strict=True))
        return x.data.reshape(tuple(present.get(a, 1) for a in axes))

    def full(self, x: LabelledArray, axes: tuple[Axis, ...]) -> Data:
        """Return the data of `x` broadcast to the extents of `axes`."""
        return np.broadcast_to(np.asarray(self.align(x, axes)), self.shape(axes))

    def index(self, axis: Axis) -> LabelledArray:
        """Return the values of a bound variable along its axis."""
        start = self.start[axis]
        return LabelledArray(np.arange(start, start + self.extent[axis]), (axis,))

    def position(self, axis: Axis, grid: tuple[Axis, ...]) -> Data:
        """Return 0 … extent−1 along `axis`, aligned to a grid."""
        return np.asarray(self.align(LabelledArray(np.arange(self.extent[axis]), (axis,)), grid))

    def ordered(self, data: Data, axes: Sequence[Axis]) -> LabelledArray:
        """Return data whose dimensions are `axes` in any order as a Named in binding order."""
        order = self.union(axes)
        position = {a: n for n, a in enumerate(axes)}
        return LabelledArray(data.transpose([position[a] for a in order]), order)


def axis_of(variable: Expr) -> Axis:
    """Return the axis that a variable is called by."""
    return int(variable.data[1])


# -- affine indices


@lru_cache(maxsize=1 << 14)
def linear(e: Expr) -> tuple[Expr, tuple[tuple[Expr, Expr], ...]] | None:
    """Return a term as (constant, ((variable, coefficient), …)), all without variables; None when it has no such form."""
    if not e.free:
        return e, ()
    if e.op == "var":
        return lift(0), ((e, lift(1)),)
    parts = [linear(a) for a in e.args] if e.op in ("add", "sub", "mul") else [None]
    if None in parts:
        return None
    (a, first), (b, second) = parts  # type: ignore[misc]
    if e.op == "mul":
        if first and second:
            return None
        factor = b if first else a
        return a * b, tuple((v, c * factor) for v, c in (*first, *second))
    terms = dict(first)
    for v, c in second:
        terms[v] = terms.get(v, lift(0)) + (c if e.op == "add" else -c)
    return (a + b if e.op == "add" else a - b), tuple(terms.items())


@dataclass(frozen=True)
class Affine:
    """constant + Σ coefficient · variable."""

    constant: int
    terms: tuple[tuple[Axis, int], ...]


def affine(e: Expr, axes: Axes, is_axis: Callable[[Expr], bool], value: Callable[[Expr], LabelledArray]) -> Affine | None:
    """Return `e` as an affine function of axis positions, or None; other subterms are evaluated by `value`."""
    axis_variables = [v for v in e.free if is_axis(v)]
    if not axis_variables and value(e).axes == ():
        return Affine(int(value(e).data), ())
    if e.op == "var":
        return Affine(axes.start[axis_of(e)], ((axis_of(e), 1),))
    if e.op in ("add", "sub"):
        parts = [affine(a, axes, is_axis, value) for a in e.args]
        return _combine(parts[0], parts[1], 1 if e.op == "add" else -1)
    if e.op == "mul":
        return _scaled([affine(a, axes, is_axis, value) for a in e.args])
    if e.op == "mod" and e.args[1].value is not None:
        return _in_one_period(affine(e.args[0], axes, is_axis, value), int(e.args[1].value), axes)
    if len(axis_variables) > 1 and math.prod(axes.shape([axis_of(v) for v in axis_variables])) > MAX_TESTED_VALUES:
        return None
    values = value(e)
    return _progressions(values)


def _in_one_period(a: Affine | None, modulus: int, axes: Axes) -> Affine | None:
    """Return a mod m where the affine `a` stays between two multiples of m."""
    if a is None:
        return None
    low, high = value_range(a, axes)
    return Affine(a.constant - low // modulus * modulus, a.terms) if low // modulus == high // modulus else None


def _progressions(x: LabelledArray) -> Affine | None:
    """Return values as an affine function of positions along their axes, where they are a sum of arithmetic progressions."""
    if x.axes == ():
        return Affine(int(x.data), ())
    if x.data.size == 0:
        return None
    data = x.data.astype(np.int64)
    first, total = int(data.flat[0]), data.flat[0]
    steps = [int(np.take(data, 1, n).flat[0]) - first if size > 1 else 0 for n, size in enumerate(data.shape)]
    for n, (step, size) in enumerate(zip(steps, data.shape, strict=True)):
        total = total + step * np.arange(size).reshape([-1 if m == n else 1 for m in range(data.ndim)])
    if (data != total).any():
        return None
    return Affine(first, tuple((axis, step) for axis, step in zip(x.axes, steps, strict=True) if step))


def _combine(a: Affine | None, b: Affine | None, sign: int) -> Affine | None:
    if a is None or b is None:
        return None
    terms = dict(a.terms)
    for v, c in b.terms:
        terms[v] = terms.get(v, 0) + sign * c
    return Affine(a.constant + sign * b.constant, tuple(terms.items()))


def _scaled(parts: Sequence[Affine | None]) -> Affine | None:
    a, b = parts
    if a is None or b is None or (a.terms and b.terms):
        return None
    linear, factor = (a, b.constant) if a.terms else (b, a.constant)
    return Affine(linear.constant * factor, tuple((v, c * factor) for v, c in linear.terms))


def without_zero_terms(i: Affine) -> Affine:
    """Return an affine index without the axes of coefficient 0."""
    return Affine(i.constant, tuple((v, c) for v, c in i.terms if c))


def value_range(i: Affine, axes: Axes) -> tuple[int, int]:
    """Return the least and the largest value of an affine index over the extents of its axes."""
    low = i.constant + sum(min(0, c * (axes.extent[v] - 1)) for v, c in i.terms)
    return low, i.constant + sum(max(0, c * (axes.extent[v] - 1)) for v, c in i.terms)


def dense(i: Affine, axes: Axes) -> tuple[Axis, ...] | None:
    """Return the axes, outermost first, along which an index runs through consecutive elements; None where there are gaps."""
    order = sorted(i.terms, key=lambda term: -term[1])
    size = 1
    for axis, step in reversed(order):
        if step != size:
            return None
        size *= axes.extent[axis]
    return tuple(axis for axis, _ in order)


def strided_view(store: Store, origin: Sequence[int], indices: Sequence[Affine], axes: Axes) -> tuple[Data, tuple[Axis, ...]]:
    """Return a strided view of `store` over its batch axes and the axes of the affine indices, all in bounds, and those axes."""
    data, batch = store.data, len(store.batch)
    own_axes = list(dict.fromkeys(v for i in indices for v, _ in i.terms if v not in store.batch))
    names = (*store.batch, *own_axes)
    steps = dict.fromkeys(names, 0)
    for n, v in enumerate(store.batch):
        steps[v] += data.strides[n]
    for dimension, i in enumerate(indices):
        for v, c in i.terms:
            steps[v] += c * data.strides[batch + dimension]
    if 0 in axes.shape(names):
        return np.empty(axes.shape(names), data.dtype), names
    places = [i.constant - o for i, o in zip(indices, origin, strict=True)]
    key: tuple[Any, ...] = (*[slice(0, 1)] * batch, *(slice(p, p + 1) for p in places), ...)
    corner = data[key]
    return as_strided(corner, axes.shape(names), [steps[v] for v in names]), names


def gather(store: Store, origin: Sequence[int], indices: Sequence[LabelledArray], axes: Axes) -> LabelledArray:
    """Return store[indices] by advanced indexing; all indices are in bounds."""
    reads = axes.union(*(i.axes for i in indices))
    indexed_batch = tuple(b for b in store.batch if b in reads)
    outer_batch = tuple(b for b in store.batch if b not in reads)
    order = [store.batch.index(b) for b in (*outer_batch, *indexed_batch)] + list(range(len(store.batch), store.data.ndim))
    keys: list[Any] = [axes.position(b, reads) for b in indexed_batch]
    keys.extend(np.asarray(axes.align(i, reads), np.intp) - o if o else axes.align(i, reads) for i, o in zip(indices, origin, strict=True))
    picked = store.data.transpose(order)[(*[slice(None)] * len(outer_batch), *_with_slice_last(keys, indices, reads))]
    return axes.ordered(picked, (*outer_batch, *reads))


def _with_slice_last(keys: list[Any], indices: Sequence[LabelledArray], reads: tuple[Axis, ...]) -> list[Any]:
    """Replace a last index that is a whole plain axis by a slice, which numpy copies in runs."""
    if len(keys) < 2 or not indices or indices[-1].axes != reads[-1:]:
        return keys
    last = indices[-1].data
    is_only_in_last = all(reads[-1] not in i.axes for i in indices[:-1])
    steps = np.asarray(keys[-1]).reshape(-1)
    if not is_only_in_last or last.ndim != 1 or len(last) < 2 or (np.diff(steps) != 1).any() or len(keys) != len(indices):
        return keys
    return [
        *(k.reshape(k.shape[:-1]) if isinstance(k, np.ndarray) and k.ndim else k for k in keys[:-1]),
        slice(int(steps[0]), int(steps[-1]) + 1),
    ]


def scatter(store: Store, origin: Sequence[int], indices: Sequence[LabelledArray], value: LabelledArray, axes: Axes) -> None:
    """Set store[indices] to `value` by advanced indexing; all indices are in bounds."""
    reads = axes.union(*(i.axes for i in indices))
    outer_batch = tuple(b for b in store.batch if b not in reads)
    if store.batch == outer_batch and set(value.axes) <= {
        *outer_batch,
        *reads,
    }:  # numpy copies whole runs of the batch axes and of a plain last one
        keys: list[Any] = [np.asarray(axes.align(i, reads), np.intp) - o for i, o in zip(indices, origin, strict=True)]
        grid = axes.union(outer_batch, reads)
        order = [grid.index(a) for a in (*outer_batch, *reads)]
        data = axes.full(value, grid).transpose(order)
        store.data[(*[slice(None)] * len(outer_batch), *_with_slice_last(keys, indices, reads))] = data
        return
    grid = axes.union(value.axes, store.batch, *(i.axes for i in indices))
    keys = [axes.position(b, grid) for b in store.batch]
    keys.extend(np.asarray(axes.align(i, grid), np.intp) - o for i, o in zip(indices, origin, strict=True))
    store.data[tuple(keys)] = axes.align(value, grid)


# -- contraction


def contract(a: LabelledArray, b: LabelledArray, reduced_axes: Sequence[Axis], axes: Axes, bound: int | None, real: bool) -> LabelledArray:
    """Return the contraction Σ a·b over the axes `over`.

    Where `bound`, a bound of Σ|a||b|, or the operands themselves show that every partial sum is exact in a float type, BLAS
    computes integers in that type.
    """
    a, b = _sum_unshared(a, b, reduced_axes), _sum_unshared(b, a, reduced_axes)
    size = axes.shape
    if not real and np.size(a.data) < np.size(b.data):
        a, b = b, a  # the larger factor keeps its layout
    shared = [v for v in a.axes if v in b.axes]
    summed = [v for v in shared if v in reduced_axes]
    batch = [v for v in shared if v not in reduced_axes]
    rows = [v for v in a.axes if v not in shared]
    columns = [v for v in b.axes if v not in shared]
    kind, result = (None, None) if real else _exact_types(a.data, b.data, math.prod(size(summed)), bound)
    left = _matrix(a, [*batch, *rows, *summed], kind).reshape(math.prod(size(batch)), math.prod(size(rows)), math.prod(size(summed)))
    right = _matrix(b, [*batch, *summed, *columns], kind).reshape(left.shape[0], left.shape[2], math.prod(size(columns)))
    product = np.matmul(left, right)
    if result is not None:
        product = product.astype(result, copy=False)
    names = [*batch, *rows, *columns]
    return axes.ordered(product.reshape(size(names)), names)


def _sum_unshared(a: LabelledArray, b: LabelledArray, reduced_axes: Sequence[Axis]) -> LabelledArray:
    unshared = tuple(n for n, v in enumerate(a.axes) if v in reduced_axes and v not in b.axes)
    if not unshared:
        return a
    wide = a.data if np.issubdtype(a.data.dtype, np.floating) or a.data.dtype == object else a.data.astype(np.int64)
    return LabelledArray(wide.sum(axis=unshared), tuple(v for n, v in enumerate(a.axes) if n not in unshared))


def _matrix(x: LabelledArray, order: Sequence[Axis], kind: Any) -> Data:
    data = np.asarray(x.data).transpose([x.axes.index(v) for v in order])
    return data if kind is None else data.astype(kind, order="C", copy=False)


def _exact_types(a: Data, b: Data, count: int, bound: int | None) -> tuple[Any, Any]:
    """Return the cheapest type in which the product is exact, and the integer type of its result.

    A sum of magnitudes ≤ 2^p is exact with p significand bits; `bound` limits it for all values, else these values do.
    """
    if 0 in (a.size, b.size):
        return np.int64, np.int64
    if bound is None or bound > FLOAT32_EXACT:
        actual = _largest(a) * _largest(b) * count
        bound = actual if bound is None else min(actual, bound)
    if bound <= FLOAT32_EXACT:
        return np.float32, np.int32
    if bound <= FLOAT64_EXACT:
        return np.float64, np.int32 if bound < 1 << 31 else np.int64
    return (np.int64, np.int64) if bound < 1 << 63 else (object, object)


def _largest(x: Data) -> int:
    return max(int(x.max()), -int(x.min()), 1)
