"""What a driver does as steps of a C program: constant commands, data from cells, reads into buffers, waits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...errors import InputError
from ...ila import Ila, assemble
from ...ila.simulation.stream_device import WORD
from ...ila.traces.trace import Commands, block_of, columns_of
from ...lang.binders import Leaf
from ...readings.arrays.labelled_array import Data
from .cells import Gather, cells_of, gathered, is_moving


@dataclass(frozen=True)
class Send:
    """Commands whose bits are known."""

    commands: Commands


@dataclass(frozen=True)
class Put:
    """Writes whose data are cells, a row a command; the other inputs are known."""

    commands: Commands
    cells: Gather
    lanes: int


@dataclass(frozen=True)
class Get:
    """Reads into a buffer of bytes, a row a command."""

    commands: Commands
    buffer: Leaf


@dataclass(frozen=True)
class Pause:
    """Wait for the interrupt, or run a stream of instructions up to it."""

    words: tuple[int, ...] = ()


@dataclass(frozen=True)
class Fill:
    """Words of an external memory: cells from `address` on; `words` of zeros first when the memory is new."""

    memory: str
    address: int
    cells: Gather | None
    words: int = 0


@dataclass(frozen=True)
class Fetched:
    """Words of an external memory into a buffer."""

    memory: str
    address: int
    buffer: Leaf


Move = Send | Put | Get | Pause | Fill | Fetched


@dataclass
class Steps:
    """A device, memory-mapped or streamed, that keeps what a driver of cells does; it runs nothing."""

    ila: Ila
    moves: list[Move] = field(default_factory=list)
    buffers: list[Leaf] = field(default_factory=list)
    words: list[int] = field(default_factory=list)

    def issue(self, instruction: str, **operands: int) -> None:
        """Send one instruction."""
        command = assemble(self.ila.instructions[instruction], **{name: int(x) for name, x in operands.items()})
        if self.ila.externals:
            self.words.append(command[WORD])
        else:
            self.moves.append(Send(Commands(columns_of(self.ila, [command]))))

    def store(self, instruction: str, **operands: Data) -> None:
        """Send one instruction for each row."""
        declaration = self.ila.instructions[instruction]
        rows = {name: np.asarray(x) for name, x in operands.items()}
        moving = [name for name, x in rows.items() if is_moving(x)]
        count = len(next(iter(rows.values())))
        still = {name: np.zeros(x.shape, np.int64) if name in moving else x.astype(np.int64) for name, x in rows.items()}
        commands = Commands(block_of(self.ila, declaration, count, still))
        if not moving:
            self.moves.append(Send(commands))
            return
        if len(moving) > 1 or not declaration.operands[moving[0]].leaf.shape:
            raise InputError("F161", f"{instruction} takes data in fields, which has no C form")
        self.moves.append(Put(commands, gathered(rows[moving[0]]), rows[moving[0]].shape[1]))

    def load(self, instruction: str, **operands: Data) -> Data:
        """Send one read for each row; return cells of what they give."""
        declaration = self.ila.instructions[instruction]
        rows = {name: np.asarray(x) for name, x in operands.items()}
        assert declaration.result is not None
        count = len(next(iter(rows.values())))
        buffer = self._buffer((count, *(int(str(n)) for n in declaration.result.shape)), (0, 255))
        self.moves.append(Get(Commands(block_of(self.ila, declaration, count, rows)), buffer))
        return cells_of(buffer)

    def wait(self) -> None:
        """Wait for the interrupt; a streamed device runs what was issued."""
        self.moves.append(Pause(tuple(self.words)))
        self.words = []

    def attach(self, memory: str, words: int) -> None:
        """Give it a new external memory."""
        self.moves.append(Fill(memory, 0, None, int(words)))

    def place(self, memory: str, address: int, words: Data) -> None:
        """Write words to an external memory."""
        self.moves.append(Fill(memory, int(address), gathered(np.asarray(words).reshape(1, -1))))

    def fetch(self, memory: str, address: int, count: int) -> Data:
        """Return cells of words of an external memory."""
        buffer = self._buffer((int(count),), self.ila.externals[memory].leaf.interval)
        self.moves.append(Fetched(memory, int(address), buffer))
        return cells_of(buffer)

    def _buffer(self, shape: tuple[int, ...], interval: Any) -> Leaf:
        self.buffers.append(Leaf(shape, interval, False, f"buffer{len(self.buffers)}"))
        return self.buffers[-1]


def results_of(x: Data) -> Gather:
    """Return result codes of a driver as cells."""
    return gathered(np.asarray(x))
