"""Shortcuts: what a recorded offload computes with its codes, without the moves between.

Where a tape moves codes through memories and buffers unchanged, one copy takes them from where they are to where the next
computation reads them. What computes is the machine code of the tape, on memory of the shortcut.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any

import numpy as np

from ..compile.execute import Prepared, Statistics, ends_of, moved_codes, range_of, result_dtype, saturated
from ..compile.moves import Moved
from ..compile.plain import laid_out
from ..lang.codes import encoded_into, put_values
from ..lang.convert import lay
from ..lang.digits import digits_of, separated
from ..lang.formats import Format, Int
from ..lang.named import Data
from ..lang.placed import split
from ..lang.tape import Call, Ran
from ..target import TapedDevice
from .provenance import CONSTANT, Found, NoShortcut, Origins, Source, provenance

PAGE = 64
Digits = list[list[int]]
Ends = tuple[float, float]
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


@dataclass(frozen=True)
class Part:
    """A box of a result, its axes split into digits, and where its codes lie."""

    box: Box
    digits: Digits
    view: View

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
    number: int  # of the call among those of the offload's events
    places: tuple[int | Data | None, ...]

    def bind(self, base: int) -> Call:
        """Return the call for a scratch at an address."""
        usual = [self.call.out.ctypes.data, *(r.address + r.offset for r in self.call.reads)]
        offsets = [0, *(r.offset for r in self.call.reads)]
        return self.call.bind([_address(p, base, at, n) for p, at, n in zip(self.places, usual, offsets, strict=True)])


def _address(place: int | Data | None, base: int, usual: int, offset: int) -> int:
    if place is None:
        return usual
    return offset + (base + place if isinstance(place, int) else int(place.ctypes.data))


@dataclass
class Shortcut:
    """An offload as copies and calls; `results` are views of the scratch with the axes of each result split into digits."""

    steps: list[Step]
    results: dict[str, list[Part]]
    shapes: dict[str, tuple[int, ...]]
    size: int
    scratch: Scratch
    events: int
    bound: int = 0  # the address of the scratch that calls are made for
    calls: list[Call] = field(default_factory=list)

    def on(self, device: TapedDevice, scratch: Scratch) -> Shortcut:
        """Return the same shortcut for another tape of the same batch size, from where its device stands."""
        calls = _calls(device, device.at, self.events)
        steps = [replace(s, call=calls[s.number]) for s in self.steps]
        return Shortcut(steps, self.results, self.shapes, self.size, scratch, self.events)

    def run(
        self, prepared: Prepared, operands: Mapping[str, Data | Moved], *, is_loose: bool = False
    ) -> tuple[tuple[Data, ...], Statistics]:  # fmt: skip
        """Return the results and what was seen, as `Prepared.run` does on a device; where `is_loose`, axes lie as the device has them."""
        self._bind()
        formats = prepared.offload.formats
        codes: dict[str, Data] = {}
        ends = {n: range_of([ends_of(x)]) for n, x in operands.items()}
        for step, call in zip(self.steps, self.calls, strict=True):
            for view, value in step.fill:
                view.of(self.scratch).fill(value)
            for m in step.moves:
                self._moved(m, operands, codes, formats, ends)
            call()
        found = [self._result(name, formats[name], is_loose=is_loose) for name in self.results]
        seen = Statistics(range_in=(min(e[0] for e in ends.values()), max(e[1] for e in ends.values())), range_out=range_of(found))
        for name, total in zip(self.results, found, strict=True):
            seen.values += total.size
            if max(abs(n) for n in seen.range_out) >= np.float32(formats[name].largest):
                seen.saturated += saturated(total, formats[name])
        return tuple(found), seen

    def _result(self, name: str, f: Format, *, is_loose: bool) -> Data:
        total = np.empty(self.shapes[name], result_dtype(f))
        if is_loose and len(self.results[name]) == 1:
            total = laid_out(total.shape, self.results[name][0].steps, total.dtype)
        for p in self.results[name]:
            target, codes = split(total[p.box], 0, p.digits), p.view.of(self.scratch)
            if isinstance(f, Int):
                target[...] = codes
            else:
                put_values(f, codes, target)
        return total

    def _moved(
        self, m: Move, operands: Mapping[str, Data | Moved], codes: dict[str, Data], formats: Mapping[str, Format], ends: Mapping[str, Ends]
    ) -> None:  # fmt: skip
        target = m.target.of(self.scratch)
        if isinstance(m.source, View):
            lay(target, m.source.of(self.scratch))
            return
        x = operands[m.source]
        plain = x if m.source not in codes and isinstance(x, np.ndarray) else None
        if plain is not None and encoded_into(formats[m.source], split(plain[m.box], 0, m.digits), target, ends[m.source]):
            return
        if m.source not in codes:
            codes[m.source] = np.ascontiguousarray(moved_codes(formats[m.source], x))
        lay(target, split(codes[m.source][m.box], 0, m.digits))

    def _bind(self) -> None:
        """Make the calls for the memory that there is now."""
        self.scratch.at_least(self.size)
        base = self.scratch.data.ctypes.data + self.scratch.start
        if self.bound != base:
            self.bound = base
            self.calls = [s.bind(base) for s in self.steps]


def shortcut(prepared: Prepared, device: TapedDevice, codes: Mapping[str, Data], scratch: Scratch) -> Shortcut:
    """Return an offload without its moves, for the device's events from where it stands; NoShortcut why not."""
    start = device.at
    found = provenance(prepared, device, codes)
    events = device.at - start
    numbers = {id(call): n for n, call in enumerate(_calls(device, start, events))}
    return _Maker(found, numbers).made(scratch, events)


