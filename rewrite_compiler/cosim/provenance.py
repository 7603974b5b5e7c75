"""Provenance: from which codes, and from results of which computations, everything comes that a recorded offload computes with.

A tape mostly moves bytes: through registers' layouts, buffers and transports. Here the moves are played on numbers of
elements instead of codes, digit by digit and complemented, so that what arrives says where it came from. The calls that
compute are not played: their results are numbered like codes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from hashlib import blake2b
from typing import Any

import numpy as np

from ..compile.execute import Prepared
from ..compile.moves import Move
from ..lang.convert import Conversion, then
from ..lang.named import Data
from ..lang.straight import REAL
from ..lang.tape import Arena, Call, Ran, Unary, must_hold
from ..target import TapedDevice

LAYING = {"array", "const", "scalar", "shl", "shr", "wrap", "extract", "bitand", "bitor", "bitxor"}
MOVING = LAYING | {"add", "sub", "mul", "div", "mod"}  # by powers of two these move bits, too
CONSTANT = -1
Slices = Mapping[str, slice]
CHUNK, FEW = 1 << 20, 8
TRIALS = 2
MOST, MOST_CALLS = 1 << 24, 256  # elements that are numbered; beyond, looking takes more memory than co-simulation
MOST_WHOLE = 4_000_000  # where all that products read is numbered, too
MOST_CHAINS = 100
SOME_ROWS = 64  # of a factor, the first ones and as many that are spread over all: all of their elements are numbered
MOST_KNOWN = 1 << 12  # calls that are known to move bits or not
_moving: dict[Any, bool] = {}
LOOKED_AT = 1 << 18  # elements of all rows; of a larger factor, fewer of each step


@dataclass(frozen=True, eq=False)
class Link:
    """A function of one element: code with its tables, and the types of what it is given and of what it gives."""

    conversion: Conversion
    given: Any
    kind: Any


@dataclass(frozen=True)
class Chain:
    """Functions of one element, one after the other."""

    links: tuple[Link, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.links)

    @property
    def kind(self) -> Any:
        """The type of the last one's result."""
        return self.links[-1].kind

    def conversion(self) -> Conversion:
        """Return all of them as one."""
        return _joined(self)

    def __call__(self, x: Data) -> Data:
        """Return what they make of elements."""
        for link in self.links:
            found = np.empty(x.shape, link.kind)
            link.conversion(found, np.ascontiguousarray(x, link.given))
            x = found
        return x


IDENTITY = Chain()


@lru_cache(maxsize=1024)
def _joined(chain: Chain) -> Conversion:
    found = chain.links[0].conversion
    for link in chain.links[1:]:
        found = then(found, link.given, link.conversion)
    return found


class NoShortcut(Exception):
    """An offload whose moves cannot be told apart from what it computes."""


class TooLarge(NoShortcut):
    """An offload with more elements, or more calls that compute, than are numbered at once."""


@dataclass(frozen=True)
class Source:
    """What is numbered: an operand's codes by name, or the result of a call by its place among those that compute."""

    which: str | int
    shape: tuple[int, ...]
    dtype: Any
    first: int  # its first number

    @property
    def size(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)

    def digit(self, shift: int, kind: Any, *, is_other: bool) -> Data:
        """Return as contents a digit of its numbers, or its complement."""
        digits = (np.arange(self.first, self.first + self.size, dtype=np.int32) >> shift).astype(kind)
        found = (~digits if is_other else digits).astype(f"u{self.dtype.itemsize}")
        contents: Data = found.view(self.dtype).reshape(self.shape)
        return contents

    def nothing(self) -> Data:
        """Return zeros as contents."""
        return np.zeros(self.shape, self.dtype)

    def random(self, seed: int) -> Data:
        """Return random contents."""
        contents = np.random.default_rng((seed, self.first)).bytes(self.size * self.dtype.itemsize)
        return np.frombuffer(contents, self.dtype).reshape(self.shape)


Contents = Callable[[Source], Data]


