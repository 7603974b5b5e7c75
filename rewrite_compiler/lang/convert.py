"""Whole arrays converted in one pass: floats to codes, codes to floats, copies into another layout.

Machine code does it where it is in use, else numpy in blocks that stay in the cache.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np

from . import array_grid
from .arrays import Evaluator
from .binders import Leaf, index_variable
from .expr import Expr
from .kernels import GridTracer, Operand, kernels_in_use, launched, merged
from .named import Data, Store
from .straight import REAL, Code, Op, TooWide

LEAST = 1 << 12  # elements: below, numpy is as fast
WIDE = 8  # bytes
TRACED = 1 << 13  # elements of the grid on which code is traced


@dataclass(frozen=True, eq=False)
class Conversion:
    """Code from one element to another, and the tables that it reads."""

    code: Code
    tables: tuple[Data, ...] = ()

    def __call__(self, target: Data, source: Data) -> None:
        """Set every element of `target`."""
        if kernels_in_use() is None:
            run = _by_numpy(self, target.dtype.str, source.dtype.str, target.shape, target.strides, source.strides)
            run(target.ctypes.data, source.ctypes.data)
            return
        run, arguments = _launch(self, target.dtype.str, source.dtype.str, target.shape, target.strides, source.strides)
        run(target.ctypes.data, source.ctypes.data, *arguments)


def then(first: Conversion, kind: Any, second: Conversion) -> Conversion:
    """Return one conversion in place of two with elements of `kind` between them; what follows a table is done to its entries."""
    kind, last = np.dtype(kind), first.code[-1]
    if last.name == "table" and last.data == len(first.tables) - 1 and not any(op.bits == REAL for op in second.code):
        entries = first.tables[-1].astype(kind)
        found = np.empty(entries.shape, np.int32)
        second(found, entries)
        return Conversion(first.code, (*first.tables[:-1], _narrowed(found)))
    code = list(first.code)
    (read,) = (op for op in second.code if op.name == "array")
    code.append(Op("wrap", (len(code) - 1,), (8 * kind.itemsize, kind.kind == "i"), read.bits, max(last.bits, read.bits)))
    places: list[int] = []
    for op in second.code:
        if op.name == "array":
            places.append(len(first.code))
            continue
        data = op.data + len(first.tables) if op.name == "table" else op.data
        code.append(Op(op.name, tuple(places[a] for a in op.args), data, op.bits, op.width))
        places.append(len(code) - 1)
    return Conversion(tuple(code), (*first.tables, *second.tables))


def _narrowed(entries: Data) -> Data:
    """Return integers in the narrowest signed type that holds them."""
    low, high = int(entries.min(initial=0)), int(entries.max(initial=0))
    return entries.astype(next(k for k in (np.int8, np.int16, np.int32) if np.iinfo(k).min <= low and high <= np.iinfo(k).max))


def is_worth_it(*arrays: Data) -> bool:
    """Tell whether these arrays are converted as wholes: they are large and regular."""
    return all(a.size >= LEAST and a.flags.aligned and not any(s % a.itemsize for s in a.strides) for a in arrays)


def lay(target: Data, source: Data) -> None:
    """Copy contents from one layout into another, elements of one type and arrays of one shape."""
    run = copier(target, source) if target.shape == source.shape else None
    if run is None:
        np.copyto(target, source)
    else:
        run()


def copier(target: Data, source: Data) -> Callable[[], Any] | None:
    """Return machine code that copies integers between these two arrays; None where numpy does as well."""
    is_block = target.dtype == source.dtype and target.flags.c_contiguous and source.flags.c_contiguous
    if is_block or any(a.dtype.kind not in "iu" for a in (target, source)) or not is_worth_it(target, source):
        return None
    if kernels_in_use() is None:
        return None
    target, source = _widened(target, source)
    conversion = _COPIES[max(target.itemsize, source.itemsize) == 8]
    run, arguments = _launch(conversion, target.dtype.str, source.dtype.str, target.shape, target.strides, source.strides)
    return partial(run, target.ctypes.data, source.ctypes.data, *arguments)


def _widened(target: Data, source: Data) -> tuple[Data, Data]:
    """Return both arrays as words of 64 bits where whole runs of elements lie side by side in both."""
    size = target.itemsize
    runs = [n for n, (a, b) in enumerate(zip(target.strides, source.strides, strict=True)) if a == b == size]
    if target.dtype != source.dtype or size == WIDE or not runs or target.shape[runs[0]] * size % WIDE:
        return target, source
    moved = [np.moveaxis(x, runs[0], -1) for x in (target, source)]
    if any(x.ctypes.data % WIDE or any(s % WIDE for s in x.strides[:-1]) for x in moved):
        return target, source
    a, b = (x.view(np.int64) for x in moved)
    return a, b


_COPIES = tuple(Conversion((Op("array", (), (0, 0), bits),)) for bits in (32, 64))


def traced(function: Callable[[Expr], Expr], operand: Leaf) -> Conversion | None:
    """Return the code of a function of one term; None where machine code has no words for it."""
    x = Leaf((TRACED,), operand.interval, operand.real, operand.name)
    ev = Evaluator({x: Store(np.zeros(TRACED, np.float64 if operand.real else np.int64))})
    i = index_variable("i", TRACED)
    with ev.inner(axes=[(i, TRACED)]):
        tracer = GridTracer(ev)
        try:
            last = tracer.trace(function(x[i]))
        except TooWide:
            return None
    if last != len(tracer.code) - 1 or len(tracer.found.operands) != 1 or tracer.found.scalars:
        return None
    return Conversion(tuple(tracer.code), tuple(tracer.found.tables))


def looked_up(entries: Data, shift: int, kind: Any, least: int = 0) -> Conversion:
    """Return the code that takes the entry of a table at an unsigned word's leading bits, or at a number from `least` on."""
    is_real = entries.dtype.kind == "f"
    wide = 64 if np.dtype(kind).itemsize >= 4 else 32
    code = [Op("array", (), (0, 0), wide)]
    for name, amount in (("shr", shift), ("sub", least)):
        if amount:
            code += [Op("const", (), amount, wide), Op(name, (len(code) - 1, len(code)), None, wide, wide)]
    return Conversion((*code, Op("table", (len(code) - 1,), 0, 0 if is_real else 32)), (np.ascontiguousarray(entries),))


