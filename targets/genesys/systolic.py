"""GeneSys's systolic array: dense layers and convolutions, with and without bias and ReLU, in tiles, one block of words a call.

A layer lies in memory as the ports hold it: inputs and results N, H, W, C with whole blocks of channels, weights by tiles.
The array multiplies signed bytes and has no zero points. A quantised model's activations are uint8 and enter less 128; what that
and the zero point leave out is a number for each output, (128 − zero) · Σ w, at which sums start.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from rewrite_compiler.ila_models.genesys import Config
from rewrite_compiler.ila_models.genesys.programs import Nest, Operand, Program, Word
from rewrite_compiler.ila_models.genesys.words import BBUF, IBUF, LD, OBUF, RD, SIMD, ST, SYSTOLIC, WBUF, WR
from rewrite_compiler.lang import Array, Expr, maximum
from rewrite_compiler.target import (
    Cost,
    Limit,
    Resources,
    StreamedDevice,
    axis_sizes,
    bordered_codes,
    conv_sums,
    dense_sums,
    initial_sums,
    join_bytes,
    pad_axis,
    split_bytes,
    tile,
    tile_count,
    widen,
    window_counts,
    word_sum,
)

from .base import WORD, Codes, P, config, declare_product

ROWS = 4  # of a block of weights
MOST = (1 << 16) - 1  # of a request, and of the iterations of a loop
OC, N, IC, KH, KW, OH, OW = range(7)  # loops of tiles; the same inside of a tile are 7 higher
INSIDE = 7
OFFSET = 128  # what is taken from a code to make a signed byte of it
Sizes = tuple[int, ...]


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
        return tile_count(math.prod(self.kernel) * self.tic * self.toc, ROWS) * ROWS

    @property
    def bytes(self) -> dict[str, int]:
        """Bytes of the layer at each port; weights begin behind the biases."""
        n, biases = self.design.array_n, self.oc * self.design.array_m * WORD
        weights = self.tiles[OC] * self.tiles[IC] * self.weight_rows * n * self.design.array_m
        inputs, results = self.samples * math.prod(self.size) * self.ic * n, self.samples * math.prod(self.out) * biases
        return {"ibuf": inputs, "bias": biases, "param": biases + weights, "obuf": results}

    def limits(self) -> Iterator[Limit]:
        """Yield what a tile needs of every buffer, and of the fields of its words."""
        c, line = self.design, self.size[1] * self.tic
        results = self.toh * self.out[1] * self.toc
        yield Limit("input rows", self.input_rows * line, c.ibuf_depth)
        yield Limit("weight rows", self.weight_rows, min(c.wbuf_depth, MOST))
        yield Limit("sum rows", results, c.obuf_depth)
        yield Limit("bias rows", self.toc, c.bbuf_depth)
        yield Limit("vector rows", results if self.relu else 1, min(c.vmem_depth, MOST))
        yield Limit("bytes a bank of a request", max(line, WORD * self.out[1] * self.toc), MOST)

    def cost(self, resources: Resources) -> Cost:
        """Return the cycles of the layer: its steps on the array, and what every tile moves."""
        n, tiles = self.design.array_n, math.prod(self.tiles.values())
        step = self.toh * self.out[1] * math.prod(self.kernel) * self.tic * self.toc
        moved = {
            "x": tiles * self.input_rows * self.size[1] * self.tic * n,
            "w": tiles * self.weight_rows * n * n,
            "y": (2 * self.tiles[IC] - 1) * self.bytes["obuf"],
            "commands": WORD * len(layer_words(self)) + tiles * self.toc * n * WORD,
        }
        return Cost("systolic", tiles * (step + 2 * (n - 1)), resources.link("host", "wbuf").cycles_for(sum(moved.values())), moved)


@lru_cache(maxsize=1024)
def tiled(m: Layer) -> Layer:
    """Return a layer with the tile of the fewest parts that fits; where none does it is the smallest one, which the limits refuse."""
    extents = ([n for n in range(size, 0, -1) if size % n == 0] for size in (m.oc, m.ic, m.out[0]))
    tiles = [replace(m, toc=toc, tic=tic, toh=toh) for toc, tic, toh in itertools.product(*extents)]
    tiles.sort(key=lambda part: math.prod(part.tiles.values()))
    return next((part for part in tiles if all(limit.holds for limit in part.limits())), tiles[-1])


# -- words


def layer_words(m: Layer) -> list[Word]:
    """Return the words of a layer: one block."""
    p = Program()
    p.begin(SYSTOLIC)
    p.halves("set_base_addr", 0, buffer=BBUF)
    p.halves("set_base_addr", m.bytes["bias"], buffer=WBUF)
    p.loops(m.tiles)
    _transfers(p, m)
    _inside(p, m)
    p.end(SYSTOLIC)
    if m.relu:
        _relu(p, m)
    p.emit("block_end", last=1)
    return p.words


def _transfers(p: Program, m: Layer) -> None:
    """Inputs come in rows of the image where a tile has all channels, else by positions; so do sums."""
    n, columns, width = m.design.array_n, m.design.array_m, m.size[1]
    line, word, tile_bytes = width * m.ic * n, WORD * columns, m.weight_rows * n * columns
    p.transfer(LD, BBUF, {OC: m.toc * word}, WORD * m.toc)
    p.transfer(LD, WBUF, {OC: m.tiles[IC] * tile_bytes, IC: tile_bytes}, m.weight_rows)
    positions, size = ([], width * m.tic) if m.tic == m.ic else ([(width, m.ic * n)], m.tic)
    images = {N: m.size[0] * line, IC: m.tic * n, OH: m.toh * m.strides[0] * line}
    p.transfer(LD, IBUF, images, size, [(m.input_rows, line), *positions])
    # sums leave after every tile, and come back before a later step of the reduction
    tiles, requests, size = _results(m)
    for access in [LD, ST] if m.tiles[IC] > 1 else [] if m.relu else [ST]:
        p.transfer(access, OBUF, tiles, size, requests)


def _results(m: Layer) -> tuple[dict[int, int], list[tuple[int, int]], int]:
    """Return the strides of tiles of results, and loops and bytes a bank of their requests: rows, or positions of some channels."""
    (rows, width), word = m.out, WORD * m.design.array_m
    line = width * m.oc * word
    tiles = {OC: m.toc * word, N: rows * line, OH: m.toh * line}
    is_whole = m.toc == m.oc
    return tiles, [(m.toh, line), *([] if is_whole else [(width, m.oc * word)])], WORD * m.toc * (width if is_whole else 1)


def _inside(p: Program, m: Layer) -> None:
    """Loops and strides inside of a tile: rows of the buffers."""
    (kh, kw), width, line = m.kernel, m.out[1], m.size[1] * m.tic
    p.loops({INSIDE + loop: n for loop, n in {OC: m.toc, IC: m.tic, KH: kh, KW: kw, OH: m.toh, OW: width}.items()})
    sums = {OC: 1, OH: width * m.toc, OW: m.toc}
    for access, buffer, strides in (
        (RD, IBUF, {IC: 1, KH: line, KW: m.tic, OH: m.strides[0] * line, OW: m.strides[1] * m.tic}),
        (RD, WBUF, {OC: 1, IC: m.toc, KH: kw * m.tic * m.toc, KW: m.tic * m.toc}),
        (RD, BBUF, {OC: 1}), (RD, OBUF, sums), (WR, OBUF, sums),
    ):  # fmt: skip
        p.strides(access, buffer, {INSIDE + loop: rows for loop, rows in strides.items()})


def _relu(p: Program, m: Layer) -> None:
    """The larger of each sum and 0, from the sums of a tile to the same rows of a vector memory, and these to memory."""
    tiles, requests, size = _results(m)
    p.begin(SIMD)
    p.nest(Nest("relu", (m.toh * m.out[1] * m.toc,), Operand("VMEM2", 0, (1,)), Operand("OBUF", 0, (1,)), Operand("IMM")))
    p.move("st", "VMEM2", size, tiles=[(m.tiles[loop], stride) for loop, stride in tiles.items()], requests=requests)
    p.end(SIMD)


# -- ports


def _input_bytes(x: Codes, m: Layer) -> Codes:
    """Return images [(samples,) b, c, i, j] as the port holds them: channels innermost, whole blocks of them."""
    rows = np.moveaxis(pad_axis(x, -3, m.ic * m.design.array_n), -3, -1)
    return split_bytes(np.ascontiguousarray(rows).reshape(*x.shape[:-4], -1))


def _weight_bytes(w: Codes, m: Layer) -> Codes:
    """Return weights [n, c, r, s] as the port holds them, tile by tile in blocks of four rows whose columns descend."""
    n, columns = m.design.array_n, m.design.array_m
    split = tile(w, {0: columns, 1: n}).reshape(m.tiles[OC], m.toc, m.tiles[IC], m.tic, *m.kernel, columns, n)
    rows = split.transpose(0, 2, 4, 5, 3, 1, 7, 6).reshape(m.tiles[OC] * m.tiles[IC], -1, n, columns)
    four = pad_axis(rows, 1, m.weight_rows).reshape(len(rows), -1, ROWS, n, columns)[..., ::-1]
    return split_bytes(np.ascontiguousarray(four.transpose(0, 1, 4, 3, 2)).reshape(-1))


def _bias_bytes(b: Codes | None, m: Layer) -> Codes:
    """Return biases as little-endian words; zeros where there are none."""
    columns = m.oc * m.design.array_m
    return split_bytes(np.zeros(columns, np.int32) if b is None else pad_axis(b, 0, columns), WORD)


def run_layer(device: StreamedDevice, m: Layer, x: Codes, w: Codes, b: Codes | None, *, x_zero: int, offset: int) -> Codes:
    """Emit a layer: x [(samples,) b, c, i, j] with its zero points, w [n, c, r, s], b [n] → y [(samples,) b, n, u, v]."""
    result = "simd" if m.relu else "obuf"
    for port in dict.fromkeys(("ibuf", "param", "obuf", result)):
        device.attach(f"dram_{port}", m.bytes["obuf" if port == result else port])
    device.place("dram_ibuf", 0, _input_bytes(widen(x) - offset if offset else x, m))
    device.place("dram_param", 0, np.concatenate([_bias_bytes(initial_sums(w, b, offset - x_zero), m), _weight_bytes(w, m)]))
    for name, fields in layer_words(m):
        device.issue(name, **fields)
    device.wait()
    lanes = device.fetch(f"dram_{result}", 0, m.bytes["obuf"])
    words = join_bytes(lanes.reshape(*lanes.shape[:-1], -1, WORD))
    y = words.reshape(*words.shape[:-1], m.samples, *m.out, m.oc * m.design.array_m)
    return np.moveaxis(y, -1, -3)[..., : len(w), :, :]


# -- calls


def dense_layer(t: int, k: int, n: int, p: P, relu: bool = False) -> Layer:
    """Return the layer of a product, which is one tile: sizes that the buffers do not hold are divided before.

    Positions are rows of the first operand.
    """
    c = config(p)
    ic, oc = tile_count(k, c.array_n), tile_count(n, c.array_m)
    return Layer(c, 1, ic, oc, (1, 1), (1, t), tic=ic, toc=oc, relu=relu)


def conv_layer(
    b: int, n: int, c: int, i: int, j: int, r: int, s: int, strides: Sizes, pads: Sizes, p: P, relu: bool = False
) -> Layer:  # fmt: skip
    """Return the layer on images [b, c, i, j], whose zeros are the host's."""
    design, out = config(p), window_counts((i, j), (r, s), strides, pads)
    ic, oc = tile_count(c, design.array_n), tile_count(n, design.array_m)
    return tiled(Layer(design, b, ic, oc, (r, s), out, (strides[0], strides[1]), relu=relu))


