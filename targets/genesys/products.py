"""GeneSys's products: dense layers and convolutions, with and without bias and ReLU, one block of words a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from rewrite_compiler import IsConstant, Tensor, Where
from rewrite_compiler import ops as o
from rewrite_compiler.lang import Array, Expr, maximum, signed
from rewrite_compiler.rewrite import Ints
from rewrite_compiler.target import StreamedDevice, axis_sizes, conv_sums, dense_sums, join_bytes, pad_axis, window_counts

from .base import Codes, bias_bytes, blocks, bordered_codes, config, input_bytes, int8, sums, target, weight_bytes
from .program import WORD, Layer, issue, layer_words, tile_sizes

INPUTS = {"x": int8, "w": int8}
P = Mapping[str, str]
Sizes = tuple[int, ...]


# -- layers


def dense_layer(t: int, k: int, n: int, p: P, relu: bool = False) -> Layer:
    """Return the layer of a product, which is one tile: sizes that the buffers do not hold are divided before.

    Positions are rows of the first operand.
    """
    c = config(p)
    ic, oc = blocks(k, c.array_n), blocks(n, c.array_m)
    return Layer(c, 1, ic, oc, (1, 1), (1, t), tic=ic, toc=oc, relu=relu)


def conv_layer(
    b: int, n: int, c: int, i: int, j: int, r: int, s: int, strides: Sizes, pads: Sizes, p: P, relu: bool = False
) -> Layer:  # fmt: skip
    """Return the layer on images [b, c, i, j], whose zeros are the host's, with the tile of the fewest parts that fits.

    Where none fits it is the smallest one, which the limits refuse.
    """
    design, out = config(p), window_counts((i, j), (r, s), strides, pads)
    return _tiled(Layer(design, b, blocks(c, design.array_n), blocks(n, design.array_m), (r, s), out, (strides[0], strides[1]), relu=relu))


@lru_cache(maxsize=1024)
def _tiled(m: Layer) -> Layer:
    fallback = replace(m, tic=1, toc=1, toh=1)
    best, parts = fallback, 0
    for toc in tile_sizes(m.oc):
        for tic in tile_sizes(m.ic):
            for toh in tile_sizes(m.out[0]):
                candidate = replace(m, tic=tic, toc=toc, toh=toh)
                count = (m.oc // toc) * (m.ic // tic) * (m.out[0] // toh)
                if (not parts or count < parts) and all(x.holds for x in candidate.limits()):
                    best, parts = candidate, count
                    break
    return best


def run_layer(device: StreamedDevice, m: Layer, x: Codes, w: Codes, b: Codes | None) -> Codes:
    """Emit a layer: x [(samples,) b, c, i, j] with its zeros, w [n, c, r, s] → y [(samples,) b, n, u, v]."""
    ports = {"ibuf": m.bytes["ibuf"], "param": m.bytes["param"], "obuf": m.bytes["obuf"], **({"simd": m.bytes["obuf"]} if m.relu else {})}
    for port, size in ports.items():
        device.attach(f"dram_{port}", size)
    device.place("dram_ibuf", 0, input_bytes(x, m))
    device.place("dram_param", 0, np.concatenate([bias_bytes(b, m), weight_bytes(w, m)]))
    issue(device, layer_words(m))
    device.wait()
    lanes = device.fetch("dram_simd" if m.relu else "dram_obuf", 0, m.bytes["obuf"])
    words = join_bytes(lanes.reshape(*lanes.shape[:-1], -1, WORD))
    y = words.reshape(*words.shape[:-1], m.samples, *m.out, m.oc * m.design.array_m)
    return np.moveaxis(y, -1, -3)[..., : len(w), :, :]


# -- dense layers


DENSE, DENSE_BIAS = "x: t k; w: n k; y: t n", "x: t k; w: n k; b: n; y: t n"
UNITS = {"k": 16, "n": 16}


@target.accelerates(axes=DENSE, formats=INPUTS, derived={"y": sums}, units=UNITS)
def dense(x: Tensor, w: Tensor) -> tuple[Tensor, Where]:
    """A matrix product with constant weights: y[t, n] = Σ_k x[t, k] · w[n, k]."""
    return o.dense(x, w), Where(x.rank == 2, IsConstant(w))


@target.accelerates(axes=DENSE_BIAS, formats=INPUTS, derived={"b": sums, "y": sums}, units=UNITS, operation="dense")
def dense_bias(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, Where]:
    """A matrix product whose sums start at the bias."""
    return o.bias_add(o.dense(x, w), b, 1), Where(x.rank == 2, IsConstant(w), IsConstant(b))


@target.accelerates(axes=DENSE_BIAS, formats=INPUTS, derived={"b": sums, "y": sums}, units=UNITS, operation="dense", whole="k")
def dense_bias_relu(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, Where]:
    """A matrix product with bias, and the larger of each sum and zero on the SIMD array."""
    return o.relu(o.bias_add(o.dense(x, w), b, 1)), Where(x.rank == 2, IsConstant(w), IsConstant(b))


def finished(total: Expr, relu: bool) -> Expr:
    """Return a sum that wraps at 32 bits; with `relu` the larger of it and zero."""
    return maximum(signed(total, 32), 0) if relu else signed(total, 32)


def dense_codes(x: Array, w: Array, b: Array | None = None, *, x_zero: int = 0, relu: bool = False) -> Array:
    """Sums of products of codes less their zero point that wrap at 32 bits, from the bias on."""
    return dense_sums(x, w, b, partial(finished, relu=relu), x_zero)


def drive_dense(device: StreamedDevice, x: Codes, w: Codes, b: Codes | None = None, *, p: P, relu: bool = False) -> Codes:
    """Emit one product: x [(samples,) t, k], w [n, k] → y [(samples,) t, n]."""
    m = dense_layer(**axis_sizes("t k", x), n=len(w), p=p, relu=relu)
    image = np.swapaxes(x, -1, -2)[..., None, :, None, :]
    y = run_layer(device, m, image, w[:, :, None, None], b)
    return np.swapaxes(y[..., 0, :, 0, :], -1, -2)


# -- convolutions


CONV, CONV_BIAS = "x: b c i j; w: n c r s; y: b n u v", "x: b c i j; w: n c r s; b: n; y: b n u v"


def _trial(b: int, n: int, c: int, i: int, r: int, stride: int, pad: int) -> dict[str, Any]:
    u = (i + 2 * pad - r) // stride + 1
    return {"b": b, "n": n, "c": c, "i": i, "j": i, "r": r, "s": r, "u": u, "v": u, "strides": (stride,) * 2, "pads": (pad,) * 4}


TRIALS = (_trial(1, 16, 16, 1, 1, 1, 0), _trial(2, 19, 21, 5, 3, 2, 1), _trial(1, 5, 9, 8, 3, 1, 1))
_CONV: dict[str, Any] = {"formats": INPUTS, "units": {"n": 16}, "whole": "b c i j r s u v", "trials": TRIALS}


@target.accelerates(axes=CONV, derived={"y": sums}, **_CONV)
def conv2d(x: Tensor, w: Tensor, strides: Ints, pads: Ints) -> tuple[Tensor, Where]:
    """A 2-D convolution without groups or dilation."""
    return o.conv(x, w, strides, pads, (1, 1), group=1), Where(x.rank == 4, IsConstant(w))


@target.accelerates(axes=CONV_BIAS, derived={"b": sums, "y": sums}, operation="conv2d", **_CONV)
def conv2d_bias(x: Tensor, w: Tensor, b: Tensor, strides: Ints, pads: Ints) -> tuple[Tensor, Where]:
    """A 2-D convolution whose sums start at the filter's bias."""
    return o.bias_add(o.conv(x, w, strides, pads, (1, 1), group=1), b, 1), Where(x.rank == 4, IsConstant(w), IsConstant(b))


