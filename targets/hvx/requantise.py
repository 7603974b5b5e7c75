"""HVX's codes of int32 sums: a product with a factor for all or one a channel, rounded once, the zero point, the limits.

Products of words have 56 bits and registers 32, so that a factor is multiplied in halves and a sum in parts: what is kept are the
product's bits from the 24th on, exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from rewrite_compiler import Tensor, Where
from rewrite_compiler import ops as o
from rewrite_compiler.ila_models.hvx.state import VECTOR
from rewrite_compiler.lang import Array, Expr, array, maximum, minimum, number_at
from rewrite_compiler.lang import Int as Integers
from rewrite_compiler.ops import HasType
from rewrite_compiler.rewrite import Int, Ints
from rewrite_compiler.target import Cost, Limit, Resources, StreamedDevice, axis_sizes, join_bytes, low_bits, pad_axis, split_bytes

from .base import Codes, finish, memory_bytes, set_register, target
from .elementwise import RANKS
from .products import VECTORS, WORD, Y

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
    return channels, -(-images * math.prod(size) // VECTOR)


def _drive(
    device: StreamedDevice, x: Codes, *, multiplier: tuple[int, ...], shift: tuple[int, ...], zero: int, low: int, high: int, rank: int,
    to: str,
) -> Codes:  # fmt: skip
    """Emit one requantisation: sums x [(samples,) a, channel, …] → codes."""
    lead, shape = x.shape[: x.ndim - rank], x.shape[x.ndim - rank :]
    channels, count = _counts(rank, axis_sizes(RANKS[rank], x))
    by_channel = np.swapaxes(x, len(lead), len(lead) + 1)
    rows = pad_axis(by_channel.reshape(*lead, channels, -1), -1, count * VECTOR)
    results = channels * count * VECTOR * WORD
    device.attach("dram", results + channels * count * VECTOR)
    device.place("dram", 0, split_bytes(rows.reshape(*lead, -1), WORD))
    for register, value in {X: 0, Y: results, PART_BITS: 8, ONE_BIT: 1}.items():
        set_register(device, register, value)
    for vector, value in {MASK: PART - 1, ONE: 1, ZERO: zero, LOW: low, HIGH: high}.items():
        _splat(device, vector, value)
    for channel in range(channels):
        _splat(device, FACTOR, multiplier[channel % len(multiplier)])
        _splat(device, AMOUNT, shift[channel % len(shift)] - LEAST)
        for _ in range(count):
            _narrow(device)
    finish(device)
    y = join_bytes(device.fetch("dram", results, channels * count * VECTOR)[..., None])
    codes = y.reshape(*y.shape[:-1], channels, -1)[..., : math.prod(shape) // channels].reshape(
        *y.shape[:-1], *by_channel.shape[len(lead) :]
    )
    codes = np.swapaxes(codes, codes.ndim - rank, codes.ndim - rank + 1)
    return low_bits(codes, 8) if to == "uint8" else codes


def _splat(device: StreamedDevice, vector: int, value: int) -> None:
    """Bring a number into all lanes of a vector."""
    set_register(device, NUMBER, value % (1 << 32))
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


def _codes(x: Array, *, multiplier: tuple[int, ...], shift: tuple[int, ...], zero: int, low: int, high: int) -> Array:
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


def _instructions(channels: int, count: int) -> int:
    return 24 + channels * (4 + count * (VECTORS * (1 + len(STEPS)) + 4))


def _limits(multiplier: tuple[int, ...], shift: tuple[int, ...], p: Mapping[str, str], rank: int, **sizes: Any) -> Iterator[Limit]:
    channels, count = _counts(rank, sizes)
    yield Limit("bytes of memory", channels * count * VECTOR * (WORD + 1) + WORD * _instructions(channels, count), memory_bytes(p))
    yield Limit("bits of a factor", max(multiplier).bit_length(), FACTOR_BITS)
    yield Limit("bits that a factor is shifted by", max(shift), MOST)
    yield Limit(f"bits that a factor is shifted by, short of {LEAST}", max(LEAST - min(shift), 0), 0)


def _cost(resources: Resources, rank: int, **sizes: Any) -> Cost:
    """Two of the products take both multipliers, and so a packet each; shifts share one pipe."""
    channels, count = _counts(rank, sizes)
    moved = {"x": channels * count * VECTOR * WORD, "y": channels * count * VECTOR, "commands": WORD * _instructions(channels, count)}
    cycles = channels * (4 + count * (VECTORS * len(STEPS) // 2 + 4))
    return Cost("vector", cycles, resources.link("host", "v").cycles_for(sum(moved.values())), moved)


ONE_FACTOR: dict[str, Any] = {"multiplier": (11_184_811,), "shift": (33,)}
EACH: dict[str, Any] = {"multiplier": (8_388_608, 16_777_215, 12_345_679), "shift": (25, 54, 32)}
BOUNDS = {"uint8": ({"zero": 3, "low": 0, "high": 100}, {"zero": 0, "low": 0, "high": 255}),
          "int8": ({"zero": -3, "low": -100, "high": 100}, {"zero": 0, "low": -128, "high": 127})}  # fmt: skip


def _declare(rank: int, dtype: str) -> None:
    dims = RANKS[rank]

    def requantise(x: Tensor, multiplier: Ints, shift: Ints, zero: Int, low: Int, high: Int) -> tuple[Tensor, Where]:
        """The codes of int32 sums: a factor for all of them or one for each channel, nearest, limited."""
        y = o.requantize(x, multiplier=multiplier, shift=shift, axis=1, zero=zero, low=low, high=high, to=dtype)
        return y, Where(x.rank == rank, HasType(x, ("int32",)))

    requantise.__name__ = f"requantise_{dtype}_{rank}"
    shapes = zip(((*(1,) * (rank - 1), 17), (3, 3, 5, 11)[:rank]), (ONE_FACTOR, EACH), BOUNDS[dtype], strict=True)
    mapping = target.accelerates(
        axes=f"x: {dims}; y: {dims}", formats={}, derived={"x": partial(Integers, 32), "y": partial(Integers, 8, dtype == "int8")},
        operation="requantise", whole=dims,
        trials=[{**dict(zip(dims.split(), shape, strict=True)), **factors, **bounds} for shape, factors, bounds in shapes],
    )(requantise)  # fmt: skip
    mapping.limits(partial(_limits, rank=rank))
    mapping.driver(partial(_drive, rank=rank, to=dtype))
    mapping.numerics(_codes)
    mapping.costs(partial(_cost, rank=rank))


for _rank in (2, 4):
    for _dtype in BOUNDS:
        _declare(_rank, _dtype)
