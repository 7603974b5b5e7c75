"""VTA's products for a quantised model's own codes: int8 weights, int8 or uint8 activations with any zero point, int32 sums.

The device multiplies signed bytes and has no zero points. Activations enter less 128 where they are uint8; what that and the
zero point leave out is a number for each output, (offset − zero) · Σ w, at which the accumulators start.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np

from rewrite_compiler import IsConstant, Tensor, Where
from rewrite_compiler import ops as o
from rewrite_compiler.lang import Array, array
from rewrite_compiler.lang import Int as Integers
from rewrite_compiler.ops import HasType
from rewrite_compiler.rewrite import Int, Ints
from rewrite_compiler.target import USUAL, Room, Stay, StreamedDevice, pad_axis, row_sums, widen

from .alu import function
from .base import Codes, config, elements, target
from .conv2d import AXES as IMAGES
from .conv2d import BIASED as BIASED_IMAGES
from .conv2d import TRIALS, WHOLE, conv2d_codes, conv2d_limits, conv2d_rooms, drive_conv2d, with_border_codes
from .dense import AXES as MATRICES
from .dense import BIASED as BIASED_MATRICES
from .dense import dense_codes, dense_limits, dense_rooms, drive_dense

OFFSET = {"int8": 0, "uint8": 128}  # what is taken from a code to make a signed byte of it
BYTE, SUM = Integers(8), Integers(32)
SIZES = ((1, 16, 16, 3), (5, 40, 33, -117), (3, 600, 20, 128), (2, 16, 17, 0))


def formats(dtype: str, *, bias: bool) -> dict[str, partial[Integers]]:
    """Return the formats of all tensors: the model's own."""
    integers = {"x": Integers(8, dtype == "int8"), "w": BYTE, "y": SUM, **({"b": SUM} if bias else {})}
    return {name: partial(Integers, f.width, f.signed) for name, f in integers.items()}


def initial_sums(w: Codes, b: Codes | None, offset: int, zero: int) -> Codes | None:
    """Return the numbers at which the accumulators start, None for zeros."""
    if b is None and offset == zero:
        return None
    missing = (offset - zero) * row_sums(w.reshape(len(w), -1))
    return np.asarray(missing if b is None else missing + widen(b))


def without_zero_point(x: Array, zero: int) -> Array:
    """Return codes less their zero point."""
    return array(lambda *i: x[i] - zero, x.shape)


def dense_sums(x: Array, w: Array, b: Array | None = None, *, x_zero: int) -> Array:
    """Products of codes less their zero point, summed in 32 bits that wrap from the bias on."""
    return dense_codes(without_zero_point(x, x_zero), w, b)


def drive_dense_sums(
    device: StreamedDevice, x: Codes, w: Codes, b: Codes | None = None, *, x_zero: int, p: Mapping[str, str], offset: int,
    stay: Stay = USUAL,
) -> Codes:  # fmt: skip
    """Emit one product of codes: x [(samples,) t, k], w [n, k], b [n] → y [(samples,) t, n]."""
    weights = widen(w)
    return drive_dense(device, widen(x) - offset, weights, initial_sums(weights, b, offset, x_zero), p=p, stay=stay)


def conv2d_sums(x: Array, w: Array, b: Array | None = None, *, x_zero: int, strides: tuple[int, ...], pads: tuple[int, ...]) -> Array:
    """Products of codes less their zero point, zeros around them, summed in 32 bits that wrap from the bias on."""
    return conv2d_codes(without_zero_point(x, x_zero), w, b, strides=strides, pads=pads)


def with_zero_points(x: Codes, pads: tuple[int, ...], zero: int, p: Mapping[str, str]) -> tuple[Codes, tuple[int, ...]]:
    """Return images with zero points around all channels of their blocks, where these are no zeros, and the zeros that are left to add."""
    block = config(p).block
    channels = pad_axis(x, -3, elements(x.shape[-3], block) * block)
    return (x, pads) if not zero else (with_border_codes(channels, pads, zero), (0, 0, 0, 0))


