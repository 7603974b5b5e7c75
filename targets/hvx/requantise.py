"""HVX's codes of int32 sums: a product with a factor for all or one a channel, rounded once, the zero point, the limits.

Products of words have 56 bits and registers 32, so that a factor is multiplied in halves and a sum in parts: what is kept are the
product's bits from the 24th on, exactly.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from rewrite_compiler.ila_models.hvx.state import VECTOR
from rewrite_compiler.lang import Array, Expr, array, maximum, minimum, number_at
from rewrite_compiler.target import (
    RANKS,
    Limit,
    StreamedDevice,
    axis_sizes,
    low_bits,
    pad_axis,
    requantise_pattern,
    split_bytes,
    tile_count,
)

from .base import WORD, Codes, Parameters, Program, Shape, place, results, set_registers, target
from .products import VECTORS, Y

HALF, PART = 1 << 16, 1 << 8  # of factors and of sums, what is multiplied apart
FACTOR_BITS, LEAST, MOST = 24, 25, 54  # of a factor, and the bits that products are shifted by
X, NUMBER, PART_BITS, ONE_BIT = 0, 1, 2, 3  # scalar registers; the lower part of a sum has 8 bits
FACTOR, AMOUNT, MASK, ONE, ZERO, LOW, HIGH = range(8, 15)  # vector registers, before them the codes; and those of parts
UPPER, LOWER, CARRY, ABOVE = range(16, 20)
STEPS: tuple[tuple[str, dict[str, int]], ...] = (  # of sums in a register, which is named -1
    ("vmpye_w_w_uh", {"vd": CARRY, "vu": -1, "vv": FACTOR}),
    ("vasr_w_w_r", {"vd": UPPER, "vu": -1, "rt": PART_BITS}),
    ("vand", {"vd": LOWER, "vu": -1, "vv": MASK}),
    ("vmpyio_w_w_h", {"vd": LOWER, "vu": LOWER, "vv": FACTOR}),
    ("vmpyio_w_w_h", {"vd": UPPER, "vu": UPPER, "vv": FACTOR}),
    ("vasr_w_w_r", {"vd": ABOVE, "vu": CARRY, "rt": PART_BITS}),
    ("vadd_w_w_w", {"vd": UPPER, "vu": UPPER, "vv": ABOVE}),
    ("vand", {"vd": CARRY, "vu": CARRY, "vv": MASK}),
    ("vadd_w_w_w", {"vd": CARRY, "vu": CARRY, "vv": LOWER}),
    ("vasr_w_w_r_acc", {"vx": UPPER, "vu": CARRY, "rt": PART_BITS}),
    ("vasr_w_w_w", {"vd": UPPER, "vu": UPPER, "vv": AMOUNT}),
    ("vadd_w_w_w", {"vd": UPPER, "vu": UPPER, "vv": ONE}),
    ("vasr_w_w_r", {"vd": UPPER, "vu": UPPER, "rt": ONE_BIT}),
    ("vadd_w_w_w", {"vd": UPPER, "vu": UPPER, "vv": ZERO}),
    ("vmax_w_w_w", {"vd": UPPER, "vu": UPPER, "vv": LOW}),
    ("vmin_w_w_w", {"vd": -1, "vu": UPPER, "vv": HIGH}),
)


def _counts(rank: int, sizes: Mapping[str, int]) -> tuple[int, int]:
    """Return the channels, and the vectors of the codes of one."""
    images, channels, *size = (sizes[d] for d in RANKS[rank].split())
    return channels, tile_count(images * math.prod(size), VECTOR)


def _plan(multiplier: Shape, shift: Shape, p: Parameters, rank: int, **sizes: Any) -> Program:
    """Two of the products take both multipliers, and so a packet each; shifts share one pipe."""
    channels, count = _counts(rank, sizes)
    bounds = (
        Limit("bits of a factor", max(multiplier).bit_length(), FACTOR_BITS),
        Limit("bits that a factor is shifted by", max(shift), MOST),
        Limit(f"bits that a factor is shifted by, short of {LEAST}", max(LEAST - min(shift), 0), 0),
    )
    vectors = {"x": channels * count * WORD, "y": channels * count}
    instructions = 24 + channels * (4 + count * (VECTORS * (1 + len(STEPS)) + 4))
    return Program(p, vectors, vectors, instructions, channels * (4 + count * (VECTORS * len(STEPS) // 2 + 4)), bounds=bounds)


def _drive(
    device: StreamedDevice, x: Codes, *, multiplier: Shape, shift: Shape, zero: int, low: int, high: int, p: Parameters, rank: int, to: str
) -> Codes:  # fmt: skip
    """Emit one requantisation: sums x [(samples,) a, channel, …] → codes."""
    lead, sizes = x.shape[: x.ndim - rank], axis_sizes(RANKS[rank], x)
    m, (channels, count) = _plan(multiplier, shift, p, rank, **sizes), _counts(rank, sizes)
    by_channel = np.swapaxes(x, len(lead), len(lead) + 1)
    rows = pad_axis(by_channel.reshape(*lead, channels, -1), -1, count * VECTOR)
    place(device, m, x=split_bytes(rows.reshape(*lead, -1), WORD))
    set_registers(device, {X: m.places["x"], Y: m.places["y"], PART_BITS: 8, ONE_BIT: 1})
    for vector, value in {MASK: PART - 1, ONE: 1, ZERO: zero, LOW: low, HIGH: high}.items():
        _splat(device, vector, value)
    for channel in range(channels):
        _splat(device, FACTOR, multiplier[channel % len(multiplier)])
        _splat(device, AMOUNT, shift[channel % len(shift)] - LEAST)
        for _ in range(count):
            _narrow(device)
    y = results(device, m)
    shape = by_channel.shape[len(lead) :]
    codes = y.reshape(*y.shape[:-1], channels, -1)[..., : math.prod(shape) // channels].reshape(*y.shape[:-1], *shape)
    codes = np.swapaxes(codes, codes.ndim - rank, codes.ndim - rank + 1)
    return low_bits(codes, 8) if to == "uint8" else codes


def _splat(device: StreamedDevice, vector: int, value: int) -> None:
    """Bring a number into all lanes of a vector."""
    set_registers(device, {NUMBER: value})
    device.issue("vsplat_r", vd=vector, rt=NUMBER)


def _narrow(device: StreamedDevice) -> None:
    """Requantise the next four vectors of sums, and store their codes."""
    for vector in range(VECTORS):
        device.issue("vmem_load_step", vd=vector, rt=X, step=1)
        for name, registers in STEPS:
            device.issue(name, **{field: vector if register < 0 else register for field, register in registers.items()})
    for vector in (0, 2):
        device.issue("vpacke_h_w_w", vd=vector, vu=vector + 1, vv=vector)
    device.issue("vpacke_b_h_h", vd=0, vu=2, vv=0)
    device.issue("vmem_store_step", vs=0, rt=Y, step=1)


def _codes(x: Array, *, multiplier: Shape, shift: Shape, zero: int, low: int, high: int) -> Array:
    """Products with the factor of the channel; nearest, ties up, limited to low … high.

    They are summed in parts as the driver does, exactly: ⌊x · factor / 2²⁴⌋ is shifted by all places but one, and rounded by the last.
    """

    def element(*i: Expr) -> Expr:
        halves = ([n % HALF for n in multiplier], [n // HALF for n in multiplier], [n - LEAST for n in shift])
        low_half, high_half, places = (number_at(f"number{n}", row, i[1]) for n, row in enumerate(halves))
        carry = (x[i] * low_half) >> 16
        bits = (x[i] >> 8) * high_half + ((x[i] % PART * high_half + carry % PART) >> 8) + (carry >> 8)
        return minimum(maximum((((bits >> places) + 1) >> 1) + zero, low), high)

    return array(element, x.shape)


ONE_FACTOR: dict[str, Any] = {"multiplier": (11_184_811,), "shift": (33,)}
EACH: dict[str, Any] = {"multiplier": (8_388_608, 16_777_215, 12_345_679), "shift": (25, 54, 32)}
BOUNDS = {"uint8": ({"zero": 3, "low": 0, "high": 100}, {"zero": 0, "low": 0, "high": 255}),
          "int8": ({"zero": -3, "low": -100, "high": 100}, {"zero": 0, "low": -128, "high": 127})}  # fmt: skip


for _dtype, _rank in itertools.product(BOUNDS, (2, 4)):
    _pattern = requantise_pattern(_dtype, _rank)
    _shapes = zip(((*(1,) * (_rank - 1), 17), (3, 3, 5, 11)[:_rank]), (ONE_FACTOR, EACH), BOUNDS[_dtype], strict=True)
    _mapping = target.offers(
        _pattern, trials=[_pattern.element_trial(*shape, **factors, **bounds) for shape, factors, bounds in _shapes]
    )  # fmt: skip
    _mapping.implement(partial(_plan, rank=_rank), partial(_drive, rank=_rank, to=_dtype), _codes)
