"""Straight-line code over a grid of elements by numpy, blocked for the cache, in the word widths of machine code.

Each operator is one numpy call a block. A grid function is called as compiled code is, with the addresses of its arrays.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..arrays.labelled_array import Data
from ..straightline.code import REAL, Code, Op
from .passes import last_uses

BLOCK_ELEMENTS = 1 << 15
HOISTED_ELEMENTS = 1 << 12  # values of at most so many elements are computed once, before the blocks
SIGNED = {32: np.int32, 64: np.int64, REAL: np.float64}
UNSIGNED = {32: np.uint32, 64: np.uint64}
WORDS = (8, 16, 32)
TABULATED_WORK, LEAST_TABULATED = 6, 1 << 12  # operators, and elements, from which on a function of one array is tabulated
MOST_TABULATED, TABULATED_SHARE, CACHED_BYTES = 1 << 21, 4, 1 << 26  # entries, entries an element; bytes of all cached tables
_table_cache: dict[Any, tuple[Data, Sequence[Data]]] = {}
Loops = Sequence[tuple[int, list[int]]]  # extent, and the stride of each array in elements


def view_at(address: int, shape: Sequence[int], kind: Any, strides: Sequence[int]) -> Data:
    """Return a strided view of the memory at an address, strides in bytes; the caller keeps the memory alive."""
    kind = np.dtype(kind)
    reach = [(n - 1) * s for n, s in zip(shape, strides, strict=True)]
    low, high = sum(min(r, 0) for r in reach), sum(max(r, 0) for r in reach)
    memory = (ctypes.c_uint8 * (high - low + kind.itemsize)).from_address(address + low)
    return np.ndarray(tuple(shape), kind, memory, -low, tuple(strides))


def contiguous_runs(shape: tuple[int, ...], max_elements: int) -> Iterator[tuple[tuple[Any, ...], int, int]]:
    """Yield the contiguous runs of at most `most` elements of a row-major grid: index, first flat position, length."""
    depth = next((d for d in range(len(shape)) if math.prod(shape[d + 1 :]) <= max_elements), 0)
    inner = math.prod(shape[depth + 1 :])
    if not shape:
        yield (), 0, 1
        return
    inner_slices, step = (slice(None),) * (len(shape) - depth - 1), max(1, max_elements // inner)
    for number, head in enumerate(np.ndindex(shape[:depth])):
        for low in range(0, shape[depth], step):
            high = min(low + step, shape[depth])
            yield (*head, slice(low, high), *inner_slices), (number * shape[depth] + low) * inner, (high - low) * inner


def compile_grid(code: Code, kinds: Sequence[Any], loops: Loops, tables: Sequence[Data]) -> Callable[..., None]:
    """Return a function that computes `code` over a loop nest from the addresses of its result and of the arrays it reads.

    `kinds` are the numpy types of the result and of the arrays; the function ignores further arguments.
    """
    return _Grid(code, [np.dtype(k) for k in kinds], loops or [(1, [0] * len(kinds))], tables).run


class _Grid:
    def __init__(self, code: Code, kinds: Sequence[Any], loops: Loops, tables: Sequence[Data]) -> None:
        self.code, self.kinds, self.tables = code, kinds, tables
        self.shape = tuple(n for n, _ in loops)
        self.strides = [tuple(s[k] * kind.itemsize for _, s in loops) for k, kind in enumerate(kinds)]
        self.reads = sorted({op.data for op in code if op.name == "array"})
        self.blocks = [place for place, _, _ in contiguous_runs(self.shape, BLOCK_ELEMENTS)]
        self.last_uses = last_uses(code)
        self.numbers = [self._number(op) for op in code]
        operators = [n for n, op in enumerate(code) if op.name not in ("array", "const")]
        shapes = self._shapes()
        self.operator_count = len(operators)
        self.hoisted_operators = [n for n in operators if math.prod(shapes[n]) <= HOISTED_ELEMENTS]
        self.blocked_operators = [n for n in operators if n not in self.hoisted_operators]

    def _number(self, op: Op) -> Any:
        """Return the value of a constant, None of any other operator."""
        if op.name != "const":
            return None
        return np.float64(op.data) if op.bits == REAL else _word(op.data, op.bits)

    def _shapes(self) -> list[tuple[int, ...]]:
        """Return the shape of each operator's values: 1 along the loops that it does not vary with."""
        shapes: list[tuple[int, ...]] = []
        for op in self.code:
            shapes.append(self._extents(op.data[0]) if op.name == "array" else np.broadcast_shapes(*(shapes[a] for a in op.args)))
        return shapes

    def _extents(self, number: int) -> tuple[int, ...]:
        return tuple(n if s else 1 for n, s in zip(self.shape, self.strides[number + 1], strict=True))

    def run(self, result: int, *places: int) -> None:
        """Compute the result from the arrays at these addresses."""
        out = view_at(result, self.shape, self.kinds[0], self.strides[0])
        arrays = {key: self._array(places[key[0]], *key) for key in self.reads}
        with np.errstate(all="ignore"):
            if not self.operator_count and self.reads:
                np.copyto(out, arrays[self.reads[0]], casting="unsafe")
            elif (entries := self._entries(arrays)) is not None:
                self._apply_table(out, arrays[self.reads[0]], entries)
            else:
                values = [arrays[op.data] if op.name == "array" else number for op, number in zip(self.code, self.numbers, strict=True)]
                self._compute(values, self.hoisted_operators)
                for place in self.blocks:
                    block_values = [x[self._place(place, x)] if isinstance(x, np.ndarray) else x for x in values]
                    self._block(out[(*place, ...)], block_values, self.blocked_operators)

    def _array(self, place: int, number: int, delta: int) -> Data:
        """Return a view of an array that code reads: of extent 1 along the loops that it does not vary with."""
        kind = self.kinds[number + 1]
        return view_at(place + delta * kind.itemsize, self._extents(number), kind, self.strides[number + 1])

    def _place(self, place: tuple[Any, ...], x: Data) -> tuple[Any, ...]:
        """Return the index of a block in an array."""
        indices = [p if n > 1 else 0 if isinstance(p, int) else slice(None) for p, n in zip(place, x.shape, strict=False)]
        return (*indices, ...)

    def _block(self, out: Data, values: list[Any], operators: Sequence[int]) -> None:
        self._compute(values, operators)
        np.copyto(out, values[-1], casting="unsafe")

    def _compute(self, values: list[Any], operators: Sequence[int]) -> None:
        """Compute operators in order; a value is dropped after its last use."""
        for n in operators:
            op = self.code[n]
            operands = [values[a] for a in op.args]
            values[n] = self.tables[op.data].take(operands[0], mode="clip") if op.name == "table" else _operator(op, operands)
            for a in op.args:
                if self.last_uses[a] == n:
                    values[a] = None

    # -- a function of one integer array, tabulated over the range of its elements

    def _entries(self, arrays: Mapping[tuple[int, int], Data]) -> tuple[Data, int] | None:
        """Return the code's values for all words in the range of the one array read, and the first word; None where this does not pay."""
        x = next(iter(arrays.values())) if len(arrays) == 1 else None
        if x is None or self.operator_count < TABULATED_WORK or x.dtype.kind not in "iu" or x.size < LEAST_TABULATED:
            return None
        low, high = int(x.min()), int(x.max())
        bits = max(high, -1 - low, 0).bit_length()
        first = -(1 << bits) if low < 0 else 0
        if (1 << bits) - first > min(MOST_TABULATED, TABULATED_SHARE * x.size):
            return None
        key = (self.code, tuple(map(id, self.tables)), self.kinds[0].str, bits, first)
        table = _table_cache.get(key)
        if table is None:
            domain = np.arange(first, 1 << bits, dtype=np.int64).astype(np.int32 if bits < 32 else np.int64)
            entries = np.empty(len(domain), self.kinds[0])
            for start in range(0, len(domain), BLOCK_ELEMENTS):
                part = slice(start, start + BLOCK_ELEMENTS)
                values = [domain[part] if op.name == "array" else number for op, number in zip(self.code, self.numbers, strict=True)]
                self._block(entries[part], values, [*self.hoisted_operators, *self.blocked_operators])
            if sum(cached_entries.nbytes for cached_entries, _ in list(_table_cache.values())) + entries.nbytes > CACHED_BYTES:
                _table_cache.clear()
            table = _table_cache[key] = entries, self.tables
        return table[0], first

    def _apply_table(self, out: Data, x: Data, entries: tuple[Data, int]) -> None:
        values, first = entries
        for place in self.blocks:
            index = x[self._place(place, x)]
            index = np.subtract(index, first, dtype=np.int64) if first else index
            np.copyto(out[(*place, ...)], values.take(index, mode="clip"))


