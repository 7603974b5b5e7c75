"""Traces: the commands of a device in order, in sections, with the expected results of reads; commands are stored as columns.

A column holds one input of the bus for a block of commands: [count] for a scalar, [count, lanes] for lanes of bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...errors import SpecError
from ...lang.binders import static_shape
from ...readings.arrays.labelled_array import Data, storage_dtype
from ..mmio import Command, assemble
from ..model import Ila, Instruction, Operand

SCHEMA = "flexmatch.trace/1"


@dataclass(frozen=True)
class Header:
    """The target of a trace, its parameters and the hash of its files; `about` describes the trace."""

    target: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    sha256: str = ""
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def document(self) -> dict[str, Any]:
        """The header as JSON."""
        return {
            "schema": SCHEMA, "target": self.target, "parameters": dict(self.parameters), "sha256": self.sha256,
            "about": dict(self.about),
        }  # fmt: skip


@dataclass(frozen=True)
class Section:
    """The phase of an offload's call that the following commands belong to; `constant` ones do not depend on the inputs.

    `part` is the section's index in the whole trace, by which separated constant and variable sections are merged again.
    """

    part: int
    offload: str
    call: int
    phase: str
    constant: bool


@dataclass(frozen=True)
class Wait:
    """An item: the host waits for the interrupt."""


@dataclass(frozen=True)
class Attach:
    """An item: the device gets a new external memory of `words` zeros from address 0."""

    memory: str
    words: int


@dataclass(frozen=True, eq=False)
class Place:
    """An item: the host writes words [count] to an external memory."""

    memory: str
    address: int
    words: Data


@dataclass(frozen=True, eq=False)
class Fetch:
    """An item: the host reads `count` words of an external memory; `gives` are the expected ones."""

    memory: str
    address: int
    count: int
    gives: Data | None = None


@dataclass(frozen=True, eq=False)
class Commands:
    """A block of commands as columns by input; `gives` [count, bytes] are the expected results of reads, little-endian."""

    columns: Mapping[str, Data]
    gives: Data | None = None

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def rows(self) -> Iterator[tuple[dict[str, int], int | None]]:
        """Yield each command (its inputs that are not 0) with its expected result."""
        words = {name: list(_words(data)) for name, data in self.columns.items()}
        gives: Iterable[int | None] = _words(self.gives) if self.gives is not None else [None] * len(self)
        for row in zip(*words.values(), gives, strict=True):
            yield {name: x for name, x in zip(words, row[:-1], strict=True) if x}, row[-1]


Item = Section | Wait | Attach | Place | Fetch | Commands


@dataclass(frozen=True)
class Trace:
    """A header and its items in order."""

    header: Header
    items: tuple[Item, ...]

    @property
    def commands(self) -> int:
        """The number of commands."""
        return sum(len(i) for i in self.items if isinstance(i, Commands))

    def events(self) -> Iterator[tuple[Any, ...]]:
        """Yield the items as comparable tuples, one for each command, so that the division into blocks does not matter."""
        for i in self.items:
            if isinstance(i, Commands):
                yield from (("command", tuple(sorted(c.items())), gives) for c, gives in i.rows())
            else:
                yield (type(i).__name__, *(x.tolist() if isinstance(x, np.ndarray) else x for x in vars(i).values()))


def bus_lanes(ila: Ila, name: str) -> tuple[int, ...]:
    """Return the shape of an input in one command: () or (lanes,)."""
    return static_shape(ila.inputs[name])


def columns_of(ila: Ila, commands: Sequence[Command]) -> dict[str, Data]:
    """Return commands as columns by input, [count] or [count, lanes].

    Raises:
        SpecError: I101, a value does not fit its input, or I102, an input has lanes of other than 8 bits.
    """
    return {name: _column(ila, name, [c.get(name, 0) for c in commands]) for name in ila.inputs}


def block_of(ila: Ila, instruction: Instruction, count: int, operands: Mapping[str, Data]) -> dict[str, Data]:
    """Return `count` commands of one instruction as columns; operands are [count], or [count, lanes] where they have lanes.

    Raises:
        SpecError: I102, an operand is outside of its range, or is a field of an input of several lanes.
    """
    columns = {}
    first = assemble(instruction)
    for name in ila.inputs:
        word = _column(ila, name, [first.get(name, 0)])
        columns[name] = np.repeat(word, count, axis=0)
    for key, values in operands.items():
        operand = instruction.operands[key]
        if operand.leaf.shape:
            columns[operand.input] = np.ascontiguousarray(np.asarray(values).reshape(columns[operand.input].shape), np.uint8)
        else:
            _insert(instruction, columns, operand, np.asarray(values).astype(np.int64))
    return columns


def _insert(instruction: Instruction, columns: dict[str, Data], operand: Operand, values: Data) -> None:
    """Put a scalar operand where assemble puts it, for all rows."""
    if columns[operand.input].ndim > 1:
        raise SpecError("I102", f"{instruction.name} takes a field of {operand.input} in single commands only")
    low, high = operand.leaf.interval
    if values.size and not (low or 0) <= int(values.min()) <= int(values.max()) <= (high or 0):
        invalid = int(values.min()) if int(values.min()) < (low or 0) else int(values.max())
        raise SpecError("I102", f"operand {operand.leaf.name} of {instruction.name} must be in {low}…{high}, not {invalid}")
    start = np.int64(operand.base & (1 << operand.bits.width) - 1) << np.int64(operand.bits.low)
    column = columns[operand.input].astype(np.int64) - start  # assembled with the value 0
    raw = (values + operand.base) & (1 << operand.bits.width) - 1
    columns[operand.input] = (column | raw << operand.bits.low).astype(columns[operand.input].dtype)


def _column(ila: Ila, name: str, values: Sequence[int]) -> Data:
    leaf = ila.inputs[name]
    dtype, lanes = np.dtype(storage_dtype(leaf.interval)), bus_lanes(ila, name)
    bits = (leaf.interval[1] or 0).bit_length()
    if not lanes:
        _refuse_wide(name, bits, values)
        return np.array(values, dtype)
    if bits != 8:
        raise SpecError("I102", f"a trace needs lanes of 8 bits; {name} of {ila.name} has lanes of {bits}")
    (count,) = lanes
    _refuse_wide(name, 8 * count, values)
    return np.frombuffer(b"".join(x.to_bytes(count, "little") for x in values), np.uint8).reshape(len(values), count)


def _refuse_wide(name: str, bits: int, values: Sequence[int]) -> None:
    wide = next((x for x in values if not 0 <= x < 1 << bits), None)
    if wide is not None:
        raise SpecError("I101", f"{name} has {bits} bits; {wide:#x} does not fit")


def _words(data: Data) -> Iterator[int]:
    if data.ndim == 1:
        return iter(data.tolist())
    raw, size = data.tobytes(), data.shape[1]
    return (int.from_bytes(raw[offset : offset + size], "little") for offset in range(0, len(raw), size))
