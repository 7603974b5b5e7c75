"""PNG: 8-bit images without interlacing, decoded with numpy and zlib; sizes are checked before anything is unpacked."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

import numpy as np

from ..errors import InputError
from ..ir.program import Data

SIGNATURE = b"\x89PNG\r\n\x1a\n"
DEPTHS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # colour type → channels
MOST_BYTES = 1 << 28


def decode_png(raw: bytes) -> Data:
    """Return an image [rows, columns, channels]; InputError when it is none, or of a kind that is not read."""
    if not raw.startswith(SIGNATURE):
        raise InputError("C100", "the file is not a PNG, PGM or PPM image", help="convert it to PNG")
    header, palette, packed = b"", b"", []
    for kind, body in _chunks(raw):
        if kind == b"IHDR":
            header = body
        elif kind == b"PLTE":
            palette = body
        elif kind == b"IDAT":
            packed.append(body)
    columns, rows, colour = _header(header)
    depth = DEPTHS[colour]
    lines = _unpacked(b"".join(packed), rows * (1 + columns * depth)).reshape(rows, 1 + columns * depth)
    image = _unfiltered(lines, depth).reshape(rows, columns, depth)
    if colour != 3:
        return image
    colours = np.frombuffer(palette[: len(palette) // 3 * 3], np.uint8).reshape(-1, 3)
    if int(image.max(initial=0)) >= len(colours):
        raise InputError("C100", "the image names a colour that its palette does not have")
    return colours[image[:, :, 0]]


def _chunks(raw: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = len(SIGNATURE)
    while at + 12 <= len(raw):
        (size,) = struct.unpack(">I", raw[at : at + 4])
        kind, body = raw[at + 4 : at + 8], raw[at + 8 : at + 8 + size]
        if raw[at + 8 + size : at + 12 + size] != struct.pack(">I", zlib.crc32(kind + body)):
            raise InputError("C100", f"the image is damaged at byte {at}")
        if kind == b"IEND":
            return
        yield kind, body
        at += 12 + size
    raise InputError("C100", f"the image is damaged at byte {at}")


def _header(header: bytes) -> tuple[int, int, int]:
    if len(header) != 13:
        raise InputError("C100", "the image has no header")
    columns, rows, bits, colour, _, _, interlaced = struct.unpack(">IIBBBBB", header)
    if bits != 8 or colour not in DEPTHS or interlaced:
        raise InputError("C100", f"the image must have 8 bits a channel and no interlacing, not {bits} bits, interlacing {interlaced}")
    if not 0 < rows * columns * DEPTHS[colour] <= MOST_BYTES:
        raise InputError("C101", f"an image must have 1 to {MOST_BYTES} bytes, not {rows * columns * DEPTHS[colour]}")
    return columns, rows, colour


def _unpacked(packed: bytes, size: int) -> Data:
    """Return the bytes of all lines; never more than there must be."""
    try:
        data = zlib.decompressobj().decompress(packed, size + 1)
    except zlib.error:
        raise InputError("C100", "the image is damaged: its pixels cannot be unpacked") from None
    if len(data) != size:
        raise InputError("C100", f"the image must have {size} bytes, not {'more' if len(data) > size else len(data)}")
    return np.frombuffer(data, np.uint8)


def _unfiltered(lines: Data, depth: int) -> Data:
    above = np.zeros(lines.shape[1] - 1, np.uint8)
    found = np.empty((len(lines), lines.shape[1] - 1), np.uint8)
    for n, line in enumerate(lines):
        above = found[n] = _line(int(line[0]), line[1:], above, depth)
    return found


def _line(kind: int, x: Data, above: Data, depth: int) -> Data:
    """Undo one line's prediction: none, from the left, from above, from their mean, or Paeth's."""
    if kind == 0:
        return x
    if kind == 1:
        return np.cumsum(x.reshape(-1, depth), axis=0, dtype=np.uint8).reshape(-1)
    if kind == 2:
        return x + above
    if kind not in (3, 4):
        raise InputError("C100", f"the image is damaged: there is no prediction {kind}")
    out, up = bytearray(depth) + x.tobytes(), bytes(depth) + above.tobytes()
    for k in range(depth, len(out)):
        a, b, c = out[k - depth], up[k], up[k - depth]
        out[k] = (out[k] + ((a + b) // 2 if kind == 3 else _paeth(a, b, c))) & 255
    return np.frombuffer(bytes(out[depth:]), np.uint8)


def _paeth(a: int, b: int, c: int) -> int:
    """Return which of left, above and above left is nearest to a + b − c."""
    p = a + b - c
    distances = abs(p - a), abs(p - b), abs(p - c)
    return (a, b, c)[distances.index(min(distances))]
