"""GeneSys's arrays on drawn programs, beside interpreters of the specification in Python's integers, word by word.

Programs of the SIMD array set iterators and scalars in every way, move rows in nested requests and tiles, and apply functions in
nests of up to eight loops whose rows may meet, go backwards or wrap around, in all buffers and number types. Tiles of the systolic
array have drawn loops and strides. Memories begin with drawn contents.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

import numpy as np
import pytest
from genesys_programs import small, words

from rewrite_compiler.ila import Ila, Stream
from rewrite_compiler.ila_models.genesys.programs import Word
from rewrite_compiler.ila_models.genesys.words import SIMD

LANES, DEPTH, PORT = 4, 24, 4096
END: list[Word] = [("sync_inst", {"unit": SIMD, "phase": 1}), ("block_end", {"last": 1})]
BUFFERS = ("obuf", "ibuf", "vmem1", "vmem2")
IMM = 4
FUNCTIONS: Mapping[str, Callable[[int, int, int, int, int], int]] = {  # of both sources, the old result, the flag, the fraction
    "add": lambda a, b, old, flag, f: a + b, "sub": lambda a, b, old, flag, f: a - b, "mul": lambda a, b, old, flag, f: a * b >> f,
    "macc": lambda a, b, old, flag, f: old + (a * b >> f), "max": lambda a, b, old, flag, f: max(a, b),
    "div": lambda a, b, old, flag, f: 0 if b == 0 else abs(a << f) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
    "min": lambda a, b, old, flag, f: min(a, b), "rshift": lambda a, b, old, flag, f: a >> min(max(b, 0), 31),
    "lshift": lambda a, b, old, flag, f: a << min(max(b, 0), 31), "move": lambda a, b, old, flag, f: a,
    "cond_move_true": lambda a, b, old, flag, f: a if flag else old, "cond_move_false": lambda a, b, old, flag, f: old if flag else a,
    "not": lambda a, b, old, flag, f: ~a, "and": lambda a, b, old, flag, f: a & b, "or": lambda a, b, old, flag, f: a | b,
    "equal": lambda a, b, old, flag, f: a == b, "neq": lambda a, b, old, flag, f: a != b, "gt": lambda a, b, old, flag, f: a > b,
    "gte": lambda a, b, old, flag, f: a >= b, "lt": lambda a, b, old, flag, f: a < b, "lte": lambda a, b, old, flag, f: a <= b,
    "relu": lambda a, b, old, flag, f: max(a, 0), "leaky_relu": lambda a, b, old, flag, f: a * b >> f if a < 0 else a,
    "abs": lambda a, b, old, flag, f: abs(a), "sign": lambda a, b, old, flag, f: (a > 0) - (a < 0),
    "tanh": lambda a, b, old, flag, f: min(max(a, -(1 << f)), 1 << f),
    "floor": lambda a, b, old, flag, f: a >> f << f, "ceil": lambda a, b, old, flag, f: -(-a >> f << f),
    "cast_32_16": lambda a, b, old, flag, f: signed(a, 16), "cast_32_8": lambda a, b, old, flag, f: signed(a, 8),
    "cast_32_4": lambda a, b, old, flag, f: signed(a, 4), "cast_16_32": lambda a, b, old, flag, f: signed(a, 16),
    "cast_8_32": lambda a, b, old, flag, f: signed(a, 8), "cast_4_32": lambda a, b, old, flag, f: signed(a, 4),
}  # fmt: skip
COMPARISONS = ("equal", "neq", "gt", "gte", "lt", "lte")


def signed(x: int, bits: int) -> int:
    return (int(x) + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def with_half(old: int, half: int, immediate: int) -> int:
    kept = old % (1 << 32) & (0xFFFF if half else 0xFFFF0000)
    return signed(kept | immediate << 16 * half, 32)


class Interpreter:
    """The state of the array, and what words do to it."""

    def __init__(self, memories: dict[str, np.ndarray], port: np.ndarray) -> None:
        self.memories = {name: x.astype(object) for name, x in memories.items()}
        self.port, self.flags, self.imm = bytearray(port.tobytes()), [0] * LANES, [0] * 32
        self.fraction, self.bases, self.strides = 0, dict[tuple[int, int], int](), dict[tuple[int, int], int]()
        self.counts, self.places, self.depth = [0] * 8, [dict[str, int]()] * 8, 0
        self.operand = {(side, space, what): 0 for side in "ls" for space in (2, 3) for what in ("base", "row")}
        self.loops: dict[tuple[str, int, str], list[int]] = {}

    def run(self, program: list[Word]) -> None:
        """Execute the configuration once, then the program for each tile."""
        self._pass(program, None)
        sides = [(side, space) for side in "ls" for space in (2, 3)]
        for tile in range(max(self._iterations(*side, "base") for side in sides)):
            self._pass(program, tile)

    def _pass(self, program: list[Word], tile: int | None) -> None:
        for name, f in program:
            if name in FUNCTIONS:
                if tile is not None:
                    self._nest(name, f)
            elif name[:3] in ("ld_", "st_"):
                self._transfer(name, f, tile)
            else:
                self._configure(name, f)

    def _configure(self, name: str, f: dict[str, int]) -> None:
        if name == "dtype_cfg":
            self.fraction = min(max((32, 16, 8)[f["type"]] - f["dst"], 0), 31)
        elif name == "set_iter":
            self.counts[f["level"]], self.depth = f["immediate"], f["level"] + 1
        elif name == "set_index":
            self.places[self.depth - 1] = f
        elif name in ("set_imm_low", "set_imm_high"):
            self.imm[f["index"]] = with_half(self.imm[f["index"]], int(name.endswith("high")), f["immediate"])
        elif name == "imm_sign_ext":
            self.imm[f["index"]] = signed(f["immediate"], 16)
        elif name.startswith(("base_", "stride_")):
            table, place = (self.bases if name.startswith("base_") else self.strides), (f["space"], f["index"])
            how, value = name.partition("_")[2], f["immediate"]
            halves = {"sign_ext": signed(value, 16), "zerofill": value}
            table[place] = halves[how] if how in halves else with_half(table.get(place, 0), int(how == "high"), value)

    def _nest(self, name: str, f: dict[str, int]) -> None:
        roles = ("dst", "src1", "src2")
        at = {r: [(p[f"{r}_space"], p[f"{r}_index"]) for p in self.places[: self.depth]] for r in roles}
        for indices in itertools.product(*(range(n) for n in self.counts[: self.depth])):
            rows = [self.bases[at[r][-1]] + sum(i * self.strides[k] for i, k in zip(indices, at[r], strict=True)) for r in roles]
            self._apply(name, [f[f"{r}_space"] for r in roles], rows)

    def _apply(self, name: str, spaces: list[int], rows: list[int]) -> None:
        old, a, b = (
            [self.imm[row % 32]] * LANES if space == IMM else self.memories[BUFFERS[space]][row % DEPTH].tolist()
            for space, row in zip(spaces, rows, strict=True)
        )
        results = [signed(FUNCTIONS[name](*x, self.fraction), 32) for x in zip(a, b, old, self.flags, strict=True)]
        if name in COMPARISONS:
            self.flags = [x & 1 for x in results]
        buffer = BUFFERS[spaces[0]]
        self.memories[buffer][rows[0] % DEPTH] = [signed(x, 8 if buffer == "ibuf" else 32) for x in results]

    # -- transfers

    def _iterations(self, side: str, space: int, what: str) -> int:
        return int(np.prod([self.loops.get((side, space, f"{what}{n}"), [1, 0])[0] for n in range(32)]))

    def _offset(self, side: str, space: int, what: str, number: int) -> int:
        offset = 0
        for n in reversed(range(32)):
            count, stride = self.loops.get((side, space, f"{what}{n}"), [1, 0])
            offset, number = offset + number % count * stride, number // count
        return offset

    def _transfer(self, name: str, f: dict[str, int], tile: int | None) -> None:
        side, space, what = name[0], f["space"], name[3:]
        if what == "start":
            if tile is not None:
                self._move(side, space, tile, f["immediate"] // 4)
        elif what in ("config_base_addr", "config_tile_addr"):
            key = side, space, "base" if what == "config_base_addr" else "row"
            self.operand[key] = with_half(self.operand[key], f["half"], f["immediate"])
        else:
            _, loops, _, part = what.split("_")
            entry = self.loops.setdefault((side, space, f"{loops}{f['loop']}"), [1, 0])
            entry[:] = [f["immediate"] + 1, entry[1]] if part == "iter" else [entry[0], with_half(entry[1], f["half"], f["immediate"])]

    def _move(self, side: str, space: int, tile: int, rows: int) -> None:
        memory = self.memories[BUFFERS[space]]
        for q in range(self._iterations(side, space, "tile")):
            address = self.operand[side, space, "base"] + self._offset(side, space, "base", tile) + self._offset(side, space, "tile", q)
            first = self.operand[side, space, "row"] + q * rows
            for n, (row, lane) in enumerate(itertools.product(range(first, first + rows), range(LANES))):
                place = slice(address + 4 * n, address + 4 * n + 4)
                if side == "l":
                    memory[row, lane] = int.from_bytes(self.port[place], "little", signed=True)
                else:
                    self.port[place] = int(memory[row, lane]).to_bytes(4, "little", signed=True)


# -- drawn programs


class Drawn:
    """A program that is drawn word by word."""

    def __init__(self, seed: int) -> None:
        self.draw, self.words = np.random.default_rng(seed), list[Word]()
        self.loops = sorted(self.draw.choice(32, 4, replace=False).tolist())  # of transfers
        self.emit("dtype_cfg", type=self.number(0, 2), dst=self.number(0, 40), src1=self.number(0, 40), src2=self.number(0, 40))

    def number(self, low: int, high: int) -> int:
        return int(self.draw.integers(low, high, endpoint=True))

    def emit(self, name: str, **fields: int) -> None:
        self.words.append((name, fields))

    def halves(self, name: str, value: int, **fields: int) -> None:
        for half in self.draw.permutation(2).tolist():
            self.emit(name, **fields, half=half, immediate=value >> 16 * half & 0xFFFF)

    def iterator(self, what: str, value: int, **place: int) -> None:
        """Set a base or stride by one word where one can, or by both halves."""
        if value >= 0 and self.number(0, 1):
            self.emit(f"{what}_zerofill", **place, immediate=value)
        elif self.number(0, 1):
            self.emit(f"{what}_sign_ext", **place, immediate=value & 0xFFFF)
        else:
            for half, part in enumerate(("low", "high")):
                self.emit(f"{what}_{part}", **place, immediate=value >> 16 * half & 0xFFFF)

    def scalar(self) -> None:
        index, value = self.number(0, 31), self.number(-(1 << 31), (1 << 31) - 1) >> self.number(0, 31)
        if -(1 << 15) <= value < 1 << 15 and self.number(0, 1):
            self.emit("imm_sign_ext", index=index, immediate=value & 0xFFFF)
        else:
            for half, name in enumerate(("set_imm_low", "set_imm_high")):
                self.emit(name, index=index, immediate=value >> 16 * half & 0xFFFF)

    def transfer(self, tiles: tuple[int, int] = (1, 2)) -> None:
        """Move rows of one memory in requests of nested loops, at an address for each tile; all loops are set anew."""
        side, where, rows = ("ld", "st")[self.number(0, 1)], {"space": self.number(2, 3)}, self.number(1, 4)
        counts = self.draw.permutation([self.number(1, 3), self.number(1, 2), 1, 1]).tolist()
        for loop, count in zip(self.loops, counts, strict=True):
            self.emit(f"{side}_config_tile_loop_iter", **where, loop=loop, immediate=count - 1)
            self.halves(f"{side}_config_tile_loop_stride", self.number(-20, 100), **where, loop=loop)
        for loop, count in zip(self.loops, self.draw.permutation([*tiles, 1, 1]).tolist(), strict=True):
            self.emit(f"{side}_config_base_loop_iter", **where, loop=loop, immediate=count - 1)
            self.halves(f"{side}_config_base_loop_stride", self.number(-100, 200), **where, loop=loop)
        self.halves(f"{side}_config_base_addr", self.number(700, 1500), **where)
        self.halves(f"{side}_config_tile_addr", self.number(0, DEPTH - rows * int(np.prod(counts))), **where)
        self.emit(f"{side}_start", **where, loop=31, immediate=4 * rows)

    def nest(self, name: str) -> None:
        """Apply a function in loops, whose operands have a base each and a stride for each loop."""
        depth = (1, 2, 3, 4, 8)[self.number(0, 4)]
        spaces = dict(zip(("dst", "src1", "src2"), (self.number(0, 3), self.number(0, 4), self.number(0, 4)), strict=True))
        base = {role: self.number(-3, DEPTH) for role in spaces}
        for level in range(depth):
            places = {}
            for k, (role, space) in enumerate(spaces.items()):
                place = {"space": space, "index": 8 * k + level}
                self.iterator("base", base[role], **place)
                self.iterator("stride", self.number(-1, 3), **place)
                places |= {f"{role}_space": space, f"{role}_index": place["index"]}
            self.emit("set_iter", level=level, immediate=self.number(1, 3 if depth < 8 else 2))
            self.emit("set_index", **places)
        self.emit("set_inst", level=1, immediate=1)
        self.emit(name, **{f"{role}_space": space for role, space in spaces.items()})


@pytest.fixture(scope="module")
def models() -> dict[str, Ila]:
    depths = {f"{name}_depth": DEPTH for name in ("ibuf", "wbuf", "obuf", "bbuf", "vmem")}
    return {calculus: small(calculus=calculus, **depths) for calculus in ("xls", "csr")}


@pytest.mark.parametrize("seed", range(6))
def test_a_drawn_program_does_what_the_specification_says(models: dict[str, Ila], seed: int) -> None:
    drawn, calculus = Drawn(seed), ("xls", "csr")[seed % 2]
    model = models[calculus]
    names = [name for name in FUNCTIONS if name in model.instructions][seed // 2 % 3 :: 3]
    for _ in range(4):
        drawn.scalar()
    for name in drawn.draw.permutation(names).tolist():
        drawn.nest(name)
        if drawn.number(0, 2) == 0:
            drawn.transfer()
    drawn.transfer(tiles=(2, 2))
    sim = model.simulator()
    port = drawn.draw.integers(0, 256, PORT).astype(np.uint8)
    contents = {}
    for name in BUFFERS:
        data = sim.memories[model.states[name].leaf].data
        ends = (-128, 127) if name == "ibuf" else (-(1 << 31), (1 << 31) - 1)
        data[...] = drawn.draw.integers(*ends, data.shape, endpoint=True) >> drawn.draw.integers(0, 31, data.shape)
        contents[name] = np.array(data)
    expected = Interpreter(contents, port)
    expected.run(drawn.words)
    sim.give("dram_simd", port)
    sim.run(words(model, [("sync_inst", {"unit": SIMD}), *drawn.words, *END]))
    differing = [name for name in BUFFERS if sim.memories[model.states[name].leaf].data.tolist() != expected.memories[name].tolist()]
    assert differing == []
    assert port.tobytes() == bytes(expected.port)
    assert sim.memories[model.states["flags"].leaf].data.tolist() == expected.flags


# -- tiles of the systolic array


INSIDE = (7, 14)  # loops: output channels, batch, input channels, kernel rows and columns, output rows and columns
REDUCED = (2, 3, 4)
OPERANDS = {"ibuf": (2, 1), "wbuf": (2, 0), "bbuf": (2, 3), "read": (2, 2), "written": (3, 2)}  # access and buffer of strides


def contents(draw: np.random.Generator, sim: Stream, name: str) -> np.ndarray:
    """Put drawn numbers into a buffer, of every size, and return them."""
    memory = sim.memories[sim.ila.states[name].leaf].data
    bits = 8 if name in ("ibuf", "wbuf") else 32
    memory[...] = draw.integers(-(1 << bits - 1), 1 << bits - 1, memory.shape) >> draw.integers(0, bits - 1, memory.shape)
    return np.array(memory).astype(object)


@pytest.mark.parametrize("seed", range(8))
def test_a_drawn_tile_adds_its_products_in_the_order_of_its_loops(models: dict[str, Ila], seed: int) -> None:
    """Sums may move along a reduction, share rows, and be read where others are written; they start at the bias."""
    draw = np.random.default_rng(seed)
    counts = draw.permutation([2, 2, 2, 3, 1, 1, 1])
    most = {name: (DEPTH - 1) // int(sum(n - 1 for n in counts)) for name in OPERANDS}
    strides = {name: draw.integers(0, most[name] + 1, 7) for name in OPERANDS}
    if seed % 2:  # sums stay where they are along reductions, as in layers, but for one loop
        for n in REDUCED[: 3 - seed % 4 // 2]:
            strides["read"][n] = strides["written"][n] = 0
        strides["read"] = strides["written"]
    if seed == 0:  # one loop, a reduction, along which sums go on by a row
        counts = np.array([1, 1, 3, 1, 1, 1, 1])
        strides["read"] = strides["written"] = np.ones(7, int)
    program: list[Word] = [("sync_inst", {"unit": 0})]
    for n, count in enumerate(counts.tolist()):
        program.append(("sa_loop_cfg", {"loop": INSIDE[0] + n, "count": count - 1}))
        for name, (access, buffer) in OPERANDS.items():
            place = {"access": access, "buffer": buffer, "loop": INSIDE[0] + n}
            program.append(("set_loop_stride", {**place, "half": 0, "immediate": int(strides[name][n])}))
    program += [("sa_reduction_loop", {"reserved": 32, "loop": n}) for n in REDUCED]
    sim = models["xls"].simulator()
    x, w, bias, sums = (contents(draw, sim, name) for name in ("ibuf", "wbuf", "bbuf", "obuf"))
    for place in np.ndindex(*counts):
        row = {name: int(np.dot(place, strides[name])) for name in OPERANDS}
        start = bias[row["bbuf"]] if all(place[n] == 0 for n in REDUCED) else sums[row["read"]]
        sums[row["written"]] = [signed(total, 32) for total in start + w[row["wbuf"]] @ x[row["ibuf"]]]
    sim.run(words(models["xls"], [*program, ("sync_inst", {"unit": 0, "phase": 1}), ("block_end", {"last": 1})]))
    assert sim.memories[sim.ila.states["obuf"].leaf].data.tolist() == sums.tolist()
