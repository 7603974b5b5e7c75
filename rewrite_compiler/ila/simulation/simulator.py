"""The simulator of a model: executes commands singly or in blocks of one instruction over many samples.

Readings: `oracle` runs generated Python, `arrays` numpy over whole index grids, `native` machine code; all give the same
bits. Instructions that touch only control state run as generated Python in every reading. `native` compiles whole instructions
and falls back to numpy for long blocks, for several samples, and for values that words of 64 bits cannot hold.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, MutableSequence, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import AnswerNo, SpecError, UsageError
from ...lang.binders import Leaf, index_variable, static_shape
from ...lang.expr import Expr, const, var
from ...lang.step import Loop, Seq, Step, assign, has_loops, seq, update, updates_of, when
from ...readings.arrays.batched_memory import Memory
from ...readings.arrays.labelled_array import Axis, Data, Store, axis_of, storage_dtype
from ...readings.kernels.selection import machine_code_refusal
from ...readings.oracle.emit_python import StepFunction
from ...readings.state.dependence_test import is_parallel
from ...readings.state.interpreter import Machine
from ..mmio import Command, assemble, split_lanes
from ..model import CONTROL, Ila, Instruction, instruction_of, unknown_name_error
from .batch_decoder import play
from .initialisation_tracking import InitialisationMap
from .read_sets import instruction_values

if TYPE_CHECKING:
    from ...readings.native.printer import Call, NativeFunction

READINGS = ("arrays", "oracle", "native")
CACHED_DECODES = 1 << 16
# an instruction is compiled fast, and again to this level when it has run for as long as that may take, or a call computes so many values
LEVEL, LIGHT_SECONDS, LIGHT_VALUES = 2, 0.5, 1 << 29
SHORT_BLOCK = 256  # commands that machine code runs one by one; numpy is quicker on more


class DeviceHang(AnswerNo):
    """The device waits for something that cannot come."""

    def __init__(self, engine: str, sentence: str) -> None:
        super().__init__("I104", f"no interrupt can come: {engine} {sentence}")


class Simulator:
    """One device: its state, and the commands that drive it."""

    def __init__(self, ila: Ila, *, reading: str = "arrays", strict: bool = False, samples: int = 0) -> None:
        """Start at the reset state; with `samples`, operands and results may have a leading axis of samples.

        Raises:
            UsageError: F203, there is no such reading, or the oracle is to run several samples.
        """
        if reading not in READINGS:
            raise UsageError("F203", f'there is no reading "{reading}"', help=f"known: {', '.join(READINGS)}")
        if reading == "oracle" and samples > 1:
            raise UsageError(
                "F203", "the reading oracle runs one sample at a time", help="make one simulator a sample, or use reading arrays"
            )
        self.ila, self.reading, self.strict, self.samples = ila, reading, strict, samples
        self.memories: dict[Leaf, Memory] = {}
        self.views: dict[Leaf, MutableSequence[Any]] = {}
        for state in ila.states.values():
            shape = (0,) if state.name in ila.externals else static_shape(state.leaf)
            dtype = storage_dtype(state.leaf.interval)
            self._place(state.leaf, np.full(shape, state.reset, dtype) if state.reset else np.zeros(shape, dtype))  # zeros cost no pages
        # instructions that another reading ran in the reading native, and why
        reason = machine_code_refusal() if reading == "native" else ""
        self.not_native = dict.fromkeys(ila.instructions, reason) if reason else {}
        self.by_arrays = reading == "arrays" or (reading == "native" and (samples > 1 or bool(reason)))
        self.machine = Machine(self.memories, strict=strict)
        self.machine.control = frozenset(s.leaf for s in ila.states.values() if s.binding == CONTROL)
        self.sample_axis: Axis = axis_of(_SAMPLE)
        self.machine.axes.add(self.sample_axis, max(samples, 1))
        self.executed = 0
        self.initialisation = InitialisationMap(ila) if strict else None
        self._decoder = _decoder(ila, len(ila.instructions))
        self._plans: dict[str, _Executable] = {}
        self.calls: dict[Any, Any] = {}  # of machine code on the memories, by what made it
        self.singles = 0  # commands of columns that ran one by one although they could be decoded by machine code
        self.loop_switches = 0  # of compiled loops, one after the other

    def _place(self, leaf: Leaf, data: Data) -> None:
        self.memories[leaf] = Memory(data)
        self.views[leaf] = _flat_view(data)

    def attach(self, name: str, data: Data, base: int = 0) -> None:
        """Attach `data`, which the device changes in place, as the external memory `name` from the address `base` on."""
        external = self.ila.externals[name]
        self._place(external.leaf, data)
        self.machine.bind(external.leaf, self.memories[external.leaf])
        for register, value in ((external.base, base), (external.size, len(data))):
            self.memories[register].data[()] = value
            self.machine.invalidate(frozenset((register,)))

    # -- one command at a time

    def command(self, command: Command) -> int | None:
        """Execute one command; a read returns its word. A command that no instruction decodes has no effect.

        Raises:
            SpecError: I101, a value does not fit its input or, in strict simulation, no instruction decodes the command; or a
                diagnostic of the model.
        """
        lanes = split_lanes(self.ila, command)
        instruction = self._decoder.find(lanes)
        if instruction is None:
            if self.strict:
                raise SpecError("I101", f"no instruction of {self.ila.name} decodes {_command_text(command)}")
            return None
        operands = self._executable(instruction).operands(lanes)
        result = self.execute(instruction, operands)
        return None if result is None else int.from_bytes(bytes(int(x) for x in np.asarray(result).reshape(-1)), "little")

    def decode(self, command: Command) -> Instruction | None:
        """Return the instruction that decodes a command, or None."""
        return self._decoder.find(split_lanes(self.ila, command))

    def write(self, address: int, data: int, **inputs: int) -> None:
        """Write one bus word."""
        self.command({"wr": 1, "addr": address, "data": data, **inputs})

    def read(self, address: int, **inputs: int) -> int:
        """Read one bus word; an address that no instruction decodes gives 0."""
        return self.command({"rd": 1, "addr": address, **inputs}) or 0

    def issue(self, name: str, **operands: int) -> int | None:
        """Execute an instruction by name; a read returns its word.

        Raises:
            UsageError: F203, the model has no instruction of this name.
            SpecError: I102, an operand is unknown or outside of its range; or a diagnostic of the model.
        """
        return self.command(assemble(instruction_of(self.ila, name), **operands))

    def play(self, columns: Mapping[str, Data]) -> Data:
        """Execute raw commands given as columns by input, [count] or [count, lanes]; return the results of reads, [count, bytes].

        In the reading native, stores and reads of data memories are decoded and executed by one compiled loop.

        Raises:
            UsageError: F203, a column is of no input, or has another shape or values outside of its input's range.
        """
        return play(self, columns)

    def wait_for_interrupt(self) -> None:
        """Take the interrupt.

        Raises:
            DeviceHang: I104, no interrupt can come; the sentence names the engine and the missing condition.
            UsageError: F203, the model has no interrupt.
        """
        line = self.ila.interrupt
        if line is None:
            raise UsageError("F203", f"{self.ila.name} has no interrupt")
        if self.memories[line].data[()]:
            self.memories[line].data[()] = int(self.ila.interrupt_stays)
            return
        for wait in self.ila.waits:
            if not self.machine.evaluator.number(wait.condition):
                raise DeviceHang(wait.engine, wait.sentence)
        raise DeviceHang(self.ila.name, "was not started")

    # -- instructions with operands

    def execute(self, instruction: Instruction, operands: Mapping[str, Any]) -> Data | None:
        """Execute one instruction on operand values without a sample axis; return what a read gives, [lanes].

        Raises:
            SpecError: a diagnostic of the model, or, in strict simulation, I104 for the read of an uninitialised vector.
        """
        self.executed += 1
        if self.initialisation is None:
            return self._executable(instruction).run_one(operands)
        needs = self.initialisation.needs(self.memories, instruction, operands)
        result = self._executable(instruction).run_one(operands)
        self.initialisation.observe(instruction, operands, needs)  # what the model itself refuses is said first
        return result

    def block(self, name: str, count: int, operands: Mapping[str, Data], sampled: frozenset[str] = frozenset()) -> Data | None:
        """Execute `count` commands of one instruction: operands [count(, lanes)], those in `sampled` [count, samples(, lanes)].

        A read returns [count, samples, lanes], with samples 1 when nothing it reads depends on them.

        Raises:
            UsageError: F203, the model has no instruction of this name.
            SpecError: a diagnostic of the model, or, in strict simulation, I104 for the read of an uninitialised vector.
        """
        instruction = instruction_of(self.ila, name)
        self.executed += count
        if sampled and not self.by_arrays:  # machine code sees memories without a sample axis, as there is one sample
            operands, sampled = {n: np.asarray(x)[:, 0] if n in sampled else x for n, x in operands.items()}, frozenset()
        if self.initialisation is None:
            return self._executable(instruction).run_block(count, operands, sampled)
        needs = self.initialisation.needs(self.memories, instruction, operands, count)
        result = self._executable(instruction).run_block(count, operands, sampled)
        self.initialisation.observe(instruction, operands, needs)
        return result

    def state(self, name: str) -> Data:
        """Return a copy of a state element, with a leading axis of samples when it depends on them.

        Raises:
            UsageError: F203, the model has no state of this name.
        """
        if name not in self.ila.states:
            raise unknown_name_error(self.ila, "state", name, self.ila.states)
        store = self.memories[self.ila.states[name].leaf].full(self.machine.axes)
        return np.array(store.data)

    def prepare_part(self, instruction: Instruction) -> _Executable:
        """Return the executable form of a part of an instruction, cached apart from that of the whole instruction."""
        return self._plans.setdefault(f"{instruction.name} apart", _Executable(self, instruction))

    def _executable(self, instruction: Instruction) -> _Executable:
        if instruction.name not in self._plans:
            self._plans[instruction.name] = _Executable(self, instruction)
        return self._plans[instruction.name]


_SAMPLE = var("sample", (0, None))


@lru_cache(maxsize=16)
def _decoder(ila: Ila, _: int) -> _Decoder:
    """Return the decoder of a model with this number of instructions: simulators of one model share it."""
    return _Decoder(ila)


@lru_cache(maxsize=1024)
def _compiled(step: Step, strict: bool) -> StepFunction:
    return StepFunction(step, strict=strict)


@lru_cache(maxsize=1024)
def _extractor(instruction: Instruction) -> StepFunction:
    """Return the function that takes the operands out of a raw command."""
    return StepFunction(seq(*(_extraction(o.leaf, o.term) for o in instruction.operands.values())))


class _Decoder:
    """Finds the instruction of a command; compiled once per model, cached by what the decodes read."""

    def __init__(self, ila: Ila) -> None:
        self.ila = ila
        self.order = list(ila.instructions.values())
        self.number = Leaf((), (0, len(self.order)), False, "found")
        steps = [when(i.decode, assign(self.number, n + 1)) for n, i in enumerate(self.order)]
        self.function = StepFunction(seq(*steps))
        self.keys = [n for n, leaf in ila.inputs.items() if any(leaf in i.decode.reads for i in self.order)]
        self.cache: dict[Any, int] = {}

    def find(self, lanes: Mapping[str, Sequence[int]]) -> Instruction | None:
        key = tuple(tuple(lanes[k]) for k in self.keys)
        n = self.cache.get(key)
        if n is None:
            if len(self.cache) >= CACHED_DECODES:
                self.cache.clear()
            out = [0]
            inputs = {self.ila.inputs[k]: list(v) for k, v in lanes.items()}
            self.function([out if leaf is self.number else inputs[leaf] for leaf in self.function.memories])
            n = self.cache[key] = out[0]
        return self.order[n - 1] if n else None


@dataclass(frozen=True, eq=False)
class _SingleCall:
    """A call of machine code for single commands: the operands' arrays by name, numbered memories that may be exchanged, the result."""

    call: Call
    columns: Sequence[tuple[str, Data]]
    memories: Sequence[tuple[int, Leaf]]
    returned: Data | None


