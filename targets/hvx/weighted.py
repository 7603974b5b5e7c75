"""HVX's windows whose taps are weighed: means of images, and depthwise convolutions.

Four taps of a window lie side by side: they are summed as products with a vector that has their weights in all lanes. A row of
windows shares weights and a bias. The weights of a mean have seven bits and together are a power of two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from rewrite_compiler.ila_models.hvx.state import VECTOR
from rewrite_compiler.lang import Array, Expr, Fixed, reduce_sum
from rewrite_compiler.target import (
    StreamedDevice,
    axis_sizes,
    bordered_codes,
    depthwise_sums,
    fixed_byte,
    fixed_products,
    pad_axis,
    pool_pattern,
    product_pattern,
    split_bytes,
    tile_count,
    window_counts,
    window_taps,
    windowed,
)

from .base import LANES, WORD, Codes, Parameters, Program, Shape, Work, place, results, set_registers, target
from .products import SUMS, VECTORS, WEIGHTS, Formats, narrow, requantised, set_constants

MOST_WEIGHT = 127
NO_PADS = (0, 0, 0, 0)  # of means
ITEMS, AT, SPREAD = 1, 2, 12  # two scalar registers and a vector register


@dataclass(frozen=True)
class Weighing(Work):
    """Rows of windows, the windows of a row, each with one result, and their taps."""

    p: Parameters
    rows: int
    results: int
    taps: int

    @property
    def count(self) -> int:
        """Vectors of the results of a row."""
        return tile_count(self.results, VECTOR)

    @property
    def groups(self) -> int:
        """Words of four taps."""
        return tile_count(self.taps, WORD)

    @property
    def program(self) -> Program:
        """A packet holds one load beside a sum of products."""
        blocks, weights = self.rows * self.count, self.rows * self.groups
        vectors = {"x": blocks * self.groups * VECTORS, "w": weights, "b": self.rows, "y": blocks}
        moved = {**vectors, "w": self.count * weights}
        del moved["b"]
        instructions = 8 + blocks * (2 + VECTORS + self.groups * (1 + 2 * VECTORS) + VECTORS + 5)
        return Program(self.p, vectors, moved, instructions, blocks * (2 * VECTORS + 4 + self.groups * (1 + VECTORS)))


def _weigh(device: StreamedDevice, m: Weighing, x: Codes, w: Codes, b: Codes, f: Formats) -> Codes:
    """Emit the work: x [(samples,) tap, row, window], w [row, tap], b [row] → codes [(samples,) row, window]."""
    lead, program = x.shape[:-3], m.program
    whole = pad_axis(pad_axis(x, -3, m.groups * WORD), -1, m.count * VECTOR)
    # neighbouring windows lie in the vectors of one lane, as results are narrowed
    words = whole.reshape(*lead, m.groups, WORD, m.rows, m.count, LANES, VECTORS)
    items = np.moveaxis(words, (-4, -3, -6, -1, -2, -5), (-6, -5, -4, -3, -2, -1)).reshape(*lead, -1)
    weights, biases = _spread(pad_axis(w, -1, m.groups * WORD), WORD), _spread(b, 1)
    place(device, program, x=split_bytes(np.ascontiguousarray(items)), w=split_bytes(weights), b=split_bytes(biases, WORD))
    at = program.places
    set_constants(device, f, at["y"])
    set_registers(device, {ITEMS: at["x"]})
    for row in range(m.rows):
        for _ in range(m.count):
            set_registers(device, {AT: at["b"] + row * VECTOR})
            for vector in range(VECTORS):
                device.issue("vmem_load", vd=SUMS + vector, rt=AT)
            set_registers(device, {AT: at["w"] + row * m.groups * VECTOR})
            for _ in range(m.groups):
                device.issue("vmem_load_step", vd=SPREAD, rt=AT, step=1)
                for vector in range(VECTORS):
                    device.issue("vmem_load_step", vd=WEIGHTS + vector, rt=ITEMS, step=1)
                    device.issue("vrmpy_w_b_b_acc", vx=SUMS + vector, vu=WEIGHTS + vector, vv=SPREAD)
            narrow(device, 0, VECTORS, False)
    y = results(device, program)
    return y.reshape(*y.shape[:-1], m.rows, m.count * VECTOR)[..., : m.results]


def _spread(numbers: Codes, count: int) -> Codes:
    """Return so many neighbouring numbers at a time in all lanes, flat."""
    return np.repeat(numbers.reshape(-1, 1, count), LANES, axis=1).reshape(-1)


# -- means: all windows are one row


def _weights(taps: int) -> tuple[int, int, int]:
    """Return the least weight of a tap, how many taps have one more, and the places of their sum, which is a power of two."""
    places = (MOST_WEIGHT * taps).bit_length() - 1
    return *divmod(1 << places, taps), places


def _mean_work(b: int, c: int, i: int, j: int, kernel: Shape, strides: Shape, p: Parameters) -> Weighing:
    return Weighing(p, 1, b * c * math.prod(window_counts((i, j), kernel, strides)), math.prod(kernel))


def _drive_mean(device: StreamedDevice, x: Codes, *, kernel: Shape, strides: Shape, f: Formats, p: Parameters) -> Codes:
    """Emit one pool by means: x [(samples,) b, c, i, j] → [(samples,) b, c, u, v], all codes."""
    m = _mean_work(**axis_sizes("b c i j", x), kernel=kernel, strides=strides, p=p)
    least, larger, places = _weights(m.taps)
    w = np.array([[least + (n < larger) for n in range(m.taps)]], "int8")
    taps = window_taps(x, kernel, strides)
    rows = taps.reshape(*x.shape[:-4], m.taps, 1, -1)
    y = _weigh(device, m, rows, w, np.zeros(1, np.int32), {**f, "w": Fixed(8, places)})
    return y.reshape(*y.shape[:-2], *taps.shape[-4:])


def _mean_codes(x: Array, *, kernel: Shape, strides: Shape, f: Formats) -> Array:
    """The weighted sum of each window, requantised."""
    least, larger, places = _weights(math.prod(kernel))

    def element(k: Expr, c: Expr, i: Expr, j: Expr) -> Expr:
        total = reduce_sum(lambda r, s: x[k, c, i + r, j + s] * (least + (r * kernel[1] + s < larger)), kernel)
        return requantised(total, {**f, "w": Fixed(8, places)}, False)

    return windowed(x, kernel, strides, element)


MEAN = pool_pattern("average_pool")
average_pool = target.offers(
    MEAN, formats={"x": fixed_byte, "y": fixed_byte},
    trials=(
        MEAN.trial(c=16, i=4, kernel=2, strides=2),
        MEAN.trial(c=2, i=8, kernel=8),
        MEAN.trial(b=2, c=5, i=7, j=9, kernel=(3, 2), strides=(2, 1)),
    ),
)  # fmt: skip
average_pool.implement(_mean_work, _drive_mean, _mean_codes, moves=True)


# -- depthwise convolutions: a row is a channel


def _layer(b: int, c: int, i: int, j: int, r: int, s: int, strides: Shape, pads: Shape, p: Parameters) -> Weighing:
    return Weighing(p, c, b * math.prod(window_counts((i, j), (r, s), strides, pads)), r * s)


def _drive_depthwise(
    device: StreamedDevice, x: Codes, w: Codes, b: Codes, *, strides: Shape, pads: Shape, f: Formats, p: Parameters
) -> Codes:  # fmt: skip
    """Emit one layer: x [(samples,) b, c, i, j], w [c, 1, r, s], b [c] → y [(samples,) b, c, u, v], all codes."""
    m = _layer(**axis_sizes("b c i j", x) | axis_sizes("r s", w), strides=strides, pads=pads, p=p)
    taps = np.swapaxes(window_taps(bordered_codes(x, pads), w.shape[2:], strides), -4, -3)
    y = _weigh(device, m, taps.reshape(*x.shape[:-4], m.taps, m.rows, -1), w.reshape(m.rows, -1), b, f)
    return np.swapaxes(y.reshape(*y.shape[:-1], *taps.shape[-3:]), -4, -3)


def _depthwise_codes(x: Array, w: Array, b: Array, *, strides: Shape, pads: Shape, f: Formats) -> Array:
    """Sums over the taps of a channel's filter from its bias on, requantised; around an image there are zeros."""
    return depthwise_sums(x, w, b, partial(requantised, f=f, relu=False), strides=strides, pads=pads)


DEPTHWISE = product_pattern("depthwise", bias=True)
depthwise = target.offers(
    DEPTHWISE, "depthwise", formats=dict.fromkeys("xwy", fixed_byte), derived={"b": fixed_products},
    trials=(
        DEPTHWISE.trial(c=16, i=4, kernel=2, strides=2),
        DEPTHWISE.trial(c=3, i=13, kernel=3, pads=1),
        DEPTHWISE.trial(b=2, c=5, i=6, j=9, kernel=(3, 2), strides=(1, 2), pads=(1, 0, 0, 1)),
    ),
)  # fmt: skip
depthwise.implement(_layer, _drive_depthwise, _depthwise_codes, moves=True)
