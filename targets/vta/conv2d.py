"""VTA's convolution in its native blocked form: channels in blocks, taps as micro-ops, rows and columns as GEMM's two loops.

Bands of output rows and passes over input channels keep every part on chip; sums stay in the accumulators between passes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np

from rewrite_compiler import IsConstant, Tensor, Where
from rewrite_compiler import ops as o
from rewrite_compiler.ila_models.vta.config import Config
from rewrite_compiler.lang import Array, Expr, array, maximum, reduce_sum, select, signed
from rewrite_compiler.rewrite import Ints
from rewrite_compiler.target import USUAL, Limit, Room, Stay, StreamedDevice, split_bytes, tile, untile

from .base import MOST_ITERATIONS, UOP_BYTES, Codes, accumulator, config, elements, int8, micro_ops, target
from .results import Region, factors, fetch_words, grid, planes, store_bytes

MOST_PAD = 15


@dataclass(frozen=True)
class Layer:
    """One convolution in elements, on a design; `pads` are top, left, bottom, right, and rows and columns those without them.

    `groups` are convolutions of so many channels and filters each, one after the other along both. Weights lie in their buffer
    from element `weights_at` on; they may be there already where one pass takes all of them.
    """

    design: Config
    images: int
    channels: int
    rows: int
    cols: int
    filters: int
    kernel: tuple[int, int]
    strides: tuple[int, int]
    pads: tuple[int, int, int, int]
    has_bias: bool = False
    relu: bool = False
    groups: int = 1
    weights_at: int = 0
    has_weights: bool = False

    @property
    def parts(self) -> int:
        """Convolutions of one group of channels of one group of images."""
        return self.images * self.groups

    @property
    def taps(self) -> int:
        """Weight elements of one block of filters and one of channels."""
        return math.prod(self.kernel)

    @property
    def width(self) -> int:
        """Columns with padding."""
        return self.cols + self.pads[1] + self.pads[3]

    @property
    def out(self) -> tuple[int, int]:
        """Rows and columns of the result."""
        height = self.rows + self.pads[0] + self.pads[2]
        return (height - self.kernel[0]) // self.strides[0] + 1, (self.width - self.kernel[1]) // self.strides[1] + 1

    def rows_for(self, results: int) -> int:
        """Return how many rows of padded input so many rows of results need."""
        return (results - 1) * self.strides[0] + self.kernel[0]

    @cached_property
    def tile_sizes(self) -> tuple[int, int]:
        """Rows of results in a band, and blocks of channels in a pass: of those that fit, the ones with the fewest runs.

        One of each where not even these fit: the limits refuse such a layer.
        """
        c = self.design
        most = min(c.depth("wgt"), c.depth("uop")) // (self.filters * self.taps)
        cuts = []
        for rows in range(1, min(self.out[0], c.depth("acc") // (self.filters * self.out[1])) + 1):
            blocks = min(self.channels, most, c.depth("inp") // (self.rows_for(rows) * self.width))
            if blocks:
                runs = elements(self.out[0], rows) * elements(self.channels, blocks)
                cuts.append((runs, -rows, rows, blocks))
        return min(cuts)[2:] if cuts else (1, 1)  # no trial: the limits refuse a layer without any before it is driven

    @property
    def bands(self) -> list[range]:
        """Rows of results of each band."""
        return _parts(self.out[0], self.tile_sizes[0])

    @property
    def passes(self) -> list[range]:
        """Blocks of channels of each pass."""
        return _parts(self.channels, self.tile_sizes[1])

    @property
    def keeps_weights(self) -> bool:
        """Tell whether all weights lie in their buffer until the layer ends."""
        return len(self.passes) == 1 and self.groups == 1

    def loads_weights(self, part: int, band: range) -> bool:
        """Tell whether a band loads weights: where one pass takes them, the first band of each group of channels does."""
        if len(self.passes) > 1:
            return True
        return not self.has_weights and not band.start and (self.groups > 1 or not part)

    def uops(self, band: int, blocks: int) -> list[int]:
        """Return the micro-ops of a pass over `blocks` blocks for `band` rows of results: filters, blocks, kernel rows, columns."""
        rows, cols = self.kernel
        height, area = self.rows_for(band), band * self.out[1]
        return [
            self.design.micro_op(
                n * area, (k * height + i) * self.width + j, self.weights_at + ((n * blocks + k) * rows + i) * cols + j
            )
            for n in range(self.filters) for k in range(blocks) for i in range(rows) for j in range(cols)
        ]  # fmt: skip

    @cached_property
    def programs(self) -> dict[tuple[int, int], list[int]]:
        """The micro-ops of every kind of pass: rows of results and blocks of channels → words."""
        kinds = {(len(band), len(blocks)) for band in self.bands for blocks in self.passes}
        return {kind: self.uops(*kind) for kind in sorted(kinds)}

    @cached_property
    def places(self) -> dict[str, int]:
        """The first byte of each part of the image, at a multiple of its element, and the end."""
        c, results = self.design, self.parts * self.filters * math.prod(self.out)
        sizes = {
            "wgt": (self.groups * self.filters * self.channels * self.taps, c.scalars("wgt")),
            "inp": (self.parts * self.channels * self.rows * self.cols, c.scalars("inp")),
            "out": (planes(c) * results, c.scalars("inp")),
            "acc": (self.groups * self.filters, c.scalars("acc") * planes(c)),
            "uop": (sum(map(len, self.programs.values())), UOP_BYTES),
        }
        offsets, at = {}, 0
        for name, (count, size) in sizes.items():
            offsets[name] = elements(at, size) * size
            at = offsets[name] + count * size
        return {**offsets, "end": at}

    def first(self, part: str, size: int) -> int:
        """Return the number of the first element of a part whose elements have so many bytes."""
        return self.places[part] // size


def _parts(total: int, size: int) -> list[range]:
    return [range(at, min(at + size, total)) for at in range(0, total, size)]


# -- the mappings


def _trial(n: int, c: int, size: int, kernel: int, stride: int, pad: int, batch: int = 1) -> dict[str, Any]:
    """Return the sizes of a square layer."""
    out = (size + 2 * pad - kernel) // stride + 1
    sizes = dict(zip("bncijrsuv", (batch, n, c, size, size, kernel, kernel, out, out), strict=True))
    return {**sizes, "strides": (stride, stride), "pads": (pad,) * 4}


AXES, BIASED = "x: b c i j; w: n c r s; y: b n u v", "x: b c i j; w: n c r s; b: n; y: b n u v"
INPUTS = {"x": int8, "w": int8}
UNITS, WHOLE = {"n": 16}, "b c i j r s u v"
UNEVEN = {"i": 6, "j": 9, "u": 3, "v": 10, "strides": (2, 1), "pads": (1, 0, 0, 2)}  # of kernels of 3 rows and 2 columns
# one tap of one block; ragged, strided and padded; several bands; several passes; rows unlike columns
TRIALS = (
    _trial(16, 16, 1, 1, 1, 0), _trial(19, 21, 7, 3, 2, 1, 2), _trial(16, 5, 50, 3, 1, 1), _trial(40, 400, 6, 3, 1, 1),
    {**_trial(5, 9, 6, 3, 2, 0), **UNEVEN, "s": 2}, _trial(3, 5, 2, 1, 3, MOST_PAD + 1),
)  # fmt: skip


@target.accelerates(axes=AXES, formats=INPUTS, derived={"y": accumulator}, units=UNITS, whole=WHOLE, trials=TRIALS)
def conv2d(x: Tensor, w: Tensor, strides: Ints, pads: Ints) -> tuple[Tensor, Where]:
    """A 2-D convolution without groups or dilation, as a blocked product."""
    return o.conv(x, w, strides, pads, (1, 1), group=1), Where(x.rank == 4, IsConstant(w))


@target.accelerates(
    axes=AXES, formats=INPUTS, derived={"y": accumulator}, units=UNITS, whole=WHOLE, trials=TRIALS, operation="conv2d"
)  # fmt: skip
def conv2d_relu(x: Tensor, w: Tensor, strides: Ints, pads: Ints) -> tuple[Tensor, Where]:
    """A 2-D convolution and the larger of each sum and zero."""
    return o.relu(o.conv(x, w, strides, pads, (1, 1), group=1)), Where(x.rank == 4, IsConstant(w))


@target.accelerates(
    axes=BIASED, formats=INPUTS, derived={"b": accumulator, "y": accumulator}, units=UNITS, whole=WHOLE, trials=TRIALS,
    operation="conv2d",
)  # fmt: skip
def conv2d_bias(x: Tensor, w: Tensor, b: Tensor, strides: Ints, pads: Ints) -> tuple[Tensor, Where]:
    """A 2-D convolution on accumulators that start at the filter's bias."""
    y = o.conv(x, w, strides, pads, (1, 1), group=1)
    return o.bias_add(y, b, 1), Where(x.rank == 4, IsConstant(w), IsConstant(b))