@dataclass
class Origins:
    """Where elements come from: their numbers and what was made of them, or CONSTANT and the value that they always have."""

    numbers: Data
    constants: Data
    dtype: Any
    chain: Chain = IDENTITY

    def expected(self, sources: Iterable[Source], contents: Contents) -> Data:
        """Return what arrives where the sources have these contents."""
        sources = list(sources)
        if len(sources) == 1 and sources[0].first <= self.numbers.min():
            taken = np.take(contents(sources[0]).reshape(-1), self.numbers - sources[0].first, mode="clip")
            return self.chain(taken).astype(self.dtype, copy=False)
        found = self.constants.copy()
        for s in sources:
            here = (self.numbers >= s.first) & (self.numbers < s.first + s.size)
            taken = np.take(contents(s).reshape(-1), self.numbers[here] - s.first, mode="clip")
            found[here] = self.chain(taken).astype(self.dtype)
        return found


def sources_in(o: Origins, sources: Sequence[Source]) -> list[Source]:
    """Return the sources that elements come from."""
    low, high = (int(o.numbers.min()), int(o.numbers.max())) if o.numbers.size else (CONSTANT, CONSTANT)
    some = [s for s in sources if s.first <= high and s.first + s.size > low]
    if len(some) <= FEW:
        return [s for s in some if is_from(o, s)]
    firsts, found = [s.first for s in some], np.zeros(len(some) + 1, np.int64)
    for at in range(0, len(o.numbers), CHUNK):
        found += np.bincount(np.searchsorted(firsts, o.numbers[at : at + CHUNK], "right"), minlength=len(found))
    return [s for s, count in zip(some, found[1:], strict=True) if count]


def is_from(o: Origins, s: Source) -> bool:
    """Tell whether an element comes from a source."""
    return bool(((o.numbers >= s.first) & (o.numbers < s.first + s.size)).any())


@dataclass
class Found:
    """The calls that compute, in order, with the origins of what they read that depends on samples; those of the results."""

    calls: list[Ran]
    sources: list[Source]
    reads: list[dict[int, Origins]]  # by call: of its reads, by number; of a sum of products, of some of its elements
    results: dict[str, Origins]
    shapes: dict[str, tuple[int, ...]]
    corners: dict[str, tuple[int, ...]]  # where the results of these tiles begin in those of the offload
    whole: dict[str, tuple[int, ...]]  # the shapes of those
    made: list[list[bytes]] = field(default_factory=list)  # digests of what each sum of products gave for random contents, by seed

    def sources_of(self, o: Origins) -> list[str | int]:
        """Return the sources that elements come from."""
        return [s.which for s in sources_in(o, self.sources)]


@dataclass
class _Seen:
    """What one play of the moves gave."""

    reads: list[dict[int, Data]] = field(default_factory=list)
    results: dict[str, Data] = field(default_factory=dict)
    made: list[bytes] = field(default_factory=list)


def provenance(
    prepared: Prepared, device: TapedDevice, codes: Mapping[str, Data], moves: Mapping[str, tuple[Move, int]], tiles: Sequence[Slices], *,
    sampled: bool = True,
) -> Found:  # fmt: skip
    """Return what the events of some tiles of an offload, from where the device stands, do with operands of these shapes.

    NoShortcut why not.

    Operands in `moves` are given as their roots, with the code of zero. With `sampled`, only some elements of the factors of
    sums of products are numbered.
    """
    return _Probe(prepared, device, codes, moves, tiles, sampled).found()


