"""GeneSys's windows on the SIMD array: pools and depthwise convolutions, tap by tap over the rows of vector memories."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from rewrite_compiler import IsConstant, Tensor, Where
from rewrite_compiler import ops as o
from rewrite_compiler.lang import Array, Expr, Fixed, reduce_sum
from rewrite_compiler.lang import Int as Integers
from rewrite_compiler.ops import HasType
from rewrite_compiler.rewrite import Int, Ints
from rewrite_compiler.target import Limit, StreamedDevice, axis_sizes, depthwise_sums, low_bits, widen, window_maxima, windowed

from .base import Codes, blocks, bordered_codes, config, int8, sums, target
from .elementwise import function
from .products import finished
from .quantised import bytes_of, formats
from .simd import FIRST, Nest, Sweep, flat, run, scalar

LEAST = {"": -128, "uint8": 0}  # the least code: what stands around the image of a maximum
GUARD = 8  # bits of the fraction that means have more than codes
LARGEST = 1 << 15  # elements of a mean, whose reciprocal has 16 bits
P = Mapping[str, str]
Sizes = tuple[int, ...]
Program = Callable[[Sweep, int, int], list[Nest]]


def _sweep(
    shape: Sequence[int], kernel: Sequence[int], strides: Sequence[int], pads: Sequence[int], p: P, program: Program, numbers: int = 0
) -> Sweep:  # fmt: skip
    c, (images, channels, rows, cols) = config(p), shape
    size, taps, steps = (rows + pads[0] + pads[2], cols + pads[1] + pads[3]), (kernel[0], kernel[1]), (strides[0], strides[1])
    return Sweep(c, images, blocks(channels, c.lanes), size, taps, steps, numbers=numbers, is_apart=True, program=program)


# -- pools


def _max_nests(m: Sweep, group: int, band: int) -> list[Nest]:
    """The least code, then the larger one tap by tap."""
    to = m.result(group)
    return [
        Nest("move", m.over_windows(group, band, taps=False), to, scalar(0), scalar(0)),
        Nest("max", m.over_windows(group, band, taps=True), to, to, m.image(group)),
    ]


def _mean_nests(m: Sweep, group: int, band: int) -> list[Nest]:
    """Zero, then the sum tap by tap, then its product with the reciprocal."""
    start, taps = _max_nests(m, group, band)
    to = m.result(group)
    mean = Nest("mul", m.over_windows(group, band, taps=False), to, to, scalar(1))
    return [start, Nest("add", taps.counts, to, to, m.image(group)), mean]


def _reciprocal(kernel: Sizes) -> int:
    return round((1 << 16) / math.prod(kernel))


def _maxima(b: int, c: int, i: int, j: int, kernel: Sizes, strides: Sizes, pads: Sizes, p: P) -> Sweep:
    return _sweep((b, c, i, j), kernel, strides, pads, p, _max_nests)


def _means(b: int, c: int, i: int, j: int, kernel: Sizes, strides: Sizes, p: P) -> Sweep:
    bounds = (Limit("elements of a mean", math.prod(kernel), LARGEST),)
    return replace(_sweep((b, c, i, j), kernel, strides, (0, 0, 0, 0), p, _mean_nests), bounds=bounds)


def _drive_max(device: StreamedDevice, x: Codes, *, kernel: Sizes, strides: Sizes, pads: Sizes, p: P, least: int) -> Codes:
    """Emit one pooling of codes: x [(samples,) b, c, i, j] → [(samples,) b, c, u, v]."""
    y = run(
        device,
        _maxima(**axis_sizes("b c i j", x), kernel=kernel, strides=strides, pads=pads, p=p),
        [bordered_codes(widen(x), pads, least)],
        scalars=(least,),
    )
    return y if least else low_bits(y, 8)


def _drive_mean(device: StreamedDevice, x: Codes, *, kernel: Sizes, strides: Sizes, p: P) -> Codes:
    """Emit one pooling by means: x [(samples,) b, c, i, j] → [(samples,) b, c, u, v]."""
    m = _means(**axis_sizes("b c i j", x), kernel=kernel, strides=strides, p=p)
    return run(device, m, [widen(x)], scalars=(0, _reciprocal(kernel)), fraction=16 - GUARD)


def _mean_codes(x: Array, *, kernel: Sizes, strides: Sizes) -> Array:
    """The sum of each window times the rounded reciprocal of its size, cut to eight bits more than codes have."""

    def mean(k: Expr, c: Expr, i: Expr, j: Expr) -> Expr:
        return (reduce_sum(lambda r, s: x[k, c, i + r, j + s], kernel) * _reciprocal(kernel)) >> 16 - GUARD

    return windowed(x, kernel, strides, mean)


def _trial(c: int, size: int, kernel: int, stride: int, pad: int, batch: int = 1) -> dict[str, Any]:
    out = (size + 2 * pad - kernel) // stride + 1
    sizes = dict(zip("bcijuv", (batch, c, size, size, out, out), strict=True))
    return {**sizes, "kernel": (kernel, kernel), "strides": (stride, stride), "pads": (pad,) * 4}


_TRIALS = (_trial(16, 2, 2, 1, 0), _trial(21, 7, 3, 2, 1, 2), _trial(5, 8, 3, 2, 1))
_MEANS = [{name: n for name, n in at.items() if name != "pads"} for at in (_trial(16, 2, 2, 1, 0), _trial(21, 6, 3, 2, 0, 2))]
_POOL: dict[str, Any] = {"axes": "x: b c i j; y: b c u v", "whole": "b c i j u v"}


def _declare_max(dtype: str) -> None:
    def max_pool(x: Tensor, kernel: Ints, strides: Ints, pads: Ints) -> tuple[Tensor, Where]:
        """The largest code of each window without dilation."""
        y = o.max_pool(x, kernel=kernel, strides=strides, pads=pads, dilations=(1, 1), ceil=0)
        return y, Where(x.rank == 4, *([HasType(x, (dtype,))] if dtype else []))

    own = partial(Integers, 8, dtype == "int8")
    types: dict[str, Any] = {"formats": {}, "derived": {"x": own, "y": own}} if dtype else {"formats": {"x": int8}, "derived": {"y": _same}}
    mapping = target.accelerates(operation="max_pool", trials=_TRIALS, **types, **_POOL)(
        function(max_pool, f"max_pool_{dtype}" if dtype else "max_pool")
    )
    mapping.work(_maxima)
    mapping.driver(partial(_drive_max, least=LEAST[dtype]))
    mapping.numerics(partial(window_maxima, least=LEAST[dtype]))


def _same(x: Fixed) -> Fixed:
    return x


for _dtype in LEAST:
    _declare_max(_dtype)


@target.accelerates(formats={"x": int8}, derived={"y": lambda x: Fixed(32, x.fraction + GUARD)}, trials=_MEANS, **_POOL)
def average_pool(x: Tensor, kernel: Ints, strides: Ints) -> tuple[Tensor, Where]:
    """The mean of each window without zeros around the image."""
    y = o.average_pool(x, kernel=kernel, strides=strides, pads=(0, 0, 0, 0), dilations=(1, 1), ceil=0, count_include_pad=0)
    return y, Where(x.rank == 4)


average_pool.work(_means)
average_pool.driver(_drive_mean)
average_pool.numerics(_mean_codes)


# -- depthwise convolutions


DEPTHWISE, BIASED = "x: b c i j; w: c o r s; y: b c u v", "x: b c i j; w: c o r s; b: c; y: b c u v"


def _depthwise_nests(m: Sweep, group: int, band: int, *, zero: int) -> list[Nest]:
    """Codes less their zero point, the biases, then products added tap by tap; weights lie before the biases."""
    to, rows = m.result(group), group * m.image_rows(band) * m.size[1]
    started = Nest("move", m.over_windows(group, band, taps=False), to, m.of_channels(m.numbers - 1, group), scalar(0))
    added = Nest("macc", m.over_windows(group, band, taps=True), to, m.image(group), m.of_taps(group))
    return [*([Nest("add", (rows,), flat(FIRST), flat(FIRST), scalar(0))] if zero else []), started, added]


def _layer(b: int, c: int, i: int, j: int, r: int, s: int, strides: Sizes, pads: Sizes, p: P, x_zero: int = 0) -> Sweep:
    return _sweep((b, c, i, j), (r, s), strides, pads, p, partial(_depthwise_nests, zero=x_zero), numbers=r * s + 1)


def _drive_depthwise(
    device: StreamedDevice, x: Codes, w: Codes, b: Codes | None = None, *, strides: Sizes, pads: Sizes, p: P, x_zero: int = 0
) -> Codes:  # fmt: skip
    """Emit one layer: x [(samples,) b, c, i, j], w [c, 1, r, s], b [c] → sums [(samples,) b, c, u, v]."""
    taps = widen(w).reshape(len(w), -1).T
    numbers = np.concatenate([taps, (np.zeros(len(w), np.int64) if b is None else widen(b))[None]])
    m = _layer(**axis_sizes("b c i j", x) | axis_sizes("r s", w), strides=strides, pads=pads, p=p, x_zero=x_zero)
    return run(device, m, [bordered_codes(widen(x), pads, x_zero)], numbers=numbers, scalars=(-x_zero,))


def _depthwise_codes(x: Array, w: Array, b: Array | None = None, *, strides: Sizes, pads: Sizes, x_zero: int = 0) -> Array:
    """Products of codes less their zero point, zeros around them, summed by channel in 32 bits that wrap from the bias on."""
    return depthwise_sums(x, w, b, partial(finished, relu=False), strides=strides, pads=pads, x_zero=x_zero)


def _layer_trial(c: int, size: int, kernel: int, stride: int, pad: int, batch: int = 1) -> dict[str, Any]:
    at = {name: n for name, n in _trial(c, size, kernel, stride, pad, batch).items() if name != "kernel"}
    return {**at, "o": 1, "r": kernel, "s": kernel, "group": c}


_LAYERS = (_layer_trial(16, 2, 2, 1, 0), _layer_trial(21, 7, 3, 2, 1, 2), _layer_trial(5, 8, 3, 1, 1))


def _guard(x: Tensor, w: Tensor, group: Int, *constants: Tensor) -> list[Any]:
    return [x.rank == 4, x.shape[1] == group, w.shape[0] == group, group > 1, *(IsConstant(t) for t in (w, *constants))]


def depthwise(x: Tensor, w: Tensor, strides: Ints, pads: Ints, group: Int) -> tuple[Tensor, Where]:
    """A 2-D convolution, each channel with a filter of its own."""
    return o.conv(x, w, strides, pads, (1, 1), group=group), Where(*_guard(x, w, group))


def depthwise_bias(x: Tensor, w: Tensor, b: Tensor, strides: Ints, pads: Ints, group: Int) -> tuple[Tensor, Where]:
    """A 2-D convolution, each channel with a filter of its own, on sums that start at its bias."""
    return o.bias_add(o.conv(x, w, strides, pads, (1, 1), group=group), b, 1), Where(*_guard(x, w, group, b))


def depthwise_uint8(x: Tensor, w: Tensor, x_zero: Int, strides: Ints, pads: Ints, group: Int) -> tuple[Tensor, Where]:
    """A convolution of codes, each channel with a filter of its own, as int32 sums."""
    y = o.integer_conv(x, w, strides, pads, (1, 1), group=group, x_zero=x_zero, w_zero=0)
    return y, Where(*_guard(x, w, group), *bytes_of(x, w, 4))


def depthwise_bias_uint8(x: Tensor, w: Tensor, b: Tensor, x_zero: Int, strides: Ints, pads: Ints, group: Int) -> tuple[Tensor, Where]:
    """A convolution of codes, each channel with a filter of its own, as int32 sums that start at its bias."""
    y = o.bias_add(o.integer_conv(x, w, strides, pads, (1, 1), group=group, x_zero=x_zero, w_zero=0), b, 1)
    return y, Where(*_guard(x, w, group), *bytes_of(x, w, 4, b))


def _register_layer(f: Callable[..., Any], axes: str, chosen: Mapping[str, Any], derived: Mapping[str, Any], trials: Sequence[Any]) -> None:
    mapping = target.accelerates(
        axes=axes, formats=chosen, derived=derived, whole="b c o i j r s u v", operation="depthwise", trials=trials
    )(f)  # fmt: skip
    mapping.work(_layer)
    mapping.driver(_drive_depthwise)
    mapping.numerics(_depthwise_codes)


_INPUTS = {"x": int8, "w": int8}
_register_layer(depthwise, DEPTHWISE, _INPUTS, {"y": sums}, _LAYERS)
_register_layer(depthwise_bias, BIASED, _INPUTS, {"b": sums, "y": sums}, _LAYERS)
_CODES = tuple({**at, "x_zero": zero} for at, zero in zip(_LAYERS, (3, 100, 0), strict=True))
_register_layer(depthwise_uint8, DEPTHWISE, {}, formats(bias=False), _CODES)
_register_layer(depthwise_bias_uint8, BIASED, {}, formats(bias=True), _CODES)
