"""Interpreter of steps on numpy memories: an update runs over its whole index grid, a loop without carried dependence at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ...errors import SpecError
from ...lang.binders import Leaf
from ...lang.expr import Expr
from ...lang.step import Let, Loop, Require, Seq, Step, Together, Update, When, updates_of
from ..arrays.batched_memory import Memory
from ..arrays.evaluator import NotUniform
from ..arrays.labelled_array import Affine, Axis, LabelledArray, Store, affine, axis_of, dense, scatter, strided_view, value_range
from ..arrays.scope import OpenScope, Scope
from ..kernels.evaluate import evaluator_of
from ..oracle.emit_python import diagnostic
from .dependence_cache import DependenceCache
from .dependence_test import is_parallel
from .loop_nest import LoopNest, loop_nest_of
from .partial_evaluation import Irregular, residual_body
from .reduction_recognition import Accumulation, accumulation

MIN_SPECIALISED_ITERATIONS = 8  # least iterations for which a loop body is partially evaluated
CHUNK_ELEMENTS = 1 << 21  # elements of one vectorised statement: larger loops are cut into chunks that stay in the cache


class Machine:
    """Executes steps on state memories; operators apply to whole batches of samples."""

    def __init__(self, memories: Mapping[Leaf, Memory], *, strict: bool = False) -> None:
        """Take the memories by reference; with `strict`, every `Require` is checked."""
        self.memories: dict[Leaf, Store] = dict(memories)
        self.strict = strict
        self.evaluator = evaluator_of(self.memories)
        self.axes = self.evaluator.axes
        self.forms: dict[Loop, LoopNest | None] = {}
        self.vectorised = 0
        self.control: frozenset[Leaf] = frozenset()  # registers that are uniform over samples and decide the control flow
        self.irregular: set[Loop] = set()  # loops without a residual body
        self.dependence_cache: DependenceCache | None = None  # inside a loop that runs its residual body

    def run(self, step: Step) -> None:
        """Execute a step.

        Raises:
            SpecError: an update leaves its memory or writes one element twice, or a checked `Require` fails.
        """
        with np.errstate(all="ignore"):
            self._step(step)

    def bind(self, leaf: Leaf, store: Store) -> None:
        """Set the contents of a leaf (an operand of an instruction) and invalidate the cached values that read it."""
        self.memories[leaf] = store
        self.invalidate(frozenset((leaf,)))

    # -- steps

    def _step(self, step: Step) -> None:
        if isinstance(step, Update):
            self._write(step, self._value(step))
        elif isinstance(step, Seq):
            for part in step.steps:
                self._step(part)
        elif isinstance(step, Loop):
            self._loop(step)
        elif isinstance(step, When):
            self._step(step.then if self.evaluator.number(step.condition) else step.otherwise)
        elif isinstance(step, Together):
            values = [self._value(u) for u in step.updates]
            copies = [LabelledArray(np.array(v.data), v.axes) for v in values]  # a value may be a view of what a partner writes
            for u, v in zip(step.updates, copies, strict=True):
                self._write(u, v)
        elif isinstance(step, Let):
            self._let(step)
        elif isinstance(step, Require):
            self._require(step)

    def _let(self, step: Let) -> None:
        store = self.evaluator.store_of(step.array)
        data = np.array(store.data) if self._is_in_memory(store) else store.data
        self.bind(step.local, Store(data, store.batch))
        self._step(step.body)

    def _is_in_memory(self, store: Store) -> bool:
        """Tell whether contents may lie in what a step can write."""
        parts = (p for m in self.memories.values() if isinstance(m, Memory) for p in (m, *(r.store for r in m.regions)))
        return any(np.may_share_memory(store.data, p.data) for p in parts)

    def _require(self, step: Require) -> None:
        if not (self.strict or step.always):
            return
        condition = self.evaluator.value(step.condition)
        if not np.all(condition.data):
            values = {name: self.evaluator.value(e) for name, e in step.values}
            axes = self.axes.union(condition.axes, *(x.axes for x in values.values()))
            first = int(np.argmin(self.axes.full(condition, axes)))
            raise diagnostic(step.code, step.sentence, **{n: self.axes.full(x, axes).flat[first] for n, x in values.items()})

    def _value(self, u: Update) -> LabelledArray:
        with self.grid_scope(u):
            return self.evaluator.value(u.value)

    def grid_scope(self, u: Update) -> OpenScope:
        """Open a scope over the variables of an update; those of one value are numbers."""
        extents = self._extents(u)
        return self.evaluator.inner_scope({v: 0 for v, n in extents if n == 1}, [(v, n) for v, n in extents if n != 1])

    def _extents(self, u: Update) -> list[tuple[Expr, int]]:
        return [(v, self.evaluator.number(n)) for v, n in zip(u.variables, u.extents, strict=True)]

    # -- writing

    def _write(self, u: Update, value: LabelledArray) -> None:
        memory = self.memories[u.memory]
        if not isinstance(memory, Memory):
            raise SpecError("I102", f"{u.memory.name} is not a state memory and cannot be written")
        with self.grid_scope(u):
            own_axes = frozenset(axis_of(v) for v, n in self._extents(u) if n != 1)
            if 0 not in self.axes.shape(tuple(own_axes)):
                self._put(u, memory, value, own_axes)
        self.invalidate(frozenset((u.memory,)))

    def _put(self, u: Update, memory: Memory, value: LabelledArray, own_axes: frozenset[Axis]) -> None:
        ev = self.evaluator
        indices = [affine(a, self.axes, ev.is_axis, ev.value) for a in u.address]
        affine_indices = [i for i in indices if i is not None]
        if len(affine_indices) == len(indices):
            box = [value_range(i, self.axes) for i in affine_indices]
            self._require_in_bounds(u, box, memory)
            addressed_axes = {v for i in affine_indices for v, _ in i.terms}
            self._require_distinct(u, own_axes, addressed_axes)
            batch = tuple(a for a in value.axes if a not in own_axes and a not in addressed_axes)
            if self._put_box(memory, affine_indices, value, own_axes, batch):
                return
            self._put_strided(memory, affine_indices, value, batch, box)
        else:
            self._put_scattered(u, memory, [ev.value(a) for a in u.address], value, own_axes)

    def _put_box(
        self, memory: Memory, affine_indices: Sequence[Affine], value: LabelledArray, own_axes: frozenset[Axis], batch: tuple[Axis, ...]
    ) -> bool:
        """Write a whole box without copying the rest of the memory, where its contents depend on batch axes or regions lie there."""
        order = [dense(i, self.axes) for i in affine_indices]
        dense_axes = [a for dimension in order for a in dimension or ()]
        if None in order or not own_axes <= set(dense_axes) or len(set(dense_axes)) != len(dense_axes) or not (batch or memory.regions):
            return False
        grid = (*batch, *dense_axes)
        ordered_grid = self.axes.union(grid)
        data = self.axes.full(value, ordered_grid).transpose([ordered_grid.index(a) for a in grid])
        shape = (*self.axes.shape(batch), *(math.prod(self.axes.shape(dimension or ())) for dimension in order))
        contents = np.ascontiguousarray(data, memory.data.dtype).reshape(shape)
        if np.may_share_memory(contents, value.data):
            contents = contents.copy()
        return memory.replace_box([i.constant for i in affine_indices], contents, batch)

    def _put_strided(
        self,
        memory: Memory,
        affine_indices: Sequence[Affine],
        value: LabelledArray,
        batch: tuple[Axis, ...],
        box: Sequence[tuple[int, int]],
    ) -> None:
        window, origin = memory.writable_window([b[0] for b in box], [b[1] for b in box], batch, self.axes)
        value = self._detached(value, window)
        for copy in window.split_along({v for i in affine_indices for v, _ in i.terms}):
            view, names = strided_view(copy, origin, affine_indices, self.axes)
            order = self.axes.union(names, value.axes)
            target = view.transpose([names.index(a) for a in order])
            data = self.axes.align(value, order)
            if isinstance(data, np.ndarray) and np.may_share_memory(target, data):
                data = np.array(data)  # numpy assigns within one array in order when both have one dimension
            target[...] = data

    def _put_scattered(
        self, u: Update, memory: Memory, indices: Sequence[LabelledArray], value: LabelledArray, own_axes: frozenset[Axis]
    ) -> None:
        addressed_axes = {a for i in indices for a in i.axes}
        self._require_distinct(u, own_axes, addressed_axes)
        batch = tuple(a for a in value.axes if a not in own_axes and a not in addressed_axes)
        box = [(int(np.min(i.data)), int(np.max(i.data))) for i in indices]
        self._require_in_bounds(u, box, memory)
        window, origin = memory.writable_window([b[0] for b in box], [b[1] for b in box], batch, self.axes)
        value = self._detached(value, window)
        for copy in window.split_along(addressed_axes):
            scatter(copy, origin, indices, value, self.axes)

    def _detached(self, value: LabelledArray, store: Store) -> LabelledArray:
        """Return a value that is no view of the store: numpy does not copy overlapping rows of different strides."""
        is_view = isinstance(value.data, np.ndarray) and np.may_share_memory(value.data, store.data)
        return LabelledArray(np.array(value.data), value.axes) if is_view else value

    def _require_distinct(self, u: Update, own_axes: frozenset[Axis], addressed_axes: set[Axis]) -> None:
        if not own_axes <= addressed_axes:
            raise SpecError("I103", f"one update writes an element of {u.memory.name} more than once: an axis of it is not in the address")

    def _require_in_bounds(self, u: Update, box: Sequence[tuple[int, int]], memory: Memory) -> None:
        for axis, ((low, high), n) in enumerate(zip(box, memory.element_shape, strict=True)):
            if low < 0 or high >= n:
                element = low if low < 0 else high
                raise SpecError("I103", f"{u.memory.name} has {n} elements on axis {axis}; the update writes element {element}")

    # -- loops

    def _loop(self, step: Loop) -> None:
        reduction = self._accumulation(step)
        if reduction is not None:
            self._accumulate(reduction)
            return
        extent = self.evaluator.number(step.extent)
        chunk = self._chunk(step, extent)
        if chunk < 2:
            self._in_order(step, extent)
            return
        self.vectorised += 1
        axis = axis_of(step.variable)
        for start in range(0, extent, chunk):
            self.axes.add(axis, min(chunk, extent - start), start)
            with self.axis_scope(step.variable):
                self._step(step.body)
            self.end_axis(axis)

    def _in_order(self, step: Loop, extent: int) -> None:
        """Run the iterations in order; of many, all but the first run the residual body."""
        later_iterations = self._residual(step, extent)
        if later_iterations is None:
            self._iterations(step.variable, range(extent), step.body)
            return
        enclosing = self.forms, self.evaluator.dtypes
        self.dependence_cache = DependenceCache(None, is_steady := self._invariance_test(step))
        try:
            self._iterations(step.variable, range(1), step.body)
            self.dependence_cache, self.forms, self.evaluator.dtypes = (
                DependenceCache(later_iterations[0], is_steady),
                {},
                {},
            )  # of terms that go with the body
            self._iterations(later_iterations[0], range(1, extent), later_iterations[1])
        finally:
            self.dependence_cache, (self.forms, self.evaluator.dtypes) = None, enclosing

    def _iterations(self, variable: Expr, numbers: range, body: Step) -> None:
        for k in numbers:
            with self.evaluator.inner_scope({variable: k}):
                self._step(body)

    def _residual(self, step: Loop, extent: int) -> tuple[Expr, Step] | None:
        """Return the residual body of all iterations but the first, and its variable; None where there is none or it would not pay."""
        if extent < MIN_SPECIALISED_ITERATIONS or not self.control or self.dependence_cache is not None or step in self.irregular:
            return None
        try:
            return residual_body(self.evaluator, step, extent, self._invariance_test(step))
        except Irregular:
            self.irregular.add(step)
            return None

    def _invariance_test(self, step: Loop) -> Callable[[Leaf], bool]:
        """Return a predicate: is a leaf control state that no iteration writes and that is uniform over samples?"""
        written_memories = frozenset(u.memory for u in updates_of(step))

        def is_steady(leaf: Leaf) -> bool:
            memory = self.memories.get(leaf)
            return leaf in self.control and leaf not in written_memories and isinstance(memory, Memory) and not memory.regions

        return is_steady

    def _accumulation(self, step: Loop) -> Accumulation | None:
        if step not in self.forms:
            self.forms[step] = loop_nest_of(step)
        form = self.forms[step]
        return None if form is None else accumulation(self, form)

    def _accumulate(self, reduction: Accumulation) -> None:
        """Run the step that a nest of loops is equal to, then drop its index tables and its local."""
        self.vectorised += 1
        for leaf, data in reduction.tables.items():
            self.bind(leaf, Store(data))
        self._step(reduction.step)
        for leaf in (*reduction.tables, *([reduction.step.local] if isinstance(reduction.step, Let) else [])):
            self.invalidate(frozenset((leaf,)))
            del self.memories[leaf]

    def end_axis(self, axis: Axis) -> None:
        """End a vectorised loop: memories have the contents after its last iteration."""
        for memory in self.memories.values():
            if isinstance(memory, Memory):
                memory.end_axis(axis)
        self.invalidate(frozenset(self.memories))

    def axis_scope(self, variable: Expr) -> OpenScope:
        """Open a scope in which `variable` stands for its axis."""
        return OpenScope(self.evaluator, Scope(self.evaluator.scope, None, [variable]))

    def _chunk(self, step: Loop, extent: int) -> int:
        """Return how many iterations may run at once; 1 when they must run in order."""
        if extent < 2:
            return 1
        try:
            analysis = is_parallel(self, step, extent)
        except NotUniform:
            return 1
        if not analysis.parallel:
            return 1
        max_iterations = max(1, CHUNK_ELEMENTS // max(1, analysis.elements))
        return extent if extent <= max_iterations else 1 << max_iterations.bit_length() - 1  # a power of two keeps to the banks of memories

    def invalidate(self, written_leaves: frozenset[Leaf]) -> None:
        """Invalidate cached values that depend on the written leaves."""
        scope: Scope | None = self.evaluator.scope
        while scope is not None:
            scope.invalidate(written_leaves)
            scope = scope.parent
