"""Machine code of a term over a grid: one loop nest, every operand an array with a stride for each loop.

Extents, strides and numbers are arguments; the code depends on the operators, on element types, and on which operands
are contiguous along the innermost loop. Loops are left to LLVM to vectorise.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from llvmlite import ir

from ..straightline.code import REAL, Code, Op
from ..straightline.float32_exactness import single_precision_operators
from .jit import function_of
from .operators import Words, resize, update_extrema

WORD = ir.IntType(64)
ANY_STRIDE = 1 << 40
FLOATS = (ir.DoubleType, ir.FloatType)


@dataclass(frozen=True)
class Access:
    """The access to one array: element type, strides along the innermost and the unrolled loop, first value if it is a loop index."""

    kind: str
    inner_stride: int = ANY_STRIDE
    unrolled_stride: int = 0
    first_index: int | None = None


@dataclass(frozen=True)
class GridKey:
    """The key of compiled grid code: operators, accesses, table types, depth of the nest, unrolling, whether extrema are tracked."""

    code: Code
    out: Access
    accesses: tuple[Access, ...]
    tables: tuple[str, ...]
    loops: int
    unroll: int = 1
    tracks_extrema: bool = False


@lru_cache(maxsize=4096)
def grid_function(shape: GridKey) -> tuple[Any, Any]:
    """Return the engine and the function of (out, arrays …, tables …, numbers), and of two words of extrema where they are tracked."""
    count = 2 + len(shape.accesses) + len(shape.tables) + shape.tracks_extrema
    return function_of(str(_Grid(shape).module), 3, count)


def element_type(kind: str) -> ir.IntType | ir.DoubleType | ir.FloatType:
    """Return the LLVM type of an element of a numpy type."""
    if np.dtype(kind).kind == "f":
        return ir.DoubleType() if np.dtype(kind).itemsize == 8 else ir.FloatType()
    return ir.IntType(8 * np.dtype(kind).itemsize)


def float_of(b: ir.IRBuilder, value: ir.Value, kind: ir.DoubleType | ir.FloatType) -> ir.Value:
    """Return a float extended or truncated to another width."""
    if value.type == kind:
        return value
    return b.fpext(value, kind) if isinstance(kind, ir.DoubleType) else b.fptrunc(value, kind)


class _Grid:
    def __init__(self, shape: GridKey) -> None:
        self.shape = shape
        self.module = ir.Module("grid")
        kinds = [shape.out.kind, *(s.kind for s in shape.accesses), *shape.tables, "<i8"]
        arguments = [element_type(k).as_pointer() for k in (*kinds, *["<i4"] * shape.tracks_extrema)]
        self.function = ir.Function(self.module, ir.FunctionType(ir.VoidType(), arguments), "run")
        for a in self.function.args:
            a.add_attribute("noalias")
        self.b = ir.IRBuilder(self.function.append_basic_block("entry"))
        self.words = Words(self.b)
        self.singles = single_precision_operators(shape.code, [s.kind for s in shape.accesses], shape.tables)
        self.numbers = self.function.args[len(kinds) - 1]
        self.extrema = self.previous_extrema() if shape.tracks_extrema else ()
        sides = (shape.out, *shape.accesses)
        loops = shape.loops
        self.extents = [self.number(n) for n in range(loops)]
        self.strides = [[self.number(loops + loops * k + n) for n in range(loops)] for k in range(len(sides))]
        for k, s in enumerate(sides):
            if loops and s.inner_stride != ANY_STRIDE:
                self.strides[k][-1] = ir.Constant(WORD, s.inner_stride)
        self.nest(0, [ir.Constant(WORD, 0)] * len(sides))
        for n, end in enumerate(self.extrema):
            self.b.store(self.b.load(end), self.extremum_address(n))
        self.b.ret_void()

    def extremum_address(self, n: int) -> ir.Value:
        """Return the address of the minimum (0) or the maximum (1), as ordered words."""
        return self.b.gep(self.function.args[-1], [ir.Constant(WORD, n)])

    def previous_extrema(self) -> tuple[ir.Value, ...]:
        """Return variables that start at the minimum and the maximum of earlier calls."""
        extrema = tuple(self.b.alloca(ir.IntType(32)) for _ in range(2))
        for n, end in enumerate(extrema):
            self.b.store(self.b.load(self.extremum_address(n)), end)
        return extrema

    def number(self, n: int) -> ir.Value:
        return self.b.load(self.b.gep(self.numbers, [ir.Constant(WORD, n)]))

    def nest(self, level: int, places: list[ir.Value]) -> None:
        if level == self.shape.loops:
            self.elements(places)
            return
        preheader = self.b.block
        head, body, exit_block = (self.function.append_basic_block(n) for n in ("head", "loop", "after"))
        self.b.branch(head)
        self.b.position_at_end(head)
        counter = self.b.phi(WORD)
        counter.add_incoming(ir.Constant(WORD, 0), preheader)
        self.b.cbranch(self.b.icmp_signed("<", counter, self.extents[level]), body, exit_block)
        self.b.position_at_end(body)
        self.nest(level + 1, [self.b.add(p, self.b.mul(counter, s[level])) for p, s in zip(places, self.strides, strict=True)])
        counter.add_incoming(self.b.add(counter, ir.Constant(WORD, 1), flags=("nsw",)), self.b.block)
        self.b.branch(head)
        self.b.position_at_end(exit_block)

    def elements(self, places: list[ir.Value]) -> None:
        """Emit one turn of the innermost loop: as many elements as it is unrolled by."""
        for u in range(self.shape.unroll):
            self.element(places, u)

    def value(self, places: list[ir.Value], u: int) -> ir.Value:
        """Emit the code of one element."""
        values: list[ir.Value] = []
        for n, op in enumerate(self.shape.code):
            values.append(self.operand(op, values, places, u, is_single=n in self.singles))
        return values[-1]

    def element(self, places: list[ir.Value], u: int) -> None:
        value = self.value(places, u)
        kind = element_type(self.shape.out.kind)
        offset = self.b.add(places[0], ir.Constant(WORD, u * self.shape.out.unrolled_stride))
        result = float_of(self.b, value, kind) if isinstance(kind, FLOATS) else resize(self.b, value, kind)
        self.b.store(result, self.b.gep(self.function.args[0], [offset]))
        if self.extrema:
            update_extrema(self.b, self.b.bitcast(result, ir.IntType(32)), self.extrema)

    def operand(self, op: Op, values: list[ir.Value], places: list[ir.Value], u: int, *, is_single: bool) -> ir.Value:
        if op.name == "array":
            return self.load(op, places, u, is_single=is_single)
        if op.name == "table":
            index = self.words.fit(values[op.args[0]], 64)
            number = 1 + len(self.shape.accesses) + op.data
            entry = self.b.load(self.b.gep(self.function.args[number], [index]))
            return entry if is_single else self.widen(entry, self.shape.tables[op.data], op.bits)
        if op.name == "const":
            return ir.Constant(ir.FloatType(), op.data) if is_single else self.words.const(op.data, op.bits)
        return self.words.operator(op, values, is_single=is_single)

    def load(self, op: Op, places: list[ir.Value], u: int, *, is_single: bool) -> ir.Value:
        number, delta = op.data
        side: Access = self.shape.accesses[number]
        if side.first_index is not None:
            return self.words.const(side.first_index + u * side.unrolled_stride, op.bits)
        offset = self.b.add(places[1 + number], ir.Constant(WORD, delta + u * side.unrolled_stride))
        element = self.b.load(self.b.gep(self.function.args[1 + number], [offset]))
        return element if is_single else self.widen(element, side.kind, op.bits)

    def widen(self, value: ir.Value, kind: str, bits: int) -> ir.Value:
        if bits == REAL:
            return self.b.fpext(value, ir.DoubleType()) if isinstance(value.type, ir.FloatType) else value
        target = ir.IntType(bits)
        if np.dtype(kind).kind == "u" and value.type.width < bits:
            return self.b.zext(value, target)
        return resize(self.b, value, target)
