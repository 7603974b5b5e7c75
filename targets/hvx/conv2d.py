"""HVX's convolutions: images lie with their channels innermost, so that a row of a filter is one segment of an image."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from rewrite_compiler import IsConstant, Tensor, Where
from rewrite_compiler import ops as o
from rewrite_compiler.ila_models.hvx.state import VECTOR
from rewrite_compiler.lang import Array
from rewrite_compiler.rewrite import Ints
from rewrite_compiler.target import StreamedDevice, axis_sizes, conv_sums, window_counts

from .base import Codes, int8, memory_bytes, sums, target
from .products import SIGNED, Formats, Parameters, Product, multiply, requantised


def conv_product(
    b: int, n: int, c: int, i: int, j: int, r: int, s: int, strides: Sequence[int], pads: Sequence[int], p: Parameters,
    keeps_sums: bool = False,
) -> Product:  # fmt: skip
    """Return the product of images [b, c, i, j] and filters [n, c, r, s]."""
    rows, cols = window_counts((i, j), (r, s), strides, pads)
    inputs = b * c * (i + pads[0] + pads[2]) * (j + pads[1] + pads[3])
    return Product(memory_bytes(p), 0, inputs, b * rows * cols, r, c * s, n, keeps_sums)


def multiply_windows(
    device: StreamedDevice, x: Codes, w: Codes, b: Codes, *, strides: tuple[int, ...], pads: tuple[int, ...], p: Parameters, f: Formats,
    relu: bool = False, keeps_sums: bool = False, border: int = 0, instruction: str = SIGNED,
) -> Codes:  # fmt: skip
    """Emit one convolution: x [(samples,) b, c, i, j] with a code around it, w [n, c, r, s], b [n] → [(samples,) b, n, u, v]."""
    batch, channels, rows, cols = x.shape[-4:]
    filters, _, *kernel = w.shape
    out = window_counts((rows, cols), kernel, strides, pads)
    height, width = rows + pads[0] + pads[2], cols + pads[1] + pads[3]
    image = np.full((*x.shape[:-4], batch, height, width, channels), border, x.dtype)
    image[..., pads[0] : pads[0] + rows, pads[1] : pads[1] + cols, :] = np.moveaxis(x, -3, -1)
    starts = [
        [((k * height + u * strides[0] + r) * width + v * strides[1]) * channels for r in range(kernel[0])]
        for k in range(batch) for u in range(out[0]) for v in range(out[1])
    ]  # fmt: skip
    m = conv_product(**axis_sizes("b c i j", x) | axis_sizes("n c r s", w), strides=strides, pads=pads, p=p, keeps_sums=keeps_sums)
    taps = np.moveaxis(w, 1, -1).reshape(filters, kernel[0], -1)
    y = multiply(device, m, starts, image.reshape(*x.shape[:-4], -1), taps, b, f, relu, instruction)
    return np.moveaxis(y.reshape(*y.shape[:-2], batch, *out, filters), -1, -3)


def codes(
    x: Array, w: Array, b: Array, *, strides: tuple[int, ...], pads: tuple[int, ...], f: Formats, relu: bool
) -> Array:  # fmt: skip
    """Sums over the taps of a filter from its bias on, requantised; around an image there are zeros."""
    return conv_sums(x, w, b, partial(requantised, f=f, relu=relu), strides=strides, pads=pads)


def trial(b: int, n: int, c: int, i: int, r: int, stride: int, pad: int) -> dict[str, Any]:
    """Return the sizes and attributes of one layer on a square image."""
    u = (i + 2 * pad - r) // stride + 1
    return dict(zip("bncijrsuv", (b, n, c, i, i, r, r, u, u), strict=True)) | {"strides": (stride,) * 2, "pads": (pad,) * 4}


UNEVEN = {**trial(2, 37, 5, 6, 3, 2, 0), "j": 4, "s": 2, "strides": (2, 1), "pads": (1, 0, 0, 2), "u": 3, "v": 5}
CONV: dict[str, Any] = {
    "axes": "x: b c i j; w: n c r s; b: n; y: b n u v", "formats": {"x": int8, "w": int8, "y": int8}, "derived": {"b": sums},
    "units": {"n": VECTOR}, "operation": "conv2d", "whole": "b c i j r s u v",
    "trials": (trial(1, 5, 3, 2, 2, 2, 1), UNEVEN, trial(1, 140, 50, 3, 2, 1, 0)),
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
    mapping.work(conv_product)
    mapping.driver(partial(multiply_windows, relu=relu), moves=True)
    mapping.numerics(partial(codes, relu=relu))