@target.accelerates(
    axes=BIASED, formats=INPUTS, derived={"b": accumulator, "y": accumulator}, units=UNITS, whole=WHOLE, trials=TRIALS,
    operation="conv2d",
)  # fmt: skip
def conv2d_bias_relu(x: Tensor, w: Tensor, b: Tensor, strides: Ints, pads: Ints) -> tuple[Tensor, Where]:
    """A 2-D convolution with bias, and the larger of each sum and zero."""
    y = o.conv(x, w, strides, pads, (1, 1), group=1)
    return o.relu(o.bias_add(y, b, 1)), Where(x.rank == 4, IsConstant(w), IsConstant(b))


def layer(
    shape: Sequence[int], filters: int, kernel: Sequence[int], strides: Sequence[int], pads: Sequence[int], p: Mapping[str, str]
) -> Layer:
    """Return the layer on a batch [b, c, i, j]; zeros that the device cannot add are the host's, and count as rows and columns."""
    c = config(p)
    images, channels, rows, cols = shape
    top, left, bottom, right = pads
    if not adds_zeros(pads, p):  # no trial: limits alone ask for these; drivers get images with their zeros
        rows, cols, top, left, bottom, right = rows + top + bottom, cols + left + right, 0, 0, 0, 0
    blocks = (elements(images, c.batch), elements(channels, c.block)), elements(filters, c.block)
    (groups, deep), wide = blocks
    return Layer(c, groups, deep, rows, cols, wide, (kernel[0], kernel[1]), (strides[0], strides[1]), (top, left, bottom, right))


