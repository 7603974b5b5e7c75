"""HVX's pools of bytes, a vector of windows at a time: an image lies tap by tap, first the first element of every window."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rewrite_compiler import Tensor, Where
from rewrite_compiler import ops as o
from rewrite_compiler.ila_models.hvx.state import VECTOR
from rewrite_compiler.lang import Array
from rewrite_compiler.rewrite import Ints
from rewrite_compiler.target import (
    Cost,
    Limit,
    Resources,
    StreamedDevice,
    axis_sizes,
    join_bytes,
    pad_axis,
    split_bytes,
    window_counts,
    window_maxima,
)

from .base import Codes, finish, int8, memory_bytes, set_register, target
from .products import WORD, Parameters, Y

ITEM, LARGEST = 0, 1  # vector registers
X = 0  # a scalar register
LEAST = -128
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Pool:
    """The taps of a window, the vectors of the results, and the bytes of memory."""

    taps: int
    count: int
    memory: int

    @property
    def code(self) -> int:
        """Bytes of the program."""
        return WORD * (2 + self.count * 3 * self.taps)

    def limits(self) -> Iterator[Limit]:
        """What one pool and its code take of memory."""
        yield Limit("bytes of memory", (self.taps + 1) * self.count * VECTOR + self.code, self.memory)

    def cost(self, resources: Resources) -> Cost:
        """A packet holds one load beside what is computed, so that loads decide."""
        moved = {"x": self.taps * self.count * VECTOR, "y": self.count * VECTOR, "commands": self.code}
        return Cost("vector", self.count * (self.taps + 1), resources.link("host", "v").cycles_for(sum(moved.values())), moved)


def plan(b: int, c: int, i: int, j: int, kernel: Shape, strides: Shape, pads: Shape, p: Parameters) -> Pool:
    """Return the pool of images."""
    return Pool(math.prod(kernel), -(-b * c * math.prod(window_counts((i, j), kernel, strides, pads)) // VECTOR), memory_bytes(p))


def planes(x: Codes, kernel: Shape, strides: Shape, pads: Shape, border: int) -> Codes:
    """Return the elements of images [(samples,) b, c, i, j] tap by tap, with a code around an image: [(samples,) tap, b, c, u, v]."""
    shape, lead = x.shape[-4:], x.shape[:-4]
    out = window_counts(shape[2:], kernel, strides, pads)
    image = np.full((*lead, *shape[:2], shape[2] + pads[0] + pads[2], shape[3] + pads[1] + pads[3]), border, x.dtype)
    image[..., pads[0] : pads[0] + shape[2], pads[1] : pads[1] + shape[3]] = x
    taps = []
    for place in np.ndindex(*kernel):
        rows, cols = (slice(at, at + (m - 1) * d + 1, d) for at, m, d in zip(place, out, strides, strict=True))
        taps.append(image[..., rows, cols])
    return np.stack(taps, axis=-5)


def images(codes: Codes, shape: Sequence[int], out: Sequence[int]) -> Codes:
    """Return results [(samples,) b, c, u, v] from bytes in order."""
    return codes[..., : math.prod((*shape[:2], *out))].reshape(*codes.shape[:-1], *shape[:2], *out)


def drive(device: StreamedDevice, x: Codes, *, kernel: Shape, strides: Shape, pads: Shape, p: Parameters) -> Codes:
    """Emit one pool of codes: x [(samples,) b, c, i, j] → [(samples,) b, c, u, v]."""
    shape, m = x.shape[-4:], plan(**axis_sizes("b c i j", x), kernel=kernel, strides=strides, pads=pads, p=p)
    taps, count = m.taps, m.count
    items = pad_axis(planes(x, kernel, strides, pads, LEAST).reshape(*x.shape[:-4], taps, -1), -1, count * VECTOR)
    device.attach("dram", (taps + 1) * count * VECTOR)
    device.place("dram", 0, split_bytes(items.reshape(*items.shape[:-2], -1)))
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
    return images(y, shape, window_counts(shape[2:], kernel, strides, pads))


def codes(x: Array, *, kernel: Shape, strides: Shape, pads: Shape) -> Array:
    """The largest code of each window; around an image there are least ones."""
    return window_maxima(x, kernel, strides, pads, LEAST)


def trial(c: int, size: int, kernel: int, stride: int, pad: int) -> dict[str, Any]:
    """Return the sizes and attributes of one square image."""
    out = (size + 2 * pad - kernel) // stride + 1
    sizes: dict[str, Any] = dict(zip("bcijuv", (1, c, size, size, out, out), strict=True))
    return sizes | {"kernel": (kernel,) * 2, "strides": (stride,) * 2, "pads": (pad,) * 4}


UNEVEN = {**trial(5, 6, 3, 2, 0), "b": 2, "j": 9, "kernel": (3, 2), "strides": (1, 2), "pads": (1, 0, 0, 1), "u": 5, "v": 5}
POOL: dict[str, Any] = {
    "axes": "x: b c i j; y: b c u v", "formats": {"x": int8}, "derived": {"y": lambda x: x}, "whole": "b c i j u v",
    "trials": (trial(16, 4, 2, 2, 0), trial(5, 20, 3, 2, 1), UNEVEN),
}  # fmt: skip


@target.accelerates(**POOL)
def max_pool(x: Tensor, kernel: Ints, strides: Ints, pads: Ints) -> tuple[Tensor, Where]:
    """The largest element of each window without dilation."""
    return o.max_pool(x, kernel=kernel, strides=strides, pads=pads, dilations=(1, 1), ceil=0), Where(x.rank == 4)


max_pool.work(plan)
max_pool.driver(drive, moves=True)
max_pool.numerics(codes)
