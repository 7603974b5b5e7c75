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
from .image_budgets import IMAGE_BYTES, check_pixels, within_time
from .pillow import JPEG, decode_jpeg, decoder
from .png import decode_png
from .resize import Size, cropped, resized
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
    """Image files, one a sample, with the size and modification time by which a change is noticed."""

    files: tuple[Path, ...]
    stamps: tuple[tuple[int, int], ...]
    source: ImageFolder
    seconds: int  # that one reading may take

    def read(self, indices: Data) -> Data:
        """Return images [samples, rows, columns, channels] by index.

        Raises:
            InputError: a file changed, is no valid image, or differs from the first one in shape or depth.
            BudgetError: decoding takes longer than the limit.
        """
        images = np.empty((len(indices), *self.shape[1:]), self.dtype)
        for n, k in enumerate(within_time(indices.tolist(), self.seconds, str(self.source.folder))):
            images[n] = self._image(self.files[k], self.stamps[k])
        return images

    def _image(self, file: Path, stamp: tuple[int, int]) -> Data:
        raw, current_stamp = _bytes(file)
        if current_stamp != stamp:
            raise changed_error(file)
        image = prepared_image(raw, file, self.source)
        if (image.shape, image.dtype) != (self.shape[1:], self.dtype):
            expected, actual = _shape_text(self.shape[1:], self.dtype), _shape_text(image.shape, image.dtype)
            remedy = "a description can bring them to one size: resize = 256, crop = 224"
            raise InputError("C100", f"all images must be {expected}, as the first one, not {actual}", place=str(file), help=remedy)
        return image


def _shape_text(shape: Sequence[int], dtype: np.dtype[Any]) -> str:
    return "×".join(map(str, shape)) + (" of 16 bits" if dtype.itemsize == 2 else "")


def read_images(source: ImageFolder, limits: Limits) -> tuple[Images, Data | None, str]:
    """Return the images of a folder by name, class labels when they lie in one folder a class, and the SHA-256 over all files.

    Raises:
        UsageError: there is no such folder.
        InputError: it has no images, or the first one is not valid.
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
    first = prepared_image(_bytes(files[0])[0], files[0], source)
    labels = np.repeat(np.arange(len(groups)), [len(g) for g in groups]) if classes else None
    stamps, digest = list[tuple[int, int]](), hashlib.sha256()
    for f in files:
        raw, stamp = _bytes(f)
        stamps.append(stamp)
        digest.update(f"{f.relative_to(source.folder)}\0".encode(errors="surrogateescape") + hashlib.sha256(raw).digest())
    if any(f.suffix.lower() in JPEG_SUFFIXES for f in files):
        digest.update(decoder().encode())
    return Images((len(files), *first.shape), first.dtype, files, tuple(stamps), source, limits.data_seconds), labels, digest.hexdigest()


def _files(folder: Path) -> list[Path]:
    return sorted(f for f in folder.iterdir() if f.suffix.lower() in SUFFIXES and f.is_file())


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


def _netpbm(raw: bytes) -> Data:
    head = NETPBM.match(raw)
    assert head is not None
    columns, rows, most = (int(head[k]) for k in (2, 3, 4))
    depth = 3 if head[1] == b"6" else 1
    check_pixels(rows, columns)
    if most != 255 or len(raw) - head.end() != rows * columns * depth:
        sentence = f"the image must have {rows * columns * depth} bytes of 0 to 255, not {len(raw) - head.end()} of 0 to {most}"
        raise InputError("C100", sentence)
    return np.frombuffer(raw, np.uint8, offset=head.end()).reshape(rows, columns, depth)


def _with_channels(image: Data, channels: str) -> Data:
    """Return the channels in order: gray becomes three equal ones, colours become gray (BT.601), transparency is dropped."""
    depth = image.shape[2]
    if channels == "L":
        return image[:, :, :1] if depth < 3 else (image[:, :, :3] @ GRAY + (1 << 15) >> 16).astype(image.dtype)[:, :, None]
    colours = np.repeat(image[:, :, :1], 3, axis=2) if depth < 3 else image[:, :, :3]
    return colours[:, :, ::-1] if channels == "BGR" else colours