@lru_cache(maxsize=4096)
def _launch(
    c: Conversion, out: str, kind: str, shape: tuple[int, ...], to: tuple[int, ...], of: tuple[int, ...]
) -> tuple[Callable[..., Any], tuple[int, ...]]:
    """Return the function for arrays of these strides, and its arguments behind both arrays."""
    order = sorted(range(len(shape)), key=lambda n: -to[n])
    size, step = np.dtype(out).itemsize, np.dtype(kind).itemsize
    target = Operand(np.empty(0, out), {n: s // size for n, s in enumerate(to)})
    source = Operand(np.empty(0, kind), {n: s // step for n, s in enumerate(of)})
    run, numbers = launched(c.code, [target, source], c.tables, (), order, dict(enumerate(shape)))
    _held.append(numbers)
    return run, (*(t.ctypes.data for t in c.tables), numbers.ctypes.data)


@lru_cache(maxsize=4096)
def _by_numpy(c: Conversion, out: str, kind: str, shape: tuple[int, ...], to: tuple[int, ...], of: tuple[int, ...]) -> Callable[..., None]:
    """Return the function of numpy for arrays of these strides."""
    order = sorted(range(len(shape)), key=lambda n: -to[n])
    size, step = np.dtype(out).itemsize, np.dtype(kind).itemsize
    loops = merged([(shape[n], [to[n] // size, of[n] // step]) for n in order if shape[n] > 1])
    return array_grid.launched(c.code, [out, kind], loops, c.tables, ())


_held: list[Data] = []  # numbers that functions in use point to: two threads may ask for one at once
