"""GeneSys SIMD transfers: rows of 32-bit elements between the SIMD port and the vector memories.

A transfer's address is the operand's base, plus the offset of the tile, whose number the base loops take apart, plus those of
the transfer's own loops. Loops go by their number, the lowest outermost.
"""

from __future__ import annotations

from rewrite_compiler.ila import Fields, Ila, joined
from rewrite_compiler.lang import (
    NOTHING,
    Array,
    Expr,
    Leaf,
    Step,
    array,
    assign,
    cases,
    clamp,
    fold,
    fold_arrays,
    let,
    lift,
    loop,
    maximum,
    require,
    select,
    seq,
    signed,
    update,
    wrap,
)  # fmt: skip

from .config import Config
from .words import with_half

LOOPS = 32
MOST = (0, (1 << 31) - 1)
SPACES = {2: "vmem1", 3: "vmem2"}
ELEMENT_BITS = 32


def declare_transfers(m: Ila) -> None:
    """Declare the configuration of transfers, by direction (0 load, 1 store) and space."""
    m.register("operand_base", 32, shape=(2, 4), signed=True, doc="Port addresses of the operands.")
    m.register("operand_row", 32, shape=(2, 4), signed=True, doc="First rows of transfers in a vector memory.")
    for what, doc in {"base": "loops over tiles", "tile": "loops of one transfer"}.items():
        m.register(f"{what}_count", 17, shape=(2, 4, LOOPS), reset=1, doc=f"Iterations of the {doc}.")
        m.register(f"{what}_stride", 32, shape=(2, 4, LOOPS), signed=True, doc=f"Strides of the {doc} in bytes.")


def tiles(m: Ila) -> Expr:
    """Return how many tiles the base loops have: the most of any operand."""
    result = lift(1)
    for direction in range(2):
        for space in SPACES:
            result = maximum(result, _product(m.s.base_count, lift(direction), lift(space)))
    return result


def _product(counts: Leaf, direction: Expr, space: Expr) -> Expr:
    return fold(LOOPS, 1, lambda n, total: clamp(total * counts[direction, space, n], *MOST), MOST)


def _offset(counts: Leaf, strides: Leaf, direction: Expr, space: Expr, number: Expr) -> Expr:
    """Return the offset of the iteration of a number: the innermost loop is the highest."""

    def inner(k: Expr, rest: Array, offset: Array) -> list[Array]:
        at = direction, space, LOOPS - 1 - k
        count = maximum(counts[at], 1)
        return [
            array(lambda: rest[()] // count, ()),
            array(lambda: wrap(offset[()] + rest[()] % count * strides[at], 32, True), ()),
        ]

    start = [array(lambda: clamp(number, *MOST), ()), array(lambda: lift(0), ())]
    return select(number == 0, 0, fold_arrays(LOOPS, start, inner, [MOST, 32])[1][()])  # the first iteration has none


class SimdTransfer:
    """A word of the transfer class: its configuration, or a transfer."""

    def __init__(self, m: Ila, c: Config, function: Expr, f: Fields) -> None:
        """Make it of the function, whose bit 3 is the direction, and the fields."""
        self.m, self.c, self.f = m, c, f
        self.direction, self.kind, self.space = function // 8, function % 8, f.space

    def step(self, tile: Expr | None) -> Step:
        """Return what the word does; transfers are left out without a tile."""
        s, f, side = self.m.s, self.f, (self.direction, self.space)
        at = (*side, f.loop)
        return cases(
            self.kind,
            {
                0: assign(s.operand_base, with_half(s.operand_base[side], f.half, f.immediate), *side),
                1: assign(s.base_count, f.immediate + 1, *at),
                2: assign(s.base_stride, with_half(s.base_stride[at], f.half, f.immediate), *at),
                3: assign(s.tile_count, f.immediate + 1, *at),
                4: assign(s.tile_stride, with_half(s.tile_stride[at], f.half, f.immediate), *at),
                5: NOTHING if tile is None else self._start(tile),
                6: assign(s.operand_row, with_half(s.operand_row[side], f.half, f.immediate), *side),
            },
        )

    def _start(self, tile: Expr) -> Step:
        s, f, side = self.m.s, self.f, (self.direction, self.space)
        known = require(f.loop == ELEMENT_BITS - 1, "I101", "elements of a transfer must have 32 bits, not {bits}", always=True,
                        bits=f.loop + 1)  # fmt: skip
        whole = require(
            f.immediate % 4 == 0, "I102", "a transfer must be whole rows, not {size} bytes a lane", always=True, size=f.immediate
        )
        rows = f.immediate // 4
        base = array(lambda: s.operand_base[side] + _offset(s.base_count, s.base_stride, *side, tile), ())

        def requests(first: Leaf) -> Step:
            return loop(_product(s.tile_count, *side), lambda q: self._request(first, q, rows))

        return seq(known, whole, let(base, requests, "base"))

    def _request(self, base: Leaf, number: Expr, rows: Expr) -> Step:
        s, side = self.m.s, (self.direction, self.space)
        address = array(lambda: wrap(base[()] + _offset(s.tile_count, s.tile_stride, *side, number), 32, False), ())
        first = s.operand_row[side] + number * rows

        def move(a: Leaf) -> Step:
            end = a[()] + rows * 4 * self.c.lanes - 1
            sentence = "a SIMD transfer moves the bytes {first}…{last}; the simd port has {start}…{end}"
            there = self.m.externals["dram_simd"].words(8).require(a[()], end, sentence)
            depth = self.c.vmem_depth
            sentence = f"a SIMD transfer moves the rows {{first}}…{{last}} of a vector memory, which has {depth}"
            inside = (first >= 0) & (first + rows <= depth)
            fits = require(inside, "I103", sentence, always=True, first=first, last=first + rows - 1)
            moves = [
                cases(self.space, {n: step(s[name], a, first, rows) for n, name in SPACES.items()}) for step in (self._load, self._store)
            ]
            return seq(there, fits, cases(self.direction, dict(enumerate(moves))))

        return let(address, move, "address")

    def _load(self, memory: Leaf, address: Leaf, first: Expr, rows: Expr) -> Step:
        port = self.m.externals["dram_simd"]
        at = port.index(address[()])

        def element(r: Expr, k: Expr) -> tuple[tuple[Expr, Expr], Expr]:
            byte = at + (r * self.c.lanes + k) * 4
            return ((first + r) % self.c.vmem_depth, k), signed(joined(lambda n: port.leaf[byte + n], 4), 32)

        return update(memory, (rows, self.c.lanes), element)

    def _store(self, memory: Leaf, address: Leaf, first: Expr, rows: Expr) -> Step:
        port = self.m.externals["dram_simd"]
        at = port.index(address[()])

        def byte(r: Expr, k: Expr, n: Expr) -> tuple[Expr, Expr]:
            value = memory[(first + r) % self.c.vmem_depth, k]
            return at + (r * self.c.lanes + k) * 4 + n, wrap(value >> 8 * n, 8, False)

        return update(port.leaf, (rows, self.c.lanes, 4), byte)
