"""ILA assembly: one command a line, as the name of its instruction and its named operands, and back.

Inputs in which a command differs from what its instruction and operands assemble to follow after `|`.
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
class DecodedCommand:
    """A decoded command: its instruction, its operands, and in `raw` the inputs in which it differs from what these assemble to."""

    instruction: Instruction
    operands: Mapping[str, int]
    raw: Mapping[str, int]

    @property
    def command(self) -> dict[str, int]:
        """The inputs of the command that are not 0."""
        inputs = {**assemble(self.instruction, **self.operands), **self.raw}
        return {name: x for name, x in inputs.items() if x}

    def __str__(self) -> str:
        fields = [f"{name}={_number(self.instruction.operands[name].leaf, x)}" for name, x in self.operands.items()]
        raw = ["|", *(f"{name}={x:#x}" for name, x in self.raw.items())] if self.raw else []
        return " ".join([self.instruction.name, *fields, *raw])


def disassemble(ila: Ila, command: Command) -> DecodedCommand:
    """Return a command as its instruction and operands.

    Raises:
        SpecError: I101, no instruction decodes the command, or a value does not fit its input.
    """
    lanes = split_lanes(ila, command)
    instruction = _decode(ila, command, lanes)
    operands = _operands(ila, instruction, lanes)
    canonical = assemble(instruction, **operands)
    raw = {name: command.get(name, 0) for name in ila.inputs if command.get(name, 0) != canonical.get(name, 0)}
    return DecodedCommand(instruction, operands, raw)


def instruction_of(ila: Ila, command: Command) -> Instruction:
    """Return the instruction that decodes a command.

    Raises:
        SpecError: I101, no instruction decodes the command, or a value does not fit its input.
    """
    return _decode(ila, command, split_lanes(ila, command))


def _decode(ila: Ila, command: Command, lanes: Mapping[str, list[int]]) -> Instruction:
    instruction = _decoder(ila, len(ila.instructions)).find(lanes)
    if instruction is None:
        inputs_text = ", ".join(f"{name}={command[name]:#x}" for name in ila.inputs if command.get(name))
        raise SpecError("I101", f"no instruction of {ila.name} decodes {inputs_text or 'a command of zeros'}")
    return instruction


def parse_command(ila: Ila, text: str) -> DecodedCommand:
    """Parse a line of assembly.

    Raises:
        SpecError: I101, an unknown instruction or input, a malformed or repeated field, or a value that does not fit its input.
    """
    head, bar, tail = text.partition("|")
    name, *fields = head.split() or [""]
    if name not in ila.instructions:
        raise SpecError("I101", f'{ila.name} has no instruction "{name}"', help=did_you_mean(name, ila.instructions))
    instruction, operands, raw = ila.instructions[name], _fields(name, fields), _fields(name, tail.split()) if bar else {}
    unknown_input = next((key for key in raw if key not in ila.inputs), None)
    if unknown_input is not None:
        raise SpecError("I101", f'{ila.name} has no input "{unknown_input}"', help=f"inputs: {', '.join(ila.inputs)}")
    named_command = DecodedCommand(instruction, operands, raw)
    split_lanes(ila, named_command.command)  # refuses what does not fit an input
    return named_command


def _operands(ila: Ila, instruction: Instruction, lanes: Mapping[str, list[int]]) -> dict[str, int]:
    """Return the operands of a decoded command; one of several lanes as a little-endian word."""
    extract = _extractor(instruction)
    inputs = {ila.inputs[name]: values for name, values in lanes.items()}
    out = {o.leaf: [0] * math.prod(static_shape(o.leaf)) for o in instruction.operands.values()}
    extract([out[m] if m in out else inputs[m] for m in extract.memories])
    return {name: _little_endian(o.leaf, out[o.leaf]) for name, o in instruction.operands.items()}


def _fields(name: str, texts: list[str]) -> dict[str, int]:
    fields = {}
    for text in texts:
        field = FIELD.fullmatch(text)
        if field is None:
            raise SpecError("I101", f'a field of {name} must be written name=number, not "{text}"')
        if field[1] in fields:
            raise SpecError("I101", f'{name} is given the field "{field[1]}" twice')
        fields[field[1]] = int(field[2], 0) if field[2].startswith("0x") else int(field[2])
    return fields


def _little_endian(leaf: Leaf, lanes: list[int]) -> int:
    if not leaf.shape:
        return lanes[0]
    size = (iv.width_of(leaf.interval) or (8, False))[0]
    return sum(x << size * n for n, x in enumerate(lanes))


def _number(leaf: Leaf, value: int) -> str:
    return f"{value:#x}" if leaf.shape else str(value)
