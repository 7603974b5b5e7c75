"""Recording devices: they execute a driver's commands on a simulator and record them as a trace."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from ...ila import Ila, assemble
from ...ila.external_memory import WORD
from ...ila.mmio import rows_of
from ...ila.model import CONTROL, Instruction
from ...ila.traces.trace import Attach, Commands, Fetch, Item, Place, Section, Wait, block_of, columns_of
from ...lang.step import updates_of
from ...readings.arrays.labelled_array import Data, storage_dtype
from ...target import SimulatedDevice, SimulatedStream, simulated_device


class Phase(StrEnum):
    """The phase of an offload's call that a command belongs to, in the order of a call."""

    CONFIGURATION = "configuration"
    """Control state is set."""
    CONSTANTS = "constants"
    """Operands are stored that are the same for all inputs."""
    INPUTS = "inputs"
    """Operands are stored that depend on the inputs."""
    RUN = "run"
    """The operation is started and awaited."""
    RESULTS = "results"
    """Results are loaded."""


PHASES = tuple(Phase)
VARIABLE = (Phase.INPUTS, Phase.RESULTS)  # phases whose commands depend on the inputs


@dataclass
class TraceLog:
    """A trace under construction; a section opens where the offload, the call or the phase changes."""

    items: list[Item] = field(default_factory=list)
    offload: str = ""
    call: int = 0
    phase: str = ""
    parts: int = 0

    def begin(self, offload: str, call: int) -> None:
        """Start a call of an offload."""
        self.offload, self.call, self.phase = offload, call, ""

    def add(self, phase: Phase, item: Item) -> None:
        """Append an item to a phase."""
        if phase != self.phase:
            self.items.append(Section(self.parts, self.offload, self.call, phase, phase not in VARIABLE))
            self.phase, self.parts = phase, self.parts + 1
        self.items.append(item)


@dataclass(frozen=True)
class Recorder:
    """A memory-mapped device on a simulator that records its commands; operands with a sample axis are inputs."""

    ila: Ila
    device: SimulatedDevice
    log: TraceLog = field(default_factory=TraceLog)

    def issue(self, instruction: str, **operands: int) -> None:
        """Execute and record one instruction."""
        declaration = self.ila.instructions[instruction]
        command = assemble(declaration, **{name: int(x) for name, x in operands.items()})
        self.log.add(Phase.CONFIGURATION if is_control(self.ila, declaration) else Phase.RUN, Commands(columns_of(self.ila, [command])))
        self.device.issue(instruction, **operands)

    def store(self, instruction: str, **operands: Data) -> None:
        """Execute and record one instruction for each row of the operands."""
        declaration = self.ila.instructions[instruction]
        sampled = {name for name, x in operands.items() if np.ndim(x) == declaration.operands[name].leaf.rank + 2}
        rows = {name: np.asarray(x)[0] if name in sampled else np.asarray(x) for name, x in operands.items()}
        self.log.add(Phase.INPUTS if sampled else Phase.CONSTANTS, Commands(_block(self.ila, declaration, rows)))
        self.device.store(instruction, **operands)

    def load(self, instruction: str, **operands: Data) -> Data:
        """Execute one read for each row of the operands; record it with its results."""
        declaration = self.ila.instructions[instruction]
        result = self.device.load(instruction, **operands)
        rows = {name: np.asarray(x) for name, x in operands.items()}
        gives = np.ascontiguousarray(result[0] if result.ndim > 2 else result, np.uint8)
        self.log.add(Phase.RESULTS, Commands(_block(self.ila, declaration, rows), gives))
        return result

    def wait(self) -> None:
        """Take the interrupt."""
        self.log.add(Phase.RUN, Wait())
        self.device.wait()


@dataclass(frozen=True)
class StreamRecorder:
    """A streamed device on a simulator that records its memory accesses and its instructions."""

    ila: Ila
    device: SimulatedStream
    log: TraceLog = field(default_factory=TraceLog)

    def attach(self, memory: str, words: int) -> None:
        """Attach a new external memory of `words` zeros."""
        self.log.add(Phase.CONFIGURATION, Attach(memory, words))
        self.device.attach(memory, words)

    def place(self, memory: str, address: int, words: Data) -> None:
        """Write words, [count] or [samples, count], to an external memory."""
        dtype = storage_dtype(self.ila.externals[memory].leaf.interval)
        row = np.asarray(words)[0] if words.ndim == 2 else np.asarray(words)
        self.log.add(Phase.INPUTS if words.ndim == 2 else Phase.CONSTANTS, Place(memory, int(address), row.astype(dtype)))
        self.device.place(memory, address, words)

    def fetch(self, memory: str, address: int, count: int) -> Data:
        """Return words of an external memory, and record them."""
        result = self.device.fetch(memory, address, count)
        self.log.add(Phase.RESULTS, Fetch(memory, int(address), int(count), result[0] if result.ndim == 2 else result))
        return result

    def issue(self, instruction: str, **operands: int) -> None:
        """Append one instruction to the stream."""
        word = assemble(self.ila.instructions[instruction], **{name: int(x) for name, x in operands.items()})[WORD]
        self.log.add(Phase.RUN, Commands(columns_of(self.ila, [{WORD: word}])))
        self.device.issue(instruction, **operands)

    def wait(self) -> None:
        """Run the stream up to its interrupt."""
        self.log.add(Phase.RUN, Wait())
        self.device.wait()


def recorder(ila: Ila) -> Recorder | StreamRecorder:
    """Return a recording device at the reset state, for one sample."""
    device = simulated_device(ila, samples=1)
    return StreamRecorder(ila, device) if isinstance(device, SimulatedStream) else Recorder(ila, device)


def is_control(ila: Ila, instruction: Instruction) -> bool:
    """Tell whether an instruction reads and writes control state only, so that it configures the device."""
    updates = list(updates_of(instruction.update))
    accessed_memories = {u.memory for u in updates}.union(*(e.reads for u in updates for e in (u.value, *u.address)))
    return all(s.binding == CONTROL for s in ila.states.values() if s.leaf in accessed_memories)


def _block(ila: Ila, instruction: Instruction, rows: dict[str, Data]) -> dict[str, Data]:
    return block_of(ila, instruction, rows_of(rows), rows)
