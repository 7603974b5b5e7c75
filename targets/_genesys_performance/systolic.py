"""GeneSys's systolic array: the published tiling rule, and the cycles, stalls and accesses of a convolution or dense layer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from rewrite_compiler.errors import SpecError

from .design import Design

SMALL_KERNEL = 3  # outputs of larger ones are tiled rounded up, of others in whole parts
Costs = dict[str, float]


@dataclass(frozen=True)
class SystolicLayer:
    """A convolution: channels, kernel and outputs; a dense layer has 1 × 1 of both."""

    oc: int
    ic: int
    kh: int = 1
    kw: int = 1
    oh: int = 1
    ow: int = 1
    stride: int = 1
    is_dense: bool = False

    @staticmethod
    def of(layer: Mapping[str, object]) -> SystolicLayer:
        """Return the layer of a table's row: `op` conv or gemm, and its sizes.

        Raises:
            SpecError: I102, a size is not a positive integer.
        """
        sizes = {name: value for name, value in layer.items() if name != "op"}
        for name, value in sizes.items():
            if not isinstance(value, int) or value < 1:
                raise SpecError("I102", f"{name} of a {layer['op']} layer must be a positive integer, not {value}")
        return SystolicLayer(**sizes, is_dense=layer["op"] == "gemm")  # type: ignore[arg-type]


@dataclass(frozen=True)
class Tile:
    """What the buffers hold at once of a layer; outputs of the published rule may be fractions."""

    oc: int
    ic: int
    kh: int
    kw: int
    oh: float
    ow: float

    def ih(self, stride: int) -> float:
        """Rows of inputs that the outputs of a tile need."""
        return (self.oh - 1) * stride + self.kh

    def iw(self, stride: int) -> float:
        """Columns of inputs that the outputs of a tile need."""
        return (self.ow - 1) * stride + self.kw


@dataclass(frozen=True)
class _Fill:
    """How much of each buffer a tile takes, in bits."""

    weights: float
    inputs: float
    sums: float
    biases: float


def padded(size: int, unit: int) -> int:
    """Return a size rounded up to a multiple of `unit`."""
    return -(-size // unit) * unit


def _fill(d: Design, t: Tile, stride: int) -> _Fill:
    return _Fill(
        t.kh * t.kw * t.ic * t.oc * d.weight_bits,
        t.ih(stride) * t.iw(stride) * t.ic * d.input_bits,
        t.oh * t.ow * t.oc * d.sum_bits,
        t.oc * d.bias_bits,
    )


def fits(d: Design, t: Tile, stride: int) -> bool:
    """Tell whether the buffers of a design hold a tile."""
    f = _fill(d, t, stride)
    return f.weights <= d.weight_room and f.inputs <= d.input_room and f.sums <= d.sum_room and f.biases <= d.bias_room


@lru_cache(maxsize=1 << 14)
def published_tile(d: Design, layer: SystolicLayer) -> Tile:
    """Return the tile of the published rule: the kernel first, then input channels, outputs, output channels.

    Raises:
        SpecError: I114, no whole part of the outputs fits.
    """
    kh, kw = _kernel(d, layer)
    start = Tile(d.columns, d.rows, kh, kw, 1, 1)
    deep = _grown_inputs(d, layer, start)
    wide = _outputs(d, layer, deep)
    return _grown_outputs(d, layer, wide)


def _kernel(d: Design, layer: SystolicLayer) -> tuple[int, int]:
    kh, kw, part = layer.kh, layer.kw, 1
    while kh * kw * d.rows * d.columns * d.weight_bits > d.weight_room or kh * kw * d.rows * d.input_bits > d.input_room:
        if kh * kw == 1:
            raise SpecError("I114", f"one row of {d.rows} inputs must fit the input buffer, which has room for {d.input_room} bits")
        part += 1
        kh, kw = -(-layer.kh // part), -(-layer.kw // part)
    return kh, kw


def _grown_inputs(d: Design, layer: SystolicLayer, t: Tile) -> Tile:
    limit = padded(layer.ic, d.rows)
    weights, inputs = t.kh * t.kw * d.columns * d.weight_bits, t.kh * t.kw * d.input_bits
    most = min(d.weight_room // weights, d.input_room // inputs, limit)
    return replace(t, ic=max(t.ic, most // d.rows * d.rows))


def _outputs(d: Design, layer: SystolicLayer, t: Tile) -> Tile:
    rounds = max(layer.kh, layer.kw) > SMALL_KERNEL
    part = 1
    while part <= max(layer.oh, layer.ow):
        oh, ow = layer.oh / part, layer.ow / part
        if rounds:
            oh, ow = math.ceil(oh), math.ceil(ow)
        tile = replace(t, oh=oh, ow=ow)
        fill = _fill(d, tile, layer.stride)
        is_whole = float(oh).is_integer() and float(ow).is_integer()
        if fill.sums <= d.sum_room and fill.inputs <= d.input_room and is_whole:
            return tile
        part += 1
    sizes = f"{layer.oh} × {layer.ow} outputs of a {layer.kh} × {layer.kw} convolution"
    raise SpecError("I114", f"no equal part of {sizes} fits the buffers", help="take a design with a larger input or output buffer")


def _grown_outputs(d: Design, layer: SystolicLayer, t: Tile) -> Tile:
    limit = padded(layer.oc, d.columns)
    fill = _fill(d, replace(t, oc=1), layer.stride)
    most = min(d.weight_room / fill.weights, d.sum_room / fill.sums, d.bias_room / fill.biases, limit)
    return replace(t, oc=max(t.oc, int(most) // d.columns * d.columns))


@dataclass(frozen=True)
class _Counts:
    """How many tiles a layer has along outputs (S), the reduction (K) and output channels (C), and the cycles of one."""

    spatial: float
    reduction: float
    channels: float
    compute: int


def _counts(d: Design, layer: SystolicLayer, t: Tile, exact: bool) -> _Counts:
    def parts(extent: float, tile: float) -> float:
        return math.ceil(extent / tile) if exact else extent / tile

    ic, oc = padded(layer.ic, d.rows), padded(layer.oc, d.columns)
    blocks = math.ceil(t.ic / d.rows) * math.ceil(t.oc / d.columns)
    compute = t.ow * t.oh * t.kw * t.kh * blocks + d.rows - 1 + d.columns - 1
    reduction = parts(ic, t.ic) * parts(layer.kw, t.kw) * parts(layer.kh, t.kh)
    return _Counts(parts(layer.ow, t.ow) * parts(layer.oh, t.oh), reduction, parts(oc, t.oc), int(compute))


def systolic_costs(d: Design, layer: SystolicLayer, t: Tile, *, exact: bool = False) -> Costs:
    """Return cycles, stalls, accesses in bits and operations of a layer with a tile; `exact` counts whole tiles."""
    n = _counts(d, layer, t, exact)
    compute = math.ceil(n.compute * n.spatial * n.reduction * n.channels)
    stall = _dense_stalls(d, layer, t, n) if layer.is_dense else _conv_stalls(d, layer, t, n)
    macs = t.ow * t.oh * t.kw * t.kh * (t.ic / d.rows) * (t.oc / d.columns) * n.spatial * n.reduction * n.channels
    buffers = _buffer_accesses(d, layer, t, n)
    dram = _dense_dram(d, layer, t, n) if layer.is_dense else _conv_dram(d, layer, t, n)
    return {**buffers, **dram, "SA compute": compute, "SA stall": stall, "ops": 2 * d.rows * d.columns * macs}


def _waits(compute: float, *transfers: float) -> float:
    """Return the cycles that a tile waits: for the longest of the transfers that its computation does not hide."""
    return max(0, *(x - compute for x in transfers))


def _loads(d: Design, layer: SystolicLayer, t: Tile) -> tuple[int, int, int, int]:
    """Return the cycles that a tile's weights, inputs, sums and biases take at their ports."""
    f = _fill(d, t, layer.stride)
    cycles = (f.weights / d.weight_rate, f.inputs / d.input_port, f.sums / d.sum_port, f.biases / d.weight_rate)
    weights, inputs, sums, biases = map(math.ceil, cycles)
    return weights, inputs, sums, biases


