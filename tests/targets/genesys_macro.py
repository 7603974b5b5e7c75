"""A macro of GeneSys's blocks: its systolic array as one nest between buffers, with what loads and stores these, and rectified sums."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rewrite_compiler.ila import Ila, joined
from rewrite_compiler.ila_models.genesys.programs import Nest, Operand, Program, Word
from rewrite_compiler.ila_models.genesys.words import BBUF, IBUF, LD, OBUF, RD, SIMD, ST, SYSTOLIC, WBUF, WR
from rewrite_compiler.lang import Expr, Leaf, Step, assign, maximum, reduce_sum, signed, update, wrap
from rewrite_compiler.target import MacroStep, Target

REASON = "a block's end runs nests whose loops, strides and SIMD program earlier words have stored"
FOUR, INSIDE = 4, 7  # rows of a block of weights, bytes of a word; the first loop inside of a tile
LOOPS = "obcrsuv"  # inside of a tile: output channels, images, input channels, kernel rows, columns, output rows, columns
STRIDES = {"x": "bcrsuv", "w": "ocrs", "y": "buv"}
LOADS = {"load_inputs": (IBUF, 1), "load_weights": (WBUF, FOUR), "load_biases": (BBUF, FOUR)}  # buffer, bytes a bank of a unit
AFTER = ("store_sums", "rectify", "store_vectors")  # what may follow the products of a block
Here = dict[str, Mapping[str, int]]  # the steps of a block


def load_inputs(m: Ila, at: Expr, rows: Expr) -> Step:
    """Bring rows of inputs."""
    lanes, port = _columns(m, "ibuf"), m.externals["dram_ibuf"].words(8, signed=True)
    return update(m.s.ibuf, (rows, lanes), lambda r, k: ((r, k), port.word(at + r * lanes + k)))


def load_weights(m: Ila, at: Expr, blocks: Expr) -> Step:
    """Bring blocks of four rows of weights, whose columns descend."""
    _, columns, lanes = m.s.wbuf.shape
    port = m.externals["dram_param"].words(8, signed=True)

    def weight(b: Expr, p: Expr, k: Expr, i: Expr) -> tuple[tuple[Expr, Expr, Expr], Expr]:
        return (b * FOUR + p, k, i), port.word(at + ((b * columns + (columns - 1 - k)) * lanes + i) * FOUR + p)

    return update(m.s.wbuf, (blocks, FOUR, columns, lanes), weight)


def load_biases(m: Ila, at: Expr, rows: Expr) -> Step:
    """Bring rows of biases, which are little-endian words."""
    columns, port = _columns(m, "bbuf"), m.externals["dram_param"]

    def bias(r: Expr, k: Expr) -> tuple[tuple[Expr, Expr], Expr]:
        first = port.index(at + (r * columns + k) * FOUR)
        return (r, k), signed(joined(lambda n: port.leaf[first + n], FOUR), 32)

    return update(m.s.bbuf, (rows, columns), bias)


def product(m: Ila, **f: Expr) -> Step:
    """Sum up all products of each position and output channel, from its bias on."""
    columns, lanes = _columns(m, "obuf"), _columns(m, "ibuf")

    def place(operand: str, loops: Mapping[str, Expr]) -> Any:
        return sum(n * f[f"{operand}_{v}"] for v, n in loops.items() if v in STRIDES[operand])

    def total(b: Expr, u: Expr, v: Expr, o: Expr, k: Expr) -> tuple[tuple[Expr, Expr], Expr]:
        at = {"b": b, "u": u, "v": v, "o": o}

        def term(c: Expr, r: Expr, s: Expr, n: Expr) -> Expr:
            every = at | {"c": c, "r": r, "s": s}
            return m.s.ibuf[place("x", every), n] * m.s.wbuf[place("w", every), k, n]

        return (place("y", at) + o, k), signed(m.s.bbuf[o, k] + reduce_sum(term, (f["c"], f["r"], f["s"], lanes)), 32)

    return update(m.s.obuf, (f["b"], f["u"], f["v"], f["o"], columns), total)


def rectify(m: Ila, rows: Expr) -> Step:
    """Put the larger of each sum and 0 into a vector memory."""
    return update(m.s.vmem2, (rows, _columns(m, "obuf")), lambda r, k: ((r, k), maximum(m.s.obuf[r, k], 0)))


def store_sums(m: Ila, at: Expr, rows: Expr) -> Step:
    """Store rows of sums."""
    return _stored(m, m.s.obuf, "dram_obuf", at, rows)


def store_vectors(m: Ila, at: Expr, rows: Expr) -> Step:
    """Store rows of a vector memory."""
    return _stored(m, m.s.vmem2, "dram_simd", at, rows)


def finish(m: Ila) -> Step:
    """Raise the interrupt."""
    return assign(m.s.done, 1)


def _columns(m: Ila, memory: str) -> int:
    size = m.s[memory].shape[-1]
    assert isinstance(size, int)
    return size


def _stored(m: Ila, memory: Leaf, port: str, at: Expr, rows: Expr) -> Step:
    columns, outside = memory.shape[-1], m.externals[port]

    def byte(r: Expr, k: Expr, n: Expr) -> tuple[Expr, Expr]:
        return outside.index(at + (r * columns + k) * FOUR + n), wrap(memory[r, k] >> 8 * n, 8, False)

    return update(outside.leaf, (rows, columns, FOUR), byte)


NEST = [*LOOPS, *(f"{operand}_{v}" for operand, loops in STRIDES.items() for v in loops)]
STEPS = {
    "load_inputs": MacroStep(load_inputs, {"at": 32, "rows": 16}),
    "load_weights": MacroStep(load_weights, {"at": 32, "blocks": 14}),
    "load_biases": MacroStep(load_biases, {"at": 32, "rows": 14}),
    "product": MacroStep(product, dict.fromkeys(NEST, 16)),
    "store_sums": MacroStep(store_sums, {"at": 32, "rows": 14}),
    "rectify": MacroStep(rectify, {"rows": 16}),
    "store_vectors": MacroStep(store_vectors, {"at": 32, "rows": 14}),
    "finish": MacroStep(finish, {}),
}


def declare(target: Target) -> None:
    """Declare the macro."""
    target.macro(reason=REASON, steps=STEPS)(block)


def block(p: Mapping[str, str], steps: Sequence[tuple[str, Mapping[str, int]]]) -> Iterator[Word]:
    """Write blocks: what is loaded, one nest of products, and what becomes of its sums."""
    here: Here = {}
    for name, fields in steps:
        if "product" in here and name not in AFTER:
            yield from _words(here, is_last=name == "finish")
            here = {}
        if name != "finish":
            here[name] = fields
    if here:
        yield from _words(here, is_last=False)


def _words(here: Here, *, is_last: bool) -> list[Word]:
    p = Program()
    _systolic(p, here)
    if "rectify" in here:
        p.begin(SIMD)
        p.nest(Nest("relu", (here["rectify"]["rows"],), Operand("VMEM2", 0, (1,)), Operand("OBUF", 0, (1,)), Operand("IMM")))
        stored = here["store_vectors"]
        p.move("st", "VMEM2", FOUR * stored["rows"], address=stored["at"])
        p.end(SIMD)
    p.emit("block_end", last=int(is_last))
    return p.words


def _systolic(p: Program, here: Here) -> None:
    f, loads = here["product"], {name: x for name, x in here.items() if name in LOADS}
    p.begin(SYSTOLIC)
    for name, x in loads.items():
        buffer, size = LOADS[name]
        p.halves("set_base_addr", x["at"], buffer=buffer)
        p.transfer(LD, buffer, {}, size * next(n for key, n in x.items() if key != "at"))
    p.loops({INSIDE + n: f[loop] for n, loop in enumerate(LOOPS)})
    sums = {"o": 1, **{v: f[f"y_{v}"] for v in STRIDES["y"]}}
    for access, buffer, strides in (
        (RD, IBUF, {v: f[f"x_{v}"] for v in STRIDES["x"]}), (RD, WBUF, {v: f[f"w_{v}"] for v in STRIDES["w"]}), (RD, BBUF, {"o": 1}),
        (RD, OBUF, sums), (WR, OBUF, sums),
    ):  # fmt: skip
        p.strides(access, buffer, {INSIDE + LOOPS.index(v): rows for v, rows in strides.items()})
    if "store_sums" in here:
        p.halves("set_base_addr", here["store_sums"]["at"], buffer=OBUF)
        p.transfer(ST, OBUF, {}, FOUR * here["store_sums"]["rows"])
    p.end(SYSTOLIC)
