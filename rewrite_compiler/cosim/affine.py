"""Offloads whose results are sums of products and numbers of their columns, in words of 32 bits that formats only scale.

Sums of parts of the products, and what is added to them, are one sum: its order is of no matter modulo 2^32. The operand is
encoded once to where windows read it, and floats are written where the host reads them; nothing lies between.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ..compile.coded import Coded, Ended, Operand, hull_of, looked_at
from ..compile.execute import Prepared, Statistics, ends_of, largest_of, operand_codes, saturated
from ..compile.moves import Moved
from ..lang.codes import encoded_into, put_values
from ..lang.convert import Conversion, lay
from ..lang.formats import Fixed, Format
from ..lang.kernels import kernels_in_use
from ..lang.named import Data
from ..lang.placed import split
from ..lang.recycled import recycled
from ..lang.straight import Code, Op
from ..lang.tape import Diverged, Ran
from .provenance import CONSTANT, Chain, Found, Link, NoShortcut, Origins, Source, digest_of
from .steps import Scratch
from .window import MOST_WIDTH, Layout, Window, window

if TYPE_CHECKING:
    from ..lang.native_affine import Sums

MOST_SCALE = 64  # binary places: floats stay far from the ends of their exponents
ADDITION = (Op("array", (), (0, 0)), Op("array", (), (1, 0)), Op("add", (0, 1)), Op("wrap", (2,), (32, True)))
OFFSET = 128  # is added to bytes with a sign, so that they have none
RAISED = (Op("array", (), (0, 0)), Op("const", (), OFFSET), Op("add", (0, 1)), Op("wrap", (2,), (8, False)))
UNSIGNED = Link(Conversion(RAISED), np.dtype(np.int8), np.dtype(np.uint8))
FOUR = 4
CHECKED = 1 << 12  # words of which the format is asked


@dataclass(frozen=True, eq=False)
class _Sum:
    """What a call gives, for each element of its result: a constant, and one element of the result of each of some folds."""

    constants: Data
    parts: tuple[tuple[int, Data], ...]  # of each fold by number: which element


@dataclass(frozen=True, eq=False)
class Region:
    """Rows and columns of a result: which of each fold's, where a row begins in the result, and what is added to a column."""

    folds: tuple[int, ...]
    rows: tuple[Data, ...]
    columns: tuple[Data, ...]
    starts: Data
    places: Data
    first: int  # where the columns begin


@dataclass(frozen=True, eq=False)
class Laid:
    """The one operand as windows read it: its codes in a box of the scratch, all else one value."""

    name: str
    layout: Layout
    digits: list[list[int]]
    chain: Chain
    kind: Any
    zero: int

    @property
    def size(self) -> int:
        """Bytes of the layout."""
        return int(self.layout.size * self.kind.itemsize)

    @cached_property
    def after(self) -> Conversion | None:
        """What is done to codes."""
        return self.chain.conversion() if self.chain else None

    def within(self, scratch: Scratch) -> tuple[Data, Data | None]:
        """Return where codes go in a scratch, and all of the layout where it has more than them."""
        memory = scratch.data[scratch.start : scratch.start + self.size].view(self.kind)
        is_more = math.prod(b.stop - b.start for b in self.layout.box) < self.layout.size
        return self.layout.view(memory), memory if is_more else None

    def put(self, target: Data, given: Operand, f: Format, ends: tuple[float, float]) -> None:
        """Encode values."""
        if isinstance(given, Coded) and given.encoded(f, self.part, target, self.after):
            return
        x = looked_at(given)
        if not encoded_into(f, self.part(x), target, ends, self.after):
            self.take(target, self.part(operand_codes(f, np.ascontiguousarray(x))))

    def part(self, x: Data) -> Data:
        """Return what is in the box."""
        return split(x, 0, self.digits)[self.layout.box]

    def take(self, target: Data, codes: Data) -> None:
        """Set the box to codes."""
        if self.chain:
            target[...] = self.chain(codes)
        else:
            target[...] = codes


