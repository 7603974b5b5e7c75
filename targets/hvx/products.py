"""HVX's products of bytes: sums in lanes of 32 bits, kept or requantised by a power of two, as straight-line code.

Two rows by four vectors of columns are summed in registers, so that a vector of weights is used for both rows and a word of
four inputs for all four vectors. A row is made of segments of neighbouring bytes, which are loaded from where they lie; pair
shuffles bring each word of a vector into all lanes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from rewrite_compiler.ila_models.hvx.state import VECTOR
from rewrite_compiler.lang import Expr, Fixed, maximum, sat, shift_right
from rewrite_compiler.target import StreamedDevice, pad_axis, split_bytes, tile_count, word_sum

from .base import LANES, WORD, Codes, Parameters, Program, Work, place, results, set_registers

Formats = Mapping[str, Fixed]
ROWS, VECTORS = 2, 4  # a block: four vectors of sums are narrowed to one of codes
SUMS, WEIGHTS, SPREAD, NARROWED = 0, 8, (12, 22), (8, 9, 10)  # vector registers; the weights' hold results at the end
DISTANCES = (64, 32, 16, 8, 4)  # of the exchanges that spread a word; scalar registers 0 … 4
SHIFT, ZERO, X, W, BIAS, Y, BEFORE = 5, 6, 8, 10, 11, 12, 13  # scalar registers; those of an instruction of three sources are below 8
MOST_NARROWING = 15  # places that narrowing shifts words by; others are shifted before
LEAST, MOST = -8, 46  # places: shifted further to the left every sum but 0 saturates, further to the right every one is 0
SIGNED, UNSIGNED = "vrmpy_w_b_b_acc", "vrmpy_w_ub_b_acc"  # products that are added, by the type of the inputs


@dataclass(frozen=True)
class Product(Work):
    """The bytes of the inputs, the rows that are read from them, the segments of a row and their bytes, the columns.

    `code` is how many bytes hold the code, where that is apart. Results are codes, or with `keeps_sums` words as they are.
    """

    p: Parameters
    code: int
    inputs: int
    rows: int
    segments: int
    length: int
    columns: int
    keeps_sums: bool = False

    @property
    def segment_words(self) -> int:
        """Words of four inputs in a segment."""
        return tile_count(self.length, WORD)

    @property
    def words(self) -> int:
        """Words of four inputs in a row."""
        return self.segments * self.segment_words

    @property
    def vectors(self) -> int:
        """Vectors of columns."""
        return tile_count(self.columns, LANES)

    @property
    def blocks(self) -> list[int]:
        """The vectors of each block of columns."""
        return [min(VECTORS, self.vectors - at) for at in range(0, self.vectors, VECTORS)]

    @property
    def bands(self) -> list[range]:
        """The rows of each block."""
        return [range(at, min(at + ROWS, self.rows)) for at in range(0, self.rows, ROWS)]

    @property
    def loads(self) -> int:
        """Vectors of a row of inputs."""
        return self.segments * tile_count(self.segment_words, LANES)

    @property
    def instructions(self) -> int:
        """A bound on the instructions of the program."""
        blocks, bands = len(self.blocks), len(self.bands)
        once = blocks * self.rows * (self.segments + (1 + len(DISTANCES)) * self.loads + self.words + 7)
        each = self.vectors * (2 * self.rows + self.words * (self.rows + bands))
        return once + each + 2 * blocks * bands + len(DISTANCES) + 6

    @property
    def packets(self) -> int:
        """Each has one sum of products and, beside it, a load or a shuffle; the more numerous decide."""
        steps = [(len(band), count) for count in self.blocks for band in self.bands]
        sums_or_loads = sum(max(rows * count, rows + count) for rows, count in steps)
        return self.words * sums_or_loads + sum(rows * (count + self.loads + 4) for rows, count in steps)

    @property
    def program(self) -> Program:
        """The program; behind the inputs a vector of them may reach."""
        inputs, weights, blocks = tile_count(self.inputs, VECTOR) + 1, self.words * self.vectors, len(self.blocks)
        stored = self.rows * (self.vectors if self.keeps_sums else blocks)
        moved = {"x": blocks * self.rows * self.loads, "w": len(self.bands) * weights, "y": stored}
        vectors = {"x": inputs, "w": weights, "b": self.vectors, "y": stored}
        return Program(self.p, vectors, moved, self.instructions, self.packets, self.code)


def _by_block(m: Product, columns: Codes) -> Iterator[Codes]:
    """Yield columns [n, …] of each block as [vector, lane, …]: neighbours lie in the vectors of one lane."""
    whole = pad_axis(columns, 0, m.vectors * LANES)
    for n, count in enumerate(m.blocks):
        part = whole[n * VECTORS * LANES :][: count * LANES]
        yield part.reshape(LANES, count, *columns.shape[1:]).swapaxes(0, 1)


def _weight_bytes(m: Product, w: Codes) -> Codes:
    """Return weights [n, segment, byte] in the order in which they are loaded: block, word, vector, lane, byte."""
    whole = pad_axis(w, 2, m.segment_words * WORD).reshape(len(w), m.words, WORD)
    return split_bytes(np.concatenate([np.moveaxis(part, 2, 0).reshape(-1) for part in _by_block(m, whole)]))


def _bias_bytes(m: Product, b: Codes) -> Codes:
    return split_bytes(np.concatenate([part.reshape(-1) for part in _by_block(m, b)]), WORD)


def _shifts(f: Formats) -> tuple[int, int]:
    """Return by how many places sums are shifted right before they are narrowed, to the left where it is negative, and then."""
    places = min(max(f["x"].fraction + f["w"].fraction - f["y"].fraction, LEAST), MOST)
    narrowing = min(max(places, 0), MOST_NARROWING)
    return places - narrowing, narrowing


def set_constants(device: StreamedDevice, f: Formats, first: int) -> None:
    """Set the registers that sums are narrowed by, and the place of the first result."""
    before, narrowing = _shifts(f)
    set_registers(device, {SHIFT: narrowing, ZERO: 0, BEFORE: before, Y: first})


def multiply(
    device: StreamedDevice, m: Product, starts: Sequence[Sequence[int]], x: Codes, w: Codes, b: Codes, f: Formats, relu: bool = False,
    instruction: str = SIGNED,
) -> Codes:  # fmt: skip
    """Emit one product: x [(samples,) byte], w [n, segment, byte], b [n] → [(samples,) row, n], codes or sums.

    `starts` has the first byte of each segment of each row.
    """
    at = m.program.places
    place(device, m.program, x=split_bytes(x), w=_weight_bytes(m, w), b=_bias_bytes(m, b))
    set_registers(device, dict(enumerate(DISTANCES)))
    if m.keeps_sums:
        set_registers(device, {Y: at["y"]})
    else:
        set_constants(device, f, at["y"])
    for n, count in enumerate(m.blocks):
        set_registers(device, {BIAS: at["b"] + n * VECTORS * VECTOR})
        for band in m.bands:
            set_registers(device, {W: at["w"] + n * VECTORS * m.words * VECTOR})
            _sum(device, m, [[at["x"] + start for start in starts[row]] for row in band], count, instruction)
            for row in range(len(band)):
                (_keep if m.keeps_sums else partial(narrow, relu=relu))(device, row, count)
    return (_sums if m.keeps_sums else _columns)(m, results(device, m.program, WORD if m.keeps_sums else 1))


def _columns(m: Product, codes: Codes) -> Codes:
    """Return codes [(samples,) block, row, lane, vector], which are stored flat, as [(samples,) row, column]."""
    whole = codes.reshape(*codes.shape[:-1], len(m.blocks), m.rows, LANES, VECTORS)
    parts = [whole[..., n, :, :, :count].reshape(*codes.shape[:-1], m.rows, -1) for n, count in enumerate(m.blocks)]
    return np.concatenate(parts, -1)[..., : m.columns]


def _sums(m: Product, words: Codes) -> Codes:
    """Return sums [(samples,) block, row, vector, lane], which are stored flat, as [(samples,) row, column]."""
    lead, size, parts = words.shape[:-1], m.rows * VECTORS * LANES, list[Codes]()
    for n, count in enumerate(m.blocks):
        part = words[..., n * size :][..., : m.rows * count * LANES].reshape(*lead, m.rows, count, LANES)
        parts.append(np.swapaxes(part, -1, -2).reshape(*lead, m.rows, -1))
    return np.concatenate(parts, -1)[..., : m.columns]


def _sum(device: StreamedDevice, m: Product, band: Sequence[Sequence[int]], vectors: int, instruction: str) -> None:
    """Sum the products of a band of rows and a block of columns, from the bias on."""
    for row in range(len(band)):
        for vector in range(vectors):
            device.issue("vmem_load", vd=SUMS + row * VECTORS + vector, rt=BIAS, offset_low=vector)
    for segment in range(m.segments):
        for row, starts in enumerate(band):
            set_registers(device, {X + row: starts[segment]})
        for first in range(0, m.segment_words, LANES):
            _sum_vector(device, len(band), vectors, min(LANES, m.segment_words - first), instruction)


def _sum_vector(device: StreamedDevice, rows: int, vectors: int, words: int, instruction: str) -> None:
    """Add the products of the next vector of each row, of which some words count."""
    for row in range(rows):
        device.issue("vmemu_load_step", vd=SPREAD[row], rt=X + row, step=1)
    for spread in zip(*(_spread(device, SPREAD[row], SPREAD[row], words) for row in range(rows)), strict=True):
        for vector in range(vectors):
            device.issue("vmem_load_step", vd=WEIGHTS + vector, rt=W, step=1)
            for row, word in enumerate(spread):
                device.issue(instruction, vx=SUMS + row * VECTORS + vector, vu=word, vv=WEIGHTS + vector)


def _spread(device: StreamedDevice, base: int, source: int, count: int, level: int = 0) -> Iterator[int]:
    """Bring each of the first words of a vector into all lanes of a register, whose number is yielded, in order.

    An exchange of a vector with itself repeats its parts: those of even number in one register, those of odd number in the next.
    """
    if level == len(DISTANCES):
        yield source
        return
    pair = base + 2 * level
    device.issue("vshuff_r_pair", vdd=pair // 2, vu=source, vv=source, rt=level)
    half = DISTANCES[level] // WORD
    yield from _spread(device, base, pair, min(count, half), level + 1)
    if count > half:
        yield from _spread(device, base, pair + 1, count - half, level + 1)


def _keep(device: StreamedDevice, row: int, vectors: int) -> None:
    """Store the sums of a row."""
    for vector in range(vectors):
        device.issue("vmem_store_step", vs=SUMS + row * VECTORS + vector, rt=Y, step=1)


def narrow(device: StreamedDevice, row: int, vectors: int, relu: bool) -> None:
    """Requantise the sums of a row and store their codes: the vectors of a lane lie side by side."""
    registers = [SUMS + row * VECTORS + vector for vector in range(vectors)]
    even, odd, codes = NARROWED
    device.issue("vsplat_r", vd=even, rt=BEFORE)
    for register in registers:
        device.issue("vasr_w_w_w", vd=register, vu=register, vv=even)
    a, b, c, d = (registers[min(vector, vectors - 1)] for vector in range(VECTORS))
    device.issue("vasr_h_w_w_r_rnd_sat", vd=even, vu=c, vv=a, rt=SHIFT)
    device.issue("vasr_h_w_w_r_rnd_sat", vd=odd, vu=d, vv=b, rt=SHIFT)
    device.issue("vasr_b_h_h_r_rnd_sat", vd=codes, vu=odd, vv=even, rt=ZERO)
    if relu:
        device.issue("vsplat_r", vd=even, rt=ZERO)
        device.issue("vmax_b_b_b", vd=codes, vu=codes, vv=even)
    device.issue("vmem_store_step", vs=codes, rt=Y, step=1)


def requantised(total: Expr, f: Formats, relu: bool) -> Expr:
    """A sum that wraps at 32 bits, shifted, nearest, ties up, saturated to 16 bits, then to 8; with `relu` not below 0."""
    before, narrowing = _shifts(f)
    wrapped = word_sum(total)
    shifted = wrapped >> before if before >= 0 else word_sum(wrapped << -before)
    code = sat(sat(shift_right(shifted, narrowing, "half_up"), 16), 8)
    return maximum(code, 0) if relu else code
