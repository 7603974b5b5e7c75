"""HVX's dense layers and convolutions: images lie with their channels innermost, so that a row of a filter is one segment of an image.

Results are codes, or of a quantised model's codes int32 sums. A zero point leaves out the same number for each output, zero · Σ w,
from which sums start. The codes of sums are `requantise`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from rewrite_compiler.ila_models.hvx.state import VECTOR
from rewrite_compiler.lang import Array
from rewrite_compiler.target import (
    StreamedDevice,
    axis_sizes,
    bordered_codes,
    conv_sums,
    dense_sums,
    fixed_byte,
    fixed_products,
    initial_sums,
    product_pattern,
    window_counts,
    word_sum,
)

from .base import Codes, Parameters, Shape, target
from .products import SIGNED, UNSIGNED, Formats, Product, multiply, requantised

CODE_BYTES = 1 << 16  # of a dense layer's code: longer ones are divided, which costs nothing, as blocks share no sums
ONE, NO_PADS = (1, 1), (0, 0, 0, 0)


def _conv2d(
    b: int, n: int, c: int, i: int, j: int, r: int, s: int, strides: Shape, pads: Shape, p: Parameters, keeps_sums: bool, code: int = 0
) -> Product:  # fmt: skip
    """Return the product of images [b, c, i, j] and filters [n, c, r, s]."""
    rows, cols = window_counts((i, j), (r, s), strides, pads)
    inputs = b * c * (i + pads[0] + pads[2]) * (j + pads[1] + pads[3])
    return Product(p, code, inputs, b * rows * cols, r, c * s, n, keeps_sums)


def _dense(t: int, k: int, n: int, p: Parameters, keeps_sums: bool) -> Product:
    """Return the product of rows, which are images of one place whose channels are their elements."""
    return _conv2d(t, n, k, 1, 1, 1, 1, ONE, NO_PADS, p, keeps_sums, CODE_BYTES)


def _drive_conv2d(
    device: StreamedDevice, x: Codes, w: Codes, b: Codes | None = None, *, strides: Shape, pads: Shape, p: Parameters, f: Formats,
    keeps_sums: bool, relu: bool = False, x_zero: int = 0, instruction: str = SIGNED, code: int = 0,
) -> Codes:  # fmt: skip
    """Emit one layer: x [(samples,) b, c, i, j] in zero points, w [n, c, r, s], b [n] → [(samples,) b, n, u, v]."""
    m = _conv2d(**axis_sizes("b c i j", x) | axis_sizes("n c r s", w), strides=strides, pads=pads, p=p, keeps_sums=keeps_sums, code=code)
    batch, out = x.shape[-4], window_counts(x.shape[-2:], w.shape[2:], strides, pads)
    image = np.ascontiguousarray(np.moveaxis(bordered_codes(x, pads, x_zero), -3, -1))
    height, width, channels = image.shape[-3:]
    starts = [
        [((k * height + u * strides[0] + r) * width + v * strides[1]) * channels for r in range(w.shape[2])]
        for k in range(batch) for u in range(out[0]) for v in range(out[1])
    ]  # fmt: skip
    taps = np.moveaxis(w, 1, -1).reshape(len(w), w.shape[2], -1)
    biases = np.asarray(initial_sums(w, np.zeros(len(w), np.int32) if b is None else b, -x_zero))
    y = multiply(device, m, starts, image.reshape(*x.shape[:-4], -1), taps, biases, f, relu, instruction)
    return np.moveaxis(y.reshape(*y.shape[:-2], batch, *out, len(w)), -1, -3)


def _drive_dense(device: StreamedDevice, x: Codes, w: Codes, b: Codes | None = None, **how: Any) -> Codes:
    """Emit one product: x [(samples,) t, k], w [n, k], b [n] → [(samples,) t, n]."""
    places: dict[str, Any] = {"strides": ONE, "pads": NO_PADS, "code": CODE_BYTES}
    return _drive_conv2d(device, x[..., None, None], w[..., None, None], b, **places, **how)[..., 0, 0]


def _conv2d_codes(x: Array, w: Array, b: Array, *, strides: Shape, pads: Shape, f: Formats, relu: bool) -> Array:
    """Sums over the taps of a filter from its bias on, requantised; around an image there are zeros."""
    return conv_sums(x, w, b, partial(requantised, f=f, relu=relu), strides=strides, pads=pads)


def _dense_codes(x: Array, w: Array, b: Array, *, f: Formats, relu: bool) -> Array:
    """Sums from the bias on, requantised."""
    return dense_sums(x, w, b, partial(requantised, f=f, relu=relu))


def _conv2d_words(x: Array, w: Array, b: Array | None = None, *, x_zero: int, strides: Shape, pads: Shape) -> Array:
    """Sums of products of codes less the zero point, zeros around them, which wrap at 32 bits."""
    return conv_sums(x, w, b, word_sum, strides=strides, pads=pads, x_zero=x_zero)


def _dense_words(x: Array, w: Array, b: Array | None = None, *, x_zero: int) -> Array:
    """Sums of products of codes less the zero point, which wrap at 32 bits."""
    return dense_sums(x, w, b, word_sum, x_zero)


_PARTS: dict[str, tuple[Callable[..., Any], ...]] = {
    "dense": (_dense, _drive_dense, _dense_codes, _dense_words),
    "conv2d": (_conv2d, _drive_conv2d, _conv2d_codes, _conv2d_words),
}
_CONV = product_pattern("conv2d")
_UNEVEN = _CONV.trial(b=2, n=37, c=5, i=6, j=4, kernel=(3, 2), strides=(2, 1), pads=(1, 0, 0, 2))
_SQUARE = _CONV.trial(n=5, c=3, i=2, kernel=2, strides=2, pads=1)
_TRIALS = {
    "dense": ({"t": 3, "k": 6, "n": 37}, {"t": 2, "k": 150, "n": 140}, {"t": 1, "k": 4, "n": 128}),
    "conv2d": (_SQUARE, _UNEVEN, _CONV.trial(n=140, c=50, i=3, kernel=2)),
}
_ZEROS = {"int8": (-128, 5), "uint8": (200, 3)}  # of trials


_CODES: dict[str, Any] = {"formats": dict.fromkeys("xwy", fixed_byte), "derived": {"b": fixed_products}}


def _declare(kind: str, *, bias: bool = True, relu: bool = False, codes: str = "") -> None:
    """Declare a layer whose results are codes or, with the type of a model's own codes, int32 sums."""
    plan, drive, of_codes, of_words = _PARTS[kind]
    pattern, is_own = product_pattern(kind, bias=bias, relu=relu, codes=codes), bool(codes)
    trials = [{**at, "x_zero": zero} for at, zero in zip(_TRIALS[kind], _ZEROS[codes], strict=False)] if is_own else _TRIALS[kind]
    name = pattern.name if is_own else pattern.name.replace("_bias", "")
    mapping = target.offers(
        pattern, name, units={"n": VECTOR}, whole=pattern.whole or "k", trials=trials, **({} if is_own else _CODES)
    )  # fmt: skip
    how: dict[str, Any] = {"keeps_sums": is_own, "relu": relu, "instruction": UNSIGNED if codes == "uint8" else SIGNED}
    numerics = of_words if is_own else partial(of_codes, relu=relu)
    mapping.implement(partial(plan, keeps_sums=is_own), partial(drive, **how), numerics, moves=not is_own)


for _kind in _PARTS:
    for _relu in (False, True):
        _declare(_kind, relu=_relu)
for _own in _ZEROS:
    for _kind in _PARTS:
        for _bias in (False, True):
            _declare(_kind, bias=_bias, codes=_own)