def drive_conv2d_sums(
    device: StreamedDevice, x: Codes, w: Codes, b: Codes | None = None, *, x_zero: int, strides: tuple[int, ...], pads: tuple[int, ...],
    p: Mapping[str, str], offset: int, stay: Stay = USUAL,
) -> Codes:  # fmt: skip
    """Emit one layer of codes; zero points around the image are the host's where the device's zeros are none."""
    weights = widen(w)
    image, pads = with_zero_points(widen(x) - offset, pads, x_zero - offset, p)
    return drive_conv2d(device, image, weights, initial_sums(weights, b, offset, x_zero), strides=strides, pads=pads, p=p, stay=stay)


def conv2d_sums_rooms(
    b: int, n: int, c: int, i: int, j: int, r: int, s: int, x_zero: int, strides: tuple[int, ...], pads: tuple[int, ...],
    p: Mapping[str, str], *, offset: int,
) -> Iterator[Room]:  # fmt: skip
    """Where weights lie; zero points around the image are part of it."""
    if x_zero != offset:
        i, j, pads = i + pads[0] + pads[2], j + pads[1] + pads[3], (0, 0, 0, 0)
    return conv2d_rooms(b, n, c, i, j, r, s, strides, pads, p)


def _declare(dtype: str) -> None:
    def guard(x: Tensor, w: Tensor, rank: int, *constants: Tensor) -> Where:
        constant = (IsConstant(t) for t in (w, *constants))
        return Where(x.rank == rank, HasType(x, (dtype,)), HasType(w, ("int8",)), *constant)

    def dense(x: Tensor, w: Tensor, x_zero: Int) -> tuple[Tensor, Where]:
        """A matrix product of codes with constant weights, as int32 sums."""
        return o.integer_dense(x, w, x_zero=x_zero, w_zero=0), guard(x, w, 2)

    def dense_bias(x: Tensor, w: Tensor, b: Tensor, x_zero: Int) -> tuple[Tensor, Where]:
        """A matrix product of codes on int32 sums that start at the bias."""
        return o.bias_add(o.integer_dense(x, w, x_zero=x_zero, w_zero=0), b, 1), guard(x, w, 2, b)

    def conv2d(x: Tensor, w: Tensor, x_zero: Int, strides: Ints, pads: Ints) -> tuple[Tensor, Where]:
        """A 2-D convolution of codes without groups or dilation, as int32 sums."""
        return o.integer_conv(x, w, strides, pads, (1, 1), group=1, x_zero=x_zero, w_zero=0), guard(x, w, 4)

    def conv2d_bias(x: Tensor, w: Tensor, b: Tensor, x_zero: Int, strides: Ints, pads: Ints) -> tuple[Tensor, Where]:
        """A 2-D convolution of codes on int32 sums that start at the filter's bias."""
        y = o.integer_conv(x, w, strides, pads, (1, 1), group=1, x_zero=x_zero, w_zero=0)
        return o.bias_add(y, b, 1), guard(x, w, 4, b)

    trials = [dict(zip(("t", "k", "n", "x_zero"), sizes, strict=True)) for sizes in SIZES]
    for product, axes in ((function(dense), MATRICES), (function(dense_bias), BIASED_MATRICES)):
        product.__name__ = f"{product.__name__}_{dtype}"
        derived = formats(dtype, bias="b:" in axes)
        mapping = target.accelerates(axes=axes, formats={}, derived=derived, units={"k": 16, "n": 16}, operation="dense", trials=trials)(
            product
        )
        mapping.limits(dense_limits)
        mapping.residency(dense_rooms)
        mapping.driver(partial(drive_dense_sums, offset=OFFSET[dtype]))
        mapping.numerics(dense_sums)
    layers = [{**sizes, "x_zero": zero} for sizes, zero in zip(TRIALS, (3, 100, OFFSET[dtype], 77, 5, 9), strict=True)]
    for layer, axes in ((function(conv2d), IMAGES), (function(conv2d_bias), BIASED_IMAGES)):
        layer.__name__ = f"{layer.__name__}_{dtype}"
        derived = formats(dtype, bias="b:" in axes)
        mapping = target.accelerates(
            axes=axes, formats={}, derived=derived, units={"n": 16}, whole=WHOLE, operation="conv2d", trials=layers
        )(layer)  # fmt: skip
        mapping.limits(conv2d_limits)
        mapping.residency(partial(conv2d_sums_rooms, offset=OFFSET[dtype]))
        mapping.driver(partial(drive_conv2d_sums, offset=OFFSET[dtype]))
        mapping.numerics(conv2d_sums)


for _dtype in OFFSET:
    _declare(_dtype)