def _calls(device: TapedDevice, start: int, events: int) -> list[Any]:
    return [call for event in device.events[start : start + events] for call in event.calls]


class _Maker:
    def __init__(self, found: Found, numbers: Mapping[int, int]) -> None:
        self.found, self.numbers = found, numbers
        self.size = 0
        self.same: dict[int, int] = {}  # calls that compute what an earlier one has
        self.place: dict[int, int] = {}  # of results in the scratch
        self.known: dict[Any, int] = {}
        self.laid: dict[Any, int] = {}  # where copies lie already

    def made(self, scratch: Scratch, events: int) -> Shortcut:
        steps = []
        for n, (call, reads) in enumerate(zip(self.found.calls, self.found.reads, strict=True)):
            for o in reads.values():
                self._unaliased(o)
            earlier = self.known.setdefault(_key(call, reads), n)
            if earlier != n:
                self.same[n] = earlier
            else:
                steps.append(self._step(n, call, reads))
        results = {}
        for name, o in self.found.results.items():
            self._unaliased(o)
            results[name] = self._result(o, self.found.shapes[name])
        return Shortcut(steps, results, self.found.shapes, self.size, scratch, events)

    def _unaliased(self, o: Origins) -> None:
        """Take the results of a call that computes what an earlier one has from there."""
        for later, earlier in self.same.items():
            a, b = self._result_of(later), self._result_of(earlier)
            here = (o.numbers >= a.first) & (o.numbers < a.first + a.size)
            o.numbers[here] += b.first - a.first

    def _result_of(self, call: int) -> Source:
        return next(s for s in self.found.sources if s.which == call)

    def _step(self, n: int, call: Ran, reads: Mapping[int, Origins]) -> Step:
        fill: list[tuple[View, int]] = []
        moves: list[Move] = []
        places: list[int | Data | None] = [None] * (1 + len(call.reads))
        for k, o in reads.items():
            if (o.numbers == CONSTANT).all():
                places[1 + k] = o.constants
                continue
            place = self._direct(o)
            places[1 + k] = self._copied(o, fill, moves) if place is None else place
        places[0] = self.place[n] = self._room(call.out.nbytes)
        return Step(tuple(fill), tuple(moves), call, self.numbers[id(call)], tuple(places))

    def _room(self, size: int) -> int:
        place, self.size = self.size, self.size + -(-size // PAGE) * PAGE
        return place

    def _source(self, o: Origins) -> Source:
        """Return the only source of some elements."""
        moved = o.numbers[o.numbers != CONSTANT]
        if not moved.size:
            raise NoShortcut("nothing depends on samples")
        low, high = int(moved.min()), int(moved.max())
        found = next((s for s in self.found.sources if s.first <= low < s.first + s.size), None)
        if found is None or high >= found.first + found.size:
            raise NoShortcut("elements of several sources meet")
        return found

    def _direct(self, o: Origins) -> int | None:
        """Return where elements lie already, in the order in which they are read; None where they have to be copied."""
        s = self._source(o)
        first = int(o.numbers[0])
        if isinstance(s.which, str) or first == CONSTANT or s.dtype != o.dtype or int(o.numbers[-1]) - first != len(o.numbers) - 1:
            return None
        if (np.diff(o.numbers) != 1).any():
            return None
        return self.place[s.which] + (first - s.first) * int(s.dtype.itemsize)

    def _copied(self, o: Origins, fill: list[tuple[View, int]], moves: list[Move]) -> int:
        """Plan the copy to where elements are read, and the constants around them; return the place."""
        s = self._source(o)
        at = np.flatnonzero(o.numbers != CONSTANT)
        to = np.full(s.size, -1, np.int64)
        to[o.numbers[at] - s.first] = at
        box = _box((to >= 0).reshape(s.shape))
        if math.prod(b.stop - b.start for b in box) != len(at):
            raise NoShortcut("an element is read at several places, or an odd part of them")
        dims, strides, first, digits = _strided(to.reshape(s.shape)[box])
        place, size = self._room(o.numbers.size * o.dtype.itemsize), o.dtype.itemsize
        rest = np.unique(o.constants[o.numbers == CONSTANT])
        if len(rest) > 1:
            raise NoShortcut("constants of several values lie between the codes")
        if len(rest):
            fill.append((View(place, o.dtype, (o.numbers.size,), (size,)), int(rest[0])))
        target = View(place + first * size, o.dtype, dims, tuple(size * n for n in strides))
        moves.append(Move(s.which if isinstance(s.which, str) else self._whole(s, box, digits), box, digits, target))
        return place

    def _whole(self, s: Source, box: Box, digits: Digits) -> View:
        """Return a box of the result of a call, its axes split into digits."""
        assert isinstance(s.which, int)
        whole = np.empty(s.shape, s.dtype)
        found = split(whole[box], 0, digits)
        return View(self.place[s.which] + whole[box].ctypes.data - whole.ctypes.data, s.dtype, found.shape, found.strides)

    def _result(self, o: Origins, shape: tuple[int, ...]) -> list[Part]:
        numbers, parts = o.numbers.reshape(shape), []
        if (numbers == CONSTANT).any():
            raise NoShortcut("a result is not what was computed last")
        for s in self.found.sources:
            here = (numbers >= s.first) & (numbers < s.first + s.size)
            if not here.any():
                continue
            box = _box(here)
            if isinstance(s.which, str) or not here[box].all():
                raise NoShortcut("a result is not what was computed last, or lies in odd parts")
            dims, strides, first, digits = _strided(numbers[box].astype(np.int64) - s.first)
            view = View(self.place[s.which] + first * s.dtype.itemsize, s.dtype, dims, tuple(s.dtype.itemsize * n for n in strides))
            parts.append(Part(box, digits, view))
        return parts


def _box(here: Data) -> Box:
    """Return the smallest box around the elements that are marked."""
    ends = []
    for n in range(here.ndim):
        along = np.flatnonzero(here.any(axis=tuple(m for m in range(here.ndim) if m != n)))
        ends.append(slice(int(along[0]), int(along[-1]) + 1))
    return tuple(ends)


def _key(call: Ran, reads: Mapping[int, Origins]) -> Any:
    """Return what a call computes, and from what."""
    found = blake2b()
    for o in reads.values():
        found.update(o.numbers.tobytes())
        found.update(o.constants[o.numbers == CONSTANT].tobytes())
    fixed = tuple(r.address for k, r in enumerate(call.reads) if k not in reads)
    return call.key, tuple(reads), fixed, found.digest()


def _strided(places: Data) -> tuple[tuple[int, ...], tuple[int, ...], int, Digits]:
    """Return places as extents and strides over digits of the axes, the first one, and the digits."""
    found = separated(places)
    digits = [] if found is None else [digits_of(s[None]) for s in found[1]]
    if found is None or None in digits:
        raise NoShortcut("codes do not lie in a regular order")
    known = [d or [1] for d in digits]
    dims = tuple(m for d in known for m in d)
    strides = tuple(
        int(s[math.prod(d[n + 1 :])]) if m > 1 else 0 for s, d in zip(found[1], known, strict=True) for n, m in enumerate(d)
    )  # fmt: skip
    return dims, strides, found[0], known
