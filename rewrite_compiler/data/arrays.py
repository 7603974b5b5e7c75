"""Untrusted .npz and .npy files: sizes are checked before anything is unpacked, pickled objects are never loaded."""

from __future__ import annotations

import hashlib
import lzma
import math
import os
import tokenize
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ..errors import InputError, UsageError
from ..intake import FileBound, check_size, open_bounded, remember_opened_file, unreadable_error
from ..ir.program import Data
from ..limits import Limits
from .stored_samples import StoredRows, file_stamp

SUFFIX = ".npy"
BLOCK = 1 << 20
MAX_ARRAYS, MEMBER_BYTES = 4096, 1 << 17  # of one archive; of names and other entries beside an array
RATIO_CHECK_BYTES, MAX_RATIO = 1 << 26, 100  # bytes from which on an array may not be more than so many times its packed size
_HEADERS: dict[tuple[int, int], Callable[..., Any]] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


@dataclass(frozen=True)
class Archive:
    """The arrays of one .npz file by name, and the sha256 of the file."""

    path: Path
    arrays: dict[str, Data]
    sha256: str


def read_npz(path: Path, limits: Limits) -> Archive:
    """Return all arrays of an .npz file.

    Raises:
        UsageError: the file is missing, not a regular file, or not readable.
        InputError: the archive is malformed, holds pickled objects, or is over the limits.
    """
    bound = FileBound("an .npz", limits.data_bytes, "raise --limits data_bytes=", code="C101")
    with open_bounded(path, bound) as file:
        try:
            arrays = _arrays(file, str(path), limits)
            file.seek(0)
            return Archive(path, arrays, hashlib.file_digest(file, "sha256").hexdigest())
        except OSError as error:
            raise unreadable_error(str(path), error) from None


def read_npy(path: Path, limits: Limits) -> tuple[StoredRows, str]:
    """Return the rows of an .npy file, read on demand, and the SHA-256 of the file.

    Raises:
        UsageError: the file is missing, not a regular file, or not readable.
        InputError: the header, the element type or the size is not valid or over the limits, or the array is column-major.
    """
    if not path.is_file():
        raise UsageError("F101", "data must be a regular file" if path.exists() else "there is no such file", place=str(path))
    name, place = path.stem, str(path)
    try:
        with path.open("rb") as file:
            remember_opened_file(file.fileno())
            stamp = file_stamp(file.fileno())
            check_size(stamp[0], FileBound("an .npy", limits.data_bytes, "raise --limits data_bytes=", code="C101"), place)
            shape, fortran, dtype = _header(file, name, place)
            _check_kind(dtype, name, place)
            if fortran and len(shape) > 1:
                raise InputError(
                    "C100", f'array "{name}" must be stored row by row', place=place, help="save numpy.ascontiguousarray of it"
                )
            expected, available, offset = math.prod(shape) * dtype.itemsize, stamp[0] - file.tell(), file.tell()
            if expected != available:
                raise InputError("C100", f'array "{name}" of shape {shape} must have {expected} bytes, not {available}', place=place)
            file.seek(0)
            return StoredRows(shape, dtype, path, offset, stamp), _digest(file)
    except OSError as error:
        raise UsageError("F100", f"the file cannot be read: {(error.strerror or str(error)).lower()}", place=place) from None


def _digest(file: BinaryIO) -> str:
    total = hashlib.sha256()
    while block := file.read(BLOCK):
        total.update(block)
    return total.hexdigest()


def _arrays(file: BinaryIO, place: str, limits: Limits) -> dict[str, Data]:
    if not zipfile.is_zipfile(file):
        raise InputError("C100", "the file is not an .npz archive", place=place, help="write it with numpy.savez")
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            _check_members(members, place, limits)
            _check_size(members, os.fstat(file.fileno()).st_size, place)
            return {m.filename.removesuffix(SUFFIX): _array(archive, m, place) for m in members}
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise InputError("C100", f"the .npz archive is damaged: {error}", place=place) from None
    except OSError as error:  # bz2 has no error of its own
        if error.errno is not None:
            raise
        raise InputError("C100", f"the .npz archive is damaged: {error}", place=place) from None


