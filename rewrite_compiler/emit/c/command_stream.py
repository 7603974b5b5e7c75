"""A driver's commands as moves of a C program: constant commands, data from cells, reads into buffers, waits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...errors import InputError
from ...ila import Ila, assemble
from ...ila.external_memory import WORD
from ...ila.mmio import rows_of
from ...ila.traces.trace import Commands, block_of, columns_of
from ...lang.binders import Leaf
from ...readings.arrays.labelled_array import Data
from .cells import Gather, cells_of, gather_of, is_moving


@dataclass(frozen=True)
class Send:
    """A move: constant commands."""

    commands: Commands


@dataclass(frozen=True)
class Put:
    """A move: writes whose data are cells, one row for each command; the other inputs are constant."""

    commands: Commands
    cells: Gather
    lanes: int


@dataclass(frozen=True)
class Get:
    """A move: reads into a buffer of bytes, one row for each command."""

    commands: Commands
    buffer: Leaf


@dataclass(frozen=True)
class Pause:
    """A move: wait for the interrupt, after a stream of instruction words on streamed devices."""

    words: tuple[int, ...] = ()


@dataclass(frozen=True)
class Fill:
    """A move: cells into an external memory from `address` on, or, without cells, a new memory of `words` zeros."""

    memory: str
    address: int
    cells: Gather | None
    words: int = 0


@dataclass(frozen=True)
class FetchWords:
    """A move: words of an external memory into a buffer."""

    memory: str
    address: int
    buffer: Leaf


Move = Send | Put | Get | Pause | Fill | FetchWords


@dataclass
class MoveRecorder:
    """A device, memory-mapped or streamed, that records a driver's commands as moves without executing them."""

    ila: Ila
    moves: list[Move] = field(default_factory=list)
    buffers: list[Leaf] = field(default_factory=list)
    words: list[int] = field(default_factory=list)

    def issue(self, instruction: str, **operands: int) -> None:
        """Record one instruction."""
        command = assemble(self.ila.instructions[instruction], **{name: int(x) for name, x in operands.items()})
        if self.ila.externals:
            self.words.append(command[WORD])
        else:
            self.moves.append(Send(Commands(columns_of(self.ila, [command]))))

    def store(self, instruction: str, **operands: Data) -> None:
        """Record one instruction for each row of the operands.

        Raises:
            InputError: F161, cells are operands other than all lanes of the bus.
        """
        declaration = self.ila.instructions[instruction]
        rows = {name: np.asarray(x) for name, x in operands.items()}
        moving = [name for name, x in rows.items() if is_moving(x)]
        count = rows_of(rows)
        fixed_operands = {name: np.zeros(x.shape, np.int64) if name in moving else x.astype(np.int64) for name, x in rows.items()}
        commands = Commands(block_of(self.ila, declaration, count, fixed_operands))
        if not moving:
            self.moves.append(Send(commands))
            return
        if len(moving) > 1 or not declaration.operands[moving[0]].leaf.shape:
            raise InputError("F161", f"{instruction} takes data in fields, which has no C form")
        self.moves.append(Put(commands, gather_of(rows[moving[0]]), rows[moving[0]].shape[1]))

    def load(self, instruction: str, **operands: Data) -> Data:
        """Record one read for each row of the operands; return cells of the results, [rows, lanes]."""
        declaration = self.ila.instructions[instruction]
        rows = {name: np.asarray(x) for name, x in operands.items()}
        assert declaration.result is not None
        count = rows_of(rows)
        buffer = self._buffer((count, *(int(str(n)) for n in declaration.result.shape)), (0, 255))
        self.moves.append(Get(Commands(block_of(self.ila, declaration, count, rows)), buffer))
        return cells_of(buffer)

    def wait(self) -> None:
        """Record a wait for the interrupt; a streamed device runs the instructions issued since the last one."""
        self.moves.append(Pause(tuple(self.words)))
        self.words = []

    def attach(self, memory: str, words: int) -> None:
        """Record a new external memory of `words` zeros."""
        self.moves.append(Fill(memory, 0, None, int(words)))

    def place(self, memory: str, address: int, words: Data) -> None:
        """Record a write of words to an external memory.

        Raises:
            InputError: F161, a cell has an operator without a C form.
        """
        self.moves.append(Fill(memory, int(address), gather_of(np.asarray(words).reshape(1, -1))))

    def fetch(self, memory: str, address: int, count: int) -> Data:
        """Record a read of an external memory; return cells of its words, [count]."""
        buffer = self._buffer((int(count),), self.ila.externals[memory].leaf.interval)
        self.moves.append(FetchWords(memory, int(address), buffer))
        return cells_of(buffer)

    def _buffer(self, shape: tuple[int, ...], interval: Any) -> Leaf:
        self.buffers.append(Leaf(shape, interval, False, f"buffer{len(self.buffers)}"))
        return self.buffers[-1]


def results_of(x: Data) -> Gather:
    """Return the result codes of a driver as a gather.

    Raises:
        InputError: F161, a cell has an operator without a C form.
    """
    return gather_of(np.asarray(x))
