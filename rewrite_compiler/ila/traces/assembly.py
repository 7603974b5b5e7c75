"""ILA assembly: commands as named instructions with named fields, one a line, and back.

A command whose bits differ from what its instruction and fields assemble to keeps those inputs after `|`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from ...errors import SpecError, did_you_mean
from ...lang import intervals as iv
from ...lang.binders import Leaf, static_shape
from ..mmio import Command, assemble, split_lanes
from ..model import Ila, Instruction
from ..simulation.simulator import _decoder, _extractor

FIELD = re.compile(r"(\w+)=(-?\d+|0x[0-9a-f]+)", re.ASCII)


@dataclass(frozen=True)
class Named:
    """A command as its instruction and named operands; `raw` are the inputs in which it differs from what they assemble to."""

    instruction: Instruction
    operands: Mapping[str, int]
    raw: Mapping[str, int]

    @property
    def command(self) -> dict[str, int]:
        """The inputs of the command that are not 0."""
        made = {**assemble(self.instruction, **self.operands), **self.raw}
        return {name: x for name, x in made.items() if x}

    def __str__(self) -> str:
        fields = [f"{name}={_number(self.instruction.operands[name].leaf, x)}" for name, x in self.operands.items()]
        raw = ["|", *(f"{name}={x:#x}" for name, x in self.raw.items())] if self.raw else []
        return " ".join([self.instruction.name, *fields, *raw])


def disassemble(ila: Ila, command: Command) -> Named:
    """Return the instruction that a command is, with its operands; SpecError I101 when no instruction decodes it."""
    lanes = split_lanes(ila, command)
    found = _decoded(ila, command, lanes)
    operands = _operands(ila, found, lanes)
    made = assemble(found, **operands)
    raw = {name: command.get(name, 0) for name in ila.inputs if command.get(name, 0) != made.get(name, 0)}
    return Named(found, operands, raw)


def instruction_of(ila: Ila, command: Command) -> Instruction:
    """Return the instruction that a command is; SpecError I101 when no instruction decodes it."""
    return _decoded(ila, command, split_lanes(ila, command))


def _decoded(ila: Ila, command: Command, lanes: Mapping[str, list[int]]) -> Instruction:
    found = _decoder(ila, len(ila.instructions)).find(lanes)
    if found is None:
        shown = ", ".join(f"{name}={command[name]:#x}" for name in ila.inputs if command.get(name))
        raise SpecError("I101", f"no instruction of {ila.name} decodes {shown or 'a command of zeros'}")
    return found


def parse_named(ila: Ila, text: str) -> Named:
    """Return the command that a line of assembly stands for; SpecError names what is wrong in it."""
    head, bar, tail = text.partition("|")
    name, *fields = head.split() or [""]
    if name not in ila.instructions:
        raise SpecError("I101", f'{ila.name} has no instruction "{name}"', help=did_you_mean(name, ila.instructions))
    instruction, operands, raw = ila.instructions[name], _fields(name, fields), _fields(name, tail.split()) if bar else {}
    unknown = next((key for key in raw if key not in ila.inputs), None)
    if unknown is not None:
        raise SpecError("I101", f'{ila.name} has no input "{unknown}"', help=f"inputs: {', '.join(ila.inputs)}")
    found = Named(instruction, operands, raw)
    split_lanes(ila, found.command)  # refuses what does not fit an input
    return found


def _operands(ila: Ila, instruction: Instruction, lanes: Mapping[str, list[int]]) -> dict[str, int]:
    """Return the operands of a decoded command by their own terms; the lanes of one as a little-endian word."""
    extract = _extractor(instruction)
    given = {ila.inputs[name]: values for name, values in lanes.items()}
    out = {o.leaf: [0] * math.prod(static_shape(o.leaf)) for o in instruction.operands.values()}
    extract([out[m] if m in out else given[m] for m in extract.memories])
    return {name: _joined(o.leaf, out[o.leaf]) for name, o in instruction.operands.items()}


def _fields(name: str, texts: list[str]) -> dict[str, int]:
    found = {}
    for text in texts:
        field = FIELD.fullmatch(text)
        if field is None:
            raise SpecError("I101", f'a field of {name} must be written name=number, not "{text}"')
        if field[1] in found:
            raise SpecError("I101", f'{name} is given the field "{field[1]}" twice')
        found[field[1]] = int(field[2], 0) if field[2].startswith("0x") else int(field[2])
    return found


def _joined(leaf: Leaf, lanes: list[int]) -> int:
    if not leaf.shape:
        return lanes[0]
    size = (iv.width_of(leaf.interval) or (8, False))[0]
    return sum(x << size * n for n, x in enumerate(lanes))


def _number(leaf: Leaf, value: int) -> str:
    return f"{value:#x}" if leaf.shape else str(value)
