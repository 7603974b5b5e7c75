"""GeneSys programs of layers: the words that configure loops, strides and transfers of a convolution, and of element-wise work.

A layer lies in memory as the ports hold it: inputs and results N, H, W, C with whole blocks of channels, weights by tiles.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rewrite_compiler.ila_models.genesys import Config
from rewrite_compiler.ila_models.genesys.words import ACCESSES, BBUF, BUFFERS, IBUF, OBUF, SIMD, SPACES, SYSTOLIC, WBUF
from rewrite_compiler.target import Cost, Limit, Resources, StreamedDevice

Word = tuple[str, dict[str, int]]
ROWS = 4  # of a block of weights
WORD = 4  # bytes of a sum
MOST = (1 << 16) - 1  # of a request, and of the iterations of a loop
BITS = 32  # of an element of a vector memory
OC, N, IC, KH, KW, OH, OW = range(7)  # loops of tiles; the same inside of a tile are 7 higher
INSIDE = 7


@dataclass(frozen=True)
class Layer:
    """A convolution without padding in blocks of channels, and its tile: blocks of channels, and rows of outputs."""

    design: Config
    samples: int
    ic: int
    oc: int
    kernel: tuple[int, int]
    out: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    tic: int = 1
    toc: int = 1
    toh: int = 1
    relu: bool = False

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns of the input."""
        rows, cols = ((n - 1) * s + k for n, s, k in zip(self.out, self.strides, self.kernel, strict=True))
        return rows, cols

    @property
    def input_rows(self) -> int:
        """Rows of the input that a tile needs."""
        return (self.toh - 1) * self.strides[0] + self.kernel[0]

    @property
    def tiles(self) -> dict[int, int]:
        """How many tiles there are along the loops that have several."""
        return {OC: self.oc // self.toc, N: self.samples, IC: self.ic // self.tic, OH: self.out[0] // self.toh}

    @property
    def weight_rows(self) -> int:
        """Rows of the weights of a tile, whole blocks of four."""
        return -(-self.kernel[0] * self.kernel[1] * self.tic * self.toc // ROWS) * ROWS

    @property
    def bytes(self) -> dict[str, int]:
        """Bytes of the layer at each port; weights begin behind the biases."""
        c, (rows, cols) = self.design, self.size
        positions = self.samples * self.out[0] * self.out[1]
        tiles = self.tiles[OC] * self.tiles[IC]
        return {
            "ibuf": self.samples * rows * cols * self.ic * c.array_n,
            "bias": self.oc * c.array_m * WORD,
            "param": self.oc * c.array_m * WORD + tiles * self.weight_rows * c.array_n * c.array_m,
            "obuf": positions * self.oc * c.array_m * WORD,
        }

    def limits(self) -> Iterator[Limit]:
        """Yield what a tile needs of every buffer, and of the fields of its words."""
        c, (_, width) = self.design, self.out
        results = self.toh * width * self.toc
        for label, needs, most in (
            ("input rows", self.input_rows * self.size[1] * self.tic, c.ibuf_depth),
            ("weight rows", self.weight_rows, min(c.wbuf_depth, MOST)),
            ("sum rows", results, c.obuf_depth),
            ("bias rows", self.toc, c.bbuf_depth),
            ("vector rows", results if self.relu else 1, min(c.vmem_depth, MOST)),
            ("bytes a bank of a request", max(self.size[1] * self.tic, WORD * width * self.toc), MOST),
        ):
            yield Limit(label, needs, most)

    def cost(self, resources: Resources) -> Cost:
        """Return the cycles of the layer: its steps on the array, and what every tile moves."""
        n, (oc, _, ic, oh) = self.design.array_n, self.tiles.values()
        tiles = self.samples * oc * ic * oh
        step = self.toh * self.out[1] * self.kernel[0] * self.kernel[1] * self.tic * self.toc
        moved = {
            "x": tiles * self.input_rows * self.size[1] * self.tic * n,
            "w": tiles * self.weight_rows * n * n,
            "y": (2 * ic - 1) * self.bytes["obuf"],
            "commands": WORD * len(layer_words(self)) + tiles * self.toc * n * WORD,
        }
        return Cost("systolic", tiles * (step + 2 * (n - 1)), resources.link("host", "wbuf").cycles_for(sum(moved.values())), moved)


class Emitter:
    """Collects words."""

    def __init__(self) -> None:
        """Begin without words."""
        self.words: list[Word] = []

    def emit(self, name: str, **fields: int) -> None:
        """Append one word."""
        self.words.append((name, fields))

    def halves(self, name: str, value: int, **fields: int) -> None:
        """Append the words that set both halves of a value."""
        for half in (0, 1):
            self.emit(name, **fields, half=half, immediate=value >> 16 * half & 0xFFFF)

    def count(self, loop: int, iterations: int) -> None:
        """Set the iterations of a systolic loop."""
        self.emit("sa_loop_cfg", loop=loop, count=iterations - 1)

    def stride(self, access: str, buffer: int, loop: int, value: int) -> None:
        """Set a stride that is not 0."""
        if value:
            self.halves("set_loop_stride", value, access=ACCESSES[access], buffer=buffer, loop=loop)


def issue(device: StreamedDevice, words: Iterable[Word]) -> None:
    """Send words."""
    for name, fields in words:
        device.issue(name, **fields)


def layer_words(m: Layer) -> list[Word]:
    """Return the words of a layer: one block."""
    e = Emitter()
    e.emit("sync_inst", unit=SYSTOLIC, phase=0)
    e.halves("set_base_addr", 0, buffer=BUFFERS["BBUF"])
    e.halves("set_base_addr", m.bytes["bias"], buffer=BUFFERS["WBUF"])
    for loop, tiles in m.tiles.items():
        e.count(loop, tiles)
    _transfers(e, m)
    _strides_inside(e, m)
    e.emit("sync_inst", unit=SYSTOLIC, phase=1)
    if m.relu:
        _simd_relu(e, m)
    e.emit("block_end", last=1)
    return e.words


def _transfers(e: Emitter, m: Layer) -> None:
    n, columns, (_, width) = m.design.array_n, m.design.array_m, m.size
    line, word = width * m.ic * n, WORD * columns
    tile_bytes = m.weight_rows * n * columns
    for buffer, strides in (
        (IBUF, {N: m.size[0] * line, IC: m.tic * n, OH: m.toh * m.strides[0] * line}),
        (WBUF, {OC: m.tiles[IC] * tile_bytes, IC: tile_bytes}),
        (BBUF, {OC: m.toc * word}),
    ):
        for loop, value in strides.items():
            e.stride("LD", buffer, loop, value)
    e.emit("ld_st", direction=0, buffer=BBUF, loop=28, size=WORD * m.toc)
    e.emit("ld_st", direction=0, buffer=WBUF, loop=23, size=m.weight_rows)
    # inputs: a row of the image at once where a tile has all channels, else a position at once
    e.count(15, m.input_rows)
    e.stride("LD", IBUF, 15, line)
    if m.tic < m.ic:
        e.count(16, width)
        e.stride("LD", IBUF, 16, m.ic * n)
    e.emit("ld_st", direction=0, buffer=IBUF, loop=17, size=m.tic * (1 if m.tic < m.ic else width))
    _results(e, m)


def _results(e: Emitter, m: Layer) -> None:
    """Sums leave after every tile, and come back before a later step of the reduction."""
    word, (rows, width) = WORD * m.design.array_m, m.out
    line = width * m.oc * word
    needed = (["LD", "ST"] if m.tiles[IC] > 1 else []) + (["ST"] if m.tiles[IC] == 1 and not m.relu else [])
    for access, first in (("LD", 24), ("ST", 29)):
        if access not in needed:
            continue
        for loop, value in {OC: m.toc * word, N: rows * line, OH: m.toh * line, first + 1: line, first + 2: m.oc * word}.items():
            e.stride(access, OBUF, loop, value)
        e.count(first + 1, m.toh)
        if m.toc < m.oc:
            e.count(first + 2, width)
        size = WORD * m.toc * (1 if m.toc < m.oc else width)
        e.emit("ld_st", direction=ACCESSES[access], buffer=OBUF, loop=first + 3, size=size)


def _strides_inside(e: Emitter, m: Layer) -> None:
    (kh, kw), (_, width), (_, in_width) = m.kernel, m.out, m.size
    counts = {OC: m.toc, IC: m.tic, KH: kh, KW: kw, OH: m.toh, OW: width}
    line = in_width * m.tic
    read = {IC: 1, KH: line, KW: m.tic, OH: m.strides[0] * line, OW: m.strides[1] * m.tic}
    weights = {OC: 1, IC: m.toc, KH: kw * m.tic * m.toc, KW: m.tic * m.toc}
    sums = {OC: 1, OH: width * m.toc, OW: m.toc}
    for loop, iterations in counts.items():
        e.count(INSIDE + loop, iterations)
        for access, buffer, strides in (
            ("RD", IBUF, read), ("RD", WBUF, weights), ("RD", BBUF, {OC: 1}), ("RD", OBUF, sums), ("WR", OBUF, sums),
        ):  # fmt: skip
            e.stride(access, buffer, INSIDE + loop, strides.get(loop, 0))


def _simd_relu(e: Emitter, m: Layer) -> None:
    """The larger of each sum and 0, from the sums of a tile to the same rows of a vector memory, and these to memory."""
    word, (rows, width), space = WORD * m.design.array_m, m.out, SPACES["VMEM2"]
    line = width * m.oc * word
    e.emit("sync_inst", unit=SIMD, phase=0)
    e.halves("st_config_base_addr", 0, space=space)
    tiles = ((OC, m.toc * word), (N, rows * line), (OH, m.toh * line))
    for loop, (dimension, stride) in enumerate(tiles):
        e.emit("st_config_base_loop_iter", space=space, loop=loop, immediate=m.tiles[dimension] - 1)
        e.halves("st_config_base_loop_stride", stride, space=space, loop=loop)
    unary(e, "relu", "OBUF", "VMEM2", m.toh * width * m.toc)
    requests = [(m.toh, line), *([(width, m.oc * word)] if m.toc < m.oc else [])]
    store(e, "VMEM2", requests, WORD * m.toc * (1 if m.toc < m.oc else width))
    e.emit("sync_inst", unit=SIMD, phase=1)


def unary(e: Emitter, name: str, source: str, target: str, rows: int) -> None:
    """Append one function from rows of a space to the same rows of another."""
    for space in (source, target, "IMM"):
        iterator(e, space, 0, 0 if space == "IMM" else 1)
    places = {"dst_space": SPACES[target], "src1_space": SPACES[source], "src2_space": SPACES["IMM"]}
    nest(e, [(rows, places)], name, places)


def iterator(e: Emitter, space: str, index: int, stride: int, base: int = 0) -> None:
    """Set an iterator."""
    e.emit("base_zerofill", space=SPACES[space], index=index, immediate=base)
    e.emit("stride_zerofill", space=SPACES[space], index=index, immediate=stride)


def nest(e: Emitter, levels: list[tuple[int, dict[str, int]]], name: str, body: dict[str, int]) -> None:
    """Append a nest of (iterations, iterators) and its body."""
    for level, (iterations, places) in enumerate(levels):
        e.emit("set_iter", level=level, immediate=iterations)
        e.emit("set_index", **places)
    e.emit("set_inst", level=1, immediate=1)
    e.emit(name, **body)


def store(e: Emitter, space: str, requests: list[tuple[int, int]], size: int, row: int = 0) -> None:
    """Append the transfer of consecutive rows to memory: (iterations, stride) of its loops, outermost first."""
    _transfer(e, "st", space, requests, size, row)


def load(e: Emitter, space: str, requests: list[tuple[int, int]], size: int, row: int = 0) -> None:
    """Append the transfer of memory to consecutive rows."""
    _transfer(e, "ld", space, requests, size, row)


def _transfer(e: Emitter, side: str, space: str, requests: list[tuple[int, int]], size: int, row: int) -> None:
    where = {"space": SPACES[space]}
    e.halves(f"{side}_config_tile_addr", row, **where)
    for loop, (iterations, stride) in enumerate(requests):
        e.emit(f"{side}_config_tile_loop_iter", **where, loop=loop, immediate=iterations - 1)
        e.halves(f"{side}_config_tile_loop_stride", stride, **where, loop=loop)
    e.emit(f"{side}_start", **where, loop=BITS - 1, immediate=size)
    e.emit("nop")


def tile_sizes(extent: int) -> list[int]:
    """Return the divisors of an extent, the largest first."""
    low = [n for n in range(1, math.isqrt(extent) + 1) if extent % n == 0]
    return sorted({*low, *(extent // n for n in low)}, reverse=True)
