"""Symbolic devices: they execute a driver on terms, with concrete control and symbolic data."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...ila import Ila
from ...ila.mmio import rows_of
from ...ila.model import Instruction, State
from ...ila.simulation.simulator import DeviceHang
from ...ila.verification.queue_interleavings import Issue, schedule
from ...lang.binders import Leaf, static_shape
from ...readings.arrays.labelled_array import Data
from ...readings.arrays.sparse_memory import SparseMemory
from ...readings.smt.evaluator import SymbolicEvaluator

DENSE_LIMIT = 1 << 12  # elements of a memory, beyond which only those that are written are kept
Reading = Callable[[dict[Leaf, Data]], SymbolicEvaluator]
Unwritten = Callable[[State], Any]  # what a memory holds where nothing has been written


def _uninterpreted(memories: Mapping[Leaf, Data]) -> SymbolicEvaluator:
    return SymbolicEvaluator(memories, uninterpreted_tables=True)


def _reset(state: State) -> Any:
    return state.reset


def _memory(shape: tuple[int, ...], reset: Any) -> Any:
    return SparseMemory(shape, reset) if math.prod(shape) > DENSE_LIMIT else np.full(shape, reset, object)


class SymbolicDevice:
    """Runs instructions by their updates on memories of terms; tables (encoders, activations) stay uninterpreted."""

    def __init__(self, ila: Ila, reading: Reading = _uninterpreted, unwritten: Unwritten = _reset) -> None:
        self.ila, self.unwritten = ila, unwritten
        internal = [s for s in ila.states.values() if s.name not in ila.externals]
        memories = {s.leaf: _memory(static_shape(s.leaf), unwritten(s) if s.is_memory else s.reset) for s in internal}
        self.symbolic = reading(memories)
        self.executed = 0

    def issue(self, instruction: str, **operands: int) -> None:
        """Send one instruction."""
        definition = self.ila.instructions[instruction]
        self._run(definition, {n: _objects(x) for n, x in operands.items()})

    def store(self, instruction: str, **operands: Data) -> None:
        """Send one instruction for each row of the operands [count, …]."""
        definition = self.ila.instructions[instruction]
        for n in range(rows_of(operands)):
            self._run(definition, {name: _objects(rows[n]) for name, rows in operands.items()})

    def load(self, instruction: str, **operands: Data) -> Data:
        """Send one read for each row; return [count, lanes]."""
        definition = self.ila.instructions[instruction]
        assert definition.result is not None
        rows = []
        for n in range(rows_of(operands)):
            self._run(definition, {name: _objects(values[n]) for name, values in operands.items()})
            rows.append(np.array(self.symbolic.array(definition.result), object))
        return np.stack(rows)

    def wait(self) -> None:
        """Take the interrupt.

        Raises:
            DeviceHang: there is none.
        """
        line = self.ila.interrupt
        assert line is not None
        if not self.symbolic.memories[line][()]:
            raise DeviceHang(self.ila.name, "was not started")
        self.symbolic.memories[line][()] = int(self.ila.interrupt_stays)

    def _run(self, instruction: Instruction, operands: Mapping[str, Data]) -> None:
        self.executed += 1
        for name, operand in instruction.operands.items():
            shape = static_shape(operand.leaf)
            value = operands.get(name, np.zeros(shape, object))
            self.symbolic.bind(operand.leaf, value.reshape(shape))
        self.symbolic.run(instruction.update)


class SymbolicStream(SymbolicDevice):
    """A streamed device on terms: the queues order the stream, then each instruction runs by its update."""

    def __init__(self, ila: Ila, reading: Reading = _uninterpreted, unwritten: Unwritten = _reset) -> None:
        super().__init__(ila, reading, unwritten)
        self.pending: list[Issue] = []

    def attach(self, memory: str, words: int) -> None:
        """Give it a new external memory of so many words from address 0."""
        external = self.ila.externals[memory]
        self.symbolic.bind(external.leaf, np.full(words, self.unwritten(self.ila.states[memory]), object))
        self.symbolic.bind(external.base, np.array(0, object))
        self.symbolic.bind(external.size, np.array(words, object))

    def place(self, memory: str, address: int, words: Data) -> None:
        """Write words to an external memory."""
        self.symbolic.memories[self.ila.externals[memory].leaf][address : address + len(words)] = _objects(words)

    def fetch(self, memory: str, address: int, count: int) -> Data:
        """Return words of an external memory."""
        return np.array(self.symbolic.memories[self.ila.externals[memory].leaf][address : address + count], object)

    def issue(self, instruction: str, **operands: int) -> None:
        """Append one instruction to the stream."""
        fields: dict[str, Any] = {**dict.fromkeys(self.ila.instructions[instruction].operands, 0), **operands}
        self.pending.append(Issue(len(self.pending), self.ila.instructions[instruction], fields))

    def wait(self) -> None:
        """Run the stream and take the interrupt.

        Raises:
            DeviceHang: a queue waits for ever, or there is no interrupt.
        """
        interleaving = schedule(self.ila.queues, self.pending)
        self.pending = []
        if interleaving.blocked_queues:
            raise DeviceHang(f"queue {interleaving.blocked_queues[0][0]}", interleaving.blocked_queues[0][1])
        for turn in interleaving.turns:
            self._run(turn.issue.instruction, {n: _objects(x) for n, x in turn.issue.operands.items()})
        super().wait()


def symbolic_device(ila: Ila, reading: Reading = _uninterpreted, unwritten: Unwritten = _reset) -> SymbolicDevice:
    """Return a device in the reset state that runs a model on terms; `unwritten` are the contents of memories before the first write."""
    kind = SymbolicStream if ila.externals else SymbolicDevice
    return kind(ila, reading, unwritten)


def _objects(x: object) -> Data:
    """Return an array of Python integers and terms."""
    return np.asarray(x).astype(object)
