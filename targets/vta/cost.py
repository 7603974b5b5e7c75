"""VTA's costs, estimated from its units and its memory port: one GEMM or ALU step a cycle, loads and stores in turn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from rewrite_compiler.target import Cost, Levels, Resources, levels_times

from . import conv2d as convolution
from .base import UOP_BYTES, config, elements, target
from .dense import dense, dense_bias, dense_bias_relu, dense_relu, matmul
from .quantised import OFFSET
from .results import planes

INSTRUCTION_BYTES = 16
BYTE = 8


def dense_cost(t: int, k: int, n: int, p: Mapping[str, str], resources: Resources, *, bias: bool, relu: bool) -> Cost:
    """One product: the accumulators start at zero or at the bias; one byte of them is stored at a time."""
    c = config(p)
    rows, inner, columns = elements(t, c.batch), elements(k, c.block), elements(n, c.block)
    results, stores = rows * columns, planes(c)
    bytes_moved = {
        "x": rows * inner * c.scalars("inp"), "w": columns * inner * c.scalars("wgt"), "y": stores * results * c.scalars("acc"),
        "commands": UOP_BYTES * inner + INSTRUCTION_BYTES * (6 + 2 * (stores - 1) + int(relu) + 1),
    }  # fmt: skip
    if bias:
        bytes_moved["b"] = results * c.scalars("acc") * stores  # read again for every row
    steps = results * inner + results * (stores - 1 + int(relu) + int(not bias))
    return Cost("gemm", steps, resources.link("host", "wgt").cycles_for(sum(bytes_moved.values())), bytes_moved)


def conv2d_cost(
    b: int, n: int, c: int, i: int, j: int, r: int, s: int, strides: tuple[int, ...], pads: tuple[int, ...], p: Mapping[str, str],
    resources: Resources, *, bias: bool, relu: bool,
) -> Cost:  # fmt: skip
    """One convolution: every band of rows loads its part of the image, in passes over the channels; several load all weights again."""
    return layer_cost(convolution.layer((b, c, i, j), n, (r, s), strides, pads, p), resources, bias=bias, relu=relu)


def layer_cost(m: convolution.Layer, resources: Resources, *, bias: bool, relu: bool) -> Cost:
    """A layer: each of its parts loads what its bands and passes need."""
    pass_costs = [_pass(m, band, count, is_first, is_last, bias, relu) for band, count, is_first, is_last in _passes(m)]
    bytes_moved = {name: m.parts * sum(step[name] for step in pass_costs) for name in ("x", "y", "commands", *(["b"] if bias else []))}
    loads = _weight_loads(m)
    bytes_moved |= {"w": sum(loads) * m.design.scalars("wgt"), "commands": bytes_moved["commands"] + len(loads) * INSTRUCTION_BYTES}
    steps = m.parts * sum(one["steps"] for one in pass_costs)
    return Cost("gemm", steps, resources.link("host", "wgt").cycles_for(sum(bytes_moved.values())), bytes_moved)


def _passes(m: convolution.Layer) -> Iterator[tuple[range, int, bool, bool]]:
    """Yield every band with the blocks of channels of each of its passes, whether it is the first and the last one."""
    try:
        bands, passes = m.bands, m.passes
    except ValueError:  # nothing fits: a bound of what smaller parts cost
        bands, passes = [range(m.out[0])], [range(m.channels)]
    for band in bands:
        for blocks in passes:
            yield band, len(blocks), blocks.start == 0, blocks.stop == m.channels


def _weight_loads(m: convolution.Layer) -> list[int]:
    """Return the elements of every load of weights."""
    passes = list(_passes(m))
    is_single = all(is_first and is_last for *_, is_first, is_last in passes)
    times = 1 if is_single and m.groups == 1 else m.parts
    return [m.filters * count * m.taps for _, count, *_ in (passes[:1] if is_single else passes)] * times


def _pass(m: convolution.Layer, band: range, count: int, is_first: bool, is_last: bool, bias: bool, relu: bool) -> dict[str, int]:
    """Return the bytes and steps of one pass, weights apart."""
    c, area = m.design, m.filters * len(band) * m.out[1]
    uops, stores = m.filters * count * m.taps, planes(m.design)
    begin = band.start * m.strides[0] - m.pads[0]
    rows = max(min(begin + m.rows_for(len(band)), m.rows), 0) - max(begin, 0)
    starts = m.filters if bias else 1
    instructions = 3 + count + starts * is_first + (relu + 2 * stores - 1) * is_last
    return {
        "x": count * max(rows, 0) * m.cols * c.scalars("inp"),
        "b": is_first * bias * area * c.scalars("acc") * stores,
        "y": is_last * stores * area * c.scalars("acc"),
        "commands": uops * UOP_BYTES + instructions * INSTRUCTION_BYTES,
        "steps": len(band) * m.out[1] * uops + area * (is_first * (not bias) + is_last * (relu + stores - 1)),
    }


def conv2d_levels(
    b: int, n: int, c: int, i: int, j: int, r: int, s: int, strides: tuple[int, ...], pads: tuple[int, ...], p: Mapping[str, str], *,
    bias: bool, relu: bool,
) -> Levels:  # fmt: skip
    """One convolution: as a product, with what every band and pass loads."""
    return layer_levels(convolution.layer((b, c, i, j), n, (r, s), strides, pads, p), bias=bias, relu=relu)


def layer_levels(m: convolution.Layer, *, bias: bool, relu: bool) -> Levels:
    """A layer: what every band and pass of each of its parts loads."""
    x_in = products = reads = writes = 0
    word = {sort: m.design.scalars(sort) * m.design.width(sort) // BYTE for sort in ("inp", "wgt", "acc")}
    for band, count, is_first, is_last in _passes(m):
        step, area = _pass(m, band, count, is_first, is_last, bias, relu), m.filters * len(band) * m.out[1]
        resets = area * is_first * (not bias)  # written without being read
        x_in += step["x"]
        products += area * count * m.taps
        reads += step["steps"] - resets + is_last * planes(m.design) * area
        writes += step["steps"] + is_first * bias * area
    return {
        "inp": {"x": (m.parts * products * word["inp"], m.parts * x_in)},
        "wgt": {"w": (m.parts * products * word["wgt"], sum(_weight_loads(m)) * word["wgt"])},
        "acc": {"y": (m.parts * reads * word["acc"], m.parts * writes * word["acc"])},
    }


def dense_levels(t: int, k: int, n: int, p: Mapping[str, str], *, bias: bool, relu: bool) -> Levels:
    """One product: a step of the tensor unit reads an element of inputs and weights and adds to one of accumulators."""
    c = config(p)
    inp, wgt, acc = (c.scalars(sort) * c.width(sort) // BYTE for sort in ("inp", "wgt", "acc"))
    rows, inner, columns = elements(t, c.batch), elements(k, c.block), elements(n, c.block)
    results, steps, stores = rows * columns, rows * columns * inner, planes(c)
    swept = (stores - 1 + int(relu)) * results  # by the vector unit
    return {
        "inp": {"x": (steps * inp, rows * inner * inp)},
        "wgt": {"w": (steps * wgt, columns * inner * wgt)},
        "acc": {"y": ((steps + swept + stores * results) * acc, (steps + swept + int(not bias) * results) * acc),
                **({"b": (0, results * acc)} if bias else {})},
    }  # fmt: skip


@matmul.costs
def matmul_cost(h: int, t: int, k: int, n: int, p: Mapping[str, str], resources: Resources) -> Cost:
    """Products one after the other, each with its own weights."""
    return dense_cost(t, k, n, p, resources, bias=False, relu=False).times(h)


@matmul.levels
def matmul_levels(h: int, t: int, k: int, n: int, p: Mapping[str, str]) -> Levels:
    """Products one after the other."""
    return levels_times(dense_levels(t, k, n, p, bias=False, relu=False), h)


for mapping, has_bias, has_relu in (
    (dense, False, False),
    (dense_relu, False, True),
    (dense_bias, True, False),
    (dense_bias_relu, True, True),
):
    mapping.costs(partial(dense_cost, bias=has_bias, relu=has_relu))
    mapping.levels(partial(dense_levels, bias=has_bias, relu=has_relu))
for mapping, has_bias, has_relu in (
    (convolution.conv2d, False, False), (convolution.conv2d_relu, False, True), (convolution.conv2d_bias, True, False),
    (convolution.conv2d_bias_relu, True, True),
):  # fmt: skip
    mapping.costs(partial(conv2d_cost, bias=has_bias, relu=has_relu))
    mapping.levels(partial(conv2d_levels, bias=has_bias, relu=has_relu))


def dense_sums_cost(t: int, k: int, n: int, x_zero: int, p: Mapping[str, str], resources: Resources, *, bias: bool, offset: int) -> Cost:
    """One product of codes: what a zero point leaves out is a bias."""
    return dense_cost(t, k, n, p, resources, bias=bias or x_zero != offset, relu=False)


def conv2d_sums_cost(
    b: int, n: int, c: int, i: int, j: int, r: int, s: int, strides: tuple[int, ...], pads: tuple[int, ...], x_zero: int,
    p: Mapping[str, str], resources: Resources, *, bias: bool, offset: int,
) -> Cost:  # fmt: skip
    """One convolution of codes: zero points around the image are part of it where the device's zeros are none."""
    if x_zero != offset:
        i, j, pads, bias = i + pads[0] + pads[2], j + pads[1] + pads[3], (0, 0, 0, 0), True
    return conv2d_cost(b, n, c, i, j, r, s, strides, pads, p, resources, bias=bias, relu=False)


