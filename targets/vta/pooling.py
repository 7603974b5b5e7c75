"""VTA's max pooling of a quantised model's codes: the ALU takes the larger one tap by tap, in bands of rows.

Accumulators hold the rows of a band and its results, which start at the least code: what stands around the image.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from rewrite_compiler import Tensor, Where
from rewrite_compiler import ops as o
from rewrite_compiler.ila_models.vta.config import Config
from rewrite_compiler.lang import Array, Expr, array, reduce_max
from rewrite_compiler.lang import Int as Integers
from rewrite_compiler.ops import HasType
from rewrite_compiler.rewrite import Ints
from rewrite_compiler.target import Cost, Levels, Limit, Resources, StreamedDevice, low_bits, split_bytes, tile, widen

from .alu import INSTRUCTION_BYTES, function
from .base import MOST_ELEMENTS, MOST_ITERATIONS, UOP_BYTES, Codes, config, elements, micro_ops, no_rooms, target
from .conv2d import UNEVEN, unblocked_images, windows, with_border, with_border_codes
from .results import Region, factors, fetch_words, grid, planes, store_bytes

LEAST = {"int8": -128, "uint8": 0}
WHOLE = "b c i j u v"


@dataclass(frozen=True)
class Pool:
    """One pooling in elements: images and blocks of channels apart, rows and columns with what stands around them."""

    design: Config
    parts: int
    rows: int
    cols: int
    kernel: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def out(self) -> tuple[int, int]:
        """Rows and columns of the result."""
        return (self.rows - self.kernel[0]) // self.strides[0] + 1, (self.cols - self.kernel[1]) // self.strides[1] + 1

    def rows_for(self, results: int) -> int:
        """Return how many rows of the image so many rows of results need."""
        return (results - 1) * self.strides[0] + self.kernel[0]

    def accumulators_for(self, results: int) -> int:
        """Return the accumulators that so many rows of results need."""
        return self.rows_for(results) * self.cols + results * self.out[1]

    @cached_property
    def bands(self) -> list[range]:
        """Rows of results of each band: as many as fit."""
        per_row, once = self.accumulators_for(2) - self.accumulators_for(1), 2 * self.accumulators_for(1) - self.accumulators_for(2)
        most = max(min((self.design.depth("acc") - once) // per_row, self.out[0]), 1)
        return [range(at, min(at + most, self.out[0])) for at in range(0, self.out[0], most)]

    @cached_property
    def programs(self) -> dict[int, list[int]]:
        """The micro-ops of every height of a band: one a tap."""
        taps = [(i, j) for i in range(self.kernel[0]) for j in range(self.kernel[1])]
        heights = sorted({len(band) for band in self.bands})
        return {n: [self.design.micro_op(self.rows_for(n) * self.cols, i * self.cols + j) for i, j in taps] for n in heights}

    @property
    def element(self) -> int:
        """Bytes of an accumulator element."""
        return int(self.design.scalars("acc") * planes(self.design))

    @property
    def places(self) -> dict[str, int]:
        """The first byte of the least codes, of the results and of the micro-ops, after the images, and the end."""
        least = self.parts * self.rows * self.cols * self.element
        out = least + self.element
        uop = elements(out + self.parts * math.prod(self.out) * self.design.scalars("inp"), UOP_BYTES) * UOP_BYTES
        return {"least": least, "out": out, "uop": uop, "end": uop + UOP_BYTES * sum(map(len, self.programs.values()))}


def _pool(shape: Sequence[int], kernel: Sequence[int], strides: Sequence[int], pads: Sequence[int], p: Mapping[str, str]) -> Pool:
    c = config(p)
    images, channels, rows, cols = shape
    parts = elements(images, c.batch) * elements(channels, c.block)
    return Pool(c, parts, rows + pads[0] + pads[2], cols + pads[1] + pads[3], tuple(kernel), tuple(strides))


def drive(
    device: StreamedDevice, x: Codes, *, kernel: tuple[int, ...], strides: tuple[int, ...], pads: tuple[int, ...], p: Mapping[str, str],
    least: int,
) -> Codes:  # fmt: skip
    """Emit one pooling of codes: x [(samples,) b, c, i, j] → [(samples,) b, c, u, v]."""
    m, lead = _pool(x.shape[-4:], kernel, strides, pads, p), x.ndim - 4
    c, images = m.design, with_border_codes(widen(x), pads, least)
    device.attach("dram", m.places["end"])
    device.place("dram", 0, split_bytes(tile(images, {-4: c.batch, -3: c.block}).reshape(*x.shape[:lead], -1), planes(c)))
    device.place("dram", m.places["least"], split_bytes(np.full(c.scalars("acc"), least, np.int64), planes(c)))
    device.place("dram", m.places["uop"], micro_ops(word for words in m.programs.values() for word in words))
    for part in range(m.parts):
        for band in m.bands:
            _band(device, m, part, band)
    words = fetch_words(device, c, m.places["out"], m.parts * math.prod(m.out), 1)
    groups = elements(x.shape[-4], c.batch)
    results = unblocked_images(words, c, (groups, m.parts // groups, *m.out))[..., : x.shape[-4], : x.shape[-3], :, :]
    return results if least else low_bits(results, 8)


def _band(device: StreamedDevice, m: Pool, part: int, band: range) -> None:
    """Load the rows of a band and the least code for its results, take the larger code tap by tap, store."""
    rows, area = m.rows_for(len(band)) * m.cols, len(band) * m.out[1]
    taps = m.programs[len(band)]
    preceding = sum(len(words) for height, words in m.programs.items() if height < len(band))
    device.issue("load_uop", dram_base=m.places["uop"] // UOP_BYTES + preceding, y_size=1, x_size=len(taps))
    first = (part * m.rows + band.start * m.strides[0]) * m.cols
    device.issue("load_acc", dram_base=first, y_size=1, x_size=rows)
    device.issue("load_acc", sram_base=rows, dram_base=m.places["least"] // m.element, y_size=area, x_size=1, x_stride=0)
    loops = grid(len(band), m.out[1])
    sources = factors("src", len(band) > 1 and m.strides[0] * m.cols, m.out[1] > 1 and m.strides[1])
    device.issue("alu_max", uop_end=len(taps), **loops, **sources, push_next=1)
    stored = m.places["out"] // m.design.scalars("inp") + part * math.prod(m.out) + band.start * m.out[1]
    store_bytes(device, m.design, Region(1, area, stored, 0, rows), loops, 0, 1)
    device.wait()


def codes(x: Array, *, kernel: tuple[int, ...], strides: tuple[int, ...], pads: tuple[int, ...], least: int) -> Array:
    """The largest code of each window; around the image there are least ones."""
    image = with_border(x, pads, least)

    def element(k: Expr, c: Expr, u: Expr, v: Expr) -> Expr:
        return reduce_max(lambda r, s: image[k, c, u * strides[0] + r, v * strides[1] + s], kernel)

    return array(element, (*x.shape[:2], *windows(image, kernel, strides)))


def limits(
    i: int, j: int, kernel: tuple[int, ...], strides: tuple[int, ...], pads: tuple[int, ...], p: Mapping[str, str]
) -> Iterator[Limit]:
    """Capacities of one band of one row."""
    m = _pool((1, 1, i, j), kernel, strides, pads, p)
    yield Limit("accumulator elements of a band", m.accumulators_for(1), m.design.depth("acc"))
    yield Limit("input elements that a micro-op reaches", m.accumulators_for(1), m.design.depth("inp"))
    yield Limit("micro-ops of a band", math.prod(kernel), m.design.depth("uop"))
    yield Limit("elements of a row of a LOAD", m.accumulators_for(m.out[0]) if len(m.bands) == 1 else m.accumulators_for(1), MOST_ELEMENTS)
    yield Limit("elements from row to row", m.strides[0] * m.cols, m.design.depth("inp") - 1)
    yield Limit("iterations of a loop", max(m.out), MOST_ITERATIONS)


def cost(
    b: int, c: int, i: int, j: int, kernel: tuple[int, ...], strides: tuple[int, ...], pads: tuple[int, ...], p: Mapping[str, str],
    resources: Resources,
) -> Cost:  # fmt: skip
    """Words of four bytes in, bands overlapping, a byte out; a step of the ALU for each tap of each result."""
    m = _pool((b, c, i, j), kernel, strides, pads, p)
    rows, area = sum(m.rows_for(len(band)) for band in m.bands), math.prod(m.out)
    taps, runs = math.prod(kernel), m.parts * len(m.bands)
    bytes_moved = {
        "x": m.parts * (rows * m.cols + area) * m.element, "y": m.parts * area * m.design.scalars("inp"),
        "commands": runs * (taps * UOP_BYTES + 6 * INSTRUCTION_BYTES),
    }  # fmt: skip
    return Cost("alu", m.parts * area * taps, resources.link("host", "wgt").cycles_for(sum(bytes_moved.values())), bytes_moved)


def levels(
    b: int, c: int, i: int, j: int, kernel: tuple[int, ...], strides: tuple[int, ...], pads: tuple[int, ...], p: Mapping[str, str]
) -> Levels:
    """Rows of a band are loaded and read tap by tap; results start at the least code, and leave as a byte."""
    m = _pool((b, c, i, j), kernel, strides, pads, p)
    rows, results = sum(m.rows_for(len(band)) for band in m.bands) * m.cols, math.prod(m.out)
    taps, unit = math.prod(kernel) * results, m.parts * m.element
    return {"acc": {"x": (unit * taps, unit * rows), "y": (unit * (taps + results), unit * (taps + results))}}


def _trial(c: int, size: int, kernel: int, stride: int, pad: int, batch: int = 1) -> dict[str, Any]:
    out = (size + 2 * pad - kernel) // stride + 1
    sizes = dict(zip("bcijuv", (batch, c, size, size, out, out), strict=True))
    return {**sizes, "kernel": (kernel, kernel), "strides": (stride, stride), "pads": (pad,) * 4}


TRIALS = (
    _trial(16, 2, 2, 1, 0), _trial(21, 7, 3, 2, 1, 2), _trial(5, 60, 3, 2, 1), _trial(40, 6, 6, 1, 0),
    {**_trial(5, 6, 3, 2, 0), **UNEVEN, "kernel": (3, 2), "pads": (1, 0, 0, 1), "v": 9},  # each window holds an element
)  # fmt: skip


def _declare(dtype: str) -> None:
    def max_pool(x: Tensor, kernel: Ints, strides: Ints, pads: Ints) -> tuple[Tensor, Where]:
        """The largest code of each window without dilation."""
        y = o.max_pool(x, kernel=kernel, strides=strides, pads=pads, dilations=(1, 1), ceil=0)
        return y, Where(x.rank == 4, HasType(x, (dtype,)))

    f = function(max_pool)
    f.__name__ = f"max_pool_{dtype}"
    mapping = target.accelerates(
        axes="x: b c i j; y: b c u v", formats={}, derived=dict.fromkeys("xy", partial(Integers, 8, dtype == "int8")), whole=WHOLE,
        operation="max_pool", trials=TRIALS,
    )(f)  # fmt: skip
    mapping.limits(limits)
    mapping.driver(partial(drive, least=LEAST[dtype]))
    mapping.numerics(partial(codes, least=LEAST[dtype]))
    mapping.costs(cost)
    mapping.residency(no_rooms)
    mapping.levels(levels)


for _dtype in LEAST:
    _declare(_dtype)
