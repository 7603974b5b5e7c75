"""Device: what drivers talk to. The same driver runs on a simulator, is recorded as a stream, or is executed on terms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..errors import SpecError
from ..ila import Ila
from ..ila.external_memory import WORD
from ..ila.mmio import assemble, check_names, check_operand, rows_of
from ..ila.model import Instruction, instruction_of
from ..readings.arrays.labelled_array import Data, storage_dtype

if TYPE_CHECKING:
    from ..ila import Simulator, Stream

CACHED_WORDS = 1 << 16  # of a device


class Device(Protocol):
    """An accelerator as its driver sees it: instructions by name, single or as blocks of like ones."""

    def issue(self, instruction: str, **operands: int) -> None:
        """Send one instruction."""

    def store(self, instruction: str, **operands: Data) -> None:
        """Send one instruction for each row: operands [count(, lanes)], [samples, count, …] where they depend on samples."""

    def load(self, instruction: str, **operands: Data) -> Data:
        """Send one read for each row; return [samples, count, lanes], without the sample axis when nothing depends on it."""

    def wait(self) -> None:
        """Wait for the interrupt."""


class StreamedDevice(Protocol):
    """An accelerator that takes a stream of instructions and works on memory outside of it."""

    def attach(self, memory: str, words: int) -> None:
        """Give it a new external memory of so many words from address 0."""

    def place(self, memory: str, address: int, words: Data) -> None:
        """Write words [count] to an external memory, [samples, count] where they depend on samples."""

    def fetch(self, memory: str, address: int, count: int) -> Data:
        """Return words of an external memory, [samples, count] on a device with samples."""

    def issue(self, instruction: str, **operands: int) -> None:
        """Append one instruction to the stream."""

    def wait(self) -> None:
        """Run the stream, up to its interrupt."""


def simulated_device(ila: Ila, *, reading: str = "arrays", strict: bool = True, samples: int = 0) -> SimulatedDevice | SimulatedStream:
    """Return a device at the reset state that is a simulator of the model."""
    from ..ila import Simulator, Stream

    if ila.externals:
        return SimulatedStream(Stream(ila, reading=reading, strict=strict, samples=samples))
    return SimulatedDevice(Simulator(ila, reading=reading, strict=strict, samples=samples))


@dataclass(frozen=True)
class SimulatedStream:
    """A streamed device that is a simulator; external memory that depends on samples makes its data state carry the sample axis."""

    sim: Stream
    pending: list[int] = field(default_factory=list)
    words: dict[tuple[Any, ...], int] = field(default_factory=dict)  # of instructions with their operands

    def attach(self, memory: str, words: int) -> None:
        """Give it a new external memory."""
        self.sim.give(memory, np.zeros(words, storage_dtype(self.sim.ila.externals[memory].leaf.interval)))

    def place(self, memory: str, address: int, words: Data) -> None:
        """Write words to an external memory."""
        self.sim.place(memory, address, words)

    def fetch(self, memory: str, address: int, count: int) -> Data:
        """Return words of an external memory."""
        words = self.sim.fetch(memory, address, count)
        return words if self.sim.samples else words[0]

    def issue(self, instruction: str, **operands: int) -> None:
        """Append one instruction to the stream."""
        key = (instruction, *operands.items())
        word = self.words.get(key)
        if word is None:
            word = assemble(instruction_of(self.sim.ila, instruction), **operands)[WORD]
            if len(self.words) < CACHED_WORDS:
                self.words[key] = word
        self.pending.append(word)

    def wait(self) -> None:
        """Run the stream as the queues order it, and take the interrupt."""
        stream = list(self.pending)
        self.pending.clear()
        self.sim.run(stream)
        self.sim.wait_for_interrupt()


@dataclass(frozen=True)
class SimulatedDevice:
    """A device that is a simulator; sampled operands make its data state carry the sample axis."""

    sim: Simulator

    def issue(self, instruction: str, **operands: int) -> None:
        """Send one instruction."""
        definition = instruction_of(self.sim.ila, instruction)
        check_names(definition, operands)
        for name, value in operands.items():
            check_operand(definition, name, value)
        self.sim.execute(definition, self._complete(instruction, operands))

    def store(self, instruction: str, **operands: Data) -> None:
        """Send one instruction for each row."""
        rows, sampled, count = self._rows(instruction, operands)
        self.sim.block(instruction, count, rows, sampled)

    def load(self, instruction: str, **operands: Data) -> Data:
        """Send one read for each row; return [samples, count, lanes], without the sample axis when nothing depends on it.

        Raises:
            SpecError: the instruction returns nothing, or an operand does not fit its field.
        """
        rows, sampled, count = self._rows(instruction, operands)
        result = self.sim.block(instruction, count, rows, sampled)
        if result is None:
            raise SpecError(
                "I102", f"{instruction} of {self.sim.ila.name} returns nothing that could be loaded", help="use store() or issue()"
            )
        return result[:, 0] if result.shape[1] == 1 and self.sim.samples == 0 else np.swapaxes(result, 0, 1)

    def wait(self) -> None:
        """Take the interrupt."""
        self.sim.wait_for_interrupt()

    def _complete(self, instruction: str, operands: Mapping[str, Any]) -> dict[str, Any]:
        """Return all operands, absent ones 0."""
        declared = self.sim.ila.instructions[instruction].operands
        return {name: operands.get(name, np.zeros([int(n) for n in o.leaf.shape], np.int64)) for name, o in declared.items()}  # type: ignore[arg-type]

    def _rows(self, instruction: str, operands: Mapping[str, Data]) -> tuple[dict[str, Data], frozenset[str], int]:
        definition = instruction_of(self.sim.ila, instruction)
        check_names(definition, operands)
        declared = definition.operands
        _check_numbers(definition, operands)
        sampled = frozenset(n for n, x in operands.items() if np.ndim(x) == declared[n].leaf.rank + 2)
        rows = {n: np.swapaxes(x, 0, 1) if n in sampled else x for n, x in operands.items()}
        return rows, sampled, rows_of(rows)


def _check_numbers(instruction: Instruction, operands: Mapping[str, Data]) -> None:
    """Raise SpecError I102 for the first number of a column that its operand cannot hold."""
    for name, column in operands.items():
        if not instruction.operands[name].leaf.shape and np.size(column):
            check_operand(instruction, name, int(np.min(column)))
            check_operand(instruction, name, int(np.max(column)))