def _drive_dense(
    device: StreamedDevice, x: Codes, w: Codes, b: Codes | None = None, *, p: P, relu: bool, x_zero: int = 0, offset: int
) -> Codes:  # fmt: skip
    """Emit one product: x [(samples,) t, k], w [n, k], b [n] → y [(samples,) t, n]."""
    m = dense_layer(**axis_sizes("t k", x), n=len(w), p=p, relu=relu)
    image = np.swapaxes(x, -1, -2)[..., None, :, None, :]
    y = run_layer(device, m, image, w[:, :, None, None], b, x_zero=x_zero, offset=offset)
    return np.swapaxes(y[..., 0, :, 0, :], -1, -2)


def _drive_conv2d(
    device: StreamedDevice, x: Codes, w: Codes, b: Codes | None = None, *, strides: Sizes, pads: Sizes, p: P, relu: bool, x_zero: int = 0,
    offset: int,
) -> Codes:  # fmt: skip
    """Emit one convolution: x [(samples,) b, c, i, j], zero points around it, w [n, c, r, s], b [n] → y [(samples,) b, n, u, v]."""
    m = conv_layer(**axis_sizes("b c i j", x) | axis_sizes("n c r s", w), strides=strides, pads=pads, p=p, relu=relu)
    image = bordered_codes(x, pads, x_zero)
    # a stride may need more columns than there are, or fewer
    image = pad_axis(pad_axis(image, -2, m.size[0]), -1, m.size[1])[..., : m.size[0], : m.size[1]]
    return run_layer(device, m, image, w, b, x_zero=x_zero, offset=offset)


