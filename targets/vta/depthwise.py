"""VTA's depthwise convolution of a quantised model's codes: weights on the diagonals of blocks, one block of channels at a time.

The tensor unit multiplies 16 × 16 weights a step, of which a depthwise filter uses 16: it is exact, and a sixteenth as fast.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from rewrite_compiler import IsConstant, Tensor, Where
from rewrite_compiler import ops as o
from rewrite_compiler.lang import Array, Expr, array, reduce_sum, signed
from rewrite_compiler.ops import HasType
from rewrite_compiler.rewrite import Int, Ints
from rewrite_compiler.target import USUAL, Cost, Levels, Limit, Resources, Room, Stay, StreamedDevice, split_bytes, tile, widen

from .alu import function
from .base import Codes, elements, target
from .conv2d import UNEVEN, Layer, conv2d_limits, device_pads, layer, run_layer, windows, with_border
from .cost import layer_cost, layer_levels
from .quantised import OFFSET, formats, initial_sums, with_zero_points, without_zero_point

AXES, BIASED = "x: b c i j; w: c o r s; y: b c u v", "x: b c i j; w: c o r s; b: c; y: b c u v"
WHOLE = "b c o i j r s u v"


def _trial(c: int, size: int, kernel: int, stride: int, pad: int, zero: int, batch: int = 1) -> dict[str, Any]:
    out = (size + 2 * pad - kernel) // stride + 1
    sizes = dict(zip("bcoijrsuv", (batch, c, 1, size, size, kernel, kernel, out, out), strict=True))
    return {**sizes, "strides": (stride, stride), "pads": (pad,) * 4, "group": c, "x_zero": zero}


TRIALS = (
    _trial(16, 2, 2, 1, 0, 3), _trial(21, 7, 3, 2, 1, 100, 2), _trial(5, 50, 3, 1, 1, 0), _trial(40, 6, 5, 1, 2, 77),
    {**_trial(5, 6, 3, 2, 0, 9), **UNEVEN, "s": 2},
)  # fmt: skip


def depthwise_limits(
    i: int, j: int, r: int, s: int, strides: tuple[int, ...], pads: tuple[int, ...], p: Mapping[str, str]
) -> Iterator[Limit]:
    """Capacities of one band of one row of a block of channels."""
    return conv2d_limits(1, i, j, r, s, strides, pads, p)


def depthwise_rooms(r: int, s: int) -> Iterator[Room]:
    """Where the weights of one block of channels lie, while it runs."""
    yield Room("wgt", r * s, scratch="w")


def codes(x: Array, w: Array, b: Array | None = None, *, x_zero: int, strides: tuple[int, ...], pads: tuple[int, ...]) -> Array:
    """Products of codes less their zero point, zeros around them, summed by channel in 32 bits that wrap from the bias on."""
    padded, kernel = with_border(without_zero_point(x, x_zero), pads), tuple(int(n) for n in w.shape[2:])  # type: ignore[arg-type]

    def element(k: Expr, c: Expr, u: Expr, v: Expr) -> Expr:
        total = reduce_sum(lambda r, s: padded[k, c, u * strides[0] + r, v * strides[1] + s] * w[c, 0, r, s], kernel)
        return signed(total if b is None else b[c] + total, 32)

    return array(element, (*x.shape[:2], *windows(padded, kernel, strides)))


def drive(
    device: StreamedDevice, x: Codes, w: Codes, b: Codes | None = None, *, x_zero: int, strides: tuple[int, ...], pads: tuple[int, ...],
    p: Mapping[str, str], offset: int, stay: Stay = USUAL,
) -> Codes:  # fmt: skip
    """Emit one layer of codes: x [(samples,) b, c, i, j], w [c, 1, r, s], b [c] → sums [(samples,) b, c, u, v]."""
    image, pads = with_zero_points(widen(x) - offset, pads, x_zero - offset, p)
    image, pads = device_pads(image, pads, p)
    begin = initial_sums(widen(w), b, offset, x_zero)
    m = replace(_layer(image.shape[-4:], w.shape[2:], strides, pads, p), has_bias=begin is not None, weights_at=stay.base("w"))
    return run_layer(device, m, image, split_bytes(_diagonals(widen(w)[:, 0], m.design.block)), begin)[..., : len(w), :, :]


def _layer(shape: tuple[int, ...], kernel: tuple[int, ...], strides: tuple[int, ...], pads: tuple[int, ...], p: Mapping[str, str]) -> Layer:
    m = layer(shape, 1, kernel, strides, pads, p)
    return replace(m, channels=1, groups=m.channels)


def _diagonals(w: Codes, block: int) -> Codes:
    """Return weights [c, r, s] as elements: for each block of channels and tap a square with them on its diagonal."""
    blocks, (_, rows, cols) = elements(len(w), block), w.shape
    squares = np.zeros((blocks, rows, cols, block, block), w.dtype)
    lane = np.arange(block)
    squares[..., lane, lane] = tile(w, {0: block})
    return squares.reshape(-1)


def cost(
    b: int, c: int, i: int, j: int, r: int, s: int, strides: tuple[int, ...], pads: tuple[int, ...], x_zero: int, p: Mapping[str, str],
    resources: Resources, *, bias: bool, offset: int,
) -> Cost:  # fmt: skip
    """One layer: every block of channels is a convolution of its own."""
    m, starts = _surrounded_layer((b, c, i, j), (r, s), strides, pads, p, has_code=x_zero != offset)
    return layer_cost(m, resources, bias=bias or starts, relu=False)


def levels(
    b: int, c: int, i: int, j: int, r: int, s: int, strides: tuple[int, ...], pads: tuple[int, ...], x_zero: int, p: Mapping[str, str], *,
    bias: bool, offset: int,
) -> Levels:  # fmt: skip
    """One layer: every block of channels is a convolution of its own."""
    m, starts = _surrounded_layer((b, c, i, j), (r, s), strides, pads, p, has_code=x_zero != offset)
    return layer_levels(m, bias=bias or starts, relu=False)


def _surrounded_layer(
    shape: tuple[int, ...],
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    pads: tuple[int, ...],
    p: Mapping[str, str],
    *,
    has_code: bool,
) -> tuple[Layer, bool]:
    """Return the layer, and whether its sums start at a number: a zero point around the image is part of it."""
    if not has_code:
        return _layer(shape, kernel, strides, pads, p), False
    b, c, i, j = shape
    return _layer((b, c, i + pads[0] + pads[2], j + pads[1] + pads[3]), kernel, strides, (0, 0, 0, 0), p), True


def _declare(dtype: str) -> None:
    def guard(x: Tensor, w: Tensor, group: Int, *constants: Tensor) -> Where:
        constant = (IsConstant(t) for t in (w, *constants))
        by_channel = (x.rank == 4, x.shape[1] == group, w.shape[0] == group, group > 1)
        return Where(*by_channel, HasType(x, (dtype,)), HasType(w, ("int8",)), *constant)

    def depthwise(x: Tensor, w: Tensor, x_zero: Int, strides: Ints, pads: Ints, group: Int) -> tuple[Tensor, Where]:
        """A 2-D convolution of codes, each channel with a filter of its own, as int32 sums."""
        return o.integer_conv(x, w, strides, pads, (1, 1), group=group, x_zero=x_zero, w_zero=0), guard(x, w, group)

    def depthwise_bias(x: Tensor, w: Tensor, b: Tensor, x_zero: Int, strides: Ints, pads: Ints, group: Int) -> tuple[Tensor, Where]:
        """A 2-D convolution of codes, each channel with a filter of its own, on int32 sums that start at the filter's bias."""
        y = o.integer_conv(x, w, strides, pads, (1, 1), group=group, x_zero=x_zero, w_zero=0)
        return o.bias_add(y, b, 1), guard(x, w, group, b)

    for f, axes in ((function(depthwise), AXES), (function(depthwise_bias), BIASED)):
        has_bias = "b: c" in axes
        f.__name__ = f"{f.__name__}_{dtype}"
        mapping = target.accelerates(
            axes=axes, formats={}, derived=formats(dtype, bias=has_bias), whole=WHOLE, operation="depthwise", trials=TRIALS
        )(f)  # fmt: skip
        mapping.limits(depthwise_limits)
        mapping.residency(depthwise_rooms)
        mapping.levels(partial(levels, bias=has_bias, offset=OFFSET[dtype]))
        mapping.driver(partial(drive, offset=OFFSET[dtype]))
        mapping.numerics(codes)
        mapping.costs(partial(cost, bias=has_bias, offset=OFFSET[dtype]))


for _dtype in OFFSET:
    _declare(_dtype)
