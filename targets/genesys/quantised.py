"""GeneSys's operations on the codes of quantised models: products, the codes of sums, and sums of codes in scales of their own.

The systolic array multiplies signed bytes and has no zero points. Activations are uint8 and enter less 128; what that and the
zero point leave out is a number for each output, (offset − zero) · Σ w, at which sums start. The SIMD array multiplies words of
32 bits and keeps any 32 of the product's bits, so that codes of sums need one product each.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from rewrite_compiler import IsConstant, Tensor, Where
from rewrite_compiler import ops as o
from rewrite_compiler.lang import Array, Expr, array, maximum, minimum, number_at, signed
from rewrite_compiler.lang import Int as Integers
from rewrite_compiler.ops import HasType
from rewrite_compiler.rewrite import Int, Ints
from rewrite_compiler.target import Limit, StreamedDevice, axis_sizes, low_bits, row_sums, widen

from .base import Codes, blocks, config, target
from .elementwise import RANKS, P, function, run_flat, sweep
from .products import (
    CONV,
    CONV_BIAS,
    DENSE,
    DENSE_BIAS,
    TRIALS,
    conv2d_codes,
    conv_layer,
    dense_codes,
    dense_layer,
    drive_conv2d,
    drive_dense,
)
from .simd import FIRST, SECOND, Nest, Operand, Sweep, flat, run, scalar

OFFSET = 128  # what is taken from a code to make a signed byte of it
PART = 20  # bits of the lower part of a factor of a sum
WIDEST = 41  # bits of such a factor over the common power of two: its upper part times a code stays in 32 bits
FACTOR_BITS, LEAST, MOST = 24, 25, 54  # of a factor of sums of products, and the bits that these are shifted by


# -- products


def formats(*, bias: bool) -> dict[str, partial[Integers]]:
    """Return the formats of all tensors: the model's own."""
    words = {name: partial(Integers, 32) for name in ("by" if bias else "y")}
    return {"x": partial(Integers, 8, False), "w": partial(Integers, 8), **words}


def _starts(w: Codes, b: Codes | None, zero: int) -> Codes:
    """Return the numbers at which sums start: the biases, and what zero point and offset leave out."""
    missing = (OFFSET - zero) * row_sums(w.reshape(len(w), -1))
    return missing if b is None else np.asarray(widen(b) + missing)


def _drive_dense(device: StreamedDevice, x: Codes, w: Codes, b: Codes | None = None, *, x_zero: int, p: P) -> Codes:
    """Emit one product of codes: x [(samples,) t, k], w [n, k], b [n] → y [(samples,) t, n]."""
    return drive_dense(device, widen(x) - OFFSET, widen(w), _starts(widen(w), b, x_zero), p=p)


def _drive_conv2d(
    device: StreamedDevice, x: Codes, w: Codes, b: Codes | None = None, *, x_zero: int, p: P, strides: tuple[int, ...],
    pads: tuple[int, ...],
) -> Codes:  # fmt: skip
    """Emit one layer of codes; zero points around the image are the host's."""
    sums = _starts(widen(w), b, x_zero)
    return drive_conv2d(device, widen(x) - OFFSET, widen(w), sums, strides=strides, pads=pads, p=p, border=x_zero - OFFSET)


def bytes_of(x: Tensor, w: Tensor, rank: int, *constants: Tensor) -> list[Any]:
    """Return the guard of operations on uint8 activations with int8 weights."""
    return [x.rank == rank, HasType(x, ("uint8",)), HasType(w, ("int8",)), *(IsConstant(t) for t in (w, *constants))]


_PRODUCTS = [dict(zip(("t", "k", "n", "x_zero"), sizes, strict=True)) for sizes in ((1, 16, 16, 3), (5, 40, 33, 200))]
_LAYERS = [{**at, "x_zero": zero} for at, zero in zip(TRIALS, (3, 100, OFFSET), strict=True)]
_DENSE: dict[str, Any] = {"formats": {}, "units": {"k": 16, "n": 16}, "operation": "dense", "trials": _PRODUCTS}
_CONV: dict[str, Any] = {"formats": {}, "units": {"n": 16}, "whole": "b c i j r s u v", "operation": "conv2d", "trials": _LAYERS}


