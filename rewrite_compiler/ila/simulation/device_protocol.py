"""What loops of machine code need of the simulator whose memories they work on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from ...lang.binders import Leaf
from ...readings.arrays.batched_memory import Memory
from ...readings.arrays.labelled_array import Data
from ...readings.state.interpreter import Machine
from ..model import Ila, Instruction


class BlockRunner(Protocol):
    """An instruction prepared for one simulator."""

    def run_block(self, count: int, operands: Mapping[str, Data], sampled: frozenset[str]) -> Data | None:
        """Execute `count` commands at once."""


class CommandDevice(Protocol):
    """A simulator that executes commands: its memories, and how many commands have run in which way."""

    ila: Ila
    reading: str
    strict: bool
    samples: int
    memories: dict[Leaf, Memory]
    machine: Machine
    calls: dict[Any, Any]
    executed: int
    singles: int
    turns: int

    def command(self, command: dict[str, int]) -> int | None:
        """Execute one command; a read returns the word it gives."""

    def decoded(self, command: dict[str, int]) -> Instruction | None:
        """Return the instruction that a command is."""

    def block(self, name: str, count: int, operands: Mapping[str, Data]) -> Data | None:
        """Execute `count` commands of one instruction."""

    def apart(self, instruction: Instruction) -> BlockRunner:
        """Return a part of an instruction, prepared by itself."""


class WordDevice(CommandDevice, Protocol):
    """A simulator that takes words of a stream; `reached` is the word that machine code ended at."""

    reached: int
