"""Devices that run what a driver sends on a simulator and keep it as a trace."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ...ila import Ila, assemble
from ...ila.model import CONTROL, Instruction
from ...ila.simulation.stream_device import WORD
from ...ila.traces.trace import Attach, Commands, Fetch, Item, Place, Section, Wait, block_of, columns_of
from ...lang.step import updates_of
from ...readings.arrays.labelled_array import Data, storage_dtype
from ...target import SimulatedDevice, SimulatedStream, simulated_device

CONFIGURATION, CONSTANTS, INPUTS, RUN, RESULTS = PHASES = ("configuration", "constants", "inputs", "run", "results")
# phase → whether its commands are the same for all inputs
CONSTANT = {CONFIGURATION: True, CONSTANTS: True, INPUTS: False, RUN: True, RESULTS: False}


@dataclass
class Log:
    """Items in order; a section opens where the offload, the call or the phase changes."""

    items: list[Item] = field(default_factory=list)
    offload: str = ""
    call: int = 0
    phase: str = ""
    parts: int = 0

    def begin(self, offload: str, call: int) -> None:
        """Say which call of which offload follows."""
        self.offload, self.call, self.phase = offload, call, ""

    def add(self, phase: str, item: Item) -> None:
        """Append an item of a phase."""
        if phase != self.phase:
            self.items.append(Section(self.parts, self.offload, self.call, phase, CONSTANT[phase]))
            self.phase, self.parts = phase, self.parts + 1
        self.items.append(item)


@dataclass(frozen=True)
class Recorder:
    """A memory-mapped device that is a simulator and keeps its commands; operands with a sample axis are inputs."""

    ila: Ila
    device: SimulatedDevice
    log: Log = field(default_factory=Log)

    def issue(self, instruction: str, **operands: int) -> None:
        """Send one instruction."""
        declaration = self.ila.instructions[instruction]
        command = assemble(declaration, **{name: int(x) for name, x in operands.items()})
        self.log.add(CONFIGURATION if is_control(self.ila, declaration) else RUN, Commands(columns_of(self.ila, [command])))
        self.device.issue(instruction, **operands)

    def store(self, instruction: str, **operands: Data) -> None:
        """Send one instruction for each row."""
        declaration = self.ila.instructions[instruction]
        sampled = {name for name, x in operands.items() if np.ndim(x) == declaration.operands[name].leaf.rank + 2}
        rows = {name: np.asarray(x)[0] if name in sampled else np.asarray(x) for name, x in operands.items()}
        self.log.add(INPUTS if sampled else CONSTANTS, Commands(_block(self.ila, declaration, rows)))
        self.device.store(instruction, **operands)

    def load(self, instruction: str, **operands: Data) -> Data:
        """Send one read for each row; what it gives is part of the trace."""
        declaration = self.ila.instructions[instruction]
        result = self.device.load(instruction, **operands)
        rows = {name: np.asarray(x) for name, x in operands.items()}
        gives = np.ascontiguousarray(result[0] if result.ndim > 2 else result, np.uint8)
        self.log.add(RESULTS, Commands(_block(self.ila, declaration, rows), gives))
        return result

    def wait(self) -> None:
        """Take the interrupt."""
        self.log.add(RUN, Wait())
        self.device.wait()


@dataclass(frozen=True)
class StreamRecorder:
    """A streamed device that is a simulator and keeps its memory and its instructions."""

    ila: Ila
    device: SimulatedStream
    log: Log = field(default_factory=Log)

    def attach(self, memory: str, words: int) -> None:
        """Give it a new external memory."""
        self.log.add(CONFIGURATION, Attach(memory, words))
        self.device.attach(memory, words)

    def place(self, memory: str, address: int, words: Data) -> None:
        """Write words to an external memory."""
        dtype = storage_dtype(self.ila.externals[memory].leaf.interval)
        row = np.asarray(words)[0] if words.ndim == 2 else np.asarray(words)
        self.log.add(INPUTS if words.ndim == 2 else CONSTANTS, Place(memory, int(address), row.astype(dtype)))
        self.device.place(memory, address, words)

    def fetch(self, memory: str, address: int, count: int) -> Data:
        """Return words of an external memory; they are part of the trace."""
        result = self.device.fetch(memory, address, count)
        self.log.add(RESULTS, Fetch(memory, int(address), int(count), result[0] if result.ndim == 2 else result))
        return result

    def issue(self, instruction: str, **operands: int) -> None:
        """Append one instruction to the stream."""
        word = assemble(self.ila.instructions[instruction], **{name: int(x) for name, x in operands.items()})[WORD]
        self.log.add(RUN, Commands(columns_of(self.ila, [{WORD: word}])))
        self.device.issue(instruction, **operands)

    def wait(self) -> None:
        """Run the stream, up to its interrupt."""
        self.log.add(RUN, Wait())
        self.device.wait()


def recorder(ila: Ila) -> Recorder | StreamRecorder:
    """Return a recording device at the reset state, for one sample."""
    device = simulated_device(ila, samples=1)
    return StreamRecorder(ila, device) if isinstance(device, SimulatedStream) else Recorder(ila, device)


def is_control(ila: Ila, instruction: Instruction) -> bool:
    """Tell whether an instruction reads and writes control state only: it configures."""
    updates = list(updates_of(instruction.update))
    accessed_memories = {u.memory for u in updates}.union(*(e.reads for u in updates for e in (u.value, *u.address)))
    return all(s.binding == CONTROL for s in ila.states.values() if s.leaf in accessed_memories)


def _block(ila: Ila, instruction: Instruction, rows: dict[str, Data]) -> dict[str, Data]:
    return block_of(ila, instruction, len(next(iter(rows.values()))), rows)
