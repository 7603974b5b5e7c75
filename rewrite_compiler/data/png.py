"""PNG images of 1 to 16 bits a channel, interlaced or not; sizes are checked before anything is unpacked."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..errors import InputError
from ..ir.program import Data
from .image_budgets import ImageHeader, check_pixels
from .pillow import PNG, unfiltered

CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # by colour type
BITS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
PALETTE = 3
# the first row and column of each pass of an interlaced image, and the steps to the next ones
PASSES = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))
PAETH = 4  # the last kind of prediction


@dataclass(frozen=True)
class _Header:
    columns: int
    rows: int
    bits: int
    colour: int
    interlaced: int

    @property
    def channels(self) -> int:
        """Channels of a pixel."""
        return CHANNELS[self.colour]

    @property
    def passes(self) -> list[tuple[int, int, int, int]]:
        """The interlacing passes that have pixels: first row and column, row and column step."""
        candidates = PASSES if self.interlaced else ((0, 0, 1, 1),)
        return [p for p in candidates if p[0] < self.rows and p[1] < self.columns]

    def line(self, columns: int) -> int:
        """Return the bytes of a scanline of so many pixels."""
        return -(-columns * self.channels * self.bits // 8)


def png_header(raw: bytes) -> ImageHeader:
    """Return what a PNG declares; colours of a palette have three channels.

    Raises:
        InputError: the bytes are no PNG, damaged at once, or have too many pixels.
    """
    if not raw.startswith(PNG):
        raise InputError("C100", "the file is not a PNG, PGM or PPM image", help="convert it to PNG")
    h = _header(next((body for kind, body in _chunks(raw) if kind == b"IHDR"), b""))
    channels = 3 if h.colour == PALETTE else h.channels
    return ImageHeader(h.rows, h.columns, channels, np.dtype(np.uint16 if h.bits == 16 else np.uint8))


def decode_png(raw: bytes) -> Data:
    """Return an image [rows, columns, channels] of bytes, or of 16-bit words.

    Gray images of less than 8 bits a pixel are stretched to 0 … 255.

    Raises:
        InputError: the bytes are no PNG, damaged, or have too many pixels.
    """
    if not raw.startswith(PNG):
        raise InputError("C100", "the file is not a PNG, PGM or PPM image", help="convert it to PNG")
    header, palette, packed = b"", b"", []
    for kind, body in _chunks(raw):
        if kind == b"IHDR":
            header = body
        elif kind == b"PLTE":
            palette = body
        elif kind == b"IDAT":
            packed.append(body)
    h = _header(header)
    image = _image(h, b"".join(packed))
    if h.colour != PALETTE:
        return image * np.uint8(255 // ((1 << h.bits) - 1)) if h.bits < 8 else image
    colours = np.frombuffer(palette[: len(palette) // 3 * 3], np.uint8).reshape(-1, 3)
    if int(image.max(initial=0)) >= len(colours):
        raise InputError("C100", "the image names a colour that its palette does not have")
    return colours[image[:, :, 0]]


def _chunks(raw: bytes) -> Iterator[tuple[bytes, bytes]]:
    offset = len(PNG)
    while offset + 12 <= len(raw):
        (size,) = struct.unpack(">I", raw[offset : offset + 4])
        kind, body = raw[offset + 4 : offset + 8], raw[offset + 8 : offset + 8 + size]
        if raw[offset + 8 + size : offset + 12 + size] != struct.pack(">I", zlib.crc32(kind + body)):
            raise InputError("C100", f"the image is damaged at byte {offset}")
        if kind == b"IEND":
            return
        yield kind, body
        offset += 12 + size
    raise InputError("C100", f"the image is damaged at byte {offset}")


def _header(header: bytes) -> _Header:
    if len(header) != 13:
        raise InputError("C100", "the image has no header")
    columns, rows, bits, colour, _, _, interlaced = struct.unpack(">IIBBBBB", header)
    if bits not in BITS.get(colour, ()) or interlaced > 1:
        sentence = f"the image must be of a kind that PNG has, not of {bits} bits, colour type {colour}, interlacing {interlaced}"
        raise InputError("C100", sentence)
    check_pixels(rows, columns)
    return _Header(columns, rows, bits, colour, interlaced)


def _image(h: _Header, packed: bytes) -> Data:
    """Return the samples of all pixels [rows, columns, channels], pass by pass."""
    shapes = [(-(-(h.rows - y) // down), -(-(h.columns - x) // right)) for y, x, down, right in h.passes]
    data = _unpacked(packed, sum(rows * (1 + h.line(columns)) for rows, columns in shapes))
    image = np.empty((h.rows, h.columns, h.channels), np.uint16 if h.bits == 16 else np.uint8)
    offset, step = 0, max(1, h.channels * h.bits // 8)
    for (y, x, down, right), (rows, columns) in zip(h.passes, shapes, strict=True):
        size = rows * (1 + h.line(columns))
        lines = _unfiltered(data[offset : offset + size].reshape(rows, -1), step)
        image[y::down, x::right] = _numbers(lines, h.bits, columns * h.channels).reshape(rows, columns, h.channels)
        offset += size
    return image


def _numbers(lines: Data, bits: int, count: int) -> Data:
    """Return the samples of each scanline, of 1 to 16 bits, the first ones in the higher bits."""
    if bits == 8:
        return lines
    if bits == 16:
        return lines.reshape(len(lines), -1, 2) @ np.array([256, 1], np.uint16)
    digits = np.unpackbits(lines, axis=1).reshape(len(lines), -1, bits)
    return (digits @ (1 << np.arange(bits - 1, -1, -1, dtype=np.uint8)))[:, :count]


def _unpacked(packed: bytes, size: int) -> Data:
    """Return the decompressed bytes of all scanlines; never more than there must be."""
    try:
        data = zlib.decompressobj().decompress(packed, size + 1)
    except zlib.error:
        raise InputError("C100", "the image is damaged: its pixels cannot be unpacked") from None
    if len(data) != size:
        raise InputError("C100", f"the image must have {size} bytes, not {'more' if len(data) > size else len(data)}")
    return np.frombuffer(data, np.uint8)


def _unfiltered(lines: Data, depth: int) -> Data:
    """Undo the filter of each scanline: none, left, above, mean, or Paeth's."""
    if lines.size and lines[:, 0].max() > PAETH:
        raise InputError("C100", f"the image is damaged: there is no prediction {lines[:, 0].max()}")
    return unfiltered(lines[:, 0], lines[:, 1:], depth)
