"""HVX's pools of bytes: the largest or the mean of each window, a vector of windows at a time.

An image lies tap by tap: first the first element of every window, then the second one. Sums of a window are halves of a pair;
a mean is a rounded product with the reciprocal of the number of taps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from rewrite_compiler import Tensor, Where
from rewrite_compiler import ops as o
from rewrite_compiler.ila_models.hvx.state import VECTOR
from rewrite_compiler.lang import Array, Expr, array, reduce_max, reduce_sum, sat, select
from rewrite_compiler.rewrite import Ints
from rewrite_compiler.target import Cost, Limit, Resources, StreamedDevice, join_bytes, pad_axis, split_bytes

from .base import Codes, finish, int8, memory_bytes, set_register, target

ITEM, RESULT, ONES, RECIPROCAL, SUMS = 0, 1, 2, 3, 4  # vector registers; sums are a pair
X, Y, ONE, PART, ZERO = 0, 1, 2, 3, 4  # scalar registers
LEAST = -128
MOST_TAPS = 256  # whose sums halves hold
FRACTION = 15  # places of a reciprocal
WORD_BYTES = 4
Shape = tuple[int, ...]


def _reciprocal(taps: int) -> int:
    """Return the nearest number of 15 places to that of a mean of so many taps, as a half holds it."""
    return min(((1 << FRACTION + 1) + taps) // (2 * taps), (1 << FRACTION) - 1)


def _out(size: Sequence[int], kernel: Shape, strides: Shape, pads: Shape) -> Shape:
    """Return rows and columns of the result."""
    padded = (size[0] + pads[0] + pads[2], size[1] + pads[1] + pads[3])
    return tuple((n - k) // s + 1 for n, k, s in zip(padded, kernel, strides, strict=True))


def _vectors(shape: Sequence[int], kernel: Shape, strides: Shape, pads: Shape) -> int:
    """Return the vectors of the results of images [b, c, i, j]."""
    return -(-math.prod((*shape[:2], *_out(shape[2:], kernel, strides, pads))) // VECTOR)


def drive(device: StreamedDevice, x: Codes, *, kernel: Shape, strides: Shape, pads: Shape = (0, 0, 0, 0), averages: bool) -> Codes:
    """Emit one pool of codes: x [(samples,) b, c, i, j] → [(samples,) b, c, u, v]."""
    shape, lead = x.shape[-4:], x.shape[:-4]
    out, taps, count = _out(shape[2:], kernel, strides, pads), math.prod(kernel), _vectors(shape, kernel, strides, pads)
    size = shape[2] + pads[0] + pads[2], shape[3] + pads[1] + pads[3]
    image = np.full((*lead, *shape[:2], *size), LEAST, x.dtype)
    image[..., pads[0] : pads[0] + shape[2], pads[1] : pads[1] + shape[3]] = x
    device.attach("dram", (taps + 1) * count * VECTOR)
    for n, (r, s) in enumerate(np.ndindex(*kernel)):
        rows, cols = (slice(at, at + (m - 1) * d + 1, d) for at, m, d in zip((r, s), out, strides, strict=True))
        plane = image[..., rows, cols].reshape(*lead, -1)
        device.place("dram", n * count * VECTOR, pad_axis(split_bytes(plane), -1, count * VECTOR))
    constants = {Y: taps * count * VECTOR, ONE: 1, PART: _reciprocal(taps), ZERO: 0}
    for register, value in constants.items():
        set_register(device, register, value)
    if averages:
        device.issue("vsplat_b_r", vd=ONES, rt=ONE)
        device.issue("vsplat_h_r", vd=RECIPROCAL, rt=PART)
    for vector in range(count):
        _windows(device, [(n * count + vector) * VECTOR for n in range(taps)], averages)
    finish(device)
    y = join_bytes(device.fetch("dram", taps * count * VECTOR, count * VECTOR)[..., None])
    return y[..., : math.prod((*shape[:2], *out))].reshape(*y.shape[:-1], *shape[:2], *out)


def _windows(device: StreamedDevice, places: Sequence[int], averages: bool) -> None:
    """Emit a vector of windows, whose taps lie at some places."""
    for n, place in enumerate(places):
        set_register(device, X, place)
        device.issue("vmem_load", vd=ITEM if averages or n else RESULT, rt=X)
        if averages:
            device.issue("vmpy_h_ub_b_pair_acc" if n else "vmpy_h_ub_b_pair", **{"vxx" if n else "vdd": SUMS // 2}, vu=ONES, vv=ITEM)
        elif n:
            device.issue("vmax_b_b_b", vd=RESULT, vu=RESULT, vv=ITEM)
    if averages:
        for half in range(2):
            device.issue("vmpy_h_h_h_shl1_rnd_sat", vd=SUMS + half, vu=SUMS + half, vv=RECIPROCAL)
        device.issue("vasr_b_h_h_r_sat", vd=RESULT, vu=SUMS + 1, vv=SUMS, rt=ZERO)
    device.issue("vmem_store_step", vs=RESULT, rt=Y, step=1)


def codes(x: Array, *, kernel: Shape, strides: Shape, pads: Shape = (0, 0, 0, 0), averages: bool) -> Array:
    """The largest code of each window, around an image the least one; or its sum times a reciprocal of 15 places, nearest, ties up."""
    shape = [int(n) for n in x.shape]  # type: ignore[arg-type]

    def tap(*place: Expr) -> Expr:
        (k, c), (i, j) = place[:2], (n - pad for n, pad in zip(place[2:], pads, strict=False))
        return select((i >= 0) & (i < shape[2]) & (j >= 0) & (j < shape[3]), x[k, c, i, j], LEAST)

    image = array(tap, (*shape[:2], shape[2] + pads[0] + pads[2], shape[3] + pads[1] + pads[3])) if any(pads) else x

    def element(k: Expr, c: Expr, u: Expr, v: Expr) -> Expr:
        def inner(r: Expr, s: Expr) -> Expr:
            return image[k, c, u * strides[0] + r, v * strides[1] + s]

        if not averages:
            return reduce_max(inner, kernel)
        product = 2 * reduce_sum(inner, kernel) * _reciprocal(math.prod(kernel))
        return sat(sat((product + (1 << FRACTION)) >> (FRACTION + 1), 16), 8)

    return array(element, (*shape[:2], *_out(shape[2:], kernel, strides, pads)))


def limits(
    b: int, c: int, i: int, j: int, kernel: Shape, strides: Shape, p: Mapping[str, str], pads: Shape = (0, 0, 0, 0), *, averages: bool
) -> Iterator[Limit]:
    """What one pool and its code take of memory, and how many taps a mean may have."""
    taps, count = math.prod(kernel), _vectors((b, c, i, j), kernel, strides, pads)
    code = WORD_BYTES * (9 + count * (3 * taps + 4))
    yield Limit("bytes of memory", (taps + 1) * count * VECTOR + code, memory_bytes(p))
    if averages:
        yield Limit("taps of a mean", taps, MOST_TAPS)


def cost(
    b: int, c: int, i: int, j: int, kernel: Shape, strides: Shape, resources: Resources, pads: Shape = (0, 0, 0, 0)
) -> Cost:  # fmt: skip
    """A packet holds one load beside what is computed, so that loads decide."""
    taps, count = math.prod(kernel), _vectors((b, c, i, j), kernel, strides, pads)
    moved = {"x": taps * count * VECTOR, "y": count * VECTOR, "commands": WORD_BYTES * (9 + count * (3 * taps + 4))}
    return Cost("vector", count * (taps + 1), resources.link("host", "v").cycles_for(sum(moved.values())), moved)


def _trial(c: int, size: int, kernel: int, stride: int, pad: int, batch: int = 1) -> dict[str, Any]:
    out = (size + 2 * pad - kernel) // stride + 1
    sizes: dict[str, Any] = dict(zip("bcijuv", (batch, c, size, size, out, out), strict=True))
    return sizes | {"kernel": (kernel,) * 2, "strides": (stride,) * 2, "pads": (pad,) * 4}


POOL: dict[str, Any] = {"axes": "x: b c i j; y: b c u v", "formats": {"x": int8}, "derived": {"y": lambda x: x}, "whole": "b c i j u v"}
UNEVEN = {**_trial(5, 6, 3, 2, 0, 2), "j": 9, "kernel": (3, 2), "strides": (1, 2), "pads": (1, 0, 0, 1), "u": 5, "v": 5}


@target.accelerates(trials=(_trial(16, 4, 2, 2, 0), _trial(5, 20, 3, 2, 1), UNEVEN), **POOL)
def max_pool(x: Tensor, kernel: Ints, strides: Ints, pads: Ints) -> tuple[Tensor, Where]:
    """The largest element of each window without dilation."""
    return o.max_pool(x, kernel=kernel, strides=strides, pads=pads, dilations=(1, 1), ceil=0), Where(x.rank == 4)


MEANS = (_trial(20, 4, 2, 2, 0), _trial(5, 7, 3, 2, 0, 2), _trial(40, 8, 8, 8, 0))


@target.accelerates(trials=[{k: n for k, n in at.items() if k != "pads"} for at in MEANS], **POOL)
def average_pool(x: Tensor, kernel: Ints, strides: Ints) -> tuple[Tensor, Where]:
    """The mean of each window of at most 256 elements, without dilation or padding."""
    y = o.average_pool(x, kernel=kernel, strides=strides, pads=(0, 0, 0, 0), dilations=(1, 1), ceil=0, count_include_pad=0)
    return y, Where(x.rank == 4)


for mapping, averages in ((max_pool, False), (average_pool, True)):
    mapping.limits(partial(limits, averages=averages))
    mapping.driver(partial(drive, averages=averages), moves=True)
    mapping.numerics(partial(codes, averages=averages))
    mapping.costs(cost)
