"""VTA's requantisation: int32 sums times a float32 factor, rounded, as int8 or uint8 codes, on the ALU alone.

A factor is an integer of 24 bits over a power of two. The ALU keeps 32 bits of a product, so sums and factors are cut into
parts of 12 bits: the products of parts, added from below with what each leaves, are the exact product. Sums are limited to
31 bits first, beyond which factors of 2⁻²¹ and more give an end of the range.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from rewrite_compiler import Tensor, Where
from rewrite_compiler import ops as o
from rewrite_compiler.ila_models.vta.config import Config
from rewrite_compiler.lang import Array, Expr, array, maximum, minimum, number_at
from rewrite_compiler.lang import Int as Integers
from rewrite_compiler.ops import HasType
from rewrite_compiler.rewrite import Int, Ints
from rewrite_compiler.target import Cost, Levels, Limit, Resources, StreamedDevice, low_bits, pad_axis, split_bytes

from .alu import INSTRUCTION_BYTES, RANKS, function, has_multiplication, reach, run_limits
from .base import UOP_BYTES, Codes, config, elements, micro_ops, no_rooms, target
from .results import Region, factors, fetch_words, grid, planes, store_bytes

PART = 12  # bits of a part of a product
LEAST, MOST = 25, 54  # bits that factors are shifted by: the last two shifts are by 1 … 30
SHIFT = 15  # the largest that every implementation takes
UPPER = 1 << 18  # the upper part of a sum lies in −UPPER … UPPER − 1
SUM, WHOLE, REST = "sum", "whole", "rest"  # areas of accumulators: the sum and its upper part, its lower part, what is carried
AREAS = (SUM, WHOLE, REST)
# numbers of each channel: both parts of its factor, what rounds, the last two shifts, the bounds of the upper part
HIGH, LOW, HALF, DOWN, MORE, TOP, BOTTOM = NUMBERS = ("high", "low", "half", "down", "more", "top", "bottom")
# micro-ops: where the destination is and where the source; an immediate has none
PAIRS = (
    (SUM, SUM), (WHOLE, WHOLE), (REST, REST), (WHOLE, SUM), (REST, SUM), (WHOLE, REST), (REST, WHOLE), (SUM, REST), (REST, LOW),
    (WHOLE, HIGH), (WHOLE, LOW), (SUM, HIGH), (SUM, HALF), (SUM, DOWN), (SUM, MORE),
    (SUM, TOP), (SUM, BOTTOM),
)  # fmt: skip


@dataclass(frozen=True)
class Step:
    """One ALU instruction on an area, with an immediate or with what stands elsewhere."""

    name: str
    area: str
    by: int | str

    @property
    def pair(self) -> int:
        """The number of its micro-op."""
        return PAIRS.index((self.area, self.by if isinstance(self.by, str) else self.area))


def copy_steps(area: str, source: str) -> list[Step]:
    """Return the steps that make an area equal to another one."""
    return [Step("alu_mul", area, 0), Step("alu_add", area, source)]


def steps(zero: int, low: int, high: int) -> list[Step]:
    """Return the ALU program: cut the sum in two, multiply the parts, add from below, round, limit."""
    return [
        *copy_steps(WHOLE, SUM), Step("alu_shr", SUM, PART), *copy_steps(REST, SUM), Step("alu_mul", REST, -(1 << PART)),
        Step("alu_add", WHOLE, REST), Step("alu_max", SUM, BOTTOM), Step("alu_min", SUM, TOP),
        *copy_steps(REST, WHOLE), Step("alu_mul", REST, LOW), Step("alu_shr", REST, PART),
        Step("alu_mul", WHOLE, HIGH), Step("alu_add", REST, WHOLE),
        *copy_steps(WHOLE, SUM), Step("alu_mul", WHOLE, LOW), Step("alu_add", REST, WHOLE), Step("alu_shr", REST, PART),
        Step("alu_mul", SUM, HIGH), Step("alu_add", SUM, REST), Step("alu_add", SUM, HALF), Step("alu_shr", SUM, DOWN),
        Step("alu_shr", SUM, MORE),
        Step("alu_add", SUM, zero), Step("alu_max", SUM, low), Step("alu_min", SUM, high),
    ]  # fmt: skip


STEPS = len(steps(0, 0, 0))


@dataclass(frozen=True)
class Sweep:
    """Sums in channels of so many accumulator elements, each with its factor, cut into runs that the buffer holds."""

    design: Config
    channels: int
    count: int

    @cached_property
    def runs(self) -> list[tuple[range, range]]:
        """Channels and elements of each run."""
        depth = reach(self.design)
        length = min(self.count, (depth - len(NUMBERS)) // len(AREAS))
        group_size = min(self.channels, depth // (len(AREAS) * length + len(NUMBERS)))
        cuts = [range(at, min(at + length, self.count)) for at in range(0, self.count, length)]
        groups = [range(c, min(c + group_size, self.channels)) for c in range(0, self.channels, group_size)]
        return [(group, part) for group in groups for part in cuts]

    @cached_property
    def programs(self) -> dict[tuple[int, int], list[int]]:
        """The micro-ops of every kind of run: channels and elements → words."""
        kinds = dict.fromkeys((len(channels), len(part)) for channels, part in self.runs)
        return {kind: self.words(*kind) for kind in kinds}

    def words(self, channels: int, length: int) -> list[int]:
        """Return the micro-ops of a run."""
        area = channels * length
        first = {name: n * area for n, name in enumerate(AREAS)}
        first |= {name: len(AREAS) * area + n * channels for n, name in enumerate(NUMBERS)}
        return [self.design.micro_op(first[a], first[b]) for a, b in PAIRS]

    @property
    def element(self) -> int:
        """Bytes of an accumulator element."""
        return int(self.design.scalars("acc") * planes(self.design))

    @property
    def places(self) -> dict[str, int]:
        """The first byte of the sums, of the channels' numbers, of the codes and of the micro-ops, and the end."""
        numbers = self.channels * self.count * self.element
        out = numbers + len(NUMBERS) * self.channels * self.element
        uop = elements(out + self.channels * self.count * self.design.scalars("inp"), UOP_BYTES) * UOP_BYTES
        end = uop + UOP_BYTES * sum(map(len, self.programs.values()))
        return {"acc": 0, "numbers": numbers, "out": out, "uop": uop, "end": end}