@target.accelerates(axes=DENSE, derived=formats(bias=False), **_DENSE)
def dense_uint8(x: Tensor, w: Tensor, x_zero: Int) -> tuple[Tensor, Where]:
    """A product of codes with constant weights, as int32 sums."""
    return o.integer_dense(x, w, x_zero=x_zero, w_zero=0), Where(*bytes_of(x, w, 2))


@target.accelerates(axes=DENSE_BIAS, derived=formats(bias=True), **_DENSE)
def dense_bias_uint8(x: Tensor, w: Tensor, b: Tensor, x_zero: Int) -> tuple[Tensor, Where]:
    """A product of codes with constant weights, as int32 sums that start at the bias."""
    return o.bias_add(o.integer_dense(x, w, x_zero=x_zero, w_zero=0), b, 1), Where(*bytes_of(x, w, 2, b))


@target.accelerates(axes=CONV, derived=formats(bias=False), **_CONV)
def conv2d_uint8(x: Tensor, w: Tensor, x_zero: Int, strides: Ints, pads: Ints) -> tuple[Tensor, Where]:
    """A convolution of codes without groups or dilation, as int32 sums."""
    return o.integer_conv(x, w, strides, pads, (1, 1), group=1, x_zero=x_zero, w_zero=0), Where(*bytes_of(x, w, 4))


@target.accelerates(axes=CONV_BIAS, derived=formats(bias=True), **_CONV)
def conv2d_bias_uint8(x: Tensor, w: Tensor, b: Tensor, x_zero: Int, strides: Ints, pads: Ints) -> tuple[Tensor, Where]:
    """A convolution of codes without groups or dilation, as int32 sums that start at the bias."""
    y = o.bias_add(o.integer_conv(x, w, strides, pads, (1, 1), group=1, x_zero=x_zero, w_zero=0), b, 1)
    return y, Where(*bytes_of(x, w, 4, b))


for _mapping in (dense_uint8, dense_bias_uint8):
    _mapping.work(dense_layer)
    _mapping.driver(_drive_dense)
    _mapping.numerics(dense_codes)
for _mapping in (conv2d_uint8, conv2d_bias_uint8):
    _mapping.work(conv_layer)
    _mapping.driver(_drive_conv2d)
    _mapping.numerics(conv2d_codes)


# -- the codes of sums


AMOUNTS = ("factor", "half", "further")


def _amounts(multiplier: tuple[int, ...], shift: tuple[int, ...]) -> tuple[int, Codes]:
    """Return the fraction of products, and factors, halves and further shifts of the channels [number, channel]."""
    fraction = min(min(shift) - 1, 31)
    further = [n - fraction for n in shift]
    return fraction, np.array([multiplier, [1 << (n - 1) for n in further], further], np.int64)


def _channel_sweep(multiplier: tuple[int, ...], shift: tuple[int, ...], p: P, rank: int, **sizes: int) -> Sweep:
    a, channels, *size = (*(sizes[d] for d in RANKS[rank].split()), 1, 1)[:4]
    c = config(p)
    bounds = (
        Limit("bits of a factor", max(multiplier).bit_length(), FACTOR_BITS),
        Limit("bits that a factor is shifted by", max(shift), MOST),
        Limit(f"bits that a factor is shifted by, short of {LEAST}", max(LEAST - min(shift), 0), 0),
    )
    return Sweep(c, a, blocks(channels, c.lanes), (size[0] * size[1], 1), numbers=3, program=_requantised, bounds=bounds)


def _requantised(m: Sweep, group: int, band: int) -> list[Nest]:
    """The product's bits from the fraction on, half of what is cut off after it, the cut, the zero point, the limits."""
    rows = Operand(FIRST, 0, (group, 1))
    steps = [(name, Operand(SECOND, n * group, (0, 1))) for n, name in enumerate(("mul", "add", "rshift"))]
    steps += [(name, scalar(n)) for n, name in enumerate(("add", "max", "min"))]
    return [Nest(name, (band, group), rows, rows, b) for name, b in steps]