class _Probe:
    def __init__(
        self, prepared: Prepared, device: TapedDevice, codes: Mapping[str, Data], moves: Mapping[str, tuple[Move, int]],
        tiles: Sequence[Slices], sampled: bool,
    ) -> None:  # fmt: skip
        self.prepared, self.device, self.start, self.moved, self.sampled = prepared, device, device.at, moves, sampled
        self.tiles = tiles
        self.calls: list[Ran] = []
        self.moves: dict[int, bool] = {}
        self.links: dict[Any, Link] = {}
        self.chains: dict[Chain, int] = {IDENTITY: 0}
        self.looks: dict[int, Data] = {}
        self.narrow = False
        self.sources = self._sources(codes)
        self.base = 1 << 8 if self.narrow or any(s.dtype.itemsize == 1 for s in self.sources) else 1 << 16

    def _sources(self, codes: Mapping[str, Data]) -> list[Source]:
        """Number the operands, and the results of the calls that compute: they are met when all is played once."""
        shapes: list[tuple[str | int, Data]] = [*codes.items()]

        def meet(call: Call) -> None:
            if self._is_move(call):
                return
            assert isinstance(call, Ran)
            if call.unary is not None:
                self.narrow = self.narrow or 1 in (call.out.dtype.itemsize, call.unary.source.dtype.itemsize)
                return
            shapes.append((len(self.calls), call.out))
            self.calls.append(call)
            if sum(x.size for _, x in shapes) > (MOST if self.sampled else MOST_WHOLE) or len(self.calls) > MOST_CALLS:
                raise TooLarge("it has too many elements, or too many calls that compute")

        self._driven(codes, meet)
        found, first = [], 0
        for which, x in shapes:
            found.append(Source(which, x.shape, x.dtype, first))
            first += math.prod(x.shape)
        return found

    def _is_move(self, call: Call) -> bool:
        known = self.moves.get(id(call))
        if known is None:
            if isinstance(call, partial) and call.func is must_hold:
                raise NoShortcut("a condition depends on samples")
            # what numpy does is played whatever it is: where it does more than move, the checks do not hold
            known = moves_bits(call, self.device.tape.arena) if isinstance(call, Ran) else True
            self.moves[id(call)] = known
        return known

    def found(self) -> Found:
        """Play the moves on every digit of the numbers, and on its complement; then on random contents, as a check."""
        total = self.sources[-1].first + self.sources[-1].size
        digits = max(1, math.ceil(math.log(max(total, 2), self.base)))
        origins: list[dict[int, _Digits]] = []
        results: dict[str, _Digits] = {}
        for k in range(digits):
            weight = self.base**k
            shift = weight.bit_length() - 1
            both = [partial(Source.digit, shift=shift, kind=self._kind, is_other=is_other) for is_other in (False, True)]
            plain, other = (self._played(digit, self._same, self._kind) for digit in both)
            origins = origins or [{n: _Digits() for n in reads} for reads in plain.reads]
            results = results or {n: _Digits() for n in plain.results}
            for mine, a, b in (*zip(origins, plain.reads, other.reads, strict=True), (results, plain.results, other.results)):
                for n, x in a.items():  # type: ignore[attr-defined]
                    mine[n].take(weight, x, b[n])  # type: ignore[index]
        shapes = {n: x.shape for n, x in plain.results.items()}
        del plain, other
        chained = self._played(Source.nothing, self._chained, self._kind)
        seen = self._played(partial(Source.random, seed=0), self._done)
        found = Found(
            self.calls, self.sources,
            [{n: self._origins(d, c[n], x[n]) for n, d in mine.items()}
             for mine, c, x in zip(origins, chained.reads, seen.reads, strict=True)],
            {n: self._origins(d, chained.results[n], seen.results[n]) for n, d in results.items()},
            shapes, {n: tuple(part.start for part in box) for n, box in self._boxes().items()}, self._shapes(), [seen.made],
        )  # fmt: skip
        del origins, results, chained
        self._check(found, partial(Source.random, seed=0), seen)
        for seed in range(1, TRIALS):
            contents = partial(Source.random, seed=seed)
            seen = self._played(contents, self._done)
            found.made.append(seen.made)
            self._check(found, contents, seen)
        return found

    @property
    def _kind(self) -> Any:
        """The type of a digit."""
        return np.uint8 if self.base == 1 << 8 else np.uint16

    def _origins(self, digits: _Digits, chained: Data, real: Data) -> Origins:
        numbers, names = digits.numbers, chained.reshape(-1)
        assert numbers is not None
        is_moved = numbers != CONSTANT
        used = [c for c, n in self.chains.items() if ((names == n) & is_moved).any()]
        if len(used) > 1:
            raise NoShortcut("elements of which different things were made meet")
        values = real.reshape(-1)
        constants = np.broadcast_to(values[:1], values.shape) if is_moved.all() else values.copy()
        return Origins(numbers, constants, real.dtype, used[0] if used else IDENTITY)

    def _check(self, found: Found, contents: Contents, seen: _Seen) -> None:
        pairs = [(o[n], x) for o, reads in zip(found.reads, seen.reads, strict=True) for n, x in reads.items()]
        pairs += [(found.results[n], x) for n, x in seen.results.items()]
        if any((o.expected(sources_in(o, self.sources), contents) != x.reshape(-1)).any() for o, x in pairs):
            raise NoShortcut("what arrives is not what was sent")

    # -- what is done in place of a function of one element

    def _same(self, call: Ran, u: Unary) -> None:
        """Hand digits on."""
        np.copyto(call.out, u.source, casting="unsafe")

    def _done(self, call: Ran, u: Unary) -> None:
        call()

    def _chained(self, call: Ran, u: Unary) -> None:
        """Hand the numbers of chains on, with one more link."""
        key = (u.code, tuple(map(id, u.tables)), u.source.dtype, call.out.dtype)
        if key not in self.links:
            self.links[key] = Link(Conversion(u.code, u.tables), u.source.dtype, call.out.dtype)
        names = u.source.astype(np.uint8)
        after = np.zeros(256, np.uint8)
        low, high = int(names.min(initial=255)), int(names.max(initial=0))
        for chain, n in list(self.chains.items()):
            if n in (low, high) or (low < n < high and (names == n).any()):
                longer = Chain((*chain.links, self.links[key]))
                after[n] = self.chains.setdefault(longer, len(self.chains))
        if len(self.chains) > MOST_CHAINS:
            raise NoShortcut("too many functions of one element follow each other")
        np.copyto(call.out, after[names] if low < high else after[low], casting="unsafe")

    # -- playing

    def _played(self, contents: Contents, unary: Callable[[Ran, Unary], None], kind: Any = None) -> _Seen:
        """Play the moves where operands and the results of calls have these contents; digits are kept in a type of their own."""
        seen, by = _Seen(), {s.which: s for s in self.sources}

        def step(call: Call) -> None:
            if self._is_move(call):
                call()
                return
            assert isinstance(call, Ran)
            if call.unary is not None:
                unary(call, call.unary)
                return
            seen.reads.append({n: x if kind is None else x.astype(kind) for n, x in self._reads(call).items()})
            if unary == self._done and call.fold is not None:
                call()
                seen.made.append(digest_of(call.out))
            else:
                seen.made.append(b"")
            call.out[...] = contents(by[len(seen.reads) - 1])

        codes = {n: contents(s) for n, s in by.items() if isinstance(n, str)}
        seen.results = {n: x if kind is None else x.astype(kind, copy=False) for n, x in self._driven(codes, step).items()}
        return seen

    def _reads(self, call: Ran) -> dict[int, Data]:
        arena, found = self.device.tape.arena, {}
        for n, r in enumerate(call.reads):
            if arena.block_at(r.address) is not None:
                is_some = self.sampled and call.fold is not None and call.fold.width
                found[n] = np.take(r.flat, self._looks(call), mode="clip") if is_some else r.flat.copy()
        return found

    def _looks(self, call: Ran) -> Data:
        """Return which elements of a factor are numbered."""
        if id(call) not in self.looks:
            self.looks[id(call)] = np.concatenate([x.reshape(-1) for x in looked_at_in(call)[:2]])
        return self.looks[id(call)]

    def _driven(self, codes: Mapping[str, Data], step: Callable[[Call], None]) -> dict[str, Data]:
        """Send the tiles; `step` gets the calls in place of playing them."""
        o, device = self.prepared.offload, self.device
        sizes, axes = o.tiling.sizes, o.mapping.axes
        if any(o.tiling.tile[d] < sizes[d] for d in axes.summed):
            raise NoShortcut("a sum is split")
        device.at, device.step = self.start, step
        whole: dict[str, Data] = {}
        samples = len(next(iter(codes.values())))
        codes = {n: self.moved[n][0](x, self.moved[n][1]) if n in self.moved else x for n, x in codes.items()}
        boxes = self._boxes()
        try:
            for slices in self.tiles:
                for name, y in self.prepared.call(device, {**self.prepared.codes, **codes}, slices).items():
                    here = [slices[d] for d in axes.of[name]]
                    if name not in whole:
                        whole[name] = np.zeros((samples, *(b.stop - b.start for b in boxes[name][1:])), y.dtype)
                    inside = (slice(s.start - b.start, s.stop - b.start) for s, b in zip(here, boxes[name][1:], strict=True))
                    whole[name][(slice(None), *inside)] = y
        finally:
            device.step = None
        return whole

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the offload's results."""
        o, samples = self.prepared.offload, self.sources[0].shape[0]
        return {n: (samples, *(o.tiling.sizes[d] for d in o.mapping.axes.of[n])) for n in o.mapping.axes.results}

    def _boxes(self) -> dict[str, tuple[slice, ...]]:
        """Return the smallest box around the tiles in each result, samples first."""
        axes = self.prepared.offload.mapping.axes

        def around(d: str) -> slice:
            return slice(min(t[d].start for t in self.tiles), max(t[d].stop for t in self.tiles))

        return {n: (slice(0, 0), *(around(d) for d in axes.of[n])) for n in axes.results}


