"""Provenance: from which codes, and from results of which computations, everything comes that a recorded offload computes with.

A tape mostly moves bytes: through registers' layouts, buffers and transports. Here the moves are played on numbers of
elements instead of codes, digit by digit and complemented, so that what arrives says where it came from. The calls that
compute are not played: their results are numbered like codes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..compile.execute import Prepared
from ..lang.named import Data
from ..lang.straight import REAL
from ..lang.tape import Arena, Call, Copied, Ran
from ..target import TapedDevice

LAYING = {"array", "const", "scalar", "shl", "shr", "wrap", "extract", "bitand", "bitor", "bitxor"}
MOVING = LAYING | {"add", "sub", "mul", "div", "mod"}  # by powers of two these move bits, too
CONSTANT = -1
TRIALS = 2
MOST, MOST_CALLS = 4_000_000, 64  # elements that are numbered; beyond, looking takes longer than it saves


class NoShortcut(Exception):
    """An offload whose moves cannot be told apart from what it computes."""


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

    def pattern(self, digit: Callable[[Data], Data]) -> Data:
        """Return contents that are a function of its numbers."""
        numbers = np.arange(self.first, self.first + self.size, dtype=np.int64)
        found: Data = digit(numbers).astype(f"u{self.dtype.itemsize}").view(self.dtype).reshape(self.shape)
        return found


@dataclass
class Origins:
    """Where elements come from: their numbers, or CONSTANT and the value that they always have."""

    numbers: Data
    constants: Data
    dtype: Any

    def expected(self, sources: Mapping[Source, Data]) -> Data:
        """Return what arrives where the sources have these contents."""
        found = self.constants.copy()
        for s, x in sources.items():
            here = (self.numbers >= s.first) & (self.numbers < s.first + s.size)
            found[here] = x.reshape(-1)[self.numbers[here] - s.first].astype(self.dtype)
        return found


@dataclass
class Found:
    """The calls that compute, in order, with the origins of what they read that depends on samples; those of the results."""

    calls: list[Ran]
    sources: list[Source]
    reads: list[dict[int, Origins]]  # by call: of its reads, by number
    results: dict[str, Origins]
    shapes: dict[str, tuple[int, ...]]


@dataclass
class _Seen:
    """What one play of the moves gave."""

    reads: list[dict[int, Data]] = field(default_factory=list)
    results: dict[str, Data] = field(default_factory=dict)


def provenance(prepared: Prepared, device: TapedDevice, codes: Mapping[str, Data]) -> Found:
    """Return what an offload's events, from where the device stands, do with operands of these shapes; NoShortcut why not."""
    return _Probe(prepared, device, codes).found()


