"""Loop dependence test: exact, from the addresses that the body of a loop reads and writes.

Addresses depend on control only, so they are computed for all iterations before the loop runs. A loop is parallel when
no iteration reads what an earlier one wrote, no element is written by two iterations, and what is written at the same
place by all of them is written before it is read (then every iteration has a copy of its own).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from ...lang.binders import Array, Comprehension, FoldResult, Leaf
from ...lang.expr import Expr, lift
from ...lang.step import Let, Loop, Require, Seq, Step, Together, Update, When, updates_of
from ...lang.traversal import loads_of, terms_of
from ..arrays.batched_memory import samples_of
from ..arrays.evaluator import NotUniform
from ..arrays.labelled_array import Axes, Axis, Data, LabelledArray, axis_of, dense
from .dependence_cache import DependenceResult
from .execution import Execution

NEST_SHIFT, STATEMENT_SHIFT = 44, 20  # a moment is one number: see _moment
MAX_UNROLLED = 128  # inner loops whose conditions vary are followed iteration by iteration up to this length
MAX_ANALYSED_ELEMENTS = 1 << 24


@dataclass(frozen=True)
class LoopAnalysis:
    """Whether a loop is parallel, and the number of elements that the largest statement touches in one iteration."""

    parallel: bool
    elements: int = 1


@dataclass
class _Access:
    """One read or write of a memory: linear addresses, their axes, and when it happens in one iteration.

    `time` has the shape of the addresses: of a read the last moment, of a write the first, where several are possible.
    """

    time: Data
    address: Data
    axes: tuple[Axis, ...]
    own_axes: frozenset[Axis] = frozenset()  # axes of the update itself: they do not count iterations


@dataclass
class _Trace:
    written_leaves: frozenset[Leaf]
    reads: dict[Leaf, list[_Access]] = field(default_factory=dict)
    writes: dict[Leaf, list[_Access]] = field(default_factory=dict)
    order: int = 0  # statements so far
    elements: int = 1
    nest: tuple[tuple[Axis, int], ...] = ()  # inner loops around the statement, each directly in the one before
    entry: int = 0  # statements before the nest
    body: Step | None = None  # what the innermost of them repeats
    locals: frozenset[Leaf] = frozenset()  # arrays of an iteration's own
    restricted_to: frozenset[Leaf] | None = None  # the memories that are tested; None: all
    is_untimed: bool = False  # inside an inner loop next to other statements of a nest: the moment is not tracked


def is_parallel(machine: Execution, loop: Loop, extent: int) -> LoopAnalysis:
    """Decide whether a loop has no loop-carried dependence, for the present control state; all `extent` iterations are analysed at once.

    Raises:
        NotUniform: control (a condition, a length or an address) differs between iterations or depends on what they write.
    """
    machine.axes.add(axis_of(loop.variable), extent)
    simple = _single_update_analysis(machine, loop)
    if simple is not None:
        return simple
    key, shifted_memories = (
        (None, None) if machine.dependence_cache is None else machine.dependence_cache.key(machine.evaluator, loop, extent)
    )
    answer = None if machine.dependence_cache is None or key is None else machine.dependence_cache.results.get(key)
    if answer is None:
        answer = _compare_iterations(machine, loop, extent, None)
        if machine.dependence_cache is not None and key is not None and (answer.parallel or not shifted_memories):
            machine.dependence_cache.results[key] = answer
    elif shifted_memories and not _compare_iterations(machine, loop, extent, shifted_memories).parallel:
        answer = DependenceResult(False, answer.elements)
    return LoopAnalysis(answer.parallel, answer.elements * samples_of(machine.memories.values(), machine.axes) // extent or 1)


def _compare_iterations(machine: Execution, loop: Loop, extent: int, restricted_to: frozenset[Leaf] | None) -> DependenceResult:
    """Follow one iteration, and compare what all of them read and write; of these memories `only`."""
    written_leaves = frozenset(u.memory for u in updates_of(loop.body))
    trace = _Trace(written_leaves, restricted_to=restricted_to)
    with machine.axis_scope(loop.variable):
        _follow(machine, loop.body, trace)
    machine.invalidate(frozenset(machine.memories))
    compared = written_leaves if restricted_to is None else written_leaves & restricted_to
    return DependenceResult(all(_independent(trace, leaf, axis_of(loop.variable), extent) for leaf in compared), trace.elements)


def _single_update_analysis(machine: Execution, loop: Loop) -> LoopAnalysis | None:
    """Return the answer for one update that reads nothing it writes and writes consecutive places; None for other loops."""
    parts = [x for x in (loop.body.steps if isinstance(loop.body, Seq) else (loop.body,)) if not isinstance(x, Require)]
    u = parts[0] if len(parts) == 1 else None
    if not isinstance(u, Update) or any(u.memory in e.reads for e in (u.value, *u.address, *u.extents)):
        return None
    with machine.axis_scope(loop.variable):
        extents = [machine.evaluator.number(n) for n in u.extents]
        with machine.evaluator.inner_scope(axes=list(zip(u.variables, extents, strict=True))):
            _check_lengths(machine, u.value)
            indices = [machine.evaluator.affine(a) for a in u.address]
            runs = [None if i is None else dense(i, machine.axes) for i in indices]
    machine.invalidate(frozenset(machine.memories))
    axes = [a for run in runs for a in run or ()]
    expected_axes = {axis_of(loop.variable), *map(axis_of, u.variables)}
    if None in runs or set(axes) != expected_axes or len(axes) != len(expected_axes):
        return None
    return LoopAnalysis(True, math.prod(extents) * samples_of(machine.memories.values(), machine.axes) or 1)


def _follow(machine: Execution, step: Step, trace: _Trace) -> None:
    if isinstance(step, Update):
        _follow_updates(machine, (step,), trace)
    elif isinstance(step, Together):
        _follow_updates(machine, step.updates, trace)
    elif isinstance(step, Seq):
        for part in step.steps:
            _follow(machine, part, trace)
    elif isinstance(step, When):
        if not step.condition.reads.isdisjoint(trace.written_leaves):
            raise NotUniform("a condition depends on what the loop writes")
        _follow(machine, step.then if machine.evaluator.number(step.condition) else step.otherwise, trace)
    elif isinstance(step, Loop):
        _inner(machine, step, trace)
    elif isinstance(step, Let):
        _follow_let(machine, step, trace)


def _follow_updates(machine: Execution, updates: Sequence[Update], trace: _Trace) -> None:
    if trace.restricted_to is not None:
        updates = [u for u in updates if u.memory in trace.restricted_to or not u.value.reads.isdisjoint(trace.restricted_to)]
    for u in updates:
        _read(machine, u, trace)
    for u in updates:
        _note_write(machine, u, trace)
    trace.order += 1


def _follow_let(machine: Execution, step: Let, trace: _Trace) -> None:
    if step.array.reads.isdisjoint(trace.written_leaves):
        machine.bind(step.local, machine.evaluator.store_of(step.array))
        _follow(machine, step.body, trace)
        return
    _read_array(machine, step.array, trace)
    enclosing_written = trace.written_leaves
    trace.written_leaves, trace.locals = (
        enclosing_written | {step.local},
        trace.locals | {step.local},
    )  # its contents are data: no control may read them
    _follow(machine, step.body, trace)
    trace.written_leaves = enclosing_written


def _read_array(machine: Execution, a: Array, trace: _Trace) -> None:
    """Note what an array that depends on the written memories reads of them."""
    element = a[(0,) * a.rank]
    loads, extents = loads_and_binders(element)
    if any(not n.reads.isdisjoint(trace.written_leaves) for n in extents.values()):
        raise NotUniform("the length of a local depends on what the loop writes")
    _check_lengths(machine, element)
    for load in loads:
        if load.data in trace.written_leaves - trace.locals:
            _note_read(machine, load, extents, trace)
    trace.order += 1


def _inner(machine: Execution, step: Loop, trace: _Trace) -> None:
    """Follow an inner loop as one more axis; where its control differs between iterations, one by one."""
    if not step.extent.reads.isdisjoint(trace.written_leaves):
        raise NotUniform("an inner loop's length depends on what the loop writes")
    extent = machine.evaluator.number(step.extent)
    if extent > 1:
        snapshot = _snapshot(trace.reads), _snapshot(trace.writes), trace.order
        try:
            _follow_along(machine, step, extent, trace)
        except NotUniform:
            trace.reads, trace.writes, trace.order = snapshot
            machine.invalidate(frozenset(machine.memories))
        else:
            return
    if extent > MAX_UNROLLED:
        raise NotUniform(f"an inner loop of {extent} iterations has conditions of its own")
    for k in range(extent):
        with machine.evaluator.inner_scope({step.variable: k}):
            _follow(machine, step.body, trace)


def _snapshot(accesses: dict[Leaf, list[_Access]]) -> dict[Leaf, list[_Access]]:
    return {leaf: list(leaf_accesses) for leaf, leaf_accesses in accesses.items()}


def _follow_along(machine: Execution, step: Loop, extent: int, trace: _Trace) -> None:
    machine.axes.add(axis_of(step.variable), extent)
    enclosing = trace.nest, trace.entry, trace.body, trace.is_untimed
    trace.is_untimed = trace.is_untimed or (trace.nest != () and trace.body is not step)
    trace.entry = trace.entry if trace.nest else trace.order
    trace.nest, trace.body = (*trace.nest, (axis_of(step.variable), extent)), step.body
    if math.prod(n for _, n in trace.nest) >= 1 << NEST_SHIFT - STATEMENT_SHIFT:
        trace.nest, trace.entry, trace.body, trace.is_untimed = enclosing
        raise NotUniform("the loops inside have too many iterations to be analysed at once")
    try:
        with machine.axis_scope(step.variable):
            _follow(machine, step.body, trace)
    finally:
        trace.nest, trace.entry, trace.body, trace.is_untimed = enclosing
    trace.order += 1


def _read(machine: Execution, u: Update, trace: _Trace) -> None:
    if any(not a.reads.isdisjoint(trace.written_leaves) for a in u.address):
        raise NotUniform("an address depends on what the loop writes")
    if _own_lengths(u.value):
        with machine.grid_scope(u):
            _check_lengths(machine, u.value)
    if u.value.reads.isdisjoint(trace.written_leaves):
        return
    loads, extents = loads_and_binders(u.value)
    with machine.grid_scope(u):
        for load in loads:
            if load.data in trace.written_leaves - trace.locals:
                _note_read(machine, load, extents, trace)


def _check_lengths(machine: Execution, value: Expr) -> None:
    """Raise NotUniform when a reduction in the value is longer in one iteration than in another."""
    for extent in _own_lengths(value):
        machine.evaluator.number(extent)


@lru_cache(maxsize=4096)
def _own_lengths(value: Expr) -> tuple[Expr, ...]:
    """Return the extents below a term that depend on variables from outside of it."""
    extents = loads_and_binders(value)[1]
    return tuple(n for n in extents.values() if n.free and n.free.isdisjoint(extents))


def loads_and_binders(e: Expr) -> tuple[list[Expr], dict[Expr, Expr]]:
    """Return the loads in a term, and the extent of every variable that the term binds."""
    loads = list(loads_of(e))
    extents: dict[Expr, Expr] = {}
    for x in terms_of(e):
        if x.op == "reduce":
            extents.update(zip(x.data[1], x.args[1:], strict=True))
        elif x.op == "load" and isinstance(x.data, Comprehension):
            extents.update(zip(x.data.variables, map(lift, x.data.shape), strict=True))
        elif x.op == "load" and isinstance(x.data, FoldResult):
            extents[x.data.fold.variable] = x.data.fold.extent
    return loads, extents


def _note_read(machine: Execution, load: Expr, extents: dict[Expr, Expr], trace: _Trace) -> None:
    if any(not i.reads.isdisjoint(trace.written_leaves) for i in load.args):
        raise NotUniform("an index depends on what the loop writes")
    inner = [(v, machine.evaluator.number(extents[v])) for i in load.args for v in i.free if v in extents]
    with machine.evaluator.inner_scope(axes=inner):
        access = _access(machine, load.data, load.args, trace, is_write=False)
    if not any(_covers(write, access, machine.axes) for write in trace.writes.get(load.data, ())):
        trace.reads.setdefault(load.data, []).append(access)


def _note_write(machine: Execution, u: Update, trace: _Trace) -> None:
    with machine.grid_scope(u):
        access = replace(_access(machine, u.memory, u.address, trace, is_write=True), own_axes=frozenset(map(axis_of, u.variables)))
    trace.writes.setdefault(u.memory, []).append(access)


def element_numbers(machine: Execution, leaf: Leaf, indices: Sequence[Expr]) -> LabelledArray:
    """Return the row-major element numbers of leaf[indices], over the axes bound now."""
    linear, axes = LabelledArray(0, ()), machine.axes
    for i, n in zip(indices, leaf.shape, strict=True):
        value = machine.evaluator.value(i)
        grid = axes.union(linear.axes, value.axes)
        size = int(machine.evaluator.number(lift(n)))
        linear = LabelledArray(np.asarray(axes.align(linear, grid)) * size + np.asarray(axes.align(value, grid), np.int64), grid)
    return LabelledArray(np.asarray(linear.data), linear.axes)


def _access(machine: Execution, leaf: Leaf, indices: Sequence[Expr], trace: _Trace, *, is_write: bool) -> _Access:
    linear = element_numbers(machine, leaf, indices)
    trace.elements = max(trace.elements, linear.data.size)
    if linear.data.size > MAX_ANALYSED_ELEMENTS:
        raise NotUniform("the loop touches too many elements to be analysed at once")
    time = np.broadcast_to(_moment(trace, linear, is_write), linear.data.shape)
    return _Access(time, linear.data, linear.axes)


def _moment(trace: _Trace, place: LabelledArray, is_write: bool) -> Data:
    """Return when a statement touches each element: statements before the nest, iteration of the nest, statement in it."""
    if trace.is_untimed:
        return np.asarray(-1 if is_write else ((trace.entry + 1) << NEST_SHIFT) - 1)
    iteration: Data = np.zeros((), np.int64)
    for axis, extent in trace.nest:
        shape = [extent if a == axis else 1 for a in place.axes]
        positions = np.arange(extent).reshape(shape) if axis in place.axes else 0 if is_write else extent - 1
        iteration = iteration * extent + positions
    return (
        ((trace.entry if trace.nest else trace.order) << NEST_SHIFT) + (iteration << STATEMENT_SHIFT) + (trace.order if trace.nest else 0)
    )


def _covers(write: _Access, read: _Access, axes: Axes) -> bool:
    """Tell whether every element read was written before in the same iteration of every loop around both."""
    if write.address.shape != axes.shape(write.axes):
        return False  # of an earlier run of the same inner loop, which had another length then
    outer_axes = tuple(a for a in write.axes if a not in write.own_axes)
    return bool(np.isin(_iteration_keys(read, outer_axes, axes), _iteration_keys(write, outer_axes, axes)).all())


def _iteration_keys(a: _Access, outer_axes: tuple[Axis, ...], axes: Axes) -> Data:
    """Return addresses made distinct between the iterations of the loops `around`."""
    grid = axes.union(a.axes, outer_axes)
    address = axes.full(LabelledArray(a.address, a.axes), grid)
    key: Data = np.zeros((), np.int64)
    for x in outer_axes:
        key = key * axes.extent[x] + axes.position(x, grid)
    return np.asarray(address + (key << 40))


def _independent(trace: _Trace, leaf: Leaf, axis: Axis, extent: int) -> bool:
    writes, reads = ([a for a in accesses.get(leaf, ()) if a.address.size] for accesses in (trace.writes, trace.reads))
    moving = [w for w in writes if axis in w.axes]
    fixed = [w for w in writes if axis not in w.axes]
    if not moving:
        return not any(np.isin(r.address, w.address).any() for r in reads for w in fixed)
    if fixed and any(np.isin(m.address, w.address).any() for m in moving for w in fixed):
        return False
    if any(np.isin(r.address, w.address).any() for r in reads for w in fixed):
        return False
    return _disjoint(moving, reads, axis, extent)


def _disjoint(writes: Sequence[_Access], reads: Sequence[_Access], axis: Axis, extent: int) -> bool:
    low = min(int(w.address.min()) for w in writes)
    high = max(int(w.address.max()) for w in writes)
    owner = np.full(high - low + 1, -1, np.int64)
    first = np.full(high - low + 1, np.iinfo(np.int64).max)  # the moment of the first write
    for w in writes:
        iteration = _iterations(w, axis, extent)
        flat = w.address.reshape(-1) - low
        previous_owner = owner[flat]
        if ((previous_owner >= 0) & (previous_owner != iteration)).any():
            return False
        owner[flat] = iteration
        if (owner[flat] != iteration).any():
            return False
        np.minimum.at(first, flat, w.time.reshape(-1))
    for r in reads:
        flat, time = r.address.reshape(-1) - low, r.time.reshape(-1)
        in_range = (flat >= 0) & (flat < len(owner))
        writer, is_after_write = owner[flat[in_range]], first[flat[in_range]] < time[in_range]
        is_everywhere = axis not in r.axes  # read by every iteration: the first and the last decide
        iteration = _iterations(r, axis, extent)[in_range]
        flow_dependence = (writer >= 0) & (writer < (extent - 1 if is_everywhere else iteration))
        anti_dependence = (writer > iteration) & is_after_write
        if flow_dependence.any() or anti_dependence.any():
            return False
    return True


def _iterations(a: _Access, axis: Axis, extent: int) -> Data:
    if axis not in a.axes:
        return np.zeros(a.address.size, np.int64)
    shape = [1] * a.address.ndim
    shape[a.axes.index(axis)] = extent
    return np.broadcast_to(np.arange(extent).reshape(shape), a.address.shape).reshape(-1)
