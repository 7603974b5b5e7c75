"""HVX's dense layers: int8 products summed in lanes of 32 bits, requantised by a power of two, as straight-line code.

Two rows by four vectors of columns are summed in registers, so that a vector of weights is used for both rows and a word of
four inputs for all four vectors. Inputs come as they lie in memory; pair shuffles bring each word of a vector into all lanes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from rewrite_compiler import IsConstant, Tensor, Where
from rewrite_compiler import ops as o
from rewrite_compiler.ila_models.hvx.state import VECTOR
from rewrite_compiler.lang import Array, Expr, Fixed, array, maximum, reduce_sum, sat, shift_right, signed
from rewrite_compiler.target import Cost, Limit, Resources, StreamedDevice, join_bytes, pad_axis, split_bytes

from .base import Codes, finish, int8, memory_bytes, set_register, sums, target

Formats = Mapping[str, Fixed]
WORD = 4  # bytes: of an accumulator, and inputs of a sum of products
LANES = VECTOR // WORD
ROWS, VECTORS = 2, 4  # a block: four vectors of sums are narrowed to one of codes
SUMS, WEIGHTS, SPREAD, NARROWED = 0, 8, (12, 22), (8, 9, 10)  # vector registers; the weights' hold results at the end
DISTANCES = (64, 32, 16, 8, 4)  # of the exchanges that spread a word; scalar registers 0 … 4
SHIFT, ZERO, X, W, BIAS, Y, BEFORE = 5, 6, 8, 10, 11, 12, 13  # scalar registers; those of an instruction of three sources are below 8
MOST_NARROWING = 15  # places that narrowing shifts words by; others are shifted before
LEAST, MOST = -8, 46  # places: shifted further to the left every sum but 0 saturates, further to the right every one is 0


@dataclass(frozen=True)
class Product:
    """Rows, inner size and columns of one product, and where its tensors lie."""

    rows: int
    inner: int
    columns: int

    @property
    def words(self) -> int:
        """Words of four inputs in a row."""
        return -(-self.inner // WORD)

    @property
    def row_vectors(self) -> int:
        """Vectors of a row of inputs."""
        return -(-self.inner // VECTOR)

    @property
    def vectors(self) -> int:
        """Vectors of columns."""
        return -(-self.columns // LANES)

    @property
    def blocks(self) -> list[int]:
        """The vectors of each block of columns."""
        return [min(VECTORS, self.vectors - at) for at in range(0, self.vectors, VECTORS)]

    @property
    def bands(self) -> list[range]:
        """The rows of each block."""
        return [range(at, min(at + ROWS, self.rows)) for at in range(0, self.rows, ROWS)]

    @property
    def places(self) -> dict[str, int]:
        """The first byte of each tensor, and the end."""
        sizes = {"x": self.rows * self.row_vectors, "w": self.words * self.vectors, "b": self.vectors, "y": self.rows * len(self.blocks)}
        ends = np.cumsum([0, *sizes.values()]) * VECTOR
        return dict(zip([*sizes, "end"], ends.tolist(), strict=True))


def _by_block(m: Product, columns: Codes) -> Iterator[Codes]:
    """Yield columns [n, …] of each block as [vector, lane, …]: neighbours lie in the vectors of one lane."""
    whole = pad_axis(columns, 0, m.vectors * LANES)
    for n, count in enumerate(m.blocks):
        part = whole[n * VECTORS * LANES :][: count * LANES]
        yield part.reshape(LANES, count, *columns.shape[1:]).swapaxes(0, 1)


def _weight_bytes(m: Product, w: Codes) -> Codes:
    """Return weights [n, k] in the order in which they are loaded: block, word, vector, lane, byte."""
    whole = pad_axis(w, 1, m.words * WORD)
    parts = [np.moveaxis(part.reshape(*part.shape[:2], m.words, WORD), 2, 0) for part in _by_block(m, whole)]
    return split_bytes(np.concatenate([part.reshape(-1) for part in parts]))


def _bias_bytes(m: Product, b: Codes) -> Codes:
    return split_bytes(np.concatenate([part.reshape(-1) for part in _by_block(m, b)]), WORD)


def _shifts(f: Formats) -> tuple[int, int]:
    """Return by how many places sums are shifted right before they are narrowed, to the left where it is negative, and then."""
    places = min(max(f["x"].fraction + f["w"].fraction - f["y"].fraction, LEAST), MOST)
    narrowing = min(max(places, 0), MOST_NARROWING)
    return places - narrowing, narrowing


def drive_dense(device: StreamedDevice, x: Codes, w: Codes, b: Codes, *, f: Formats, relu: bool) -> Codes:
    """Emit one product: x [(samples,) t, k], w [n, k], b [n] → y [(samples,) t, n], all codes."""
    m = Product(x.shape[-2], x.shape[-1], len(w))
    device.attach("dram", m.places["end"])
    rows = pad_axis(x, -1, m.row_vectors * VECTOR)
    device.place("dram", m.places["x"], split_bytes(rows.reshape(*x.shape[:-2], -1)))
    device.place("dram", m.places["w"], _weight_bytes(m, w))
    device.place("dram", m.places["b"], _bias_bytes(m, b))
    before, narrowing = _shifts(f)
    constants = {**dict(enumerate(DISTANCES)), SHIFT: narrowing, ZERO: 0, BEFORE: before % (1 << 32)}
    for register, value in {**constants, BIAS: m.places["b"], Y: m.places["y"]}.items():
        set_register(device, register, value)
    for n, count in enumerate(m.blocks):
        for band in m.bands:
            set_register(device, W, m.places["w"] + n * VECTORS * m.words * VECTOR)
            _sum(device, m, band, count)
            for row in range(len(band)):
                _narrow(device, row, count, relu)
        device.issue("add_imm", rd=BIAS, rs=BIAS, imm_low=VECTORS * VECTOR % 512, imm=VECTORS * VECTOR // 512)
    finish(device)
    codes = join_bytes(device.fetch("dram", m.places["y"], m.places["end"] - m.places["y"])[..., None])
    return _columns(m, codes)


def _columns(m: Product, codes: Codes) -> Codes:
    """Return codes [(samples,) block, row, lane, vector], which are stored flat, as [(samples,) row, column]."""
    whole = codes.reshape(*codes.shape[:-1], len(m.blocks), m.rows, LANES, VECTORS)
    parts = [whole[..., n, :, :, :count].reshape(*codes.shape[:-1], m.rows, -1) for n, count in enumerate(m.blocks)]
    return np.concatenate(parts, -1)[..., : m.columns]


def _sum(device: StreamedDevice, m: Product, band: range, vectors: int) -> None:
    """Sum the products of a band of rows and a block of columns, from the bias on."""
    for row, number in enumerate(band):
        set_register(device, X + row, m.places["x"] + number * m.row_vectors * VECTOR)
        for vector in range(vectors):
            device.issue("vmem_load", vd=SUMS + row * VECTORS + vector, rt=BIAS, offset_low=vector)
    for first in range(0, m.words, LANES):
        count = min(LANES, m.words - first)
        for row in range(len(band)):
            device.issue("vmem_load_step", vd=SPREAD[row], rt=X + row, step=1)
        for words in zip(*(_spread(device, SPREAD[row], SPREAD[row], count) for row in range(len(band))), strict=True):
            for vector in range(vectors):
                device.issue("vmem_load_step", vd=WEIGHTS + vector, rt=W, step=1)
                for row, word in enumerate(words):
                    device.issue("vrmpy_w_b_b_acc", vx=SUMS + row * VECTORS + vector, vu=word, vv=WEIGHTS + vector)


def _spread(device: StreamedDevice, base: int, source: int, count: int, level: int = 0) -> Iterator[int]:
    """Bring each of the first words of a vector into all lanes of a register, whose number is yielded, in order.

    An exchange of a vector with itself repeats its parts: those of even number in one register, those of odd number in the next.
    """
    if level == len(DISTANCES):
        yield source
        return
    pair = base + 2 * level
    device.issue("vshuff_r_pair", vdd=pair // 2, vu=source, vv=source, rt=level)
    half = DISTANCES[level] // WORD
    yield from _spread(device, base, pair, min(count, half), level + 1)
    if count > half:
        yield from _spread(device, base, pair + 1, count - half, level + 1)


def _narrow(device: StreamedDevice, row: int, vectors: int, relu: bool) -> None:
    """Requantise the sums of a row and store their codes: the vectors of a lane lie side by side."""
    registers = [SUMS + row * VECTORS + vector for vector in range(vectors)]
    even, odd, codes = NARROWED
    device.issue("vsplat_r", vd=even, rt=BEFORE)
    for register in registers:
        device.issue("vasr_w_w_w", vd=register, vu=register, vv=even)
    a, b, c, d = (registers[min(vector, vectors - 1)] for vector in range(VECTORS))
    device.issue("vasr_h_w_w_r_rnd_sat", vd=even, vu=c, vv=a, rt=SHIFT)
    device.issue("vasr_h_w_w_r_rnd_sat", vd=odd, vu=d, vv=b, rt=SHIFT)
    device.issue("vasr_b_h_h_r_rnd_sat", vd=codes, vu=odd, vv=even, rt=ZERO)
    if relu:
        device.issue("vsplat_r", vd=even, rt=ZERO)
        device.issue("vmax_b_b_b", vd=codes, vu=codes, vv=even)
    device.issue("vmem_store_step", vs=codes, rt=Y, step=1)


def dense_codes(x: Array, w: Array, b: Array, *, f: Formats, relu: bool) -> Array:
    """Sums that wrap at 32 bits, from the bias on; shifted, nearest, ties up, saturated to 16 bits, then to 8; with `relu` not below 0."""
    before, narrowing = _shifts(f)

    def element(t: Expr, n: Expr) -> Expr:
        total = signed(b[n] + reduce_sum(lambda k: x[t, k] * w[n, k], x.shape[1]), 32)
        shifted = total >> before if before >= 0 else signed(total << -before, 32)
        code = sat(sat(shift_right(shifted, narrowing, "half_up"), 16), 8)
        return maximum(code, 0) if relu else code

    return array(element, (x.shape[0], w.shape[0]))


def dense_limits(t: int, k: int, n: int, p: Mapping[str, str]) -> Iterator[Limit]:
    """What one product takes of memory."""
    yield Limit("bytes of memory", Product(t, k, n).places["end"], memory_bytes(p))


def dense_cost(t: int, k: int, n: int, resources: Resources) -> Cost:
    """A packet has one sum of products and, beside it, a load or a shuffle; the more numerous decide."""
    m = Product(t, k, n)
    steps = [(len(band), count) for count in m.blocks for band in m.bands]
    cycles = sum(m.words * max(rows * count, rows + count) + rows * (count + m.row_vectors + 4) for rows, count in steps)
    issued = sum(m.words * (rows * count + rows + count) + rows * (count + m.row_vectors + 8) + 2 for rows, count in steps)
    moved = {
        "x": len(m.blocks) * m.rows * m.row_vectors * VECTOR,
        "w": len(m.bands) * m.words * m.vectors * VECTOR,
        "y": m.rows * len(m.blocks) * VECTOR,
        "commands": WORD * issued,
    }
    return Cost("vector", cycles, resources.link("host", "v").cycles_for(sum(moved.values())), moved)


DENSE: dict[str, Any] = {
    "axes": "x: t k; w: n k; b: n; y: t n", "formats": {"x": int8, "w": int8, "y": int8}, "derived": {"b": sums}, "units": {"n": VECTOR},
    "operation": "dense", "whole": "k",
    "trials": ({"t": 3, "k": 6, "n": 37}, {"t": 2, "k": 150, "n": 140}, {"t": 1, "k": 4, "n": 128}),
}  # fmt: skip


@target.accelerates(**DENSE)
def dense(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, Where]:
    """A matrix product with constant weights whose sums start at the bias: y[t, n] = b[n] + Σ_k x[t, k] · w[n, k]."""
    return o.bias_add(o.dense(x, w), b, 1), Where(x.rank == 2, IsConstant(w), IsConstant(b))


@target.accelerates(**DENSE)
def dense_relu(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, Where]:
    """A matrix product with bias, and the larger of each code and zero."""
    return o.relu(o.bias_add(o.dense(x, w), b, 1)), Where(x.rank == 2, IsConstant(w), IsConstant(b))


for mapping, relu in ((dense, False), (dense_relu, True)):
    mapping.limits(dense_limits)
    mapping.driver(partial(drive_dense, relu=relu), moves=True)
    mapping.numerics(partial(dense_codes, relu=relu))
    mapping.costs(dense_cost)
