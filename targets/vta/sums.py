"""VTA's sum of two tensors of codes in their own scales: exact products with both factors, added and rounded on the ALU alone.

A code less its zero point has 9 bits and a factor 24, shifted until both stand over one power of two. Factors are cut at
20 bits: the sums of products with the lower parts leave a carry to the sums of products with the upper ones.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from rewrite_compiler import Tensor, Where
from rewrite_compiler import ops as o
from rewrite_compiler.ila_models.vta.config import Config
from rewrite_compiler.lang import Array, array
from rewrite_compiler.lang import Int as Integers
from rewrite_compiler.ops import HasType
from rewrite_compiler.rewrite import Int, Ints
from rewrite_compiler.target import (
    Cost,
    Levels,
    Limit,
    Resources,
    StreamedDevice,
    code_sum,
    common_factors,
    factor_parts,
    low_bits,
    pad_axis,
    split_bytes,
)

from .alu import INSTRUCTION_BYTES, RANKS, function, has_multiplication, reach, run_limits
from .base import UOP_BYTES, Codes, config, elements, micro_ops, no_rooms, target
from .requantise import SHIFT, Step, copy_steps
from .results import Region, fetch_words, grid, planes, store_bytes

PART = 20  # bits of the lower part of a factor
LEAST, MOST = PART + 1, PART + 30  # bits that sums are shifted by
WIDEST = 41  # bits of a factor over the common power of two: its upper part times a code stays in 32 bits
X, Z, LOW, CARRY = AREAS = ("x", "z", "low", "carry")
X_LOW, Z_LOW, X_HIGH, Z_HIGH, HALF = NUMBERS = ("x_low", "z_low", "x_high", "z_high", "half")


def parts_of(multiplier: Sequence[int], shift: Sequence[int]) -> dict[str, int]:
    """Return the numbers of the program: both parts of both factors over one power of two, and what rounds."""
    (x_low, z_low), (x_high, z_high), half, _ = factor_parts(multiplier, shift, PART)
    return {X_LOW: x_low, Z_LOW: z_low, X_HIGH: x_high, Z_HIGH: z_high, HALF: half}


def shift_steps(area: str, by: int) -> list[Step]:
    """Return the steps that shift an area right: no instruction shifts by more than every implementation takes."""
    return [Step("alu_shr", area, min(by - at, SHIFT)) for at in range(0, by, SHIFT)]


def steps(zeros: Sequence[int], shift: int, zero: int, low: int, high: int) -> list[Step]:
    """Return the ALU program."""
    return [
        Step("alu_add", X, -zeros[0]), Step("alu_add", Z, -zeros[1]),
        *copy_steps(LOW, X), Step("alu_mul", LOW, X_LOW), *copy_steps(CARRY, Z), Step("alu_mul", CARRY, Z_LOW), Step("alu_add", LOW, CARRY),
        *shift_steps(LOW, PART),
        Step("alu_mul", X, X_HIGH), Step("alu_mul", Z, Z_HIGH), Step("alu_add", X, Z), Step("alu_add", X, LOW), Step("alu_add", X, HALF),
        *shift_steps(X, shift - PART),
        Step("alu_add", X, zero), Step("alu_max", X, low), Step("alu_min", X, high),
    ]  # fmt: skip


@dataclass(frozen=True)
class Sweep:
    """Sums of so many accumulator elements, cut into runs that the buffer holds, and the micro-ops of a program."""

    design: Config
    count: int
    program: tuple[Step, ...]

    @property
    def runs(self) -> list[range]:
        """The elements of every run."""
        most = (reach(self.design) - len(NUMBERS)) // len(AREAS)
        return [range(at, min(at + most, self.count)) for at in range(0, self.count, most)]

    @cached_property
    def pairs(self) -> list[tuple[str, str]]:
        """What micro-ops name: where the destination is and where the source."""
        return list(dict.fromkeys(_pair(step) for step in self.program))

    def words(self, length: int) -> list[int]:
        """Return the micro-ops of a run."""
        first = {name: n * length for n, name in enumerate(AREAS)}
        first |= {name: len(AREAS) * length + n for n, name in enumerate(NUMBERS)}
        return [self.design.micro_op(first[a], first[b]) for a, b in self.pairs]

    @cached_property
    def lengths(self) -> list[int]:
        """The lengths of runs."""
        return sorted({len(run) for run in self.runs})

    @property
    def element(self) -> int:
        """Bytes of an accumulator element."""
        return int(self.design.scalars("acc") * planes(self.design))

    @property
    def places(self) -> dict[str, int]:
        """The first byte of the numbers, of the codes and of the micro-ops, after both operands, and the end."""
        numbers = 2 * self.count * self.element
        out = numbers + len(NUMBERS) * self.element
        uop = elements(out + self.count * self.design.scalars("inp"), UOP_BYTES) * UOP_BYTES
        return {"numbers": numbers, "out": out, "uop": uop, "end": uop + UOP_BYTES * len(self.lengths) * len(self.pairs)}


def _pair(step: Step) -> tuple[str, str]:
    return step.area, step.by if isinstance(step.by, str) else step.area


def _sweep(shape: Sequence[int], program: Sequence[Step], p: Mapping[str, str]) -> Sweep:
    c = config(p)
    return Sweep(c, elements(math.prod(shape), c.scalars("acc")), tuple(program))


def drive(
    device: StreamedDevice, x: Codes, z: Codes, *, multiplier: tuple[int, ...], shift: tuple[int, ...], zeros: tuple[int, ...], zero: int,
    low: int, high: int, p: Mapping[str, str], rank: int, signed: bool,
) -> Codes:  # fmt: skip
    """Emit one sum: x, z [(samples,) …] → codes of the same shape."""
    shape = x.shape[x.ndim - rank :]
    m = _sweep(shape, steps(zeros, max(shift), zero, low, high), p)
    size, lanes = math.prod(shape), m.design.scalars("acc")
    device.attach("dram", m.places["end"])
    for n, codes in enumerate((x, z)):
        words = pad_axis(codes.reshape(*codes.shape[: codes.ndim - rank], -1), -1, m.count * lanes)
        device.place("dram", n * m.count * m.element, split_bytes(words, planes(m.design)))
    numbers = np.array([parts_of(multiplier, shift)[name] for name in NUMBERS], np.int64)
    device.place("dram", m.places["numbers"], split_bytes(np.repeat(numbers, lanes), planes(m.design)))
    device.place("dram", m.places["uop"], micro_ops(word for length in m.lengths for word in m.words(length)))
    for run in m.runs:
        _run(device, m, run)
    results = fetch_words(device, m.design, m.places["out"], m.count, 1)[..., :size]
    codes = results.reshape(*results.shape[:-1], *shape)
    return codes if signed else low_bits(codes, 8)


def _run(device: StreamedDevice, m: Sweep, run: range) -> None:
    """Load some codes of both operands and the numbers, work on all of them, store the codes."""
    c, length = m.design, len(run)
    first = m.places["uop"] // UOP_BYTES + m.lengths.index(length) * len(m.pairs)
    device.issue("load_uop", dram_base=first, y_size=1, x_size=len(m.pairs))
    device.issue("load_acc", dram_base=run.start, y_size=2, x_size=length, x_stride=m.count)
    device.issue(
        "load_acc", sram_base=len(AREAS) * length, dram_base=m.places["numbers"] // m.element, y_size=1, x_size=len(NUMBERS)
    )  # fmt: skip
    loops = grid(1, length)
    for k, step in enumerate(m.program):
        at = m.pairs.index(_pair(step))
        source = {"src_factor_in": int(length > 1 and step.by in AREAS)} if isinstance(step.by, str) else {"use_imm": 1, "imm": step.by}
        device.issue(step.name, uop_bgn=at, uop_end=at + 1, **loops, **source, push_next=int(k == len(m.program) - 1))
    store_bytes(device, c, Region(1, length, m.places["out"] // c.scalars("inp") + run.start, 0), loops, 0, 1)
    device.wait()


def codes(
    x: Array, z: Array, *, multiplier: tuple[int, ...], shift: tuple[int, ...], zeros: tuple[int, ...], zero: int, low: int, high: int
) -> Array:  # fmt: skip
    """Both operands less their zero points times their factors, exactly; nearest, ties up, limited to low … high."""
    scales: dict[str, Any] = {"multiplier": multiplier, "shift": shift, "zeros": zeros, "zero": zero, "low": low, "high": high}
    return array(lambda *i: code_sum(x[i], z[i], **scales, part=PART), x.shape)


def limits(multiplier: tuple[int, ...], shift: tuple[int, ...], p: Mapping[str, str]) -> Iterator[Limit]:
    """What factors the program is exact for, and what designs it runs on."""
    yield Limit("multiplications of the ALU", int(not has_multiplication(p)), 0)
    yield Limit("bits of an accumulator, short of 32", 32 - config(p).width("acc"), 0)
    yield from run_limits(p, len(AREAS) + len(NUMBERS), len(_sweep((1,), steps((0, 0), max(shift), 0, 0, 0), p).pairs))
    most, factors = common_factors(multiplier, shift)
    yield Limit("bits of a factor over the common power of two", max(factors).bit_length(), WIDEST)
    yield Limit("bits that a sum is shifted by", most, MOST)
    yield Limit(f"bits that a sum is shifted by, short of {LEAST}", max(LEAST - most, 0), 0)


def cost(*, shift: tuple[int, ...], p: Mapping[str, str], resources: Resources, rank: int, **sizes: Any) -> Cost:
    """Words of four bytes in, a byte out, and every ALU instruction once for each element."""
    m = _sweep([sizes[d] for d in RANKS[rank].split()], steps((0, 0), max(shift), 0, 0, 0), p)
    commands = UOP_BYTES * len(m.runs) * len(m.pairs) + INSTRUCTION_BYTES * len(m.runs) * (5 + len(m.program))
    numbers = len(m.runs) * len(NUMBERS) * m.element
    operand = m.count * m.element
    bytes_moved = {"x": operand + numbers, "z": operand, "y": m.count * m.design.scalars("inp"), "commands": commands}
    return Cost("alu", m.count * len(m.program), resources.link("host", "wgt").cycles_for(sum(bytes_moved.values())), bytes_moved)


def levels(*, shift: tuple[int, ...], p: Mapping[str, str], rank: int, **sizes: Any) -> Levels:
    """Operands are loaded; every ALU instruction reads its destination and its source, and writes the destination; a byte leaves."""
    m = _sweep([sizes[d] for d in RANKS[rank].split()], steps((0, 0), max(shift), 0, 0, 0), p)
    operand_bytes, sources = m.count * m.element, sum(isinstance(step.by, str) for step in m.program)
    return {
        "acc": {
            "x": (0, operand_bytes),
            "z": (0, operand_bytes),
            "y": (operand_bytes * (len(m.program) + sources + 1), operand_bytes * len(m.program)),
        }
    }


FACTORS: dict[str, Any] = {"multiplier": (11_184_811, 12_345_679), "shift": (24, 26), "zeros": (3, 100), "zero": 7, "low": 0, "high": 120}
APART: dict[str, Any] = {"multiplier": (8_388_608, 16_777_215), "shift": (40, 23), "zeros": (0, 0), "zero": 0, "low": 0, "high": 127}


def _declare(dtype: str, rank: int) -> None:
    dims = RANKS[rank]

    def quantized_add(
        x: Tensor, z: Tensor, multiplier: Ints, shift: Ints, zeros: Ints, zero: Int, low: Int, high: Int
    ) -> tuple[Tensor, Where]:  # fmt: skip
        """The codes of the sum of two tensors of codes, each with a scale and a zero point of its own."""
        y = o.quantized_add(x, z, multiplier=multiplier, shift=shift, zeros=zeros, zero=zero, low=low, high=high, to=dtype)
        return y, Where(x.rank == rank, HasType(x, (dtype,)), HasType(z, (dtype,)))

    f = function(quantized_add)
    f.__name__ = f"quantized_add_{dtype}_{rank}"
    is_signed = dtype == "int8"
    shapes = ((*(1,) * (rank - 1), 17), (3, 2, 5, 7)[:rank], (1, 3, 40, 80)[:rank])
    trials = [
        {**dict(zip(dims.split(), s, strict=True)), **attributes} for s, attributes in zip(shapes, (FACTORS, APART, FACTORS), strict=True)
    ]
    mapping = target.accelerates(
        axes=f"x: {dims}; z: {dims}; y: {dims}", formats={}, derived=dict.fromkeys("xzy", partial(Integers, 8, is_signed)),
        operation="alu", whole=dims, trials=trials,
    )(f)  # fmt: skip
    mapping.residency(no_rooms)
    mapping.limits(limits)
    mapping.levels(partial(levels, rank=rank))
    mapping.driver(partial(drive, rank=rank, signed=is_signed))
    mapping.numerics(codes)
    mapping.costs(partial(cost, rank=rank))


for _dtype, _rank in itertools.product(("int8", "uint8"), RANKS):
    _declare(_dtype, _rank)
