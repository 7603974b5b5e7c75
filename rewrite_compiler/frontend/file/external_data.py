"""External data: weights beside the model, read only from regular files inside the model's folder."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from ...errors import InputError
from ...intake import remember_opened_file
from ...limits import Limits

EXTERNAL_KEYS = {"location", "offset", "length", "checksum"}


@dataclass(frozen=True)
class Region:
    """The location of a tensor's bytes: a path below the model's folder, an offset, and a length if the model gives one."""

    location: str
    offset: int
    length: int | None


def region_of(tensor: Any, subject: str) -> Region:
    """Return the region of a tensor's external data.

    Raises:
        InputError: an entry is unknown, duplicated, missing or malformed.
    """
    entries: dict[str, str] = {}
    for e in tensor.external_data:
        if e.key not in EXTERNAL_KEYS:
            raise InputError("F151", f'external data of {subject} must have the entries {", ".join(sorted(EXTERNAL_KEYS))}, not "{e.key}"')
        if e.key in entries:
            raise InputError("F151", f'external data of {subject} has the entry "{e.key}" twice')
        entries[e.key] = e.value
    if not entries.get("location"):
        raise InputError("F151", f"external data of {subject} names no file")
    length = _number(entries["length"], "length", subject) if entries.get("length") else None
    return Region(entries["location"], _number(entries.get("offset", "0") or "0", "offset", subject), length)


def _number(text: str, key: str, subject: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 19:
        raise InputError("F151", f'{key} of the external data of {subject} must be a number of bytes, not "{text}"')
    return int(text)


def read_region(region: Region, byte_count: int, folder: Path, subject: str, limits: Limits) -> bytes:
    """Return the bytes of a region; no file outside the folder is opened, and sizes are checked before reading.

    Raises:
        InputError: the location leaves the folder or is no regular file, or the file lacks the bytes or is over the limit.
    """
    parts = PurePosixPath(region.location).parts
    slashes = region.location.startswith("/") or region.location.endswith("/")
    if not parts or slashes or "\\" in region.location or ".." in parts or "\0" in region.location:
        raise InputError("F150", f'external data of {subject} must lie in the folder of the model, not at "{region.location}"')
    if region.length is not None and region.length != byte_count:
        raise InputError("F151", f"external data of {subject} must have {byte_count} bytes, not {region.length}")
    descriptor = _open_below(folder, parts, region.location, subject)
    try:
        size = os.fstat(descriptor).st_size
        if size > limits.model_bytes:  # all of it becomes part of the model's hash
            sentence = f'"{region.location}" with external data of {subject} must have at most {limits.model_bytes} bytes, not {size}'
            raise InputError("F105", sentence, help="raise --limits model_bytes=")
        if region.offset + byte_count > size:
            raise InputError(
                "F151",
                f'bytes {region.offset} to {region.offset + byte_count} of {subject} lie beyond the {size} bytes of "{region.location}"',
            )
        return _read_all(descriptor, byte_count, region, subject)
    finally:
        os.close(descriptor)


def _read_all(descriptor: int, byte_count: int, region: Region, subject: str) -> bytes:
    pieces, position = [], region.offset
    while position < region.offset + byte_count:
        piece = os.pread(descriptor, min(1 << 30, region.offset + byte_count - position), position)
        if not piece:
            raise InputError("F151", f'"{region.location}" became shorter while {subject} was read')
        pieces.append(piece)
        position += len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _open_below(folder: Path, parts: tuple[str, ...], location: str, subject: str) -> int:
    """Open a file below a folder component by component, following no symbolic link."""
    parent = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts[:-1]:
            child = _open_at(part, os.O_RDONLY | os.O_DIRECTORY, parent, location, subject)
            os.close(parent)
            parent = child
        descriptor = _open_at(parts[-1], os.O_RDONLY | os.O_NONBLOCK, parent, location, subject)
    finally:
        os.close(parent)
    _check_file(descriptor, location, subject)
    return descriptor


def _check_file(descriptor: int, location: str, subject: str) -> None:
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
        remember_opened_file(descriptor)
        return
    os.close(descriptor)
    if stat.S_ISREG(status.st_mode):
        raise InputError(
            "F150", f'external data of {subject} must be a file of its own; "{location}" has {status.st_nlink} names (hard links)'
        )
    raise InputError("F151", f'external data of {subject} must be a regular file; "{location}" is not')


def _open_at(name: str, flags: int, folder: int, location: str, subject: str) -> int:
    try:
        return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        raise InputError("F151", f'external data of {subject} is missing: "{location}"', help="put the file beside the model") from None
    except OSError as error:
        if _is_link(name, folder):
            raise InputError("F150", f'external data of {subject} must not go through a symbolic link: "{location}"') from None
        raise InputError(
            "F151", f'external data of {subject} cannot be read: "{location}" ({(error.strerror or "error").lower()})'
        ) from None


def _is_link(name: str, folder: int) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False