def _rectified(total: Expr) -> Expr:
    return maximum(word_sum(total), 0)


# -- the mappings


# kind → plan, driver, numerics, units, and sizes of trials
KINDS: dict[str, tuple[Callable[..., Layer], Callable[..., Codes], Callable[..., Array], dict[str, int], tuple[dict[str, int], ...]]] = {
    "dense": (dense_layer, _drive_dense, dense_sums, {"k": 16, "n": 16}, ({"t": 1, "k": 16, "n": 16}, {"t": 5, "k": 40, "n": 33})),
    "conv2d": (conv_layer, _drive_conv2d, conv_sums, {"n": 16}, (
        {"n": 16, "c": 16, "i": 1, "kernel": 1}, {"b": 2, "n": 19, "c": 21, "i": 5, "kernel": 3, "strides": 2, "pads": 1},
        {"n": 5, "c": 9, "i": 8, "kernel": 3, "pads": 1},
    )),
}  # fmt: skip
EPILOGUES: tuple[dict[str, Any], ...] = (
    {}, {"bias": True}, {"bias": True, "relu": True}, {"codes": "uint8"}, {"bias": True, "codes": "uint8"},
)  # fmt: skip


def _declare(kind: str, *, bias: bool = False, relu: bool = False, codes: str = "") -> None:
    plan, drive, numerics, units, sizes = KINDS[kind]
    driver, finish = partial(drive, relu=relu, offset=OFFSET if codes else 0), _rectified if relu else word_sum
    mapping = declare_product(
        kind, sizes if codes or kind == "conv2d" else (), (3, 200, OFFSET), bias=bias, relu=relu, codes=codes, units=units
    )
    mapping.implement(partial(plan, relu=relu), driver, partial(numerics, finish=finish), moves=not codes)


for _kind in KINDS:
    for _epilogue in EPILOGUES:
        _declare(_kind, **_epilogue)
