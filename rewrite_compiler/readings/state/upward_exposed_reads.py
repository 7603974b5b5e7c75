"""Upward-exposed reads: the vectors of each memory that a step reads before it writes them, and those it writes.

They follow from addresses and control conditions alone; loops are axes. The analysis is optimistic: it has the reads that
must happen and the writes that may. Order is by moments, numbers whose digits are positions in sequences and iterations of
loops.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace

import numpy as np

from ...lang.binders import Array, Leaf
from ...lang.expr import Expr, lift
from ...lang.step import Let, Loop, Require, Seq, Step, Together, Update, When, updates_of
from ...lang.traversal import inner_terms
from ..arrays.evaluator import NotUniform
from ..arrays.labelled_array import Axis, Data, LabelledArray, axis_of
from .dependence_test import element_numbers, loads_and_binders
from .interpreter import Machine

NEVER = np.iinfo(np.int64).max
MOMENT_BITS = 62  # bits of a moment
MAX_ELEMENTS = 1 << 24  # most elements of one address that are analysed
MAX_UNROLLED = 256  # most iterations that are analysed one by one

Runs = Data  # [n, 2]: first vector, first one behind
Accesses = dict[Leaf, list["_Access"]]
Snapshot = tuple[list[dict[Leaf, int]], int, set[Leaf]]


@dataclass(frozen=True, eq=False)
class DeferredWrites:
    """Deferred writes: their vectors are missing when one of the vectors that their values read is."""

    memory: Leaf
    writes: Runs
    reads: Mapping[Leaf, Runs]


@dataclass(frozen=True, eq=False)
class ExposedReads:
    """Runs of vectors by memory; `in_place` are reads of memories that the step updates for some results only."""

    reads: Mapping[Leaf, Runs]
    in_place: Mapping[Leaf, Runs]
    writes: Mapping[Leaf, Runs]
    deferred: Sequence[DeferredWrites] = ()


def exposed_reads_of(
    machine: Machine,
    step: Step,
    result: Array | None,
    vectors: Mapping[Leaf, int],
    invariant: frozenset[Leaf],
    deferred: frozenset[Leaf] = frozenset(),
) -> ExposedReads:
    """Return the upward-exposed reads of `step` followed by a read of `result`, in the present control state of the machine.

    `vectors` gives for each memory the elements of a vector; a vector of a memory with several axes runs along the last one.
    `steady` leaves are control state; updates of the memories `aside` are deferred.

    Raises:
        NotUniform: the extents inside a loop of more than 256 iterations differ between them.
    """
    walk = _Walk(machine, vectors, deferred, set(invariant))
    with np.errstate(all="ignore"):
        walk.step(step, lift(1), _Moment().nth(0, 2))
        if result is not None:
            walk.loads(result[(0,) * result.rank], lift(1), _Moment().nth(1, 2), walk.reads)
    return walk.needs()


@dataclass(frozen=True)
class _Moment:
    """When something happens: a number, to which positions along axes add digits of their own."""

    number: int = 0
    axes: tuple[tuple[Axis, int], ...] = ()  # with the place of their digits
    remaining_bits: int = MOMENT_BITS
    is_unordered: bool = False  # out of bits: events inside have one moment

    def nth(self, n: int, count: int) -> _Moment:
        """Return the moment of part n of so many."""
        low = self.remaining_bits - (count - 1).bit_length()
        return replace(self, is_unordered=True) if self.is_unordered or low < 1 else _Moment(self.number + (n << low), self.axes, low)

    def in_loop(self, axis: Axis, extent: int) -> _Moment:
        """Return the moments of the iterations of a loop."""
        low = self.remaining_bits - (extent - 1).bit_length()
        return replace(self, is_unordered=True) if self.is_unordered or low < 1 else _Moment(self.number, (*self.axes, (axis, low)), low)

    def latest(self) -> _Moment:
        """Return the last moment inside, where events there have no order."""
        return replace(self, number=self.number + (1 << self.remaining_bits) - 1) if self.is_unordered else self


@dataclass(frozen=True, eq=False)
class _Access:
    """Vectors and, of each, the first moment; whether other results of the same term do without."""

    rows: Data
    moments: Data
    is_partial: bool = False


@dataclass(eq=False)
class _Walk:
    machine: Machine
    vectors: Mapping[Leaf, int]
    deferred_memories: frozenset[Leaf]
    steady: set[Leaf]
    reads: Accesses = field(default_factory=dict)
    writes: Accesses = field(default_factory=dict)
    deferred: list[tuple[Leaf, Accesses, Accesses]] = field(default_factory=list)
    is_sure: bool = True  # whether the statement under analysis certainly runs

    # -- steps

    def step(self, step: Step, guard: Expr, at: _Moment) -> None:
        """Note what a step touches where `guard` is 1."""
        if isinstance(step, Update):
            self.updates((step,), guard, at)
        elif isinstance(step, Together):
            self.updates(step.updates, guard, at)
        elif isinstance(step, Seq):
            for n, part in enumerate(step.steps):
                self.step(part, guard, at.nth(n, len(step.steps)))
                self.steady.difference_update(_written(part))
        elif isinstance(step, When):
            self.when(step, guard, at)
        elif isinstance(step, Loop):
            self.loop(step, guard, at)
        elif isinstance(step, Let):
            self.let(step, guard, at)
        else:
            assert isinstance(step, Require)

    def when(self, step: When, guard: Expr, at: _Moment) -> None:
        c = step.condition
        if not c.reads <= self.steady:
            was_sure, self.is_sure = self.is_sure, False
            for part in (step.then, step.otherwise):
                self.step(part, guard, at)
            self.is_sure = was_sure
            return
        value = np.asarray(self.machine.evaluator.value(c).data)
        if value.any():
            self.step(step.then, guard if value.all() else guard & c, at)
        if not value.all():
            self.step(step.otherwise, guard & ~c if value.any() else guard, at)

    def loop(self, step: Loop, guard: Expr, at: _Moment) -> None:
        self.steady.difference_update(_written(step.body))
        if not step.extent.reads <= self.steady:
            self.write_all(step)
            return
        snapshot = self.snapshot()
        with self.bound_axes([(step.variable, step.extent)], guard) as inner:
            if inner is None:
                return
            axis = axis_of(step.variable)
            extent = self.machine.axes.extent[axis]
            try:
                self.step(step.body, inner, at.in_loop(axis, extent))
                return
            except NotUniform:
                if extent > MAX_UNROLLED:
                    raise
        self.restore(snapshot)
        for k in range(extent):  # lengths inside differ between the iterations
            with self.machine.evaluator.inner_scope({step.variable: k}):
                self.step(step.body, inner, at.nth(k, extent))

    def snapshot(self) -> Snapshot:
        """Return the numbers of accesses recorded so far, for `restore`."""
        return [{m: len(x) for m, x in accesses.items()} for accesses in (self.reads, self.writes)], len(self.deferred), set(self.steady)

    def restore(self, snapshot: Snapshot) -> None:
        """Drop the accesses recorded since a snapshot."""
        lengths, pending, self.steady = snapshot
        del self.deferred[pending:]
        for accesses, length_of in zip((self.reads, self.writes), lengths, strict=True):
            for memory, memory_accesses in accesses.items():
                del memory_accesses[length_of.get(memory, 0) :]

    def let(self, step: Let, guard: Expr, at: _Moment) -> None:
        if self.is_sure:
            self.loads(step.array[(0,) * step.array.rank], guard, at.nth(0, 2).latest(), self.reads)
        if step.array.reads <= self.steady:
            self.bind(step)
        self.step(step.body, guard, at.nth(1, 2))

    def bind(self, step: Let) -> None:
        try:
            self.machine.bind(step.local, self.machine.evaluator.store_of(step.array))
        except NotUniform:
            return
        self.steady.add(step.local)

    def write_all(self, step: Step) -> None:
        """Take all vectors of what a step writes as written."""
        for memory in _written(step) & self.vectors.keys():
            rows = np.arange(self.count(memory))
            self.writes.setdefault(memory, []).append(_Access(rows, np.zeros_like(rows)))

    # -- reads and writes

    def updates(self, updates: Sequence[Update], guard: Expr, at: _Moment) -> None:
        for u in updates:
            reads, writes = (self.reads, self.writes)
            if u.memory in self.deferred_memories:
                reads, writes = {}, {}
                self.deferred.append((u.memory, reads, writes))
            if any(not n.reads <= self.steady for n in u.extents):
                self.write_all(u)
                continue
            with self.bound_axes(list(zip(u.variables, u.extents, strict=True)), guard) as inner:
                if inner is None:
                    continue
                for term in (u.value, *u.address) if self.is_sure else ():
                    self.loads(term, inner, at.nth(0, 2).latest(), reads)
                if u.memory in self.vectors:
                    self.write(u, inner, at.nth(1, 2), writes)

    def write(self, u: Update, guard: Expr, at: _Moment, writes: Accesses) -> None:
        access = self.access(u.memory, u.address, guard, at) if all(a.reads <= self.steady for a in u.address) else None
        if access is None:
            self.write_all(u)
        else:
            writes.setdefault(u.memory, []).append(access)

    def loads(self, term: Expr, guard: Expr, at: _Moment, reads: Accesses) -> None:
        """Note the loads below a term, those in a branch of a `select` where it is taken."""
        if term.reads.isdisjoint(self.vectors):
            return
        extents = loads_and_binders(term)[1]
        for load, condition in _loads_with_conditions(term, self.steady):
            if load.data not in self.vectors:
                continue
            variables = _bound_variables(condition.free.union(*(i.free for i in load.args)), extents)
            control = [*load.args, *(extents[v] for v in variables)]
            if not all(e.reads <= self.steady for e in control):
                continue
            with self.bound_axes([(v, extents[v]) for v in variables], guard & condition) as inner:
                access = None if inner is None else self.access(load.data, load.args, inner, at)
                is_partial = access is not None and not self.is_uniform(condition)
            if access is not None:
                reads.setdefault(load.data, []).append(replace(access, is_partial=is_partial))

    def is_uniform(self, e: Expr) -> bool:
        value = np.asarray(self.machine.evaluator.value(e).data)
        return bool((value == value.flat[0]).all())

    @contextmanager
    def bound_axes(self, axes: Sequence[tuple[Expr, Expr]], guard: Expr) -> Iterator[Expr | None]:
        """Bind variables to axes of their largest extents; the guard is 0 beyond their own. None when nothing is left."""
        with ExitStack() as stack:
            for variable, extent in axes:
                value = np.asarray(self.machine.evaluator.value(extent).data)
                max_extent = int(value.max()) if value.size else 0
                if max_extent <= 0:
                    yield None
                    return
                stack.enter_context(self.machine.evaluator.inner_scope(axes=[(variable, max_extent)]))
                guard = guard if (value == max_extent).all() else guard & (variable < extent)
            yield guard

    def access(self, memory: Leaf, address: Sequence[Expr], guard: Expr, at: _Moment) -> _Access | None:
        """Return the vectors at an address and the first moments at which the guard is 1; None when there are too many."""
        ev, axes = self.machine.evaluator, self.machine.axes
        length = self.vectors[memory]
        row_address = address if memory.rank == 1 else address[:-1]
        if max(ev.element_count(frozenset().union(*(i.free for i in row_address)), ()), ev.element_count(guard.free, ())) > MAX_ELEMENTS:
            return None
        place = element_numbers(self.machine, memory if memory.rank == 1 else _rows_of(memory), row_address)
        rows = place.data // length if memory.rank == 1 else place.data
        first = self.first(ev.value(guard), place.axes, at)
        moments = np.asarray(axes.align(first, place.axes), np.int64)
        offsets = sum((axes.position(a, place.axes) << low for a, low in at.axes if a in place.axes), np.int64(0))
        moments = np.where(moments == NEVER, NEVER, moments + offsets)
        rows, moments = (x.reshape(-1) for x in np.broadcast_arrays(rows, moments))
        is_touched = (moments != NEVER) & (rows >= 0) & (rows < self.count(memory))
        return _Access(rows[is_touched], moments[is_touched])

    def first(self, guard: LabelledArray, kept_axes: tuple[Axis, ...], at: _Moment) -> LabelledArray:
        """Return the first moment, positions along the axes `along` left out, at which a guard is 1."""
        free = [a for a in guard.axes if a not in kept_axes]
        digits = sum((self.machine.axes.position(a, guard.axes) << low for a, low in at.axes if a in free), np.int64(0))
        moments = np.where(np.asarray(guard.data) != 0, at.number + digits, NEVER)
        return LabelledArray(moments.min(axis=tuple(guard.axes.index(a) for a in free)), tuple(a for a in guard.axes if a in kept_axes))

    # -- the answer

    def count(self, memory: Leaf) -> int:
        """Return how many vectors a memory has."""
        shape = [int(n) for n in memory.shape]  # type: ignore[arg-type]
        return -(-shape[0] // self.vectors[memory]) if len(shape) == 1 else math.prod(shape[:-1])

    def needs(self) -> ExposedReads:
        """Return the result of the walk."""
        by_kind = [{m: [a for a in x if (a.is_partial and m in self.writes) == p] for m, x in self.reads.items()} for p in (False, True)]
        reads, in_place = ({m: self.missing(m, x) for m, x in kind.items() if x} for kind in by_kind)
        pending = [
            DeferredWrites(m, _runs(deferred_writes[m]), {k: self.missing(k, x) for k, x in deferred_reads.items()})
            for m, deferred_reads, deferred_writes in self.deferred
            if m in deferred_writes
        ]
        return ExposedReads(reads, in_place, {m: _runs(x) for m, x in self.writes.items()}, pending)

    def missing(self, memory: Leaf, reads: Sequence[_Access]) -> Runs:
        """Return the vectors that are read at some moment without having been written before."""
        writes = [a for a in self.writes.get(memory, ()) if a.rows.size]
        if not writes:
            return _runs(reads)
        low, high = min(int(a.rows.min()) for a in writes), max(int(a.rows.max()) for a in writes)
        first = np.full(high - low + 3, NEVER)  # one more on both sides, for all the others
        for a in writes:
            np.minimum.at(first, a.rows - low + 1, a.moments)
        return _runs([_Access(a.rows[first[np.clip(a.rows - low + 1, 0, high - low + 2)] >= a.moments], a.moments) for a in reads])


def _rows_of(memory: Leaf) -> Leaf:
    return Leaf(memory.shape[:-1], memory.interval, memory.real, memory.name)


def _written(step: Step) -> frozenset[Leaf]:
    return frozenset(u.memory for u in updates_of(step))


def _bound_variables(variables: frozenset[Expr], extents: Mapping[Expr, Expr]) -> list[Expr]:
    """Return the wanted variables that are bound inside of a term, after those that their extents need."""
    ordered: dict[Expr, None] = {}
    for v in variables & extents.keys():
        ordered.update(dict.fromkeys(_bound_variables(extents[v].free, extents)))
        ordered[v] = None
    return list(ordered)


def _loads_with_conditions(term: Expr, steady: set[Leaf]) -> Iterator[tuple[Expr, Expr]]:
    """Yield the loads below a term, with the condition on control under which their values matter: not in another branch, not times 0."""
    conditions = {term: lift(1)}
    for x in _topological_order(term):
        if x not in conditions:
            continue
        condition = conditions[x]
        if x.op == "load":
            yield x, condition
        for y, part_condition in _parts_with_conditions(x, condition, steady):
            previous = conditions.get(y)
            conditions[y] = (
                part_condition
                if previous is None or part_condition.value == 1
                else previous
                if previous is part_condition or previous.value == 1
                else previous | part_condition
            )


def _parts_with_conditions(x: Expr, condition: Expr, steady: set[Leaf]) -> list[tuple[Expr, Expr]]:
    """Return the parts of a term, each with the condition under which it matters."""
    if x.op == "select":
        c, a, b = x.args
        return [(c, condition), *([(a, condition & c), (b, condition & ~c)] if c.reads <= steady else [])]
    if x.op == "mul":
        a, b = x.args
        return [(p, condition & (q != 0) if q.value is None and q.reads <= steady else condition) for p, q in ((a, b), (b, a))]
    return [(y, condition) for y in inner_terms(x)]


def _topological_order(term: Expr) -> list[Expr]:
    """Return the terms below a term, each before its own parts."""
    postorder: list[Expr] = []
    visited, work = set[Expr](), [(term, False)]
    while work:
        x, is_done = work.pop()
        if is_done:
            postorder.append(x)
        elif x not in visited:
            visited.add(x)
            work.append((x, True))
            work.extend((y, False) for y in inner_terms(x) if y not in visited)
    return postorder[::-1]


def _runs(accesses: Sequence[_Access]) -> Runs:
    """Return vectors as runs of consecutive ones."""
    rows = np.concatenate([a.rows for a in accesses]) if accesses else np.empty(0, np.int64)
    if not rows.size:
        return np.empty((0, 2), np.int64)
    low = int(rows.min())
    marked = np.zeros(int(rows.max()) - low + 3, np.int8)
    marked[rows - low + 1] = 1
    edges = np.flatnonzero(np.diff(marked))
    return edges.reshape(-1, 2) + low
