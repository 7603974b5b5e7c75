"""VTA's matrix product: int8 blocks, exact sums in 32 bits, of which STORE gives one byte at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rewrite_compiler import IsConstant, Tensor, Where
from rewrite_compiler import ops as o
from rewrite_compiler.ila_models.vta.config import Config
from rewrite_compiler.lang import Array, Expr, array, reduce_sum, signed
from rewrite_compiler.target import Limit, StreamedDevice

from .base import (
    UOP_BYTES,
    Codes,
    accumulator,
    buffer_limits,
    config,
    elements,
    from_bytes,
    from_elements,
    int8,
    micro_ops,
    target,
    to_bytes,
    to_elements,
)  # fmt: skip

BYTE = 8


@dataclass(frozen=True)
class Blocks:
    """One product in elements: along rows, inner dimension and columns, on a design; and where its parts lie in DRAM."""

    design: Config
    rows: int
    inner: int
    columns: int

    @property
    def planes(self) -> int:
        """Bytes of an accumulator."""
        return self.design.width("acc") // BYTE

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
            "uop": (self.inner, UOP_BYTES),
        }
        found, at = {}, 0
        for name, (count, size) in sizes.items():
            found[name] = elements(at, size) * size
            at = found[name] + count * size
        return {**found, "end": at}


@target.accelerates(
    axes="x: t k; w: n k; y: t n",
    formats={"x": int8, "w": int8},
    derived={"y": accumulator},
    units={"k": 16, "n": 16},
)
def dense(x: Tensor, w: Tensor) -> tuple[Tensor, Where]:
    """A matrix product with constant weights: y[t, n] = Σ_k x[t, k] · w[n, k]."""
    return o.dense(x, w), Where(x.rank == 2, IsConstant(w))


@dense.limits
def dense_limits(t: int, k: int, n: int, p: Mapping[str, str]) -> Iterator[Limit]:
    """Capacities of one product that stays on chip (specification, section 9)."""
    b = _blocks(t, k, n, p)
    return buffer_limits(b.design, b.rows, b.inner, b.columns)


@dense.numerics
def dense_codes(x: Array, w: Array) -> Array:
    """Products of codes, summed in 32 bits that wrap."""

    def element(t: Expr, n: Expr) -> Expr:
        return signed(reduce_sum(lambda k: x[t, k] * w[n, k], x.shape[1]), 32)

    return array(element, (x.shape[0], w.shape[0]))


@dense.driver
def drive_dense(device: StreamedDevice, x: Codes, w: Codes, p: Mapping[str, str]) -> Codes:
    """Emit one product: x [(samples,) t, k], w [n, k] → y [(samples,) t, n], all codes."""
    b = _blocks(x.shape[-2], x.shape[-1], len(w), p)
    c, at = b.design, b.places
    device.attach("dram", at["end"])
    device.place("dram", at["wgt"], to_bytes(to_elements(w, c.block, c.block)))
    device.place("dram", at["inp"], to_bytes(to_elements(x, c.batch, c.block)))
    device.place("dram", at["uop"], micro_ops(c.micro_op(0, k, k) for k in range(b.inner)))
    _load(device, b)
    _multiply(device, b)
    _store(device, b)
    device.wait()
    size = b.results * c.scalars("acc")
    found = device.fetch("dram", at["out"], b.planes * size)
    words = from_bytes(found.reshape(*found.shape[:-1], b.planes, size))
    return from_elements(words, (x.shape[-2], len(w)), c.batch, c.block)


def _blocks(t: int, k: int, n: int, p: Mapping[str, str]) -> Blocks:
    c = config(p)
    return Blocks(c, elements(t, c.batch), elements(k, c.block), elements(n, c.block))


def _load(device: StreamedDevice, b: Blocks) -> None:
    """Load micro-op k = (destination 0, input k, weight k), weights and inputs."""
    at, c = b.places, b.design
    device.issue("load_uop", dram_base=at["uop"] // UOP_BYTES, y_size=1, x_size=b.inner)
    device.issue("load_wgt", dram_base=at["wgt"] // c.scalars("wgt"), y_size=1, x_size=b.columns * b.inner)
    device.issue("load_inp", dram_base=at["inp"] // c.scalars("inp"), y_size=1, x_size=b.rows * b.inner, push_next=1)


def _grid(b: Blocks) -> dict[str, int]:
    """The loops over result elements, rows outer; a loop of one iteration needs no factor."""
    return {"iter_out": b.rows, "iter_in": b.columns, **_factors("dst", b.rows > 1 and b.columns, b.columns > 1)}


def _factors(name: str, outer: int, inner: int) -> dict[str, int]:
    return {f"{name}_factor_out": int(outer), f"{name}_factor_in": int(inner)}


def _multiply(device: StreamedDevice, b: Blocks) -> None:
    """Clear the accumulators, then add all blocks of the inner dimension."""
    device.issue("gemm", reset=1, uop_end=1, **_grid(b), pop_prev=1)
    sources = {**_factors("src", b.rows > 1 and b.inner, 0), **_factors("wgt", 0, b.columns > 1 and b.inner)}
    device.issue("gemm", uop_end=b.inner, **_grid(b), **sources, push_next=1)


def _store(device: StreamedDevice, b: Blocks) -> None:
    """Store the lowest byte of every accumulator, shift the next one down, and so on."""
    first = b.places["out"] // b.design.scalars("inp")
    for plane in range(b.planes):
        if plane:
            device.issue("alu_shr", uop_end=1, **_grid(b), use_imm=1, imm=BYTE, pop_next=1, push_next=1)
        device.issue("store", dram_base=first + plane * b.results, y_size=1, x_size=b.results, pop_prev=1, push_prev=1)
    device.issue("finish", pop_next=1)