@lru_cache(maxsize=256)
def _known(m: Layer) -> Layer:
    """Return the first layer that was equal to this one: its programs are made once."""
    return m


def adds_zeros(pads: Sequence[int], p: Mapping[str, str]) -> bool:
    """Tell whether LOAD adds the zeros: four bits a side, and not as the published ILA does it."""
    return max(pads) <= MOST_PAD and p["behaviour"] != "ila"


def with_border_codes(x: Codes, pads: Sequence[int], code: int) -> Codes:
    """Return images [… i, j] with a code around them."""
    margins = [(0, 0)] * (x.ndim - 2) + [(pads[0], pads[2]), (pads[1], pads[3])]
    return np.pad(x, margins, constant_values=code)


def device_pads(x: Codes, pads: tuple[int, ...], p: Mapping[str, str]) -> tuple[Codes, tuple[int, ...]]:
    """Return images with the zeros that the device cannot add, and those that it adds."""
    return (x, pads) if adds_zeros(pads, p) else (with_border_codes(x, pads, 0), (0, 0, 0, 0))


def conv2d_limits(
    n: int, i: int, j: int, r: int, s: int, strides: tuple[int, ...], pads: tuple[int, ...], p: Mapping[str, str]
) -> Iterator[Limit]:
    """Capacities of one band of one row in passes of one block (specification, section 9)."""
    m = layer((1, 1, i, j), n, (r, s), strides, pads, p)
    for label, needs, sort in (
        ("input elements of a band", m.rows_for(1) * m.width, "inp"),
        ("weight elements of a pass", m.filters * m.taps, "wgt"),
        ("accumulator elements of a band", m.filters * m.out[1], "acc"),
        ("micro-ops of a pass", m.filters * m.taps, "uop"),
    ):
        yield Limit(label, needs, m.design.depth(sort))
    yield Limit("iterations of a loop", max(m.out[1], m.filters), MOST_ITERATIONS)


def with_border(x: Array, pads: Sequence[int], by: int = 0) -> Array:
    """Return images [b, c, i, j] with a code around them."""
    batch, channels, *size = (int(n) for n in x.shape)  # type: ignore[arg-type]

    def code(k: Expr, c: Expr, i: Expr, j: Expr) -> Expr:
        row, col = i - pads[0], j - pads[1]
        inside = (row >= 0) & (row < size[0]) & (col >= 0) & (col < size[1])
        return select(inside, x[k, c, row, col], by)

    return array(code, (batch, channels, size[0] + pads[0] + pads[2], size[1] + pads[1] + pads[3]))