@dataclass
class AffineShortcut:
    """An offload as one encoding and one call a region."""

    laid: Laid
    result: str
    shape: tuple[int, ...]
    order: tuple[int, ...]  # of the axes of the result in memory
    sums: list[tuple[Sums, int]]  # and where their columns begin
    events: int
    scratch: Scratch
    is_root: bool
    steps: Sequence[Any] = field(default=())  # of a recording: none
    bound: tuple[Data, Data, Data | None] | None = None  # memory of the scratch, where codes go in it, and all that is filled before
    base: int = 0  # the address of what is used of it

    @cached_property
    def back(self) -> tuple[int, ...]:
        """Where each axis of the result is among those in memory."""
        return tuple(map(int, np.argsort(self.order)))

    def on(self, device: object, start: int) -> AffineShortcut:
        """Return the same shortcut for another tape of the same batch size, whose events start there."""
        del device, start
        return self

    def beside(self, scratch: Scratch) -> AffineShortcut:
        """Return the same shortcut for another thread."""
        return AffineShortcut(self.laid, self.result, self.shape, self.order, self.sums, self.events, scratch, self.is_root)

    def run(
        self, prepared: Prepared, operands: Mapping[str, Operand], *, is_loose: bool = False
    ) -> tuple[tuple[Operand, ...], Statistics]:  # fmt: skip
        """Return the result and what was seen, as `Prepared.run` does on a device; where `is_loose`, axes lie as the sums leave them."""
        ((name, x),) = operands.items()
        f, laid = prepared.offload.formats, self.laid
        ends = ends_of(x)
        if self.is_root and not isinstance(x, Moved):
            raise Diverged
        self.scratch.at_least(laid.size)
        if self.bound is None or self.bound[0] is not self.scratch.data:
            self.bound = self.scratch.data, *laid.within(self.scratch)
            self.base = self.scratch.data.ctypes.data + self.scratch.start
        _, target, around = self.bound
        if around is not None:
            around.fill(laid.zero)
        laid.put(target, x.root if self.is_root and isinstance(x, Moved) else x, f[name], ends)
        whole = recycled([self.shape[n] for n in self.order], np.float32)
        place = whole.ctypes.data
        out = hull_of([s(self.base, place + whole.itemsize * first) for s, first in self.sums])
        found = Statistics(values=whole.size, range_in=ends, range_out=out)
        if max(map(abs, out)) >= largest_of(f[self.result]):
            found.saturated = saturated(whole, f[self.result])
        loose = whole.transpose(self.back)
        if is_loose:
            return (Ended(loose, out),), found
        total = recycled(self.shape, np.float32)
        lay(total.view(np.int32), loose.view(np.int32))
        return (total,), found


def affine(found: Found, prepared: Prepared, events: int, scratch: Scratch, roots: frozenset[str]) -> AffineShortcut | None:
    """Return an offload as sums of products and numbers of columns; None where it is anything else."""
    names = [s.which for s in found.sources if isinstance(s.which, str)]
    if kernels_in_use() is None or len(found.results) != 1 or len(names) != 1:
        return None
    ((result, o),) = found.results.items()
    from ..lang.native_tiles import is_there

    scale = _scale(prepared.offload.formats[result])
    if not is_there() or scale is None or o.chain:
        return None
    try:
        return _Finder(found, result).made(scale, events, scratch, bool(roots))
    except NoShortcut:
        return None


def _scale(f: Format) -> float | None:
    """Return what words are multiplied by; None where a format does more."""
    if not isinstance(f, Fixed) or f.codes != (-(1 << 31), (1 << 31) - 1) or abs(f.fraction) > MOST_SCALE:
        return None
    words = np.random.default_rng(0).integers(-(1 << 31), 1 << 31, CHECKED, np.int64).astype(np.int32)
    values, scale = np.empty(CHECKED, np.float32), 2.0**-f.fraction
    put_values(f, words, values)
    return scale if np.array_equal(values, words.astype(np.float32) * np.float32(scale)) else None


