"""GeneSys's element-wise operations: nests over the rows of vector memories, in 32 bits.

The SIMD array multiplies words of 32 bits and keeps any 32 of the product's bits, so that codes of sums need one product each. Sums
of codes take each factor in two parts.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from rewrite_compiler.lang import Array, Expr, Fixed, array, lift, maximum, minimum, number_at, select, signed
from rewrite_compiler.target import (
    RANKS,
    Limit,
    Pattern,
    StreamedDevice,
    axis_sizes,
    code_sum,
    common_factors,
    element_pattern,
    factor_parts,
    fixed_byte,
    fixed_nearest,
    low_bits,
    pad_axis,
    quantized_add_pattern,
    requantise_pattern,
    tile_count,
    widen,
)

from .base import Codes, P, config, target
from .simd import Sweep, run

FRACTION = 16  # bits of the fraction of the functions' operands and results
AMOUNTS = ("factor", "half", "further")
PART = 20  # bits of the lower part of a factor of a sum
Formats = Mapping[str, Fixed]
Numbers = Mapping[str, Any]


# -- scalars that programs name, and results as functions of elements


def _bounds(f: Formats, g: Numbers) -> tuple[int, ...]:
    """Return the codes nearest to the bounds of a clip; an open one bounds nothing."""
    return fixed_nearest(g["low"], f["x"]), fixed_nearest(g["high"], f["x"])


def _clipped(x: Expr, f: Formats, g: Numbers) -> Expr:
    low, high = _bounds(f, g)
    return minimum(maximum(x, low), high)


def _shift(f: Formats) -> int:
    """Return by how many bits codes go up to have the fraction of the functions: where that is more than 24 every code saturates."""
    return max(min(FRACTION - f["x"].fraction, 24), -31)


def _scaled(x: Expr, f: Formats) -> Expr:
    by = _shift(f)
    return x << by if by >= 0 else x >> -by


def _sigmoid(x: Expr, f: Formats, g: Numbers) -> Expr:
    """The published line in pieces, with ends at 1, 2.375 and 5; of negative ones 1 less that of their size."""
    value, one = _scaled(x, f), 1 << FRACTION
    size = maximum(value, -value)
    line = (size >> 2) + one // 2
    for begin, piece in ((one, (size >> 3) + one * 5 // 8), (one * 19 // 8, (size >> 5) + one * 27 // 32), (5 * one, lift(one))):
        line = select(size >= begin, piece, line)
    return select(value < 0, one - line, line)


def _tanh(x: Expr, f: Formats, g: Numbers) -> Expr:
    one = 1 << FRACTION
    return minimum(maximum(_scaled(x, f), -one), one)


def _amounts(f: Formats, g: Numbers) -> tuple[int, ...]:
    """Return zero points, lower parts of factors, their bits, upper parts, what rounds, the bits left to shift, zero point, limits."""
    low, high, half, left = factor_parts(g["multiplier"], g["shift"], PART)
    return (*(-n for n in g["zeros"]), *low, PART, *high, half, left, g["zero"], g["low"], g["high"])


def _factor_limits(factors: Sequence[int], shifts: Sequence[int], widest: int, least: int, most: int) -> tuple[Limit, ...]:
    """Return the limits of the bits of factors, and of those that their products are shifted by."""
    return (
        Limit("bits of a factor", max(factors).bit_length(), widest),
        Limit("bits that products are shifted by", max(shifts), most),
        Limit(f"bits that products are shifted by, short of {least}", max(least - min(shifts), 0), 0),
    )


def _sum_limits(g: Numbers) -> tuple[Limit, ...]:
    """Return the limits of factors over one power of two, whose upper parts times codes stay in 32 bits."""
    shift, factors = common_factors(g["multiplier"], g["shift"])
    return _factor_limits(factors, (shift,), 41, PART + 1, PART + 30)


def _channel_amounts(g: Numbers) -> tuple[int, Codes]:
    """Return the fraction of products of sums, and factors, halves and further shifts of the channels [number, channel]."""
    fraction = min(min(g["shift"]) - 1, 31)
    further = [n - fraction for n in g["shift"]]
    return fraction, np.array([g["multiplier"], [1 << (n - 1) for n in further], further], np.int64)


def _code(x: Expr, channel: Expr, f: Formats, g: Numbers) -> Expr:
    """The product with the factor of the channel, cut at the common fraction; nearest, ties up, limited to low … high."""
    fraction, numbers = _channel_amounts(g)
    factor, half, further = (number_at(name, row.tolist(), channel) for name, row in zip(AMOUNTS, numbers, strict=True))
    code = signed(((x * factor) >> fraction) + half, 32) >> further
    return minimum(maximum(code + g["zero"], g["low"]), g["high"])


# -- what there is


@dataclass(frozen=True, eq=False)
class Kind:
    """One operation: its pattern, its program, its result as a function of elements, and the scalars that the program names.

    Functions of elements take formats `f` and attributes `g`, after a channel where there are numbers of channels.
    """

    pattern: Callable[[int], Pattern]  # of a rank
    program: tuple[str, ...]  # a line with {} is made by the direction of a shift
    element: Callable[..., Expr]
    scalars: Callable[[Formats, Numbers], tuple[int, ...]] = lambda f, g: ()
    y: Callable[..., Fixed] = lambda x: x
    fraction: Callable[[Numbers], int] = lambda g: 0
    shift: Callable[[Formats], int] = lambda f: 0
    numbers: Callable[[Numbers], Codes] | None = None  # [number, channel], one channel for all
    capacities: Callable[[Numbers], tuple[Limit, ...]] = lambda g: ()
    is_shared: bool = False
    trials: tuple[Numbers, ...] = ({}, {})


def _plan(*, kind: Kind, rank: int, operands: int, p: P, **given: Any) -> Sweep:
    """Return the work on all elements of tensors: they fill all lanes of rows, whatever their axes, or channels lie in lanes."""
    c, shape = config(p), [given[d] for d in RANKS[rank].split()]
    how: dict[str, Any] = {"program": kind.program, "bounds": kind.capacities(given)}
    if kind.numbers is not None:
        return Sweep(c, shape[0], tile_count(shape[1], c.lanes), (math.prod(shape[2:]), 1), numbers=3, **how)
    is_apart = any(" y " in line for line in kind.program)
    return Sweep(c, 1, 1, (tile_count(math.prod(shape), c.lanes), 1), operands=operands, is_apart=is_apart, **how)


def _drive(device: StreamedDevice, *, kind: Kind, rank: int, is_byte: bool, p: P, f: Formats, **given: Any) -> Codes:
    """Emit the operation on x and, where there is one, z [(samples,) …] of one shape."""
    tensors = [widen(given.pop(name)) for name in ("x", "z") if name in given]
    shape = tensors[0].shape[-rank:]
    m = _plan(kind=kind, rank=rank, operands=len(tensors), p=p, **axis_sizes(RANKS[rank], tensors[0]), **given)
    m = replace(m, program=tuple(line.format("l" if kind.shift(f) >= 0 else "r") for line in kind.program))
    numbers = None if kind.numbers is None else np.broadcast_to(kind.numbers(given), (m.numbers, shape[1]))
    images = [_images(x, m, shape) for x in tensors]
    y = run(device, m, images, numbers=numbers, scalars=kind.scalars(f, given), fraction=kind.fraction(given))
    lead = y.shape[:-4]
    elements = y if m.numbers else np.moveaxis(y, -3, -1).reshape(*lead, -1)[..., : math.prod(shape)]
    codes = elements.reshape(*lead, *shape)
    return low_bits(codes, 8) if is_byte else codes


def _images(x: Codes, m: Sweep, shape: tuple[int, ...]) -> Codes:
    """Return a tensor [(samples,) …] as images of one column; without numbers of channels as one of a block of them."""
    lead, lanes = x.shape[: x.ndim - len(shape)], m.design.lanes
    if m.numbers:
        return x.reshape(*lead, *shape[:2], *m.size)
    rows = pad_axis(x.reshape(*lead, -1), -1, m.size[0] * lanes)
    return np.moveaxis(rows.reshape(*lead, 1, *m.size, lanes), -1, -3)


def _codes(kind: Kind, *operands: Array, f: Formats, p: P, **attributes: Any) -> Array:
    channel = slice(1, 1 if kind.numbers is None else 2)
    return array(lambda *i: kind.element(*(x[i] for x in operands), *i[channel], f, attributes), operands[0].shape)


BOUNDS: tuple[Numbers, ...] = ({"low": -0.25, "high": 3.0}, {"low": -math.inf, "high": 3.0})
ONE: Numbers = {"multiplier": (11_184_811,), "shift": (33,), "zero": 3, "low": 0, "high": 100}
EACH: Numbers = {"multiplier": (8_388_608, 16_777_215, 12_345_679), "shift": (25, 54, 32), "zero": 0, "low": 0, "high": 127}
BOTH: Numbers = {"multiplier": (11_184_811, 12_345_679), "shift": (24, 26), "zeros": (3, 100), "zero": 7, "low": 0, "high": 120}
APART: Numbers = {"multiplier": (8_388_608, 16_777_215), "shift": (40, 23), "zeros": (0, 0), "zero": 0, "low": 0, "high": 127}
ADD, RELU, SHIFT = "rows add x x z", "rows relu x x s0", "rows {}shift x x s0"
# the carry of products with lower parts, onto which those with upper parts are added; rounded, and limited
SUM_OF_CODES = (
    "rows add x x s0", "rows add z z s1", "rows mul y x s2", "rows macc y z s3", "rows rshift y y s4", "rows macc y x s5",
    "rows macc y z s6", "rows add y y s7", "rows rshift y y s8", "rows add y y s9", "rows max y y s10", "rows min y y s11",
)  # fmt: skip
# the product's bits from the fraction on, half of what is cut off after it, the cut, the zero point, the limits
CODES_OF_SUMS = (
    "channels mul x x n0", "channels add x x n1", "channels rshift x x n2", "channels add x x s0", "channels max x x s1",
    "channels min x x s2",
)  # fmt: skip
_function: dict[str, Any] = {
    "scalars": lambda f, g: (abs(_shift(f)), 0), "y": lambda x: Fixed(32, FRACTION), "fraction": lambda g: FRACTION, "shift": _shift,
}  # fmt: skip
_wide: dict[str, Any] = {"y": lambda x: Fixed(32, x.fraction), "is_shared": True}
_zero: dict[str, Any] = {"scalars": lambda f, g: (0,)}
KINDS = (
    Kind(partial(element_pattern, "add"), (ADD,), lambda x, z, f, g: x + z, **_wide),
    Kind(partial(element_pattern, "add", relu=True), (ADD, RELU), lambda x, z, f, g: maximum(x + z, 0), **_zero, **_wide),
    Kind(partial(element_pattern, "add", codes="int32"), (ADD,), lambda x, z, f, g: signed(x + z, 32)),
    Kind(partial(element_pattern, "relu"), (RELU,), lambda x, f, g: maximum(x, 0), **_zero),
    Kind(partial(element_pattern, "relu", codes="int32"), (RELU,), lambda x, f, g: maximum(x, 0), **_zero),
    Kind(partial(element_pattern, "clip"), ("rows max x x s0", "rows min x x s1"), _clipped, _bounds,
         trials=(*BOUNDS[:1] * 2, *BOUNDS[1:] * 2)),
    Kind(partial(element_pattern, "sigmoid"), (SHIFT, "rows sigmoid x x s1"), _sigmoid, **_function),
    Kind(partial(element_pattern, "tanh"), (SHIFT, "rows tanh x x s1"), _tanh, **_function),
    Kind(partial(quantized_add_pattern, "uint8"), SUM_OF_CODES, lambda x, z, f, g: code_sum(x, z, **g, part=PART), _amounts,
         capacities=_sum_limits, trials=(BOTH, APART)),
    Kind(partial(requantise_pattern, "uint8"), CODES_OF_SUMS, _code, lambda f, g: (g["zero"], g["low"], g["high"]),
         fraction=lambda g: _channel_amounts(g)[0], numbers=lambda g: _channel_amounts(g)[1],
         capacities=lambda g: _factor_limits(g["multiplier"], g["shift"], 24, 25, 54), trials=(ONE, EACH)),
)  # fmt: skip


def _declare(kind: Kind, rank: int) -> None:
    pattern = kind.pattern(rank)
    operands = [name for name in ("x", "z") if name in pattern.variables]
    shapes = itertools.cycle(((*(1,) * (rank - 1), 17), (2, 3, 5, 7)[:rank]))
    trials = [pattern.element_trial(*shape, **g) for shape, g in zip(shapes, kind.trials, strict=False)]
    formats: dict[str, Any] = {} if pattern.types else {"formats": dict.fromkeys(operands, fixed_byte), "derived": {"y": kind.y}}
    mapping = target.offers(pattern, shared=("x z",) if kind.is_shared else (), trials=trials, **formats)
    drive = partial(_drive, kind=kind, rank=rank, is_byte=pattern.types.get("y") == "uint8")
    mapping.implement(partial(_plan, kind=kind, rank=rank, operands=len(operands)), drive, partial(_codes, kind))


for _kind, _rank in itertools.product(KINDS, (2, 4)):
    _declare(_kind, _rank)
