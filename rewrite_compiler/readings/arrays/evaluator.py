"""The arrays reading: terms evaluated with numpy over whole index grids, BLAS only where it is proved exact.

Every variable is bound to one number or to an axis; a term is materialised over the axes it depends on and no others,
and is cached for as long as the innermost of its variables keeps its value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from ...errors import SpecError
from ...lang import intervals as iv
from ...lang.binders import Array, Comprehension, Fold, FoldResult, Leaf, Table, entries_of
from ...lang.expr import Expr, lift
from .elementwise import ELEMENTWISE
from .fold_hoisting import FoldHoisting, at_step
from .labelled_array import (
    Affine,
    Axes,
    Axis,
    Data,
    LabelledArray,
    Store,
    affine,
    axis_of,
    contract,
    dtype_of,
    gather,
    linear,
    storage_dtype,
    strided_view,
    value_range,
    without_zero_terms,
)
from .scope import Evaluation, OpenScope, Scope

GRID_ELEMENTS = 1 << 24  # a reduction over more elements is done one value of its first variable at a time
PIECE_ELEMENTS = 1 << 17  # an array of folds is computed in pieces of this size, so that their steps stay in the cache
TABLE_PIECE_ELEMENTS = 1 << 15  # an array that reads no other, such as the entries of a table
_tables: dict[Table, Data] = {}


FoldRule = Callable[[Evaluation, Fold], Store | None]


class Evaluator:
    """Evaluates terms on given stores; `memories` may change between evaluations, not during one."""

    def __init__(
        self, memories: Mapping[Leaf, Store], axes: Axes | None = None, real: Any = np.float64, blocked_fold: FoldRule | None = None
    ) -> None:
        """Evaluate on `memories`; reals are computed in the type `real` unless an operand is wider.

        `blocked_fold` evaluates a whole fold, or gives None where its steps must run one by one.
        """
        _keep_freed_memory()
        self.memories = memories
        self.axes = axes or Axes()
        self.real = real
        self.scope = Scope(None)
        self.dtypes: dict[Expr, Any] = {}
        self.hoisting = FoldHoisting()
        self.hoisted: dict[Expr, LabelledArray] = {}  # values over all steps of the folds that run now
        self.blocked_fold = blocked_fold

    # -- entry points

    def store_of(self, a: Array) -> Store:
        """Return the contents of an array term: batch axes first, then the term's own dimensions."""
        if isinstance(a, Leaf):
            for s in self._enclosing_scopes():
                if a in s.stores:
                    return s.stores[a]
            return self.memories[a]
        store: Store = self._within(a.free, lambda: self._computed(a))
        return store

    def value(self, e: Expr) -> LabelledArray:
        """Return the value of a term over the axes it depends on."""
        if e.op == "const":
            return LabelledArray(e.data if not isinstance(e.data, Fraction) else float(e.data), ())
        value: LabelledArray = self._within(e.free, lambda: self._term(e))
        return value

    def number(self, e: Expr) -> int:
        """Return the value of an integer term that is the same along every axis.

        Raises:
            NotUniform: the value differs between positions of an axis.
        """
        value = self.value(e)
        data = np.asarray(value.data)
        if data.size == 0 or (data != data.flat[0]).any():
            raise NotUniform(f"{e!r} differs between the iterations of a loop")
        return int(data.flat[0])

    def inner_scope(self, numbers: Mapping[Expr, int] | None = None, axes: Sequence[tuple[Expr, int]] = ()) -> OpenScope:
        """Open a scope that binds numbers and axes; use as a context manager."""
        for v, n in axes:
            self.axes.add(axis_of(v), n)
        return OpenScope(self, Scope(self.scope, numbers, [v for v, _ in axes]))

    # -- scopes

    def _enclosing_scopes(self) -> Sequence[Scope]:
        scopes, s = [], self.scope
        while s is not None:
            scopes.append(s)
            s = s.parent  # type: ignore[assignment]
        return scopes

    def _within(self, free: frozenset[Expr], compute: Callable[[], Any]) -> Any:
        """Compute in the outermost scope in which all of `free` are bound, which caches the result."""
        current = self.scope
        while self.scope.parent is not None and free.isdisjoint(self.scope.bound):
            self.scope = self.scope.parent
        try:
            return compute()
        finally:
            self.scope = current

    def _term(self, e: Expr) -> LabelledArray:
        value = self.scope.terms.get(e)
        if value is None:
            value = self._computed_term(e)
            self.scope.remember(self.scope.terms, e, e.reads, value)
        return value

    def _computed_term(self, e: Expr) -> LabelledArray:
        if e.op == "var":
            return self._variable(e)
        values_over_steps = self.hoisted.get(e)
        if values_over_steps is not None:
            return at_step(self, e, values_over_steps)
        return RULES[e.op](self, e)

    def _variable(self, v: Expr) -> LabelledArray:
        if v in self.scope.bound_numbers:
            return LabelledArray(self.scope.bound_numbers[v], ())
        if self.is_bound(v):
            return self.axes.index(axis_of(v))
        raise SpecError("I102", f"variable {v!r} is not bound here")

    def is_bound(self, v: Expr) -> bool:
        """Tell whether a variable is bound, to a number or to an axis, in a scope that is open."""
        return any(v in s.bound for s in self._enclosing_scopes())

    def is_axis(self, v: Expr) -> bool:
        """Tell whether a bound variable stands for an axis."""
        return v not in self.scope.bound_numbers

    # -- arrays

    def _computed(self, a: Array) -> Store:
        store = self.scope.stores.get(a)
        if store is None:
            store = self._comprehension(a) if isinstance(a, Comprehension) else self._fold_result(a)
            self.scope.remember(self.scope.stores, a, a.reads, store)
        return store

    def _comprehension(self, a: Comprehension) -> Store:
        extents = [self.number(lift(n)) for n in a.shape]
        result_axes = tuple(map(axis_of, a.variables))
        for axis, n in zip(result_axes, extents, strict=True):
            self.axes.add(axis, n)
        length = self._piece(a, extents)
        if length is None:
            return self._filled(a, result_axes)
        dimension = extents.index(max(extents))
        pieces = []
        for start in range(0, extents[dimension], length):
            self.axes.add(result_axes[dimension], min(length, extents[dimension] - start), start)
            pieces.append(self._filled(a, result_axes))
        self.axes.add(result_axes[dimension], extents[dimension])
        batch = self.axes.union(*(p.batch for p in pieces))
        batch_shape = self.axes.shape(batch)
        broadcast = [np.broadcast_to(self._lead(p, batch), (*batch_shape, *p.element_shape)) for p in pieces]
        return Store(np.concatenate(broadcast, axis=len(batch) + dimension), batch)

    def _filled(self, a: Comprehension, result_axes: tuple[Axis, ...]) -> Store:
        with OpenScope(self, Scope(self.scope, None, a.variables)):
            body = self.value(a.body)
            batch = tuple(x for x in body.axes if x not in result_axes)
            order = self.axes.union(batch, result_axes)
            data = self.axes.full(body, order).transpose([order.index(x) for x in (*batch, *result_axes)])
        return Store(data, batch)

    def _piece(self, a: Comprehension, extents: Sequence[int]) -> int | None:
        """Return how much of its longest variable a large array, of folds or of computed entries, is computed for at once; None for all."""
        if not extents or 0 in extents or not (a.has_folds or not a.reads):
            return None
        elements = math.prod(extents) * self.element_count(a.free, a.reads)
        limit = PIECE_ELEMENTS if a.has_folds else TABLE_PIECE_ELEMENTS
        return max(1, max(extents) * limit // elements) if elements > limit else None

    def element_count(self, free: Iterable[Expr], reads: Iterable[Leaf]) -> int:
        """Return the number of elements a term takes over the axes of these free variables and of the leaves it reads."""
        axes = {axis_of(v) for v in free if self.is_axis(v)}.union(*(self.batch_of(leaf) for leaf in reads))
        return math.prod(self.axes.shape(tuple(axes)))

    def batch_of(self, leaf: Leaf) -> set[Axis]:
        """Return the union of the batch axes of all regions of a leaf."""
        store = self.store_of(leaf)
        return {axis for s in self._parts(store) for axis in s.batch}

    def _parts(self, store: Store) -> Sequence[Store]:
        """Return the stores that a memory consists of."""
        return [store, *(r.store for r in getattr(store, "regions", ()))]

    def _lead(self, s: Store, batch: tuple[Axis, ...]) -> Data:
        """Return contents with a dimension (1 where absent) for each batch axis."""
        return s.data.reshape((*(self.axes.extent[b] if b in s.batch else 1 for b in batch), *s.element_shape))

    def _fold_result(self, a: Array) -> Store:
        if not isinstance(a, FoldResult):
            raise SpecError("I102", f"{a!r} is not an array term")
        key = a.fold, a.history
        if key not in self.scope.folds:
            self.scope.remember(self.scope.folds, key, a.fold.reads, self._fold(a.fold, a.history))
        return self.scope.folds[key][a.component]

    def _fold(self, f: Fold, history: bool) -> list[Store]:
        """Return the accumulators after the last step, or those after every step."""
        if not history and self.blocked_fold is not None and (result := self.blocked_fold(self, f)) is not None:
            return [result]
        current = [self.store_of(first) for first in f.initial]
        states: list[list[Store]] = []
        with self.hoisting.hoisted_terms(self, f):
            for k in range(self.number(f.extent)):
                with self.inner_scope({f.variable: k}) as s:
                    s.stores.update(zip(f.accumulators, current, strict=True))
                    current = [self.store_of(body) for body in f.bodies]
                if history:
                    states.append(current)
        return [self._stacked([step[n] for step in states], final) for n, final in enumerate(current)] if history else current

    def _stacked(self, states: Sequence[Store], final: Store) -> Store:
        batch = self.axes.union(*(k.batch for k in states))
        batch_shape = self.axes.shape(batch)
        rows = [np.broadcast_to(self._lead(k, batch), (*batch_shape, *k.element_shape)) for k in states]
        if not rows:
            return Store(np.empty((*batch_shape, 0, *final.element_shape)), batch)
        return Store(np.concatenate([np.expand_dims(r, len(batch)) for r in rows], axis=len(batch)), batch)

    # -- rules of single operators

    def load(self, e: Expr) -> LabelledArray:
        """Return array[indices]: a strided view where every index is affine and in bounds, else a gather."""
        store = self.store_of(e.data)
        if any(n == 0 for n in store.element_shape):
            return LabelledArray(np.zeros((), store.data.dtype), ())
        indices = [self.affine(i) for i in e.args]
        affine_indices = [i for i in indices if i is not None]
        if len(affine_indices) == len(indices):
            box = [value_range(i, self.axes) for i in affine_indices]
            if all(low >= 0 and high < n for (low, high), n in zip(box, store.element_shape, strict=True)):
                affine_indices = [without_zero_terms(i) for i in affine_indices]
                window, origin = store.window([b[0] for b in box], [b[1] for b in box], self.axes)
                view, names = strided_view(window, origin, affine_indices, self.axes)
                return self.axes.ordered(view, names) if names else LabelledArray(view[()], ())
        return self._gathered(store, [self.value(i) for i in e.args])

    def affine(self, e: Expr) -> Affine | None:
        """Return an index as an affine function of the axes that are bound now, or None."""
        form = linear(e)
        factors = [] if form is None else [self.value(c) for c in (form[0], *(c for _, c in form[1]))]
        if form is None or any(f.axes for f in factors):
            return affine(e, self.axes, self.is_axis, self.value)
        total, terms = int(factors[0].data), []
        for (v, _), factor in zip(form[1], factors[1:], strict=True):
            axis, number = axis_of(v), self.scope.bound_numbers.get(v)
            total += int(factor.data) * (self.axes.start[axis] if number is None else number)
            if number is None:
                terms.append((axis, int(factor.data)))
        return Affine(total, tuple(terms))

    def _gathered(self, store: Store, indices: Sequence[LabelledArray]) -> LabelledArray:
        """Read by advanced indexing; an index is clamped, as a branch that is not taken may be out of range."""
        reads = self.axes.union(*(i.axes for i in indices))
        if 0 in self.axes.shape(reads):
            return LabelledArray(np.zeros(self.axes.shape(reads), store.data.dtype), reads)
        clamped = [LabelledArray(np.clip(i.data, 0, n - 1), i.axes) for i, n in zip(indices, store.element_shape, strict=True)]
        window, origin = store.window([int(np.min(i.data)) for i in clamped], [int(np.max(i.data)) for i in clamped], self.axes)
        return gather(window, origin, clamped, self.axes)

    def table(self, e: Expr) -> LabelledArray:
        """Return entries of a table; the whole table is evaluated once, at its first use."""
        t: Table = e.data
        entries = table_data(t)
        operands = [self.value(a) for a in e.args]
        axes = self.axes.union(*(x.axes for x in operands))
        flat: Any = 0
        for x, n, d in zip(operands, t.shape, t.domains, strict=True):
            place = self.axes.align(x, axes)
            low = d[0] or 0
            place = place if low == 0 else np.asarray(place, np.int64) - low
            flat = place if len(operands) == 1 else np.asarray(flat * n + np.asarray(place, np.int64))
        return LabelledArray(
            entries.take(flat) if axes else int(entries[int(flat)]) if not t.body.real else float(entries[int(flat)]), axes
        )

    def select(self, e: Expr) -> LabelledArray:
        """Return one branch where the condition is uniform, an elementwise choice where it is not."""
        condition = self.value(e.args[0])
        if condition.axes == () or _is_uniform(condition.data):
            return self.value(e.args[1] if np.asarray(condition.data).flat[0] else e.args[2])
        a, b = self.value(e.args[1]), self.value(e.args[2])
        axes = self.axes.union(condition.axes, a.axes, b.axes)
        x, y = (self.cast(v.data if e.real else np.asarray(v.data), e) for v in (a, b))  # numpy has no words for some numbers
        mask = np.asarray(self.axes.align(condition, axes), bool)
        return LabelledArray(
            np.where(mask, self.axes.align(LabelledArray(x, a.axes), axes), self.axes.align(LabelledArray(y, b.axes), axes)), axes
        )

    def reduce(self, e: Expr) -> LabelledArray:
        """Return the sum, maximum or minimum over the bound variables; sums of products are contractions."""
        monoid, variables = e.data
        reduced_axes = tuple(map(axis_of, variables))
        extents = [self.number(n) for n in e.args[1:]]
        if math.prod(extents) == 0:
            return self._empty(monoid, e)
        with self.inner_scope(axes=list(zip(variables, extents, strict=True))):
            factors = _factors(e.args[0]) if monoid == "sum" else [e.args[0]]
            inner = [f for f in factors if not f.free.isdisjoint(variables)]
            outer = [f for f in factors if f.free.isdisjoint(variables)]
            if len(inner) == 2:
                total = self._contracted(e, inner, reduced_axes, math.prod(extents))
            else:
                total = self._reduced(e, monoid, inner or outer[:1], variables, extents)
                outer = outer if inner else outer[1:]
        return self._scaled_by(total, outer, e)

    def _scaled_by(self, total: LabelledArray, outer: Sequence[Expr], e: Expr) -> LabelledArray:
        for f in outer:
            x = self.value(f)
            axes = self.axes.union(total.axes, x.axes)
            total = LabelledArray(
                self.cast(self.axes.align(total, axes), e) * self.axes.align(LabelledArray(self.cast(x.data, e), x.axes), axes), axes
            )
        return total

    def _contracted(self, e: Expr, pair: Sequence[Expr], reduced_axes: Sequence[Axis], count: int) -> LabelledArray:
        a, b = (self.value(f) for f in pair)
        limit = [None if e.real else self._magnitude_bound(f) for f in pair]
        bound = None if limit[0] is None or limit[1] is None else limit[0] * limit[1] * count
        total = contract(self._spread(a), self._spread(b), reduced_axes, self.axes, bound, e.real)
        missing = [x for x in reduced_axes if x not in a.axes and x not in b.axes]
        return total if not missing else LabelledArray(self.cast(total.data, e) * math.prod(self.axes.shape(missing)), total.axes)

    def _magnitude_bound(self, f: Expr) -> int | None:
        """Return a bound of |f|: of its interval, or of what an array that does not change holds."""
        limit = iv.maximum(f.interval, iv.neg(f.interval))[1]
        if f.op != "load":
            return limit
        store = self.store_of(f.data)
        is_constant = type(store) is Store and store.data.dtype.kind in "iu"
        return min(store.magnitude, limit or store.magnitude) if is_constant else limit

    def _spread(self, x: LabelledArray) -> LabelledArray:
        return x if isinstance(x.data, np.ndarray) else LabelledArray(np.asarray(x.data), x.axes)

    def _reduced(self, e: Expr, monoid: str, factors: Sequence[Expr], variables: Sequence[Expr], extents: Sequence[int]) -> LabelledArray:
        if len(variables) > 1 and self._grid(factors) > GRID_ELEMENTS:
            return self._reduced_by_slices(e, monoid, factors, variables, extents)
        total: LabelledArray | None = None
        for f in factors:
            x = self._spread(self.value(f))
            x = LabelledArray(self.cast(x.data, e), x.axes)
            total = x if total is None else self._times(total, x)
        if total is None:
            raise SpecError("I102", "a reduction has no body")
        reduced_axes = tuple(map(axis_of, variables))
        dims = tuple(n for n, x in enumerate(total.axes) if x in reduced_axes)
        remaining_axes = tuple(x for x in total.axes if x not in reduced_axes)
        missing = math.prod(self.axes.shape([x for x in reduced_axes if x not in total.axes]))
        if monoid != "sum":
            operation = np.max if monoid == "max" else np.min
            return LabelledArray(operation(total.data, axis=dims) if dims else total.data, remaining_axes)
        data = total.data.sum(axis=dims, dtype=total.data.dtype) if dims else total.data
        return LabelledArray(data * missing if missing != 1 else data, remaining_axes)

    def _reduced_by_slices(
        self, e: Expr, monoid: str, factors: Sequence[Expr], variables: Sequence[Expr], extents: Sequence[int]
    ) -> LabelledArray:
        total: LabelledArray | None = None
        for n in range(extents[0]):
            with self.inner_scope({variables[0]: n}):
                part = self._reduced(e, monoid, factors, variables[1:], extents[1:])
            if total is None:
                total = part
                continue
            axes = self.axes.union(total.axes, part.axes)
            combine = {"sum": np.add, "max": np.maximum, "min": np.minimum}[monoid]
            total = LabelledArray(combine(self.axes.align(total, axes), self.axes.align(part, axes)), axes)
        if total is None:
            raise SpecError("I102", "a reduction has no elements")
        return total

    def _grid(self, factors: Sequence[Expr]) -> int:
        axes = {axis_of(v) for f in factors for v in f.free if self.is_axis(v)}
        return math.prod(self.axes.extent.get(x, 1) for x in axes)

    def _times(self, a: LabelledArray, b: LabelledArray) -> LabelledArray:
        axes = self.axes.union(a.axes, b.axes)
        return LabelledArray(self.axes.align(a, axes) * self.axes.align(b, axes), axes)

    def _empty(self, monoid: str, e: Expr) -> LabelledArray:
        if monoid != "sum":
            raise SpecError("I102", f"the {monoid} of no elements has no value")
        return LabelledArray(0.0 if e.real else 0, ())

    def cast(self, data: Any, e: Expr) -> Any:
        """Return data in a type in which the result of `e` is exact."""
        if not isinstance(data, np.ndarray | np.generic):
            return data
        if e.real:
            return data
        kind = self.dtypes.get(e)
        if kind is None:
            kind = self.dtypes[e] = np.dtype(dtype_of(e.interval, *(a.interval for a in e.args if not a.real)))
        return data if data.dtype == kind else data.astype(kind)


@cache
def _keep_freed_memory() -> None:
    """Make the C library keep the memory of freed temporaries instead of returning each to the system.

    The GNU allocator raises its limits to the size of a block that is freed, 32 MiB at most; no page of this one is used.
    Page faults of the temporaries took half of the time of a convolution.
    """
    np.empty((1 << 25) - (1 << 13), np.uint8)


class NotUniform(SpecError):
    """A loop bound or condition has more than one value along a vectorised axis."""

    def __init__(self, sentence: str) -> None:
        super().__init__("I102", sentence)


def table_data(table: Table) -> Data:
    """Return all entries of a table, flat, in the narrowest type."""
    entries = _tables.get(table)
    if entries is None:
        data = np.asarray(table.numbers or Evaluator({}).store_of(entries_of(table)).data).reshape(-1)
        if not table.body.real:
            kind = storage_dtype((int(data.min()), int(data.max())))
            data = data.astype(kind)
        entries = _tables[table] = np.ascontiguousarray(data)
    return entries


def _is_uniform(data: Data) -> bool:
    return bool(data.size and (data == data.flat[0]).all())


def _factors(e: Expr) -> list[Expr]:
    if e.op == "mul":
        return [f for a in e.args for f in _factors(a)]
    return _factors(e.args[0]) if e.op == "real" else [e]


RULES: dict[str, Callable[[Evaluator, Expr], LabelledArray]] = {
    **ELEMENTWISE,
    "load": Evaluator.load,
    "table": Evaluator.table,
    "select": Evaluator.select,
    "reduce": Evaluator.reduce,
}
