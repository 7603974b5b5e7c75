"""VTA's matrix product, with and without bias and ReLU: int8 blocks, sums in 32 bits, of which STORE gives one byte at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from rewrite_compiler import IsConstant, Tensor, Where
from rewrite_compiler import ops as o
from rewrite_compiler.ila_models.vta.config import Config
from rewrite_compiler.lang import Array, Expr, array, maximum, reduce_sum, signed
from rewrite_compiler.target import USUAL, Limit, Room, Stay, StreamedDevice, split_bytes

from .base import (
    UOP_BYTES,
    Codes,
    accumulator,
    buffer_limits,
    config,
    elements,
    from_elements,
    int8,
    micro_ops,
    target,
    to_elements,
)  # fmt: skip
from .results import Region, factors, fetch_words, grid, planes, store_bytes


@dataclass(frozen=True)
class Blocks:
    """One product in elements: along rows, inner dimension and columns, on a design; and where its parts lie in DRAM."""

    design: Config
    rows: int
    inner: int
    columns: int
    has_bias: bool = False
    relu: bool = False

    @property
    def planes(self) -> int:
        """Bytes of an accumulator."""
        return planes(self.design)

    @property
    def results(self) -> int:
        """Accumulator elements."""
        return self.rows * self.columns

    @property
    def places(self) -> dict[str, int]:
        """The first byte of each part of the image, at a multiple of its element, and the end."""
        sizes = {
            "wgt": (self.columns * self.inner, self.design.scalars("wgt")),
            "inp": (self.rows * self.inner, self.design.scalars("inp")),
            "out": (self.planes * self.results, self.design.scalars("inp")),
            "acc": (self.columns, self.design.scalars("acc") * self.planes),
            "uop": (self.inner, UOP_BYTES),
        }
        offsets, at = {}, 0
        for name, (count, size) in sizes.items():
            offsets[name] = elements(at, size) * size
            at = offsets[name] + count * size
        return {**offsets, "end": at}


AXES, BIASED = "x: t k; w: n k; y: t n", "x: t k; w: n k; b: n; y: t n"
INPUTS = {"x": int8, "w": int8}
UNITS = {"k": 16, "n": 16}
SUMS = {"y": accumulator}


@target.accelerates(axes=AXES, formats=INPUTS, derived=SUMS, units=UNITS)
def dense(x: Tensor, w: Tensor) -> tuple[Tensor, Where]:
    """A matrix product with constant weights: y[t, n] = Σ_k x[t, k] · w[n, k]."""
    return o.dense(x, w), Where(x.rank == 2, IsConstant(w))


@target.accelerates(axes=AXES, formats=INPUTS, derived=SUMS, units=UNITS, operation="dense", whole="k")
def dense_relu(x: Tensor, w: Tensor) -> tuple[Tensor, Where]:
    """A matrix product and the larger of each sum and zero."""
    return o.relu(o.dense(x, w)), Where(x.rank == 2, IsConstant(w))


@target.accelerates(axes=BIASED, formats=INPUTS, derived={"b": accumulator, **SUMS}, units=UNITS, operation="dense")
def dense_bias(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, Where]:
    """A matrix product on accumulators that start at the bias."""
    return o.bias_add(o.dense(x, w), b, 1), Where(x.rank == 2, IsConstant(w), IsConstant(b))


@target.accelerates(axes=BIASED, formats=INPUTS, derived={"b": accumulator, **SUMS}, units=UNITS, operation="dense", whole="k")
def dense_bias_relu(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, Where]:
    """A matrix product with bias and the larger of each sum and zero."""
    return o.relu(o.bias_add(o.dense(x, w), b, 1)), Where(x.rank == 2, IsConstant(w), IsConstant(b))


def dense_limits(t: int, k: int, n: int, p: Mapping[str, str]) -> Iterator[Limit]:
    """Capacities of one product that stays on chip (specification, section 9)."""
    b = _blocks(t, k, n, p)
    return buffer_limits(b.design, b.rows, b.inner, b.columns)


def dense_rooms(t: int, k: int, n: int, p: Mapping[str, str]) -> Iterator[Room]:
    """Where the tensors of one product lie. Accumulators leave in 32 bits and inputs come in 8, so only weights can stay."""
    b = _blocks(t, k, n, p)
    yield Room("wgt", b.columns * b.inner, "w", lasting=True)


def dense_codes(x: Array, w: Array, b: Array | None = None, *, relu: bool = False) -> Array:
    """Products of codes, summed in 32 bits that wrap from the bias on; then the larger of sum and zero."""

    def element(t: Expr, n: Expr) -> Expr:
        total = reduce_sum(lambda k: x[t, k] * w[n, k], x.shape[1])
        word = signed(total if b is None else b[n] + total, 32)
        return maximum(word, 0) if relu else word

    return array(element, (x.shape[0], w.shape[0]))


def drive_dense(
    device: StreamedDevice, x: Codes, w: Codes, b: Codes | None = None, *, p: Mapping[str, str], relu: bool = False, stay: Stay = USUAL
) -> Codes:  # fmt: skip
    """Emit one product: x [(samples,) t, k], w [(samples,) n, k], b [n] → y [(samples,) t, n], all codes."""
    m = replace(_blocks(x.shape[-2], x.shape[-1], w.shape[-2], p), has_bias=b is not None, relu=relu)
    c, at = m.design, m.places
    device.attach("dram", at["end"])
    device.place("dram", at["wgt"], split_bytes(to_elements(w, c.block, c.block)))
    device.place("dram", at["inp"], split_bytes(to_elements(x, c.batch, c.block)))
    first = stay.base("w")
    device.place("dram", at["uop"], micro_ops(c.micro_op(0, k, first + k) for k in range(m.inner)))
    if b is not None:
        rows = np.broadcast_to(b, (c.batch, len(b)))
        device.place("dram", at["acc"], split_bytes(to_elements(rows, c.batch, c.block), m.planes))
    _load(device, m, None if "w" in stay.present else first)
    _compute(device, m)
    _store(device, m)
    device.wait()
    return from_elements(fetch_words(device, c, at["out"], m.results), (x.shape[-2], w.shape[-2]), c.batch, c.block)


for mapping, relu in ((dense, False), (dense_relu, True), (dense_bias, False), (dense_bias_relu, True)):
    mapping.limits(dense_limits)
    mapping.residency(dense_rooms)
    mapping.driver(partial(drive_dense, relu=relu), moves=True)
    mapping.numerics(partial(dense_codes, relu=relu))


PAIRS = "x: h t k; w: h k n; y: h t n"


@target.accelerates(axes=PAIRS, formats=INPUTS, derived=SUMS, units=UNITS, runtime_weights="w")
def matmul(x: Tensor, w: Tensor) -> tuple[Tensor, Where]:
    """Matrix products of computed pairs, whose second factors are loaded as weights at run time: y[h] = x[h] · w[h]."""
    return o.matmul(x, w), Where(x.rank == 3, w.rank == 3, x.shape[0] == w.shape[0])


@matmul.limits
def matmul_limits(h: int, t: int, k: int, n: int, p: Mapping[str, str]) -> Iterator[Limit]:
    """Capacities of one product; a call takes one."""
    yield Limit("products of a call", h, 1)
    yield from dense_limits(t, k, n, p)


@matmul.residency
def matmul_rooms(t: int, k: int, n: int, p: Mapping[str, str]) -> Iterator[Room]:
    """The room of weights, which others' weights must not be in; nothing of a product stays."""
    b = _blocks(t, k, n, p)
    yield Room("wgt", b.columns * b.inner, scratch="w")


