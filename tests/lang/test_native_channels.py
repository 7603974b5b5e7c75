"""Convolutions of single channels in machine code: the products in order, each added by one operation that rounds once."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from rewrite_compiler.readings.native.gemm.depthwise import Window, convolution, lanes_of

CASES = [
    (8, (5, 6), (3, 3), (1, 1), (1, 1, 1, 1), (0.0, 6.0), (0.0, 6.0), True),
    (16, (6, 7), (3, 2), (2, 1), (0, 1, 1, 0), None, (-0.5, float("inf")), False),
    (12, (4, 4), (1, 1), (3, 2), (0, 0, 0, 0), (0.0, float("inf")), None, True),
    (24, (3, 9), (2, 5), (1, 2), (2, 3, 0, 4), None, None, True),
]


def rounded(x: Fraction) -> Fraction:
    """Return the nearest number of 24 bits, of two as near the even one."""
    if not x:
        return x
    scale = Fraction(1)
    while abs(x * scale) >= 2**24:
        scale /= 2
    while abs(x * scale) < 2**23:
        scale *= 2
    return Fraction(round(x * scale)) / scale


def one(x: np.ndarray, w: np.ndarray, b: float, case: Window, row: int, column: int) -> float:
    """Return one element by rational arithmetic."""
    total = Fraction(0)
    for i in range(case.kernel[0]):
        for j in range(case.kernel[1]):
            at = row * case.strides[0] + i - case.pads[0], column * case.strides[1] + j - case.pads[1]
            if 0 <= at[0] < x.shape[0] and 0 <= at[1] < x.shape[1]:
                low, high = case.before or (-np.inf, np.inf)
                total = rounded(total + Fraction(float(np.clip(x[at], low, high))) * Fraction(float(w[i, j])))
    total = rounded(total + Fraction(float(b))) if case.has_bias else total
    low, high = case.after or (-np.inf, np.inf)
    return float(np.clip(float(total), low, high))


@pytest.mark.parametrize("case", CASES, ids=["both clamps", "steps", "one element", "zeros around"])
def test_every_element_is_the_sum_in_order_rounded_after_each_product(case: tuple[Any, ...]) -> None:
    channels, extents, kernel, strides, pads, before, after, has_bias = case
    rng = np.random.default_rng(3)
    lanes = lanes_of(channels)
    assert lanes is not None
    window = Window(kernel, strides, pads, before, after, has_bias, lanes)
    x = np.moveaxis(rng.normal(0, 4, (2, *extents, channels)).astype(np.float32), -1, 1)
    w, b = rng.normal(0, 1, (channels, 1, *kernel)).astype(np.float32), rng.normal(0, 1, channels).astype(np.float32)
    out = [(n + p - k) // s + 1 for n, p, k, s in zip(window.padded(*extents), (0, 0), kernel, strides, strict=True)]
    y = np.moveaxis(np.full((2, *out, channels), np.nan, np.float32), -1, 1)
    assert convolution(window, w, b)(x, y) == (y.min(), y.max())
    for n, c in ((0, 0), (1, channels - 1), (1, channels // 2)):
        expected = [[one(x[n, c], w[c, 0], b[c], window, i, j) for j in range(out[1])] for i in range(out[0])]
        np.testing.assert_array_equal(y[n, c], np.array(expected, np.float32))


@pytest.mark.parametrize(("channels", "lanes"), [(48, 16), (24, 8), (20, 4), (3, None)])
def test_channels_fill_whole_vectors(channels: int, lanes: int | None) -> None:
    assert lanes_of(channels) == lanes


def test_clamps_keep_what_is_no_number() -> None:
    window = Window((1, 3), (1, 1), (0, 1, 0, 1), (0.0, 6.0), (0.0, 6.0), False, 4)
    x = np.zeros((1, 1, 5, 4), np.float32)
    x[0, 0, 1, 2], x[0, 0, 4, 0] = np.nan, np.inf
    y = np.empty_like(x)
    ends = convolution(window, np.ones((4, 1, 1, 3)), np.zeros(4))(np.moveaxis(x, -1, 1), np.moveaxis(y, -1, 1))
    assert not all(map(np.isfinite, ends))
    assert np.isnan(y[0, 0, :, 2]).tolist() == [True, True, True, False, False]
    assert y[0, 0, :, 0].tolist() == [0, 0, 0, 6, 6]
    assert not y[0, 0, :, [1, 3]].any()
