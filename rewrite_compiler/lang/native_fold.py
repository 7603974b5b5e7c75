"""Machine code of a blocked fold: out[m, n] := fold over k of a step on sums of products of A's row m and B's column n.

One family for convolution, matrix products and recurrent layers of every accelerator: the step is code of the
specification, in registers between the products and the next step. A is read through offset tables (no im2col copy);
B is packed in tiles of as many columns as a vector has lanes. Pairs of 16-bit factors are multiplied and added at once.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import ir

from .native_grid import element_type
from .native_jit import function_of, host
from .native_ops import Words, declared, resized
from .straight import Code, Op
from .tape import Ran, Span

if TYPE_CHECKING:
    from .tape import Tape

WORD, INT32, INT16 = ir.IntType(64), ir.IntType(32), ir.IntType(16)
ROWS = 4
# feature → (lanes of a vector, the instruction that adds the products of pairs)
FORMS = {
    "avx512vnni": (16, "llvm.x86.avx512.vpdpwssd.512"),
    "avx512bw": (16, "llvm.x86.avx512.pmaddw.d.512"),
    "avx2": (8, "llvm.x86.avx2.pmadd.wd"),
    "sse2": (4, "llvm.x86.sse2.pmadd.wd"),
    "": (8, ""),
}


@dataclass(frozen=True)
class Kernel:
    """Everything that the code depends on: the step, how many A tables there are, B's slots a step, the result's type.

    Operators "acc", "scalar", "dot" (table, offset, first slot, pairs) and "product" (table, offset, slot) are operands.
    """

    code: Code
    tables: int
    slots: int
    kind: str
    form: str
    has_start: bool
    last: Code = ()  # the last step, where it is another one
    scalars: int = 0


def best_form() -> str:
    """Return the widest form that this processor has."""
    _, features = host()
    return next(f for f in FORMS if not f or f in features)


@lru_cache(maxsize=1024)
def fold_function(kernel: Kernel) -> tuple[Any, Any]:
    """Return the engine and the function of (arrays A, row offsets, step offsets: each an array of pointers), B, start, out, numbers."""
    return function_of(str(_Fold(kernel).module), 3, 7)


class _Fold:
    """Prints one kernel. Numbers: rows, tiles, steps, columns of a row, then the scalars."""

    def __init__(self, kernel: Kernel) -> None:
        self.k = kernel
        self.lanes, self.pairs = FORMS[kernel.form]
        self.module = ir.Module("fold")
        pointers, plain = ir.IntType(8).as_pointer().as_pointer(), INT32.as_pointer()
        arguments = [pointers, pointers, pointers, plain, plain, element_type(kernel.kind).as_pointer(), WORD.as_pointer()]
        self.function = ir.Function(self.module, ir.FunctionType(ir.VoidType(), arguments), "run")
        for a in self.function.args[3:]:
            a.add_attribute("noalias")
        self.b = ir.IRBuilder(self.function.append_basic_block("entry"))
        self.words = Words(self.b, self.lanes)
        self.columns, self.start, self.out, numbers = self.function.args[3:]
        rows, tiles, self.steps, self.width = (self.b.load(self.b.gep(numbers, [_word(n)])) for n in range(4))
        self.scalars = [self.words.splat(self.b.load(self.b.gep(numbers, [_word(4 + n)])), 64) for n in range(kernel.scalars)]
        self.tables = [[self._pointer(a, t, kind) for t in range(kernel.tables)] for a, kind in enumerate((INT16, INT32, INT32))]
        self._loop(tiles, lambda tile: self._loop(self.b.udiv(rows, _word(ROWS)), lambda group: self._tile(tile, group)))
        self.b.ret_void()

    def _pointer(self, argument: int, table: int, kind: ir.IntType) -> ir.Value:
        raw = self.b.load(self.b.gep(self.function.args[argument], [_word(table)]))
        return self.b.bitcast(raw, kind.as_pointer())

    def _loop(self, extent: ir.Value, inner: Any, carried: list[ir.Value] | None = None) -> list[ir.Value]:
        """Emit a loop; `inner` gets the counter (and the carried values, and returns the new ones)."""
        before = self.b.block
        head, body, after = (self.function.append_basic_block(n) for n in ("head", "loop", "after"))
        self.b.branch(head)
        self.b.position_at_end(head)
        counter = self.b.phi(WORD)
        counter.add_incoming(_word(0), before)
        values = [self.b.phi(x.type) for x in carried or ()]
        for phi, x in zip(values, carried or (), strict=True):
            phi.add_incoming(x, before)
        self.b.cbranch(self.b.icmp_signed("<", counter, extent), body, after)
        self.b.position_at_end(body)
        news = inner(counter, values) if carried is not None else (inner(counter) or [])
        counter.add_incoming(self.b.add(counter, _word(1)), self.b.block)
        for phi, x in zip(values, news, strict=True):
            phi.add_incoming(x, self.b.block)
        self.b.branch(head)
        self.b.position_at_end(after)
        return values

    def _tile(self, tile: ir.Value, group: ir.Value) -> None:
        """Compute ROWS rows of one tile of columns."""
        b, first = self.b, self.b.mul(group, _word(ROWS))
        rows = [b.add(first, _word(r)) for r in range(ROWS)]
        bases = [[self._offset(1, t, row) for t in range(self.k.tables)] for row in rows]
        places = [b.add(b.mul(row, self.width), b.mul(tile, _word(self.lanes))) for row in rows]
        starts = [self._vector(b.gep(self.start, [p])) if self.k.has_start else self.words.const(0, 32) for p in places]
        size = b.mul(self.steps, _word(self.k.slots * self.lanes))
        column = b.gep(self.columns, [b.mul(tile, size)])

        def step(k: ir.Value, accumulators: list[ir.Value], code: Code = self.k.code) -> list[ir.Value]:
            slots = b.gep(column, [b.mul(k, _word(self.k.slots * self.lanes))])
            vectors = [self._vector(b.gep(slots, [_word(s * self.lanes)])) for s in range(self.k.slots)]
            offsets = [self._offset(2, t, k) for t in range(self.k.tables)]
            return [self._step(code, acc, base, offsets, vectors) for acc, base in zip(accumulators, bases, strict=True)]

        if self.k.last:
            before = b.sub(self.steps, _word(1))
            ends = step(before, self._loop(before, step, starts), self.k.last)
        else:
            ends = self._loop(self.steps, step, starts)
        kind = element_type(self.k.kind)
        for place, x in zip(places, ends, strict=True):
            narrow = resized(b, x, ir.VectorType(kind, self.lanes))
            b.store(narrow, b.bitcast(b.gep(self.out, [place]), narrow.type.as_pointer()), align=1)

    def _offset(self, argument: int, table: int, n: ir.Value) -> ir.Value:
        return self.b.sext(self.b.load(self.b.gep(self.tables[argument][table], [n])), WORD)

    def _vector(self, place: ir.Value) -> ir.Value:
        return self.b.load(self.b.bitcast(place, ir.VectorType(INT32, self.lanes).as_pointer()), align=4)

    def _step(self, code: Code, acc: ir.Value, bases: list[ir.Value], offsets: list[ir.Value], vectors: list[ir.Value]) -> ir.Value:
        given = {}
        for n, op in enumerate(code):
            if op.name == "acc":
                given[n] = acc
            elif op.name == "scalar":
                given[n] = self.words.fit(self.scalars[op.data], op.bits)
            elif op.name in ("dot", "product"):
                given[n] = self._products(op, bases, offsets, vectors)
        return self.words.fit(self.words.run(code, given)[-1], 32)

    def _products(self, op: Op, bases: list[ir.Value], offsets: list[ir.Value], vectors: list[ir.Value]) -> ir.Value:
        table, delta, slot, pairs = op.data
        at = self.b.add(self.b.add(bases[table], offsets[table]), _word(delta))
        total = None
        for p in range(max(pairs, 1)):
            place = self.b.gep(self.tables[0][table], [self.b.add(at, _word(2 * p))])
            word = self._pair(place) if pairs else self.b.zext(self.b.load(place, align=2), INT32)
            total = self._added(total, self.words.splat(word, 32), vectors[slot + p])
        return total

    def _added(self, total: ir.Value | None, x: ir.Value, y: ir.Value) -> ir.Value:
        """Return the total and, in each lane, the two products of 16-bit halves."""
        if self.k.form != "avx512vnni":
            product = self._multiplied(x, y)
            return product if total is None else self.b.add(total, product)
        wide = ir.VectorType(INT32, self.lanes)
        add = declared(self.module, self.pairs, ir.FunctionType(wide, [wide, wide, wide]))
        return self.b.call(add, [self.words.const(0, 32) if total is None else total, x, y])

    def _pair(self, place: ir.Value) -> ir.Value:
        return self.b.load(self.b.bitcast(place, INT32.as_pointer()), align=2)

    def _multiplied(self, x: ir.Value, y: ir.Value) -> ir.Value:
        """Return in each lane the sum of the two products of 16-bit halves."""
        b, wide = self.b, ir.VectorType(INT32, self.lanes)
        if self.pairs:
            halves = ir.VectorType(INT16, 2 * self.lanes)
            multiply = declared(self.module, self.pairs, ir.FunctionType(wide, [halves, halves]))
            return b.call(multiply, [b.bitcast(x, halves), b.bitcast(y, halves)])
        half = self.words.const(16, 32)
        low = b.mul(*(b.ashr(b.shl(v, half), half) for v in (x, y)))
        return b.add(low, b.mul(b.ashr(x, half), b.ashr(y, half)))


def _word(n: int) -> ir.Constant:
    return ir.Constant(WORD, n)


def run_fold(
    kernel: Kernel, a: list[tuple[Any, Any, Any]], b: Any, start: Any, out: Any, numbers: list[int], tape: Tape | None = None
) -> None:
    """Call a kernel: for each table of A its array and offsets, packed columns, start values and the result's array."""
    _, run = fold_function(kernel)
    pointers = [(ctypes.c_void_p * len(a))(*(x[n].ctypes.data for x in a)) for n in range(3)]
    given = np.array(numbers, np.int64)
    run(*pointers, b.ctypes.data, start.ctypes.data if start is not None else None, out.ctypes.data, given.ctypes.data)
    if tape is not None:
        _record(tape, kernel, run, a, b, start, out, given)