def _check_members(members: list[zipfile.ZipInfo], place: str, limits: Limits) -> None:
    names = [m.filename for m in members]
    if len(names) > MAX_ARRAYS:
        raise InputError("C101", f"the .npz archive must have at most {MAX_ARRAYS} arrays, not {len(names)}", place=place)
    ordered = sorted(names)
    duplicate = next((n for n, following in pairwise(ordered) if n == following), None)
    if duplicate is not None:
        raise InputError("C100", f'the .npz archive has two arrays called "{duplicate.removesuffix(SUFFIX)}"', place=place)
    foreign = next((n for n in names if not n.endswith(SUFFIX)), None)
    if foreign is not None:
        raise InputError("C100", f'the .npz archive must hold arrays only, not "{foreign}"', place=place)
    total = sum(m.file_size for m in members)
    if total > limits.data_bytes:
        raise InputError(
            "C101", f"arrays must take at most {limits.data_bytes} bytes, not {total}", place=place, help="raise --limits data_bytes="
        )
    bomb = next((m for m in members if m.file_size > max(RATIO_CHECK_BYTES, MAX_RATIO * m.compress_size)), None)
    if bomb is not None:
        name, packed = bomb.filename.removesuffix(SUFFIX), bomb.compress_size
        sentence = f'array "{name}" must unpack to at most {MAX_RATIO} times its packed {packed} bytes, not {bomb.file_size}'
        raise InputError("C101", sentence, place=place, help="when the data are right, save them with numpy.savez, which does not pack")


def _check_size(members: list[zipfile.ZipInfo], size: int, place: str) -> None:
    """Refuse an archive with excess bytes besides its arrays, or an excessive compression ratio."""
    allowed = sum(m.compress_size + MEMBER_BYTES for m in members) + MEMBER_BYTES
    if size > allowed:
        raise InputError("C101", f"the .npz archive must have at most {allowed} bytes for its arrays, not {size}", place=place)
    total, most = sum(m.file_size for m in members), max(RATIO_CHECK_BYTES, MAX_RATIO * size)
    if total > most:
        sentence = f"the .npz archive must unpack to at most {most} bytes, not {total}"
        raise InputError("C101", sentence, place=place, help="when the data are right, save them with numpy.savez, which does not pack")


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo, place: str) -> Data:
    name = member.filename.removesuffix(SUFFIX)
    with archive.open(member) as file:
        shape, fortran, dtype = _header(file, name, place)
        _check_kind(dtype, name, place)
        expected, available = math.prod(shape) * dtype.itemsize, member.file_size - file.tell()
        if expected != available:
            raise InputError("C100", f'array "{name}" of shape {shape} must have {expected} bytes, not {available}', place=place)
        data = file.read(expected)
    if len(data) != expected:
        raise InputError("C100", f'array "{name}" of shape {shape} must have {expected} bytes, not {len(data)}', place=place)
    array = np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C")
    return array.astype(dtype.newbyteorder("="), copy=False)


def _check_kind(dtype: np.dtype[Any], name: str, place: str) -> None:
    if dtype.hasobject:
        raise InputError("C101", f'array "{name}" holds pickled objects, which are never loaded', place=place)
    if dtype.kind not in "biuf":
        raise InputError("C100", f'array "{name}" must hold numbers, not {dtype}', place=place)


def _header(file: Any, name: str, place: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    try:
        read = _HEADERS.get(np.lib.format.read_magic(file))
        if read is None:
            raise ValueError("its format version is newer than 2.0")
        shape, fortran, dtype = read(file)
    except (ValueError, SyntaxError, TypeError, tokenize.TokenError, RecursionError, MemoryError, OverflowError) as error:
        message = str(error).splitlines()[0] if str(error) and isinstance(error, ValueError) else ""
        reason = message if message and " at 0x" not in message else "its header cannot be read"
        raise InputError("C100", f'array "{name}" is not in numpy\'s format: {reason}', place=place) from None
    if any(n < 0 for n in shape):
        raise InputError("C100", f'array "{name}" must have no negative extent, not {shape}', place=place)
    return shape, fortran, dtype