def _word(number: int, bits: int) -> Any:
    """Return a number as a word."""
    half = 1 << bits - 1
    return SIGNED[bits]((number + half) % (1 << bits) - half)


def _fit(x: Any, bits: int) -> Any:
    """Return values in words of `bits`."""
    kind = SIGNED[bits]
    return x if x.dtype == kind else x.astype(kind)


def _operator(op: Op, operands: list[Any]) -> Any:
    """Return the value of one operator."""
    if op.width == REAL:
        return _real_operator(op, operands)
    return _fit(EMIT[op.name](op, *[_fit(x, op.width) for x in operands]), op.bits)


def _real_operator(op: Op, operands: list[Any]) -> Any:
    if op.name == "select":
        return np.where(np.not_equal(operands[0], 0), *(_fit(x, REAL) for x in operands[1:]))
    a = [_fit(x, REAL) for x in operands]
    if op.name in ("min", "max"):  # of a zero and its negative the second one
        return np.where(a[0] < a[1] if op.name == "min" else a[0] > a[1], *a)
    if op.name == "single":
        return a[0].astype(np.float32).astype(np.float64)
    if op.name in ("floor", "rint"):
        return (np.floor(a[0]) if op.name == "floor" else np.rint(a[0])).astype(np.int32)
    return a[0] if op.name == "real" else EMIT[op.name](op, *a)


