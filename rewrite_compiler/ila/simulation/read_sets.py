"""Read and write sets of instructions: what must be initialised before an instruction, and which elements it accesses.

Both depend on the configuration alone (the instruction, the control state that decides its accesses, its operands) and are cached
by it. The cache holds more configurations than a large application has (MobileNet-V2 on VTA: 908), since a stream returns to the first
one only after all others.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from threading import Lock
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from ...errors import SpecError
from ...lang.binders import Array, Comprehension, Leaf, index_variable, static_shape
from ...lang.expr import Expr
from ...lang.step import Let, Loop, Require, Step, Update, When, children, reads_of, terms_in
from ...lang.traversal import loads_of
from ...readings.arrays.labelled_array import Data, Store, axis_of
from ...readings.state.access_bounds import AccessBounds, access_bounds
from ...readings.state.control_intervals import Part, hull_of
from ...readings.state.footprint import Footprint, footprint
from ...readings.state.interpreter import Machine
from ...readings.state.upward_exposed_reads import ExposedReads, exposed_reads_of
from ...readings.state.value_count import value_count
from ..model import CONTROL, Ila, Instruction
from ..verification.queue_interleavings import written_by

MAX_CACHED = 1 << 14  # answers about configurations of one model
NOTHING = ExposedReads({}, {}, {})
Row = tuple[int | str, ...]  # of each axis but the last: a number, or the operand that gives it
Answer = TypeVar("Answer")
_caches: WeakKeyDictionary[Ila, OrderedDict[Any, Any]] = WeakKeyDictionary()
_lock = Lock()


def vector_sizes_of(ila: Ila) -> dict[Leaf, int]:
    """Return the tracked memories of a device with the elements of a vector: the last axis or, of flat memories, one bus word."""
    external = {e.leaf for e in ila.externals.values()}
    states = [s for s in ila.states.values() if s.is_memory and s.binding != CONTROL and s.leaf.rank and s.leaf not in external]
    data = ila.inputs.get("data")
    bus = 0 if data is None else math.prod(static_shape(data)) * (data.interval[1] or 0).bit_length()
    return {s.leaf: static_shape(s.leaf)[-1] if s.leaf.rank > 1 else max(bus // s.bits, 1) for s in states}


def instruction_needs(
    ila: Ila, memories: Mapping[Leaf, Store], instruction: Instruction, operands: Mapping[str, Any], count: int,
    vector_sizes: Mapping[Leaf, int], is_initialised: Callable[[AccessBounds], bool],
) -> ExposedReads | None:  # fmt: skip
    """Return the upward-exposed reads and the writes of an instruction in the current control state.

    With a `count`, operands have a leading axis of commands. None when the instruction touches no tracked memory, or when its accesses
    are unknown because the model itself refuses the configuration. Nothing is listed where all that may be touched `is_initialised`.
    """
    if not touches(instruction, vector_sizes):
        return None
    if is_initialised(instruction_bounds(ila, memories, instruction, operands)):
        return NOTHING
    control = _control_of(ila, instruction) if ila.queues else _deciding(ila, instruction)  # of queues footprints are asked by it, too
    configuration = _configuration(control, memories, instruction, operands)
    needs = lambda: _compute_needs(ila, memories, instruction, operands, count, vector_sizes)  # noqa: E731
    return _cached(ila, configuration + b"needs of %d" % count, needs)


def touches(instruction: Instruction, memories: Collection[Leaf]) -> bool:
    """Tell whether an instruction reads or writes one of these memories."""
    return not (written_by(instruction) | _read_by(instruction)).isdisjoint(memories)


def is_access_static(ila: Ila, instruction: Instruction) -> bool:
    """Tell whether operands alone decide what an instruction accesses in the tracked memories."""
    return not _deciding(ila, instruction)


def bounds_of_operands(
    ila: Ila, memories: Mapping[Leaf, Store], instruction: Instruction, operands: Mapping[str, Any]
) -> AccessBounds:  # fmt: skip
    """Return bounds of the elements that an instruction accesses in its memories, whatever control state holds."""
    return _bounds(ila, memories, instruction, operands, ())


def instruction_bounds(ila: Ila, memories: Mapping[Leaf, Store], instruction: Instruction, operands: Mapping[str, Any]) -> AccessBounds:
    """Return bounds of the elements that an instruction accesses in its memories, control state left out."""
    return _bounds(ila, memories, instruction, operands, _control_of(ila, instruction))


def instruction_values(ila: Ila, memories: Mapping[Leaf, Store], instruction: Instruction, operands: Mapping[str, Any]) -> int:
    """Return about how many values an instruction computes in the current control state."""
    control = _control_of(ila, instruction)
    values = lambda: value_count(instruction.update, _contents(memories, instruction, operands, control))  # noqa: E731
    return _cached_by_parts(ila, _configuration((), memories, instruction, operands) + b"values", memories, control, values)


def _contents(
    memories: Mapping[Leaf, Store], instruction: Instruction, operands: Mapping[str, Any], control: tuple[Leaf, ...]
) -> dict[Leaf, Data]:  # fmt: skip
    """Return the values of control state and scalar operands."""
    return {leaf: memories[leaf].data for leaf in control} | {
        leaf: np.asarray(operands[name]) for name, leaf in _scalars(instruction).items()
    }


def _bounds(
    ila: Ila, memories: Mapping[Leaf, Store], instruction: Instruction, operands: Mapping[str, Any], control: tuple[Leaf, ...]
) -> AccessBounds:  # fmt: skip
    """Return bounds of accesses, by the contents of `control`."""

    def bounds() -> tuple[AccessBounds, Collection[Part]]:
        shapes = {leaf: memories[leaf].element_shape for leaf in _touched(ila, instruction)}
        return access_bounds(instruction.update, instruction.result, shapes, _contents(memories, instruction, operands, control))

    sizes = [memories[leaf].element_shape for leaf in _touched_externals(ila, instruction)]
    question = _configuration((), memories, instruction, operands) + f"bounds {sizes} by {len(control)}".encode()
    return _cached_by_parts(ila, question, memories, control, bounds)


def instruction_accesses(
    machine: Machine, ila: Ila, instruction: Instruction, operands: Mapping[str, Any], memories: frozenset[Leaf]
) -> tuple[AccessBounds, Callable[[], Footprint]]:
    """Return bounds of what an instruction accesses in the current control state, and a function of its footprint.

    The function may be called later: it has a copy of the control state, unless values that are no control decide what is accessed.
    """
    if not _is_footprint_static(ila, instruction, memories):
        for name, o in instruction.operands.items():
            machine.bind(o.leaf, Store(np.asarray(operands[name]).reshape(static_shape(o.leaf))))
        accesses = footprint(machine, instruction.update, memories)
        return _bounds_of(accesses), lambda: accesses
    decisive = _control_of(ila, instruction)
    control = (*decisive, *(leaf for e in ila.externals.values() for leaf in (e.base, e.size)))
    state = {leaf: Store(machine.memories[leaf].data.copy()) for leaf in control}

    def compute() -> Footprint:
        past = Machine({})
        for leaf, x in state.items():
            past.bind(leaf, Store(x.data.reshape(static_shape(leaf))))
        for name, leaf in _scalars(instruction).items():
            past.bind(leaf, Store(np.asarray(operands[name]).reshape(static_shape(leaf))))
        return _without_duplicates(footprint(past, instruction.update, memories))

    bounds = instruction_bounds(ila, machine.memories, instruction, operands)
    return bounds, lambda: _cached(ila, _configuration(decisive, state, instruction, operands) + b"touched", compute)


def _bounds_of(accesses: Footprint) -> AccessBounds:
    def bounds(elements: Mapping[Leaf, Sequence[Data]]) -> dict[Leaf, tuple[int, int]]:
        numbers = {leaf: np.concatenate(x) for leaf, x in elements.items()}
        return {leaf: (int(x.min()), int(x.max())) for leaf, x in numbers.items() if x.size}

    return AccessBounds(bounds(accesses.reads), bounds(accesses.writes))


def _without_duplicates(accesses: Footprint) -> Footprint:
    """Return a footprint that names every element once."""

    def distinct(elements: Mapping[Leaf, Sequence[Data]]) -> dict[Leaf, list[Data]]:
        return {leaf: [_distinct_numbers(np.concatenate(x))] for leaf, x in elements.items()}

    return Footprint(distinct(accesses.reads), distinct(accesses.writes))


def _distinct_numbers(values: Data) -> Data:
    """Return numbers once each, in order."""
    low = int(values.min(initial=0))
    present = np.zeros(int(values.max(initial=low)) - low + 1, np.bool_)
    present[values - low] = values.size > 0
    return (np.flatnonzero(present) + low).astype(np.int32)


def _configuration(
    control: tuple[Leaf, ...], memories: Mapping[Leaf, Store], instruction: Instruction, operands: Mapping[str, Any]
) -> bytes:  # fmt: skip
    parts = [memories[leaf].data.tobytes() for leaf in control]
    parts += [np.asarray(operands[name], np.int64).tobytes() for name in _scalars(instruction)]
    return blake2b(instruction.name.encode() + b"".join(parts), digest_size=16).digest()


def _cached(ila: Ila, configuration: bytes, compute: Callable[[], Answer]) -> Answer:
    cached_answer = _lookup(ila, configuration)
    if cached_answer is not None:
        return cached_answer  # type: ignore[no-any-return]
    answer = compute()
    if answer is not None:  # else the model refuses a configuration of which only a part is known here
        _keep(ila, configuration, answer)
    return answer


def _cached_by_parts(
    ila: Ila, question: bytes, memories: Mapping[Leaf, Store], control: Collection[Leaf],
    compute: Callable[[], tuple[Answer, Collection[Part]]],
) -> Answer:  # fmt: skip
    """Return an answer about intervals, kept by the hulls of those parts of the control state that computing it has read.

    Each part that answers to a question have read is in the keys of all further ones.
    """
    parts: tuple[Part, ...] = _lookup(ila, question) or ()
    cached_answer = _lookup(ila, (question, *((part, hull_of(memories[part[0]].data, part[1])) for part in parts)))
    if cached_answer is not None:
        return cached_answer  # type: ignore[no-any-return]
    answer, parts_read = compute()
    further_parts = [part for part in parts_read if part[0] in control and part not in parts]
    if further_parts:
        parts = (*parts, *further_parts)
        _keep(ila, question, parts)
    _keep(ila, (question, *((part, hull_of(memories[part[0]].data, part[1])) for part in parts)), answer)
    return answer


def _lookup(ila: Ila, key: Any) -> Any:
    """Return a kept answer, None where there is none."""
    with _lock:  # simulators of one model run in several threads
        cache = _caches.setdefault(ila, OrderedDict())
        if key not in cache:
            return None
        cache.move_to_end(key)
        return cache[key]


def _keep(ila: Ila, key: Any, answer: Any) -> None:
    with _lock:
        cache = _caches.setdefault(ila, OrderedDict())
        cache[key] = answer
        if len(cache) > MAX_CACHED:
            cache.popitem(last=False)


def _compute_needs(
    ila: Ila, memories: Mapping[Leaf, Store], instruction: Instruction, operands: Mapping[str, Any], count: int,
    vector_sizes: Mapping[Leaf, int],
) -> ExposedReads | None:  # fmt: skip
    machine, counter = Machine({}), index_variable("n", max(count, 1))
    machine.memories.update(memories)
    machine.axes.add(axis_of(counter), max(count, 1))
    scalars = _scalars(instruction)
    for name, leaf in scalars.items():
        machine.bind(leaf, Store(np.asarray(operands[name]).reshape(-1), (axis_of(counter),)))
    steady = frozenset(s.leaf for s in ila.states.values() if s.binding == CONTROL).union(scalars.values())
    try:
        with machine.axis_scope(counter):
            return exposed_reads_of(
                machine, instruction.update, instruction.result, vector_sizes, steady, _outgoing(ila, len(ila.instructions))
            )
    except SpecError:
        return None


@lru_cache(maxsize=1024)
def _scalars(instruction: Instruction) -> Mapping[str, Leaf]:
    return {name: o.leaf for name, o in instruction.operands.items() if not o.leaf.rank}


@lru_cache(maxsize=1024)
def _touched(ila: Ila, instruction: Instruction) -> tuple[Leaf, ...]:
    """Return the memories that an instruction accesses, those of one element left out."""
    touched = written_by(instruction) | _read_by(instruction)
    return tuple(s.leaf for s in ila.states.values() if s.leaf in touched and s.leaf.rank)


@lru_cache(maxsize=1024)
def _touched_externals(ila: Ila, instruction: Instruction) -> tuple[Leaf, ...]:
    touched = written_by(instruction) | _read_by(instruction)
    return tuple(e.leaf for e in ila.externals.values() if e.leaf in touched)


@lru_cache(maxsize=1024)
def _control_of(ila: Ila, instruction: Instruction) -> tuple[Leaf, ...]:
    return tuple(s.leaf for s in ila.states.values() if s.binding == CONTROL and s.leaf in _read_by(instruction))


@lru_cache(maxsize=1024)
def _deciding(ila: Ila, instruction: Instruction) -> tuple[Leaf, ...]:
    """Return the control state that decides which elements of the tracked memories an instruction accesses."""
    tracked = frozenset(vector_sizes_of(ila))
    result, count = instruction.result, -1
    reads = frozenset[Leaf]() if result is None else result.reads
    while len(reads) != count:
        count, reads = len(reads), reads | _deciding_reads(instruction.update, tracked, reads)
    return tuple(leaf for leaf in _control_of(ila, instruction) if leaf in reads)


def _deciding_reads(step: Step, tracked: frozenset[Leaf], deciding: frozenset[Leaf]) -> frozenset[Leaf]:
    """Return what a step reads that decides accesses of tracked memories: loops, conditions, names, and these of updates.

    They are addresses of tracked memories, whatever is read along with them, and what is written to a deciding memory.
    """
    terms: list[Expr | Array] = []
    if isinstance(step, Update):
        decides = step.memory in deciding
        terms += step.extents
        terms += (e for e in step.address if decides or step.memory in tracked or not e.reads.isdisjoint(tracked))
        terms += [step.value] if decides or not step.value.reads.isdisjoint(tracked) else []
    elif isinstance(step, When) or (isinstance(step, Require) and not step.condition.reads.isdisjoint(tracked)):
        terms.append(step.condition)
    elif isinstance(step, Loop):
        terms.append(step.extent)
    elif isinstance(step, Let):
        terms.append(step.array)
    return frozenset[Leaf]().union(*(t.reads for t in terms), *(_deciding_reads(part, tracked, deciding) for part in children(step)))


@lru_cache(maxsize=1024)
def _is_footprint_static(ila: Ila, instruction: Instruction, memories: frozenset[Leaf]) -> bool:
    """Tell whether control and operands decide which elements an instruction loads from these memories; its stores they always do."""
    control_and_operands = {s.leaf for s in ila.states.values() if s.binding == CONTROL} | set(_scalars(instruction).values())
    loads = (load for e in terms_in(instruction.update) for load in loads_of(e) if load.data in memories)
    return all(i.reads <= control_and_operands for load in loads for i in load.args)


@lru_cache(maxsize=1024)
def _read_by(instruction: Instruction) -> frozenset[Leaf]:
    result = instruction.result
    return reads_of(instruction.update) | (frozenset() if result is None else result.reads)


@lru_cache(maxsize=64)
def _outgoing(ila: Ila, _: int) -> frozenset[Leaf]:
    """Return the memories that no instruction computes with: they are read by the host, or copied to memory outside of the device."""
    external = frozenset(e.leaf for e in ila.externals.values())
    inner = [_inner_reads(i.update, external) for i in ila.instructions.values()]
    return frozenset(s.leaf for s in ila.states.values() if s.is_memory) - frozenset[Leaf]().union(*inner)


def _inner_reads(step: Step, external: frozenset[Leaf]) -> frozenset[Leaf]:
    """Return what a step reads, but for the values that it stores in memory outside of the device."""
    if isinstance(step, Update):
        return frozenset() if step.memory in external else reads_of(step)
    array_reads = step.array.reads if isinstance(step, Let) else frozenset[Leaf]()
    return array_reads.union(*(_inner_reads(part, external) for part in children(step)))


# -- loads and stores of one vector that operands name


@lru_cache(maxsize=1024)
def addressed_row(instruction: Instruction) -> tuple[Leaf, Row, bool] | None:
    """Return the memory and the vector that an instruction reads or stores (True), when operands name it and it does nothing else."""
    result, u = instruction.result, instruction.update
    if isinstance(result, Comprehension) and not written_by(instruction):
        e = result.body
        row = _row(e.args, instruction) if e.op == "load" and isinstance(e.data, Leaf) else None
        return None if row is None else (e.data, row, False)
    if result is not None or not isinstance(u, Update) or len(u.variables) != 1 or u.address[-1] is not u.variables[0]:
        return None
    row = _row(u.address, instruction) if u.extents[0].value == u.memory.shape[-1] else None
    return None if row is None else (u.memory, row, True)


def _row(address: tuple[Expr, ...], instruction: Instruction) -> Row | None:
    names = {id(leaf[()]): name for name, leaf in _scalars(instruction).items()}
    row = [names.get(id(e)) if e.value is None else int(e.value) for e in address[:-1]]
    return None if not row or None in row else tuple(x for x in row if x is not None)


def row_indices(row: Row, operands: Mapping[str, Any]) -> tuple[Data, ...]:
    """Return the index arrays, one entry for each command, of the vectors that a row names."""
    return tuple(np.broadcast_arrays(*(np.asarray(operands[x] if isinstance(x, str) else x, np.int64).reshape(-1) for x in row)))
