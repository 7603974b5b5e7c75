"""The simulator of a device that executes packets: a program is fetched packet by packet at the model's program counter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import SpecError, UsageError
from ..external_memory import WORD
from ..mmio import split_lanes
from ..model import Ila, Packets
from ..verification.packet_legality import Member, refusal_of
from .packet_instruction import packet_instruction
from .simulator import DeviceHang
from .stream_device import Stream

MOST_PACKETS = 1 << 24


class PacketDevice(Stream):
    """A device whose instructions are executed in packets."""

    def __init__(self, ila: Ila, **options: Any) -> None:
        """Make a device of a model with packets.

        Raises:
            UsageError: F203, the model has none.
        """
        super().__init__(ila, **options)
        if ila.packets is None:
            raise UsageError("F203", f"{ila.name} has no packets")
        self.packets: Packets = ila.packets
        self._issues: dict[tuple[int, ...], tuple[Any, dict[str, int]]] = {}

    def members(self, commands: Sequence[int]) -> list[Member]:
        """Return the instructions of a packet's commands.

        Raises:
            SpecError: I101, no instruction decodes a command.
        """
        decoded = []
        for command in commands:
            lanes = split_lanes(self.ila, {WORD: command})
            instruction = self._decoder.find(lanes)
            if instruction is None:
                raise SpecError("I101", f"no instruction of {self.ila.name} decodes {command:#x}")
            operands = {name: int(values[0]) for name, values in self._executable(instruction).operands(lanes).items()}
            decoded.append(Member(instruction, operands))
        return decoded

    def issue_packet(self, commands: Sequence[int]) -> None:
        """Execute commands together.

        Raises:
            SpecError: I101, no instruction decodes a command; I102, they cannot be one packet; or a diagnostic of the model.
        """
        key = tuple(commands)
        if key not in self._issues:
            members = self.members(commands)
            refusal = refusal_of(self.ila, members)
            if refusal:
                raise SpecError("I102", f"a packet of {self.ila.name} is not legal: {refusal}")
            instruction = packet_instruction(self.ila, [m.instruction for m in members])
            operands = {f"{name}.{n}": value for n, m in enumerate(members) for name, value in m.operands.items()}
            self._issues[key] = instruction, operands
        self.execute(*self._issues[key])

    def run_program(self, words: Sequence[int], start: int = 0, most: int = MOST_PACKETS) -> int:
        """Run the program whose first word lies at the address `start`; return the number of packets.

        It ends when the counter leaves the program, or the device raises its interrupt.

        Raises:
            DeviceHang: I104, the program runs more than `most` packets.
            SpecError: I102 or a diagnostic of the model, at the address of the packet.
        """
        counter, size = self.ila.states[self.packets.counter].leaf, self.packets.word_bytes
        self.views[counter][0] = start
        self.machine.invalidate(frozenset((counter,)))
        splits: dict[int, list[int]] = {}
        executed = 0
        while 0 <= (offset := int(self.views[counter][0]) - start) < size * len(words) and not self._is_ended():
            if executed >= most:
                raise DeviceHang(self.ila.name, f"runs more than {most:,} packets")
            try:
                if offset not in splits:
                    splits[offset], _ = self.packets.split(words, offset // size)
                self.issue_packet(splits[offset])
            except SpecError as refusal:
                raise refusal.at(f"packet at {start + offset:#x}") from None
            executed += 1
        return executed

    def _is_ended(self) -> bool:
        line = self.ila.interrupt
        return line is not None and bool(self.views[line][0])
