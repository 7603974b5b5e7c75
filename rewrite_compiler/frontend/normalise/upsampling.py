"""Lowerings of upsampling: transposed convolution as convolution and depth-to-space, nearest resizing as expansion.

Of the result o of a transposed convolution with stride s, o + pad = j·s + r: for each remainder r a convolution with every
s-th tap gives the elements j. All remainders are filters of one convolution, which multiplies no zeros that were put between
elements.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ...ir.program import Data, Value
from ...ops.op import ShapeError
from ..site.context import Unsupported
from ..site.site import Lowering, Site
from .interpolation import interpolated


@dataclass(frozen=True)
class Axis:
    """One spatial axis of a transposed convolution: input extent, taps, stride, dilation, pad before, result extent."""

    size: int
    taps: int
    stride: int
    dilation: int
    pad_before: int
    result_extent: int

    @property
    def parts(self) -> int:
        """Taps of the convolution for one remainder."""
        return -(-self.taps // self.stride)

    @property
    def pads(self) -> tuple[int, int]:
        """Zeros before and after the elements, so that all of the result is computed."""
        span, last = (self.parts - 1) * self.dilation, -(-(self.pad_before + self.result_extent) // self.stride)
        return max(0, span - self.pad_before // self.stride), max(0, last - self.size)

    @property
    def conv_extent(self) -> int:
        """Elements that the convolution computes for each remainder."""
        return self.size + sum(self.pads) - (self.parts - 1) * self.dilation

    @property
    def start(self) -> int:
        """Offset of the result's first element in the interleaved convolution results."""
        return self.pad_before - ((self.parts - 1) * self.dilation - self.pads[0]) * self.stride


