"""HVX's convolutions: images lie with their channels innermost, so that a row of a filter is one segment of an image."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from rewrite_compiler import IsConstant, Tensor, Where
from rewrite_compiler import ops as o
from rewrite_compiler.ila_models.hvx.state import VECTOR
from rewrite_compiler.lang import Array, Expr, reduce_sum
from rewrite_compiler.rewrite import Ints
from rewrite_compiler.target import Cost, Limit, Resources, StreamedDevice

from .base import Codes, bordered, int8, memory_bytes, sums, target, window_counts, windows
from .products import WORD, Formats, Product, multiply, product_cost, requantised


def _product(shape: Sequence[int], w: Sequence[int], strides: Sequence[int], pads: Sequence[int]) -> Product:
    """Return the product of images [b, c, i, j] and filters [n, c, r, s]."""
    batch, channels, rows, cols = shape
    out = window_counts(shape[2:], w[2:], strides, pads)
    inputs = batch * channels * (rows + pads[0] + pads[2]) * (cols + pads[1] + pads[3])
    return Product(inputs, batch * out[0] * out[1], w[2], channels * w[3], w[0])


def drive(
    device: StreamedDevice, x: Codes, w: Codes, b: Codes, *, strides: tuple[int, ...], pads: tuple[int, ...], f: Formats, relu: bool
) -> Codes:
    """Emit one convolution: x [(samples,) b, c, i, j], w [n, c, r, s], b [n] → y [(samples,) b, n, u, v], all codes."""
    batch, channels, rows, cols = x.shape[-4:]
    out = window_counts((rows, cols), w.shape[2:], strides, pads)
    height, width = rows + pads[0] + pads[2], cols + pads[1] + pads[3]
    image = np.zeros((*x.shape[:-4], batch, height, width, channels), x.dtype)
    image[..., pads[0] : pads[0] + rows, pads[1] : pads[1] + cols, :] = np.moveaxis(x, -3, -1)
    starts = [
        [((k * height + u * strides[0] + r) * width + v * strides[1]) * channels for r in range(w.shape[2])]
        for k in range(batch) for u in range(out[0]) for v in range(out[1])
    ]  # fmt: skip
    filters = np.moveaxis(w, 1, -1).reshape(len(w), w.shape[2], -1)
    m = _product(x.shape[-4:], w.shape, strides, pads)
    y = multiply(device, m, starts, image.reshape(*x.shape[:-4], -1), filters, b, f, relu)
    return np.moveaxis(y.reshape(*y.shape[:-2], batch, *out, len(w)), -1, -3)


def codes(
    x: Array, w: Array, b: Array, *, strides: tuple[int, ...], pads: tuple[int, ...], f: Formats, relu: bool
) -> Array:  # fmt: skip
    """Sums over the taps of a filter from its bias on, requantised; around an image there are zeros."""
    kernel, image = [int(n) for n in w.shape[1:]], bordered(x, pads, 0)  # type: ignore[arg-type]

    def element(k: Expr, n: Expr, u: Expr, v: Expr) -> Expr:
        def term(c: Expr, r: Expr, s: Expr) -> Expr:
            return image[k, c, u * strides[0] + r, v * strides[1] + s] * w[n, c, r, s]

        return requantised(b[n] + reduce_sum(term, kernel), f, relu)

    return windows(image, kernel[1:], strides, element, int(w.shape[0]))  # type: ignore[arg-type]


def limits(
    b: int, n: int, c: int, i: int, j: int, r: int, s: int, strides: tuple[int, ...], pads: tuple[int, ...], p: Mapping[str, str]
) -> Iterator[Limit]:
    """What one convolution and its code take of memory."""
    m = _product((b, c, i, j), (n, c, r, s), strides, pads)
    yield Limit("bytes of memory", m.places["end"] + WORD * m.instructions, memory_bytes(p))


def cost(
    b: int, n: int, c: int, i: int, j: int, r: int, s: int, strides: tuple[int, ...], pads: tuple[int, ...], resources: Resources
) -> Cost:
    """Packets and bytes of one convolution."""
    return product_cost(_product((b, c, i, j), (n, c, r, s), strides, pads), resources)


def _trial(b: int, n: int, c: int, i: int, r: int, stride: int, pad: int) -> dict[str, Any]:
    u = (i + 2 * pad - r) // stride + 1
    return dict(zip("bncijrsuv", (b, n, c, i, i, r, r, u, u), strict=True)) | {"strides": (stride,) * 2, "pads": (pad,) * 4}


UNEVEN = {**_trial(2, 37, 5, 6, 3, 2, 0), "j": 4, "s": 2, "strides": (2, 1), "pads": (1, 0, 0, 2), "u": 3, "v": 5}
CONV: dict[str, Any] = {
    "axes": "x: b c i j; w: n c r s; b: n; y: b n u v", "formats": {"x": int8, "w": int8, "y": int8}, "derived": {"b": sums},
    "units": {"n": VECTOR}, "operation": "conv2d", "whole": "b c i j r s u v",
    "trials": (_trial(1, 5, 3, 2, 2, 2, 1), UNEVEN, _trial(1, 140, 50, 3, 2, 1, 0)),
}  # fmt: skip


@target.accelerates(**CONV)
def conv2d(x: Tensor, w: Tensor, b: Tensor, strides: Ints, pads: Ints) -> tuple[Tensor, Where]:
    """A 2-D convolution without groups or dilation, whose sums start at the filter's bias."""
    y = o.conv(x, w, strides, pads, (1, 1), group=1)
    return o.bias_add(y, b, 1), Where(x.rank == 4, IsConstant(w), IsConstant(b))


@target.accelerates(**CONV)
def conv2d_relu(x: Tensor, w: Tensor, b: Tensor, strides: Ints, pads: Ints) -> tuple[Tensor, Where]:
    """A 2-D convolution with bias, and the larger of each code and zero."""
    y = o.conv(x, w, strides, pads, (1, 1), group=1)
    return o.relu(o.bias_add(y, b, 1)), Where(x.rank == 4, IsConstant(w), IsConstant(b))


for mapping, relu in ((conv2d, False), (conv2d_relu, True)):
    mapping.limits(limits)
    mapping.driver(partial(drive, relu=relu), moves=True)
    mapping.numerics(partial(codes, relu=relu))
    mapping.costs(cost)
