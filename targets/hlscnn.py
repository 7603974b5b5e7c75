"""HLSCNN: one 2-D convolution as instructions, as a term over codes, and its capacities, for every design revision."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np

from rewrite_compiler import Ints, IsConstant, Tensor, Where
from rewrite_compiler import ops as o
from rewrite_compiler.ila_models import hlscnn as model
from rewrite_compiler.ila_models.hlscnn.numerics import accumulated, finished, rounded_sum
from rewrite_compiler.ila_models.hlscnn.revisions import SPAD0_BASE
from rewrite_compiler.lang import Array, Expr, Fixed, Leaf, array, fold, lift, select
from rewrite_compiler.target import Device, Limit, Target

LANES, VECTOR = 8, 16  # 16-bit words and bytes of a vector
INT16 = (-(1 << 15), (1 << 15) - 1)
MOST_SIZE, MOST_KERNEL, MOST_STRIDE = 1023, 255, 7
Codes = np.ndarray[Any, Any]
Command = tuple[str, Mapping[str, Any]]

target = Target(
    "hlscnn", model.build, {"revision": (model.DEFAULT, *(r for r in model.REVISIONS if r != model.DEFAULT))}, __doc__ or "",
    (Path(__file__), *sorted(Path(model.__file__).parent.glob("*.py"))),
)  # fmt: skip


@dataclass(frozen=True)
class Geometry:
    """Sizes of one convolution without padding, and what its last step does.

    With `accumulate` it adds to what SPAD1 holds: a later part of the input channels. Bias (Q2.14) and ReLU belong to
    the last part.
    """

    channels: int
    rows: int
    cols: int
    filters: int
    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    bias: int | None = None
    relu: bool = False
    accumulate: bool = False

    @property
    def blocks(self) -> int:
        """Blocks of eight channels."""
        return -(-self.channels // LANES)

    @property
    def out(self) -> tuple[int, int]:
        """Rows and columns of the result."""
        sizes = zip((self.rows, self.cols), self.kernel, self.strides, strict=True)
        rows, cols = ((n - k) // s + 1 for n, k, s in sizes)
        return rows, cols

    @property
    def act_vectors(self) -> int:
        """Vectors of the activations."""
        return self.blocks * self.rows * self.cols

    @property
    def taps(self) -> int:
        """Steps of one output."""
        return self.blocks * math.prod(self.kernel)


def formats(revision: model.Revision) -> dict[str, Fixed]:
    """Return the formats of activations, weights and results; the host rounds down (specification, section 6.5)."""
    activation = Fixed(16, revision.act_fraction, "floor")
    return {"x": activation, "w": Fixed(revision.weight_bits, revision.weight_fraction, "floor"), "y": activation}


def limits(g: Geometry, revision: model.Revision) -> Iterator[Limit]:
    """Capacities of one convolution (specification, section 7)."""
    for what, size, most in (
        ("input channels", g.channels, (1 << revision.channel_bits) - 1),
        ("filters", g.filters, (1 << revision.filter_bits) - 1),
        ("rows or columns", max(g.rows, g.cols), MOST_SIZE),
        ("kernel size", max(g.kernel), MOST_KERNEL),
        ("stride", max(g.strides), MOST_STRIDE),
    ):
        yield Limit(what, size, most)
    outputs, weights = VECTOR * _output_vectors(g, revision), _weight_bytes(g, revision)
    if _is_unified(revision):
        outputs += VECTOR * g.act_vectors
    yield Limit("bytes of SPAD0", weights, revision.spad_bytes)
    yield Limit("bytes of SPAD1", outputs, revision.spad_bytes)
    yield Limit("bytes of SoC memory", _weight_offset(g) + -(-weights // VECTOR) * VECTOR, revision.soc_bytes)


def conv2d_codes(x: Array, w: Array, g: Geometry, revision: model.Revision, before: Array | None = None) -> Array:
    """Return the result codes: per output one rounded sum of eight lanes and one saturating addition a tap (section 6).

    Taps go by channel block, kernel row, kernel column. `before` is what an accumulating convolution adds to.
    """
    padded = (g.blocks * LANES, g.rows, g.cols)
    acts = array(lambda c, i, j: select(c < g.channels, x[c, i, j], 0), padded) if g.channels % LANES else x
    rows, cols = g.kernel
    weights = array(lambda n, c, i, j: select(c < g.channels, w[n, c, i, j], 0), (g.filters, padded[0], rows, cols))

    def element(n: Expr, i: Expr, j: Expr) -> Expr:
        def tap(block: Expr, row: Expr, col: Expr, total: Expr) -> Expr:
            q = rounded_sum(
                revision,
                lambda k: weights[n, block * LANES + k, row, col],
                lambda k: acts[block * LANES + k, i * g.strides[0] + row, j * g.strides[1] + col],
            )
            if g.bias is None and not g.relu:
                return accumulated(revision, q, total)
            is_last = (block == g.blocks - 1) & (row == rows - 1) & (col == cols - 1)
            return select(is_last, finished(revision, q, total, g.bias or 0, lift(int(g.relu))), accumulated(revision, q, total))

        def kernel_row(block: Expr, row: Expr, start: Expr) -> Expr:
            return fold(cols, start, lambda col, total: tap(block, row, col, total), INT16)

        def channel_block(block: Expr, start: Expr) -> Expr:
            return fold(rows, start, lambda row, total: kernel_row(block, row, total), INT16)

        return fold(g.blocks, 0 if before is None else before[n, i, j], channel_block, INT16)

    return array(element, (g.filters, *g.out))


def commands(x: Codes, w: Codes, g: Geometry, revision: model.Revision) -> list[Command]:
    """Return the instructions of one convolution on x [(samples,) channels, rows, cols] and w [filters, channels, …], codes.

    Operands that are arrays stand for one instruction a row ([(samples,) rows, lanes] for data). The results are read by
    `reads` and put in order by `results`.
    """
    acts, weights, offset = act_vectors(x, g), weight_vectors(w, revision), _weight_offset(g)
    return [
        ("vir_mem_wr", {"offset": VECTOR * np.arange(acts.shape[-2]), "vector": acts}),
        ("vir_mem_wr", {"offset": offset + VECTOR * np.arange(len(weights)), "vector": weights}),
        *_fill("spad0_data_wr", offset, len(weights)),
        *(_fill("spad1_data_wr", 0, g.act_vectors) if _is_unified(revision) else ()),
        *_configuration(g, revision),
        ("accel_conv_trigger", {}),
    ]


def reads(g: Geometry, revision: model.Revision) -> Command:
    """Return the reads of the vectors that hold the results."""
    rows, cols = g.out
    if revision.grouped_output:
        first = g.act_vectors if _is_unified(revision) else 0
        return "spad1_data_rd", {"offset": VECTOR * (first + np.arange(_output_vectors(g, revision)))}
    row = np.arange(rows)[:, None] * g.strides[0] + g.kernel[0] // 2
    col = np.arange(cols) * g.strides[1] + g.kernel[1] // 2
    vectors = np.arange(g.filters)[:, None, None] * g.rows * g.cols + row * g.cols + col
    return "spad1_data_rd", {"offset": VECTOR * vectors.reshape(-1)}


def results(lanes: Codes, g: Geometry, revision: model.Revision) -> Codes:
    """Return y [(samples,) filters, rows, cols] from the bytes [(samples,) reads, 16] that `reads` gave."""
    wide = lanes if lanes.dtype == object else lanes.astype(np.int64)
    words = (wide[..., 0::2] + 256 * wide[..., 1::2] + (1 << 15)) % (1 << 16) - (1 << 15)
    if not revision.grouped_output:
        return words[..., (g.filters - 1) % LANES].reshape(*lanes.shape[:-2], g.filters, *g.out)
    blocked = words.reshape(*lanes.shape[:-2], -1, *g.out, LANES)
    return np.moveaxis(blocked, -1, -3).reshape(*lanes.shape[:-2], -1, *g.out)[..., : g.filters, :, :]


def drive_conv2d(device: Device, x: Codes, w: Codes, g: Geometry, revision: model.Revision) -> Codes:
    """Run one convolution on a device and return its result codes [(samples,) filters, rows, cols]."""
    for name, operands in commands(x, w, g, revision):
        if any(isinstance(v, np.ndarray) for v in operands.values()):
            device.store(name, **operands)
        else:
            device.issue(name, **operands)
    device.wait()
    name, operands = reads(g, revision)
    return results(device.load(name, **operands), g, revision)


# -- layouts (specification, section 5.3)


def act_vectors(x: Codes, g: Geometry) -> Codes:
    """Return activations as bytes [(samples,) vectors, 16]: vectors [block][row][col], lanes in channels; missing ones 0."""
    padded = np.zeros((*x.shape[:-3], g.blocks * LANES, g.rows, g.cols), x.dtype)
    padded[..., : g.channels, :, :] = x
    blocked = padded.reshape(*x.shape[:-3], g.blocks, LANES, g.rows, g.cols)
    return _bytes(np.moveaxis(blocked, -3, -1).reshape(*x.shape[:-3], -1, LANES), 2)


def weight_vectors(w: Codes, revision: model.Revision) -> Codes:
    """Return weights as bytes [vectors, 16], ordered [filter][block][row][col][lane], one or two bytes a weight."""
    filters, channels, rows, cols = w.shape
    blocks = -(-channels // LANES)
    padded = np.zeros((filters, blocks * LANES, rows, cols), w.dtype)
    padded[:, :channels] = w
    flat = np.moveaxis(padded.reshape(filters, blocks, LANES, rows, cols), 2, -1).reshape(-1)
    lanes = VECTOR * 8 // revision.weight_bits
    whole = np.zeros(-(-len(flat) // lanes) * lanes, w.dtype)
    whole[: len(flat)] = flat
    return _bytes(whole.reshape(-1, lanes), revision.weight_bits // 8)


def _bytes(words: Codes, size: int) -> Codes:
    """Return little-endian bytes along the last axis; words may be terms of a proof."""
    if words.dtype != object:
        return np.ascontiguousarray(words.astype(f"<i{size}")).view(np.uint8)
    parts = [words % 256] if size == 1 else [words % 256, _HIGH(words) % 256]
    return np.stack(parts, axis=-1).reshape(*words.shape[:-1], -1)


def _high(x: Any) -> Any:
    """Return ⌊x / 256⌋; a term has no floor division, but divides exactly."""
    return x // 256 if isinstance(x, Integral) else (x - x % 256) / 256


_HIGH = np.frompyfunc(_high, 1, 1)

# -- configuration


def _configuration(g: Geometry, revision: model.Revision) -> list[Command]:
    """The registers of one convolution; base addresses as the published driver writes them."""
    outputs = revision.spad1 + (VECTOR * g.act_vectors if _is_unified(revision) else 0)
    return [
        ("cfg_wr_conv_act_base", {"base": revision.spad1 if _is_unified(revision) else 0}),
        ("cfg_wr_conv_weight_base", {"base": SPAD0_BASE}),
        ("cfg_wr_conv_output_base", {"base": outputs}),
        ("cfg_wr_conv_input_size", {"channels": g.channels, "rows": g.rows, "cols": g.cols}),
        ("cfg_wr_conv_output_size", {"channels": g.filters, "rows": g.out[0], "cols": g.out[1]}),
        (
            "cfg_wr_conv_kernel_size",
            {"rows": g.kernel[0], "cols": g.kernel[1], "row_stride": g.strides[0], "col_stride": g.strides[1]},
        ),
        (
            "cfg_wr_conv_channels",
            {
                "filters": g.filters,
                "bias": g.bias or 0,
                "bias_on": int(g.bias is not None),
                "relu": int(g.relu),
                "accumulate": int(g.accumulate),
            },
        ),
    ]


def _fill(name: str, source: int, vectors: int) -> list[Command]:
    return [("cfg_wr_soc_mem_base", {"base": source}), ("cfg_wr_soc_mem_length", {"length": vectors}), (name, {"offset": 0})]


def _is_unified(revision: model.Revision) -> bool:
    return revision.act_source == "spad1"


def _weight_offset(g: Geometry) -> int:
    """Where weights lie in SoC memory: behind the activations, on the next multiple of 256 bytes, as the published driver has it."""
    return (g.act_vectors // 16 + 1) * 256


def _weight_bytes(g: Geometry, revision: model.Revision) -> int:
    return g.filters * g.taps * LANES * revision.weight_bits // 8


def _output_vectors(g: Geometry, revision: model.Revision) -> int:
    """Vectors of SPAD1 that a convolution writes."""
    return -(-g.filters // LANES) * math.prod(g.out) if revision.grouped_output else g.filters * g.rows * g.cols


def operands_of(g: Geometry, revision: model.Revision) -> tuple[Leaf, Leaf]:
    """Return leaves for the codes of x and w."""
    f = formats(revision)
    x = Leaf((g.channels, g.rows, g.cols), f["x"].codes, False, "x")
    return x, Leaf((g.filters, g.channels, *g.kernel), f["w"].codes, False, "w")


# -- the mapping


def _choices(p: Mapping[str, str]) -> dict[str, Any]:
    """Return how formats are chosen: a revision has one format for each role, whatever the values."""
    return {name: lambda _, f=f: f for name, f in formats(model.REVISIONS[p["revision"]]).items()}


def _geometry(shape: tuple[int, ...], filters: int, kernel: tuple[int, int], strides: tuple[int, ...], pads: tuple[int, ...]) -> Geometry:
    """Return the geometry of a convolution whose input [c, i, j] the driver pads."""
    channels, rows, cols = shape[-3:]
    return Geometry(channels, rows + pads[0] + pads[2], cols + pads[1] + pads[3], filters, kernel, (strides[0], strides[1]))


def _trial(n: int, c: int, size: int, kernel: int, stride: int, pad: int) -> dict[str, Any]:
    out = (size + 2 * pad - kernel) // stride + 1
    return {
        "b": 1, "n": n, "c": c, "i": size, "j": size, "r": kernel, "s": kernel, "u": out, "v": out,
        "strides": (stride, stride), "pads": (pad,) * 4,
    }  # fmt: skip


@target.accelerates(
    axes="x: b c i j; w: n c r s; y: b n u v",
    formats=_choices,
    units={"c": LANES},
    whole="b i j r s u v",
    trials=(_trial(2, 8, 2, 1, 1, 0), _trial(3, 11, 7, 3, 2, 1), _trial(9, 16, 5, 3, 1, 1), _trial(1, 3, 8, 2, 2, 0)),
)
def conv2d(x: Tensor, w: Tensor, strides: Ints, pads: Ints) -> tuple[Tensor, Where]:
    """A 2-D convolution of one image without groups or dilation; the driver stores the zeros around the image."""
    return o.conv(x, w, strides, pads, (1, 1), group=1), Where(x.rank == 4, x.shape[0] == 1, IsConstant(w))


@conv2d.limits
def conv2d_limits(
    n: int, c: int, i: int, j: int, r: int, s: int, strides: tuple[int, ...], pads: tuple[int, ...], p: Mapping[str, str]
) -> Iterator[Limit]:
    """Capacities of one convolution (specification, section 7)."""
    return limits(_geometry((c, i, j), n, (r, s), strides, pads), model.REVISIONS[p["revision"]])


@conv2d.numerics
def conv2d_result(x: Array, w: Array, strides: tuple[int, ...], pads: tuple[int, ...], p: Mapping[str, str]) -> Array:
    """The codes of one convolution on the padded image."""
    shape, kernel = [int(n) for n in x.shape], [int(n) for n in w.shape]  # type: ignore[arg-type]
    g = _geometry(tuple(shape), kernel[0], (kernel[2], kernel[3]), strides, pads)

    def around(c: Expr, i: Expr, j: Expr) -> Expr:
        row, col = i - pads[0], j - pads[1]
        inside = (row >= 0) & (row < shape[2]) & (col >= 0) & (col < shape[3])
        return select(inside, x[0, c, row, col], 0)

    codes = conv2d_codes(array(around, (g.channels, g.rows, g.cols)), w, g, model.REVISIONS[p["revision"]])
    return array(lambda _, n, i, j: codes[n, i, j], (1, g.filters, *g.out))


@conv2d.driver
def drive_image(device: Device, x: Codes, w: Codes, strides: tuple[int, ...], pads: tuple[int, ...], p: Mapping[str, str]) -> Codes:
    """Emit one convolution: x [(samples,) 1, c, i, j], w [n, c, r, s] → y [(samples,) 1, n, u, v], all codes."""
    g = _geometry(x.shape[-3:], len(w), (w.shape[2], w.shape[3]), strides, pads)
    around = [(0, 0)] * (x.ndim - 3) + [(pads[0], pads[2]), (pads[1], pads[3])]
    image = np.pad(x[..., 0, :, :, :], around)
    return drive_conv2d(device, image, w, g, model.REVISIONS[p["revision"]])[..., None, :, :, :]
