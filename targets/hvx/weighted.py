"""HVX's windows whose taps are weighed: means of images, and depthwise convolutions.

Four taps of a window lie side by side: they are summed as products with a vector that has their weights in all lanes. A row of
windows shares weights and a bias. The weights of a mean have seven bits and together are a power of two.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rewrite_compiler import IsConstant, Tensor, Where
from rewrite_compiler import ops as o
from rewrite_compiler.ila_models.hvx.state import VECTOR
from rewrite_compiler.lang import Array, Expr, Fixed, reduce_sum
from rewrite_compiler.rewrite import Int, Ints
from rewrite_compiler.target import (
    Cost,
    Limit,
    Resources,
    StreamedDevice,
    axis_sizes,
    depthwise_sums,
    join_bytes,
    pad_axis,
    split_bytes,
    window_counts,
    windowed,
)

from .base import Codes, finish, int8, memory_bytes, set_register, sums, target
from .pooling import POOL, UNEVEN, Shape, images, planes, trial
from .products import LANES, SUMS, VECTORS, WEIGHTS, WORD, Formats, Parameters, narrow, requantised, set_constants

MOST_WEIGHT = 127
PADS = (0, 0, 0, 0)  # of means
ITEMS, AT, SPREAD = 1, 2, 12  # two scalar registers and a vector register


@dataclass(frozen=True)
class Weighing:
    """Rows of windows, the windows of a row, each with one result, their taps, and the bytes of memory."""

    rows: int
    results: int
    taps: int
    memory: int

    @property
    def count(self) -> int:
        """Vectors of the results of a row."""
        return -(-self.results // VECTOR)

    @property
    def groups(self) -> int:
        """Words of four taps."""
        return -(-self.taps // WORD)

    @property
    def places(self) -> tuple[int, int, int, int]:
        """The first byte of the weights, the biases and the results, and the end; items lie at 0."""
        sizes = self.rows * self.count * self.groups * VECTORS, self.rows * self.groups, self.rows, self.rows * self.count
        weights, biases, results, end = (sum(sizes[: n + 1]) * VECTOR for n in range(len(sizes)))
        return weights, biases, results, end

    @property
    def instructions(self) -> int:
        """A bound on the instructions of the program."""
        return 8 + self.rows * self.count * (2 + VECTORS + self.groups * (1 + 2 * VECTORS) + VECTORS + 5)

    def limits(self) -> Iterator[Limit]:
        """What the work and its code take of memory."""
        yield Limit("bytes of memory", self.places[-1] + WORD * self.instructions, self.memory)

    def cost(self, resources: Resources) -> Cost:
        """A packet holds one load beside a sum of products."""
        weights, biases, results, end = self.places
        moved = {"x": weights, "w": self.count * (biases - weights), "y": end - results, "commands": WORD * self.instructions}
        cycles = self.rows * self.count * (2 * VECTORS + 4 + self.groups * (1 + VECTORS))
        return Cost("vector", cycles, resources.link("host", "v").cycles_for(sum(moved.values())), moved)


def _weigh(device: StreamedDevice, m: Weighing, x: Codes, w: Codes, b: Codes, f: Formats) -> Codes:
    """Emit the work: x [(samples,) tap, row, window], w [row, tap], b [row] → codes [(samples,) row, window]."""
    lead, (weights, biases, results, end) = x.shape[:-3], m.places
    whole = pad_axis(pad_axis(x, -3, m.groups * WORD), -1, m.count * VECTOR)
    # neighbouring windows lie in the vectors of one lane, as results are narrowed
    words = whole.reshape(*lead, m.groups, WORD, m.rows, m.count, LANES, VECTORS)
    items = np.moveaxis(words, (-4, -3, -6, -1, -2, -5), (-6, -5, -4, -3, -2, -1)).reshape(*lead, -1)
    device.attach("dram", end)
    device.place("dram", 0, split_bytes(np.ascontiguousarray(items)))
    device.place("dram", weights, split_bytes(_spread(pad_axis(w, -1, m.groups * WORD), WORD)))
    device.place("dram", biases, split_bytes(_spread(b, 1), WORD))
    set_constants(device, f, results)
    set_register(device, ITEMS, 0)
    for row in range(m.rows):
        for _ in range(m.count):
            set_register(device, AT, biases + row * VECTOR)
            for vector in range(VECTORS):
                device.issue("vmem_load", vd=SUMS + vector, rt=AT)
            set_register(device, AT, weights + row * m.groups * VECTOR)
            for _ in range(m.groups):
                device.issue("vmem_load_step", vd=SPREAD, rt=AT, step=1)
                for vector in range(VECTORS):
                    device.issue("vmem_load_step", vd=WEIGHTS + vector, rt=ITEMS, step=1)
                    device.issue("vrmpy_w_b_b_acc", vx=SUMS + vector, vu=WEIGHTS + vector, vv=SPREAD)
            narrow(device, 0, VECTORS, False)
    finish(device)
    y = join_bytes(device.fetch("dram", results, end - results)[..., None])
    return y.reshape(*y.shape[:-1], m.rows, m.count * VECTOR)[..., : m.results]


def _spread(numbers: Codes, count: int) -> Codes:
    """Return so many neighbouring numbers at a time in all lanes, flat."""
    return np.repeat(numbers.reshape(-1, 1, count), LANES, axis=1).reshape(-1)


# -- means: all windows are one row


def _weights(taps: int) -> tuple[int, int, int]:
    """Return the least weight of a tap, how many taps have one more, and the places of their sum, which is a power of two."""
    places = (MOST_WEIGHT * taps).bit_length() - 1
    return *divmod(1 << places, taps), places


def means(b: int, c: int, i: int, j: int, kernel: Shape, strides: Shape, p: Parameters) -> Weighing:
    """Return the work of one pool by means."""
    return Weighing(1, b * c * math.prod(window_counts((i, j), kernel, strides)), math.prod(kernel), memory_bytes(p))


def drive_mean(device: StreamedDevice, x: Codes, *, kernel: Shape, strides: Shape, f: Formats, p: Parameters) -> Codes:
    """Emit one pool by means: x [(samples,) b, c, i, j] → [(samples,) b, c, u, v], all codes."""
    shape, m = x.shape[-4:], means(**axis_sizes("b c i j", x), kernel=kernel, strides=strides, p=p)
    least, larger, places = _weights(m.taps)
    w = np.array([[least + (n < larger) for n in range(m.taps)]], "int8")
    rows = planes(x, kernel, strides, PADS, 0).reshape(*x.shape[:-4], m.taps, 1, -1)
    y = _weigh(device, m, rows, w, np.zeros(1, np.int32), {**f, "w": Fixed(8, places)})
    return images(y[..., 0, :], shape, window_counts(shape[2:], kernel, strides))


def mean_codes(x: Array, *, kernel: Shape, strides: Shape, f: Formats) -> Array:
    """The weighted sum of each window, requantised."""
    least, larger, places = _weights(math.prod(kernel))

    def element(k: Expr, c: Expr, i: Expr, j: Expr) -> Expr:
        total = reduce_sum(lambda r, s: x[k, c, i + r, j + s] * (least + (r * kernel[1] + s < larger)), kernel)
        return requantised(total, {**f, "w": Fixed(8, places)}, False)

    return windowed(x, kernel, strides, element)


UNPADDED = {**trial(5, 7, 3, 2, 0), "b": 2, "j": 9, "kernel": (3, 2), "strides": (2, 1), "u": 3, "v": 8}
MEANS = [{name: n for name, n in at.items() if name != "pads"} for at in (trial(16, 4, 2, 2, 0), trial(2, 8, 8, 1, 0), UNPADDED)]


@target.accelerates(**{**POOL, "derived": {}, "formats": {"x": int8, "y": int8}, "trials": MEANS})
def average_pool(x: Tensor, kernel: Ints, strides: Ints) -> tuple[Tensor, Where]:
    """The mean of each window without elements around the image."""
    y = o.average_pool(x, kernel=kernel, strides=strides, pads=PADS, dilations=(1, 1), ceil=0, count_include_pad=0)
    return y, Where(x.rank == 4)


average_pool.work(means)
average_pool.driver(drive_mean, moves=True)
average_pool.numerics(mean_codes)


# -- depthwise convolutions: a row is a channel


def layer(b: int, c: int, i: int, j: int, r: int, s: int, strides: Shape, pads: Shape, p: Parameters) -> Weighing:
    """Return the work of one layer."""
    return Weighing(c, b * math.prod(window_counts((i, j), (r, s), strides, pads)), r * s, memory_bytes(p))


def drive_depthwise(
    device: StreamedDevice, x: Codes, w: Codes, b: Codes, *, strides: Shape, pads: Shape, f: Formats, p: Parameters
) -> Codes:  # fmt: skip
    """Emit one layer: x [(samples,) b, c, i, j], w [c, 1, r, s], b [c] → y [(samples,) b, c, u, v], all codes."""
    shape, kernel = x.shape[-4:], w.shape[2:]
    m = layer(**axis_sizes("b c i j", x) | axis_sizes("r s", w), strides=strides, pads=pads, p=p)
    rows = np.swapaxes(planes(x, kernel, strides, pads, 0), -4, -3).reshape(*x.shape[:-4], m.taps, m.rows, -1)
    y = _weigh(device, m, rows, w.reshape(m.rows, -1), b, f)
    return np.swapaxes(y.reshape(*y.shape[:-1], shape[0], *window_counts(shape[2:], kernel, strides, pads)), -4, -3)


def depthwise_codes(x: Array, w: Array, b: Array, *, strides: Shape, pads: Shape, f: Formats) -> Array:
    """Sums over the taps of a channel's filter from its bias on, requantised; around an image there are zeros."""
    return depthwise_sums(x, w, b, lambda total: requantised(total, f, False), strides=strides, pads=pads)


