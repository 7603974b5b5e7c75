"""Memory-mapped input and output: the bus commands of a device, and instructions assembled to commands and read back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..errors import SpecError, did_you_mean
from ..lang import intervals as iv
from ..lang.binders import Leaf, static_shape
from ..lang.expr import Expr, clamp
from .bit_fields import Bits
from .model import Ila, Instruction, Match, Operand

Command = Mapping[str, int]  # input name → value; the input "data" is one little-endian word of all lanes


@dataclass(frozen=True, eq=False)
class Bus:
    """The bus inputs `wr`, `rd`, `addr` and `data` (lanes of bytes) of a memory-mapped model.

    The device decodes the low `address_bits` of an address without its `unused_bits` lowest, under the condition `enabled`;
    assembled commands have the further inputs `fixed`. `dataclasses.replace` returns such a variant of a bus.
    """

    ila: Ila
    address_bits: int = 32
    unused_bits: int = 0
    enabled: Expr | None = None
    fixed: Mapping[str, int] = field(default_factory=dict)

    @property
    def address(self) -> Expr:
        """The bits of the address that the device decodes."""
        word = self.ila.inputs["addr"][()]
        return word if word.interval[1] == (1 << self.address_bits) - 1 else word[0 : self.address_bits]

    def write(self, address: int, extra: Expr | None = None) -> Match:
        """Match writes of exactly `address`."""
        return self.match(True, self._is(address), address, extra)

    def read(self, address: int, extra: Expr | None = None) -> Match:
        """Match reads of exactly `address`."""
        return self.match(False, self._is(address), address, extra)

    def access(self, address: int, extra: Expr | None = None) -> Match:
        """Match writes and reads of exactly `address`; assembled commands write."""
        return self.match(None, self._is(address), address, extra)

    def _is(self, address: int) -> Expr:
        return (self.address >> self.unused_bits) == address >> self.unused_bits

    def write_range(self, first: int, count: int, stride: int = 16, index: str = "index") -> Match:
        """Match writes to `count` vectors of `stride` bytes from the address `first`; the operand `index` is the vector's number."""
        return self._range(True, first, count, stride, index)

    def read_range(self, first: int, count: int, stride: int = 16, index: str = "index") -> Match:
        """Match reads of `count` vectors of `stride` bytes from the address `first`; the operand `index` is the vector's number."""
        return self._range(False, first, count, stride, index)

    def match(self, is_write: bool | None, condition: Expr, address: int, extra: Expr | None = None) -> Match:
        """Match writes (False: reads; None: both) under a condition; assembled commands have this address."""
        wr, rd = self.ila.inputs["wr"][()], self.ila.inputs["rd"][()]
        writes, reads = wr & ~rd, rd & ~wr
        decode = writes | reads if is_write is None else writes if is_write else reads
        for part in (self.enabled, condition, extra):
            decode = decode if part is None else decode & part
        return Match(decode, {"wr": int(is_write is not False), "rd": int(is_write is False), "addr": address, **self.fixed})

    def _range(self, is_write: bool, first: int, count: int, stride: int, name: str) -> Match:
        shift = stride.bit_length() - 1
        number = self.address >> shift
        base = first >> shift
        in_range = (number >= base) & (number < base + count)
        index = Leaf((), (0, count - 1), False, name)
        operand = Operand(index, clamp(number - base, 0, count - 1), "addr", Bits(shift, self.address_bits - 1), base)
        return replace(self.match(is_write, in_range, 0), operands={name: operand})


def mmio(ila: Ila, *, address_bits: int = 32, data_bytes: int = 16) -> Bus:
    """Declare the bus inputs of a memory-mapped device on `ila`, `data` as `data_bytes` lanes, and return the bus."""
    wr, rd = ila.input("wr", 1)[()], ila.input("rd", 1)[()]
    ila.idle += [~wr & ~rd, wr & rd]
    ila.input("addr", address_bits)
    ila.input("data", 8, data_bytes)
    return Bus(ila, address_bits)


def assemble(instruction: Instruction, **operands: int) -> dict[str, int]:
    """Return the bus command, input by input, of an instruction with these operands; operands without a value are 0.

    Raises:
        SpecError: I102, the instruction has no such operand, or a value is outside of its range.
    """
    check_names(instruction, operands)
    command = dict(instruction.fixed)
    for name, operand in instruction.operands.items():
        value = operands.get(name, 0)
        check_operand(instruction, name, value)
        raw = (value + operand.base) & (1 << operand.bits.width) - 1
        command[operand.input] = command.get(operand.input, 0) | raw << operand.bits.low
    return command


def check_names(instruction: Instruction, operands: Mapping[str, Any]) -> None:
    """Check that an instruction has all of these operands.

    Raises:
        SpecError: I102, it has no operand of a name.
    """
    unknown_names = sorted(operands.keys() - instruction.operands.keys())
    if unknown_names:
        available = ", ".join(instruction.operands) or "none"
        remedy = " ".join(filter(None, (did_you_mean(unknown_names[0], instruction.operands), f"operands: {available}")))
        raise SpecError("I102", f'{instruction.name} has no operand "{unknown_names[0]}"', help=remedy)


def rows_of(operands: Mapping[str, Any]) -> int:
    """Return how many commands columns of operands are: one where there are none."""
    return len(next(iter(operands.values()))) if operands else 1


def check_operand(instruction: Instruction, name: str, value: int) -> None:
    """Check that a scalar operand can hold a value; operands of several lanes are not checked.

    Raises:
        SpecError: I102, the value is outside of the operand's range.
    """
    leaf = instruction.operands[name].leaf
    if not leaf.shape and not iv.inside((value, value), leaf.interval):
        raise SpecError("I102", f"operand {name} of {instruction.name} must be in {leaf.interval[0]}…{leaf.interval[1]}, not {value}")


def split_lanes(ila: Ila, command: Command) -> dict[str, list[int]]:
    """Return each input of a command as its flat list of lanes; missing inputs are 0.

    Raises:
        SpecError: I101, a value has more bits than its input.
    """
    lanes: dict[str, list[int]] = {}
    for name, leaf in ila.inputs.items():
        value = command.get(name, 0)
        size = (iv.width_of(leaf.interval) or (8, False))[0]
        count = math.prod(static_shape(leaf))
        if not 0 <= value < 1 << size * count:
            raise SpecError("I101", f"{name} has {size * count} bits; {value:#x} does not fit")
        lanes[name] = [value >> size * n & (1 << size) - 1 for n in range(count)]
    return lanes


def describe(instruction: Instruction, operands: Mapping[str, Any]) -> str:
    """Return one line of ILA assembly: the instruction's name and its named operands."""
    return " ".join([instruction.name, *(f"{k}={_operand_text(v)}" for k, v in operands.items())])


def _operand_text(value: Any) -> str:
    return "0x" + "".join(f"{int(b):02x}" for b in reversed(value)) if isinstance(value, list | tuple) else str(value)