def _sweep(shape: Sequence[int], factors: int, p: Mapping[str, str]) -> Sweep:
    """Return the work on a tensor: its channels apart where each has its factor."""
    channels = shape[1] if factors > 1 else 1
    c = config(p)
    return Sweep(c, channels, elements(math.prod(shape) // channels, c.scalars("acc")))


def _factors(multiplier: Sequence[int], shift: Sequence[int]) -> list[tuple[int, int]]:
    """Return one pair where all are equal."""
    pairs = list(zip(multiplier, shift, strict=True))
    return pairs[:1] if len(set(pairs)) == 1 else pairs


def drive(
    device: StreamedDevice, x: Codes, *, multiplier: tuple[int, ...], shift: tuple[int, ...], zero: int, low: int, high: int,
    p: Mapping[str, str], rank: int, signed: bool,
) -> Codes:  # fmt: skip
    """Emit one requantisation: x [(samples,) a, channels, …] → codes of the same shape."""
    lead, shape = x.ndim - rank, x.shape[x.ndim - rank :]
    pairs = _factors(multiplier, shift)
    m = _sweep(shape, len(pairs), p)
    by_channel = np.moveaxis(x, lead + 1, lead).reshape(*x.shape[:lead], m.channels, -1)
    size, lanes = by_channel.shape[-1], m.design.scalars("acc")
    words = pad_axis(by_channel, -1, m.count * lanes)
    device.attach("dram", m.places["end"])
    device.place("dram", 0, split_bytes(words.reshape(*x.shape[:lead], -1), planes(m.design)))
    device.place("dram", m.places["numbers"], split_bytes(np.repeat(_numbers(pairs), lanes), planes(m.design)))
    device.place("dram", m.places["uop"], micro_ops(word for words in m.programs.values() for word in words))
    for channels, part in m.runs:
        _run(device, m, channels, part, steps(zero, low, high))
    results = fetch_words(device, m.design, m.places["out"], m.channels * m.count, 1)
    results = results.reshape(*results.shape[:-1], m.channels, -1)[..., :size]
    in_order = np.moveaxis(results.reshape(*results.shape[:-2], shape[1], shape[0], *shape[2:]), -rank, -rank + 1)
    return in_order if signed else low_bits(in_order, 8)


def _numbers(pairs: Sequence[tuple[int, int]]) -> Codes:
    """Return the numbers of all channels, one kind after the other."""
    last = [n - 2 * PART for _, n in pairs]
    kinds = {
        HIGH: [m >> PART for m, _ in pairs], LOW: [m % (1 << PART) for m, _ in pairs], HALF: [1 << (n - 1) for n in last],
        DOWN: [min(n, SHIFT) for n in last], MORE: [max(n - SHIFT, 0) for n in last],
        TOP: [UPPER - 1] * len(pairs), BOTTOM: [-UPPER] * len(pairs),
    }  # fmt: skip
    return np.array([kinds[name] for name in NUMBERS], np.int64).reshape(-1)


def _run(device: StreamedDevice, m: Sweep, channels: range, part: range, program: Sequence[Step]) -> None:
    """Load the sums of some channels and their numbers, work on all of them, store the codes."""
    kind, c = (len(channels), len(part)), m.design
    preceding = list(m.programs).index(kind)
    first = m.places["uop"] // UOP_BYTES + sum(len(words) for words in list(m.programs.values())[:preceding])
    device.issue("load_uop", dram_base=first, y_size=1, x_size=len(m.programs[kind]))
    device.issue("load_acc", dram_base=channels.start * m.count + part.start, y_size=kind[0], x_size=kind[1], x_stride=m.count)
    numbers = m.places["numbers"] // m.element + channels.start
    base = len(AREAS) * kind[0] * kind[1]
    device.issue("load_acc", sram_base=base, dram_base=numbers, y_size=len(NUMBERS), x_size=kind[0], x_stride=m.channels)
    loops = grid(*kind)
    for k, step in enumerate(program):
        is_last = k == len(program) - 1
        device.issue(step.name, uop_bgn=step.pair, uop_end=step.pair + 1, **loops, **_source(step, *kind), push_next=int(is_last))
    stored = m.places["out"] // c.scalars("inp") + channels.start * m.count + part.start
    store_bytes(device, c, Region(kind[0], kind[1], stored, m.count), loops, 0, 1)
    device.wait()


def _source(step: Step, channels: int, length: int) -> dict[str, int]:
    """Return what an instruction works with: an immediate, another area, or a number of each channel."""
    if isinstance(step.by, int):
        return {"use_imm": 1, "imm": step.by}
    if step.by in AREAS:
        return factors("src", channels > 1 and length, length > 1)
    return factors("src", channels > 1, 0)


def codes(
    x: Array, *, multiplier: tuple[int, ...], shift: tuple[int, ...], zero: int, low: int, high: int
) -> Array:  # fmt: skip
    """Each sum in two parts, the upper one of 16 bits, times a factor in two parts; nearest, ties up, limited to low … high."""
    pairs = _factors(multiplier, shift)

    def element(*i: Expr) -> Expr:
        place = i[1]
        numbers = dict(zip(NUMBERS, _numbers(pairs).reshape(len(NUMBERS), -1).tolist(), strict=True))
        upper, lower, half, down, more, top, bottom = (number_at(name, numbers[name], place) for name in NUMBERS)
        upper_part, lower_part = minimum(maximum(x[i] >> PART, bottom), top), x[i] % (1 << PART)
        carried = (upper_part * lower + (lower_part * upper + ((lower_part * lower) >> PART))) >> PART
        code = ((upper_part * upper + carried + half) >> down >> more) + zero
        return minimum(maximum(code, low), high)

    return array(element, x.shape)


def limits(multiplier: tuple[int, ...], shift: tuple[int, ...], p: Mapping[str, str]) -> Iterator[Limit]:
    """What factors the program is exact for, and what designs it runs on."""
    yield Limit("multiplications of the ALU", int(not has_multiplication(p)), 0)
    yield Limit("bits of an accumulator, short of 32", 32 - config(p).width("acc"), 0)
    yield from run_limits(p, len(AREAS) + len(NUMBERS), len(PAIRS))
    yield Limit("bits of a factor", max(multiplier).bit_length(), 2 * PART)
    yield Limit("bits that a factor is shifted by", max(shift), MOST)
    yield Limit(f"bits that a factor is shifted by, short of {LEAST}", max(LEAST - min(shift), 0), 0)


def cost(
    *, multiplier: tuple[int, ...], shift: tuple[int, ...], p: Mapping[str, str], resources: Resources, rank: int, **sizes: Any
) -> Cost:  # fmt: skip
    """Words of four bytes in, a byte out, and every ALU instruction once for each element."""
    m = _sweep([sizes[d] for d in RANKS[rank].split()], len(_factors(multiplier, shift)), p)
    work, lanes = m.channels * m.count, m.design.scalars("acc")
    commands = len(m.runs) * (len(PAIRS) * UOP_BYTES + (5 + STEPS) * INSTRUCTION_BYTES)
    numbers = sum(len(NUMBERS) * len(channels) for channels, _ in m.runs) * m.element
    bytes_moved = {"x": work * lanes * planes(m.design) + numbers, "y": work * lanes, "commands": commands}
    return Cost("alu", work * STEPS, resources.link("host", "wgt").cycles_for(sum(bytes_moved.values())), bytes_moved)


def levels(*, multiplier: tuple[int, ...], shift: tuple[int, ...], p: Mapping[str, str], rank: int, **sizes: Any) -> Levels:
    """Sums are loaded; every ALU instruction reads its destination and its source, and writes the destination; a byte leaves."""
    m = _sweep([sizes[d] for d in RANKS[rank].split()], len(_factors(multiplier, shift)), p)
    operand_bytes = m.channels * m.count * m.element
    sources = sum(isinstance(step.by, str) for step in steps(0, 0, 0))
    return {"acc": {"x": (0, operand_bytes), "y": (operand_bytes * (STEPS + sources + 1), operand_bytes * STEPS)}}


# -- the mappings: one an element type and rank

FACTOR = {"multiplier": (11_184_811,), "shift": (33,), "zero": 3, "low": 0, "high": 100}
EACH = {"multiplier": (8_388_608, 16_777_215, 12_345_679), "shift": (25, 54, 32), "zero": 0, "low": 0, "high": 127}


def _declare(dtype: str, rank: int) -> None:
    dims = RANKS[rank]

    def requantise(x: Tensor, multiplier: Ints, shift: Ints, zero: Int, low: Int, high: Int) -> tuple[Tensor, Where]:
        """The codes of int32 sums: a factor for all of them or one for each channel, nearest, limited."""
        y = o.requantize(x, multiplier=multiplier, shift=shift, axis=1, zero=zero, low=low, high=high, to=dtype)
        return y, Where(x.rank == rank, HasType(x, ("int32",)))

    made_for = function(requantise)
    made_for.__name__ = f"requantise_{dtype}_{rank}"
    is_signed = dtype == "int8"
    shapes = ((*(1,) * (rank - 1), 17), (3, 2, 5, 7)[:rank], (2, 3, 4, 5)[:rank], (1, 3, 60, 200)[:rank])
    trials = [
        {**dict(zip(dims.split(), shape, strict=True)), **(EACH if shape[1] == 3 else FACTOR)} for shape in shapes
    ]  # fmt: skip
    formats = {"x": partial(Integers, 32), "y": partial(Integers, 8, is_signed)}
    mapping = target.accelerates(axes=f"x: {dims}; y: {dims}", formats={}, derived=formats, operation="alu", whole=dims, trials=trials)(
        made_for
    )
    mapping.limits(limits)
    mapping.driver(partial(drive, rank=rank, signed=is_signed))
    mapping.numerics(codes)
    mapping.costs(partial(cost, rank=rank))
    mapping.residency(no_rooms)
    mapping.levels(partial(levels, rank=rank))


for _dtype in ("int8", "uint8"):
    for _rank in RANKS:
        _declare(_dtype, _rank)