def _layer_trial(at: Mapping[str, Any]) -> dict[str, Any]:
    kernel = dict(zip("rs", at["kernel"], strict=True))
    return {name: n for name, n in at.items() if name != "kernel"} | kernel | {"o": 1, "group": at["c"]}


LAYERS = [_layer_trial(at) for at in (trial(16, 4, 2, 2, 0), trial(3, 13, 3, 1, 1), UNEVEN)]


@target.accelerates(
    axes="x: b c i j; w: c o r s; b: c; y: b c u v", formats={"x": int8, "w": int8, "y": int8}, derived={"b": sums},
    whole="b c o i j r s u v", operation="depthwise", trials=LAYERS,
)  # fmt: skip
def depthwise(x: Tensor, w: Tensor, b: Tensor, strides: Ints, pads: Ints, group: Int) -> tuple[Tensor, Where]:
    """A 2-D convolution, each channel with a filter of its own, whose sums start at its bias."""
    y = o.bias_add(o.conv(x, w, strides, pads, (1, 1), group=group), b, 1)
    return y, Where(x.rank == 4, x.shape[1] == group, w.shape[0] == group, group > 1, IsConstant(w), IsConstant(b))


depthwise.work(layer)
depthwise.driver(drive_depthwise, moves=True)
depthwise.numerics(depthwise_codes)
