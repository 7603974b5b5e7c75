"""Elementwise conversion of whole arrays in one pass: floats to codes, codes to floats, copies into another layout.

Machine code does it where the code generator is loaded, else numpy in blocks that stay in the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from ...lang.binders import Leaf, index_variable
from ...lang.expr import Expr
from ..arrays.labelled_array import Data, Store
from ..blocks import grid
from ..straightline.code import REAL, Code, Op, TooWide
from ..straightline.ordered_floats import EMPTY_RANGE, floats_of
from .evaluate import evaluator_of
from .selection import GridTracer, Operand, grid_launch, has_machine_code, merge_loops

MIN_ELEMENTS = 1 << 12  # elements: below, numpy is as fast
WORD_BYTES = 8  # bytes
TRACED_ELEMENTS = 1 << 13  # elements of the grid on which code is traced


@dataclass(frozen=True, eq=False)
class Conversion:
    """Straight-line code from an element of each source array to an element of the target, and the tables that it reads."""

    code: Code
    tables: tuple[Data, ...] = ()

    def __call__(self, target: Data, *sources: Data) -> None:
        """Set every element of `target`; all arrays have its shape, in any layout."""
        run, arguments = (_by_numpy if not has_machine_code() else _launch)(self, *_layouts(target, *sources))
        run(target.ctypes.data, *(s.ctypes.data for s in sources), *arguments)

    def convert_with_range(self, target: Data, *sources: Data) -> tuple[float, float]:
        """Set every element of `target`, 32-bit floats, by machine code, and return the least and the largest of them."""
        run, arguments = _launch(self, *_layouts(target, *sources), with_range=True)
        words = EMPTY_RANGE.copy()
        run(target.ctypes.data, *(s.ctypes.data for s in sources), *arguments, words.ctypes.data)
        return floats_of(words)


def composed(first: Conversion, kind: Any, second: Conversion) -> Conversion:
    """Compose two conversions with elements of `kind` between them; after a final table, the second is folded into its entries."""
    kind, last = np.dtype(kind), first.code[-1]
    is_real = any(op.bits == REAL for op in (last, *second.code))
    if last.name == "table" and last.data == len(first.tables) - 1 and not is_real:
        entries = first.tables[-1].astype(kind)
        new_entries = np.empty(entries.shape, np.int32)
        second(new_entries, entries)
        return Conversion(first.code, (*first.tables[:-1], _narrowed(new_entries)))
    (read,) = (op for op in second.code if op.name == "array")
    return joined_conversions([first], [_between(last, kind, read)], second)


def _between(last: Op, kind: np.dtype[Any], read: Op) -> Op:
    """Return what storing a result as an element of `kind` and reading it does to it."""
    if kind.kind == "f":
        return Op("single", (0,), None, REAL, REAL)
    return Op("wrap", (0,), (8 * kind.itemsize, kind.kind == "i"), read.bits, max(last.bits, read.bits))


def joined_conversions(sources: Sequence[Conversion], between: Sequence[Op], last: Conversion) -> Conversion:
    """Compose `last` with one conversion for each of its sources; operator n of `between` is applied to the result of number n."""
    code: list[Op] = []
    tables: list[Data] = []
    result_numbers: list[int] = []
    for n, (first, op) in enumerate(zip(sources, between, strict=True)):
        append_operators(code, first.code, len(tables), lambda read, n=n: replace(read, data=(n, read.data[1])))  # type: ignore[misc]
        code.append(replace(op, args=(len(code) - 1,)))
        result_numbers.append(len(code) - 1)
        tables += first.tables
    append_operators(code, last.code, len(tables), lambda read: result_numbers[read.data[0]])
    return Conversion(tuple(code), (*tables, *last.tables))


def append_operators(code: list[Op], operators: Code, tables: int, read: Callable[[Op], Op | int]) -> None:
    """Append operators to `code`, table numbers shifted by `tables`; `read` gives for a load its replacement or the number of its value."""
    places: list[int] = []
    for op in operators:
        operator = read(op) if op.name == "array" else op
        if isinstance(operator, int):
            places.append(operator)
            continue
        data = op.data + tables if op.name == "table" else operator.data
        code.append(Op(op.name, tuple(places[a] for a in op.args), data, op.bits, op.width))
        places.append(len(code) - 1)


def _narrowed(entries: Data) -> Data:
    """Return integers in the narrowest signed type that holds them."""
    low, high = int(entries.min(initial=0)), int(entries.max(initial=0))
    return entries.astype(next(k for k in (np.int8, np.int16, np.int32) if np.iinfo(k).min <= low and high <= np.iinfo(k).max))


def is_large_and_regular(*arrays: Data) -> bool:
    """Tell whether whole-array conversion pays: all arrays are large, aligned, and strided by whole elements."""
    return all(a.size >= MIN_ELEMENTS and a.flags.aligned and not any(s % a.itemsize for s in a.strides) for a in arrays)


def copy_layout(target: Data, source: Data) -> None:
    """Copy an array into another of its shape and element type, whatever their layouts."""
    run = copier(target, source) if target.shape == source.shape else None
    if run is None:
        np.copyto(target, source)
    else:
        run()


def copier(target: Data, source: Data) -> Callable[[], Any] | None:
    """Return a call of machine code that copies integers between these two arrays; None where numpy is as fast."""
    is_block = target.dtype == source.dtype and target.flags.c_contiguous and source.flags.c_contiguous
    if is_block or any(a.dtype.kind not in "iu" for a in (target, source)) or not is_large_and_regular(target, source):
        return None
    if not has_machine_code():
        return None
    target, source = _widened(target, source)
    conversion = _COPIES[max(target.itemsize, source.itemsize) == 8]
    run, arguments = _launch(conversion, *_layouts(target, source))
    return partial(run, target.ctypes.data, source.ctypes.data, *arguments)


def _widened(target: Data, source: Data) -> tuple[Data, Data]:
    """Return both arrays as words of 64 bits where whole runs of elements lie side by side in both."""
    size = target.itemsize
    runs = [n for n, (a, b) in enumerate(zip(target.strides, source.strides, strict=True)) if a == b == size]
    if target.dtype != source.dtype or size == WORD_BYTES or not runs or target.shape[runs[0]] * size % WORD_BYTES:
        return target, source
    runs_last = [np.moveaxis(x, runs[0], -1) for x in (target, source)]
    if any(x.ctypes.data % WORD_BYTES or any(s % WORD_BYTES for s in x.strides[:-1]) for x in runs_last):
        return target, source
    a, b = (x.view(np.int64) for x in runs_last)
    return a, b


_COPIES = tuple(Conversion((Op("array", (), (0, 0), bits),)) for bits in (32, 64))


def trace_conversion(function: Callable[[Expr], Expr], operand: Leaf) -> Conversion | None:
    """Trace a function of one element to a conversion; None where 64-bit code cannot express it or it reads anything else."""
    x = Leaf((TRACED_ELEMENTS,), operand.interval, operand.real, operand.name)
    ev = evaluator_of({x: Store(np.zeros(TRACED_ELEMENTS, np.float64 if operand.real else np.int64))})
    i = index_variable("i", TRACED_ELEMENTS)
    with ev.inner_scope(axes=[(i, TRACED_ELEMENTS)]):
        tracer = GridTracer(ev)
        try:
            last = tracer.trace(function(x[i]))
        except TooWide:
            return None
    if last != len(tracer.code) - 1 or len(tracer.operand_trace.operands) != 1 or tracer.operand_trace.scalars:
        return None
    return Conversion(tuple(tracer.code), tuple(tracer.operand_trace.tables))


def table_lookup(entries: Data, shift: int, kind: Any, first_key: int = 0) -> Conversion:
    """Return the conversion that looks an element up in a table, at index (element >> shift) − least."""
    is_real = entries.dtype.kind == "f"
    wide = 64 if np.dtype(kind).itemsize >= 4 else 32
    code = [Op("array", (), (0, 0), wide)]
    for name, amount in (("shr", shift), ("sub", first_key)):
        if amount:
            code += [Op("const", (), amount, wide), Op(name, (len(code) - 1, len(code)), None, wide, wide)]
    return Conversion((*code, Op("table", (len(code) - 1,), 0, 0 if is_real else 32)), (np.ascontiguousarray(entries),))


Layout = tuple[str, tuple[int, ...]]  # a type, and strides in bytes


def _layouts(target: Data, *sources: Data) -> tuple[tuple[int, ...], tuple[Layout, ...]]:
    """Return the shape of arrays, and the layout of each."""
    return target.shape, tuple([(x.dtype.str, x.strides) for x in (target, *sources)])


@lru_cache(maxsize=4096)
def _launch(
    c: Conversion, shape: tuple[int, ...], layouts: tuple[Layout, ...], *, with_range: bool = False
) -> tuple[Callable[..., Any], tuple[int, ...]]:  # fmt: skip
    """Return the function for arrays of these layouts, and its arguments behind the arrays."""
    order = sorted(range(len(shape)), key=lambda n: -layouts[0][1][n])
    sides = [Operand(np.empty(0, kind), {n: s // np.dtype(kind).itemsize for n, s in enumerate(strides)}) for kind, strides in layouts]
    run, numbers = grid_launch(c.code, sides, c.tables, order, dict(enumerate(shape)), with_range=with_range)
    _live_numbers.append(numbers)
    return run, (*(t.ctypes.data for t in c.tables), numbers.ctypes.data)


@lru_cache(maxsize=4096)
def _by_numpy(c: Conversion, shape: tuple[int, ...], layouts: tuple[Layout, ...]) -> tuple[Callable[..., None], tuple[int, ...]]:
    """Return the function of numpy for arrays of these layouts."""
    order = sorted((n for n, extent in enumerate(shape) if extent > 1), key=lambda n: -layouts[0][1][n])
    loops = merge_loops([(shape[n], [strides[n] // np.dtype(kind).itemsize for kind, strides in layouts]) for n in order])
    return grid.compile_grid(c.code, [kind for kind, _ in layouts], loops, c.tables), ()


_live_numbers: list[Data] = []  # numbers that functions in use point to: two threads may ask for one at once
