"""Tape: what was computed from contents that differ between samples, to be computed again from other contents.

A batch of samples takes the same steps as the one before it, because control does not depend on samples. While a tape
records, contents that depend on samples lie in blocks of the tape, and every call that computes some is kept with the
places of its operands: playing the calls does for other samples what was done for the first, without looking at a term.
"""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import ref

import numpy as np

from .named import Axis, Data, Named, Store

Call = Callable[[], Any]
SCRAMBLED = 0x5A
PAGE = 64
LARGE, PROBES = 1 << 12, 64  # bytes of contents that are held once; how many of their elements are looked at first


class Diverged(Exception):
    """Other contents lead elsewhere than those that the tape was made with."""


class _Lease:
    """A block in use: it is free again when the last view of it is gone."""

    def __init__(self, arena: Arena, number: int, size: int) -> None:
        self.arena, self.number, self.block = arena, number, arena.blocks[number]
        place = self.block.ctypes.data
        self.__array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (place, False), "version": 3}

    def __del__(self) -> None:
        self.arena.give_back(self.number)


class Arena:
    """Blocks of memory that are used again, in the same order whenever the same calls are played."""

    def __init__(self) -> None:
        self.blocks: list[Data] = []
        self._starts: list[int] = []
        self._sorted: list[Data] = []
        self._idle: dict[int, list[int]] = {}

    def empty(self, shape: Sequence[int], kind: Any) -> Data:
        """Return an array whose contents are not set; its block is free again when no view of it is left."""
        kind = np.dtype(kind)
        size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
        idle = self._idle.setdefault(_rounded(size), [])
        number = idle.pop() if idle else self.add(_rounded(size))
        found: Data = np.asarray(_Lease(self, number, size)).view(kind).reshape(tuple(shape))
        return found

    def give_back(self, number: int) -> None:
        """Make a block free."""
        if self.blocks:
            self._idle[len(self.blocks[number])].append(number)

    @property
    def size(self) -> int:
        """Bytes of all blocks."""
        return sum(map(len, self.blocks))

    def leave(self) -> None:
        """Give up the blocks: those in use are their users'."""
        for found in (self.blocks, self._starts, self._sorted, self._idle):
            found.clear()

    def block_of(self, data: Data) -> Data | None:
        """Return the block in which an array lies."""
        return self.block_at(data.ctypes.data)

    def block_at(self, place: int) -> Data | None:
        """Return the block in which an address lies."""
        at = bisect_right(self._starts, place) - 1
        return self._sorted[at] if at >= 0 and place < self._starts[at] + len(self._sorted[at]) else None

    def scramble(self) -> None:
        """Overwrite all contents."""
        for block in self.blocks:
            block.fill(SCRAMBLED)

    def add(self, size: int) -> int:
        """Return the number of a new block in use."""
        whole = np.zeros(size + PAGE, np.uint8)
        first = -whole.ctypes.data % PAGE
        block = whole[first : first + size]
        self.blocks.append(block)
        place = block.ctypes.data
        at = bisect_right(self._starts, place)
        self._starts.insert(at, place)
        self._sorted.insert(at, block)
        return len(self.blocks) - 1


