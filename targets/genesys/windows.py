"""GeneSys's windows on the SIMD array: pools and depthwise convolutions, tap by tap over the rows of vector memories."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from rewrite_compiler.lang import Array, Expr, Fixed, reduce_sum
from rewrite_compiler.target import (
    Limit,
    StreamedDevice,
    axis_sizes,
    bordered_codes,
    depthwise_sums,
    fixed_byte,
    low_bits,
    pool_pattern,
    tile_count,
    widen,
    window_maxima,
    windowed,
)

from .base import Codes, P, config, declare_product, target
from .simd import Sweep, run

LEAST = {"": -128, "uint8": 0}  # the least code: what stands around the image of a maximum
GUARD = 8  # bits of the fraction that means have more than codes
LARGEST = 1 << 15  # elements of a mean, whose reciprocal has 16 bits
NO_PADS = (0, 0, 0, 0)
MAXIMA = ("windows move y s0 s0", "taps max y y x")  # the least code, then the larger one tap by tap
MEANS = ("windows move y s0 s0", "taps add y y x", "windows mul y y s1")  # the sum tap by tap, then its product with the reciprocal
SIZES: tuple[dict[str, int], ...] = (  # of trials
    {"c": 16, "i": 2, "kernel": 2}, {"b": 2, "c": 21, "i": 7, "kernel": 3, "strides": 2, "pads": 1},
    {"c": 5, "i": 8, "kernel": 3, "pads": 1},
)  # fmt: skip
Sizes = tuple[int, ...]


def _windows(
    b: int, c: int, i: int, j: int, kernel: Sizes, strides: Sizes, p: P, pads: Sizes = NO_PADS, *, program: tuple[str, ...] = MAXIMA,
    numbers: int = 0, bounds: tuple[Limit, ...] = (),
) -> Sweep:  # fmt: skip
    design, size = config(p), (i + pads[0] + pads[2], j + pads[1] + pads[3])
    taps, steps = (kernel[0], kernel[1]), (strides[0], strides[1])
    parts = tile_count(c, design.lanes)
    return Sweep(design, b, parts, size, taps, steps, numbers=numbers, is_apart=True, program=program, bounds=bounds)


# -- pools


def _drive_max(device: StreamedDevice, x: Codes, *, kernel: Sizes, strides: Sizes, pads: Sizes, p: P, least: int) -> Codes:
    """Emit one pooling of codes: x [(samples,) b, c, i, j] → [(samples,) b, c, u, v]."""
    m = _windows(**axis_sizes("b c i j", x), kernel=kernel, strides=strides, p=p, pads=pads)
    y = run(device, m, [bordered_codes(widen(x), pads, least)], scalars=(least,))
    return y if least else low_bits(y, 8)


for _codes, _least in LEAST.items():
    _pattern = pool_pattern("max_pool", _codes)
    _own: dict[str, Any] = {} if _codes else {"formats": {"x": fixed_byte}, "derived": {"y": lambda x: x}}
    _pool = target.offers(_pattern, trials=[_pattern.trial(**at) for at in SIZES], **_own)
    _pool.implement(_windows, partial(_drive_max, least=_least), partial(window_maxima, least=_least))


def _reciprocal(kernel: Sizes) -> int:
    return round((1 << 16) / math.prod(kernel))


def _means(b: int, c: int, i: int, j: int, kernel: Sizes, strides: Sizes, p: P) -> Sweep:
    bounds = (Limit("elements of a mean", math.prod(kernel), LARGEST),)
    return _windows(b, c, i, j, kernel, strides, p, program=MEANS, bounds=bounds)


def _drive_mean(device: StreamedDevice, x: Codes, *, kernel: Sizes, strides: Sizes, p: P) -> Codes:
    """Emit one pooling by means: x [(samples,) b, c, i, j] → [(samples,) b, c, u, v]."""
    m = _means(**axis_sizes("b c i j", x), kernel=kernel, strides=strides, p=p)
    return run(device, m, [widen(x)], scalars=(0, _reciprocal(kernel)), fraction=16 - GUARD)


def _mean_codes(x: Array, *, kernel: Sizes, strides: Sizes) -> Array:
    """The sum of each window times the rounded reciprocal of its size, cut to eight bits more than codes have."""

    def mean(k: Expr, c: Expr, i: Expr, j: Expr) -> Expr:
        return (reduce_sum(lambda r, s: x[k, c, i + r, j + s], kernel) * _reciprocal(kernel)) >> 16 - GUARD

    return windowed(x, kernel, strides, mean)


_pattern = pool_pattern("average_pool")
_pool = target.offers(
    _pattern, formats={"x": fixed_byte}, derived={"y": lambda x: Fixed(32, x.fraction + GUARD)},
    trials=(_pattern.trial(c=16, i=2, kernel=2), _pattern.trial(b=2, c=21, i=6, kernel=3, strides=2)),
)  # fmt: skip
_pool.implement(_means, _drive_mean, _mean_codes)


# -- depthwise convolutions


def _layer(b: int, c: int, i: int, j: int, r: int, s: int, strides: Sizes, pads: Sizes, p: P, x_zero: int = 0) -> Sweep:
    """Return the work: codes less their zero point, the biases, then products added tap by tap; weights lie before the biases."""
    program = (*(["rows add x x s0"] if x_zero else []), f"windows move y n{r * s} s0", "taps macc y x w")
    return _windows(b, c, i, j, (r, s), strides, p, pads, program=program, numbers=r * s + 1)


def _drive_depthwise(
    device: StreamedDevice, x: Codes, w: Codes, b: Codes | None = None, *, strides: Sizes, pads: Sizes, p: P, x_zero: int = 0
) -> Codes:  # fmt: skip
    """Emit one layer: x [(samples,) b, c, i, j], w [c, 1, r, s], b [c] → sums [(samples,) b, c, u, v]."""
    taps = widen(w).reshape(len(w), -1).T
    numbers = np.concatenate([taps, (np.zeros(len(w), np.int64) if b is None else widen(b))[None]])
    m = _layer(**axis_sizes("b c i j", x) | axis_sizes("r s", w), strides=strides, pads=pads, p=p, x_zero=x_zero)
    return run(device, m, [bordered_codes(widen(x), pads, x_zero)], numbers=numbers, scalars=(-x_zero,))


for _codes in LEAST:
    for _bias in (False, True):
        declare_product("depthwise", SIZES, (3, 100, 0), bias=_bias, codes=_codes).implement(_layer, _drive_depthwise, depthwise_sums)