def _record(tape: Tape, kernel: Kernel, run: Any, a: list[tuple[Any, Any, Any]], b: Any, start: Any, out: Any, given: Any) -> None:
    """Record a call; its arrays are the result, B, the start values where there are some, and each table's."""
    ends = [int(rows.max()) + int(steps.max()) for _, rows, steps in a]
    reads = [Span(tape.steady(b), 0, b.size), *([] if start is None else [Span(tape.steady(start), 0, start.size)])]
    for n, (data, _, _) in enumerate(a):
        low, high = _reach(kernel, n)
        reads.append(Span(tape.steady(data), low, ends[n] + high))
    offsets = [(ctypes.c_void_p * len(a))(*(tape.address(x[n]) for x in a)) for n in (1, 2)]
    numbers = tape.address(given)

    def bind(places: Sequence[int]) -> Any:
        result, columns, *rest = places
        first = None if start is None else rest.pop(0)
        return partial(run, (ctypes.c_void_p * len(rest))(*rest), *offsets, columns, first, result, numbers)

    same = (*(x.tobytes() for _, rows, steps in a for x in (rows, steps)), given.tobytes())
    tape.calls.append(Ran(tape.steady(out), reads, bind, None, (kernel, same)))


def _reach(kernel: Kernel, table: int) -> tuple[int, int]:
    """Return from where to before where code reads a table, from the elements at its offsets on."""
    found = [op for op in (*kernel.code, *kernel.last) if op.name in ("dot", "product") and op.data[0] == table]
    return min(op.data[1] for op in found), max(op.data[1] + max(2 * (op.data[3] if len(op.data) > 3 else 0), 1) for op in found)
