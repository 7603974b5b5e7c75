"""Protocols of the simulators on whose memories compiled loops work."""

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
        """Execute `count` commands, operands [count(, lanes)] or, in `sampled`, [count, samples(, lanes)]; return what reads give."""


class CommandDevice(Protocol):
    """A simulator of commands: its memories, and counts of commands by the way in which they were executed."""

    ila: Ila
    reading: str
    strict: bool
    samples: int
    memories: dict[Leaf, Memory]
    machine: Machine
    calls: dict[Any, Any]
    executed: int
    singles: int
    loop_switches: int

    def command(self, command: dict[str, int]) -> int | None:
        """Execute one command; a read returns its word."""

    def decode(self, command: dict[str, int]) -> Instruction | None:
        """Return the instruction that decodes a command, or None."""

    def block(self, name: str, count: int, operands: Mapping[str, Data]) -> Data | None:
        """Execute `count` commands of one instruction, operands [count(, lanes)]; return what reads give."""

    def prepare_part(self, instruction: Instruction) -> BlockRunner:
        """Return the executable form of a part of an instruction."""


class WordDevice(CommandDevice, Protocol):
    """A simulator of instruction streams: where machine code stopped, and the instructions that it has."""

    stop_word: int
    loop_names: frozenset[str] | None
    single_names: frozenset[str]
    singles_of_loop: int
