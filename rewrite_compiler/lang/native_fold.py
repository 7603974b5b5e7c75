"""Machine code of a blocked fold: out[m, n] := fold over k of a step on sums of products of A's row m and B's column n.

One family for convolution, matrix products and recurrent layers of every accelerator: the step is code of the
specification, in registers between the products and the next step. A is read through offset tables (no im2col copy);
B is packed in tiles of as many columns as a vector has lanes. Pairs of 16-bit factors are multiplied and added at once.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import ir

from . import native_amx
from .native_grid import element_type
from .native_jit import function_of, host
from .native_loop import WORD, emitted_loop, word
from .native_ops import Words, declared, resized
from .straight import Code, Op
from .tape import Ran, Span

if TYPE_CHECKING:
    from .tape import Tape

INT32, INT16 = ir.IntType(32), ir.IntType(16)
Tables = list[tuple[Any, Any, Any]]  # of A: elements, offsets of rows, offsets of steps
Part = tuple[ir.Value, ir.Value, int]  # of rows, or tiles: the first, how many blocks, and how many a block has
ROWS = 4
NUMBERS = 5  # before the scalars
# of a plain sum, the rows and tiles whose sums stay in registers: as many as hide what a load and a product take
BLOCKS = {"avx512vnni": (8, 2), "avx512bw": (8, 2), "avx2": (4, 2), "sse2": (4, 2), "": (4, 1)}
READING = ("dot", "product", "high")
ONES = 1 << 16 | 1
VECTORS = "avx512vnni"  # what a processor with a matrix unit uses beside it
# feature → (lanes of a vector, the instruction that adds the products of pairs)
FORMS = {
    native_amx.FORM: (16, "llvm.x86.avx512.vpdpwssd.512"),
    "avx512vnni": (16, "llvm.x86.avx512.vpdpwssd.512"),
    "avx512bw": (16, "llvm.x86.avx512.pmaddw.d.512"),
    "avx2": (8, "llvm.x86.avx2.pmadd.wd"),
    "sse2": (4, "llvm.x86.sse2.pmadd.wd"),
    "": (8, ""),
}


@dataclass(frozen=True)
class Kernel:
    """Everything that the code depends on: the step, how many A tables there are, B's slots a step, the result's type.

    Operators "acc", "scalar", "dot" (table, offset, first slot, pairs), "product" (table, offset, slot) and "high" (as "dot", of
    the high halves of products) are operands.
    """

    code: Code
    tables: int
    slots: int
    kind: str
    form: str
    has_start: bool
    last: Code = ()  # the last step, where it is another one
    scalars: int = 0

    @property
    def sum_width(self) -> int:
        """How many elements of A, side by side, a step multiplies and adds; 0 where the fold is not a plain sum of products."""
        acc, dot, add = Op("acc"), self.code[-2] if len(self.code) > 1 else None, Op("add", (0, 1))
        is_sum = dot is not None and dot.name == "dot" and self.code == (acc, dot, add) and not self.last
        return 2 * dot.data[3] if is_sum and dot is not None and dot.data[:3] == (0, 0, 0) else 0


def best_form() -> str:
    """Return the widest form that this processor has."""
    _, features = host()
    return next(f for f in FORMS if not f or (f in features and (f != native_amx.FORM or native_amx.is_there())))


@lru_cache(maxsize=1024)
def fold_function(kernel: Kernel) -> tuple[Any, Any]:
    """Return the engine and the function of (arrays A, row offsets, step offsets: each an array of pointers), B, start, out, numbers."""
    if kernel.form == native_amx.FORM:
        return fold_function(replace(kernel, form=VECTORS))
    return function_of(str(_Fold(kernel).module), 3, 7)


class _Fold:
    """Prints one kernel. Numbers: rows, tiles, steps, columns of a row, how far a row's start values are from those before, scalars."""

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
        rows, tiles, self.steps, self.width, self.apart = (self.b.load(self.b.gep(numbers, [word(n)])) for n in range(NUMBERS))
        self.scalars = [self.words.splat(self.b.load(self.b.gep(numbers, [word(NUMBERS + n)])), 64) for n in range(kernel.scalars)]
        self.tables = [[self._pointer(a, t, kind) for t in range(kernel.tables)] for a, kind in enumerate((INT16, INT32, INT32))]
        height, breadth = BLOCKS[kernel.form] if kernel.sum_width else (2 * ROWS if self._saturating() else ROWS, 1)
        self._regions(rows, tiles, height, breadth)
        self.b.ret_void()

    def _regions(self, rows: ir.Value, tiles: ir.Value, height: int, breadth: int) -> None:
        """Compute blocks of so many rows and tiles, then with smaller ones what is left of the rows, and of the tiles."""
        b, first = self.b, word(0)
        for high in dict.fromkeys((height, ROWS)):
            groups, column = b.udiv(b.sub(rows, first), word(high)), word(0)
            for broad in dict.fromkeys((breadth, 1)):
                turns = b.udiv(b.sub(tiles, column), word(broad))
                self._region((first, groups, high), (column, turns, broad))
                column = b.mul(turns, word(broad))
            first = b.mul(groups, word(high))

    def _region(self, rows: Part, tiles: Part) -> None:
        """Compute the blocks of a part of the rows and of the tiles."""
        self._loop(tiles[1], lambda t: self._loop(rows[1], lambda g: self._tile(self._numbers(rows, g), self._numbers(tiles, t))))

    def _numbers(self, part: Part, turn: ir.Value) -> list[ir.Value]:
        """Return the numbers of a block's rows, or tiles."""
        first, _, size = part
        start = self.b.add(first, self.b.mul(turn, word(size)))
        return [self.b.add(start, word(n)) for n in range(size)]

    def _pointer(self, argument: int, table: int, kind: ir.IntType) -> ir.Value:
        raw = self.b.load(self.b.gep(self.function.args[argument], [word(table)]))
        return self.b.bitcast(raw, kind.as_pointer())

    def _loop(self, extent: ir.Value, inner: Any, carried: list[ir.Value] | None = None) -> list[ir.Value]:
        return emitted_loop(self.b, extent, inner, carried)

    def _tile(self, rows: list[ir.Value], tiles: list[ir.Value]) -> None:
        """Compute a block: rows of a tile of columns, or of several for a plain sum."""
        b = self.b
        bases = [[self._offset(1, t, row) for t in range(self.k.tables)] for row in rows]
        places = [b.add(b.mul(row, self.width), b.mul(tile, word(self.lanes))) for row in rows for tile in tiles]
        starts = [self.words.const(0, 32)] * len(places)
        if self.k.has_start:
            first = [b.add(b.mul(row, self.apart), b.mul(tile, word(self.lanes))) for row in rows for tile in tiles]
            starts = [self._vector(b.gep(self.start, [p])) for p in first]
        narrow = self._saturating()
        size = b.mul(self.steps, word(self.k.slots * self.lanes))
        columns = [b.gep(self.columns, [b.mul(tile, size)]) for tile in tiles]

        def step(k: ir.Value, accumulators: list[ir.Value], code: Code = self.k.code) -> list[ir.Value]:
            first = b.mul(k, word(self.k.slots * self.lanes))
            vectors = [[self._vector(b.gep(c, [b.add(first, word(s * self.lanes))])) for s in range(self.k.slots)] for c in columns]
            offsets = [self._offset(2, t, k) for t in range(self.k.tables)]
            if self.k.sum_width:
                return self._summed(accumulators, bases, offsets, vectors)
            if code is not self.k.code or not narrow:
                return self._stepped(code, accumulators, bases, offsets, vectors[0])
            terms = self._stepped(narrow, [self.words.const(0, 32)] * len(bases), bases, offsets, vectors[0])
            return [self._saturated(acc, *terms[2 * n : 2 * n + 2]) for n, acc in enumerate(accumulators)]

        count = b.sub(self.steps, word(1)) if self.k.last else self.steps
        ends = self._loop(count, step, self._paired(starts) if narrow else starts)
        ends = self._unpaired(ends) if narrow else ends
        if self.k.last:
            ends = step(count, ends, self.k.last)
        kind = element_type(self.k.kind)
        for place, x in zip(places, ends, strict=True):
            narrow = resized(b, x, ir.VectorType(kind, self.lanes))
            b.store(narrow, b.bitcast(b.gep(self.out, [place]), narrow.type.as_pointer()), align=1)

    def _summed(self, sums: list[Any], bases: list[list[Any]], offsets: list[Any], tiles: list[list[Any]]) -> list[Any]:
        """Return the sums of a block, row by row, after a step: every pair of A is read once for all tiles."""
        places = [self.b.add(base[0], offsets[0]) for base in bases]
        for slot in range(self.k.sum_width // 2):
            pairs = [self._pair(self.b.gep(self.tables[0][0], [self.b.add(p, word(2 * slot))])) for p in places]
            factors = [(self.words.splat(x, 32), vectors[slot]) for x in pairs for vectors in tiles]
            sums = [self._added(s, x, y) for s, (x, y) in zip(sums, factors, strict=True)]
        return sums

    # -- accumulators of 16 bits that saturate, those of two rows in one vector

    def _saturating(self) -> Code:
        """Return the code of what a step adds, where it is clamped to 16 bits, added, and the sum clamped again; else nothing."""
        code = self.k.code
        if not self.k.form.startswith("avx512") or "avx512bw" not in host()[1] or self.k.kind != "<i2":
            return ()
        total = _clamped(code, len(code) - 1)
        if total is None or code[total].name != "add":
            return ()
        terms = [n for n in code[total].args if code[n].name != "acc"]
        inner = _clamped(code, terms[0]) if len(terms) == 1 else None
        is_alone = inner is not None and all(op.name != "acc" and op.width == 32 for op in code[: inner + 1])
        return code[: inner + 1] if is_alone and inner is not None else ()

    def _saturated(self, acc: ir.Value, first: ir.Value, second: ir.Value) -> ir.Value:
        """Return the accumulators of two rows after a step."""
        wide, half = first.type, ir.VectorType(INT16, 2 * self.lanes)
        pack = declared(self.module, "llvm.x86.avx512.packssdw.512", ir.FunctionType(half, [wide, wide]))
        add = declared(self.module, "llvm.sadd.sat.v32i16", ir.FunctionType(half, [half, half]))
        return self.b.call(add, [acc, self.b.call(pack, [first, second])])

    def _paired(self, rows: list[ir.Value]) -> list[ir.Value]:
        """Return words of 32 bits as accumulators, in the order in which the processor packs two rows: four and four."""
        narrow = [resized(self.b, x, ir.VectorType(INT16, self.lanes)) for x in rows]
        order = [x for n in range(0, self.lanes, 4) for x in (*range(n, n + 4), *range(self.lanes + n, self.lanes + n + 4))]
        return [self._shuffled(narrow[n], narrow[n + 1], order) for n in range(0, len(rows), 2)]

    def _unpaired(self, pairs: list[ir.Value]) -> list[ir.Value]:
        """Return the rows of accumulators as words of 32 bits."""
        orders = [[8 * n + first + j for n in range(self.lanes // 4) for j in range(4)] for first in (0, 4)]
        rows = [self._shuffled(x, x, order) for x in pairs for order in orders]
        return [resized(self.b, x, ir.VectorType(INT32, self.lanes)) for x in rows]

    def _shuffled(self, x: ir.Value, y: ir.Value, order: list[int]) -> ir.Value:
        return self.b.shuffle_vector(x, y, ir.Constant(ir.VectorType(INT32, len(order)), order))

    def _offset(self, argument: int, table: int, n: ir.Value) -> ir.Value:
        return self.b.sext(self.b.load(self.b.gep(self.tables[argument][table], [n])), WORD)

    def _vector(self, place: ir.Value) -> ir.Value:
        return self.b.load(self.b.bitcast(place, ir.VectorType(INT32, self.lanes).as_pointer()), align=4)

    def _stepped(self, code: Code, accs: list[Any], bases: list[list[Any]], offsets: list[Any], vectors: list[Any]) -> list[Any]:
        """Return what a step makes of the accumulators of rows; their products take turns, as each waits for the one before."""
        given: list[dict[int, Any]] = [{} for _ in bases]
        more = _added_to_sums(code)
        for n, op in enumerate(code):
            if op.name == "acc":
                found = accs
            elif op.name == "scalar":
                found = [self.words.fit(self.scalars[op.data], op.bits)] * len(bases)
            elif op.name in READING:
                at, start = more.get(n, (n, 0))
                found = self._products(op, bases, offsets, vectors, start)
                for row, x in zip(given, found, strict=True):
                    row[at] = x
            else:
                continue
            for row, x in zip(given, found, strict=True):
                row[n] = x
        return [self.words.fit(self.words.run(code, row)[-1], 32) for row in given]

    def _products(self, op: Op, bases: list[list[Any]], offsets: list[Any], vectors: list[Any], start: int) -> list[Any]:
        table, delta, slot, pairs = op.data
        places = [self.b.add(self.b.add(base[table], offsets[table]), word(delta)) for base in bases]
        totals = [self.words.const(start, 32) if start else None] * len(bases)
        for p in range(max(pairs, 1)):
            for row, at in enumerate(places):
                place = self.b.gep(self.tables[0][table], [self.b.add(at, word(2 * p))])
                pair = self._pair(place) if pairs else self.b.zext(self.b.load(place, align=2), INT32)
                x = self.words.splat(pair, 32)
                if op.name == "high":
                    totals[row] = self._added(totals[row], self._high(x, vectors[slot + p]), self.words.const(ONES, 32))
                else:
                    totals[row] = self._added(totals[row], x, vectors[slot + p])
        return totals

    def _high(self, x: ir.Value, y: ir.Value) -> ir.Value:
        """Return the high halves of the products of 16-bit halves."""
        halves = ir.VectorType(INT16, 2 * self.lanes)
        multiply = declared(self.module, "llvm.x86.avx512.pmulh.w.512", ir.FunctionType(halves, [halves, halves]))
        return self.b.bitcast(self.b.call(multiply, [self.b.bitcast(v, halves) for v in (x, y)]), x.type)

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


def _added_to_sums(code: Code) -> dict[int, tuple[int, int]]:
    """Return the sums of products to which nothing but a constant is added: the operator that adds it, and the constant."""
    uses = Counter(a for op in code for a in op.args)
    found = {}
    for n, op in enumerate(code):
        if op.name == "add" and {op.bits, op.width} == {32}:
            ends = sorted(op.args, key=lambda a: code[a].name == "const")
            if code[ends[0]].name == "dot" and code[ends[1]].name == "const" and uses[ends[0]] == 1:
                found[ends[0]] = (n, code[ends[1]].data)
    return found


def _clamped(code: Code, n: int) -> int | None:
    """Return the operator that operator `n` clamps to 16 bits with a sign; None where it does not."""
    ends = {"min": 32767, "max": -32768}
    for _ in range(2):
        op = code[n]
        limit = [a for a in op.args if code[a].name == "const" and code[a].data == ends.get(op.name)]
        if len(limit) != 1 or len(op.args) != 2:
            return None
        ends.pop(op.name)
        n = op.args[1 - op.args.index(limit[0])]
    return n


@dataclass(frozen=True, eq=False)
class Folding:
    """A recorded fold from zero over one table of A, by columns that do not change: offsets of rows and steps, and numbers."""

    kernel: Kernel
    rows: Any
    steps: Any
    columns: Any
    numbers: Any

    @property
    def width(self) -> int:
        """How many elements of A, side by side, a step multiplies; 0 where the fold is not a plain sum of products."""
        return self.kernel.sum_width

    def factors(self) -> Any:
        """Return B as [columns, elements of A]."""
        tiles, steps, words, lanes = self.columns.shape
        return np.ascontiguousarray(self.columns.transpose(0, 3, 1, 2)).reshape(tiles * lanes, steps * words).view(np.int16)

    def over(self, out: Any, rows: Any, steps: Any, factors: Any, width: int) -> Ran:
        """Return a call of the same sum over other places of A, `width` elements a step; B is [columns, elements of A]."""
        tiles, _, _, lanes = self.columns.shape
        words = np.ascontiguousarray(factors, np.int16).view(np.int32).reshape(tiles, lanes, len(steps), width // 2)
        columns = np.ascontiguousarray(words.transpose(0, 2, 3, 1))
        kernel = replace(self.kernel, code=(Op("acc"), Op("dot", (), (0, 0, 0, width // 2)), Op("add", (0, 1))), slots=width // 2)
        given = self.numbers.copy()
        given[2] = len(steps)
        f = _function(kernel, [(None, rows, steps)], given)
        kept = (columns, *f.tables[0][1:], f.numbers)
        offsets = [(ctypes.c_void_p * 1)(x.ctypes.data) for x in kept[1:3]]

        def bind(places: Sequence[int]) -> Any:
            result, data = places
            return partial(f.run, (ctypes.c_void_p * 1)(data), *offsets, kept[0].ctypes.data, None, result, kept[-1].ctypes.data)

        span = Span(np.zeros(1, np.int16), 0, 1)
        return Ran(out, [span], bind, None, None)


@dataclass(frozen=True, eq=False)
class Started:
    """Which read has the values that a recorded fold starts at, those of a row, and the same fold where every row starts at them."""

    read: int
    row: int
    alike: Ran


def run_fold(kernel: Kernel, a: Tables, b: Any, start: Any, out: Any, numbers: list[int], tape: Tape | None = None) -> None:
    """Call a kernel: for each table of A its array and offsets, packed columns, start values and the result's array."""
    given = np.array([*numbers[:4], numbers[3], *numbers[4:]], np.int64)
    if tape is not None:
        _recorded(tape, kernel, a, b, start, out, given)()
        return
    f = _function(kernel, a, given)
    pointers = [(ctypes.c_void_p * len(a))(*(x[n].ctypes.data for x in f.tables)) for n in range(3)]
    f.run(*pointers, b.ctypes.data, start.ctypes.data if start is not None else None, out.ctypes.data, f.numbers.ctypes.data)


@dataclass(frozen=True, eq=False)
class _Function:
    """What computes a fold, and the tables of A and the numbers that it takes; what does where B's tiles are taken apart, if any."""

    tables: Tables
    numbers: Any
    made: Callable[[], Any]
    made_split: Callable[[], Any] | None = None

    @property
    def run(self) -> Any:
        """The function."""
        return self.made()


def _function(kernel: Kernel, a: Tables, given: Any) -> _Function:
    found = None
    if kernel.form == native_amx.FORM and kernel.sum_width:
        tiling = native_amx.Tiling(kernel.kind, kernel.sum_width, 0, kernel.has_start)
        found = native_amx.ready(tiling, a[0][2], given)
    if found is None:
        return _Function(a, given, lambda: fold_function(kernel)[1])
    made = partial(native_amx.tiled_function, found.tiling)
    made_split = partial(native_amx.tiled_function, replace(found.tiling, split=True))
    return _Function([(*a[0][:2], found.steps)], found.numbers, made, made_split)


def _recorded(tape: Tape, kernel: Kernel, a: Tables, b: Any, start: Any, out: Any, given: Any) -> Ran:
    """Record a call; its arrays are the result, B, the start values where there are some, and each table's."""
    f, columns = _function(kernel, a, given), tape.steady(b)
    ends = [int(rows.max()) + int(steps.max()) for _, rows, steps in a]
    reads = [Span(columns, 0, b.size), *([] if start is None else [Span(tape.steady(start), 0, start.size)])]
    for n, (data, _, _) in enumerate(a):
        low, high = _reach(kernel, n)
        reads.append(Span(tape.steady(data), low, ends[n] + high))
    offsets = [(ctypes.c_void_p * len(a))(*(tape.address(x[n]) for x in f.tables)) for n in (1, 2)]
    split = None if f.made_split is None or tape.owns(b) else tape.once(columns, native_amx.split)
    made, made_split = f.made, f.made_split  # the function's tables would keep blocks of the tape in use

    def bound(numbers: Any) -> Callable[[Sequence[int]], Any]:
        def bind(places: Sequence[int]) -> Any:
            result, packed, *rest = places
            run = made
            if split is not None and made_split is not None and packed == columns.ctypes.data:
                run, packed = made_split, split.ctypes.data
            first = None if start is None else rest.pop(0)
            return partial(run(), (ctypes.c_void_p * len(rest))(*rest), *offsets, packed, first, result, numbers.ctypes.data)

        return bind

    same = (*(x.tobytes() for _, rows, steps in a for x in (rows, steps)), given.tobytes())
    call = Ran(tape.steady(out), reads, bound(f.numbers), None, (kernel, same))
    if start is not None:
        repeated = f.numbers.copy()
        repeated[NUMBERS - 1] = 0
        call.started = Started(1, int(given[3]), Ran(tape.steady(out), reads, bound(repeated), None, None))
    if len(a) == 1 and start is None and not tape.owns(b):
        call.fold = Folding(kernel, a[0][1], a[0][2], columns, given)
    tape.calls.append(call)
    return call


def _reach(kernel: Kernel, table: int) -> tuple[int, int]:
    """Return from where to before where code reads a table, from the elements at its offsets on."""
    found = [op for op in (*kernel.code, *kernel.last) if op.name in READING and op.data[0] == table]
    return min(op.data[1] for op in found), max(op.data[1] + max(2 * (op.data[3] if len(op.data) > 3 else 0), 1) for op in found)
