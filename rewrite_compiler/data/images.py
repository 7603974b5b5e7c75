"""Images: folders of PNG, PGM and PPM files as samples [rows, columns, channels] of bytes, decoded when they are taken.

Both kinds have one meaning, bit for bit. JPEG has not: decoders differ; convert such images once.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..errors import FlexmatchError, InputError, UsageError
from ..ir.program import Data
from .png import decode_png
from .stored import Stored

SUFFIXES = (".png", ".pgm", ".ppm")
CHANNELS = ("RGB", "BGR", "L")
NETPBM = re.compile(rb"P([56])\s+(?:#[^\n]*\n\s*)*(\d{1,6})\s+(\d{1,6})\s+(\d{1,5})\s")


@dataclass(frozen=True)
class ImageFolder:
    """Where images lie, and in which order their channels go: RGB, BGR, or L for gray ones."""

    folder: Path
    channels: str = "RGB"


@dataclass(frozen=True)
class Images(Stored):
    """Image files, one a sample."""

    files: tuple[Path, ...]
    channels: str

    def read(self, indices: Data) -> Data:
        """Return some images; InputError names a file that is no such image, or has other sizes than the first one."""
        found = np.empty((len(indices), *self.shape[1:]), np.uint8)
        for n, k in enumerate(indices):
            found[n] = self._one(self.files[k])
        return found

    def _one(self, file: Path) -> Data:
        image = decoded(file, self.channels)
        if image.shape != self.shape[1:]:
            wanted, given = ("×".join(map(str, s)) for s in (self.shape[1:], image.shape))
            raise InputError("C100", f"all images must be {wanted}, as the first one, not {given}", place=str(file))
        return image


def read_images(source: ImageFolder) -> tuple[Images, Data | None, str]:
    """Return the images of a folder by name, the classes when they lie in one folder a class, and the hash of all files."""
    if not source.folder.is_dir():
        raise UsageError("F101", "there is no such folder of images", place=str(source.folder))
    classes = sorted(p for p in source.folder.iterdir() if p.is_dir())
    groups = [_files(c) for c in classes] if classes else [_files(source.folder)]
    files = tuple(f for group in groups for f in group)
    if not files:
        raise InputError("C100", f"the folder has no images ({', '.join(SUFFIXES)})", place=str(source.folder), help=_help(source.folder))
    shape = decoded(files[0], source.channels).shape
    labels = np.repeat(np.arange(len(groups)), [len(g) for g in groups]) if classes else None
    digest = hashlib.sha256()
    for f in files:
        digest.update(f"{f.relative_to(source.folder)}\0".encode(errors="surrogateescape") + hashlib.sha256(_bytes(f)).digest())
    return Images((len(files), *shape), np.dtype(np.uint8), files, source.channels), labels, digest.hexdigest()


def _files(folder: Path) -> list[Path]:
    return sorted(f for f in folder.iterdir() if f.suffix.lower() in SUFFIXES and f.is_file())


def _help(folder: Path) -> str:
    others = sorted({f.suffix.lower() for f in folder.rglob("*") if f.is_file()})
    jpeg = "JPEG decoders differ in bits; convert the images to PNG once" if {".jpg", ".jpeg"} & set(others) else ""
    return jpeg or "put the images there, or in one folder a class"


def decoded(file: Path, channels: str = "RGB") -> Data:
    """Return one image [rows, columns, channels]."""
    raw = _bytes(file)
    try:
        image = _netpbm(raw) if NETPBM.match(raw) else decode_png(raw)
        return _arranged(image, channels)
    except FlexmatchError as error:
        raise error.at(str(file)) from None


def _bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise UsageError("F100", f"the file cannot be read: {(error.strerror or str(error)).lower()}", place=str(file)) from None


def _netpbm(raw: bytes) -> Data:
    head = NETPBM.match(raw)
    assert head is not None
    columns, rows, most = (int(head[k]) for k in (2, 3, 4))
    depth = 3 if head[1] == b"6" else 1
    if most != 255 or len(raw) - head.end() != rows * columns * depth:
        said = f"the image must have {rows * columns * depth} bytes of 0 to 255, not {len(raw) - head.end()} of 0 to {most}"
        raise InputError("C100", said)
    return np.frombuffer(raw, np.uint8, offset=head.end()).reshape(rows, columns, depth)


def _arranged(image: Data, channels: str) -> Data:
    """Return the channels in their order: gray becomes three equal ones, transparency is dropped."""
    depth = image.shape[2]
    if channels == "L":
        if depth > 2:
            raise InputError("C100", "the image must be gray", help='or say channels = "RGB"')
        return image[:, :, :1]
    colours = np.repeat(image[:, :, :1], 3, axis=2) if depth < 3 else image[:, :, :3]
    return colours[:, :, ::-1] if channels == "BGR" else colours
