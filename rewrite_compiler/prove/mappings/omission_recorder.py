"""Omission recorder: a device that notes which operands its driver gives no value; instructions take these as 0."""

from __future__ import annotations

from typing import Any

from ...ila import Ila
from ...readings.arrays.labelled_array import Data

MAX_LISTED = 3  # operands in a sentence; a driver that leaves out more sets registers by a few of their fields


class OmissionRecorder:
    """A device in front of another one."""

    def __init__(self, device: Any, ila: Ila) -> None:
        self.device, self.ila = device, ila
        self.omitted: dict[str, None] = {}

    def issue(self, instruction: str, **operands: Any) -> None:
        """Send one instruction."""
        self._note(instruction, operands)
        self.device.issue(instruction, **operands)

    def store(self, instruction: str, **operands: Any) -> None:
        """Send one instruction for each row."""
        self._note(instruction, operands)
        self.device.store(instruction, **operands)

    def load(self, instruction: str, **operands: Any) -> Any:
        """Send one read for each row; return what they read."""
        self._note(instruction, operands)
        return self.device.load(instruction, **operands)

    def wait(self) -> None:
        """Wait for the interrupt."""
        self.device.wait()

    def attach(self, memory: str, words: int) -> None:
        """Give it a new external memory."""
        self.device.attach(memory, words)

    def place(self, memory: str, address: int, words: Data) -> None:
        """Write words to an external memory."""
        self.device.place(memory, address, words)

    def fetch(self, memory: str, address: int, count: int) -> Data:
        """Return words of an external memory."""
        words: Data = self.device.fetch(memory, address, count)
        return words

    @property
    def text(self) -> str:
        """The operands without a value, as the end of a sentence; nothing where there are none, or too many to be an oversight."""
        if not 0 < len(self.omitted) <= MAX_LISTED:
            return ""
        return f"; the driver gives no value, which means 0, for {', '.join(self.omitted)}"

    def _note(self, instruction: str, operands: dict[str, Any]) -> None:
        declared = self.ila.instructions[instruction].operands if instruction in self.ila.instructions else {}
        self.omitted.update(dict.fromkeys(f"{name} of {instruction}" for name in declared if name not in operands))
