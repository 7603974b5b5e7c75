"""Machine code of blocks of sums of products: eight rows by two tiles of columns stay in registers, A is read where it lies.

A's rows and steps are offsets, B is packed in pairs of tiles: for each step the words of one tile, then those of the other.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from . import native_amx
from .native_fold import FORMS, best_form
from .native_loop import emitted_loop, word
from .native_ops import Words, declared

FORM = "avx512vnni"
LANES, PAIRS = FORMS[FORM]
ROWS, TILES = 8, 2  # sums in registers: 16 of 32
INT16, INT32, FLOAT, BYTE = ir.IntType(16), ir.IntType(32), ir.FloatType(), ir.IntType(8)
VECTOR, FLOATS = ir.VectorType(INT32, LANES), ir.VectorType(FLOAT, LANES)


def is_there() -> bool:
    """Tell whether this processor runs the code."""
    return best_form() in (FORM, native_amx.FORM)


class Tiled:
    """A function under construction: its arguments, and the sums of a block.

    A step has `words` of 32 bits, `apart` elements of A from each other; `product` multiplies their parts and adds them up.
    """

    a: ir.Value
    rows: ir.Value
    steps: ir.Value
    packed: ir.Value
    count: ir.Value  # of steps

    def __init__(self, name: str, kinds: Sequence[ir.Type], words: int, apart: int, product: str) -> None:
        self.module = ir.Module(name)
        self.step_words, self.apart, self.product = words, apart, product
        function = ir.Function(self.module, ir.FunctionType(ir.VoidType(), [k.as_pointer() for k in kinds]), "run")
        for x in function.args:
            x.add_attribute("noalias")
        self.b = ir.IRBuilder(function.append_basic_block("entry"))
        self.words, self.arguments = Words(self.b, LANES), function.args

    def blocks(self, groups: ir.Value, pairs: ir.Value, start: list[ir.Value]) -> list[ir.Value]:
        """Print all blocks; return what the last one has seen."""
        b = self.b
        return emitted_loop(b, groups, lambda g, s: emitted_loop(b, pairs, lambda t, s: self.block(g, t, s), s), start)

    def block(self, group: ir.Value, pair: ir.Value, seen: list[ir.Value]) -> list[ir.Value]:
        """Print a group of rows by a pair of tiles; return what was seen."""
        raise NotImplementedError

    def rows_of(self, group: ir.Value) -> list[ir.Value]:
        """Return the numbers of a block's rows."""
        return [self.b.add(self.b.mul(group, word(ROWS)), word(r)) for r in range(ROWS)]

    def tiles_of(self, pair: ir.Value) -> list[ir.Value]:
        """Return the numbers of a block's tiles."""
        return [self.b.add(self.b.mul(pair, word(TILES)), word(t)) for t in range(TILES)]

    def sums(self, rows: Sequence[ir.Value], pair: ir.Value, start: list[ir.Value]) -> list[ir.Value]:
        """Return the sums of a block, row by row, from those that it starts with."""
        b, size = self.b, self.step_words * TILES * LANES
        bases = [b.gep(self.a, [self.word(self.rows, row)]) for row in rows]
        column = b.gep(self.packed, [b.mul(pair, b.mul(self.count, word(size)))])

        def step(k: ir.Value, sums: list[ir.Value]) -> list[ir.Value]:
            slots = b.gep(column, [b.mul(k, word(size))])
            offset = self.word(self.steps, k)
            for w in range(self.step_words):
                vectors = [self.vector(b.gep(slots, [word((TILES * w + t) * LANES)])) for t in range(TILES)]
                factors = [self._factor(b.gep(base, [b.add(offset, word(self.apart * w))])) for base in bases]
                sums = [self._added(s, factors[n // TILES], vectors[n % TILES]) for n, s in enumerate(sums)]
            return sums

        return emitted_loop(b, self.count, step, start)

    def word(self, array: ir.Value, n: ir.Value) -> ir.Value:
        """Return an element of an array."""
        return self.b.load(self.b.gep(array, [n]))

    def vector(self, place: ir.Value) -> ir.Value:
        """Return the words from a place on."""
        return self.b.load(self.b.bitcast(place, VECTOR.as_pointer()), align=4)

    def lanes(self, mask: ir.Value) -> ir.Value:
        """Return the lanes that the bits of a word name."""
        return self.b.bitcast(self.b.trunc(mask, INT16), ir.VectorType(ir.IntType(1), LANES))

    def store(self, value: ir.Value, place: ir.Value, lanes: ir.Value) -> None:
        """Write some lanes of floats."""
        kind = ir.FunctionType(ir.VoidType(), [FLOATS, FLOATS.as_pointer(), INT32, lanes.type])
        written = declared(self.module, f"llvm.masked.store.v{LANES}f32.p0", kind)
        self.b.call(written, [value, self.b.bitcast(place, FLOATS.as_pointer()), ir.Constant(INT32, 4), lanes])

    def _factor(self, place: ir.Value) -> ir.Value:
        return self.words.splat(self.b.load(self.b.bitcast(place, INT32.as_pointer()), align=1), 32)

    def _added(self, total: ir.Value, x: ir.Value, y: ir.Value) -> ir.Value:
        return self.b.call(declared(self.module, self.product, ir.FunctionType(VECTOR, [VECTOR] * 3)), [total, x, y])
