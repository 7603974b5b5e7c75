"""Layers on arrays of codes as terms: windows of images, and sums of products, which a target's numerics finish in their way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...lang.arithmetic import maximum, minimum, signed
from ...lang.binders import Array, array, reduce_max, reduce_sum
from ...lang.expr import Expr, select

Finish = Callable[[Expr], Expr]  # what becomes of a sum
NO_PADS = (0, 0, 0, 0)


def axis_sizes(axes: str, x: Any) -> dict[str, Any]:
    """Return the sizes of an array's last axes by their names ("b c i j")."""
    names = axes.split()
    return dict(zip(names, x.shape[-len(names) :], strict=True))


def window_counts(size: Sequence[int], kernel: Sequence[int], strides: Sequence[int], pads: Sequence[int] = NO_PADS) -> tuple[int, int]:
    """Return how many rows and columns of windows an image of so many rows and columns has."""
    rows, cols = ((size[d] + pads[d] + pads[d + 2] - kernel[d]) // strides[d] + 1 for d in range(2))
    return rows, cols


def bordered(x: Array, pads: Sequence[int], code: int = 0) -> Array:
    """Return images [b, c, i, j] with a code around them."""
    (samples, channels, rows, cols), (top, left, bottom, right) = _sizes(x), pads

    def element(k: Expr, c: Expr, i: Expr, j: Expr) -> Expr:
        is_inside = (i >= top) & (i < top + rows) & (j >= left) & (j < left + cols)
        return select(is_inside, x[k, c, i - top, j - left], code)

    return array(element, (samples, channels, top + rows + bottom, left + cols + right)) if any(pads) else x


def windowed(
    x: Array, kernel: Sequence[int], strides: Sequence[int], element: Callable[..., Expr], channels: int | None = None
) -> Array:  # fmt: skip
    """Return an element for each channel and window of images [b, c, i, j]: of image, channel, the window's first row and column."""
    (samples, count, *size), (down, right) = _sizes(x), strides
    shape = (samples, channels or count, *window_counts(size, kernel, strides))
    return array(lambda k, c, u, v: element(k, c, u * down, v * right), shape)


def window_maxima(x: Array, kernel: Sequence[int], strides: Sequence[int], pads: Sequence[int], least: int) -> Array:
    """Return the largest code of each window of images; around them there are least ones."""
    image = bordered(x, pads, least)
    taps = tuple(kernel)
    return windowed(image, kernel, strides, lambda k, c, i, j: reduce_max(lambda r, s: image[k, c, i + r, j + s], taps))


def word_sum(total: Expr) -> Expr:
    """Return a sum that wraps at 32 bits."""
    return signed(total, 32)


def dense_sums(x: Array, w: Array, b: Array | None = None, finish: Finish = word_sum, x_zero: int = 0) -> Array:
    """Return a finish of the sums of products of x [t, k], less its zero point, and w [n, k], from the bias b [n] on."""
    codes = _centred(x, x_zero)

    def element(t: Expr, n: Expr) -> Expr:
        return finish(_from_bias(b, n, reduce_sum(lambda k: codes[t, k] * w[n, k], x.shape[1])))

    return array(element, (x.shape[0], w.shape[0]))


def conv_sums(
    x: Array, w: Array, b: Array | None = None, finish: Finish = word_sum, *, strides: Sequence[int], pads: Sequence[int], x_zero: int = 0
) -> Array:  # fmt: skip
    """Return a finish of the sums of a convolution of x [b, c, i, j], less its zero point, by w [n, c, r, s], from b [n] on."""
    (filters, *kernel), image = _sizes(w), bordered(_centred(x, x_zero), pads)

    def element(k: Expr, n: Expr, i: Expr, j: Expr) -> Expr:
        return finish(_from_bias(b, n, reduce_sum(lambda c, r, s: image[k, c, i + r, j + s] * w[n, c, r, s], tuple(kernel))))

    return windowed(image, kernel[1:], strides, element, filters)


def depthwise_sums(
    x: Array, w: Array, b: Array | None = None, finish: Finish = word_sum, *, strides: Sequence[int], pads: Sequence[int], x_zero: int = 0
) -> Array:  # fmt: skip
    """Return a finish of the sums of x [b, c, i, j], less its zero point, each channel by its own filter w [c, 1, r, s], from b [c] on."""
    (_, _, *kernel), image = _sizes(w), bordered(_centred(x, x_zero), pads)

    def element(k: Expr, c: Expr, i: Expr, j: Expr) -> Expr:
        return finish(_from_bias(b, c, reduce_sum(lambda r, s: image[k, c, i + r, j + s] * w[c, 0, r, s], tuple(kernel))))

    return windowed(image, kernel, strides, element)


def common_factors(multiplier: Sequence[int], shift: Sequence[int]) -> tuple[int, list[int]]:
    """Return the factors multiplier · 2^−shift over one power of two, after the logarithm of that."""
    most = max(shift)
    return most, [m << (most - n) for m, n in zip(multiplier, shift, strict=True)]


def factor_parts(multiplier: Sequence[int], shift: Sequence[int], part: int) -> tuple[list[int], list[int], int, int]:
    """Return both factors over one power of two in parts, the lower ones of so many bits first, what rounds, and the bits left to shift."""
    most, factors = common_factors(multiplier, shift)
    return [m % (1 << part) for m in factors], [m >> part for m in factors], 1 << (most - part - 1), most - part


def code_sum(
    x: Expr, z: Expr, *, multiplier: Sequence[int], shift: Sequence[int], zeros: Sequence[int], zero: int, low: int, high: int, part: int
) -> Expr:  # fmt: skip
    """Return the code of the sum of two codes, each less its zero point times its factor, exactly: nearest, ties up, in low … high.

    Factors are multiplied in two parts, the lower one of `part` bits, as devices with narrow products do: their calls are this term.
    """
    lower, upper, half, left = factor_parts(multiplier, shift, part)
    a, b = x - zeros[0], z - zeros[1]
    carry = (a * lower[0] + b * lower[1]) >> part
    return minimum(maximum(((carry + a * upper[0] + b * upper[1] + half) >> left) + zero, low), high)


def _from_bias(b: Array | None, n: Expr, total: Expr) -> Expr:
    return total if b is None else b[n] + total


def _centred(x: Array, zero: int) -> Array:
    return array(lambda *place: x[place] - zero, x.shape) if zero else x


def _sizes(x: Array) -> tuple[Any, ...]:
    return tuple(x.shape)