def windows(x: Array, kernel: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """Return how many windows images have along rows and columns."""
    return tuple((int(n) - kernel[a]) // strides[a] + 1 for a, n in enumerate(x.shape[2:]))  # type: ignore[arg-type]


def conv2d_codes(
    x: Array, w: Array, b: Array | None = None, *, strides: tuple[int, ...], pads: tuple[int, ...], relu: bool = False
) -> Array:
    """Products of codes around which there are zeros, summed in 32 bits that wrap from the bias on; then the larger of sum and zero."""
    batch, channels, *_ = (int(n) for n in x.shape)  # type: ignore[arg-type]
    filters, _, *kernel = (int(n) for n in w.shape)  # type: ignore[arg-type]
    padded = with_border(x, pads)
    out = windows(padded, kernel, strides)

    def element(k: Expr, n: Expr, u: Expr, v: Expr) -> Expr:
        def product(c: Expr, r: Expr, s: Expr) -> Expr:
            return padded[k, c, u * strides[0] + r, v * strides[1] + s] * w[n, c, r, s]

        total = reduce_sum(product, (channels, *kernel))
        word = signed(total if b is None else b[n] + total, 32)
        return maximum(word, 0) if relu else word

    return array(element, (batch, filters, *out))


def conv2d_rooms(
    b: int, n: int, c: int, i: int, j: int, r: int, s: int, strides: tuple[int, ...], pads: tuple[int, ...], p: Mapping[str, str]
) -> Iterator[Room]:
    """Where weights lie; sums leave in 32 bits and inputs come in 8, so that nothing else can stay."""
    yield weight_room(layer((b, c, i, j), n, (r, s), strides, pads, p))


def weight_room(m: Layer) -> Room:
    """Return the room of a layer's weights: of all of them, which can stay, or of those of a pass."""
    size = m.filters * m.tile_sizes[1] * m.taps
    return Room("wgt", size, "w", lasting=True) if m.keeps_weights else Room("wgt", size, scratch="w")


def drive_conv2d(
    device: StreamedDevice, x: Codes, w: Codes, b: Codes | None = None, *, relu: bool = False,
    strides: tuple[int, ...], pads: tuple[int, ...], p: Mapping[str, str], stay: Stay = USUAL,
) -> Codes:  # fmt: skip
    """Emit one layer: x [(samples,) b, c, i, j], w [n, c, r, s], b [n] → y [(samples,) b, n, u, v], all codes."""
    x, pads = device_pads(x, pads, p)
    unsplit = layer(x.shape[-4:], len(w), w.shape[2:], strides, pads, p)
    m = _known(replace(unsplit, has_bias=b is not None, relu=relu, weights_at=stay.base("w"), has_weights="w" in stay.present))
    c = m.design
    return run_layer(device, m, x, split_bytes(tile(w, {0: c.block, 1: c.block}).reshape(-1)), b)[..., : len(w), :, :]


def run_layer(device: StreamedDevice, m: Layer, x: Codes, weights: Codes, b: Codes | None) -> Codes:
    """Emit a layer whose weights are given as they lie in DRAM; return the results of all filters that its blocks have."""
    _place(device, m, x, weights, b)
    for part in range(m.parts):
        for band in m.bands:
            for blocks in m.passes:
                _pass(device, m, part, band, blocks)
    words = fetch_words(device, m.design, m.places["out"], m.parts * m.filters * math.prod(m.out))
    shape = (m.images, m.groups * m.filters, *m.out)
    return unblocked_images(words, m.design, shape)[..., : x.shape[-4], :, :, :]


for mapping, relu in ((conv2d, False), (conv2d_relu, True), (conv2d_bias, False), (conv2d_bias_relu, True)):
    mapping.limits(conv2d_limits)
    mapping.residency(conv2d_rooms)
    mapping.driver(partial(drive_conv2d, relu=relu), moves=True)
    mapping.numerics(partial(conv2d_codes, relu=relu))


# -- layouts


def unblocked_images(words: Codes, c: Config, shape: Sequence[int]) -> Codes:
    """Return codes [(samples,) b, c, i, j] from elements, of which `shape` says how many lie along each of these."""
    return untile(words.reshape(*words.shape[:-1], *shape, c.batch, c.block), (-4, -3))


def _place(device: StreamedDevice, m: Layer, x: Codes, weights: Codes, b: Codes | None) -> None:
    """Lay weights, images, biases and micro-ops out in DRAM."""
    c, at = m.design, m.places
    device.attach("dram", at["end"])
    device.place("dram", at["wgt"], weights)
    device.place("dram", at["inp"], split_bytes(tile(x, {-4: c.batch, -3: c.block}).reshape(*x.shape[:-4], -1)))
    device.place("dram", at["uop"], micro_ops(word for words in m.programs.values() for word in words))
    if b is not None:
        rows = np.repeat(tile(b, {0: c.block})[:, None], c.batch, axis=1)
        device.place("dram", at["acc"], split_bytes(rows.reshape(-1), planes(c)))


# -- instructions


def _pass(device: StreamedDevice, m: Layer, part: int, band: range, blocks: range) -> None:
    """Add the products of some channels to a band of one part; the first pass starts the band, the last one stores it."""
    _load(device, m, part, band, blocks)
    area = grid(m.filters * len(band), m.out[1])
    is_first, is_last = blocks.start == 0, blocks.stop == m.channels
    if is_first and m.has_bias:
        _start_at_bias(device, m, part % m.groups, band)
    elif is_first:
        device.issue("gemm", reset=1, uop_end=1, **area, pop_prev=1)
    sources = factors("src", len(band) > 1 and m.strides[0] * m.width, m.out[1] > 1 and m.strides[1])
    loops = {**grid(len(band), m.out[1]), **sources, **factors("wgt", 0, 0)}
    waits = int(not is_first or m.has_bias)
    device.issue("gemm", uop_end=len(m.programs[len(band), len(blocks)]), **loops, pop_prev=waits, push_next=int(is_last and not m.relu))
    if is_last and m.relu:
        device.issue("alu_max", uop_end=1, **area, use_imm=1, imm=0, push_next=1)
    if is_last:
        store_bytes(device, m.design, _region(m, part, band), area, m.parts * m.filters * math.prod(m.out))
    else:
        device.issue("finish")
    device.wait()


def _region(m: Layer, part: int, band: range) -> Region:
    """The accumulators of a band, one row for each block of filters."""
    area = math.prod(m.out)
    first = m.first("out", m.design.scalars("inp")) + part * m.filters * area + band.start * m.out[1]
    return Region(m.filters, len(band) * m.out[1], first, area)


def _load(device: StreamedDevice, m: Layer, part: int, band: range, blocks: range) -> None:
    """Load the micro-ops of a pass, its weights if they are not there, and the rows of its channels with the zeros around them."""
    c, count = m.design, len(blocks)
    device.issue("load_uop", dram_base=_program(m, band, blocks), y_size=1, x_size=len(m.programs[len(band), count]))
    if m.loads_weights(part, band):
        group = m.first("wgt", c.scalars("wgt")) + part % m.groups * m.filters * m.channels * m.taps
        device.issue(
            "load_wgt", sram_base=m.weights_at, dram_base=group + blocks.start * m.taps, y_size=m.filters, x_size=count * m.taps,
            x_stride=m.channels * m.taps,
        )  # fmt: skip
    top, left, _, right = m.pads
    begin = band.start * m.strides[0] - top
    end = begin + m.rows_for(len(band))
    inside = range(max(begin, 0), max(min(end, m.rows), 0))
    for n, block in enumerate(blocks):
        row = (part * m.channels + block) * m.rows + min(inside.start, m.rows - 1)
        device.issue(
            "load_inp", sram_base=n * m.rows_for(len(band)) * m.width, dram_base=m.first("inp", c.scalars("inp")) + row * m.cols,
            y_size=len(inside), x_size=m.cols, x_stride=m.cols, y_pad_0=max(-begin, 0) if inside else end - begin,
            y_pad_1=max(end - m.rows, 0) if inside else 0, x_pad_0=left, x_pad_1=right, push_next=int(n == count - 1),
        )  # fmt: skip


def _program(m: Layer, band: range, blocks: range) -> int:
    """Return the number of the first micro-op of a kind of pass."""
    at = m.first("uop", UOP_BYTES)
    for kind, words in m.programs.items():
        if kind == (len(band), len(blocks)):
            return at
        at += len(words)
    raise KeyError((band, blocks))


def _start_at_bias(device: StreamedDevice, m: Layer, group: int, band: range) -> None:
    """Load each block's bias into all of its accumulators."""
    area = len(band) * m.out[1]
    first = m.first("acc", m.design.scalars("acc") * planes(m.design)) + group * m.filters
    for n in range(m.filters):
        device.issue("load_acc", sram_base=n * area, dram_base=first + n, y_size=area, x_size=1, x_stride=0)
