"""Image folders: PNG, JPEG, PGM and PPM files as samples [rows, columns, channels], decoded on demand.

All but JPEG decode to the same bits everywhere, resized or not.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import FlexmatchError, InputError, UsageError
from ..intake import FileBound, open_bounded
from ..ir.program import Data
from ..limits import Limits
from .image_budgets import IMAGE_BYTES, ImageHeader, check_pixels, check_work, within_time
from .pillow import JPEG, decode_jpeg, decoder, jpeg_header
from .png import decode_png, png_header
from .resize import Size, cropped, cropped_sides, resized, resized_sides
from .stored_samples import StoredSamples, changed_error, file_stamp

JPEG_SUFFIXES = (".jpg", ".jpeg")
SUFFIXES = (".png", *JPEG_SUFFIXES, ".pgm", ".ppm")
FILE = FileBound("an image", IMAGE_BYTES, "make it smaller before", code="C101")
CHANNELS = ("RGB", "BGR", "L")
GRAY = np.array([19595, 38470, 7471], np.int64)  # of 2^16: what red, green and blue weigh (BT.601)
NETPBM = re.compile(rb"P([56])\s+(?:#[^\n]*\n\s*)*(\d{1,6})\s+(\d{1,6})\s+(\d{1,5})\s")


@dataclass(frozen=True)
class ImageFolder:
    """A folder of images, the order of their channels (RGB, BGR, or L for gray), and the sizes they are brought to."""

    folder: Path
    channels: str = "RGB"
    resize: Size = ()  # the shorter side, or rows and columns
    crop: Size = ()  # of the middle: one side, or rows and columns


@dataclass(frozen=True)
class Images(StoredSamples):
    """Image files, one a sample, with the pixels of each, and the size and modification time by which a change is noticed."""

    files: tuple[Path, ...]
    stamps: tuple[tuple[int, int], ...]
    pixels: tuple[int, ...]
    source: ImageFolder
    limits: Limits  # of one reading

    def read(self, indices: Data) -> Data:
        """Return images [samples, rows, columns, channels] by index.

        Raises:
            InputError: a file changed, or is no valid image.
            BudgetError: the images have more pixels together, or take longer to decode, than the limits allow.
        """
        numbers, place = indices.tolist(), str(self.source.folder)
        check_work(sum(self.pixels[k] for k in numbers), self.limits.data_pixels, len(numbers), place)
        images = np.empty((len(numbers), *self.shape[1:]), self.dtype)
        for n, k in enumerate(within_time(numbers, self.limits.data_seconds, place)):
            raw, stamp = _bytes(self.files[k])
            if stamp != self.stamps[k]:
                raise changed_error(self.files[k])
            images[n] = prepared_image(raw, self.files[k], self.source)
        return images


def _shape_text(shape: Sequence[int], dtype: np.dtype[Any]) -> str:
    return "×".join(map(str, shape)) + (" of 16 bits" if dtype.itemsize == 2 else "")


def read_images(source: ImageFolder, limits: Limits) -> tuple[Images, Data | None, str]:
    """Return the images of a folder by name, class labels when they lie in one folder a class, and the SHA-256 over all files.

    Raises:
        UsageError: there is no such folder.
        InputError: it has no images, or one is not valid at once, or differs from the first one in shape or depth.
    """
    if not source.folder.is_dir():
        raise UsageError("F101", "there is no such folder of images", place=str(source.folder))
    classes = sorted(p for p in source.folder.iterdir() if p.is_dir())
    groups = [_files(c) for c in classes] if classes else [_files(source.folder)]
    files = tuple(f for group in groups for f in group)
    if not files:
        raise InputError(
            "C100",
            f"the folder has no images ({', '.join(SUFFIXES)})",
            place=str(source.folder),
            help="put the images there, or in one folder a class",
        )
    labels = np.repeat(np.arange(len(groups)), [len(g) for g in groups]) if classes else None
    kinds, pixels, stamps, digest = list[_Kind](), list[int](), list[tuple[int, int]](), hashlib.sha256()
    for f in files:
        raw, stamp = _bytes(f)
        kind, count = _prepared_kind(raw, f, source)
        if kinds and kind != kinds[0]:
            sentence = f"all images must be {_shape_text(*kinds[0])}, as the first one, not {_shape_text(*kind)}"
            raise InputError("C100", sentence, place=str(f), help="a description can bring them to one size: resize = 256, crop = 224")
        kinds.append(kind)
        pixels.append(count)
        stamps.append(stamp)
        digest.update(f"{f.relative_to(source.folder)}\0".encode(errors="surrogateescape") + hashlib.sha256(raw).digest())
    if any(f.suffix.lower() in JPEG_SUFFIXES for f in files):
        digest.update(decoder().encode())
    (shape, dtype), *_ = kinds
    return Images((len(files), *shape), dtype, files, tuple(stamps), tuple(pixels), source, limits), labels, digest.hexdigest()


def _files(folder: Path) -> list[Path]:
    return sorted(f for f in folder.iterdir() if f.suffix.lower() in SUFFIXES and f.is_file())


_Kind = tuple[tuple[int, int, int], np.dtype[Any]]


def _prepared_kind(raw: bytes, file: Path, source: ImageFolder) -> tuple[_Kind, int]:
    """Return shape and type that `prepared_image` will have, and the pixels that are decoded for it."""
    try:
        header = _header(raw)
        rows, columns = header.rows, header.columns
        rows, columns = resized_sides((rows, columns), source.resize) if source.resize else (rows, columns)
        rows, columns = cropped_sides((rows, columns), source.crop) if source.crop else (rows, columns)
    except FlexmatchError as error:
        raise error.at(str(file)) from None
    return ((rows, columns, 1 if source.channels == "L" else 3), header.dtype), header.pixels


def _header(raw: bytes) -> ImageHeader:
    if raw.startswith(JPEG):
        return jpeg_header(raw)
    return _netpbm_header(raw)[0] if NETPBM.match(raw) else png_header(raw)


def prepared_image(raw: bytes, file: Path, source: ImageFolder) -> Data:
    """Return one decoded image [rows, columns, channels], resized, cropped and with its channels in order.

    Raises:
        InputError: the bytes are no valid image, or it is smaller than the crop.
    """
    try:
        image = _decoded(raw)
        image = resized(image, source.resize) if source.resize else image
        return _with_channels(cropped(image, source.crop) if source.crop else image, source.channels)
    except FlexmatchError as error:
        raise error.at(str(file)) from None


def _decoded(raw: bytes) -> Data:
    if raw.startswith(JPEG):
        return decode_jpeg(raw)
    return _netpbm(raw) if NETPBM.match(raw) else decode_png(raw)


def _bytes(file: Path) -> tuple[bytes, tuple[int, int]]:
    """Return the bytes of a file and its size and modification time."""
    with open_bounded(file, FILE) as image:
        return image.read(), file_stamp(image.fileno())


def _netpbm_header(raw: bytes) -> tuple[ImageHeader, int]:
    """Return what a PGM or PPM declares, and where its pixels start."""
    head = NETPBM.match(raw)
    assert head is not None
    columns, rows, most = (int(head[k]) for k in (2, 3, 4))
    depth = 3 if head[1] == b"6" else 1
    check_pixels(rows, columns)
    if most != 255 or len(raw) - head.end() != rows * columns * depth:
        sentence = f"the image must have {rows * columns * depth} bytes of 0 to 255, not {len(raw) - head.end()} of 0 to {most}"
        raise InputError("C100", sentence)
    return ImageHeader(rows, columns, depth, np.dtype(np.uint8)), head.end()


def _netpbm(raw: bytes) -> Data:
    header, start = _netpbm_header(raw)
    return np.frombuffer(raw, np.uint8, offset=start).reshape(header.rows, header.columns, header.channels)


def _with_channels(image: Data, channels: str) -> Data:
    """Return the channels in order: gray becomes three equal ones, colours become gray (BT.601), transparency is dropped."""
    depth = image.shape[2]
    if channels == "L":
        return image[:, :, :1] if depth < 3 else (image[:, :, :3] @ GRAY + (1 << 15) >> 16).astype(image.dtype)[:, :, None]
    colours = np.repeat(image[:, :, :1], 3, axis=2) if depth < 3 else image[:, :, :3]
    return colours[:, :, ::-1] if channels == "BGR" else colours
