"""GeneSys's products: dense layers and convolutions, with and without bias and ReLU, one block of words a call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from rewrite_compiler import IsConstant, Tensor, Where
from rewrite_compiler import ops as o
from rewrite_compiler.lang import Array, Expr, array, maximum, reduce_sum, select, signed
from rewrite_compiler.rewrite import Ints
from rewrite_compiler.target import Cost, Limit, Resources, StreamedDevice, join_bytes, pad_axis

from .base import Codes, bias_bytes, blocks, config, input_bytes, int8, sums, target, weight_bytes
from .program import Layer, issue, layer_words, tile_sizes

INPUTS = {"x": int8, "w": int8}
MOST = (1 << 16) - 1  # of a request, and of the iterations of a loop
WORD_BYTES = 4
P = Mapping[str, str]


# -- layers


def conv_layer(
    shape: Sequence[int], filters: int, kernel: Sequence[int], strides: Sequence[int], pads: Sequence[int], p: P, relu: bool
) -> Layer:
    """Return the layer on a batch [b, c, i, j], whose zeros are the host's, with the tile of the fewest parts that fits.

    Where none fits it is the smallest one, which the limits refuse.
    """
    c = config(p)
    samples, channels, rows, cols = shape
    size = rows + pads[0] + pads[2], cols + pads[1] + pads[3]
    out = tuple((n - k) // s + 1 for n, k, s in zip(size, kernel, strides, strict=True))
    whole = Layer(c, samples, blocks(channels, c.array_n), blocks(filters, c.array_m), (kernel[0], kernel[1]), (out[0], out[1]),
                  (strides[0], strides[1]), relu=relu)  # fmt: skip
    return _tiled(whole)


@lru_cache(maxsize=1024)
def _tiled(m: Layer) -> Layer:
    fallback = replace(m, tic=1, toc=1, toh=1)
    best, parts = fallback, 0
    for toc in tile_sizes(m.oc):
        for tic in tile_sizes(m.ic):
            for toh in tile_sizes(m.out[0]):
                candidate = replace(m, tic=tic, toc=toc, toh=toh)
                count = (m.oc // toc) * (m.ic // tic) * (m.out[0] // toh)
                if (not parts or count < parts) and all(x.holds for x in layer_limits(candidate)):
                    best, parts = candidate, count
                    break
    return best


def layer_limits(m: Layer) -> Iterator[Limit]:
    """Yield what a tile of a layer needs of every buffer, and of the fields of its words."""
    c, (_, width) = m.design, m.out
    results = m.toh * width * m.toc
    for label, needs, most in (
        ("input rows", m.input_rows * m.size[1] * m.tic, c.ibuf_depth),
        ("weight rows", m.weight_rows, min(c.wbuf_depth, MOST)),
        ("sum rows", results, c.obuf_depth),
        ("bias rows", m.toc, c.bbuf_depth),
        ("vector rows", results if m.relu else 1, min(c.vmem_depth, MOST)),
        ("bytes a bank of a request", max(m.size[1] * m.tic, WORD_BYTES * width * m.toc), MOST),
    ):
        yield Limit(label, needs, most)


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
    words = join_bytes(lanes.reshape(*lanes.shape[:-1], -1, WORD_BYTES))
    y = words.reshape(*words.shape[:-1], m.samples, *m.out, m.oc * m.design.array_m)
    return np.moveaxis(y, -1, -3)[..., : len(w), :, :]


def layer_cost(m: Layer, resources: Resources) -> Cost:
    """Return the cycles of a layer: its steps on the array, and what every tile moves."""
    n, (oc, _, ic, oh) = m.design.array_n, m.tiles.values()
    tiles = m.samples * oc * ic * oh
    step = m.toh * m.out[1] * m.kernel[0] * m.kernel[1] * m.tic * m.toc
    commands = WORD_BYTES * len(layer_words(m))
    moved = {
        "x": tiles * m.input_rows * m.size[1] * m.tic * n,
        "w": tiles * m.weight_rows * n * n,
        "y": (2 * ic - 1) * m.bytes["obuf"],
        "commands": commands + tiles * m.toc * n * WORD_BYTES,
    }
    return Cost("systolic", tiles * (step + 2 * (n - 1)), resources.link("host", "wbuf").cycles_for(sum(moved.values())), moved)


# -- dense layers: positions are rows of the first operand


DENSE, DENSE_BIAS = "x: t k; w: n k; y: t n", "x: t k; w: n k; b: n; y: t n"
UNITS = {"k": 16, "n": 16}


def _dense_layer(t: int, k: int, n: int, p: P, relu: bool) -> Layer:
    """Return the layer of a product, which is one tile: sizes that the buffers do not hold are divided before."""
    c = config(p)
    ic, oc = blocks(k, c.array_n), blocks(n, c.array_m)
    return Layer(c, 1, ic, oc, (1, 1), (1, t), tic=ic, toc=oc, relu=relu)


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


def dense_codes(x: Array, w: Array, b: Array | None = None, *, relu: bool = False) -> Array:
    """Sums of products of codes that wrap at 32 bits, from the bias on; then, with `relu`, the larger of sum and zero."""

    def result(t: Expr, n: Expr) -> Expr:
        products = reduce_sum(lambda k: x[t, k] * w[n, k], x.shape[1])
        return _finished(products if b is None else b[n] + products, relu)

    return array(result, (x.shape[0], w.shape[0]))


def _finished(total: Expr, relu: bool) -> Expr:
    return maximum(signed(total, 32), 0) if relu else signed(total, 32)


def dense_limits(t: int, k: int, n: int, p: P, *, relu: bool) -> Iterator[Limit]:
    """Capacities of one product."""
    return layer_limits(_dense_layer(t, k, n, p, relu))


def drive_dense(device: StreamedDevice, x: Codes, w: Codes, b: Codes | None = None, *, p: P, relu: bool) -> Codes:
    """Emit one product: x [(samples,) t, k], w [n, k] → y [(samples,) t, n]."""
    m = _dense_layer(x.shape[-2], x.shape[-1], len(w), p, relu)
    image = np.swapaxes(x, -1, -2)[..., None, :, None, :]
    y = run_layer(device, m, image, w[:, :, None, None], b)
    return np.swapaxes(y[..., 0, :, 0, :], -1, -2)


def dense_cost(t: int, k: int, n: int, p: P, resources: Resources, *, relu: bool) -> Cost:
    """Cycles and bytes of one product."""
    return layer_cost(_dense_layer(t, k, n, p, relu), resources)


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
    x: Array, w: Array, b: Array | None = None, *, strides: tuple[int, ...], pads: tuple[int, ...], relu: bool = False
) -> Array:
    """As a dense layer, over the taps of a filter; taps outside of the image are zeros."""
    filters, channels, *kernel = (int(n) for n in w.shape)  # type: ignore[arg-type]
    image = bordered_array(x, pads)

    def result(k: Expr, n: Expr, u: Expr, v: Expr) -> Expr:
        def product(c: Expr, r: Expr, s: Expr) -> Expr:
            return image[k, c, u * strides[0] + r, v * strides[1] + s] * w[n, c, r, s]

        products = reduce_sum(product, (channels, *kernel))
        return _finished(products if b is None else b[n] + products, relu)

    size = (int(n) for n in image.shape[2:])  # type: ignore[arg-type]
    return array(result, (x.shape[0], filters, *((n - k) // s + 1 for n, k, s in zip(size, kernel, strides, strict=True))))


def bordered_array(x: Array, pads: Sequence[int], by: int = 0) -> Array:
    """Return images [b, c, i, j] with a code around them."""
    if not any(pads):
        return x
    samples, channels, rows, cols = (int(n) for n in x.shape)  # type: ignore[arg-type]

    def code(k: Expr, c: Expr, i: Expr, j: Expr) -> Expr:
        is_inside = (i >= pads[0]) & (i < pads[0] + rows) & (j >= pads[1]) & (j < pads[1] + cols)
        return select(is_inside, x[k, c, i - pads[0], j - pads[1]], by)

    return array(code, (samples, channels, rows + pads[0] + pads[2], cols + pads[1] + pads[3]))


def bordered_codes(x: Codes, pads: Sequence[int], code: int) -> Codes:
    """Return images [… i, j] with a code around them."""
    margins = [(0, 0)] * (x.ndim - 2) + [(pads[0], pads[2]), (pads[1], pads[3])]
    return np.pad(x, margins, constant_values=code)


def conv2d_limits(
    b: int, n: int, c: int, i: int, j: int, r: int, s: int, strides: tuple[int, ...], pads: tuple[int, ...], p: P, *, relu: bool
) -> Iterator[Limit]:
    """Capacities of a tile of a convolution."""
    return layer_limits(conv_layer((b, c, i, j), n, (r, s), strides, pads, p, relu))


def drive_conv2d(
    device: StreamedDevice, x: Codes, w: Codes, b: Codes | None = None, *, strides: tuple[int, ...], pads: tuple[int, ...], p: P,
    relu: bool, border: int = 0,
) -> Codes:  # fmt: skip
    """Emit one convolution: x [(samples,) b, c, i, j] with a code around it, w [n, c, r, s] → y [(samples,) b, n, u, v]."""
    batch, channels, rows, cols = x.shape[-4:]
    m = conv_layer((batch, channels, rows, cols), len(w), w.shape[2:], strides, pads, p, relu)
    image = bordered_codes(x, pads, border)
    # a stride may need more columns than there are, or fewer
    image = pad_axis(pad_axis(image, -2, m.size[0]), -1, m.size[1])
    return run_layer(device, m, image[..., : m.size[0], : m.size[1]], w, b)


def conv2d_cost(
    b: int, n: int, c: int, i: int, j: int, r: int, s: int, strides: tuple[int, ...], pads: tuple[int, ...], p: P, resources: Resources, *,
    relu: bool,
) -> Cost:  # fmt: skip
    """Cycles and bytes of one convolution."""
    return layer_cost(conv_layer((b, c, i, j), n, (r, s), strides, pads, p, relu), resources)


for mapping, relu in ((dense, False), (dense_bias, False), (dense_bias_relu, True)):
    mapping.limits(partial(dense_limits, relu=relu))
    mapping.driver(partial(drive_dense, relu=relu), moves=True)
    mapping.numerics(partial(dense_codes, relu=relu))
    mapping.costs(partial(dense_cost, relu=relu))

for mapping, relu in ((conv2d, False), (conv2d_bias, False), (conv2d_bias_relu, True)):
    mapping.limits(partial(conv2d_limits, relu=relu))
    mapping.driver(partial(drive_conv2d, relu=relu), moves=True)
    mapping.numerics(partial(conv2d_codes, relu=relu))
    mapping.costs(partial(conv2d_cost, relu=relu))