def dense_sums_levels(t: int, k: int, n: int, x_zero: int, p: Mapping[str, str], *, bias: bool, offset: int) -> Levels:
    """One product of codes: what a zero point leaves out is a bias."""
    return dense_levels(t, k, n, p, bias=bias or x_zero != offset, relu=False)


def conv2d_sums_levels(
    b: int, n: int, c: int, i: int, j: int, r: int, s: int, strides: tuple[int, ...], pads: tuple[int, ...], x_zero: int,
    p: Mapping[str, str], *, bias: bool, offset: int,
) -> Levels:  # fmt: skip
    """One convolution of codes: zero points around the image are part of it where the device's zeros are none."""
    if x_zero != offset:
        i, j, pads, bias = i + pads[0] + pads[2], j + pads[1] + pads[3], (0, 0, 0, 0), True
    return conv2d_levels(b, n, c, i, j, r, s, strides, pads, p, bias=bias, relu=False)


for dtype, offset in OFFSET.items():
    for kind, price, levels_of in (
        ("dense", dense_sums_cost, dense_sums_levels), ("conv2d", conv2d_sums_cost, conv2d_sums_levels)
    ):  # fmt: skip
        for has_bias in (False, True):
            mapping = target.mappings[f"{kind}{'_bias' * has_bias}_{dtype}"]
            mapping.costs(partial(price, bias=has_bias, offset=offset))
            mapping.levels(partial(levels_of, bias=has_bias, offset=offset))
