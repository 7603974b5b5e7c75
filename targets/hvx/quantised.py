"""HVX's products of quantised models: codes of either sign by signed weights, as int32 sums.

A zero point leaves out the same number for each output, zero · Σ w, from which sums start. The codes of sums are `requantise`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from rewrite_compiler import IsConstant, Tensor, Where
from rewrite_compiler import ops as o
from rewrite_compiler.ila_models.hvx.state import VECTOR
from rewrite_compiler.lang import Array, Expr, signed
from rewrite_compiler.lang import Int as Integers
from rewrite_compiler.ops import HasType
from rewrite_compiler.rewrite import Int, Ints
from rewrite_compiler.target import StreamedDevice, axis_sizes, conv_sums, dense_sums, row_sums, widen

from .base import Codes, target
from .conv2d import UNEVEN, conv_product, multiply_windows, trial
from .products import SIGNED, UNSIGNED, Parameters, dense_product, multiply_rows

ZEROS = {"int8": (-128, 5), "uint8": (200, 3)}  # of trials
WORDS = partial(Integers, 32)


def _starts(w: Codes, b: Codes | None, zero: int) -> Codes:
    """Return the numbers at which sums start: the biases, less what the zero point adds."""
    start = -zero * row_sums(widen(w.reshape(len(w), -1)))
    return start if b is None else np.asarray(widen(b) + start)


def _drive_dense(
    device: StreamedDevice, x: Codes, w: Codes, b: Codes | None = None, *, x_zero: int, instruction: str, p: Parameters
) -> Codes:
    """Emit one product: x [(samples,) t, k], w [n, k], b [n] → sums [(samples,) t, n]."""
    m = dense_product(**axis_sizes("t k", x), n=len(w), p=p, keeps_sums=True)
    return multiply_rows(device, m, x, w, _starts(w, b, x_zero), {}, instruction=instruction)


def _drive_conv2d(
    device: StreamedDevice, x: Codes, w: Codes, b: Codes | None = None, *, x_zero: int, strides: tuple[int, ...], pads: tuple[int, ...],
    instruction: str, p: Parameters,
) -> Codes:  # fmt: skip
    """Emit one convolution: x [(samples,) b, c, i, j] in zero points, w [n, c, r, s], b [n] → sums [(samples,) b, n, u, v]."""
    how: dict[str, Any] = {"keeps_sums": True, "border": x_zero, "instruction": instruction}
    return multiply_windows(device, x, w, _starts(w, b, x_zero), strides=strides, pads=pads, p=p, f={}, **how)


def _wrapped(total: Expr) -> Expr:
    return signed(total, 32)


def _dense_codes(x: Array, w: Array, b: Array | None = None, *, x_zero: int) -> Array:
    """Sums of products of codes less the zero point, which wrap at 32 bits."""
    return dense_sums(x, w, b, _wrapped, x_zero)


def _conv2d_codes(x: Array, w: Array, b: Array | None = None, *, x_zero: int, strides: tuple[int, ...], pads: tuple[int, ...]) -> Array:
    """Sums of products of codes less the zero point, zeros around them, which wrap at 32 bits."""
    return conv_sums(x, w, b, _wrapped, strides=strides, pads=pads, x_zero=x_zero)


_DENSE: dict[str, Any] = {"axes": "x: t k; w: n k; {}y: t n", "whole": "k", "operation": "dense"}
_CONV: dict[str, Any] = {"axes": "x: b c i j; w: n c r s; {}y: b n u v", "whole": "b c i j r s u v", "operation": "conv2d"}
_PARTS: dict[str, tuple[Callable[..., Any], ...]] = {
    "dense": (partial(dense_product, keeps_sums=True), _drive_dense, _dense_codes),
    "conv2d": (partial(conv_product, keeps_sums=True), _drive_conv2d, _conv2d_codes),
}
_TRIALS = {"dense": ({"t": 3, "k": 6, "n": 37}, {"t": 2, "k": 150, "n": 140}), "conv2d": (trial(1, 5, 3, 2, 2, 2, 1), UNEVEN)}


def _declare(dtype: str, instruction: str) -> None:
    def of_codes(x: Tensor, w: Tensor, rank: int, *constants: Tensor) -> Where:
        return Where(x.rank == rank, HasType(x, (dtype,)), HasType(w, ("int8",)), *(IsConstant(t) for t in (w, *constants)))

    def dense(x: Tensor, w: Tensor, x_zero: Int) -> tuple[Tensor, Where]:
        """A product of codes with constant weights, as int32 sums."""
        return o.integer_dense(x, w, x_zero=x_zero, w_zero=0), of_codes(x, w, 2)

    def dense_bias(x: Tensor, w: Tensor, b: Tensor, x_zero: Int) -> tuple[Tensor, Where]:
        """A product of codes with constant weights, as int32 sums that start at the bias."""
        return o.bias_add(o.integer_dense(x, w, x_zero=x_zero, w_zero=0), b, 1), of_codes(x, w, 2, b)

    def conv2d(x: Tensor, w: Tensor, x_zero: Int, strides: Ints, pads: Ints) -> tuple[Tensor, Where]:
        """A convolution of codes without groups or dilation, as int32 sums."""
        return o.integer_conv(x, w, strides, pads, (1, 1), group=1, x_zero=x_zero, w_zero=0), of_codes(x, w, 4)

    def conv2d_bias(x: Tensor, w: Tensor, b: Tensor, x_zero: Int, strides: Ints, pads: Ints) -> tuple[Tensor, Where]:
        """A convolution of codes without groups or dilation, as int32 sums that start at the bias."""
        return o.bias_add(o.integer_conv(x, w, strides, pads, (1, 1), group=1, x_zero=x_zero, w_zero=0), b, 1), of_codes(x, w, 4, b)

    codes = {"x": partial(Integers, 8, dtype == "int8"), "w": partial(Integers, 8)}
    for f, declared in ((dense, _DENSE), (dense_bias, _DENSE), (conv2d, _CONV), (conv2d_bias, _CONV)):
        bias = "b" * f.__name__.endswith("_bias")
        f.__name__ = f"{f.__name__}_{dtype}"
        trials = [{**at, "x_zero": zero} for at, zero in zip(_TRIALS[declared["operation"]], ZEROS[dtype], strict=True)]
        axes, derived = declared["axes"].format("b: n; " if bias else ""), codes | dict.fromkeys(f"{bias}y", WORDS)
        mapping = target.accelerates(**{**declared, "axes": axes}, formats={}, derived=derived, units={"n": VECTOR}, trials=trials)(f)
        plan, drive, numerics = _PARTS[declared["operation"]]
        mapping.work(plan)
        mapping.driver(partial(drive, instruction=instruction))
        mapping.numerics(numerics)


for _dtype, _instruction in (("int8", SIGNED), ("uint8", UNSIGNED)):
    _declare(_dtype, _instruction)
