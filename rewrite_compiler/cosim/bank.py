"""Bank: recordings of single offloads. Plans that differ in some offloads share those of all others.

A recording belongs to an operation on a design, its tiles, its formats, its constants and the form of what it is given; it is
made on a simulator of its own, from reset, and checked as those of whole batches are: played on scrambled memory it gives the
same results again.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from threading import Lock

import numpy as np

from ..compile.coded import SINGLE, Coded, Operand, looked_at
from ..compile.execute import Prepared
from ..compile.moves import Moved
from ..compile.plan import Offload
from ..ila import Ila
from ..ir.program import Data
from ..lang.recycled import give_back
from ..lang.tape import Diverged, Tape
from ..lang.twin import NoTwin
from ..target import TapedDevice, simulated_device
from .affine import AffineShortcut
from .provenance import NoShortcut
from .search import asked
from .shortcut import Shortcut, shortcut
from .steps import Scratch
from .tapes import recording

ROOM = 1 << 28  # bytes of devices that play: recordings with a shortcut need none
Results = Sequence[Operand]
Operands = Mapping[str, Operand]


@dataclass
class Lane:
    """Memory of one thread, and what plays there."""

    scratch: Scratch = field(default_factory=Scratch)
    known: dict[int, Shortcut | AffineShortcut] = field(default_factory=dict)  # by unit


@dataclass
class Room:
    """How many bytes devices that play may still take, all threads together."""

    left: int
    turn: Lock = field(default_factory=Lock)

    def has(self, size: int) -> bool:
        """Take so many; tell whether there were as many."""
        with self.turn:
            is_there = size <= self.left
            self.left -= size if is_there else 0
            return is_there

    def give(self, size: int) -> None:
        """Give so many back."""
        with self.turn:
            self.left += size


@dataclass
class Unit:
    """One offload as it is recorded: by its shortcut, or by devices that play, each with a recording; by neither, it is run."""

    prepared: Prepared
    ila: Ila
    reading: str
    room: Room
    turn: Lock = field(default_factory=Lock)
    runs: int = 0
    is_played: bool | None = None  # None: not recorded yet
    shortcut: Shortcut | AffineShortcut | None = None
    kept: Tape | None = None  # what calls of the shortcut know by address
    idle: list[TapedDevice] = field(default_factory=list)
    has_device: bool = False  # that plays, idle or busy
    is_full: bool = False  # no room was left for one more

    def run(self, operands: Operands) -> Results:
        """Run it on a simulator."""
        device = simulated_device(self.ila, reading=self.reading, samples=_samples(operands))
        return self.prepared.run(device, operands)[0]

    def record(self, operands: Operands) -> Results:
        """Run it, and keep the recording if playing it gives the same results; the memory that this took is given back."""
        found = self._recorded(operands)
        give_back()
        return found

    def _recorded(self, operands: Operands) -> Results:
        device = recording(self.ila, self.reading, _samples(operands))
        found = self.prepared.run(device, operands)[0]
        refused = device.tape.refused
        device.rewind()
        wanted = asked(self.prepared, device, operands)
        self.is_played = not refused and self._gives(found, operands, device)
        if not self.is_played:
            return found
        device.rewind()
        try:
            made = shortcut(self.prepared, device, wanted.codes, wanted.moves)
            device.tape.arena.scramble()
            if _are_same(found, made.run(self.prepared, operands)[0]):
                self.shortcut, self.kept = made.beside(Scratch()), device.tape
                device.tape.leave()
                return found
        except (NoShortcut, Diverged):
            pass
        if self.room.has(device.tape.arena.size):
            self.has_device = True
            self.idle.append(device)
        else:
            self.is_full = True
        self.is_played = self.has_device
        return found

    def _gives(self, results: Results, operands: Operands, device: TapedDevice) -> bool:
        """Tell whether a device plays these results on scrambled memory."""
        device.tape.arena.scramble()
        try:
            return _are_same(results, self.prepared.run(device, operands)[0])
        except (Diverged, NoTwin):
            return False

    def play(self, operands: Operands, lane: Lane, *, is_loose: bool) -> Results:
        """Return what the recording gives for other contents."""
        if not self.is_played:
            return self.run(operands)
        if self.shortcut is not None:
            if id(self) not in lane.known:
                lane.known[id(self)] = self.shortcut.beside(lane.scratch)
            return lane.known[id(self)].run(self.prepared, operands, is_loose=is_loose)[0]
        try:
            device = self.idle.pop()
        except IndexError:  # another thread plays on it
            return self.run(operands) if self.is_full else self.record(operands)
        device.rewind()
        try:
            found = self.prepared.run(device, operands)[0]
        except Diverged:  # a driver sends other commands for other samples
            self.is_played = False
            self.room.give(device.tape.arena.size)
            return self.run(operands)
        self.idle.append(device)
        return found


@dataclass
class Bank:
    """Recordings for batches of one size; `at_once` tells whether an offload is recorded when it is first seen or only when it is again."""

    reading: str
    at_once: bool = True
    ilas: dict[Hashable, Ila] = field(default_factory=dict)
    units: dict[Hashable, Unit] = field(default_factory=dict)
    lanes: list[Lane] = field(default_factory=list)
    digests: dict[int, tuple[Data, bytes]] = field(default_factory=dict)  # of constants, which are kept with them
    room: Room = field(default_factory=lambda: Room(ROOM))
    turn: Lock = field(default_factory=Lock)

    @contextmanager
    def lane(self) -> Iterator[Lane]:
        """Give memory to a thread."""
        try:
            lane = self.lanes.pop()
        except IndexError:
            lane = Lane()
        yield lane
        self.lanes.append(lane)

    def run(self, o: Offload, constants: Mapping[str, Data], operands: Operands, lane: Lane, *, is_loose: bool = False) -> Results:
        """Return the results of an offload."""
        unit = self._unit(o, constants, operands)
        if self.reading == "oracle":
            return unit.run(operands)
        with unit.turn:
            unit.runs += 1
            if unit.is_played is None:
                return unit.record(operands) if self.at_once or unit.runs > 1 else unit.run(operands)
        return unit.play(operands, lane, is_loose=is_loose)

    def _unit(self, o: Offload, constants: Mapping[str, Data], operands: Operands) -> Unit:
        with self.turn:
            design = o.target.build, *o.target.values.items()
            forms = (*((n, self._digest(x)) for n, x in constants.items()), *((n, _form(x)) for n, x in operands.items()))
            key = design, o.mapping.variant, o.node.attributes, *o.tiling.tile.items(), *o.formats.items(), *forms
            if key not in self.units:
                self.ilas.setdefault(design, o.target.ila())
                self.units[key] = Unit(Prepared(o, constants), self.ilas[design], self.reading, self.room)
            return self.units[key]

    def _digest(self, x: Data) -> bytes:
        """Return the digest of a constant."""
        if id(x) not in self.digests:
            self.digests[id(x)] = x, _digest(x)
        return self.digests[id(x)][1]


def _digest(x: Data) -> bytes:
    head = f"{x.dtype.str}{x.shape}".encode()
    return blake2b(head + np.ascontiguousarray(x).tobytes()).digest()


def _form(x: Operand) -> Hashable:
    """Return what a recording depends on of an operand that moves."""
    if isinstance(x, Moved) and x.move.is_onto:
        return x.root.shape, x.root.dtype.str, x.move.digest
    return (x.codes.shape, SINGLE.str) if isinstance(x, Coded) else (looked_at(x).shape, looked_at(x).dtype.str)


def _samples(operands: Operands) -> int:
    """Return how many samples the first axis of operands has."""
    first = next(iter(operands.values()))
    return len(first.root if isinstance(first, Moved) else first.codes if isinstance(first, Coded) else looked_at(first))


def _are_same(some: Results, others: Results) -> bool:
    """Tell whether results are the same, bit for bit but for the kind of a NaN."""
    pairs = zip(map(looked_at, some), map(looked_at, others), strict=True)
    return all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in pairs)
