"""Steps of a shortcut: copies between parts of its memory, and calls of machine code."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..lang.named import Data
from ..lang.tape import Call, Ran
from .provenance import IDENTITY, Chain

if TYPE_CHECKING:
    from ..lang.native_sums import Summed

PAGE = 64
Digits = list[list[int]]
Box = tuple[slice, ...]


@dataclass
class Scratch:
    """Memory that shortcuts share: what one leaves there is nobody's any more when the next begins."""

    data: Data = field(default_factory=lambda: np.zeros(0, np.uint8))

    def at_least(self, size: int) -> None:
        """Make it larger."""
        if size > len(self.data):
            self.data = np.zeros(size + PAGE, np.uint8)

    @property
    def start(self) -> int:
        """The first byte that is used."""
        return -self.data.ctypes.data % PAGE


@dataclass(frozen=True)
class View:
    """Elements of a part of the scratch: its place in bytes, a type, extents and strides."""

    place: int
    dtype: Any
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def of(self, scratch: Scratch) -> Data:
        """Return them as an array."""
        return np.ndarray(self.shape, self.dtype, scratch.data, scratch.start + self.place, self.strides)


@dataclass(frozen=True)
class Move:
    """One copy: from a box of an operand, by name, or from a part of the scratch; the axes are split into digits."""

    source: str | View
    box: Box
    digits: Digits
    target: View
    inner: Box = ()  # of the digits
    chain: Chain = IDENTITY  # what is made of the codes


@dataclass(frozen=True)
class Part:
    """A box of a result, its axes split into digits, and where its codes lie."""

    box: Box
    digits: Digits
    view: View
    chain: Chain = IDENTITY

    @property
    def steps(self) -> list[int]:
        """The largest stride of each axis."""
        left = iter(self.view.strides)
        return [max(next(left) for _ in axis) for axis in self.digits]


@dataclass(frozen=True)
class Step:
    """Copies, then a call, and where what it writes and reads lies: in the scratch, in an array of its own, or, None, where it lay."""

    fill: tuple[tuple[View, int], ...]
    moves: tuple[Move, ...]
    call: Ran
    number: int  # of the call among those of the offload's events, or −1: one of its own
    places: tuple[int | Data | None, ...]

    def bind(self, base: int) -> Call:
        """Return the call for a scratch at an address."""
        return self.call.bind(self.addresses(base))

    def addresses(self, base: int) -> list[int]:
        """Return where what it writes and reads lies, for a scratch at an address."""
        usual = [self.call.out.ctypes.data, *(r.address + r.offset for r in self.call.reads)]
        offsets = [0, *(r.offset for r in self.call.reads)]
        return [_address(p, base, at, n) for p, at, n in zip(self.places, usual, offsets, strict=True)]


def _address(place: int | Data | None, base: int, usual: int, offset: int) -> int:
    if place is None:
        return usual
    return offset + (base + place if isinstance(place, int) else int(place.ctypes.data))


@dataclass(frozen=True)
class Filling:
    """Copies, then a call that sets floats of a result itself from what lies in the scratch."""

    fill: tuple[tuple[View, int], ...]
    moves: tuple[Move, ...]
    call: Summed
    place: int
    result: str


@dataclass(frozen=True)
class Bound:
    """A step for memory that there is: arrays to fill with numbers, moves with their targets and sources, and the call, if it is known."""

    fill: tuple[tuple[Data, int], ...]
    moves: tuple[tuple[Move, Data, Data | None], ...]
    call: Call | None


def bound(step: Step | Filling, scratch: Scratch) -> Bound:
    """Return a step for the memory of a scratch."""
    base = scratch.data.ctypes.data + scratch.start
    moves = tuple((m, m.target.of(scratch), m.source.of(scratch) if isinstance(m.source, View) else None) for m in step.moves)
    call = step.bind(base) if isinstance(step, Step) else None
    return Bound(tuple((view.of(scratch), value) for view, value in step.fill), moves, call)


@dataclass(frozen=True)
class Tiles:
    """Some tiles of an offload as copies and calls; `results` are views of the scratch with the axes of each result split into digits."""

    steps: list[Step | Filling]
    results: dict[str, list[Part]]
    size: int

    def is_whole(self, name: str, size: int) -> bool:
        """Tell whether a result of that size is all that the last call writes, each axis of it one of the memory's."""
        parts, last = self.results[name], self.steps[-1]
        if len(parts) != 1 or not isinstance(last, Step) or any(len(axis) != 1 for axis in parts[0].digits):
            return False
        view = parts[0].view
        return view.place == last.places[0] and size == math.prod(view.shape) == last.call.out.size and min(view.strides) >= 0