def _drive_requantise(
    device: StreamedDevice, x: Codes, *, multiplier: tuple[int, ...], shift: tuple[int, ...], zero: int, low: int, high: int, p: P,
    rank: int,
) -> Codes:  # fmt: skip
    """Emit one requantisation: sums x [(samples,) a, channels, …] → codes."""
    lead, shape = x.shape[: x.ndim - rank], x.shape[x.ndim - rank :]
    m = _channel_sweep(multiplier, shift, p, rank, **axis_sizes(RANKS[rank], x))
    fraction, numbers = _amounts(*(tuple(np.resize(n, shape[1]).tolist()) for n in (multiplier, shift)))
    image = x.reshape(*lead, *shape[:2], *m.size)
    y = run(device, m, [image], numbers=numbers, scalars=(zero, low, high), fraction=fraction)
    codes = y.reshape(*y.shape[:-4], *shape)
    return low_bits(codes, 8)


def _requantised_codes(
    x: Array, *, multiplier: tuple[int, ...], shift: tuple[int, ...], zero: int, low: int, high: int
) -> Array:  # fmt: skip
    """Products with the factor of the channel, cut at the common fraction; nearest, ties up, limited to low … high."""
    fraction, numbers = _amounts(multiplier, shift)

    def element(*i: Expr) -> Expr:
        factor, half, further = (number_at(n, row.tolist(), i[1]) for n, row in zip(AMOUNTS, numbers, strict=True))
        code = signed(((x[i] * factor) >> fraction) + half, 32) >> further
        return minimum(maximum(code + zero, low), high)

    return array(element, x.shape)


# -- sums of codes


@dataclass(frozen=True)
class Factors:
    """Both factors of a sum over one power of two, in their parts."""

    shift: int
    low: tuple[int, int]
    high: tuple[int, int]

    @staticmethod
    def of(multiplier: tuple[int, ...], shift: tuple[int, ...]) -> Factors:
        """Return the factors of both operands."""
        x, z = (m << (max(shift) - n) for m, n in zip(multiplier, shift, strict=True))
        return Factors(max(shift), (x % (1 << PART), z % (1 << PART)), (x >> PART, z >> PART))

    @property
    def half(self) -> int:
        """What rounds."""
        return 1 << (self.shift - PART - 1)


def _summed(m: Sweep, group: int, band: int) -> list[Nest]:
    """The carry of products with lower parts, onto which those with upper parts are added; rounded, and limited."""
    x, z, total = flat(FIRST), flat(SECOND), flat(SECOND, m.result_row(group, band))
    steps = [("add", x, x), ("add", z, z), ("mul", total, x), ("macc", total, z), ("rshift", total, total), ("macc", total, x),
             ("macc", total, z), *((name, total, total) for name in ("add", "rshift", "add", "max", "min"))]  # fmt: skip
    return [Nest(name, (group * band * m.size[1],), to, a, scalar(n)) for n, (name, to, a) in enumerate(steps)]


def _drive_sum(
    device: StreamedDevice, x: Codes, z: Codes, *, multiplier: tuple[int, ...], shift: tuple[int, ...], zeros: tuple[int, ...], zero: int,
    low: int, high: int, p: P, rank: int,
) -> Codes:  # fmt: skip
    """Emit one sum: x, z [(samples,) …] → codes of the same shape."""
    f, sizes = Factors.of(multiplier, shift), axis_sizes(RANKS[rank], x)
    scalars = (-zeros[0], -zeros[1], *f.low, PART, *f.high, f.half, f.shift - PART, zero, low, high)
    y = run_flat(device, _sum_sweep(multiplier, shift, p, rank, **sizes), [widen(x), widen(z)], rank, scalars)
    return low_bits(y, 8)


def _sum_codes(
    x: Array, z: Array, *, multiplier: tuple[int, ...], shift: tuple[int, ...], zeros: tuple[int, ...], zero: int, low: int, high: int
) -> Array:  # fmt: skip
    """Both operands less their zero points times their factors, exactly; nearest, ties up, limited to low … high."""
    f = Factors.of(multiplier, shift)

    def element(*i: Expr) -> Expr:
        a, b = x[i] - zeros[0], z[i] - zeros[1]
        carry = (a * f.low[0] + b * f.low[1]) >> PART
        code = ((carry + a * f.high[0] + b * f.high[1] + f.half) >> f.shift - PART) + zero
        return minimum(maximum(code, low), high)

    return array(element, x.shape)


