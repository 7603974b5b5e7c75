"""GeneSys's systolic array: its loops, strides, bases and transfers as a configuration, and what one tile of it does.

Nothing happens before the group's end. Loops 0–6 are those of tiles and 7–13 those inside of a tile, both in the order output
channels, batch, input channels, kernel rows and columns, output rows and columns; the others count the requests of a transfer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from rewrite_compiler.ila import Fields, Ila, joined
from rewrite_compiler.lang import (
    Expr,
    Leaf,
    Step,
    all_of,
    array,
    assign,
    clamp,
    let,
    lift,
    loop,
    reduce_sum,
    require,
    select,
    seq,
    signed,
    switch,
    update,
    when,
    wrap,
)  # fmt: skip

from .config import BLOCK_ROWS, Config
from .words import BASE, BBUF, IBUF, LD, LOOP_CFG, OBUF, OPCODE, RD, REDUCTION, ST, STRIDE, TRANSFER, WBUF, WR, with_half

LOOPS = 64
TILE, INSIDE = range(7), range(7, 14)
REDUCED = (2, 3, 4)  # of the loops of tiles: input channels, kernel rows, kernel columns
MOST_REQUESTS = (1 << 31) - 1
# access and buffer → its own loops, the outermost first, and the port
OWN_LOOPS = {
    (LD, IBUF): (range(14, 18), "ibuf"),
    (LD, WBUF): (range(20, 24), "param"),
    (LD, OBUF): (range(24, 28), "obuf"),
    (LD, BBUF): (range(28, 29), "param"),
    (ST, OBUF): (range(29, 33), "obuf"),
}
# the operands of a position: inputs, weights, bias, sums before and after
ROWS = ((RD, IBUF), (RD, WBUF), (RD, BBUF), (RD, OBUF), (WR, OBUF))
SUMS = (3, 4)  # of these operands
OUTPUTS = (0, 6, 5, 1)  # the loops that are no reduction, the one of the nearest rows first
NAMES = {WBUF: "WBUF", IBUF: "IBUF", OBUF: "OBUF", BBUF: "BBUF"}


def declare_systolic(m: Ila, c: Config) -> None:
    """Declare the configuration and the instructions that set it."""
    m.register("loop_count", 17, shape=(LOOPS,), reset=1, doc="Iterations of the loops; 1 where a loop was not configured.")
    m.register("loop_stride", 32, shape=(4, 4, LOOPS), signed=True, doc="Strides by access and buffer: bytes of transfers, else rows.")
    m.register("buffer_base", 32, shape=(4,), signed=True, doc="Port addresses of the buffers' first bytes.")
    m.register("transfer_size", 16, shape=(2, 4), doc="Bytes a bank of a request, by direction and buffer; 0 where there is no transfer.")
    is_reduction = m.word("data", 27, 27)
    m.encoded("sa_loop_cfg", {"opcode": OPCODE, **LOOP_CFG}, {"opcode": 9}, partial(_loop_cfg, m), extra=is_reduction == 0,
              doc="Set the iterations of a loop, less one.")  # fmt: skip
    m.encoded("sa_reduction_loop", {"opcode": OPCODE, **REDUCTION}, {"opcode": 9}, _reduction, extra=is_reduction == 1, sets={},
              doc="Say that a loop of tiles or inside of one is a reduction; which ones are is fixed.")  # fmt: skip
    m.encoded("set_loop_stride", {"opcode": OPCODE, **STRIDE}, {"opcode": 12}, partial(_stride, m), doc="Set half of a stride.")
    m.encoded("set_base_addr", {"opcode": OPCODE, **BASE}, {"opcode": 13}, partial(_base, m), doc="Set half of a buffer's port address.")
    m.encoded("ld_st", {"opcode": OPCODE, **TRANSFER}, {"opcode": 14}, partial(_transfer, m),
              doc="Add a transfer to the group; of instruction memory, nothing: blocks come as a stream.")  # fmt: skip


def start_group(m: Ila) -> Step:
    """Return the step that forgets the loops and transfers of an earlier group."""
    return seq(
        update(m.s.loop_count, LOOPS, lambda n: (n, 1)),
        update(m.s.loop_stride, (4, 4, LOOPS), lambda a, b, n: ((a, b, n), 0)),
        update(m.s.transfer_size, (2, 4), lambda d, b: ((d, b), 0)),
    )


def zero(f: Fields, name: str, instruction: str) -> Step:
    """Return the refusal of a reserved field that is not 0."""
    return require(f[name] == 0, "I102", f"the {name} bits of {instruction} must be 0, not {{bits}}", always=True, bits=f[name])


def _loop_cfg(m: Ila, f: Fields) -> Step:
    return seq(zero(f, "reserved", "sa_loop_cfg"), assign(m.s.loop_count, f.count + 1, f.loop))


def _reduction(f: Fields) -> Step:
    inside = all_of([f.loop >= REDUCED[0], f.loop <= REDUCED[-1]])
    sentence = "loop {loop} cannot be a reduction: only loops 2, 3 and 4 are"
    return seq(
        require(f.reserved == 32, "I102", "the reserved bits of sa_reduction_loop must be 32, not {bits}", always=True, bits=f.reserved),
        require(inside, "I102", sentence, always=True, loop=f.loop),
    )


def _stride(m: Ila, f: Fields) -> Step:
    index = (f.access % 4, f.buffer, f.loop)
    known = require(f.access < 4, "I102", "the access of set_loop_stride must be at most 3, not {access}", always=True, access=f.access)
    return seq(known, assign(m.s.loop_stride, with_half(m.s.loop_stride[index], f.half, f.immediate), *index))


def _base(m: Ila, f: Fields) -> Step:
    buffer = f.buffer % 4
    base = assign(m.s.buffer_base, with_half(m.s.buffer_base[buffer], f.half, f.immediate), buffer)
    return seq(zero(f, "reserved", "set_base_addr"), _known_buffer(f, "set_base_addr"), when(f.memory == 0, base))


def _known_buffer(f: Fields, name: str) -> Step:
    return require(f.buffer < 4, "I102", f"the buffer of {name} must be at most 3, not {{buffer}}", always=True, buffer=f.buffer)


def _transfer(m: Ila, f: Fields) -> Step:
    at = f.direction, f.buffer % 4
    own = lift(0)
    for (access, buffer), (ids, _) in OWN_LOOPS.items():
        own = own | ((f.direction == access) & (f.buffer == buffer) & (f.loop == ids[-1]))
    sentence = "a transfer of buffer {buffer} cannot count in loop {loop}: LD has 17 (IBUF), 23 (WBUF), 27 (OBUF), 28 (BBUF), ST 32 (OBUF)"
    twice = "a group can load a buffer, or store it, once"
    added = seq(
        require(own, "I102", sentence, always=True, buffer=f.buffer, loop=f.loop),
        require(m.s.transfer_size[at] == 0, "I102", twice, always=True),
        assign(m.s.transfer_size, f.size, *at),
    )
    return seq(_known_buffer(f, "ld_st"), when(f.memory == 0, added))


# -- one tile


class Tile:
    """The steps of one tile, whose indices are those of the loops of tiles."""

    def __init__(self, m: Ila, c: Config, indices: Sequence[Expr]) -> None:
        """Make it of a model, its design and the indices."""
        self.m, self.c, self.indices = m, c, indices
        self.is_first = all_of(indices[n] == 0 for n in REDUCED)
        self.is_last = all_of(indices[n] == m.s.loop_count[n] - 1 for n in REDUCED)

    def run(self) -> Step:
        """Load, compute, store."""
        return seq(self._transfers(LD), self._compute(), self._transfers(ST))

    def _transfers(self, access: int) -> Step:
        """The transfers of a direction: each has a buffer of its own, so that their order does not matter."""
        sizes = {b: self.m.s.transfer_size[access, b] for a, b in OWN_LOOPS if a == access}
        return seq(*(when(size > 0, self._transfer(access, b, size)) for b, size in sizes.items()))

    def _transfer(self, access: int, buffer: int, size: Expr) -> Step:
        """Move all requests of a transfer, one after the other, to or from consecutive rows."""
        s, c = self.m.s, self.c
        ids, port = OWN_LOOPS[access, buffer]
        banks = {IBUF: c.array_n, WBUF: c.array_n * c.array_m}.get(buffer, c.array_m)
        row_bytes = {IBUF: c.array_n, WBUF: c.array_n * c.array_m}.get(buffer, 4 * c.array_m)
        base = s.buffer_base[buffer] + sum((t * s.loop_stride[access, buffer, n] for n, t in enumerate(self.indices)), lift(0))
        counts = [s.loop_count[n] for n in ids]
        rows = size * banks // row_bytes
        memory = self.m.externals[f"dram_{port}"]

        def request(*u: Expr) -> Step:
            offset = sum((k * s.loop_stride[access, buffer, n] for k, n in zip(u, ids, strict=True)), lift(0))
            address, number = wrap(base + offset, 32, False), lift(0)
            for k, count in zip(u, counts, strict=True):
                number = clamp(number * count + k, 0, MOST_REQUESTS)
            first = number * rows
            name = f"{'LD' if access == LD else 'ST'} {NAMES[buffer]}"
            verb = "reads" if access == LD else "writes"
            there = memory.words(8).require(
                address,
                address + rows * row_bytes - 1,
                f"{name} {verb} the bytes {{first}}…{{last}}; the {port} port has {{start}}…{{end}}",
            )
            depth = self._depth(buffer)
            filled = "writes" if access == LD else "reads"
            sentence = f"{name} {filled} the rows {{first}}…{{last}}; the buffer has {depth}"
            fits = require(first + rows <= depth, "I103", sentence, always=True, first=first, last=first + rows - 1)
            return seq(there, fits, _MOVES[access, buffer](self.m, c, memory.index(address), first, rows))

        whole = require(size * banks % (row_bytes * (BLOCK_ROWS if buffer == WBUF else 1)) == 0, "I102",
                        f"a request of {NAMES[buffer]} must be whole rows, not {{size}} bytes a bank", always=True, size=size)  # fmt: skip
        moved = seq(whole, when(rows > 0, loop(counts, request)))
        # the sums of a first step are not read, so that the port may be without memory
        return when(memory.is_attached, moved) if (access, buffer) == (LD, OBUF) else moved

    def _compute(self) -> Step:
        """Add the products of all positions of the loops inside of the tile, in order; a first step starts at the bias."""
        s = self.m.s
        strides = array(lambda n, k: switch(n, *(s.loop_stride[a, b, k + INSIDE[0]] for a, b in ROWS)), (len(ROWS), len(INSIDE)))

        def nest(stride: Leaf) -> Step:
            in_order = loop([s.loop_count[n] for n in INSIDE], lambda *j: self._position(stride, j))
            return when(self._is_apart(stride), self._by_taps(stride), in_order)

        return seq(*self._rows_exist(), let(strides, nest, "strides"))

    def _is_apart(self, stride: Leaf) -> Expr:
        """Whether every sum has a row of its own which the reduction does not leave."""
        counts = {n: self.m.s.loop_count[INSIDE[n]] for n in range(len(INSIDE))}
        conditions: list[Expr] = []
        for operand in SUMS:
            conditions += [(counts[n] == 1) | (stride[operand, n] == 0) for n in REDUCED]
        conditions += [(counts[n] == 1) | (stride[SUMS[0], n] == stride[SUMS[1], n]) for n in OUTPUTS]
        extent = lift(1)
        for n in OUTPUTS:
            step, is_single = stride[SUMS[1], n], counts[n] == 1
            conditions.append(is_single | (step >= extent))
            extent = select(is_single, extent, clamp((counts[n] - 1) * step + extent, 0, MOST_REQUESTS))
        return all_of(conditions)

    def _by_taps(self, stride: Leaf) -> Step:
        """Start all sums of a tile, and add to all of them at once what each step of the reduction gives."""
        s, c = self.m.s, self.c
        outer = [s.loop_count[INSIDE[n]] for n in OUTPUTS]
        row = partial(self._row, stride)

        def start(*indices: Expr) -> tuple[tuple[Expr, Expr], Expr]:
            *outputs, k = indices
            place = dict(zip(OUTPUTS, outputs, strict=True))
            return (row(4, place), k), s.bbuf[row(2, place), k]

        def tap(*reduced: Expr) -> Step:
            def total(*indices: Expr) -> tuple[tuple[Expr, Expr], Expr]:
                *outputs, k = indices
                place = dict(zip(OUTPUTS, outputs, strict=True))
                at = place | dict(zip(REDUCED, reduced, strict=True))
                dot = reduce_sum(lambda n: s.ibuf[row(0, at), n] * s.wbuf[row(1, at), k, n], c.array_n)
                return (row(4, place), k), signed(s.obuf[row(4, place), k] + dot, 32)

            return update(s.obuf, (*outer, c.array_m), total)

        started = when(self.is_first, update(s.obuf, (*outer, c.array_m), start))
        return seq(started, loop([s.loop_count[INSIDE[n]] for n in REDUCED], tap))

    def _row(self, stride: Leaf, operand: int, indices: Mapping[int, Expr]) -> Expr:
        row = sum((i * stride[operand, n] for n, i in indices.items()), lift(0))
        return row % self._depth(ROWS[operand][1])

    def _position(self, stride: Leaf, j: Sequence[Expr]) -> Step:
        """One row of inputs times one block of weights."""
        s, c = self.m.s, self.c
        starts = self.is_first & all_of(j[n] == 0 for n in REDUCED)

        def rows(n: int, known: tuple[Expr, ...]) -> Step:
            """Give names to the rows of the operands, one after the other."""
            if n == len(ROWS):
                return products(*known)
            return let(array(lambda: self._row(stride, n, dict(enumerate(j))), ()), lambda name: rows(n + 1, (*known, name[()])), "row")

        def products(x: Expr, w: Expr, bias: Expr, total: Expr, result: Expr) -> Step:
            dots = array(lambda k: reduce_sum(lambda n: s.ibuf[x, n] * s.wbuf[w, k, n], c.array_n), c.array_m)

            def add(dot: Leaf) -> Step:
                def onto(start: Callable[[Expr], Expr]) -> Step:
                    return update(s.obuf, c.array_m, lambda k: ((result, k), signed(start(k) + dot[k], 32)))

                return when(starts, onto(lambda k: s.bbuf[bias, k]), onto(lambda k: s.obuf[total, k]))

            return let(dots, add, "dots")

        return rows(0, ())

    def _depth(self, buffer: int) -> int:
        return int(vars(self.c)[f"{NAMES[buffer].lower()}_depth"])

    def _rows_exist(self) -> list[Step]:
        """Return the checks that the last rows, with strides that ascend, lie in their buffers."""
        s, checks = self.m.s, []
        for access, buffer in ROWS:
            name, depth = NAMES[buffer], self._depth(buffer)
            last = sum(((s.loop_count[n] - 1) * s.loop_stride[access, buffer, n] for n in INSIDE), lift(0))
            sentence = f"a tile {'writes' if access == WR else 'reads'} row {{last}} of {name}, which has {depth}"
            checks.append(require(last < depth, "I103", sentence, always=True, last=last))
        return checks


def _load_rows(name: str, m: Ila, c: Config, at: Expr, first: Expr, rows: Expr) -> Step:
    """Load rows of bytes, or of little-endian words."""
    buffer, memory = m.s[name], {"ibuf": "dram_ibuf", "bbuf": "dram_param", "obuf": "dram_obuf"}[name]
    size, columns, leaf = (1 if name == "ibuf" else 4), int(buffer.shape[1]), m.externals[memory].leaf  # type: ignore[arg-type]

    def word(r: Expr, k: Expr) -> tuple[tuple[Expr, Expr], Expr]:
        byte = at + (r * columns + k) * size
        return ((first + r) % buffer.shape[0], k), signed(joined(lambda n: leaf[byte + n], size), 8 * size)

    return update(buffer, (rows, columns), word)


def _load_weights(m: Ila, c: Config, at: Expr, first: Expr, rows: Expr) -> Step:
    """Load blocks of four rows: of a block, columns descend, then input channels ascend, each with its four rows."""
    n, columns = c.array_n, c.array_m
    leaf = m.externals["dram_param"].leaf

    def weight(r: Expr, k: Expr, i: Expr) -> tuple[tuple[Expr, Expr, Expr], Expr]:
        block, part = r // BLOCK_ROWS, r % BLOCK_ROWS
        byte = ((block * columns + (columns - 1 - k)) * n + i) * BLOCK_ROWS + part
        return ((first + r) % c.wbuf_depth, k, i), signed(leaf[at + byte], 8)

    return update(m.s.wbuf, (rows, columns, n), weight)


def _store_rows(m: Ila, c: Config, at: Expr, first: Expr, rows: Expr) -> Step:
    leaf = m.externals["dram_obuf"].leaf

    def byte(r: Expr, k: Expr, n: Expr) -> tuple[Expr, Expr]:
        return at + (r * c.array_m + k) * 4 + n, wrap(m.s.obuf[(first + r) % c.obuf_depth, k] >> 8 * n, 8, False)

    return update(leaf, (rows, c.array_m, 4), byte)


_MOVES: dict[tuple[int, int], Callable[..., Step]] = {
    (LD, IBUF): partial(_load_rows, "ibuf"),
    (LD, BBUF): partial(_load_rows, "bbuf"),
    (LD, OBUF): partial(_load_rows, "obuf"),
    (LD, WBUF): _load_weights,
    (ST, OBUF): _store_rows,
}
