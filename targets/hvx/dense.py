"""HVX's dense layer: vectors of 32 words, each the sum of four products of bytes; sums of 32 results stay in a register.

Weights lie as 32 results of four terms a vector. Each row's terms are repeated for all results, so that both sides are vectors
and signed: the form with a scalar register takes unsigned vectors only, and its scalars could not differ between samples.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from rewrite_compiler import IsConstant, Tensor, Where
from rewrite_compiler import ops as o
from rewrite_compiler.ila_models.hvx.state import VECTOR
from rewrite_compiler.lang import Array, Expr, array, reduce_sum, signed
from rewrite_compiler.target import Cost, Limit, Resources, StreamedDevice, join_bytes, pad_axis, split_bytes

from .base import GROUP, LANES, Codes, finish, int8, memory_bytes, set_register, sums, target

TOTAL, ROW, WEIGHT = 0, 1, 2  # vector registers
AT_ROW, AT_WEIGHT, AT_BIAS, AT_RESULT = range(4)  # scalar registers
WORD_BYTES = 4
AXES = "x: t k; w: n k; b: n; y: t n"
P = Mapping[str, str]


@target.accelerates(
    axes="x: t k; w: n k; y: t n", formats={"x": int8, "w": int8}, derived={"y": sums}, units={"k": GROUP, "n": LANES}, operation="dense"
)
def dense(x: Tensor, w: Tensor) -> tuple[Tensor, Where]:
    """A matrix product with constant weights: y[t, n] = Σ_k x[t, k] · w[n, k]."""
    return o.dense(x, w), Where(x.rank == 2, IsConstant(w))


@target.accelerates(
    axes=AXES, formats={"x": int8, "w": int8}, derived={"b": sums, "y": sums}, units={"k": GROUP, "n": LANES}, operation="dense"
)
def dense_bias(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, Where]:
    """A matrix product whose sums start at the bias."""
    return o.bias_add(o.dense(x, w), b, 1), Where(x.rank == 2, IsConstant(w), IsConstant(b))


def dense_codes(x: Array, w: Array, b: Array | None = None) -> Array:
    """Sums of products of codes, from the bias on, that wrap at 32 bits."""

    def element(t: Expr, n: Expr) -> Expr:
        start = 0 if b is None else b[n]
        return signed(start + reduce_sum(lambda k: x[t, k] * w[n, k], x.shape[1]), 32)

    return array(element, (x.shape[0], w.shape[0]))


def places(t: int, k: int, n: int) -> dict[str, int]:
    """Return the first byte of rows, weights, bias and results, and the end; all are whole vectors."""
    deep, wide = -(-k // GROUP), -(-n // LANES)
    sizes = {"x": t * deep, "w": wide * deep, "b": wide, "y": t * wide}
    offsets, at = {}, 0
    for name, vectors in sizes.items():
        offsets[name] = at
        at += vectors * VECTOR
    return {**offsets, "end": at}


def drive_dense(device: StreamedDevice, x: Codes, w: Codes, b: Codes | None = None) -> Codes:
    """Emit one product: x [(samples,) t, k], w [n, k], b [n] → y [(samples,) t, n]."""
    (rows, k), n = x.shape[-2:], len(w)
    at, deep, wide = places(rows, k, n), -(-k // GROUP), -(-n // LANES)
    device.attach("dram", at["end"])
    terms = pad_axis(x, -1, deep * GROUP).reshape(*x.shape[:-1], deep, 1, GROUP)
    device.place("dram", at["x"], split_bytes(np.repeat(terms, LANES, axis=-2).reshape(*x.shape[:-2], -1)))
    weights = pad_axis(pad_axis(w, 0, wide * LANES), 1, deep * GROUP).reshape(wide, LANES, deep, GROUP)
    device.place("dram", at["w"], split_bytes(np.ascontiguousarray(weights.transpose(0, 2, 1, 3)).reshape(-1)))
    if b is not None:
        device.place("dram", at["b"], split_bytes(pad_axis(b, 0, wide * LANES), WORD_BYTES))
    set_register(device, AT_RESULT, at["y"])
    for row in range(rows):
        set_register(device, AT_WEIGHT, at["w"])
        set_register(device, AT_BIAS, at["b"])
        for _ in range(wide):
            _block(device, at["x"] + row * deep * VECTOR, deep)
    finish(device)
    lanes = device.fetch("dram", at["y"], rows * wide * VECTOR)
    y = join_bytes(lanes.reshape(*lanes.shape[:-1], -1, WORD_BYTES))
    return y.reshape(*y.shape[:-1], rows, wide * LANES)[..., :n]


def _block(device: StreamedDevice, row: int, deep: int) -> None:
    """Sum the products of one row for 32 results."""
    set_register(device, AT_ROW, row)
    device.issue("vmem_load_step", vd=TOTAL, rt=AT_BIAS, step=1)
    for _ in range(deep):
        device.issue("vmem_load_step", vd=ROW, rt=AT_ROW, step=1)
        device.issue("vmem_load_step", vd=WEIGHT, rt=AT_WEIGHT, step=1)
        device.issue("vrmpy_w_b_b_acc", vx=TOTAL, vu=ROW, vv=WEIGHT)
    device.issue("vmem_store_step", vs=TOTAL, rt=AT_RESULT, step=1)


def dense_limits(t: int, k: int, n: int, p: P) -> Iterator[Limit]:
    """Capacities of one product."""
    yield Limit("bytes of memory", places(t, k, n)["end"], memory_bytes(p))


def dense_cost(t: int, k: int, n: int, p: P, resources: Resources) -> Cost:
    """A packet holds one load, so that the two operands of a sum take two packets, in which the sum before it fits."""
    deep, wide = -(-k // GROUP), -(-n // LANES)
    moved = {"x": t * wide * deep * VECTOR, "w": t * wide * deep * VECTOR, "y": t * wide * VECTOR}
    moved["commands"] = WORD_BYTES * (2 + t * (4 + wide * (4 + 3 * deep)))
    return Cost("multiply", t * wide * deep, resources.link("host", "v").cycles_for(sum(moved.values())), moved)


for mapping in (dense, dense_bias):
    mapping.limits(dense_limits)
    mapping.driver(drive_dense, moves=True)
    mapping.numerics(dense_codes)
    mapping.costs(dense_cost)
