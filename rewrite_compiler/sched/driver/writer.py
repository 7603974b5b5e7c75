"""The writer of a program: its commands so far, what registers and control memories hold after them, and images outside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...ila import Ila
from ..instructions.control import Settings, after, setters
from ..instructions.copies import NoCopy
from .program import ImageWords, Issued, Lane

Address = tuple[int, ...]
Held = tuple[str, int]  # the operand, and which element of it


class NotEmitted(Exception):
    """No instructions move an operand or a result, or registers cannot be set."""


@dataclass
class Writer:
    """Commands written so far, and what the registers hold after them."""

    ila: Ila
    registers: Settings
    commands: list[Issued] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)  # words of each image
    inputs: list[ImageWords] = field(default_factory=list)
    outputs: list[ImageWords] = field(default_factory=list)
    constants: list[int] = field(default_factory=list)
    contents: dict[str, dict[Address, Held]] = field(default_factory=dict)  # what lies in memories through which elements are shifted
    tables: dict[str, dict[int, int]] = field(default_factory=dict)  # words of control memories

    def issue(self, c: Issued) -> None:
        """Append a command.

        Raises:
            NotEmitted: what it does to registers cannot be followed.
        """
        before = self.registers
        try:
            self.registers = after(self.ila, c.instruction, c.fields, self.registers)
        except NoCopy:
            raise NotEmitted(f"what {c.instruction} does to registers depends on data") from None
        self.commands.append(replace(c, is_alone=True) if c.vector and self.registers != before else c)

    def set_registers(self, values: Mapping[str, int]) -> None:
        """Set registers that hold something else."""
        different = {r: x for r, x in values.items() if self.registers.get(r) != x}
        while different:
            setter = setters(self.ila)[next(iter(different))]
            fields = {f: values.get(r, self.registers[r]) for r, f in setter.fields.items()}
            self.issue(Issued(setter.instruction, fields))
            different = {r: x for r, x in different.items() if r not in setter.fields}

    def with_fields(self, instruction: str, settings: Mapping[str, int]) -> Settings:
        """Set the registers among settings, and return the fields of the instruction."""
        fields = self.ila.instructions[instruction].operands
        self.set_registers({k: x for k, x in settings.items() if k not in fields and k in setters(self.ila)})
        return {k: x for k, x in settings.items() if k in fields}

    # -- images

    def allocate(self, image: str, count: int, unit: int) -> int:
        """Return the first of so many new words of an image, at a multiple of a unit."""
        first = -(-self.sizes.get(image, 0) // unit) * unit
        self.sizes[image] = first + count
        return first

    def place(self, image: str, at: int, source: str, lanes: Sequence[Lane | None]) -> None:
        """Put codes into an image before the commands run."""
        self.inputs.append(ImageWords(image, at, source, tuple(lanes)))

    def fetch(self, image: str, at: int, lanes: Sequence[Lane | None]) -> None:
        """Take codes from an image after the commands have run."""
        self.outputs.append(ImageWords(image, at, "", tuple(lanes)))

    def constant(self, value: int) -> Lane:
        """Return the lane of a number, which is no operand's."""
        if value not in self.constants:
            self.constants.append(value)
        return Lane(self.constants.index(value), 0)
