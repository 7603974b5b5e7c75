"""Maker of shortcuts: which copies and calls give what an offload's tape gives, from the origins of what its calls read."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ..lang.digits import digits_of, separated
from ..lang.formats import Format
from ..lang.named import Data
from ..lang.placed import split
from ..lang.tape import Ran
from .fusion import Fused, Fusion
from .provenance import CONSTANT, Found, NoShortcut, Origins, Source, digest_of, is_from, looked_at_in, sources_in
from .steps import PAGE, Box, Digits, Filling, Move, Part, Step, Tiles, View
from .window import Layout, Window, window

MOST_PIECES = 64
LONG_RUN = 64  # elements: shorter ones between are filled faster with all others


class Maker:
    """Makes the steps of some tiles from where everything comes from."""

    def __init__(self, found: Found, numbers: Mapping[int, int], formats: Mapping[str, Format]) -> None:
        """Take the origins of all that is computed, the places of calls among those of the offload, and its formats."""
        self.found, self.numbers, self.formats = found, numbers, formats
        self.size = 0
        self.same: dict[int, int] = {}  # calls that compute what an earlier one has
        self.place: dict[int, int] = {}  # of results in the scratch
        self.known: dict[Any, int] = {}
        self.layouts: dict[Any, Layout] = {}
        self.windows: dict[int, Window] = {}
        self.areas: dict[tuple[int, int], int] = {}  # of reads of several results, each whole: where they lie

    def made(self) -> Tiles:
        """Return the steps."""
        used = self._used()
        for n in used:
            self._look(n)
        for n in used:
            for k, o in self.found.reads[n].items():
                self._join(n, k, o)
        steps: list[Step | Filling] = []
        fused, self.gone = Fusion(self.found, used, self.windows, self.formats).groups()
        firsts = {f.tails[0].call: f for f in fused}
        alike = Counter(_kind(self.found.calls[n], self.found.reads[n]) for n in used)
        for n in used:
            call, reads = self.found.calls[n], self.found.reads[n]
            if n in self.zeros or (n in self.gone and n not in firsts):
                continue
            for o in reads.values():
                self._unaliased(o)
            if n in firsts:
                steps.append(self._filling(firsts[n]))
                continue
            is_alone = alike[_kind(call, reads)] == 1
            earlier = n if is_alone else self.known.setdefault((_kind(call, reads), _contents(reads)), n)
            if earlier != n and n not in self.place:
                self.same[n] = earlier
            else:
                steps.append(self._through(n) if n in self.windows else self._step(n, call, reads))
        results = {}
        for name, o in self.found.results.items():
            self._unaliased(o)
            results[name] = self._result(o, self.found.shapes[name], self.found.corners[name])
        return Tiles(steps, results, self.size)

    def _used(self) -> list[int]:
        """Return the calls that results depend on."""
        used: set[int] = set()
        left = [*self.found.results.values()]
        while left:
            o = left.pop()
            for s in sources_in(o, self.found.sources):
                if isinstance(s.which, int) and s.which not in used:
                    used.add(s.which)
                    if not _is_zero(self.found.calls[s.which]):
                        left.extend(self.found.reads[s.which].values())
        self.zeros = {n for n in used if _is_zero(self.found.calls[n])}
        return sorted(used)

    def _join(self, n: int, k: int, o: Origins) -> None:
        """Give results that one call reads, each whole and one after the other, places side by side."""
        parts = [] if o.chain else _whole_parts(o, self.found.sources)
        if len(parts) < 2 or any(s.which in self.place or s.dtype != o.dtype for _, s in parts):
            return
        self.areas[n, k] = area = self._room(sum(s.size for _, s in parts) * o.dtype.itemsize)
        for at, s in parts:
            assert isinstance(s.which, int)
            self.place[s.which] = area + at * o.dtype.itemsize

    def _look(self, n: int) -> None:
        """Find the window that a sum of products reads."""
        call, reads = self.found.calls[n], self.found.reads[n]
        if call.fold is None or not call.fold.width or len(reads) != 1 or n in self.zeros:
            return
        (o,) = reads.values()
        every, some, *_ = looked_at_in(call)
        if o.numbers.size != every.size + some.size:
            return  # all of its elements are numbered
        w = self.windows[n] = window(call, o, self._source(o))
        self.layouts.setdefault(w.key, Layout()).windows.append(w)

    def _through(self, n: int) -> Step:
        """Return the step of a sum of products that reads windows."""
        call, layout = self._checked(n)
        fill, moves = self._ready(layout)
        return Step(fill, moves, call, -1, (self._placed(n, call), layout.place))

    def _filling(self, fused: Fused) -> Filling:
        """Return the step of sums of products whose words become floats of a result."""
        for t in fused.tails:
            _, layout = self._checked(t.call)
        fill, moves = self._ready(layout)
        return Filling(fill, moves, fused.call(layout), layout.place, fused.tails[0].result)

    def _checked(self, n: int) -> tuple[Ran, Layout]:
        """Return a sum of products over a window, which gives what the recorded one gives."""
        w = self.windows[n]
        layout = self.layouts[w.key]
        call = w.over(layout)
        for seed, made in enumerate(self.found.made):
            if _tried(call, layout, w, w.source.random(seed)) != made[n]:
                raise NoShortcut("a sum over windows is another one")
        return call, layout

    def _ready(self, layout: Layout) -> tuple[tuple[tuple[View, int], ...], tuple[Move, ...]]:
        """Return the copies into a layout, where it is read for the first time."""
        fill: list[tuple[View, int]] = []
        moves: list[Move] = []
        if not layout.moved:
            layout.moved, layout.place = True, self._room(2 * layout.size)
            self._laid(layout, fill, moves)
        return tuple(fill), tuple(moves)

    def _laid(self, layout: Layout, fill: list[tuple[View, int]], moves: list[Move]) -> None:
        """Plan the copy of a source into a layout."""
        w, box = layout.windows[0], layout.box
        s, dims = self._computed(w.source), tuple(b.stop - b.start for b in box)
        if math.prod(dims) < layout.size:
            fill.append((View(layout.place, np.dtype(np.int16), (layout.size,), (2,)), 0))
        first = sum((b.start - int(a)) * int(t) for b, a, t in zip(box, layout.low, layout.strides, strict=True))
        target = View(layout.place + 2 * first, np.dtype(np.int16), dims, tuple(2 * int(t) for t in layout.strides))
        whole = tuple(slice(0, n) for n in s.shape)
        source = s.which if isinstance(s.which, str) else self._whole(s, whole, w.digits, box)
        moves.append(Move(source, whole, w.digits, target, box, w.chain))

    def _unaliased(self, o: Origins) -> None:
        """Take the results of a call that computes what an earlier one has from there."""
        for later, earlier in self.same.items():
            a, b = self._result_of(later), self._result_of(earlier)
            here = (o.numbers >= a.first) & (o.numbers < a.first + a.size)
            o.numbers[here] += b.first - a.first

    def _computed(self, s: Source) -> Source:
        """Return a source, or what an earlier call gives that computes the same."""
        return self._result_of(self.same[s.which]) if isinstance(s.which, int) and s.which in self.same else s

    def _result_of(self, call: int) -> Source:
        return next(s for s in self.found.sources if s.which == call)

    def _step(self, n: int, call: Ran, reads: Mapping[int, Origins]) -> Step:
        fill: list[tuple[View, int]] = []
        moves: list[Move] = []
        places: list[int | Data | None] = [None] * (1 + len(call.reads))
        for k, o in reads.items():
            if (o.numbers == CONSTANT).all():
                call, places[1 + k] = _started(call, k, o.constants)
                continue
            for z in (z for z in sorted(self.zeros) if is_from(o, self._result_of(z))):
                size = self.found.calls[z].out.nbytes
                fill.append((View(self._placed(z, self.found.calls[z]), np.dtype(np.uint8), (size,), (1,)), 0))
            area = self.areas.get((n, k))
            place = self._direct(o) if area is None else area
            places[1 + k] = self._copied(o, fill, moves) if place is None else place
        places[0] = self._placed(n, call)
        return Step(tuple(fill), tuple(moves), call, self.numbers.get(id(call), -1), tuple(places))

    def _placed(self, n: int, call: Ran) -> int:
        """Return where a result lies."""
        if n not in self.place:
            self.place[n] = self._room(call.out.nbytes)
        return self.place[n]

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
        if o.chain:
            return None
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
            fill.extend((view, int(rest[0])) for view in _around(o.numbers == CONSTANT, place, o.dtype))
        target = View(place + first * size, o.dtype, dims, tuple(size * n for n in strides))
        moves.append(Move(s.which if isinstance(s.which, str) else self._whole(s, box, digits), box, digits, target, (), o.chain))
        return place

    def _whole(self, s: Source, box: Box, digits: Digits, inner: Box = ()) -> View:
        """Return a box of the result of a call, its axes split into digits."""
        assert isinstance(s.which, int)
        whole = np.empty(s.shape, s.dtype)
        found = split(whole[box], 0, digits)[inner]
        return View(self.place[s.which] + whole[box].ctypes.data - whole.ctypes.data, s.dtype, found.shape, found.strides)

    def _result(self, o: Origins, shape: tuple[int, ...], corner: tuple[int, ...]) -> list[Part]:
        numbers, parts = o.numbers.reshape(shape), []
        if (numbers == CONSTANT).any():
            raise NoShortcut("a result is not what was computed last")
        for s in self.found.sources:
            here = (numbers >= s.first) & (numbers < s.first + s.size)
            if s.which in self.gone or not here.any():
                continue
            box = _box(here)
            if isinstance(s.which, str) or s.which in self.zeros or not here[box].all():
                raise NoShortcut("a result is not what was computed last, or lies in odd parts")
            for piece in _regular(numbers[box], box):
                dims, strides, first, digits = _strided(numbers[piece].astype(np.int64) - s.first)
                view = View(self.place[s.which] + first * s.dtype.itemsize, s.dtype, dims, tuple(s.dtype.itemsize * n for n in strides))
                whole = tuple(slice(at + p.start, at + p.stop) for at, p in zip(corner, piece, strict=True))
                parts.append(Part(whole, digits, view, o.chain))
        return parts


def _is_zero(call: Ran) -> bool:
    """Tell whether a call is a sum of products by zeros."""
    return call.fold is not None and call.fold.width > 0 and not call.fold.columns.any()


def _started(call: Ran, k: int, contents: Data) -> tuple[Ran, Data]:
    """Return a call for contents of a read that do not change: a fold whose rows all start alike starts them at those of one."""
    if call.started is None or call.started.read != k:
        return call, contents
    rows = contents.reshape(-1, call.started.row)
    return (call.started.alike, rows[0].copy()) if (rows == rows[0]).all() else (call, contents)


def _whole_parts(o: Origins, sources: list[Source]) -> list[tuple[int, Source]]:
    """Return where whole results lie one after the other in what a call reads, the last one up to anywhere; nothing else."""
    found, at, by = [], 0, {s.first: s for s in sources if isinstance(s.which, int)}
    while at < len(o.numbers):
        s = by.get(int(o.numbers[at]))
        part = o.numbers[at : at + s.size] if s is not None else o.numbers[:0]
        if s is None or not np.array_equal(part, np.arange(s.first, s.first + len(part))):
            return []
        found.append((at, s))
        at += s.size
    return found


def _tried(call: Ran, layout: Layout, w: Window, given: Data) -> bytes:
    """Return the digest of what a sum over windows gives for contents of its source."""
    memory, out = np.zeros(layout.size, np.int16), np.zeros_like(call.out)
    box = layout.box
    first = sum((b.start - int(a)) * int(t) for b, a, t in zip(box, layout.low, layout.strides, strict=True))
    target = as_strided(memory[first:], [b.stop - b.start for b in box], [2 * int(t) for t in layout.strides])
    target[...] = w.chain(given).reshape(w.shape)[box]
    call.bind([out.ctypes.data, memory.ctypes.data])()
    return digest_of(out)


def _regular(places: Data, box: Box) -> list[Box]:
    """Return the boxes into which a box falls so that each axis has digits, such as whole vectors and what is left of the last."""
    found = separated(places.astype(np.int64))
    if found is None:
        raise NoShortcut("codes do not lie in a regular order")
    ranges = [_ranges(s, b.start) for s, b in zip(found[1], box, strict=True)]
    if math.prod(map(len, ranges)) > MOST_PIECES:
        raise NoShortcut("codes do not lie in a regular order")
    return [tuple(piece) for piece in itertools.product(*ranges)]


def _around(marked: Data, place: int, dtype: np.dtype[Any]) -> list[View]:
    """Return views of the marked elements, runs of one length by another; of all elements where it is a few or no regular runs."""
    size, whole = dtype.itemsize, [View(place, dtype, (marked.size,), (dtype.itemsize,))]
    edges = np.flatnonzero(np.diff(marked.astype(np.int8), prepend=0, append=0))
    starts, lengths = edges[::2], np.diff(edges)[::2]
    if len(starts) * LONG_RUN > marked.size:
        return whole
    found: list[View] = []
    for n in np.unique(lengths):
        at = starts[lengths == n]
        digits = digits_of(at[None])
        if digits is None or len(found) == MOST_PIECES:
            return whole
        steps = [int(at[math.prod(digits[k + 1 :]) % len(at)] - at[0]) * size for k in range(len(digits))]
        found.append(View(place + int(at[0]) * size, dtype, (*digits, int(n)), (*steps, size)))
    return found


def _ranges(steps: Data, start: int) -> list[slice]:
    if len(steps) < 2 or digits_of(steps[None]) is not None:
        return [slice(start, start + len(steps))]
    apart = np.diff(steps)
    ends = np.append(np.flatnonzero(apart != apart[0]) + 1, len(steps))
    kinds, times = np.unique(apart, return_counts=True)
    is_cut_off = len(ends) > 1 and ends[-1] - ends[-2] < ends[0]
    cut = int(ends[-2] if is_cut_off else np.argmax(apart == kinds[np.argmin(times)]) + 1)
    return _ranges(steps[:cut], start) + _ranges(steps[cut:], start + cut)


def _box(here: Data) -> Box:
    """Return the smallest box around the elements that are marked."""
    ends = []
    for n in range(here.ndim):
        along = np.flatnonzero(here.any(axis=tuple(m for m in range(here.ndim) if m != n)))
        ends.append(slice(int(along[0]), int(along[-1]) + 1))
    return tuple(ends)


def _kind(call: Ran, reads: Mapping[int, Origins]) -> Any:
    """Return what a call computes, and what is made of which operands before."""
    fixed = tuple(r.address for k, r in enumerate(call.reads) if k not in reads)
    return call.key, tuple(reads), fixed, tuple(o.chain for o in reads.values())


def _contents(reads: Mapping[int, Origins]) -> bytes:
    """Return a digest of where operands come from."""
    found = blake2b()
    for o in reads.values():
        found.update(o.numbers.tobytes())
        found.update(o.constants[o.numbers == CONSTANT].tobytes())
    return found.digest()


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
