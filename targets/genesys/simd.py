"""GeneSys's SIMD array: programs of nests on tiles of images in both vector memories.

A row holds a block of channels of one position. A tile is some blocks of one image and some rows of results: the first operand
lies in the first memory; numbers of the channels, a second operand, and results that are apart lie in the second one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rewrite_compiler.ila_models.genesys import Config
from rewrite_compiler.ila_models.genesys.programs import ELEMENT_BITS, Nest, Operand, Program, Word
from rewrite_compiler.ila_models.genesys.words import SIMD
from rewrite_compiler.target import Cost, Limit, Resources, StreamedDevice, join_bytes, pad_axis, split_bytes, window_counts

from .base import WORD, Codes

FIRST, SECOND = "VMEM1", "VMEM2"
MOST_ROWS = 16_383  # of a transfer, whose bytes a lane have 16 bits


@dataclass(frozen=True)
class Sweep:
    """Work on images [samples, blocks of channels, rows, columns], what stands around them counted.

    A line of `program` says what a nest of a tile runs over, its operation, where results go, and two sources: "taps max y y x".
    It runs over all `rows` of the images, over these and the `channels` blocks of each, over `windows`, or over these and their `taps`.
    Places are the operands `x` and `z`, results `y`, `w` with a number for each tap and channel, `n0` … with one for each channel,
    and scalars `s0` …; `bounds` are limits of its own.
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
    program: tuple[str, ...] = ()
    bounds: tuple[Limit, ...] = ()

    @property
    def out(self) -> tuple[int, int]:
        """Rows and columns of results."""
        return window_counts(self.size, self.kernel, self.strides)

    def image_rows(self, band: int) -> int:
        """Return how many rows of an image so many rows of results need."""
        return (band - 1) * self.strides[0] + self.kernel[0]

    def result_row(self, group: int, band: int) -> int:
        """Return the first row of results in the second memory, where they are apart."""
        return group * (self.numbers + (self.operands - 1) * self.image_rows(band) * self.size[1])

    def needs(self, group: int, band: int) -> tuple[int, int]:
        """Return the rows of both memories that so many blocks and rows of results need."""
        results = group * band * self.out[1] if self.is_apart else 0
        return group * self.image_rows(band) * self.size[1], self.result_row(group, band) + results

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
    def places(self) -> dict[str, int]:
        """The first byte of a second operand, of the numbers and of the results, and the end."""
        image, results = (self.row_bytes * self.samples * self.blocks * math.prod(size) for size in (self.size, self.out))
        numbers = self.operands * image
        out = numbers + self.row_bytes * self.blocks * self.numbers
        return {"z": image, "numbers": numbers, "out": out, "end": out + results}

    def limits(self) -> Iterator[Limit]:
        """Yield what a tile of one block and one row of results needs, and the limits of its own."""
        for label, rows in zip(("first", "second"), self.needs(1, 1), strict=True):
            yield Limit(f"vector rows of the {label} memory", rows, self.depth)
        yield Limit("blocks and images of the port in bytes", self.places["end"], (1 << 31) - 1)
        yield from self.bounds

    def cost(self, resources: Resources) -> Cost:
        """Return the cycles of the work, one a row of each nest, and the bytes that tiles move."""
        steps = commands = images = 0
        for group, _, band in self.tiles:
            nests = self.nests(len(group), len(band))
            steps += sum(math.prod(each.counts) for each in nests)
            images += len(group) * self.image_rows(len(band)) * self.size[1] * self.row_bytes
            commands += len(group) * self.numbers * self.row_bytes + WORD * sum(8 + 9 * len(each.counts) for each in nests)
        moved = dict.fromkeys(("x", "z")[: self.operands], images)
        moved |= {"y": self.places["end"] - self.places["out"], "commands": commands}
        return Cost("simd", steps, resources.link("host", "vmem1").cycles_for(sum(moved.values())), moved)

    def nests(self, group: int, band: int) -> list[Nest]:
        """Return the nests of a tile of so many blocks and rows of results, whose loops are those of the taps, rows, columns, blocks."""
        line, (down, right), rows = self.size[1] * group, self.strides, self.image_rows(band) * self.size[1]
        windows = (band, self.out[1], group)
        counts = {"rows": (rows * group,), "channels": (rows, group), "windows": (1, 1, *windows), "taps": (*self.kernel, *windows)}
        image, numbers, results = (line, group, down * line, right * group, 1), (0, 0, 0, 0, 1), (0, 0, self.out[1] * group, group, 1)

        def operand(name: str, loops: int) -> Operand:
            n = int(name[1:] or 0)
            space, row, strides = {
                "x": (FIRST, 0, image),
                "z": (SECOND, self.numbers * group, image),
                "y": (SECOND, self.result_row(group, band), results),
                "w": (SECOND, 0, (self.kernel[1] * group, group, *numbers[2:])),
                "n": (SECOND, n * group, numbers),
                "s": ("IMM", n, ()),
            }[name[0]]
            return Operand(space, row, strides[-loops:])

        def nest(over: str, name: str, *places: str) -> Nest:
            return Nest(name, counts[over], *(operand(place, len(counts[over])) for place in places))

        return [nest(*line.split()) for line in self.program]