def _rounded(size: int) -> int:
    step = max(PAGE, 1 << max(size.bit_length() - 3, 0))
    return max(-(-size // step), 1) * step


class Tape:
    """Calls, in order, and the blocks that they work on."""

    def __init__(self, sample: Axis, arena: Arena | None = None) -> None:
        """Record what depends on the axis `sample`."""
        self.sample = sample
        self.arena = arena or Arena()
        self.calls: list[Call] = []
        self.refused = ""  # why it cannot be played
        self._kept: list[Any] = []
        self._constants: dict[Any, list[ref[Data]]] = {}
        self._made: dict[int, tuple[ref[Data], Data]] = {}

    def stop(self) -> None:
        """Forget the calls as one list: they are held by what plays them."""
        self.calls = []

    def leave(self) -> None:
        """Give up the blocks that no call holds; what calls know by address stays as long as the tape."""
        self.arena.leave()

    def refuse(self, why: str) -> None:
        """Note why other contents cannot be computed in the same way."""
        self.refused = self.refused or why

    def owns(self, data: Any) -> bool:
        """Tell whether an array lies in a block of the tape."""
        return isinstance(data, np.ndarray) and (data.size == 0 or self.arena.block_of(data) is not None)

    def empty(self, shape: Sequence[int], kind: Any) -> Data:
        """Return an array of the tape whose contents are not set."""
        return self.arena.empty(shape, kind)

    def assign(self, target: Data, source: Any) -> None:
        """Copy contents, now and whenever the tape is played."""
        np.copyto(target, source, casting="unsafe")
        if self.owns(target):
            self.calls.append(Copied(self.steady(target), self.steady(np.asarray(source))))
        elif self.owns(source):
            self.refuse("contents that depend on samples were written to where they do not")

    def copied(self, source: Data, kind: Any = None) -> Data:
        """Return a copy in one piece, made whenever the tape is played."""
        found = self.empty(source.shape, source.dtype if kind is None else kind)
        self.assign(found, source)
        return found

    def again(self, target: Data, compute: Callable[[], Any]) -> None:
        """Whenever the tape is played, compute the contents of `target`; `compute` has steady operands only."""
        self.calls.append(_Computed(self.steady(target), compute))

    def steady(self, data: Any) -> Any:
        """Return an array for calls: a view that keeps no block in use, or the contents that it has now."""
        if not isinstance(data, np.ndarray):
            return data
        block = self.arena.block_of(data) if data.size else None
        if block is not None:
            return np.ndarray(data.shape, data.dtype, block, data.ctypes.data - block.ctypes.data, data.strides)
        return self._constant(data) if data.nbytes >= LARGE and data.dtype.kind in "biu" else _spanned(data)

    def _constant(self, data: Data) -> Data:
        """Return contents that do not change: one copy for all calls, which a cache can hold."""
        once = data[_without_repeats(data)]
        key = (data.shape, data.strides, data.dtype.str, once.flat[:: max(once.size // PROBES, 1)].tobytes())
        alike = self._constants.setdefault(key, [])
        alike[:] = [r for r in alike if r() is not None]
        known = next((x for r in alike if (x := r()) is not None and np.array_equal(x[_without_repeats(x)], once)), None)
        if known is None:
            known = _spanned(data)
            alike.append(ref(known))
        return known

    def once(self, kept: Data, make: Callable[[Data], Data]) -> Data:
        """Return what is made of contents that do not change, made once for as long as calls hold them."""
        number = id(kept)
        known = self._made.get(number)
        if known is None:
            known = self._made[number] = ref(kept, lambda _: self._made.pop(number, None)), _spanned(make(kept))
        return known[1]

    def steady_named(self, x: Named) -> Named:
        """Return a value for calls."""
        return Named(self.steady(x.data), x.axes)

    def steady_store(self, s: Store) -> Store:
        """Return contents for calls."""
        return Store(self.steady(s.data), s.batch)

    def address(self, data: Data) -> int:
        """Return where an operand of a call lies whenever the tape is played."""
        found = self.steady(data)
        self._kept.append(found)
        return int(found.ctypes.data)

    def keep(self, *values: Any) -> None:
        """Keep objects whose addresses calls hold."""
        self._kept.extend(values)


class Span:
    """Elements of one array that a call touches, as they lie in memory, and how many bytes behind the first one it is given."""

    def __init__(self, data: Data, low: int, high: int) -> None:
        """Take the elements from `low` to before `high` of an array, counted from its first one."""
        self.dtype, self.count = data.dtype, high - low
        self.address, self.offset = data.ctypes.data + low * data.itemsize, -low * data.itemsize
        self.data: Any = data  # is kept

    def at(self, address: int, data: Any) -> Span:
        """Return as many elements elsewhere, in memory that `data` keeps."""
        found = copy(self)
        found.address, found.data = address, data
        return found

    @property
    def flat(self) -> Data:
        """The elements, one after the other."""
        whole = (ctypes.c_uint8 * (self.count * self.dtype.itemsize)).from_address(self.address)
        found: Data = np.frombuffer(memoryview(whole), self.dtype)
        return found


@dataclass(frozen=True, eq=False)
class Unary:
    """What a call computes from one element each: code with its tables, and the elements, one for each of the result's."""

    code: Any
    tables: tuple[Data, ...]
    source: Data


@dataclass(frozen=True, eq=False)
class Grid:
    """What a call computes: code, and its operands, each seen over the elements of the result."""

    code: Any
    operands: tuple[Data, ...]


class Ran:
    """A call of machine code: what it writes, what it reads, and how to call it on elements that lie elsewhere."""

    unary: Unary | None = None
    grid: Grid | None = None
    fold: Any = None  # of a blocked fold: its operands
    started: Any = None  # of a blocked fold that starts at contents: where they are

    def __init__(self, out: Data, reads: Sequence[Span], bind: Callable[[Sequence[int]], Call], code: Any, key: Any) -> None:
        """`bind` takes the addresses of the result and of what is read; calls of one `key` compute the same from the same."""
        self.out, self.reads, self.bind, self.code, self.key = out, tuple(reads), bind, code, key
        self.run = bind([out.ctypes.data, *(r.address + r.offset for r in reads)])

    def __call__(self) -> None:
        """Compute the result from what lies there now."""
        self.run()


class Copied:
    """A copy of contents, into another layout or type of integers."""

    def __init__(self, target: Data, source: Data) -> None:
        self.target, self.source = target, source
        self.run = _copying(target, source)

    def __call__(self) -> None:
        """Copy what lies there now."""
        self.run()


def _copying(target: Data, source: Data) -> Call:
    """Return what copies contents: machine code where layouts or types differ."""
    from .convert import copier

    source = np.broadcast_to(source, target.shape)
    if source.dtype == target.dtype and source.flags.c_contiguous and target.flags.c_contiguous:  # as a call that chains have
        return partial(ctypes.memmove, target.ctypes.data, source.ctypes.data, target.nbytes)
    return copier(target, source) or partial(np.copyto, target, source, casting="unsafe")


class _Computed:
    def __init__(self, target: Data, compute: Callable[[], Any]) -> None:
        self.target, self.compute = target, compute

    def __call__(self) -> None:
        np.copyto(self.target, self.compute(), casting="unsafe")


def must_hold(condition: Data) -> None:
    """Leave the tape where a condition that held for its contents does not hold for others."""
    if not np.all(condition):
        raise Diverged


def _spanned(data: Data) -> Data:
    """Return a copy with the same strides."""
    if data.size == 0 or data.dtype == object:
        return data.copy()
    reach = [(n - 1) * s for n, s in zip(data.shape, data.strides, strict=True)]
    low, high = sum(min(r, 0) for r in reach), sum(max(r, 0) for r in reach)
    whole = np.empty(high - low + data.itemsize + PAGE, np.uint8)
    first = -(whole.ctypes.data - low) % PAGE
    found = np.ndarray(data.shape, data.dtype, whole, first - low, data.strides)
    once = _without_repeats(data)
    found[once] = data[once]
    return found


def _without_repeats(data: Data) -> tuple[slice, ...]:
    return tuple(slice(0, 1) if s == 0 else slice(None) for s in data.strides)