def _conv_transpose(site: Site) -> list[Value]:
    site.require_float()
    filters, group = site.required_data(1, "filters"), int(site.get("group", 1))
    axes = _axes(site, filters.shape)
    if len(axes) < 1 or filters.shape[0] != site.shape(0)[1] or group < 1 or filters.shape[0] % group:
        raise ShapeError(f"ConvTranspose needs x[N, C, …] and w[C, O/group, …], not {site.shape(0)} and {filters.shape} in {group} groups")
    if 2 * len(axes) + 2 + (group > 1) > site.context.limits.rank:
        raise Unsupported(f"it has {len(axes)} axes, and to spread channels over them takes twice as many")
    site.context.charge_folding(filters.nbytes * math.prod(a.parts * a.stride for a in axes) // max(1, math.prod(a.taps for a in axes)))
    weights = site.constant(_by_remainder(filters, axes, group), "filters")
    befores, afters = zip(*(a.pads for a in axes), strict=True)
    dilations = tuple(a.dilation for a in axes)
    y = site.apply("conv", site.value(0), weights, strides=(1,) * len(axes), pads=(*befores, *afters), dilations=dilations, group=group)
    bias = site.data(2)
    if bias is not None:
        channel_bias = np.tile(bias.reshape(group, 1, -1), (1, math.prod(a.stride for a in axes), 1))
        y = site.apply("bias_add", y, site.constant(channel_bias.reshape(-1), "bias"), axis=1)
    result = _spread(site, y, axes, group, filters.shape[1])
    return [site.apply("bias_add", result, site.value(2), axis=1) if site.has(2) and bias is None else result]


def _by_remainder(filters: Data, axes: Sequence[Axis], group: int) -> Data:
    """Return filters [C, O, taps …] as those of a convolution: [group · remainders · O, C / group, every s-th tap, reversed …]."""
    count, rank = filters.shape[1], len(axes)
    padded = np.pad(filters, [(0, 0), (0, 0), *((0, a.parts * a.stride - a.taps) for a in axes)])
    split = padded.reshape(group, -1, count, *itertools.chain.from_iterable((a.parts, a.stride) for a in axes))
    parts, remainders = [3 + 2 * n for n in range(rank)], [4 + 2 * n for n in range(rank)]
    flipped = np.flip(split, tuple(parts)).transpose(0, *remainders, 2, 1, *parts)
    return np.ascontiguousarray(flipped.reshape(-1, filters.shape[0] // group, *(a.parts for a in axes)))


def _spread(site: Site, y: Value, axes: Sequence[Axis], group: int, count: int) -> Value:
    """Interleave the remainders, which are channels, in space, and crop to the result."""
    samples, rank = site.shape(0)[0], len(axes)
    if any(a.stride > 1 for a in axes):
        lead = (samples,) if group == 1 else (samples, group)
        first = len(lead)
        split = site.reshape(y, (*lead, *(a.stride for a in axes), count, *(a.conv_extent for a in axes)))
        places = itertools.chain.from_iterable((first + 1 + rank + n, first + n) for n in range(rank))
        permuted = site.transpose(split, (*range(first), first + rank, *places))
        y = site.reshape(permuted, (samples, group * count, *(a.conv_extent * a.stride for a in axes)))
    for n, a in enumerate(axes):
        if (a.start, a.result_extent) != (0, a.conv_extent * a.stride):
            y = site.apply("slice", y, axis=2 + n, start=a.start, stop=a.start + a.result_extent, step=1)
    return y


def _axes(site: Site, filters: Sequence[int]) -> list[Axis]:
    """Return the spatial axes with explicit pads."""
    sizes, kernel = site.shape(0)[2:], tuple(filters[2:])
    rank = len(sizes)
    strides, dilations, extra = (
        _per_axis(site, name, rank, default) for name, default in (("strides", 1), ("dilations", 1), ("output_padding", 0))
    )
    if tuple(site.get("kernel_shape", kernel) or kernel) != kernel or len(kernel) != rank:
        raise ShapeError(f"kernel_shape of ConvTranspose must be that of its filters {kernel}, not {site.get('kernel_shape', kernel)}")
    if min((*strides, *dilations, *kernel), default=1) < 1 or min(extra, default=0) < 0:
        raise ShapeError(f"Strides, dilations and kernel of ConvTranspose must be positive, not {strides}, {dilations} and {kernel}")
    if any(s > 1 and d > 1 for s, d in zip(strides, dilations, strict=True)):
        raise Unsupported("it has strides and dilations")
    spans = [s * (n - 1) + e + (k - 1) * d + 1 for n, s, e, k, d in zip(sizes, strides, extra, kernel, dilations, strict=True)]
    pads = _pads(site, spans, strides)
    spatial = [
        Axis(n, k, s, d, b, span - b - e) for n, k, s, d, span, (b, e) in zip(sizes, kernel, strides, dilations, spans, pads, strict=True)
    ]
    if any(a.pad_before < 0 or a.result_extent < 1 or a.size < 1 for a in spatial) or any(e < 0 for _, e in pads):
        raise Unsupported("its pads are negative or leave nothing")
    return spatial


def _per_axis(site: Site, name: str, rank: int, default: int) -> tuple[int, ...]:
    values = tuple(site.get(name, ()) or (default,) * rank)
    if len(values) != rank:
        raise ShapeError(f"{name} of ConvTranspose must have one number for each of {rank} axes, not {values}")
    return values


def _pads(site: Site, spans: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int]]:
    """Return the elements cropped before and after; an output shape or a mode gives their sum."""
    mode, rank = site.get("auto_pad", "NOTSET"), len(spans)
    if site.get("output_shape", ()):
        output_extents = [int(n) for n in site.get("output_shape", ())][-rank:]
    elif mode in ("SAME_UPPER", "SAME_LOWER"):
        output_extents = [n * s for n, s in zip(site.shape(0)[2:], strides, strict=True)]
    else:
        pads = tuple(site.get("pads", ()) or (0,) * 2 * rank) if mode != "VALID" else (0,) * 2 * rank
        if len(pads) != 2 * rank:
            raise ShapeError(f"ConvTranspose over {rank} axes needs {2 * rank} pads, not {pads}")
        return list(zip(pads[:rank], pads[rank:], strict=True))
    totals = [span - n for span, n in zip(spans, output_extents, strict=True)]
    return [(t // 2, t - t // 2) if mode == "SAME_UPPER" else (t - t // 2, t // 2) for t in totals]


# where each element of a larger axis lies in the smaller one
COORDINATES = {
    "asymmetric": lambda n, f: Fraction(n, f),
    "half_pixel": lambda n, f: Fraction(2 * n + 1, 2 * f) - Fraction(1, 2),
    "pytorch_half_pixel": lambda n, f: Fraction(2 * n + 1, 2 * f) - Fraction(1, 2),
    "tf_half_pixel_for_nn": lambda n, f: Fraction(2 * n + 1, 2 * f),
}
MODES = ("nearest", "linear", "cubic")
ROUNDINGS = {
    "round_prefer_floor": lambda x: math.ceil(x - Fraction(1, 2)),
    "round_prefer_ceil": lambda x: math.floor(x + Fraction(1, 2)),
    "floor": math.floor,
    "ceil": math.ceil,
}


def _is_dequantised(site: Site) -> bool:
    """Tell whether the first operand is what a dequantisation gives."""
    return any(n.op == "dequantize" and site.value(0) in n.outputs for n in reversed(site.context.builder.nodes))


def _resize(site: Site) -> list[Value]:
    """Lower resizing by integer factors, linear or such that it repeats every element; any other stays with the host."""
    site.require_native()
    kind = site.get("mode", "nearest")
    if kind not in MODES:
        raise ShapeError(f'mode of Resize must be {", ".join(MODES[:-1])} or {MODES[-1]}, not "{kind}"')
    factors = _factors(site)
    mode, place = site.get("nearest_mode", "round_prefer_floor"), site.get("coordinate_transformation_mode", "half_pixel")
    if kind == "linear" and max(factors, default=1) > 1:
        if place not in COORDINATES:
            raise Unsupported(f'its coordinate_transformation_mode "{place}" does not place results alike around every element')
        if _is_dequantised(site):
            raise Unsupported(
                "it interpolates numbers that codes stand for: means lie between two codes, and only its own sums round alike"
            )
        return [interpolated(site, factors, COORDINATES[place])]
    if kind != "nearest" or site.get("antialias", 0):
        raise Unsupported(f'its mode is "{kind}"{", with antialias" if site.get("antialias", 0) else ""}; laws cover nearest and linear')
    if mode not in ROUNDINGS or place not in COORDINATES or not all(_repeats(f, mode, place) for f in set(factors)):
        raise Unsupported(f'its coordinate_transformation_mode "{place}" with nearest_mode "{mode}" does not repeat every element')
    x, shape = site.value(0), site.shape(0)
    split = itertools.chain.from_iterable((n, 1) for n in shape)
    wide = itertools.chain.from_iterable(zip(shape, factors, strict=True))
    selected = [f > 1 or k % 2 == 0 for f, k in zip(_twice(factors), range(2 * len(shape)), strict=True)]
    site.context.check(type(site.type(x))(tuple(n * f for n, f in zip(shape, factors, strict=True)), site.type(x).dtype), site.name)
    separated = site.reshape(x, list(itertools.compress(split, selected)))
    repeated = (
        site.apply("expand", separated, shape=tuple(itertools.compress(wide, selected))) if max(factors, default=1) > 1 else separated
    )
    return [site.reshape(repeated, [n * f for n, f in zip(shape, factors, strict=True)])]


def _twice(values: Iterable[int]) -> list[int]:
    return [v for v in values for _ in range(2)]


def _repeats(factor: int, mode: str, place: str) -> bool:
    """Tell whether element n is the input's element n // factor for all n; the first two periods decide."""
    sources = [max(0, ROUNDINGS[mode](COORDINATES[place](n, factor))) for n in range(2 * factor)]
    return sources == [n // factor for n in range(2 * factor)]


def _factors(site: Site) -> list[int]:
    """Return the integer factor by which each axis is enlarged."""
    shape, axes = site.shape(0), [a % max(1, site.rank(0)) for a in site.get("axes", range(site.rank(0)))]
    sizes = site.data(3)
    scales = site.data(2)
    if sizes is not None and sizes.size:
        ratios = [Fraction(int(n), max(1, shape[a])) for n, a in zip(sizes.reshape(-1), axes, strict=False)]
    elif scales is not None and scales.size:
        ratios = [Fraction(float(f)) for f in scales.reshape(-1)]
    else:
        n = next((n for n, data in ((3, sizes), (2, scales)) if site.has(n) and data is None), None)
        if n is None:
            raise Unsupported("it has neither sizes nor scales")
        raise Unsupported(f'its {"sizes" if n == 3 else "scales"}, "{site.name_of(n)}", are computed at run time')
    if len(ratios) != len(axes) or any(f.denominator != 1 or f < 1 for f in ratios) or 0 in shape:
        raise Unsupported("it does not enlarge by whole numbers")
    by_axis = dict(zip(axes, (int(f) for f in ratios), strict=True))
    return [by_axis.get(a, 1) for a in range(len(shape))]


TABLE: dict[str, Lowering] = {"ConvTranspose": _conv_transpose, "Resize": _resize}