def run(
    device: StreamedDevice, m: Sweep, tensors: Sequence[Codes], *, numbers: Codes | None = None, scalars: Sequence[int] = (),
    fraction: int = 0,
) -> Codes:  # fmt: skip
    """Emit the work on tensors [(samples,) n, c, i, j] with their numbers [number, c]; return results [(samples,) n, c, u, v]."""
    device.attach("dram_simd", m.places["end"])
    for n, x in enumerate(tensors):
        device.place("dram_simd", n * m.places["z"], _port_bytes(x, m, m.samples))
    if numbers is not None:
        device.place("dram_simd", m.places["numbers"], _port_bytes(numbers.T[None, :, :, None], m, 1))
    tiles = m.tiles
    for n, tile in enumerate(tiles):
        for name, fields in _tile_words(m, *tile, scalars, fraction):
            device.issue(name, **fields)
        device.issue("block_end", last=int(n == len(tiles) - 1))
    device.wait()
    found = device.fetch("dram_simd", m.places["out"], m.places["end"] - m.places["out"])
    return _results(join_bytes(found.reshape(*found.shape[:-1], -1, WORD)), m)[..., : tensors[0].shape[-3], :, :]


def _port_bytes(x: Codes, m: Sweep, samples: int) -> Codes:
    """Return images as the port holds them: group by group, image by image, position by position."""
    lead, lanes = x.shape[:-4], m.design.lanes
    whole = pad_axis(x, -3, m.blocks * lanes).reshape(*lead, samples, m.blocks, lanes, *x.shape[-2:])
    rows = np.moveaxis(whole, (-4, -3), (-2, -1))
    parts = [rows[..., group.start : group.stop, :].reshape(*lead, -1) for group in m.groups]
    return split_bytes(np.concatenate(parts, axis=-1), WORD)


def _results(words: Codes, m: Sweep) -> Codes:
    lead, rows, lanes = words.shape[:-1], m.samples * math.prod(m.out), m.design.lanes
    parts = np.split(words, [rows * group.stop * lanes for group in m.groups[:-1]], axis=-1)
    images = [np.moveaxis(part.reshape(*lead, m.samples, *m.out, -1, lanes), (-2, -1), (-4, -3)) for part in parts]
    return np.concatenate(images, axis=-4).reshape(*lead, m.samples, -1, *m.out)


def _tile_words(m: Sweep, group: range, image: int, band: range, scalars: Sequence[int], fraction: int) -> list[Word]:
    p, size, row = Program(), len(group), m.row_bytes
    moved = WORD * size * m.image_rows(len(band)) * m.size[1]
    first = row * (group.start * m.samples * math.prod(m.size) + size * m.size[1] * (image * m.size[0] + band.start * m.strides[0]))
    p.begin(SIMD)
    p.emit("dtype_cfg", **dict.fromkeys(("dst", "src1", "src2"), ELEMENT_BITS - fraction))
    for n, value in enumerate(scalars):
        p.emit("set_imm_low", index=n, immediate=value & 0xFFFF)
        p.emit("set_imm_high", index=n, immediate=value >> 16 & 0xFFFF)
    p.move("ld", FIRST, moved, address=first)
    if m.numbers:
        p.move("ld", SECOND, WORD * m.numbers * size, address=m.places["numbers"] + row * group.start * m.numbers)
    if m.operands > 1:
        p.move("ld", SECOND, moved, address=m.places["z"] + first, row=m.numbers * size)
    for nest in m.nests(size, len(band)):
        p.nest(nest)
    area = math.prod(m.out)
    stored = m.places["out"] + row * (group.start * m.samples * area + size * (image * area + band.start * m.out[1]))
    space, at = (SECOND, m.result_row(size, len(band))) if m.is_apart else (FIRST, 0)
    p.move("st", space, WORD * size * len(band) * m.out[1], address=stored, row=at)
    p.end(SIMD)
    return p.words
