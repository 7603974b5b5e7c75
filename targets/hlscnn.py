"""HLSCNN: one 2-D convolution as instructions, as a term over codes, and its capacities, for every design revision."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rewrite_compiler import IsConstant, Tensor, Where
from rewrite_compiler import ops as o
from rewrite_compiler.errors import SpecError
from rewrite_compiler.ila_models import hlscnn as model
from rewrite_compiler.ila_models.hlscnn.numerics import accumulated, rounded_sum
from rewrite_compiler.ila_models.hlscnn.revisions import SPAD0_BASE
from rewrite_compiler.lang import Array, Expr, Fixed, Leaf, array, fold, lift, select
from rewrite_compiler.rewrite import Ints
from rewrite_compiler.target import (
    USUAL,
    Cost,
    Device,
    Levels,
    Limit,
    Resources,
    Room,
    Small,
    Stay,
    Target,
    join_bytes,
    levels_times,
    pad_axis,
    split_bytes,
    tile,
    untile,
)

from ._hlscnn import build, conv2d_cost, conv2d_levels, resources, revision_of

LANES, VECTOR = 8, 16  # 16-bit words and bytes of a vector
STAGED, ACTS = "staged", "acts"  # what lies in SoC memory on its way to the scratchpads
INT16 = (-(1 << 15), (1 << 15) - 1)
MOST_SIZE, MOST_KERNEL, MOST_STRIDE = 1023, 255, 7
Codes = np.ndarray[Any, Any]
Command = tuple[str, Mapping[str, Any]]

target = Target(
    "hlscnn", build, {"revision": (model.DEFAULT, *(r for r in model.REVISIONS if r != model.DEFAULT))}, __doc__ or "",
    (Path(__file__), Path(__file__).parent / "_hlscnn.py", *sorted(Path(model.__file__).parent.glob("*.py"))), describe=resources,
    small=(
        Small({"revision": "ext8", "spad_bytes": "128", "soc_bytes": "4096"}, {"c": 1}),
        Small({"revision": "uni16", "spad_bytes": "768", "soc_bytes": "4096"}, {"c": LANES}),
        Small({"revision": "orig", "spad_bytes": "1024", "soc_bytes": "4096"}, {"c": LANES}),
    ),
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
    outputs_at: int | None = None  # first vector of outputs where activations share SPAD1; default: behind the activations

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
    weight, act, _ = revision.fractions
    return {"x": Fixed(16, act, "floor"), "w": Fixed(revision.weight_bits, weight, "floor"), "y": Fixed(16, act, "floor")}


def limits(g: Geometry, revision: model.Revision, *, starts: bool = False) -> Iterator[Limit]:
    """Capacities of one convolution (specification, section 7); one that `starts` at given outputs has them in SoC memory, too."""
    for label, size, most in (
        ("input channels", g.channels, (1 << revision.channel_bits) - 1),
        ("filters", g.filters, (1 << revision.filter_bits) - 1),
        ("rows or columns", max(g.rows, g.cols), MOST_SIZE),
        ("kernel size", max(g.kernel), MOST_KERNEL),
        ("stride", max(g.strides), MOST_STRIDE),
    ):
        yield Limit(label, size, most)
    results, weights = VECTOR * _output_vectors(g, revision), _weight_bytes(g, revision)
    outputs = results + (VECTOR * g.act_vectors if _is_unified(revision) else 0)
    yield Limit("bytes of SPAD0", weights, revision.spad_bytes)
    yield Limit("bytes of SPAD1", outputs, revision.spad_bytes)
    yield Limit("bytes of SoC memory", _start_offset(g, revision) + (results if starts else 0), revision.soc_bytes)


def passes(g: Geometry, revision: model.Revision, *, starts: bool = False) -> list[slice]:
    """Return the input channels of each pass: the fewest passes of whole blocks that fit; later ones add to earlier ones.

    Blocks are the outermost loop of an output and partial sums are words of SPAD1, so that passes give the bits of one run.
    """
    for count in range(1, g.blocks + 1):
        channels = -(-g.blocks // count) * LANES
        if all(x.holds for x in limits(replace(g, channels=min(channels, g.channels)), revision, starts=starts)):
            return [slice(at, min(at + channels, g.channels)) for at in range(0, g.channels, channels)]
    return []


# no trial: limits refuse such a convolution before
def _too_large(g: Geometry, revision: model.Revision, *, starts: bool) -> SpecError:
    """Return the refusal of a convolution of which not even one block of channels fits."""
    least = replace(g, channels=min(g.channels, LANES))
    limit = next(x for x in limits(least, revision, starts=starts) if not x.holds)
    return SpecError("I114", f"{limit.what} of a convolution must be at most {limit.most:,}, not {limit.needs:,}")


def conv2d_codes(x: Array, w: Array, g: Geometry, revision: model.Revision, start: Array | None = None) -> Array:
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
            return select(is_last, accumulated(revision, q, total, g.bias or 0, lift(int(g.relu))), accumulated(revision, q, total))

        return fold((g.blocks, rows, cols), 0 if start is None else start[n, i, j], tap, INT16)

    return array(element, (g.filters, *g.out))


def commands(
    x: Codes, w: Codes, g: Geometry, revision: model.Revision, start: Codes | None = None, *, is_loaded: bool = False,
    at: tuple[int, int] = (0, 0), stay: Stay = USUAL,
) -> list[Command]:  # fmt: skip
    """Return the instructions of one convolution on x [(samples,) channels, rows, cols] and w [(samples,) filters, channels, …], codes.

    Operands that are arrays stand for one instruction a row ([(samples,) rows, lanes] for data). The results are read by
    `reads` and put in order by `results`. The input lies at row and column `at`, with zeros around it. `start` [filters]
    is what an accumulating convolution finds in its outputs; weights that are `is_loaded` are in SPAD0 already.
    """
    staged, unified = VECTOR * stay.base(STAGED, _weight_offset(g) // VECTOR), _is_unified(revision)
    first, moves = VECTOR * stay.base(ACTS if unified else "x"), "x" not in stay.present
    return [
        *([_stored(first, act_vectors(x, g, at))] if moves else ()),
        *(() if is_loaded else _placed("spad0_data_wr", staged, weight_vectors(w, revision), VECTOR * stay.base("w"))),
        *(_fill("spad1_data_wr", first, g.act_vectors, VECTOR * stay.base("x")) if unified and moves else ()),
        *(() if start is None else _started(start, g, revision, staged)),
        *_configuration(g, revision, stay),
        ("accel_conv_trigger", {}),
    ]


def _placed(fill: str, offset: int, vectors: Codes, to: int = 0) -> list[Command]:
    """Write vectors to the SoC memory, and fill a scratchpad with them from byte `to` on."""
    return [_stored(offset, vectors), *_fill(fill, offset, vectors.shape[-2], to)]


def _stored(offset: int, vectors: Codes) -> Command:
    """Write vectors to the SoC memory."""
    return "vir_mem_wr", {"offset": offset + VECTOR * np.arange(vectors.shape[-2]), "vector": vectors}


def _started(start: Codes, g: Geometry, revision: model.Revision, staged: int) -> list[Command]:
    """Fill the output vectors with one word a filter, which lie in SoC memory behind the weights."""
    if revision.grouped_output:
        blocks = tile(start, {0: LANES})
        words = np.broadcast_to(blocks[:, None], (len(blocks), math.prod(g.out), LANES))
    else:
        words = np.zeros((g.filters, g.rows * g.cols, LANES), start.dtype)
        words[..., (g.filters - 1) % LANES] = start[:, None]
    first = VECTOR * _first_output(g, revision)
    return _placed("spad1_data_wr", staged + _weight_room(g, revision), split_bytes(words.reshape(-1, LANES), 2), first)


def result_reads(g: Geometry, revision: model.Revision) -> Command:
    """Return the reads of the vectors that hold the results."""
    rows, cols = g.out
    if revision.grouped_output:
        first = _first_output(g, revision)
        return "spad1_data_rd", {"offset": VECTOR * (first + np.arange(_output_vectors(g, revision)))}
    row = np.arange(rows)[:, None] * g.strides[0] + g.kernel[0] // 2
    col = np.arange(cols) * g.strides[1] + g.kernel[1] // 2
    vectors = np.arange(g.filters)[:, None, None] * g.rows * g.cols + row * g.cols + col
    return "spad1_data_rd", {"offset": VECTOR * vectors.reshape(-1)}


def results(lanes: Codes, g: Geometry, revision: model.Revision) -> Codes:
    """Return y [(samples,) filters, rows, cols] from the bytes [(samples,) reads, 16] that `reads` gave."""
    words = join_bytes(lanes.reshape(*lanes.shape[:-1], LANES, 2))
    if not revision.grouped_output:
        return words[..., (g.filters - 1) % LANES].reshape(*lanes.shape[:-2], g.filters, *g.out)
    return untile(words.reshape(*lanes.shape[:-2], -1, *g.out, LANES), (-3,))[..., : g.filters, :, :]


def drive_conv2d(device: Device, x: Codes, w: Codes, g: Geometry, revision: model.Revision) -> Codes:
    """Run one convolution on a device and return its result codes [(samples,) filters, rows, cols]."""
    _run(device, commands(x, w, g, revision))
    return _loaded(device, g, revision)


def _run(device: Device, sent: Iterable[Command]) -> None:
    """Send the instructions of one convolution and wait for its end."""
    for name, operands in sent:
        if any(isinstance(v, np.ndarray) for v in operands.values()):
            device.store(name, **operands)
        else:
            device.issue(name, **operands)
    device.wait()


def _loaded(device: Device, g: Geometry, revision: model.Revision) -> Codes:
    name, operands = result_reads(g, revision)
    return results(device.load(name, **operands), g, revision)


# -- layouts (specification, section 5.3)


def act_vectors(x: Codes, g: Geometry, at: tuple[int, int] = (0, 0)) -> Codes:
    """Return activations as bytes [(samples,) vectors, 16]: vectors [block][row][col], lanes in channels; missing ones 0.

    The input lies at row and column `at`, zeros around it.
    """
    *lead, _, rows, cols = x.shape
    zeros = {-2: (at[0], g.rows - at[0] - rows), -1: (at[1], g.cols - at[1] - cols)}
    return split_bytes(tile(x, {-3: LANES}, zeros).reshape(*lead, -1, LANES), 2)


def weight_vectors(w: Codes, revision: model.Revision) -> Codes:
    """Return weights as bytes [(samples,) vectors, 16], ordered [filter][block][row][col][lane], one or two bytes a weight."""
    flat, lanes = tile(w, {-3: LANES}).reshape(*w.shape[:-4], -1), VECTOR * 8 // revision.weight_bits
    words = pad_axis(flat, -1, -(-flat.shape[-1] // lanes) * lanes)
    return split_bytes(words.reshape(*w.shape[:-4], -1, lanes), revision.weight_bits // 8)


# -- configuration


def _configuration(g: Geometry, revision: model.Revision, stay: Stay = USUAL) -> list[Command]:
    """The registers of one convolution; base addresses as the published driver writes them, where nothing else stays."""
    outputs = revision.spad1 + VECTOR * _first_output(g, revision)
    return [
        ("cfg_wr_conv_act_base", {"base": VECTOR * stay.base("x") + (revision.spad1 if _is_unified(revision) else 0)}),
        ("cfg_wr_conv_weight_base", {"base": SPAD0_BASE + VECTOR * stay.base("w")}),
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
                "bias": g.bias or 0,  # no trial: the mappings start outputs at their biases
                "bias_on": int(g.bias is not None),
                "relu": int(g.relu),
                "accumulate": int(g.accumulate),
            },
        ),
    ]


def _fill(name: str, source: int, vectors: int, to: int = 0) -> list[Command]:
    return [("cfg_wr_soc_mem_base", {"base": source}), ("cfg_wr_soc_mem_length", {"length": vectors}), (name, {"offset": to})]


def _is_unified(revision: model.Revision) -> bool:
    return revision.act_source == "spad1"


def _first_output(g: Geometry, revision: model.Revision) -> int:
    """The vector of SPAD1 at which outputs begin."""
    if not _is_unified(revision):
        return 0
    # no trial: the mappings always say where outputs lie
    return g.act_vectors if g.outputs_at is None else g.outputs_at


def _weight_offset(g: Geometry) -> int:
    """Where weights lie in SoC memory: behind the activations, on the next multiple of 256 bytes, as the published driver has it."""
    return (g.act_vectors // 16 + 1) * 256


def _start_offset(g: Geometry, revision: model.Revision) -> int:
    """Where the words at which outputs start lie in SoC memory: behind the weights."""
    return _weight_offset(g) + _weight_room(g, revision)


def _weight_room(g: Geometry, revision: model.Revision) -> int:
    """Bytes of whole vectors of weights."""
    return -(-_weight_bytes(g, revision) // VECTOR) * VECTOR


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


# -- the mappings


def _choices(*names: str) -> Callable[[Mapping[str, str]], dict[str, Any]]:
    """Return how formats are chosen: a revision has one format for each role, whatever the values; outputs start at a bias."""

    def choose(p: Mapping[str, str]) -> dict[str, Any]:
        choices = formats(revision_of(p))
        return {n: lambda _, f=f: f for n, f in ({**choices, "b": choices["y"]}).items() if n in names}

    return choose


def _geometry(
    shape: Sequence[int], filters: int, kernel: tuple[int, int], strides: tuple[int, ...], pads: tuple[int, ...], *, relu: bool = False
) -> Geometry:
    """Return the geometry of a convolution whose input [c, i, j] the driver pads."""
    channels, rows, cols = shape[-3:]
    rows, cols = rows + pads[0] + pads[2], cols + pads[1] + pads[3]
    return Geometry(channels, rows, cols, filters, kernel, (strides[0], strides[1]), relu=relu)


def _trial(n: int, c: int, size: int, kernel: int, stride: int, pad: int, batch: int = 1) -> dict[str, Any]:
    out = (size + 2 * pad - kernel) // stride + 1
    return {
        "b": batch, "n": n, "c": c, "i": size, "j": size, "r": kernel, "s": kernel, "u": out, "v": out,
        "strides": (stride, stride), "pads": (pad,) * 4,
    }  # fmt: skip


AXES, BIASED = "x: b c i j; w: n c r s; y: b n u v", "x: b c i j; w: n c r s; b: n; y: b n u v"
UNITS, WHOLE = {"c": LANES}, "b c i j r s u v"
TRIALS = (
    _trial(2, 8, 2, 1, 1, 0),
    _trial(3, 11, 7, 3, 2, 1, 2),
    _trial(9, 16, 5, 3, 1, 1),
    _trial(1, 3, 8, 2, 2, 0),
    _trial(18, 2040, 3, 3, 1, 0),
    # rows and columns that differ in all they can differ in
    {**_trial(5, 9, 6, 3, 2, 0), "j": 9, "s": 2, "u": 3, "v": 10, "strides": (2, 1), "pads": (1, 0, 0, 2)},
)


@target.accelerates(axes=AXES, formats=_choices("x", "w", "y"), units=UNITS, whole=WHOLE, trials=TRIALS)
def conv2d(x: Tensor, w: Tensor, strides: Ints, pads: Ints) -> tuple[Tensor, Where]:
    """A 2-D convolution without groups or dilation, image by image; the driver stores the zeros around an image."""
    return o.conv(x, w, strides, pads, (1, 1), group=1), Where(x.rank == 4, IsConstant(w))


@target.accelerates(axes=AXES, formats=_choices("x", "w", "y"), units=UNITS, whole=WHOLE, trials=TRIALS, operation="conv2d")
def conv2d_relu(x: Tensor, w: Tensor, strides: Ints, pads: Ints) -> tuple[Tensor, Where]:
    """A 2-D convolution whose last step keeps the larger of output and zero."""
    return o.relu(o.conv(x, w, strides, pads, (1, 1), group=1)), Where(x.rank == 4, IsConstant(w))


@target.accelerates(axes=BIASED, formats=_choices("x", "w", "b", "y"), units=UNITS, whole=WHOLE, trials=TRIALS, operation="conv2d")
def conv2d_bias(x: Tensor, w: Tensor, b: Tensor, strides: Ints, pads: Ints) -> tuple[Tensor, Where]:
    """A 2-D convolution whose outputs start at the filter's bias: the device's own bias register holds one value for all filters."""
    y = o.conv(x, w, strides, pads, (1, 1), group=1)
    return o.bias_add(y, b, 1), Where(x.rank == 4, IsConstant(w), IsConstant(b))


@target.accelerates(axes=BIASED, formats=_choices("x", "w", "b", "y"), units=UNITS, whole=WHOLE, trials=TRIALS, operation="conv2d")
def conv2d_bias_relu(x: Tensor, w: Tensor, b: Tensor, strides: Ints, pads: Ints) -> tuple[Tensor, Where]:
    """A 2-D convolution with bias, and the larger of output and zero."""
    y = o.conv(x, w, strides, pads, (1, 1), group=1)
    return o.relu(o.bias_add(y, b, 1)), Where(x.rank == 4, IsConstant(w), IsConstant(b))


def conv2d_limits(
    n: int, c: int, i: int, j: int, r: int, s: int, strides: tuple[int, ...], pads: tuple[int, ...], p: Mapping[str, str], *, starts: bool
) -> Iterator[Limit]:
    """Capacities of one image (specification, section 7), its channels in as many passes as it takes."""
    g = _geometry((c, i, j), n, (r, s), strides, pads)
    return limits(replace(g, channels=min(c, LANES)), revision_of(p), starts=starts)


def conv2d_result(
    x: Array, w: Array, b: Array | None = None, *, strides: tuple[int, ...], pads: tuple[int, ...], p: Mapping[str, str], relu: bool
) -> Array:
    """The codes of every image: padded with zeros, outputs that start at zero or at the bias."""
    batch, *shape = (int(n) for n in x.shape)  # type: ignore[arg-type]
    filters, _, *kernel = (int(n) for n in w.shape)  # type: ignore[arg-type]
    g = _geometry(shape, filters, (kernel[0], kernel[1]), strides, pads, relu=relu)
    start = None if b is None else array(lambda n, i, j: b[n], (filters, *g.out))

    def image(k: int) -> Array:
        def around(c: Expr, i: Expr, j: Expr) -> Expr:
            row, col = i - pads[0], j - pads[1]
            inside = (row >= 0) & (row < shape[1]) & (col >= 0) & (col < shape[2])
            return select(inside, x[k, c, row, col], 0)

        return conv2d_codes(array(around, (g.channels, g.rows, g.cols)), w, g, revision_of(p), start)

    images = [image(k) for k in range(batch)]
    return array(lambda k, n, i, j: _case(k, [codes[n, i, j] for codes in images]), (batch, filters, *g.out))


def _case(index: Expr, cases: Sequence[Expr]) -> Expr:
    """Return cases[index], found by halves: a batch may be long, and a term must not be as deep."""
    half = len(cases) // 2
    return select(index < half, _case(index, cases[:half]), _case(index - half, cases[half:])) if half else cases[0]


def drive_images(
    device: Device,
    x: Codes,
    w: Codes,
    b: Codes | None = None,
    *,
    strides: tuple[int, ...],
    pads: tuple[int, ...],
    p: Mapping[str, str],
    relu: bool,
    stay: Stay = USUAL,
) -> Codes:
    """Emit the convolutions of a batch: x [(samples,) b, c, i, j], w [(samples,) n, c, r, s], b [n] → y [(samples,) b, n, u, v]."""
    revision = revision_of(p)
    g = _geometry(x.shape[-3:], w.shape[-4], (w.shape[-2], w.shape[-1]), strides, pads)
    parts = passes(g, revision, starts=b is not None)
    if not parts:
        raise _too_large(g, revision, starts=b is not None)  # no trial: limits refuse it before
    g = replace(g, outputs_at=stay.base("y", replace(g, channels=parts[0].stop).act_vectors))
    outputs = []
    for k in range(x.shape[-4]):
        for n, part in enumerate(parts):
            step = replace(
                g, channels=part.stop - part.start, accumulate=bool(n) or b is not None, relu=relu and n == len(parts) - 1,
            )  # fmt: skip
            start, is_loaded = (None if n else b), "w" in stay.present or (bool(k) and len(parts) == 1)
            sent = commands(
                x[..., k, part, :, :], w[..., part, :, :], step, revision, start, is_loaded=is_loaded, at=(pads[0], pads[1]), stay=stay
            )
            _run(device, sent)
        outputs.append(stay.result("y", partial(_loaded, device, g, revision)))
    return outputs[0][..., None, :, :, :] if len(outputs) == 1 else np.stack(outputs, axis=-4)


def conv2d_rooms(
    b: int, n: int, c: int, i: int, j: int, r: int, s: int, strides: tuple[int, ...], pads: tuple[int, ...], p: Mapping[str, str], *,
    starts: bool,
) -> Iterator[Room]:  # fmt: skip
    """Where the tensors of a batch lie: an image and its result stay if one pass takes them, where they are.

    Unified designs read activations from SPAD1, where results lie in the same order, and take base addresses. The others read
    them from SoC memory, which results reach over the host only, and weights from the start of SPAD0: one layer's at a time.
    """
    revision, g = revision_of(p), _geometry((c, i, j), n, (r, s), strides, pads)
    parts, unified = passes(g, revision, starts=starts), _is_unified(revision)
    step, outputs = replace(g, channels=parts[0].stop), _output_vectors(g, revision)
    weights, is_whole = _weight_room(step, revision) // VECTOR, len(parts) == 1
    size = weights if unified else revision.spad_bytes // VECTOR
    yield Room("spad0", size, "w", lasting=True) if is_whole else Room("spad0", size, scratch="w")
    yield Room("soc", weights + (outputs if starts else 0), scratch=STAGED)
    if unified:
        yield Room("soc", step.act_vectors, scratch=ACTS)
    memory, form = "spad1" if unified else "soc", (g.blocks, g.rows, g.cols, *(pads if any(pads) else ()))
    yield Room(memory, step.act_vectors, "x", form) if is_whole and b == 1 else Room(memory, step.act_vectors, scratch="x")
    result = (-(-n // LANES), *g.out)
    yield Room("spad1", outputs, "y", result) if b == 1 else Room("spad1", outputs, scratch="y")


def _channels(
    c: int, i: int, j: int, n: int, r: int, s: int, strides: tuple[int, ...], pads: tuple[int, ...], p: Mapping[str, str], starts: bool
) -> list[int]:
    """Return the channels of each pass of an image."""
    parts = passes(_geometry((c, i, j), n, (r, s), strides, pads), revision_of(p), starts=starts)
    return [part.stop - part.start for part in parts]


for mapping, has_bias, has_relu in ((conv2d, 0, 0), (conv2d_relu, 0, 1), (conv2d_bias, 1, 0), (conv2d_bias_relu, 1, 1)):
    mapping.limits(partial(conv2d_limits, starts=bool(has_bias)))
    mapping.residency(partial(conv2d_rooms, starts=bool(has_bias)))
    mapping.numerics(partial(conv2d_result, relu=bool(has_relu)))
    mapping.driver(partial(drive_images, relu=bool(has_relu)), moves=True)
    mapping.costs(partial(conv2d_cost, split=_channels, starts=bool(has_bias)))
    mapping.levels(conv2d_levels)


@target.accelerates(
    axes="x: h t k; w: h k n; y: h t n", formats=_choices("x", "w", "y"), units={"k": LANES}, whole="k", runtime_weights="w",
    trials=tuple({"h": 1, "t": t, "k": k, "n": n} for t, k, n in ((2, 8, 2), (7, 11, 3), (25, 16, 9), (3, 2040, 18), (1, 3, 1))),
)  # fmt: skip
def matmul(x: Tensor, w: Tensor) -> tuple[Tensor, Where]:
    """Matrix products of computed pairs as 1×1 convolutions, whose filters are written at run time: y[h] = x[h] · w[h]."""
    return o.matmul(x, w), Where(x.rank == 3, w.rank == 3, x.shape[0] == w.shape[0])


EVERY_ONE, UNPADDED = (1, 1), (0, 0, 0, 0)


def _as_image(t: int, k: int, n: int) -> dict[str, Any]:
    """Return the sizes of a product as a convolution: the rows side by side in one image."""
    return {"b": 1, "n": n, "c": k, "i": 1, "j": t, "r": 1, "s": 1, "strides": EVERY_ONE, "pads": UNPADDED}


@matmul.limits
def matmul_limits(h: int, t: int, k: int, n: int, p: Mapping[str, str]) -> Iterator[Limit]:
    """Capacities of one product; a call takes one."""
    yield Limit("products of a call", h, 1)
    yield from conv2d_limits(n, k, 1, t, 1, 1, EVERY_ONE, UNPADDED, p, starts=False)


@matmul.residency
def matmul_rooms(t: int, k: int, n: int, p: Mapping[str, str]) -> Iterator[Room]:
    """What one product takes; nothing of it stays, because its pairs are cut apart and turned on the host."""
    rooms = conv2d_rooms(**_as_image(t, k, n), p=p, starts=False)
    yield from (Room(r.memory, r.size, scratch=r.tensor or r.scratch) for r in rooms)


@matmul.numerics
def matmul_result(x: Array, w: Array, p: Mapping[str, str]) -> Array:
    """The codes of one product, as those of an image of its rows."""
    _, rows, inner = (int(n) for n in x.shape)  # type: ignore[arg-type]
    columns = int(w.shape[2])  # type: ignore[arg-type]
    image, filters = array(lambda c, i, j: x[0, j, c], (inner, 1, rows)), array(lambda n, c, i, j: w[0, c, n], (columns, inner, 1, 1))
    y = conv2d_codes(image, filters, _geometry((inner, 1, rows), columns, (1, 1), EVERY_ONE, UNPADDED), revision_of(p))
    return array(lambda h, t, n: y[n, 0, t], (1, rows, columns))


@partial(matmul.driver, moves=True)
def drive_matmul(device: Device, x: Codes, w: Codes, p: Mapping[str, str], stay: Stay = USUAL) -> Codes:
    """Emit one product as a convolution: x [(samples,) 1, t, k], w [(samples,) 1, k, n] → y [(samples,) 1, t, n], all codes."""
    image, filters = x.swapaxes(-2, -1)[..., None, :], w[..., 0, :, :].swapaxes(-2, -1)[..., None, None]
    y = drive_images(device, image, filters, strides=EVERY_ONE, pads=UNPADDED, p=p, relu=False, stay=stay)
    return y[..., 0, :].swapaxes(-2, -1)


@matmul.costs
def matmul_cost(h: int, t: int, k: int, n: int, p: Mapping[str, str], resources: Resources) -> Cost:
    """Products one after the other, each with filters of its own."""
    image = {**_as_image(t, k, n), "u": 1, "v": t}
    return conv2d_cost(**image, p=p, resources=resources, split=_channels, starts=False).times(h)


@matmul.levels
def matmul_levels(h: int, t: int, k: int, n: int, p: Mapping[str, str]) -> Levels:
    """Products one after the other."""
    return levels_times(conv2d_levels(**_as_image(t, k, n), u=1, v=t, p=p), h)