class _Probe:
    def __init__(self, prepared: Prepared, device: TapedDevice, codes: Mapping[str, Data]) -> None:
        self.prepared, self.device, self.start = prepared, device, device.at
        self.calls: list[Ran] = []
        self.moves: dict[int, bool] = {}
        self.sources = self._sources(codes)
        self.base = 1 << 8 if any(s.dtype.itemsize == 1 for s in self.sources) else 1 << 16

    def _sources(self, codes: Mapping[str, Data]) -> list[Source]:
        """Number the operands, and the results of the calls that compute: they are met when all is played once."""
        shapes: list[tuple[str | int, Data]] = [*codes.items()]

        def meet(call: Call) -> None:
            if self._is_move(call):
                return
            assert isinstance(call, Ran)
            shapes.append((len(self.calls), call.out))
            self.calls.append(call)
            if sum(x.size for _, x in shapes) > MOST or len(self.calls) > MOST_CALLS:
                raise NoShortcut("it has too many elements, or too many calls that compute")

        self._driven(codes, meet)
        found, first = [], 0
        for which, x in shapes:
            found.append(Source(which, x.shape, x.dtype, first))
            first += math.prod(x.shape)
        return found

    def _is_move(self, call: Call) -> bool:
        known = self.moves.get(id(call))
        if known is None:
            if isinstance(call, Copied):
                known = True
            elif isinstance(call, Ran):
                known = moves_bits(call, self.device.tape.arena)
            else:
                raise NoShortcut("a part of it is computed by numpy")
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
            plain, other = (self._played({s: s.pattern(d) for s in self.sources}) for d in self._digit(weight))
            origins = origins or [{n: _Digits(self.base) for n in reads} for reads in plain.reads]
            results = results or {n: _Digits(self.base) for n in plain.results}
            for mine, a, b in (*zip(origins, plain.reads, other.reads, strict=True), (results, plain.results, other.results)):
                for n, x in a.items():  # type: ignore[attr-defined]
                    mine[n].take(weight, x, b[n])  # type: ignore[index]
        shapes = {n: x.shape for n, x in plain.results.items()}
        found = Found(
            self.calls, self.sources, [{n: d.origins() for n, d in reads.items()} for reads in origins],
            {n: d.origins() for n, d in results.items()}, shapes,
        )  # fmt: skip
        self._check(found)
        return found

    def _digit(self, weight: int) -> tuple[Callable[[Data], Data], Callable[[Data], Data]]:
        """Return the functions from numbers to a digit and to its complement."""

        def digit(numbers: Data) -> Data:
            found: Data = numbers // weight % self.base
            return found

        return digit, lambda numbers: self.base - 1 - digit(numbers)

    def _check(self, found: Found) -> None:
        rng = np.random.default_rng(0)
        given = {s: rng.integers(0, 256, (s.size, s.dtype.itemsize), np.uint8).view(s.dtype).reshape(s.shape) for s in self.sources}
        seen = self._played(given)
        pairs = [(o[n], x) for o, reads in zip(found.reads, seen.reads, strict=True) for n, x in reads.items()]
        pairs += [(found.results[n], x) for n, x in seen.results.items()]
        if any((o.expected(given) != x.reshape(-1)).any() for o, x in pairs):
            raise NoShortcut("what arrives is not what was sent")

    def _played(self, given: Mapping[Source, Data]) -> _Seen:
        """Play the moves where operands and the results of calls have these contents."""
        seen, by = _Seen(), {s.which: x for s, x in given.items()}

        def step(call: Call) -> None:
            if self._is_move(call):
                call()
                return
            assert isinstance(call, Ran)
            arena = self.device.tape.arena
            seen.reads.append({n: r.flat.copy() for n, r in enumerate(call.reads) if arena.block_at(r.address) is not None})
            call.out[...] = by[len(seen.reads) - 1]

        codes = {n: x for n, x in by.items() if isinstance(n, str)}
        seen.results = self._driven(codes, step)
        return seen

    def _driven(self, codes: Mapping[str, Data], step: Callable[[Call], None]) -> dict[str, Data]:
        """Send every tile; `step` gets the calls in place of playing them."""
        o, device = self.prepared.offload, self.device
        sizes, axes = o.tiling.sizes, o.mapping.axes
        if any(o.tiling.tile[d] < sizes[d] for d in axes.summed):
            raise NoShortcut("a sum is split")
        device.at, device.step = self.start, step
        whole: dict[str, Data] = {}
        try:
            for slices in o.tiling.slices():
                for name, y in self.prepared.call(device, {**self.prepared.codes, **codes}, slices).items():
                    shape = (len(next(iter(codes.values()))), *(sizes[d] for d in axes.of[name]))
                    part = whole.setdefault(name, np.zeros(shape, y.dtype))
                    part[(slice(None), *(slices[d] for d in axes.of[name]))] = y
        finally:
            device.step = None
        return whole


class _Digits:
    """The digits that arrived somewhere, of numbers and of their complements."""

    def __init__(self, base: int) -> None:
        self.base = base
        self.numbers: Data | None = None

    def take(self, weight: int, plain: Data, other: Data) -> None:
        """Add a digit."""
        a, b = (x.reshape(-1).astype(np.int64) & self.base - 1 for x in (plain, other))
        is_moved = a + b == self.base - 1
        flat = plain.reshape(-1)
        if self.numbers is None:
            self.numbers, self.is_moved, self.constants = np.zeros(flat.shape, np.int32), is_moved, flat.copy()
        if (is_moved != self.is_moved).any() or ((flat != self.constants) | (other.reshape(-1) != self.constants))[~is_moved].any():
            raise NoShortcut("codes are computed with where they are moved")
        self.numbers += (a * weight).astype(np.int32)

    def origins(self) -> Origins:
        """Return where the elements come from."""
        assert self.numbers is not None
        return Origins(np.where(self.is_moved, self.numbers, CONSTANT).astype(np.int32), self.constants, self.constants.dtype)


def moves_bits(call: Ran, arena: Arena) -> bool:
    """Tell whether machine code only moves bits: of random words and their complements the same bits change."""
    if call.code is None or not {op.name for op in call.code} <= MOVING or any(op.bits == REAL for op in call.code):
        return False
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
