"""Programs: the commands of one call for one shape, as blocks of like ones, and how a device runs them on codes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Lane:
    """What a lane of the bus carries: bits of the code of an operand, or for a read of a result; `element` is its flat index."""

    element: int
    digit: int  # bits low … of the code, in bytes


@dataclass(frozen=True)
class Issued:
    """One command: fields, the lanes that it carries and of which operand, or the lanes that it returns."""

    instruction: str
    fields: Mapping[str, int]
    vector: str = ""  # the operand of the instruction that carries data
    source: str = ""  # the operand of the operation that the data are of
    lanes: tuple[Lane | None, ...] = ()
    returns: bool = False  # whether it returns the lanes
    reads: tuple[Region, ...] = ()
    writes: tuple[Region, ...] = ()
    steps: int = 0  # of its unit, where it computes
    is_alone: bool = False  # whether it moves a pointer, so that the address of the next one depends on it

    @property
    def kind(self) -> tuple[Any, ...]:
        """What commands of one block have in common."""
        return self.instruction, tuple(sorted(self.fields)), self.vector, self.source, self.returns, len(self.lanes)


@dataclass(frozen=True, eq=False)
class ImageWords:
    """Words of an image from a word on: what each is, of an operand before the commands run, of the result afterwards."""

    image: str
    at: int
    source: str
    lanes: tuple[Lane | None, ...]

    @cached_property
    def gather(self) -> tuple[Data, Data]:
        """The element and the byte of each word; a zero is the element after the last."""
        lanes = [x or Lane(NONE, 0) for x in self.lanes]
        return np.array([x.element for x in lanes]), np.array([x.digit for x in lanes])


@dataclass(frozen=True, eq=False)
class Images:
    """What a streamed device works on: the words of each image, what is put there and taken from there, and literals."""

    words: Mapping[str, int]
    inputs: tuple[ImageWords, ...]
    outputs: tuple[ImageWords, ...]
    constants: tuple[int, ...]
    word_bits: Mapping[str, tuple[int, bool]]


@dataclass(frozen=True, eq=False)
class Block:
    """Commands of one kind, one after the other."""

    commands: Sequence[Issued]

    @property
    def first(self) -> Issued:
        """The first command."""
        return self.commands[0]

    @cached_property
    def columns(self) -> dict[str, Data]:
        """The values of each field."""
        return {name: np.array([c.fields[name] for c in self.commands]) for name in self.first.fields}

    @cached_property
    def gather(self) -> tuple[Data, Data]:
        """The element and the byte of each lane [count, lanes]; a zero is the element after the last."""
        lanes = [[x or Lane(NONE, 0) for x in c.lanes] for c in self.commands]
        return np.array([[x.element for x in row] for row in lanes]), np.array([[x.digit for x in row] for row in lanes])


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
        return sum(len(b.commands) for b in self.blocks)

    @property
    def steps(self) -> dict[str, int]:
        """How many steps each instruction that computes makes of its unit."""
        totals: dict[str, int] = {}
        for b in self.blocks:
            if b.first.steps:
                totals[b.first.instruction] = totals.get(b.first.instruction, 0) + sum(c.steps for c in b.commands)
        return totals

    def moved(self, result: str) -> dict[str, int]:
        """Return the bytes that cross the border to the host, by operand; those of commands without data are commands."""
        totals: dict[str, int] = {}

        def add(name: str, bits: int) -> None:
            totals[name] = totals.get(name, 0) + -(-bits // BYTE)

        for b in self.blocks:
            lanes = len(b.commands) * len(b.first.lanes)
            name = result if b.first.returns else b.first.source if b.first.vector else "commands"
            add(name or "commands", lanes * self.lane_bits[b.first.instruction] if lanes else len(b.commands) * self.command_bits)
        if self.images is not None:
            bits = {name: width for name, (width, _) in self.images.word_bits.items()}
            for p in self.images.inputs:
                add(p.source if p.source not in ("", LITERALS) else "commands", len(p.lanes) * bits[p.image])
            for p in self.images.outputs:
                add(result, len(p.lanes) * bits[p.image])
        return totals

    def run(self, device: Any, operands: Mapping[str, Data], ranks: Mapping[str, int]) -> Data:
        """Run the program on a device; operands are codes, with a leading axis of samples where they depend on them."""
        returned = self.execute(device, operands, ranks)
        if self.images is not None:
            returned = [device.fetch(p.image, p.at, len(p.lanes)) for p in self.images.outputs]
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
        if b.first.returns:  # reads without fields are sent one by one
            columns = [b.columns] if b.columns else [{} for _ in b.commands]
            for lanes in (device.load(b.first.instruction, **c) for c in columns):
                yield lanes.reshape(*lanes.shape[:-2], -1)
        elif b.first.vector:
            lanes = pools.codes(b.first.source, *b.gather, self.lane_bits[b.first.instruction])
            device.store(b.first.instruction, **b.columns, **{b.first.vector: lanes})
        else:
            for c in b.commands:
                device.issue(c.instruction, **c.fields)

    def _words(self, p: ImageWords, pools: _Pools) -> Data:
        """Return the words [(samples,) count] of an image."""
        assert self.images is not None
        if p.source == LITERALS:
            return np.array([*self.images.constants, 0])[p.gather[0]]
        bits, signed = self.images.word_bits[p.image]
        codes = pools.codes(p.source, *p.gather, bits)
        half = 1 << bits - 1
        return np.asarray((codes + half) % (2 * half) - half) if signed else codes

    @cached_property
    def _returned(self) -> list[tuple[tuple[Lane | None, ...], int]]:
        """The lanes that come back, in their order, each with its bits."""
        if self.images is not None:
            return [(p.lanes, self.images.word_bits[p.image][0]) for p in self.images.outputs]
        blocks = (b for b in self.blocks if b.first.returns)
        return [(tuple(x for c in b.commands for x in c.lanes), self.lane_bits[b.first.instruction]) for b in blocks]

    @cached_property
    def _places(self) -> Data:
        """Where among all lanes that are returned each byte of each result is [results, bytes]."""
        count = max(-(-self.code_bits // min((bits for _, bits in self._returned), default=self.code_bits)), 1)
        places, at = np.full((int(np.prod(self.shape)), count), NONE), 0
        for lanes, _ in self._returned:
            for lane, x in enumerate(lanes):
                if x is not None:
                    places[x.element, x.digit if count > 1 else 0] = at + lane
            at += len(lanes)
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

    def codes(self, name: str, element: Data, digit: Data, bits: int) -> Data:
        """Return bits of elements: those from a byte on that a lane has."""
        size = int(digit.max()) + 1
        pool = self.pool(name, size)
        if size == 1:
            return np.asarray(pool[..., element] % (1 << bits))
        return np.asarray(pool[..., element, digit])

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


def blocks_of(commands: Sequence[Issued]) -> tuple[Block, ...]:
    """Return commands as blocks of like ones that follow each other."""
    blocks: list[list[Issued]] = []
    for c in commands:
        if blocks and blocks[-1][0].kind == c.kind and not c.is_alone:
            blocks[-1].append(c)
        else:
            blocks.append([c])
    return tuple(Block(tuple(b)) for b in blocks)
