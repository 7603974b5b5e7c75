"""HVX's max pools of bytes: the largest element of each window, a vector of windows at a time.

An image lies tap by tap: first the first element of every window, then the second one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rewrite_compiler import Tensor, Where
from rewrite_compiler import ops as o
from rewrite_compiler.ila_models.hvx.state import VECTOR
from rewrite_compiler.lang import Array, Expr, array, reduce_max, select
from rewrite_compiler.rewrite import Ints
from rewrite_compiler.target import Cost, Limit, Resources, StreamedDevice, join_bytes, pad_axis, split_bytes

from .base import Codes, finish, int8, memory_bytes, set_register, target, window_counts

ITEM, LARGEST = 0, 1  # vector registers
X, Y = 0, 1  # scalar registers
LEAST = -128
WORD_BYTES = 4
Shape = tuple[int, ...]


def _vectors(shape: Sequence[int], kernel: Shape, strides: Shape, pads: Shape) -> int:
    """Return the vectors of the results of images [b, c, i, j]."""
    return -(-math.prod((*shape[:2], *window_counts(shape[2:], kernel, strides, pads))) // VECTOR)


def _instructions(taps: int, count: int) -> int:
    """Return the instructions of a program."""
    return 2 + count * (3 * taps)


def drive(device: StreamedDevice, x: Codes, *, kernel: Shape, strides: Shape, pads: Shape) -> Codes:
    """Emit one pool of codes: x [(samples,) b, c, i, j] → [(samples,) b, c, u, v]."""
    shape, lead = x.shape[-4:], x.shape[:-4]
    out, taps, count = window_counts(shape[2:], kernel, strides, pads), math.prod(kernel), _vectors(shape, kernel, strides, pads)
    size = shape[2] + pads[0] + pads[2], shape[3] + pads[1] + pads[3]
    image = np.full((*lead, *shape[:2], *size), LEAST, x.dtype)
    image[..., pads[0] : pads[0] + shape[2], pads[1] : pads[1] + shape[3]] = x
    device.attach("dram", (taps + 1) * count * VECTOR)
    for n, (r, s) in enumerate(np.ndindex(*kernel)):
        rows, cols = (slice(at, at + (m - 1) * d + 1, d) for at, m, d in zip((r, s), out, strides, strict=True))
        plane = image[..., rows, cols].reshape(*lead, -1)
        device.place("dram", n * count * VECTOR, pad_axis(split_bytes(plane), -1, count * VECTOR))
    set_register(device, Y, taps * count * VECTOR)
    for vector in range(count):
        for n in range(taps):
            set_register(device, X, (n * count + vector) * VECTOR)
            device.issue("vmem_load", vd=ITEM if n else LARGEST, rt=X)
            if n:
                device.issue("vmax_b_b_b", vd=LARGEST, vu=LARGEST, vv=ITEM)
        device.issue("vmem_store_step", vs=LARGEST, rt=Y, step=1)
    finish(device)
    y = join_bytes(device.fetch("dram", taps * count * VECTOR, count * VECTOR)[..., None])
    return y[..., : math.prod((*shape[:2], *out))].reshape(*y.shape[:-1], *shape[:2], *out)


def codes(x: Array, *, kernel: Shape, strides: Shape, pads: Shape) -> Array:
    """The largest code of each window; around an image there are least ones."""
    shape = [int(n) for n in x.shape]  # type: ignore[arg-type]

    def tap(*place: Expr) -> Expr:
        (k, c), (i, j) = place[:2], (n - pad for n, pad in zip(place[2:], pads, strict=False))
        return select((i >= 0) & (i < shape[2]) & (j >= 0) & (j < shape[3]), x[k, c, i, j], LEAST)

    image = array(tap, (*shape[:2], shape[2] + pads[0] + pads[2], shape[3] + pads[1] + pads[3])) if any(pads) else x

    def element(k: Expr, c: Expr, u: Expr, v: Expr) -> Expr:
        return reduce_max(lambda r, s: image[k, c, u * strides[0] + r, v * strides[1] + s], kernel)

    return array(element, (*shape[:2], *window_counts(shape[2:], kernel, strides, pads)))


def limits(b: int, c: int, i: int, j: int, kernel: Shape, strides: Shape, pads: Shape, p: Mapping[str, str]) -> Iterator[Limit]:
    """What one pool and its code take of memory."""
    taps, count = math.prod(kernel), _vectors((b, c, i, j), kernel, strides, pads)
    yield Limit("bytes of memory", (taps + 1) * count * VECTOR + WORD_BYTES * _instructions(taps, count), memory_bytes(p))


def cost(b: int, c: int, i: int, j: int, kernel: Shape, strides: Shape, pads: Shape, resources: Resources) -> Cost:
    """A packet holds one load beside what is computed, so that loads decide."""
    taps, count = math.prod(kernel), _vectors((b, c, i, j), kernel, strides, pads)
    moved = {"x": taps * count * VECTOR, "y": count * VECTOR, "commands": WORD_BYTES * _instructions(taps, count)}
    return Cost("vector", count * (taps + 1), resources.link("host", "v").cycles_for(sum(moved.values())), moved)


def _trial(c: int, size: int, kernel: int, stride: int, pad: int) -> dict[str, Any]:
    out = (size + 2 * pad - kernel) // stride + 1
    sizes: dict[str, Any] = dict(zip("bcijuv", (1, c, size, size, out, out), strict=True))
    return sizes | {"kernel": (kernel,) * 2, "strides": (stride,) * 2, "pads": (pad,) * 4}


UNEVEN = {**_trial(5, 6, 3, 2, 0), "b": 2, "j": 9, "kernel": (3, 2), "strides": (1, 2), "pads": (1, 0, 0, 1), "u": 5, "v": 5}
POOL: dict[str, Any] = {
    "axes": "x: b c i j; y: b c u v", "formats": {"x": int8}, "derived": {"y": lambda x: x}, "whole": "b c i j u v",
    "trials": (_trial(16, 4, 2, 2, 0), _trial(5, 20, 3, 2, 1), UNEVEN),
}  # fmt: skip


@target.accelerates(**POOL)
def max_pool(x: Tensor, kernel: Ints, strides: Ints, pads: Ints) -> tuple[Tensor, Where]:
    """The largest element of each window without dilation."""
    return o.max_pool(x, kernel=kernel, strides=strides, pads=pads, dilations=(1, 1), ceil=0), Where(x.rank == 4)


max_pool.limits(limits)
max_pool.driver(drive, moves=True)
max_pool.numerics(codes)
max_pool.costs(cost)
