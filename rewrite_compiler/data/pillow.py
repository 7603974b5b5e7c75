"""Decoding by Pillow: JPEG, where decoders differ in bits, so that the hash of the data names this one; and PNG line filters."""

from __future__ import annotations

import io
import re
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..errors import InputError
from ..ir.program import Data
from .image_budgets import ImageHeader, check_pixels

JPEG = b"\xff\xd8\xff"
PNG = b"\x89PNG\r\n\x1a\n"
SCAN, MAX_SCANNED = b"\xff\xda", 1 << 30  # the mark of a scan; pixels of all scans
MAX_SEGMENTS, MAX_FILL = 4096, 1024  # before the first scan, and bytes between two of them
FILL, ALONE = re.compile(rb"\xff+"), re.compile(rb"[\x01\xd0-\xd8]")  # a segment's mark follows; marks that no length follows
COLOURS = {1: 0, 2: 4, 3: 2, 4: 6}  # PNG's colour type by bytes of a pixel
STRIP = 1 << 24  # bytes that are given to Pillow at once


def jpeg_header(raw: bytes) -> ImageHeader:
    """Return what a JPEG declares: one channel when it is gray, else three.

    Raises:
        InputError: the bytes are no JPEG, or have too many pixels.
    """
    with _opened_jpeg(raw) as image:
        return _jpeg_header(raw, image)


def decode_jpeg(raw: bytes) -> Data:
    """Return an image [rows, columns, channels] of bytes: one channel when it is gray, else three.

    Raises:
        InputError: the bytes are no JPEG, damaged, or have too many pixels.
    """
    with _opened_jpeg(raw) as image:
        header = _jpeg_header(raw, image)
        pixels = np.asarray(image if image.mode == "L" else image.convert("RGB"))
    return pixels.reshape(header.rows, header.columns, header.channels)


def _jpeg_header(raw: bytes, image: Any) -> ImageHeader:
    check_pixels(image.height, image.width)
    header = ImageHeader(image.height, image.width, 1 if image.mode == "L" else 3, np.dtype(np.uint8), max(1, raw.count(SCAN)))
    if header.pixels > MAX_SCANNED:
        raise InputError("C101", f"the scans of an image must have at most {MAX_SCANNED} pixels, not {header.pixels}")
    return header


@contextmanager
def _opened_jpeg(raw: bytes) -> Iterator[Any]:
    """Open a JPEG with Pillow, whose errors become refusals."""
    from PIL import Image, UnidentifiedImageError

    _check_segments(raw)
    try:
        with Image.open(io.BytesIO(raw), formats=("JPEG",)) as image:
            yield image
    except UnidentifiedImageError:
        raise InputError("C100", "the file is not a JPEG image") from None
    except Image.DecompressionBombError:
        raise InputError("C101", "the image has far too many pixels") from None
    except (OSError, SyntaxError, ValueError) as error:
        raise InputError("C100", f"the image is damaged: {error}") from None


def _check_segments(raw: bytes) -> None:
    """Refuse what takes Pillow long to walk through, byte by byte, until it finds an image."""
    offset = len(JPEG) - 1
    for _ in range(MAX_SEGMENTS):
        fill = FILL.match(raw, offset)
        if fill is None:
            return  # which Pillow refuses
        if fill.end() - offset > MAX_FILL:
            break
        mark = raw[fill.end() : fill.end() + 1]
        if mark == SCAN[1:]:
            return
        offset = fill.end() + 1
        if ALONE.match(mark) is None:
            offset += max(2, int.from_bytes(raw[offset : offset + 2], "big"))
    sentence = f"the image is damaged: no scan of a JPEG comes within {MAX_SEGMENTS} segments, or {MAX_FILL} bytes behind one"
    raise InputError("C100", sentence)


def decoder() -> str:
    """Return name and versions of the JPEG decoder."""
    from PIL import __version__, features

    return f"Pillow {__version__}, libjpeg {features.version('jpg')}, libjpeg-turbo {features.version('libjpeg_turbo')}"


def unfiltered(kinds: Data, lines: Data, depth: int) -> Data:
    """Return PNG's scanlines [lines, bytes] with their filters undone; `depth` is the number of bytes of a pixel.

    Each byte is predicted from the same one of other pixels, so that pixels of six and eight bytes are two halves.
    """
    if not kinds.any():
        return lines
    pixels = lines.reshape(len(lines), -1, depth)
    restored, group = np.empty_like(pixels), depth if depth <= 4 else depth // 2
    step = max(1, STRIP // max(1, lines.shape[1]))
    for top in range(0, len(lines), step):
        rows = slice(top, top + step)
        for offset in range(0, depth, group):
            part = slice(offset, offset + group)
            previous_line = restored[top - 1 : top, :, part] if top else np.zeros_like(restored[:1, :, part])
            restored[rows, :, part] = _restored_strip(kinds[rows], previous_line, pixels[rows, :, part])
    return restored.reshape(lines.shape)


def _restored_strip(kinds: Data, previous_line: Data, pixels: Data) -> Data:
    """Return some scanlines with their filters undone, given the line above them."""
    from PIL import Image

    rows, columns, depth = pixels.shape
    scanlines = np.empty((rows + 1, 1 + columns * depth), np.uint8)
    scanlines[0, 0], scanlines[1:, 0] = 0, kinds
    scanlines[0, 1:], scanlines[1:, 1:] = previous_line.reshape(-1), pixels.reshape(rows, -1)
    header = struct.pack(">IIBBBBB", columns, rows + 1, 8, COLOURS[depth], 0, 0, 0)
    raw = PNG + _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(scanlines.tobytes(), 0)) + _chunk(b"IEND", b"")
    with Image.open(io.BytesIO(raw), formats=("PNG",)) as image:
        return np.asarray(image).reshape(rows + 1, columns, depth)[1:]


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
