"""Shortcuts: what a recorded offload computes with its codes, without the moves between.

Where a tape moves codes through memories and buffers unchanged, one copy takes them from where they are to where the next
computation reads them. What computes is the machine code of the tape, on memory of the shortcut.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ..compile.coded import Coded, Ended, Ends, Operand, hull_of, is_coded, looked_at
from ..compile.execute import Prepared, Statistics, ends_of, largest_of, operand_codes, range_of, result_dtype, saturated
from ..compile.moves import Move as Moving
from ..compile.moves import Moved
from ..lang.codes import encoded_into, put_values
from ..lang.convert import Conversion, lay
from ..lang.formats import Fixed, Format, Int
from ..lang.kernels import kernels_in_use
from ..lang.named import Data, storage_dtype
from ..lang.placed import split
from ..lang.recycled import laid_out, recycled
from ..lang.sums import seen_in, seen_nothing
from ..lang.tape import Diverged
from ..target import TapedDevice
from .affine import AffineShortcut, affine
from .maker import Maker
from .provenance import Found, NoShortcut, Slices, TooLarge, provenance
from .steps import Bound, Filling, Move, Part, Scratch, Step, Tiles, bound

NOTHING: Ends = (np.inf, -np.inf)


@dataclass
class _Given:
    """Operands of an offload, their formats and ends, and the codes of those that are encoded as a whole."""

    operands: Mapping[str, Data | Coded]
    formats: Mapping[str, Format]
    ends: Mapping[str, Ends]
    codes: dict[str, Data] = field(default_factory=dict)

    def move(self, m: Move, target: Data, source: Data | None) -> None:
        """Copy codes, or encode values, to where they are read."""
        after = m.chain.conversion() if m.chain else None
        if source is None:
            assert isinstance(m.source, str)
            if m.source not in self.codes and self._is_encoded(m, m.source, target, after):
                return
            if m.source not in self.codes:
                self.codes[m.source] = np.ascontiguousarray(operand_codes(self.formats[m.source], looked_at(self.operands[m.source])))
            source = _part(self.codes[m.source], m)
        if after is None:
            lay(target, source)
        else:
            after(target, source)

    def _is_encoded(self, m: Move, name: str, target: Data, after: Conversion | None) -> bool:
        """Set codes in one pass; tell whether there is one."""
        x, f = self.operands[name], self.formats[name]
        if isinstance(x, Coded) and x.encoded(f, lambda codes: _part(codes, m), target, after):
            return True
        return encoded_into(f, _part(looked_at(x), m), target, self.ends[name], after)


@dataclass
class _Made:
    """Arrays for results, those that stay as codes, of them the one that the last call writes, and what was seen."""

    totals: Mapping[str, Data]
    kept: frozenset[str]
    whole: str
    floats: dict[str, Data] = field(default_factory=dict)  # by calls that set results themselves
    ends: dict[str, Ends] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.floats.update({n: seen_nothing() for n in self.totals})
        self.ends.update(dict.fromkeys(self.totals, NOTHING))

    def place(self, name: str) -> int:
        """Return the address of a result."""
        return int(self.totals[name].ctypes.data)

    def take(self, name: str, parts: Sequence[tuple[Part, Data]], f: Format) -> None:
        """Set parts of a result."""
        total = self.totals[name]
        ends = _ends(total, total, f) if name == self.whole else _take(parts, f, total, is_kept=name in self.kept)
        self.ends[name] = hull_of([self.ends[name], ends])


@dataclass
class Shortcut:
    """An offload as copies and calls, some of its tiles after the other in the same scratch."""

    tiles: list[Tiles]
    shapes: dict[str, tuple[int, ...]]
    size: int
    scratch: Scratch
    events: int
    roots: frozenset[str] = frozenset()  # operands that are given as what they are moved from
    memory: Data | None = None  # of the scratch that steps are bound to
    base: int = 0  # its address
    steps: list[list[Bound]] = field(default_factory=list)
    results: list[dict[str, list[tuple[Part, Data]]]] = field(default_factory=list)  # and their codes
    kept: frozenset[str] | None = None  # results that may stay as codes, once somebody asked
    whole: str | None = None  # of these the one that is what the last call writes

    def on(self, device: TapedDevice, start: int) -> Shortcut:
        """Return the same shortcut for another tape of the same batch size, whose events start there."""
        calls = device.calls(start, self.events)

        def of(s: Step | Filling) -> Step | Filling:
            return s if isinstance(s, Filling) or s.number < 0 else replace(s, call=calls[s.number])

        tiles = [replace(t, steps=list(map(of, t.steps))) for t in self.tiles]
        return Shortcut(tiles, self.shapes, self.size, self.scratch, self.events, self.roots)

    def beside(self, scratch: Scratch) -> Shortcut:
        """Return the same shortcut for another thread that plays the same recording: only what lies in the scratch is its own."""
        return Shortcut(self.tiles, self.shapes, self.size, scratch, self.events, self.roots)

    def run(
        self, prepared: Prepared, operands: Mapping[str, Operand], *, is_loose: bool = False
    ) -> tuple[tuple[Operand, ...], Statistics]:  # fmt: skip
        """Return the results and what was seen, as `Prepared.run` does on a device; where `is_loose`, as the device has them."""
        self._bind()
        formats = prepared.offload.formats
        ends = {n: ends_of(x) for n, x in operands.items()}
        given = {n: _root(x) if n in self.roots else x if isinstance(x, Coded) else looked_at(x) for n, x in operands.items()}
        kept = self._kept(formats) if is_loose else frozenset()
        totals = {n: self._room(n, formats[n], is_loose=is_loose, is_kept=n in kept) for n in self.shapes}
        made = _Made(totals, kept, self._whole() if kept else "")
        self._play(_Given(given, formats, ends), made)
        seen = Statistics(range_in=hull_of(ends.values()))
        for name, total in totals.items():
            if any(t.results[name] for t in self.tiles):
                seen.merge(_seen_of(total, formats[name], made.ends[name], is_kept=name in kept))
            else:
                low, high, count = seen_in(made.floats[name])
                made.ends[name] = low, high
                seen.merge(Statistics(total.size, count, range_out=(low, high)))
        if not is_loose:
            return tuple(totals.values()), seen
        return tuple(_held(x, formats[n], made.ends[n], is_kept=n in kept) for n, x in totals.items()), seen

    def _play(self, given: _Given, made: _Made) -> None:
        """Make all copies and calls, and set results."""
        for tiles, steps, results in zip(self.tiles, self.steps, self.results, strict=True):
            for step, now in zip(tiles.steps, steps, strict=True):
                for part, value in now.fill:
                    part.fill(value)
                for m, target, source in now.moves:
                    given.move(m, target, source)
                call = now.call
                if isinstance(step, Filling):
                    call = step.call.bind(self.base + step.place, made.place(step.result), made.floats[step.result])
                elif made.whole and step is tiles.steps[-1]:
                    call = step.call.bind([made.place(made.whole), *step.addresses(self.base)[1:]])
                assert call is not None
                call()
            for name, parts in results.items():
                made.take(name, parts, given.formats[name])

    def _kept(self, formats: Mapping[str, Format]) -> frozenset[str]:
        """Return the results that stay as codes where axes lie as the device has them: those that are codes as a whole."""
        if self.kept is None:
            self.kept = frozenset(n for n in self.shapes if self._is_kept(n, formats[n]))
        return self.kept if kernels_in_use() is not None else frozenset()

    def _is_kept(self, name: str, f: Format) -> bool:
        parts = [p for t in self.tiles for p in t.results[name]]
        return bool(parts) and is_coded(f) and all(p.view.dtype == storage_dtype(f.codes) and not p.chain for p in parts)

    def _whole(self) -> str:
        """Return the result that is what the last call writes, or no name."""
        if self.whole is None:
            names = [n for n in self.kept or () if len(self.tiles) == 1 and self.tiles[0].is_whole(n, math.prod(self.shapes[n]))]
            self.whole = names[0] if names else ""
        return self.whole

    def _room(self, name: str, f: Format, *, is_loose: bool, is_kept: bool) -> Data:
        """Return an array for a result."""
        shape, kind = self.shapes[name], storage_dtype(f.codes) if is_kept else result_dtype(f)
        is_filled = any(isinstance(s, Filling) and s.result == name for t in self.tiles for s in t.steps)
        return recycled(shape, kind) if is_filled or not is_loose else laid_out(shape, self.tiles[0].results[name][0].steps, kind)

    def _bind(self) -> None:
        """Prepare steps and results for the memory that there is now."""
        self.scratch.at_least(self.size)
        if self.memory is not self.scratch.data:
            self.memory, self.base = self.scratch.data, self.scratch.data.ctypes.data + self.scratch.start
            self.steps = [[bound(s, self.scratch) for s in t.steps] for t in self.tiles]
            self.results = [{n: [(p, p.view.of(self.scratch)) for p in parts] for n, parts in t.results.items()} for t in self.tiles]


def _take(parts: Sequence[tuple[Part, Data]], f: Format, total: Data, *, is_kept: bool) -> Ends:
    """Set parts of a result from their codes, or to them; return its least and its largest element there."""
    ends = NOTHING
    for p, codes in parts:
        target = split(total[p.box], 0, p.digits)
        if is_kept:
            lay(target, codes)
        elif isinstance(f, Int):
            target[...] = p.chain(codes)
        elif p.chain:
            put_values(f, codes, target, p.chain.conversion(), p.chain.kind)
        else:
            put_values(f, codes, target)
        ends = hull_of([ends, range_of([target]) if p.chain else _ends(codes, target, f)])
    return ends


def _ends(codes: Data, values: Data, f: Format) -> Ends:
    """Return the least and the largest value: of fixed point, whose codes have the order of values, from half as many bytes."""
    if not isinstance(f, Fixed):
        return range_of([values])
    low, high = range_of([codes])
    return float(np.float32(low * 2.0**-f.fraction)), float(np.float32(high * 2.0**-f.fraction))


def _seen_of(total: Data, f: Format, ends: Ends, *, is_kept: bool) -> Statistics:
    found = Statistics(total.size, range_out=ends)
    if max(abs(n) for n in ends) < largest_of(f):
        return found
    largest = f.codes[1] or 0
    found.saturated = int(np.count_nonzero(total >= largest)) + int(np.count_nonzero(total <= -largest)) if is_kept else saturated(total, f)
    return found


def _held(total: Data, f: Format, ends: Ends, *, is_kept: bool) -> Operand:
    """Return a result with what is known of it."""
    if is_kept:
        assert isinstance(f, Fixed)
        return Coded(total, f, ends)
    return total if isinstance(f, Int) else Ended(total, ends)


def _part(x: Data, m: Move) -> Data:
    return split(x[m.box], 0, m.digits)[m.inner]


def _root(x: Operand) -> Data:
    if not isinstance(x, Moved):
        raise Diverged
    return x.root


def shortcut(
    prepared: Prepared, device: TapedDevice, codes: Mapping[str, Data], moves: Mapping[str, tuple[Moving, int]]
) -> Shortcut | AffineShortcut:  # fmt: skip
    """Return an offload without its moves, for the device's events from where it stands; NoShortcut why not.

    Only shapes and types of `codes` matter; operands in `moves` are given as their roots, with the code of zero.
    """
    start, scratch = device.at, Scratch()

    def direct(found: Found) -> AffineShortcut | None:
        return affine(found, prepared, device.at - start, scratch, frozenset(moves))

    def found(groups: Sequence[Sequence[Slices]]) -> Shortcut | AffineShortcut:
        device.at = start
        tiles: list[Tiles] = []
        for group in groups:
            made = _tiles(prepared, device, start, codes, moves, group, direct if len(groups) == 1 else None)
            if isinstance(made, AffineShortcut):
                return made
            tiles.append(made)
        axes, sizes = prepared.offload.mapping.axes, prepared.offload.tiling.sizes
        samples = len(next(iter(codes.values())))
        shapes = {n: (samples, *(sizes[d] for d in axes.of[n])) for n in axes.results}
        return Shortcut(tiles, shapes, max(t.size for t in tiles), scratch, device.at - start, frozenset(moves))

    every = list(prepared.offload.tiling.slices())
    try:
        return found([every])
    except TooLarge:
        if len(every) == 1:
            raise
        return found([[tile] for tile in every])


def _tiles(
    prepared: Prepared, device: TapedDevice, start: int, codes: Mapping[str, Data], moves: Mapping[str, tuple[Moving, int]],
    group: Sequence[Slices], direct: Callable[[Found], AffineShortcut | None] | None,
) -> Tiles | AffineShortcut:  # fmt: skip
    """Return some tiles without their moves, or what `direct` makes of them; `start` is where the offload's events start."""
    here = device.at

    def made(found: Found) -> Tiles | AffineShortcut:
        whole = None if direct is None else direct(found)
        if whole is not None:
            return whole
        numbers = {id(call): n for n, call in enumerate(device.calls(start, device.at - start))}
        return Maker(found, numbers, prepared.offload.formats).made()

    try:
        return made(provenance(prepared, device, codes, moves, group))
    except TooLarge:
        raise
    except NoShortcut as first:  # perhaps all elements of factors say more than some of them
        device.at = here
        try:
            return made(provenance(prepared, device, codes, moves, group, sampled=False))
        except NoShortcut:
            raise first from None