def _extremum(op: Op, x: Any, y: Any) -> Any:
    """Return an extremum; by a constant as a clamp, because numpy has no vector instructions for it otherwise."""
    if (x.ndim > 0) == (y.ndim > 0):
        return np.minimum(x, y) if op.name == "min" else np.maximum(x, y)
    number, array = (y, x) if x.ndim else (x, y)
    ends = np.iinfo(array.dtype)
    low, high = (ends.min, number) if op.name == "min" else (number, ends.max)
    return array.clip(array.dtype.type(low), array.dtype.type(high))


def _select(op: Op, c: Any, x: Any, y: Any) -> Any:
    """Return a select by bit masks: `numpy.where` takes twice the time."""
    mask = -np.not_equal(c, 0).view(np.int8)
    return y ^ (x ^ y) & mask.astype(y.dtype)


def _shift(op: Op, x: Any, n: Any) -> Any:
    amount = np.clip(n, 0, op.width - 1) if n.ndim else n.dtype.type(min(max(int(n), 0), op.width - 1))
    if op.name == "shr":
        return x >> amount
    return x << amount if n.ndim == 0 and n < op.width else np.where(n >= op.width, 0, x << amount)


def _divide(op: Op, x: Any, y: Any) -> Any:
    if y.ndim == 0 and y > 0 and y & y - 1 == 0 and op.name in ("div", "mod"):
        return x >> SIGNED[op.width](int(y).bit_length() - 1) if op.name == "div" else x & y - 1
    y = np.where(y == 0, y.dtype.type(1), y)
    if op.name in ("div", "mod"):
        return x // y if op.name == "div" else x % y
    quotient = x // y
    quotient = quotient + ((x - quotient * y != 0) & ((x < 0) != (y < 0)))
    return quotient if op.name == "tdiv" else x - quotient * y


def _wrap(op: Op, x: Any) -> Any:
    bits, is_signed = op.data
    if bits >= op.width:
        return x
    if not is_signed:
        return x & SIGNED[op.width]((1 << bits) - 1)
    shift = SIGNED[op.width](op.width - bits)
    return x.astype(f"int{bits}") if bits in WORDS else x << shift >> shift


def _extract(op: Op, x: Any) -> Any:
    low, count = op.data
    if low >= op.width:
        return x & SIGNED[op.width](0)
    kind = UNSIGNED[op.width]
    return x.astype(kind) >> kind(low) & kind((1 << min(count, op.width - 1)) - 1)


def _bit_length(x: Any) -> Any:
    """Return the bit lengths of numbers from 0 to 2^53."""
    return np.frexp(x.astype(np.float64))[1].astype(np.int64)


def _leading_zeros(op: Op, x: Any) -> Any:
    x = x.astype(UNSIGNED[op.width])
    if op.width == 32:
        return op.data - _bit_length(x)
    upper = x >> np.uint64(32)
    return op.data - np.where(upper > 0, _bit_length(upper) + 32, _bit_length(x & np.uint64(0xFFFFFFFF)))


EMIT: dict[str, Callable[..., Any]] = {
    "add": lambda op, x, y: x + y,
    "sub": lambda op, x, y: x - y,
    "mul": lambda op, x, y: x * y,
    "neg": lambda op, x: -x,
    "not": lambda op, x: x ^ 1,
    "bitand": lambda op, x, y: x & y,
    "bitor": lambda op, x, y: x | y,
    "bitxor": lambda op, x, y: x ^ y,
    **dict.fromkeys(("div", "mod", "tdiv", "tmod"), _divide),
    **dict.fromkeys(("shl", "shr"), _shift),
    "eq": lambda op, x, y: np.equal(x, y).view(np.uint8),
    "ne": lambda op, x, y: np.not_equal(x, y).view(np.uint8),
    "lt": lambda op, x, y: np.less(x, y).view(np.uint8),
    "le": lambda op, x, y: np.less_equal(x, y).view(np.uint8),
    "min": _extremum,
    "max": _extremum,
    "select": _select,
    "wrap": _wrap,
    "extract": _extract,
    "clz": _leading_zeros,
}