@matmul.numerics
def matmul_codes(x: Array, w: Array) -> Array:
    """Products of codes, summed in 32 bits that wrap."""

    def element(h: Expr, t: Expr, n: Expr) -> Expr:
        return signed(reduce_sum(lambda k: x[h, t, k] * w[h, k, n], x.shape[2]), 32)

    return array(element, (x.shape[0], x.shape[1], w.shape[2]))


@partial(matmul.driver, moves=True)
def drive_matmul(device: StreamedDevice, x: Codes, w: Codes, *, p: Mapping[str, str], stay: Stay = USUAL) -> Codes:
    """Emit one product: x [(samples,) 1, t, k], w [(samples,) 1, k, n] → y [(samples,) 1, t, n], all codes."""
    return drive_dense(device, x[..., 0, :, :], w[..., 0, :, :].swapaxes(-2, -1), p=p, stay=stay)[..., None, :, :]


def _blocks(t: int, k: int, n: int, p: Mapping[str, str]) -> Blocks:
    c = config(p)
    return Blocks(c, elements(t, c.batch), elements(k, c.block), elements(n, c.block))


def _load(device: StreamedDevice, b: Blocks, weights: int | None) -> None:
    """Load micro-op k = (destination 0, input k, weight k), inputs, and weights to an element of their buffer if they are not there."""
    at, c = b.places, b.design
    device.issue("load_uop", dram_base=at["uop"] // UOP_BYTES, y_size=1, x_size=b.inner)
    if weights is not None:
        first = at["wgt"] // c.scalars("wgt")
        device.issue("load_wgt", sram_base=weights, dram_base=first, y_size=1, x_size=b.columns * b.inner)
    device.issue("load_inp", dram_base=at["inp"] // c.scalars("inp"), y_size=1, x_size=b.rows * b.inner, push_next=1)


def _compute(device: StreamedDevice, b: Blocks) -> None:
    """Start the accumulators at zero or at the bias, the same for every row; add all blocks; keep what is above zero."""
    loops = grid(b.rows, b.columns)
    sources = {**factors("src", b.rows > 1 and b.inner, 0), **factors("wgt", 0, b.columns > 1 and b.inner)}
    if b.has_bias:
        first = b.places["acc"] // (b.design.scalars("acc") * b.planes)
        device.issue("load_acc", dram_base=first, y_size=b.rows, x_size=b.columns, x_stride=0)
    else:
        device.issue("gemm", reset=1, uop_end=1, **loops, pop_prev=1)
    device.issue("gemm", uop_end=b.inner, **loops, **sources, pop_prev=int(b.has_bias), push_next=int(not b.relu))
    if b.relu:
        device.issue("alu_max", uop_end=1, **loops, use_imm=1, imm=0, push_next=1)


def _store(device: StreamedDevice, b: Blocks) -> None:
    first = b.places["out"] // b.design.scalars("inp")
    store_bytes(device, b.design, Region(1, b.results, first, 0), grid(b.rows, b.columns), b.results)