def _sum_sweep(multiplier: tuple[int, ...], shift: tuple[int, ...], p: P, rank: int, **sizes: int) -> Sweep:
    widest = max(m << (max(shift) - n) for m, n in zip(multiplier, shift, strict=True))
    bounds = (
        Limit("bits of a factor over the common power of two", widest.bit_length(), WIDEST),
        Limit("bits that a sum is shifted by", max(shift), PART + 30),
        Limit(f"bits that a sum is shifted by, short of {PART + 1}", max(PART + 1 - max(shift), 0), 0),
    )
    return replace(sweep(sizes, rank, p, operands=2), is_apart=True, program=_summed, bounds=bounds)


# -- the mappings: one a rank


ONE: dict[str, Any] = {"multiplier": (11_184_811,), "shift": (33,), "zero": 3, "low": 0, "high": 100}
EACH: dict[str, Any] = {"multiplier": (8_388_608, 16_777_215, 12_345_679), "shift": (25, 54, 32), "zero": 0, "low": 0, "high": 127}
BOTH: dict[str, Any] = {"multiplier": (11_184_811, 12_345_679), "shift": (24, 26), "zeros": (3, 100), "zero": 7, "low": 0, "high": 120}
APART: dict[str, Any] = {"multiplier": (8_388_608, 16_777_215), "shift": (40, 23), "zeros": (0, 0), "zero": 0, "low": 0, "high": 127}


def _declare_codes(rank: int) -> None:
    dims, dtype = RANKS[rank], "uint8"

    def requantise(x: Tensor, multiplier: Ints, shift: Ints, zero: Int, low: Int, high: Int) -> tuple[Tensor, Where]:
        """The codes of int32 sums: a factor for all of them or one for each channel, nearest, limited."""
        y = o.requantize(x, multiplier=multiplier, shift=shift, axis=1, zero=zero, low=low, high=high, to=dtype)
        return y, Where(x.rank == rank, HasType(x, ("int32",)))

    def quantized_add(
        x: Tensor, z: Tensor, multiplier: Ints, shift: Ints, zeros: Ints, zero: Int, low: Int, high: Int
    ) -> tuple[Tensor, Where]:  # fmt: skip
        """The codes of the sum of two tensors of codes, each with a scale and a zero point of its own."""
        y = o.quantized_add(x, z, multiplier=multiplier, shift=shift, zeros=zeros, zero=zero, low=low, high=high, to=dtype)
        return y, Where(x.rank == rank, HasType(x, (dtype,)), HasType(z, (dtype,)))

    codes, shapes = partial(Integers, 8, False), ((*(1,) * (rank - 1), 17), (2, 3, 5, 7)[:rank])
    sizes = [dict(zip(dims.split(), shape, strict=True)) for shape in shapes]
    single = target.accelerates(
        axes=f"x: {dims}; y: {dims}", formats={}, derived={"x": partial(Integers, 32), "y": codes}, operation="requantise", whole=dims,
        trials=[{**at, **(EACH if at["b"] == 3 else ONE)} for at in sizes],
    )(function(requantise, f"requantise_{dtype}_{rank}"))  # fmt: skip
    single.work(partial(_channel_sweep, rank=rank))
    single.driver(partial(_drive_requantise, rank=rank))
    single.numerics(_requantised_codes)
    added = target.accelerates(
        axes=f"x: {dims}; z: {dims}; y: {dims}", formats={}, derived=dict.fromkeys("xzy", codes), operation="quantized_add", whole=dims,
        trials=[{**at, **numbers} for at, numbers in zip(sizes, (BOTH, APART), strict=True)],
    )(function(quantized_add, f"quantized_add_{dtype}_{rank}"))  # fmt: skip
    added.work(partial(_sum_sweep, rank=rank))
    added.driver(partial(_drive_sum, rank=rank))
    added.numerics(_sum_codes)


for _rank in RANKS:
    _declare_codes(_rank)