def _conv_stalls(d: Design, layer: SystolicLayer, t: Tile, n: _Counts) -> float:
    weights, inputs, sums, biases = _loads(d, layer, t)
    s, k, c, cycles = n.spatial, n.reduction, n.channels, n.compute
    new_channels, new_weights = c - 1, k * c - c
    first_steps = s * c - 2 - new_channels
    later_steps = s * k * c - s * c - new_weights
    if later_steps + new_weights == 0:
        later_steps = new_weights = 0
    return (
        first_steps * _waits(cycles, inputs, sums)
        + later_steps * _waits(cycles, inputs, 2 * sums)
        + new_weights * _waits(cycles, inputs, weights, 2 * sums)
        + new_channels * _waits(cycles, inputs, sums, weights + biases)
        + max(inputs, weights + biases)
        + sums
        + _waits(cycles, inputs)
        + _waits(cycles, sums)
    )


def _dense_stalls(d: Design, layer: SystolicLayer, t: Tile, n: _Counts) -> float:
    weights, _, sums, biases = _loads(d, layer, t)
    inputs = math.ceil(t.ic * d.input_bits / d.input_port)
    c, cycles, first = n.channels, n.compute, max(inputs, weights + biases)
    steps = padded(layer.ic, d.rows) / t.ic
    if math.ceil(steps) == 1:
        if c < 2:
            return first + sums
        middle = (c - 2) * _waits(cycles, weights + biases, sums)
        return middle + first + _waits(cycles, weights + biases) + _waits(cycles, sums) + sums
    changes = c - 1
    return (
        changes * _waits(cycles, weights + biases, inputs)
        + (n.reduction * c - c - 1 - changes) * _waits(cycles, weights, inputs)
        + changes * _waits(cycles, weights, inputs, sums)
        + first
        + _waits(cycles, weights, inputs)
        + sums
    )