class _Executable:
    """An instruction prepared for one simulator."""

    def __init__(self, sim: Simulator, instruction: Instruction) -> None:
        self.sim, self.instruction = sim, instruction
        self.leaves = {o.leaf: name for name, o in instruction.operands.items()}
        self.shapes = {leaf: static_shape(leaf) for leaf in self.leaves}
        self.written_memories = frozenset(u.memory for u in updates_of(instruction.update))
        accessed_memories = self.written_memories.union(*(e.reads for u in updates_of(instruction.update) for e in (u.value, *u.address)))
        self.is_control = all(s.binding == CONTROL for s in sim.ila.states.values() if s.leaf in accessed_memories)
        self.counter = index_variable("n", 1 << 31)
        self.has_loops, self.is_large = has_loops(instruction.update), False  # whether calls are worth the full level
        self.single: _SingleCall | None = None
        self.has_update = not isinstance(instruction.update, Seq) or bool(instruction.update.steps)
        self.reads_update = instruction.result is not None and not instruction.result[(0,) * instruction.result.rank].reads.isdisjoint(
            self.written_memories
        )

    # -- operands of a raw command

    def operands(self, lanes: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
        inputs = {leaf: list(lanes[name]) for name, leaf in self.sim.ila.inputs.items()}
        out = {leaf: [0] * math.prod(shape) for leaf, shape in self.shapes.items()}
        extract = _extractor(self.instruction)
        extract([out[m] if m in out else inputs[m] for m in extract.memories])
        return {name: out[o.leaf] for name, o in self.instruction.operands.items()}

    # -- execution

    def run_one(self, operands: Mapping[str, Any]) -> Data | None:
        if self.sim.reading == "oracle" or self.is_control:
            self._oracle(operands)
        else:
            function = self._machine_code(1, operands)
            if function is not None:
                return self._call_once(function, operands)
            self._arrays(operands)
        if self.instruction.result is None:
            return None
        self.bind(operands)
        return self._result()

    def bind(self, operands: Mapping[str, Any]) -> None:
        """Give the operand leaves these values (no sample axis)."""
        self._bind({leaf: Store(np.asarray(operands[name]).reshape(self.shapes[leaf])) for leaf, name in self.leaves.items()})

    def _arrays(self, operands: Mapping[str, Any]) -> None:
        self.bind(operands)
        self.sim.machine.run(self.instruction.update)

    def _oracle(self, operands: Mapping[str, Any]) -> None:
        function = _compiled(self.instruction.update, self.sim.strict)
        values = {leaf: np.asarray(operands[name]).reshape(-1).tolist() for leaf, name in self.leaves.items()}
        memories: dict[Leaf, MutableSequence[Any]] = {**self.sim.views, **values}
        function([memories[m] for m in function.memories])
        self._forget()

    def _machine_code(self, count: int, operands: Mapping[str, Any]) -> NativeFunction | None:
        """Return the machine code that runs commands; None for what words of 64 bits cannot hold, which is noted."""
        if self.sim.by_arrays:
            return None
        from ...readings.native.jit import LIGHT
        from ...readings.native.printer import native_function

        step, _ = _step_with_result(self.instruction)
        self.is_large = self.is_large or self._values(count, operands) > LIGHT_VALUES
        function = native_function(step, self.sim.strict, LEVEL if self.is_large else LIGHT)
        if not isinstance(function, str) and not self.is_large and function.seconds > LIGHT_SECONDS:
            self.is_large = True
            function = native_function(step, self.sim.strict, LEVEL)
        if isinstance(function, str):
            self.sim.not_native[self.instruction.name] = function
            return None
        return function

    def _call_once(self, function: NativeFunction, operands: Mapping[str, Any]) -> Data | None:
        """Run one command by a call that stays bound to the memories; return what a read gives, [lanes]."""
        if self.single is None or self.single.call.function is not function:
            self.single = self._single_call(function)
        single = self.single
        for name, column in single.columns:
            column[...] = np.asarray(operands[name]).reshape(column.shape)
        memories, bound = self.sim.memories, single.call.arrays
        for n, leaf in single.memories:
            if memories[leaf].data is not bound[n]:
                single.call.put({leaf: memories[leaf].data})
        started = time.perf_counter()  # one of processor time takes longer than most commands
        single.call()
        function.seconds += time.perf_counter() - started
        self._forget()
        return None if single.returned is None else single.returned.copy()

    def _single_call(self, function: NativeFunction) -> _SingleCall:
        _, returned = _step_with_result(self.instruction)
        rows = {leaf: np.zeros(static_shape(leaf), storage_dtype(leaf.interval)) for leaf in self.leaves if leaf in function.numbers}
        if returned is not None:
            rows[returned] = np.zeros(static_shape(returned), storage_dtype(returned.interval))
        memories = [(n, leaf) for leaf, n in function.numbers.items() if leaf not in rows]
        call = function.bind([rows[m] if m in rows else self.sim.memories[m].data for m in function.memories])
        columns = [(name, rows[leaf]) for leaf, name in self.leaves.items() if leaf in rows]
        return _SingleCall(call, columns, memories, None if returned is None else rows[returned])

    def _by_machine_code(self, count: int, operands: Mapping[str, Data]) -> tuple[bool, Data | None]:
        """Run commands one by one, operands [count(, lanes)]; tell whether they have machine code, and return results [count, lanes]."""
        function = self._machine_code(count, operands)
        if function is None:
            return False, None
        _, returned = _step_with_result(self.instruction)
        rows = {leaf: _words(leaf, operands[name], count) for leaf, name in self.leaves.items() if leaf in function.numbers}
        if returned is not None:
            rows[returned] = np.zeros((count, math.prod(static_shape(returned))), storage_dtype(returned.interval))
        memories = (rows[m][0] if m in rows else self.sim.memories[m].data for m in function.memories)
        call = function.bind([*memories])
        moving = [(function.numbers[leaf], x.ctypes.data, x.strides[0]) for leaf, x in rows.items()]
        started = time.thread_time()
        for n in range(count):
            for number, address, stride in moving:
                call.places[number] = address + n * stride
            call()
        function.seconds += time.thread_time() - started
        self._forget()
        return True, None if returned is None else rows[returned].reshape(count, *static_shape(returned))

    def _values(self, count: int, operands: Mapping[str, Data]) -> int:
        """Return about how many values commands compute, 0 of an instruction without loops."""
        if not self.has_loops:
            return 0
        return count * instruction_values(self.sim.ila, self.sim.machine.memories, self.instruction, operands)

    def _forget(self) -> None:
        self.sim.machine.invalidate(self.written_memories)

    def _bind(self, stores: Mapping[Leaf, Store]) -> None:
        for leaf, store in stores.items():
            self.sim.machine.bind(leaf, store)

    def run_block(self, count: int, operands: Mapping[str, Data], sampled: frozenset[str]) -> Data | None:
        if self.sim.reading == "oracle":
            return self._one_by_one(count, operands)
        if not sampled and not self.is_control and count <= SHORT_BLOCK:
            is_done, results = self._by_machine_code(count, operands)
            if is_done:
                return None if results is None else results[:, None]
        if count == 1 and not sampled and self.instruction.result is None:
            self.run_one({k: np.asarray(v)[0] for k, v in operands.items()})
            return None
        axis = axis_of(self.counter)
        self.sim.machine.axes.add(axis, count)
        loop = Loop(self.counter, const(count), self.instruction.update)
        self._bind({leaf: self._store(leaf, np.asarray(operands[name]), name in sampled, axis) for leaf, name in self.leaves.items()})
        if self.reads_update:
            return self._one_by_one(count, operands, sampled)
        result = None
        with self.sim.machine.axis_scope(self.counter):
            if self.instruction.result is not None:
                result = self._rows(axis, count)
        if not self.has_update:
            return result
        if is_parallel(self.sim.machine, loop, count).parallel:
            self.sim.machine.axes.add(axis, count)
            with self.sim.machine.axis_scope(self.counter):
                self.sim.machine.run(self.instruction.update)
            self.sim.machine.end_axis(axis)
        else:
            self._one_by_one(count, operands, sampled)
        return result

    def _one_by_one(self, count: int, operands: Mapping[str, Data], sampled: frozenset[str] = frozenset()) -> Data | None:
        rows = []
        for n in range(count):
            if not self.sim.by_arrays or not sampled:
                result = self.run_one({k: np.asarray(v)[n] for k, v in operands.items()})
                rows.append(result)
                continue
            sample = (self.sim.sample_axis,)
            self._bind(
                {leaf: Store(np.asarray(operands[name])[n], sample if name in sampled else ()) for leaf, name in self.leaves.items()}
            )
            self.sim.machine.run(self.instruction.update)
        return None if self.instruction.result is None else np.stack([np.asarray(r)[None] for r in rows])

    def _store(self, leaf: Leaf, data: Data, is_sampled: bool, axis: Axis) -> Store:
        batch = self.sim.machine.axes.union((axis,), (self.sim.sample_axis,) if is_sampled else ())
        if is_sampled and batch[0] == self.sim.sample_axis:
            data = np.swapaxes(data, 0, 1)
        return Store(data, batch)

    def _result(self) -> Data:
        assert self.instruction.result is not None
        store = self.sim.machine.evaluator.store_of(self.instruction.result)
        data = np.array(store.data)
        self.sim.machine.invalidate(frozenset(self.leaves))
        return data

    def _rows(self, axis: Axis, count: int) -> Data:
        assert self.instruction.result is not None
        store = self.sim.machine.evaluator.store_of(self.instruction.result)
        sample = self.sim.sample_axis
        data = store.data
        if axis not in store.batch:
            data = np.broadcast_to(np.expand_dims(data, len(store.batch)), (*data.shape[: len(store.batch)], count, *store.element_shape))
        if sample not in store.batch:
            return np.array(data)[:, None]
        return np.swapaxes(np.array(data), 0, 1)


@lru_cache(maxsize=1024)
def _step_with_result(instruction: Instruction) -> tuple[Step, Leaf | None]:
    """Return what one command does, and where it leaves what a read returns."""
    result = instruction.result
    if result is None:
        return instruction.update, None
    leaf = Leaf(static_shape(result), result.interval, False, "returned")
    return seq(instruction.update, update(leaf, leaf.shape, lambda *i: (i, result[i]))), leaf


def _words(leaf: Leaf, operand: Any, count: int) -> Data:
    """Return the words [count, elements] of an operand of some commands."""
    return np.ascontiguousarray(np.asarray(operand).reshape(count, -1).astype(storage_dtype(leaf.interval)))


def _extraction(leaf: Leaf, term: Any) -> Step:
    if isinstance(term, Expr):
        return assign(leaf, term)
    return update(leaf, term.shape, lambda *i: (i, term[i]))


def _flat_view(data: Data) -> MutableSequence[Any]:
    if data.dtype == object:
        raise SpecError("I102", "a state element is at most 64 bits wide; use lanes for wider ones")
    view: Any = data.data  # numpy's type letters are those of memoryview
    return view.cast("B").cast(data.dtype.char)  # type: ignore[no-any-return]


def _command_text(command: Command) -> str:
    return ", ".join(f"{k}={v:#x}" for k, v in command.items())
