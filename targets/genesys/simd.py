"""GeneSys's SIMD programs: tiles of images in both vector memories, nests of one operation each over their rows.

A row holds a block of channels of one position. A tile is some blocks of one image and some rows of results: the first operand
lies in the first memory; numbers of the channels, a second operand, and the results of windows lie in the second one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from rewrite_compiler.ila_models.genesys import Config
from rewrite_compiler.ila_models.genesys.words import SIMD, SPACES
from rewrite_compiler.target import Cost, Limit, Resources, StreamedDevice, join_bytes, pad_axis, split_bytes

from .base import Codes, blocks
from .program import BITS, WORD, Emitter, Word, issue, load, nest, store

FIRST, SECOND = "VMEM1", "VMEM2"
MOST_ROWS = 16_383  # of a transfer, whose bytes a lane have 16 bits
AT_ONCE = 3  # inner loops of a nest whose rows are worked on at once


@dataclass(frozen=True)
class Operand:
    """Rows of a space: the first one, and how many rows further each loop of a nest goes; of scalars, one."""

    space: str
    row: int = 0
    strides: tuple[int, ...] = ()


@dataclass(frozen=True)
class Nest:
    """One operation inside of loops, outermost first."""

    name: str
    counts: tuple[int, ...]
    target: Operand
    a: Operand
    b: Operand


def scalar(n: int) -> Operand:
    """Return one of the scalars."""
    return Operand("IMM", n)


@dataclass(frozen=True)
class Sweep:
    """Work on images [samples, blocks of channels, rows, columns], what stands around them counted.

    `program` has the nests of a tile of so many blocks and rows of results; `bounds` are limits of its own.
    """

    design: Config
    samples: int
    blocks: int
    size: tuple[int, int]
    kernel: tuple[int, int] = (1, 1)
    strides: tuple[int, int] = (1, 1)
    operands: int = 1
    numbers: int = 0  # of a channel
    is_apart: bool = False  # whether results have rows of their own: else they lie where the first operand did
    program: Callable[[Sweep, int, int], list[Nest]] = lambda m, group, band: []
    bounds: tuple[Limit, ...] = ()

    @property
    def out(self) -> tuple[int, int]:
        """Rows and columns of results."""
        rows, cols = ((n - k) // s + 1 for n, k, s in zip(self.size, self.kernel, self.strides, strict=True))
        return rows, cols

    def image_rows(self, band: int) -> int:
        """Return how many rows of an image so many rows of results need."""
        return (band - 1) * self.strides[0] + self.kernel[0]

    def needs(self, group: int, band: int) -> tuple[int, int]:
        """Return the rows of both memories that so many blocks and rows of results need."""
        image = self.image_rows(band) * self.size[1]
        return group * image, group * (self.numbers + (self.operands - 1) * image + (band * self.out[1] if self.is_apart else 0))

    @property
    def depth(self) -> int:
        """Rows of a memory that a tile can use."""
        return min(self.design.vmem_depth, MOST_ROWS)

    @cached_property
    def tile(self) -> tuple[int, int]:
        """Blocks of channels and rows of results: all rows of as many blocks as fit, else as many rows as fit of one."""
        group = next((n for n in range(self.blocks, 0, -1) if max(self.needs(n, self.out[0])) <= self.depth), 1)
        return group, next((n for n in range(self.out[0], 1, -1) if max(self.needs(group, n)) <= self.depth), 1)

    @property
    def groups(self) -> list[range]:
        """The blocks of channels of each group."""
        return [range(at, min(at + self.tile[0], self.blocks)) for at in range(0, self.blocks, self.tile[0])]

    @property
    def tiles(self) -> list[tuple[range, int, range]]:
        """Blocks, image, and rows of results of each tile."""
        rows, band = self.out[0], self.tile[1]
        bands = [range(at, min(at + band, rows)) for at in range(0, rows, band)]
        return [(group, n, band) for group in self.groups for n in range(self.samples) for band in bands]

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return WORD * self.design.lanes

    @property
    def image_bytes(self) -> int:
        """Bytes of one operand."""
        return self.row_bytes * self.samples * self.blocks * math.prod(self.size)

    @property
    def places(self) -> dict[str, int]:
        """The first byte of the numbers and of the results, behind the operands, and the end."""
        numbers = self.operands * self.image_bytes
        out = numbers + self.row_bytes * self.blocks * self.numbers
        return {"numbers": numbers, "out": out, "end": out + self.row_bytes * self.samples * self.blocks * math.prod(self.out)}

    def limits(self) -> Iterator[Limit]:
        """Yield what a tile of one block and one row of results needs, and the limits of its own."""
        for label, rows in zip(("vector rows of the first memory", "vector rows of the second memory"), self.needs(1, 1), strict=True):
            yield Limit(label, rows, self.depth)
        yield Limit("blocks and images of the port in bytes", self.places["end"], (1 << 31) - 1)
        yield from self.bounds

    def cost(self, resources: Resources) -> Cost:
        """Return the cycles of the work, one a row of each nest, and the bytes that tiles move."""
        steps = commands = 0
        moved = dict.fromkeys(("x", "z")[: self.operands], 0)
        for group, _, band in self.tiles:
            nests = self.program(self, len(group), len(band))
            steps += sum(math.prod(each.counts) for each in nests)
            rows = len(group) * self.image_rows(len(band)) * self.size[1]
            moved = {name: size + rows * self.row_bytes for name, size in moved.items()}
            commands += len(group) * self.numbers * self.row_bytes + WORD * sum(8 + 9 * len(each.counts) for each in nests)
        moved |= {"y": self.places["end"] - self.places["out"], "commands": commands}
        return Cost("simd", steps, resources.link("host", "vmem1").cycles_for(sum(moved.values())), moved)

    # -- operands of nests: over all rows of a tile, or over taps, rows, columns and blocks

    def image(self, group: int) -> Operand:
        """Return the first operand under each tap: loops are both taps, rows, columns and blocks."""
        line, (down, right) = self.size[1] * group, self.strides
        return Operand(FIRST, 0, (line, group, down * line, right * group, 1))

    def result_row(self, group: int, band: int) -> int:
        """Return the first row of results in the second memory, where they are apart."""
        return group * (self.numbers + (self.operands - 1) * self.image_rows(band) * self.size[1])

    def result(self, group: int) -> Operand:
        """Return the results of windows."""
        return Operand(SECOND, self.numbers * group, (0, 0, self.out[1] * group, group, 1))

    def of_taps(self, group: int) -> Operand:
        """Return the numbers of channels by taps."""
        return Operand(SECOND, 0, (self.kernel[1] * group, group, 0, 0, 1))

    def of_channels(self, n: int, group: int) -> Operand:
        """Return a number of every channel."""
        return Operand(SECOND, n * group, (0, 0, 0, 0, 1))

    def over_windows(self, group: int, band: int, *, taps: bool) -> tuple[int, ...]:
        """Return the loops over windows, once or for each tap."""
        return (*(self.kernel if taps else (1, 1)), band, self.out[1], group)


def flat(space: str, row: int = 0) -> Operand:
    """Return all rows of a tile, one after the other."""
    return Operand(space, row, (1,))


@lru_cache(maxsize=256)
def spread(design: Config, size: int) -> tuple[int, int]:
    """Return rows and columns of an image of one block that holds so many elements: what has no channels fills all lanes."""
    return blocks(size, design.lanes), 1


# -- emitting


def run(
    device: StreamedDevice, m: Sweep, tensors: Sequence[Codes], *, numbers: Codes | None = None, scalars: Sequence[int] = (),
    fraction: int = 0,
) -> Codes:  # fmt: skip
    """Emit the work on tensors [(samples,) n, c, i, j] with their numbers [number, c]; return results [(samples,) n, c, u, v]."""
    device.attach("dram_simd", m.places["end"])
    for n, x in enumerate(tensors):
        device.place("dram_simd", n * m.image_bytes, _port_bytes(x, m))
    if numbers is not None:
        device.place("dram_simd", m.places["numbers"], _number_bytes(numbers, m))
    tiles = m.tiles
    for n, (group, image, band) in enumerate(tiles):
        nests = m.program(m, len(group), len(band))
        issue(device, _tile_words(m, group, image, band, nests, scalars, fraction))
        device.issue("block_end", last=int(n == len(tiles) - 1))
    device.wait()
    found = device.fetch("dram_simd", m.places["out"], m.places["end"] - m.places["out"])
    return _results(join_bytes(found.reshape(*found.shape[:-1], -1, WORD)), m)[..., : tensors[0].shape[-3], :, :]


def _port_bytes(x: Codes, m: Sweep) -> Codes:
    """Return images as the port holds them: group by group, image by image, position by position."""
    lead, lanes = x.shape[:-4], m.design.lanes
    whole = pad_axis(x, -3, m.blocks * lanes).reshape(*lead, m.samples, m.blocks, lanes, *m.size)
    rows = np.moveaxis(whole, (-4, -3), (-2, -1))
    parts = [rows[..., group.start : group.stop, :].reshape(*lead, -1) for group in m.groups]
    return split_bytes(np.concatenate(parts, axis=-1), WORD)


def _number_bytes(numbers: Codes, m: Sweep) -> Codes:
    whole = pad_axis(numbers, 1, m.blocks * m.design.lanes).reshape(len(numbers), m.blocks, -1)
    return split_bytes(np.concatenate([whole[:, group.start : group.stop].reshape(-1) for group in m.groups]), WORD)


def _results(words: Codes, m: Sweep) -> Codes:
    lead, at, parts = words.shape[:-1], 0, []
    for group in m.groups:
        size = m.samples * math.prod(m.out) * len(group) * m.design.lanes
        rows = words[..., at : at + size].reshape(*lead, m.samples, *m.out, len(group), m.design.lanes)
        parts.append(np.moveaxis(rows, (-2, -1), (-4, -3)))
        at += size
    whole = np.concatenate(parts, axis=-4)
    return whole.reshape(*lead, m.samples, -1, *m.out)


def _tile_words(
    m: Sweep, group: range, image: int, band: range, nests: Sequence[Nest], scalars: Sequence[int], fraction: int
) -> list[Word]:
    e, size, row = Emitter(), len(group), m.row_bytes
    rows = size * m.image_rows(len(band)) * m.size[1]
    first = row * (group.start * m.samples * math.prod(m.size) + size * m.size[1] * (image * m.size[0] + band.start * m.strides[0]))
    e.emit("sync_inst", unit=SIMD, phase=0)
    e.emit("dtype_cfg", dst=BITS - fraction, src1=BITS - fraction, src2=BITS - fraction)
    for n, value in enumerate(scalars):
        for half, name in enumerate(("set_imm_low", "set_imm_high")):
            e.emit(name, index=n, immediate=value >> 16 * half & 0xFFFF)
    _move(e, "ld", FIRST, first, 0, rows)
    if m.numbers:
        _move(e, "ld", SECOND, m.places["numbers"] + row * group.start * m.numbers, 0, m.numbers * size)
    if m.operands > 1:
        _move(e, "ld", SECOND, m.image_bytes + first, m.numbers * size, rows)
    for each in nests:
        _nest(e, each)
    area = math.prod(m.out)
    stored = group.start * m.samples * area + size * (image * area + band.start * m.out[1])
    at = (SECOND, m.result_row(size, len(band))) if m.is_apart else (FIRST, 0)
    _move(e, "st", at[0], m.places["out"] + row * stored, at[1], size * len(band) * m.out[1])
    e.emit("sync_inst", unit=SIMD, phase=1)
    return e.words


def _move(e: Emitter, side: str, space: str, address: int, row: int, rows: int) -> None:
    e.halves(f"{side}_config_base_addr", address, space=SPACES[space])
    (load if side == "ld" else store)(e, space, [], WORD * rows, row)


def _nest(e: Emitter, n: Nest) -> None:
    """Append a nest: every operand has an iterator for each loop; outer loops of one iteration are left out."""
    inner = len(n.counts) - AT_ONCE
    kept = [level for level, count in enumerate(n.counts) if count > 1 or level >= inner]
    operands = {"dst": n.target, "src1": n.a, "src2": n.b}
    levels = []
    for level in kept:
        names: dict[str, int] = {}
        for k, (role, operand) in enumerate(operands.items()):
            place, stride = {"space": SPACES[operand.space], "index": 8 * k + level}, (*operand.strides, *(0,) * 8)[level]
            e.emit("base_zerofill", **place, immediate=operand.row)
            e.emit("stride_zerofill", **place, immediate=stride)
            names |= {f"{role}_space": place["space"], f"{role}_index": place["index"]}
        levels.append((n.counts[level], names))
    nest(e, levels, n.name, levels[-1][1])
