"""HVX's pools of bytes, a vector of windows at a time: the largest element of each window, or its mean.

For a maximum an image lies tap by tap: first the first element of every window, then the second one. For a mean four taps of a
window lie side by side: they are summed as products with weights of seven bits that together are a power of two.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rewrite_compiler import Tensor, Where
from rewrite_compiler import ops as o
from rewrite_compiler.ila_models.hvx.state import VECTOR
from rewrite_compiler.lang import Array, Expr, Fixed, array, reduce_max, reduce_sum, select
from rewrite_compiler.rewrite import Ints
from rewrite_compiler.target import Cost, Limit, Resources, StreamedDevice, join_bytes, pad_axis, split_bytes

from .base import Codes, finish, int8, memory_bytes, set_register, target, window_counts
from .products import LANES, SUMS, VECTORS, WEIGHTS, WORD, Formats, Y, narrow, requantised, set_constants

ITEM, LARGEST = 0, 1  # vector registers
X = 0  # a scalar register
LEAST = -128
MOST_WEIGHT = 127
PADS = (0, 0, 0, 0)  # of means
ITEMS, PART, SPLAT = 1, 2, 12  # two scalar registers and a vector register of means
Shape = tuple[int, ...]


def _vectors(shape: Sequence[int], kernel: Shape, strides: Shape, pads: Shape) -> int:
    """Return the vectors of the results of images [b, c, i, j]."""
    return -(-math.prod((*shape[:2], *window_counts(shape[2:], kernel, strides, pads))) // VECTOR)


def _instructions(taps: int, count: int) -> int:
    """Return the instructions of a program."""
    return 2 + count * (3 * taps)


def _planes(x: Codes, kernel: Shape, strides: Shape, pads: Shape) -> Codes:
    """Return the elements of images [(samples,) b, c, i, j] tap by tap, around an image the least one: [(samples,) tap, window]."""
    shape, lead = x.shape[-4:], x.shape[:-4]
    out = window_counts(shape[2:], kernel, strides, pads)
    image = np.full((*lead, *shape[:2], shape[2] + pads[0] + pads[2], shape[3] + pads[1] + pads[3]), LEAST, x.dtype)
    image[..., pads[0] : pads[0] + shape[2], pads[1] : pads[1] + shape[3]] = x
    taps = []
    for place in np.ndindex(*kernel):
        rows, cols = (slice(at, at + (m - 1) * d + 1, d) for at, m, d in zip(place, out, strides, strict=True))
        taps.append(image[..., rows, cols].reshape(*lead, -1))
    return np.stack(taps, axis=-2)


def _images(codes: Codes, shape: Sequence[int], out: Sequence[int]) -> Codes:
    """Return results [(samples,) b, c, u, v] from bytes in order."""
    return codes[..., : math.prod((*shape[:2], *out))].reshape(*codes.shape[:-1], *shape[:2], *out)


def drive(device: StreamedDevice, x: Codes, *, kernel: Shape, strides: Shape, pads: Shape) -> Codes:
    """Emit one pool of codes: x [(samples,) b, c, i, j] → [(samples,) b, c, u, v]."""
    shape = x.shape[-4:]
    taps, count = math.prod(kernel), _vectors(shape, kernel, strides, pads)
    planes = pad_axis(_planes(x, kernel, strides, pads), -1, count * VECTOR)
    device.attach("dram", (taps + 1) * count * VECTOR)
    device.place("dram", 0, split_bytes(planes.reshape(*planes.shape[:-2], -1)))
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
    return _images(y, shape, window_counts(shape[2:], kernel, strides, pads))


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
    yield Limit("bytes of memory", (taps + 1) * count * VECTOR + WORD * _instructions(taps, count), memory_bytes(p))


def cost(b: int, c: int, i: int, j: int, kernel: Shape, strides: Shape, pads: Shape, resources: Resources) -> Cost:
    """A packet holds one load beside what is computed, so that loads decide."""
    taps, count = math.prod(kernel), _vectors((b, c, i, j), kernel, strides, pads)
    moved = {"x": taps * count * VECTOR, "y": count * VECTOR, "commands": WORD * _instructions(taps, count)}
    return Cost("vector", count * (taps + 1), resources.link("host", "v").cycles_for(sum(moved.values())), moved)


def _trial(c: int, size: int, kernel: int, stride: int, pad: int) -> dict[str, Any]:
    out = (size + 2 * pad - kernel) // stride + 1
    sizes: dict[str, Any] = dict(zip("bcijuv", (1, c, size, size, out, out), strict=True))
    return sizes | {"kernel": (kernel,) * 2, "strides": (stride,) * 2, "pads": (pad,) * 4}


UNEVEN = {**_trial(5, 6, 3, 2, 0), "b": 2, "j": 9, "kernel": (3, 2), "strides": (1, 2), "pads": (1, 0, 0, 1), "u": 5, "v": 5}
UNPADDED = {**_trial(5, 7, 3, 2, 0), "b": 2, "j": 9, "kernel": (3, 2), "strides": (2, 1), "u": 3, "v": 8}
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


# -- means


def _weights(taps: int) -> tuple[int, int, int]:
    """Return the least weight of a tap, how many taps have one more, and the places of their sum, which is a power of two."""
    places = (MOST_WEIGHT * taps).bit_length() - 1
    return *divmod(1 << places, taps), places


def drive_mean(device: StreamedDevice, x: Codes, *, kernel: Shape, strides: Shape, f: Formats) -> Codes:
    """Emit one pool by means: x [(samples,) b, c, i, j] → [(samples,) b, c, u, v], all codes."""
    shape, lead, taps = x.shape[-4:], x.shape[:-4], math.prod(kernel)
    count, groups = _vectors(shape, kernel, strides, PADS), -(-taps // WORD)
    planes = pad_axis(pad_axis(_planes(x, kernel, strides, PADS), -2, groups * WORD), -1, count * VECTOR)
    # four taps a word; neighbouring windows lie in the vectors of one lane, as results are narrowed
    words = planes.reshape(*lead, groups, WORD, count, LANES, VECTORS)
    items = np.moveaxis(words, (-3, -5, -1, -2, -4), (-5, -4, -3, -2, -1)).reshape(*lead, -1)
    end = groups * count * VECTORS * VECTOR
    device.attach("dram", end + count * VECTOR)
    device.place("dram", 0, split_bytes(np.ascontiguousarray(items)))
    least, larger, places = _weights(taps)
    each = [least + (n < larger) if n < taps else 0 for n in range(groups * WORD)]
    set_constants(device, {**f, "w": Fixed(8, places)}, end)
    set_register(device, ITEMS, 0)
    for _ in range(count):
        for group in range(groups):
            set_register(device, PART, sum(weight << 8 * n for n, weight in enumerate(each[WORD * group :][:WORD])))
            device.issue("vsplat_r", vd=SPLAT, rt=PART)
            for vector in range(VECTORS):
                device.issue("vmem_load_step", vd=WEIGHTS + vector, rt=ITEMS, step=1)
                if group:
                    device.issue("vrmpy_w_b_b_acc", vx=SUMS + vector, vu=WEIGHTS + vector, vv=SPLAT)
                else:
                    device.issue("vrmpy_w_b_b", vd=SUMS + vector, vu=WEIGHTS + vector, vv=SPLAT)
        narrow(device, 0, VECTORS, False)
    finish(device)
    y = join_bytes(device.fetch("dram", end, count * VECTOR)[..., None])
    return _images(y, shape, window_counts(shape[2:], kernel, strides, PADS))


def mean_codes(x: Array, *, kernel: Shape, strides: Shape, f: Formats) -> Array:
    """The weighted sum of each window, requantised."""
    least, larger, places = _weights(math.prod(kernel))
    shape = [int(n) for n in x.shape]  # type: ignore[arg-type]

    def element(k: Expr, c: Expr, u: Expr, v: Expr) -> Expr:
        def item(r: Expr, s: Expr) -> Expr:
            return x[k, c, u * strides[0] + r, v * strides[1] + s] * (least + (r * kernel[1] + s < larger))

        return requantised(reduce_sum(item, kernel), {**f, "w": Fixed(8, places)}, False)

    return array(element, (*shape[:2], *window_counts(shape[2:], kernel, strides, PADS)))


def _mean_instructions(taps: int, count: int) -> int:
    """Return a bound on the instructions of a program."""
    return 8 + count * (-(-taps // WORD) * (2 + 2 * VECTORS) + VECTORS + 5)


def mean_limits(b: int, c: int, i: int, j: int, kernel: Shape, strides: Shape, p: Mapping[str, str]) -> Iterator[Limit]:
    """What one pool by means and its code take of memory."""
    taps, count = math.prod(kernel), _vectors((b, c, i, j), kernel, strides, PADS)
    room = (-(-taps // WORD) * VECTORS + 1) * count * VECTOR + WORD * _mean_instructions(taps, count)
    yield Limit("bytes of memory", room, memory_bytes(p))


def mean_cost(b: int, c: int, i: int, j: int, kernel: Shape, strides: Shape, resources: Resources) -> Cost:
    """A packet holds one load beside a sum of products."""
    taps, count = math.prod(kernel), _vectors((b, c, i, j), kernel, strides, PADS)
    groups = -(-taps // WORD)
    moved = {"x": groups * count * VECTORS * VECTOR, "y": count * VECTOR, "commands": WORD * _mean_instructions(taps, count)}
    cycles = count * (groups * VECTORS + VECTORS + 4)
    return Cost("vector", cycles, resources.link("host", "v").cycles_for(sum(moved.values())), moved)


MEANS = [{name: n for name, n in at.items() if name != "pads"} for at in (_trial(16, 4, 2, 2, 0), _trial(2, 8, 8, 1, 0), UNPADDED)]


@target.accelerates(**{**POOL, "derived": {}, "formats": {"x": int8, "y": int8}, "trials": MEANS})
def average_pool(x: Tensor, kernel: Ints, strides: Ints) -> tuple[Tensor, Where]:
    """The mean of each window without elements around the image."""
    y = o.average_pool(x, kernel=kernel, strides=strides, pads=PADS, dilations=(1, 1), ceil=0, count_include_pad=0)
    return y, Where(x.rank == 4)


average_pool.limits(mean_limits)
average_pool.driver(drive_mean, moves=True)
average_pool.numerics(mean_codes)
average_pool.costs(mean_cost)
