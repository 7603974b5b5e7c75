"""Programs: the commands of one call for one shape, as blocks of like ones, and how a device runs them on codes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ...ila import Ila
from ...lang import intervals as iv
from ...readings.arrays.labelled_array import Data
from ...target.array_algebra import join_bytes, split_bytes, widen
from ...target.timing import Region
from .matching import NONE

BYTE = 8
LITERALS = "="  # the source of numbers that are no operand's
NO_LANES: Data = np.zeros((1, 0), np.int64)


@dataclass(frozen=True, eq=False)
class Lanes:
    """What lanes carry: the flat index of an element, or NONE for a zero, and the byte of its code from which on a lane has bits."""

    elements: Data
    digits: Data

    @classmethod
    def empty(cls, *shape: int) -> Lanes:
        """Return lanes that carry zeros."""
        return cls(np.full(shape, NONE), np.zeros(shape, np.int64))

    def part(self, first: int, end: int) -> Lanes:
        """Return the lanes of some commands."""
        return Lanes(self.elements[first:end], self.digits[first:end])


@dataclass(frozen=True, eq=False)
class Block:
    """Commands of one kind, one after the other: the values of each field, the lanes that each carries or returns [count, lanes]."""

    instruction: str
    columns: Mapping[str, Data]
    count: int = 1
    vector: str = ""  # the operand of the instruction that carries data
    source: str = ""  # the operand of the operation that the data are of
    lanes: Lanes = Lanes(NO_LANES, NO_LANES)
    returns: bool = False  # whether it returns the lanes
    reads: tuple[Region, ...] = ()  # of one command alone
    writes: tuple[Region, ...] = ()
    steps: int = 0  # of its unit, all commands together, where they compute
    is_alone: bool = False  # whether it moves a pointer, so that the address of the next one depends on it

    @property
    def kind(self) -> tuple[Any, ...]:
        """What commands of one block have in common."""
        return self.instruction, tuple(sorted(self.columns)), self.vector, self.source, self.returns, self.lanes.elements.shape[1]

    def part(self, first: int, end: int) -> Block:
        """Return some of its commands."""
        if (first, end) == (0, self.count):
            return self
        columns = {name: x[first:end] for name, x in self.columns.items()}
        lanes = self.lanes.part(first, end) if self.lanes.elements.size else self.lanes
        count = end - first
        return replace(self, columns=columns, count=count, lanes=lanes, steps=self.steps * count // self.count)


@dataclass(frozen=True, eq=False)
class Cover:
    """Commands that move contents: the first address of each, their fields, and of each lane the number of its address and the first byte.

    There are no fields where commands reach other addresses only while registers hold something else.
    """

    bases: Data
    columns: Mapping[str, Data] | None
    numbers: Data
    digits: Data

    def lanes(self, elements: Data, digits: Data) -> Lanes:
        """Return what the lanes carry of elements, each from a byte of its code on."""
        return Lanes(np.append(elements, NONE)[self.numbers], np.append(digits, 0)[self.numbers] + self.digits)


@dataclass(frozen=True, eq=False)
class ImageWords:
    """Words of an image from a word on: what each is, of an operand before the commands run, of the result afterwards."""

    image: str
    at: int
    source: str
    lanes: Lanes


@dataclass(frozen=True, eq=False)
class Images:
    """What a streamed device works on: the words of each image, what is put there and taken from there, and literals."""

    words: Mapping[str, int]
    inputs: tuple[ImageWords, ...]
    outputs: tuple[ImageWords, ...]
    constants: tuple[int, ...]
    word_bits: Mapping[str, tuple[int, bool]]


@dataclass(frozen=True)
class Code:
    """Bits and sign of a result's code, and of the numbers that the numerics can give, which may be fewer."""

    bits: int
    signed: bool
    used_bits: int
    used_signed: bool

    @property
    def low_bytes(self) -> Code:
        """The code of the low bytes, where those alone say what it is; else itself."""
        bits = -(-self.used_bits // BYTE) * BYTE
        return self if bits >= self.bits else Code(bits, self.used_signed, self.used_bits, self.used_signed)


@dataclass(frozen=True, eq=False)
class Program:
    """The blocks of one call, the shape of its result, bits and sign of a code of it, and images where the device has them."""

    blocks: tuple[Block, ...]
    shape: tuple[int, ...]
    code_bits: int
    signed: bool
    lane_bits: Mapping[str, int]  # instruction → bits of a lane
    images: Images | None = None
    command_bits: int = 0  # of a command without data
    waits: frozenset[int] = frozenset()  # the blocks after which the host waits for the interrupt

    @property
    def commands(self) -> int:
        """How many commands it has."""
        return sum(b.count for b in self.blocks)

    @property
    def steps(self) -> dict[str, int]:
        """How many steps each instruction that computes makes of its unit."""
        totals: dict[str, int] = {}
        for b in self.blocks:
            if b.steps:
                totals[b.instruction] = totals.get(b.instruction, 0) + b.steps
        return totals

    def moved(self, result: str) -> dict[str, int]:
        """Return the bytes that cross the border to the host, by operand; those of commands without data are commands."""
        totals: dict[str, int] = {}

        def add(name: str, bits: int) -> None:
            totals[name] = totals.get(name, 0) + -(-bits // BYTE)

        for b in self.blocks:
            lanes = b.lanes.elements.size
            name = result if b.returns else b.source if b.vector else "commands"
            add(name or "commands", lanes * self.lane_bits[b.instruction] if lanes else b.count * self.command_bits)
        if self.images is not None:
            bits = {name: width for name, (width, _) in self.images.word_bits.items()}
            for p in self.images.inputs:
                add(p.source if p.source not in ("", LITERALS) else "commands", p.lanes.elements.size * bits[p.image])
            for p in self.images.outputs:
                add(result, p.lanes.elements.size * bits[p.image])
        return totals

    def run(self, device: Any, operands: Mapping[str, Data], ranks: Mapping[str, int]) -> Data:
        """Run the program on a device; operands are codes, with a leading axis of samples where they depend on them."""
        returned = self.execute(device, operands, ranks)
        if self.images is not None:
            returned = [device.fetch(p.image, p.at, p.lanes.elements.size) for p in self.images.outputs]
        return self._result(returned)

    def execute(self, device: Any, operands: Mapping[str, Data], ranks: Mapping[str, int]) -> list[Data]:
        """Run the commands on a device; return what they return."""
        pools, images = _Pools(operands, ranks), self.images
        for name, count in images.words.items() if images is not None else ():
            device.attach(name, count)
        for p in images.inputs if images is not None else ():
            device.place(p.image, p.at, self._words(p, pools))
        returned: list[Data] = []
        for n, b in enumerate(self.blocks):
            returned += self._sent(device, b, pools)
            if n in self.waits:
                device.wait()
        if images is not None:
            device.wait()
        return returned

    def _sent(self, device: Any, b: Block, pools: _Pools) -> Iterator[Data]:
        """Send a block; yield the lanes [(samples,) lanes] that it returns."""
        if b.returns:  # reads without fields are sent one by one
            columns = [b.columns] if b.columns else [{}] * b.count
            for lanes in (device.load(b.instruction, **c) for c in columns):
                yield lanes.reshape(*lanes.shape[:-2], -1)
        elif b.vector:
            lanes = pools.codes(b.source, b.lanes, self.lane_bits[b.instruction])
            device.store(b.instruction, **b.columns, **{b.vector: lanes})
        else:
            rows = zip(*(x.tolist() for x in b.columns.values()), strict=True) if b.columns else [()] * b.count
            for row in rows:
                device.issue(b.instruction, **dict(zip(b.columns, row, strict=True)))

    def _words(self, p: ImageWords, pools: _Pools) -> Data:
        """Return the words [(samples,) count] of an image."""
        assert self.images is not None
        if p.source == LITERALS:
            return np.array([*self.images.constants, 0])[p.lanes.elements]
        bits, signed = self.images.word_bits[p.image]
        codes = pools.codes(p.source, p.lanes, bits)
        half = 1 << bits - 1
        return np.asarray((codes + half) % (2 * half) - half) if signed else codes

    @cached_property
    def _returned(self) -> list[tuple[Lanes, int]]:
        """The lanes that come back, in their order, each with its bits."""
        if self.images is not None:
            return [(p.lanes, self.images.word_bits[p.image][0]) for p in self.images.outputs]
        return [(b.lanes, self.lane_bits[b.instruction]) for b in self.blocks if b.returns]

    @cached_property
    def _places(self) -> Data:
        """Where among all lanes that are returned each byte of each result is [results, bytes]."""
        count = max(-(-self.code_bits // min((bits for _, bits in self._returned), default=self.code_bits)), 1)
        places, at = np.full((int(np.prod(self.shape)), count), NONE), 0
        for lanes, _ in self._returned:
            elements, digits = lanes.elements.reshape(-1), lanes.digits.reshape(-1)
            used = np.flatnonzero(elements != NONE)
            places[elements[used], digits[used] if count > 1 else 0] = at + used
            at += elements.size
        return places

    def _result(self, returned: Sequence[Data]) -> Data:
        lead = max((x.shape[:-1] for x in returned), key=len)
        lanes = np.concatenate([np.broadcast_to(x, (*lead, x.shape[-1])) for x in returned], axis=-1)
        digits = lanes[..., self._places]
        if self._places.shape[1] > 1:
            words = join_bytes(digits)
            words = words if self.signed else np.asarray(words % (1 << self.code_bits))
        else:
            words = widen(digits[..., 0])
        if self.signed and (self._places.shape[1] == 1 or self.code_bits % BYTE):
            half = 1 << self.code_bits - 1
            words = np.asarray((widen(words) + half) % (2 * half) - half)
        return np.asarray(words.reshape(*lead, *self.shape))


class _Pools:
    """The codes of operands, flat, with a zero after the last, and their bytes where they are wider than a lane."""

    def __init__(self, operands: Mapping[str, Data], ranks: Mapping[str, int]) -> None:
        self.operands, self.ranks, self.pools = operands, ranks, dict[tuple[str, int], Data]()

    def codes(self, name: str, lanes: Lanes, bits: int) -> Data:
        """Return bits of elements: those from a byte on that a lane has."""
        size = int(lanes.digits.max()) + 1
        pool = self.pool(name, size)
        if size == 1:
            return np.asarray(widen(pool[..., lanes.elements]) % (1 << bits))
        return np.asarray(pool[..., lanes.elements, lanes.digits])

    def pool(self, name: str, size: int) -> Data:
        if (name, size) not in self.pools:
            codes = self.operands[name] if name else np.zeros(0, np.int64)
            flat = codes.reshape(*codes.shape[: codes.ndim - self.ranks.get(name, 1)], -1)
            padded = np.concatenate([flat, np.zeros((*flat.shape[:-1], 1), flat.dtype)], axis=-1)
            self.pools[name, size] = padded if size == 1 else split_bytes(padded, size).reshape(*padded.shape, size)
        return self.pools[name, size]


def command_bits(ila: Ila) -> int:
    """Return the bits of a command without data."""
    data = ila.inputs.get("data")
    width = None if data is None else iv.width_of(data.interval)
    return 0 if data is None or width is None else width[0] * math.prod(n for n in data.shape if isinstance(n, int))


def lane_bits(ila: Ila, name: str) -> int:
    """Return the bits of a lane that an instruction carries; what one returns is taken byte by byte."""
    instruction = ila.instructions[name]
    leaf = next((o.leaf for o in instruction.operands.values() if o.leaf.shape), None)
    width = iv.width_of(leaf.interval) if leaf is not None and instruction.result is None else None
    return BYTE if width is None else width[0]


def blocks_of(commands: Sequence[Block]) -> tuple[Block, ...]:
    """Return commands as blocks of like ones that follow each other."""
    groups: list[list[Block]] = []
    kinds = [b.kind for b in commands]
    for before, kind, b in zip([None, *kinds], kinds, commands, strict=False):
        if before == kind and not b.is_alone:
            groups[-1].append(b)
        else:
            groups.append([b])
    return tuple(b[0] if len(b) == 1 else _joined(b) for b in groups)


def _joined(blocks: Sequence[Block]) -> Block:
    first = blocks[0]
    columns = {name: np.concatenate([b.columns[name] for b in blocks]) for name in first.columns}
    lanes = first.lanes
    if lanes.elements.size:
        lanes = Lanes(np.concatenate([b.lanes.elements for b in blocks]), np.concatenate([b.lanes.digits for b in blocks]))
    return replace(first, columns=columns, count=sum(b.count for b in blocks), lanes=lanes, steps=sum(b.steps for b in blocks))