@target.accelerates(axes=CONV_BIAS, derived={"b": sums, "y": sums}, operation="conv2d", **_CONV)
def conv2d_bias_relu(x: Tensor, w: Tensor, b: Tensor, strides: Ints, pads: Ints) -> tuple[Tensor, Where]:
    """A 2-D convolution with bias, and the larger of each sum and zero on the SIMD array."""
    return o.relu(o.bias_add(o.conv(x, w, strides, pads, (1, 1), group=1), b, 1)), Where(x.rank == 4, IsConstant(w), IsConstant(b))


def conv2d_codes(
    x: Array, w: Array, b: Array | None = None, *, strides: Sizes, pads: Sizes, x_zero: int = 0, relu: bool = False
) -> Array:  # fmt: skip
    """As a dense layer, over the taps of a filter; taps outside of the image are zeros."""
    return conv_sums(x, w, b, partial(finished, relu=relu), strides=strides, pads=pads, x_zero=x_zero)


def drive_conv2d(
    device: StreamedDevice, x: Codes, w: Codes, b: Codes | None = None, *, strides: Sizes, pads: Sizes, p: P, relu: bool = False,
    border: int = 0,
) -> Codes:  # fmt: skip
    """Emit one convolution: x [(samples,) b, c, i, j] with a code around it, w [n, c, r, s] → y [(samples,) b, n, u, v]."""
    m = conv_layer(**axis_sizes("b c i j", x) | axis_sizes("n c r s", w), strides=strides, pads=pads, p=p, relu=relu)
    image = bordered_codes(x, pads, border)
    # a stride may need more columns than there are, or fewer
    image = pad_axis(pad_axis(image, -2, m.size[0]), -1, m.size[1])
    return run_layer(device, m, image[..., : m.size[0], : m.size[1]], w, b)


_PARTS: dict[str, tuple[Callable[..., Any], ...]] = {
    "dense": (dense_layer, drive_dense, dense_codes), "conv2d": (conv_layer, drive_conv2d, conv2d_codes),
}  # fmt: skip
for mapping in (dense, dense_bias, dense_bias_relu, conv2d, conv2d_bias, conv2d_bias_relu):
    plan, drive, numerics = (partial(part, relu=mapping.variant.endswith("_relu")) for part in _PARTS[mapping.operation])
    mapping.work(plan)
    mapping.driver(drive, moves=True)
    mapping.numerics(numerics)
