"""Replay of a trace on the simulator of its model, with every recorded read compared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np

from ...errors import AnswerNo, SpecError
from ...ila import Ila
from ...ila.external_memory import WORD
from ...ila.simulation.simulator import DeviceHang, Simulator
from ...ila.simulation.stream_device import Stream
from ...ila.traces.assembly import DecodedCommand, disassemble
from ...ila.traces.trace import Attach, Commands, Fetch, Place, Section, Trace, Wait
from ...readings.arrays.labelled_array import Data, storage_dtype


@dataclass(frozen=True)
class Difference:
    """A read with another result than the recorded one: the command's number and text, both values, and its section."""

    number: int
    command: str
    recorded: str
    found: str
    section: str


@dataclass
class Replay:
    """The result of a replay: numbers of commands, of compared and of differing reads, and the first differences."""

    commands: int = 0
    compared: int = 0
    different: int = 0
    first: list[Difference] = field(default_factory=list)

    @property
    def document(self) -> dict[str, Any]:
        """The counts and the first differences as JSON."""
        return {
            "commands": self.commands, "compared": self.compared, "different": self.different,
            "differences": [vars(d) for d in self.first],
        }  # fmt: skip


MOST_SHOWN = 10


def replay(trace: Trace, ila: Ila, *, reading: str = "arrays") -> Replay:
    """Run a trace on a strict simulator from the reset state.

    Raises:
        SpecError: a command that no instruction decodes, or that the model refuses, with its place in the trace.
        AnswerNo: I104, the device waits for an interrupt that cannot come.
    """
    player = _Player(ila, reading)
    for item in trace.items:
        try:
            player.play(item)
        except SpecError as refusal:
            raise refusal.at(f"{player.section}command {player.report.commands}") from None
        except DeviceHang as hang:
            raise AnswerNo("I104", hang.problem.sentence, place=f"{player.section}command {player.report.commands}") from None
    return player.report


class _Player:
    def __init__(self, ila: Ila, reading: str) -> None:
        self.ila = ila
        self.sim: Simulator = ila.simulator(strict=True, reading=reading)
        self.report = Replay()
        self.section = ""
        self.words: list[int] = []

    def play(self, item: Any) -> None:
        if isinstance(item, Section):
            self.section = f"{item.offload} call {item.call} {item.phase}, "
        elif isinstance(item, Commands):
            self.commands(item)
        elif isinstance(item, Wait):
            self.wait()
        else:
            self.memory(item)

    def memory(self, item: Attach | Place | Fetch) -> None:
        if not isinstance(self.sim, Stream):
            raise SpecError("F103", f"{self.ila.name} has no external memory")
        if isinstance(item, Attach):
            self.sim.give(item.memory, np.zeros(item.words, storage_dtype(self.ila.externals[item.memory].leaf.interval)))
        elif isinstance(item, Place):
            self.sim.place(item.memory, item.address, item.words)
        else:
            words = self.sim.fetch(item.memory, item.address, item.count)[0]
            if item.gives is not None:
                self.compare(f"fetch {item.memory} {item.address}…{item.address + item.count - 1}", item.gives, words)

    def wait(self) -> None:
        if isinstance(self.sim, Stream):
            self.sim.run(self.words)
            self.words = []
        self.sim.wait_for_interrupt()

    def commands(self, block: Commands) -> None:
        rows = [(disassemble(self.ila, command), gives) for command, gives in block.rows()]
        if isinstance(self.sim, Stream):
            self.words += [disassembled.command.get(WORD, 0) for disassembled, _ in rows]
            self.report.commands += len(rows)
            return
        for _, group in groupby(rows, key=lambda row: row[0].instruction.name):
            self.group([*group], block.gives)

    def group(self, rows: list[tuple[DecodedCommand, int | None]], gives: Data | None) -> None:
        """Run commands of one instruction together."""
        instruction = rows[0][0].instruction
        operands = {name: np.array(list(_values(rows, name))) for name in instruction.operands}
        result = self.sim.block(instruction.name, len(rows), operands)
        for n, (disassembled, recorded) in enumerate(rows):
            if result is not None and recorded is not None and gives is not None:
                expected = np.frombuffer(recorded.to_bytes(gives.shape[1], "little"), np.uint8)
                self.compare(str(disassembled), expected, np.asarray(result[n][0]))
            self.report.commands += 1

    def compare(self, description: str, expected: Data, actual: Data) -> None:
        self.report.compared += 1
        if np.array_equal(expected, actual):
            return
        self.report.different += 1
        if len(self.report.first) < MOST_SHOWN:
            recorded, actual_text = (np.ascontiguousarray(x)[::-1].astype(expected.dtype).tobytes().hex() for x in (expected, actual))
            self.report.first.append(Difference(self.report.commands, description, recorded, actual_text, self.section.removesuffix(", ")))


def _values(rows: list[tuple[DecodedCommand, int | None]], name: str) -> Iterator[Any]:
    shape = rows[0][0].instruction.operands[name].leaf.shape
    for disassembled, _ in rows:
        value = disassembled.operands[name]
        yield list(value.to_bytes(int(shape[0]), "little")) if shape else value  # type: ignore[arg-type]
