"""Shortcuts: what a recorded offload computes with its codes, without the moves between.

Where a tape moves codes through memories and buffers unchanged, one copy takes them from where they are to where the next
computation reads them. What computes is the machine code of the tape, on memory of the shortcut.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ..compile.execute import Prepared, Statistics, ends_of, largest_of, operand_codes, range_of, result_dtype, saturated
from ..compile.moves import Move as Moving
from ..compile.moves import Moved, looked_at
from ..compile.plain import laid_out
from ..lang.codes import encoded_into, put_values
from ..lang.convert import lay
from ..lang.formats import Fixed, Format, Int
from ..lang.named import Data
from ..lang.placed import split
from ..lang.recycled import recycled
from ..lang.sums import seen_in, seen_nothing
from ..lang.tape import Diverged
from ..target import TapedDevice
from .affine import AffineShortcut, affine
from .maker import Maker
from .provenance import Found, NoShortcut, Slices, TooLarge, provenance
from .steps import Bound, Filling, Move, Part, Scratch, Step, Tiles, bound

Ends = tuple[float, float]
NOTHING: Ends = (np.inf, -np.inf)


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
        self, prepared: Prepared, operands: Mapping[str, Data | Moved], *, is_loose: bool = False
    ) -> tuple[tuple[Data, ...], Statistics]:  # fmt: skip
        """Return the results and what was seen, as `Prepared.run` does on a device; where `is_loose`, axes lie as the device has them."""
        self._bind()
        formats = prepared.offload.formats
        codes: dict[str, Data] = {}
        ends = {n: range_of([ends_of(x)]) for n, x in operands.items()}
        given = {n: _root(x) if n in self.roots else looked_at(x) for n, x in operands.items()}
        totals = {n: self._room(n, formats[n], is_loose=is_loose) for n in self.shapes}
        floats, taken = {n: seen_nothing() for n in self.shapes}, dict.fromkeys(self.shapes, NOTHING)
        for tiles, steps, results in zip(self.tiles, self.steps, self.results, strict=True):
            for step, now in zip(tiles.steps, steps, strict=True):
                for part, value in now.fill:
                    part.fill(value)
                for m, target, source in now.moves:
                    self._moved(m, target, source, given, codes, formats, ends)
                call = now.call
                if isinstance(step, Filling):
                    call = step.call.bind(self.base + step.place, totals[step.result].ctypes.data, floats[step.result])
                assert call is not None
                call()
            for name, parts in results.items():
                taken[name] = _wider(taken[name], _take(parts, formats[name], totals[name]))
        seen = Statistics(range_in=(min(e[0] for e in ends.values()), max(e[1] for e in ends.values())))
        for name, total in totals.items():
            if any(t.results[name] for t in self.tiles):
                seen.merge(_seen_of(total, formats[name], taken[name]))
            else:
                low, high, count = seen_in(floats[name])
                seen.merge(Statistics(total.size, count, range_out=(low, high)))
        return tuple(totals.values()), seen

    def _room(self, name: str, f: Format, *, is_loose: bool) -> Data:
        """Return an array for a result."""
        shape, kind = self.shapes[name], result_dtype(f)
        is_filled = any(isinstance(s, Filling) and s.result == name for t in self.tiles for s in t.steps)
        return recycled(shape, kind) if is_filled or not is_loose else laid_out(shape, self.tiles[0].results[name][0].steps, kind)

    def _moved(
        self, m: Move, target: Data, source: Data | None, operands: Mapping[str, Data], codes: dict[str, Data],
        formats: Mapping[str, Format], ends: Mapping[str, Ends],
    ) -> None:  # fmt: skip
        after = m.chain.conversion() if m.chain else None
        if source is None:
            assert isinstance(m.source, str)
            x = operands[m.source]
            if m.source not in codes and encoded_into(formats[m.source], _part(x, m), target, ends[m.source], after):
                return
            if m.source not in codes:
                codes[m.source] = np.ascontiguousarray(operand_codes(formats[m.source], x))
            source = _part(codes[m.source], m)
        if after is None:
            lay(target, source)
        else:
            after(target, source)

    def _bind(self) -> None:
        """Prepare steps and results for the memory that there is now."""
        self.scratch.at_least(self.size)
        if self.memory is not self.scratch.data:
            self.memory, self.base = self.scratch.data, self.scratch.data.ctypes.data + self.scratch.start
            self.steps = [[bound(s, self.scratch) for s in t.steps] for t in self.tiles]
            self.results = [{n: [(p, p.view.of(self.scratch)) for p in parts] for n, parts in t.results.items()} for t in self.tiles]


def _take(parts: Sequence[tuple[Part, Data]], f: Format, total: Data) -> Ends:
    """Set parts of a result from their codes; return its least and its largest element there."""
    ends = NOTHING
    for p, codes in parts:
        target = split(total[p.box], 0, p.digits)
        if isinstance(f, Int):
            target[...] = p.chain(codes)
        elif p.chain:
            put_values(f, codes, target, p.chain.conversion(), p.chain.kind)
        else:
            put_values(f, codes, target)
        if isinstance(f, Fixed) and not p.chain:  # codes have the order of values, in half as many bytes
            low, high = (float(np.float32(n * 2.0**-f.fraction)) for n in range_of([codes]))
        else:
            low, high = range_of([target])
        ends = _wider(ends, (low, high))
    return ends


def _wider(one: Ends, other: Ends) -> Ends:
    return min(one[0], other[0]), max(one[1], other[1])


def _seen_of(total: Data, f: Format, ends: Ends) -> Statistics:
    found = Statistics(total.size, range_out=ends)
    if max(abs(n) for n in ends) >= largest_of(f):
        found.saturated = saturated(total, f)
    return found


def _part(x: Data, m: Move) -> Data:
    return split(x[m.box], 0, m.digits)[m.inner]


def _root(x: Data | Moved) -> Data:
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