class _Finder:
    def __init__(self, found: Found, result: str) -> None:
        self.found, self.result = found, result
        self.windows: dict[int, Window] = {}
        self.sums: dict[int, _Sum] = {}

    def made(self, scale: float, events: int, scratch: Scratch, is_root: bool) -> AffineShortcut:
        """Return the shortcut; NoShortcut where the result is no such sum."""
        shape = self.found.shapes[self.result]
        numbers = self.found.results[self.result].numbers.reshape(shape)
        boxes = list(self._boxes(numbers))
        along = {self._axes(numbers[box], s) for s, box in boxes}
        if len(along) != 1 or sum(numbers[box].size for _, box in boxes) != numbers.size:
            raise NoShortcut("a result is not what was computed last")
        ((rows, columns),) = along
        regions = [self._region(numbers, s, box, rows, columns) for s, box in boxes]
        windows = [self.windows[n] for r in regions for n in r.folds]
        if len({w.key for w in windows}) != 1 or not isinstance(windows[0].source.which, str):
            raise NoShortcut("sums read several layouts")
        laid = _laid(windows)
        made = [(self._sums(r, laid, scale), r.first) for r in regions]
        for trial in range(len(self.found.made)):
            self._check(trial, regions, made, laid, scale)
        return AffineShortcut(laid, self.result, shape, (*rows, *columns), made, events, scratch, is_root)

    def _boxes(self, numbers: Data) -> Iterator[tuple[Source, tuple[slice, ...]]]:
        """Yield the sources of the result, and where they are in it."""
        for s in self.found.sources:
            here = (numbers >= s.first) & (numbers < s.first + s.size)
            if not here.any():
                continue
            box = []
            for n in range(here.ndim):
                places = np.flatnonzero(here.any(axis=tuple(m for m in range(here.ndim) if m != n)))
                box.append(slice(int(places[0]), int(places[-1]) + 1))
            if isinstance(s.which, str) or not here[tuple(box)].all():
                raise NoShortcut("a result lies in odd parts")
            yield s, tuple(box)

    def _elements(self, numbers: Data, s: Source) -> tuple[_Sum, Data]:
        """Return the sum that gives a source, and which of its elements these are."""
        assert isinstance(s.which, int)
        return self._sum(s.which), numbers - s.first

    def _axes(self, numbers: Data, s: Source) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the axes of the result along which rows change, and those of columns."""
        total, at = self._elements(numbers, s)
        fold, places = total.parts[0]
        column = places[at] % self.found.calls[fold].out.shape[1]
        moving = tuple(n for n in range(column.ndim) if column.shape[n] > 1 and (np.diff(column, axis=n) != 0).any())
        return tuple(n for n in range(column.ndim) if n not in moving), moving

    def _region(self, numbers: Data, s: Source, box: tuple[slice, ...], rows: Sequence[int], columns: Sequence[int]) -> Region:
        total, at = self._elements(numbers[box], s)
        flat = at.transpose((*rows, *columns)).reshape(math.prod(at.shape[n] for n in rows), -1)
        constants = total.constants[flat]
        pairs = [divmod(places[flat], self.found.calls[fold].out.shape[1]) for fold, places in total.parts]
        if (constants != constants[:1]).any() or any((m != m[:, :1]).any() or (c != c[:1]).any() for m, c in pairs):
            raise NoShortcut("a result's rows and columns are not those of a sum")
        width = math.prod(numbers.shape[n] for n in columns)
        place = [_linear([box[n] for n in axes], [numbers.shape[n] for n in axes]) for axes in (rows, columns)]
        if (np.diff(place[1]) != 1).any():
            raise NoShortcut("columns do not lie side by side")
        folds = tuple(fold for fold, _ in total.parts)
        return Region(
            folds, tuple(m[:, 0] for m, _ in pairs), tuple(c[0] for _, c in pairs), constants[0], width * place[0], int(place[1][0])
        )

    # -- what calls give

    def _sum(self, n: int) -> _Sum:
        if n not in self.sums:
            self.sums[n] = self._leaf(n) if self.found.calls[n].fold is not None else self._added(n)
        return self.sums[n]

    def _leaf(self, n: int) -> _Sum:
        """Return a sum of products as one; NoShortcut where it reads no window."""
        from ..lang.native_fold import Folding

        call, reads = self.found.calls[n], self.found.reads[n]
        if not isinstance(call.fold, Folding) or not call.fold.width or len(reads) != 1 or call.out.dtype != np.int32:
            raise NoShortcut("a fold is no plain sum of products")
        (o,) = reads.values()
        numbers = o.numbers[o.numbers != CONSTANT]
        source = next((s for s in self.found.sources if numbers.size and s.first <= numbers[0] < s.first + s.size), None)
        if source is None or (numbers >= source.first + source.size).any() or (numbers < source.first).any():
            raise NoShortcut("a factor comes from several places")
        self.windows[n] = window(call, o, source)
        return _Sum(np.zeros(call.out.size, np.int32), ((n, np.arange(call.out.size, dtype=np.int32)),))

    def _added(self, n: int) -> _Sum:
        call = self.found.calls[n]
        if call.grid is None or call.out.dtype != np.int32 or not _is_addition(call.grid.code):
            raise NoShortcut("a call is no sum")
        constants, parts = np.zeros(call.out.size, np.int32), list[tuple[int, Data]]()
        for k, operand in enumerate(call.grid.operands):
            o = self.found.reads[n].get(k)
            if o is None:
                constants += operand.astype(np.int32, copy=False).reshape(-1)
                continue
            inner, at = self._operand(o, _places_in(operand, call.reads[k].address))
            constants += inner.constants[at]
            parts += [(fold, places[at]) for fold, places in inner.parts]
        return _Sum(constants, tuple(parts))

    def _operand(self, o: Origins, at: Data) -> tuple[_Sum, Data]:
        numbers = o.numbers[at]
        source = next((s for s in self.found.sources if s.first <= numbers[0] < s.first + s.size), None)
        is_one = source is not None and (numbers >= source.first).all() and (numbers < source.first + source.size).all()
        if source is None or not is_one or isinstance(source.which, str) or o.chain or o.dtype != np.int32:
            raise NoShortcut("what is added comes from several places")
        return self._elements(numbers, source)

    # -- what is computed in their place

    def _sums(self, r: Region, laid: Laid, scale: float) -> Sums:
        """Return the code of a region."""
        from ..lang.native_affine import Affine, Factors, Sums

        windows, size = [self.windows[n] for n in r.folds], laid.kind.itemsize
        width = _width(windows, FOUR if size == 1 else 2)
        read = [w.read(laid.layout, width) for w in windows]
        offsets = [x.rows[m] for x, m in zip(read, r.rows, strict=True)]
        apart = [x - offsets[0] for x in offsets]
        if any((x != x[0]).any() for x in apart):
            raise NoShortcut("rows of several sums do not move together")
        steps = np.concatenate([x.steps + d[0] for x, d in zip(read, apart, strict=True)])
        columns = np.concatenate([x.factors[c] for x, c in zip(read, r.columns, strict=True)], axis=1)
        if len(offsets[0]) and int(offsets[0].max() + steps.max()) >= 1 << 30:
            raise NoShortcut("rows lie too far apart")
        factors = Factors(size * offsets[0], size * steps, columns, r.starts, r.places, laid.zero)
        return Sums(Affine(size == 1, width * size // FOUR, scale), factors)

    def _check(self, trial: int, regions: Sequence[Region], made: Sequence[tuple[Sums, int]], laid: Laid, scale: float) -> None:
        """Compare the results with those of the recorded calls for random codes; NoShortcut where one differs."""
        source = next(s for s in self.found.sources if s.which == laid.name)
        codes = split(source.random(trial), 0, laid.digits)
        whole = np.zeros(self.found.shapes[self.result], np.float32).reshape(-1)
        expected = np.zeros_like(whole)
        memory, words = (np.full(laid.layout.size, zero, kind) for zero, kind in ((laid.zero, laid.kind), (0, np.dtype(np.int16))))
        laid.take(laid.layout.view(memory), codes[laid.layout.box])
        wide = Chain(laid.chain.links[: -1 if laid.kind.itemsize == 1 else None])
        laid.layout.view(words)[...] = wide(codes[laid.layout.box]) if wide else codes[laid.layout.box]
        outs = {n: self._fold(trial, n, laid.layout, words) for r in regions for n in r.folds}
        for r, (sums, first) in zip(regions, made, strict=True):
            sums(memory.ctypes.data, whole.ctypes.data + whole.itemsize * first)
            total = r.starts[None].astype(np.int64)
            for n, m, c in zip(r.folds, r.rows, r.columns, strict=True):
                total = total + outs[n][m[:, None], c[None]]
            value = total.astype(np.uint64).astype(np.uint32).view(np.int32).astype(np.float32) * np.float32(scale)
            expected[r.places[:, None] + first + np.arange(len(r.starts))] = value
        if not np.array_equal(whole, expected):
            raise NoShortcut("a sum over windows is another one")

    def _fold(self, trial: int, n: int, layout: Layout, words: Data) -> Data:
        """Return what a recorded sum of products gives, computed over windows; NoShortcut where that is something else."""
        call: Ran = self.windows[n].over(layout)
        out = np.zeros_like(call.out)
        call.bind([out.ctypes.data, words.ctypes.data])()
        if digest_of(out) != self.found.made[trial][n]:
            raise NoShortcut("a sum over windows is another one")
        return out


def _laid(windows: Sequence[Window]) -> Laid:
    """Return how the operand lies: as bytes where codes and factors are."""
    w, layout = windows[0], Layout(list(windows))
    are_bytes = not w.chain and w.source.dtype == np.int8 and all(_are_bytes(x) for x in windows) and _width(windows, FOUR) > 0
    kind, zero, chain = (np.uint8, OFFSET, Chain((UNSIGNED,))) if are_bytes else (np.int16, 0, w.chain)
    return Laid(str(w.source.which), layout, w.digits, chain, np.dtype(kind), zero)


def _are_bytes(w: Window) -> bool:
    factors = w.call.fold.factors()
    return bool(factors.min(initial=0) >= -OFFSET and factors.max(initial=0) < OFFSET)


def _width(windows: Sequence[Window], unit: int) -> int:
    """Return how many elements side by side are one step of all of these sums; 0 where none are."""
    common = math.gcd(*(w.width for w in windows))
    return max((n for n in range(unit, 2 * MOST_WIDTH + 1, unit) if common % n == 0), default=0)


def _is_addition(code: Code) -> bool:
    return [(op.name, op.args, op.data) for op in code] == [(op.name, op.args, op.data) for op in ADDITION]


def _places_in(view: Data, address: int) -> Data:
    """Return which elements from an address on a view has, one after the other."""
    at = np.full((1,) * view.ndim, (view.ctypes.data - address) // view.itemsize, np.int64)
    for n, stride in enumerate(view.strides):
        at = at + (np.arange(view.shape[n]) * (stride // view.itemsize)).reshape(*(-1 if m == n else 1 for m in range(view.ndim)))
    return at.reshape(-1)


def _linear(box: Sequence[slice], shape: Sequence[int]) -> Data:
    """Return the places of the elements of a box in an array."""
    found = np.zeros(1, np.int64)
    for b, n in zip(box, shape, strict=True):
        found = (found[:, None] * n + np.arange(b.start, b.stop)).reshape(-1)
    return found