def _buffer_accesses(d: Design, layer: SystolicLayer, t: Tile, n: _Counts) -> Costs:
    kernel, outputs = t.kw * t.kh, t.oh * t.ow
    tiles = math.ceil(layer.ow / t.ow) * math.ceil(layer.oh / t.oh)
    passes = _passes(d, layer, t)
    sums = 2 * math.ceil(t.ic / d.rows) * kernel * passes - 1
    blocks = math.ceil(t.oc / d.columns)
    return {
        "WBUF": kernel * t.ic * t.oc * outputs * tiles * n.reduction * n.channels * d.weight_bits,
        "IBUF": t.ic * outputs * kernel * blocks * n.spatial * n.reduction * math.ceil(n.channels) * d.input_bits,
        "OBUF": outputs * t.oc * sums * n.spatial * n.channels * d.sum_bits,
        "BBUF": t.oc * outputs * n.spatial * n.channels * d.bias_bits,
    }


def _passes(d: Design, layer: SystolicLayer, t: Tile) -> int:
    """Return how often sums leave and come back: the steps of the outer reduction."""
    return math.ceil(padded(layer.ic, d.rows) / t.ic) * math.ceil(layer.kw / t.kw) * math.ceil(layer.kh / t.kh)


def _conv_dram(d: Design, layer: SystolicLayer, t: Tile, n: _Counts) -> Costs:
    outputs = layer.ow * layer.oh * padded(layer.oc, d.columns)
    sums = t.oh * t.ow * t.oc * n.spatial * n.channels * (2 * _passes(d, layer, t) - 1) - outputs
    inputs = t.iw(layer.stride) * t.ih(layer.stride) * t.ic
    return {
        "DRAM filter": t.kw * t.kh * t.ic * t.oc * n.reduction * n.channels * d.weight_bits,
        "DRAM ifmap": inputs * n.spatial * n.reduction * math.ceil(n.channels) * d.input_bits,
        "DRAM psum": sums * d.sum_bits,
        "DRAM ofmap": outputs * d.sum_bits,
        "DRAM bias": t.oc * n.channels * d.bias_bits,
    }


def _dense_dram(d: Design, layer: SystolicLayer, t: Tile, n: _Counts) -> Costs:
    return {
        "DRAM filter": t.ic * t.oc * n.reduction * n.channels * d.weight_bits,
        "DRAM ifmap": t.ic * n.reduction * n.channels * d.input_bits,
        "DRAM psum": 0,
        "DRAM ofmap": t.oc * n.channels * d.sum_bits,
        "DRAM bias": t.oc * n.channels * d.bias_bits,
    }
