"""The writer of a program: its commands so far, what registers and control memories hold after them, and images outside."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...ila import Ila
from ...readings.arrays.labelled_array import Data
from ..instructions.control import Settings, after, changes_registers, setters
from ..instructions.copies import NoCopy
from ..instructions.image import Copier
from ..instructions.pointers import file_setters
from .program import Block, Cover, ImageWords, Lanes

Address = tuple[int, ...]
Held = tuple[str, int]  # the operand, and which element of it


class NotEmitted(Exception):
    """No instructions move an operand or a result, or registers cannot be set."""


@dataclass
class Writer:
    """Commands written so far, and what the registers hold after them."""

    ila: Ila
    registers: Settings
    commands: list[Block] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)  # words of each image
    inputs: list[ImageWords] = field(default_factory=list)
    outputs: list[ImageWords] = field(default_factory=list)
    constants: dict[int, int] = field(default_factory=dict)  # numbers that are no operand's, each with its place among them
    contents: dict[str, dict[Address, Held]] = field(default_factory=dict)  # what lies in memories through which elements are shifted
    covers: dict[tuple[Any, ...], Cover] = field(default_factory=dict)  # commands that move contents, by what they depend on
    tables: dict[str, dict[int, int]] = field(default_factory=dict)  # words of control memories
    pointers: dict[str, int] = field(default_factory=dict)  # what register 0 of each file holds

    def issues_singly(self, instruction: str) -> bool:
        """Tell whether what a command finds may depend on the one before it: registers that it moves, or the order of queues."""
        return changes_registers(self.ila, instruction) or bool(self.ila.externals)

    def issue(self, b: Block) -> None:
        """Append commands; registers among their columns are set before.

        Raises:
            NotEmitted: what they do to registers cannot be followed.
        """
        operands = self.ila.instructions[b.instruction].operands
        registers = {k: x for k, x in b.columns.items() if k not in operands and k in setters(self.ila)}
        is_plain = b.columns.keys() <= operands.keys()
        fields = b if is_plain else replace(b, columns={k: x for k, x in b.columns.items() if k in operands})
        is_new = np.full(b.count, self.issues_singly(b.instruction))
        for x in registers.values():
            is_new[1:] |= x[1:] != x[:-1]
        for first, end in runs_of(is_new):
            self.set_registers({k: int(x[first]) for k, x in registers.items()})
            self._append(fields.part(first, end))

    def _append(self, b: Block) -> None:
        """Append commands of which none changes what the next one finds."""
        before = self.registers
        if changes_registers(self.ila, b.instruction):
            try:
                self.registers = after(self.ila, b.instruction, {k: int(x[0]) for k, x in b.columns.items()}, before)
            except NoCopy:
                raise NotEmitted(f"what {b.instruction} does to registers depends on data") from None
        self.commands.append(replace(b, is_alone=True) if b.vector and self.registers != before else b)

    def set_registers(self, values: Mapping[str, int]) -> None:
        """Set registers that hold something else."""
        different = {r: x for r, x in values.items() if self.registers.get(r) != x}
        while different:
            setter = setters(self.ila)[next(iter(different))]
            fields = {f: values.get(r, self.registers[r]) for r, f in setter.fields.items()}
            self.issue(Block(setter.instruction, columns_of(fields)))
            different = {r: x for r, x in different.items() if r not in setter.fields}

    def pointed(self, c: Copier, address: int, at: int) -> Settings:
        """Return the fields with which a copy reaches a word of its image by its pointer, which is set where it holds one too far away.

        Raises:
            NotEmitted: no instruction sets it.
        """
        assert c.pointer is not None
        file = c.pointer.file
        settings = c.pointed(self.ila, address, at, self.pointers[file]) if file in self.pointers else None
        if settings is not None:
            return settings
        pointer_value = c.farthest(self.ila, address, at)
        settings = c.pointed(self.ila, address, at, pointer_value)
        ways = ((x.instruction, fields) for x in file_setters(self.ila, file) if (fields := x.settings(0, pointer_value)) is not None)
        instruction, fields = next(ways, ("", None))
        if settings is None or fields is None:
            raise NotEmitted(f"no instruction sets a register of {file} to {pointer_value} from its fields")
        self.issue(Block(instruction, columns_of(fields)))
        self.pointers[file] = pointer_value
        return settings

    # -- images

    def allocate(self, image: str, count: int, unit: int) -> int:
        """Return the first of so many new words of an image, at a multiple of a unit."""
        first = -(-self.sizes.get(image, 0) // unit) * unit
        self.sizes[image] = first + count
        return first

    def place(self, image: str, at: int, source: str, lanes: Lanes) -> None:
        """Put codes into an image before the commands run."""
        self.inputs.append(ImageWords(image, at, source, lanes))

    def fetch(self, image: str, at: int, lanes: Lanes) -> None:
        """Take codes from an image after the commands have run."""
        self.outputs.append(ImageWords(image, at, "", lanes))

    def constant(self, value: int) -> int:
        """Return the place of a number, which is no operand's, among those."""
        return self.constants.setdefault(value, len(self.constants))


def runs_of(is_new: Data) -> Iterator[tuple[int, int]]:
    """Yield the first of commands that belong together and the first after them; others begin where something is new."""
    later = np.flatnonzero(is_new[1:]) + 1 if len(is_new) > 1 else np.zeros(0, np.int64)
    return itertools.pairwise([0, *later.tolist(), len(is_new)])


def columns_of(fields: Mapping[str, int | Data], count: int = 1) -> dict[str, Data]:
    """Return fields, some the same for all commands, as columns."""
    return {k: x if isinstance(x, np.ndarray) else np.full(count, x, np.int64) for k, x in fields.items()}
