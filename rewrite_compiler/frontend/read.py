"""Read: the bytes of a model file, taken with care, parsed into ONNX's messages."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import InputError, UsageError
from ..limits import GIB, Limits
from .disguise import disguise
from .payload import cut
from .wire import damage

# the largest message protobuf can hold, whatever the limits say
LARGEST_MESSAGE = 2 * GIB


def read_model(path: Path, limits: Limits) -> tuple[Any, str]:
    """Return the parsed model and the sha256 of the file."""
    data = read_bytes(path, limits)
    return parse(data, str(path)), hashlib.sha256(data).hexdigest()


def read_apart(path: Path, limits: Limits) -> tuple[Any, Mapping[int, memoryview], str]:
    """Return the parsed model without the bytes of its large initializers, these by the initializers' numbers, and the file's sha256."""
    return _apart(read_bytes(path, limits), str(path))


def read_memory(data: bytes, place: str, limits: Limits) -> tuple[Any, Mapping[int, memoryview], str]:
    """Return what `read_apart` does, of a model's bytes in memory."""
    _check_size(len(data), place, limits)
    return _apart(data, place)


def _apart(data: bytes, place: str) -> tuple[Any, Mapping[int, memoryview], str]:
    apart = cut(data)
    return parse(apart.model, place, data), apart.payloads, hashlib.sha256(data).hexdigest()


def read_bytes(path: Path, limits: Limits) -> bytes:
    """Return the bytes of a regular file; one sentence when it is missing, not readable, empty, too large or changing."""
    place = str(path)
    try:
        _check_kind(os.stat(path).st_mode, place)
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        raise UsageError("F101", "there is no such file", place=place, help="check the path") from None
    except OSError as error:
        raise _unreadable(place, error) from None
    with os.fdopen(descriptor, "rb") as file:
        before = os.fstat(descriptor)
        _check_kind(before.st_mode, place)
        _check_size(before.st_size, place, limits)
        try:
            data = file.read(before.st_size + 1)
        except OSError as error:
            raise _unreadable(place, error) from None
        after = os.fstat(descriptor)
    if len(data) != before.st_size or (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
        raise InputError("F106", "the file changed while it was read", place=place, help="try again when it is complete")
    return data


def _unreadable(place: str, error: OSError) -> UsageError:
    reason = (error.strerror or type(error).__name__).lower()
    return UsageError("F100", f"the file cannot be read: {reason}", place=place)


_KINDS = {stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}


def _check_kind(mode: int, place: str) -> None:
    if stat.S_ISDIR(mode):
        raise UsageError("F100", "a model must be a file, not a directory", place=place, help="name the .onnx file in it")
    if not stat.S_ISREG(mode):
        raise UsageError("F100", f"a model must be a regular file, not {_KINDS.get(stat.S_IFMT(mode), 'something else')}", place=place)


def _check_size(size: int, place: str, limits: Limits) -> None:
    if size == 0:
        raise InputError("F102", "the file is empty", place=place)
    allowed = min(limits.model_bytes, limits.protobuf_bytes, LARGEST_MESSAGE - 1)
    if size > allowed:
        advice = (
            "save its weights as external data" if allowed == LARGEST_MESSAGE - 1 else "raise --limits model_bytes= and protobuf_bytes="
        )
        raise InputError("F105", f"a model file must have at most {allowed} bytes, not {size}", place=place, help=advice)


def parse(data: bytes, place: str, whole: bytes = b"") -> Any:
    """Return the model in some bytes, which are in the file as a whole; InputError says what they are when they are none."""
    whole = whole or data
    known = disguise(whole)
    if known is not None:
        raise InputError("F104", f"this is not an ONNX model but {known.what}", place=place, help=known.help)
    from onnx import ModelProto

    try:
        model = ModelProto.FromString(data)
    except Exception:  # protobuf's DecodeError
        raise damage(whole, place) from None
    if not model.HasField("graph"):
        raise InputError("F103", f"not an ONNX model: {len(whole)} bytes were read and there is no graph in them", place=place)
    return model