def looked_at_in(call: Ran) -> tuple[Data, Data, Data, Data]:
    """Return which elements of A a sum of products reads: some of every row, and all of some rows; which are these elements and rows."""
    rows, steps, width = call.fold.rows.astype(np.int64), call.fold.steps.astype(np.int64), call.fold.width
    every = (steps[:, None] + np.arange(width)).reshape(-1)
    apart = next((n for n in range(1, width) if width % n == 0 and len(rows) * len(every) // n <= LOOKED_AT), width)
    some, spread = np.arange(0, len(every), apart), np.linspace(0, len(rows) - 1, SOME_ROWS).astype(np.intp)
    chosen = np.unique(np.concatenate([np.arange(min(len(rows), SOME_ROWS)), spread]))
    return rows[:, None] + every[some], rows[chosen, None] + every, some, chosen


def digest_of(x: Data) -> bytes:
    """Return a digest of contents."""
    return blake2b(np.ascontiguousarray(x).data).digest()


class _Digits:
    """The digits that arrived somewhere, of numbers and of their complements."""

    def __init__(self) -> None:
        self.numbers: Data | None = None

    def take(self, weight: int, plain: Data, other: Data) -> None:
        """Add a digit."""
        a, b = plain.reshape(-1), other.reshape(-1)
        is_moved = a + b == np.iinfo(a.dtype).max
        if self.numbers is None:
            self.numbers, self.is_moved = np.where(is_moved, 0, CONSTANT).astype(np.int32), is_moved
        if not np.array_equal(is_moved, self.is_moved):
            raise NoShortcut("codes are computed with where they are moved")
        np.add(self.numbers, a.astype(np.int32) * weight, out=self.numbers, where=is_moved)


def moves_bits(call: Ran, arena: Arena) -> bool:
    """Tell whether machine code only moves bits: of random words and their complements the same bits change."""
    if call.code is None or not {op.name for op in call.code} <= MOVING or any(op.bits == REAL for op in call.code):
        return False
    if call.key is None or any(arena.block_at(r.address) is None for r in call.reads):
        return _changes_same(call, arena)  # what it reads that does not change is no part of its key
    key = (call.key, call.code, call.out.dtype, call.out.shape, *((r.dtype, r.count, r.offset) for r in call.reads))
    if len(_moving) > MOST_KNOWN:
        _moving.clear()
    found = _moving.get(key)
    if found is None:
        found = _moving[key] = _changes_same(call, arena)
    return found


def _changes_same(call: Ran, arena: Arena) -> bool:
    """Tell whether the same bits of the result change, whatever the words are whose bits all change."""
    rng = np.random.default_rng(0)
    reads = [r.flat for r in call.reads if arena.block_at(r.address) is not None]
    kept = [r.copy() for r in reads]
    changed = []
    try:
        for _ in range(TRIALS):
            words = [rng.integers(0, 256, r.nbytes, np.uint8).view(r.dtype) for r in reads]
            outs = []
            for flip in (False, True):
                for r, w in zip(reads, words, strict=True):
                    r[:] = ~w if flip else w
                call()
                outs.append(call.out.copy())
            changed.append(outs[0] ^ outs[1])
    finally:
        for r, x in zip(reads, kept, strict=True):
            r[:] = x
    return bool((changed[0] == changed[1]).all())
