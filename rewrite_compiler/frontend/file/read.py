"""Model files as parsed ONNX messages; size and kind are checked before parsing."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ... import intake
from ...errors import InputError
from ...limits import GIB, Limits
from .not_onnx import recognised_format
from .protobuf_scan import parse_refusal
from .weight_payloads import split_payloads

# the largest message protobuf can hold, whatever the limits say
LARGEST_MESSAGE = 2 * GIB
MODEL = intake.FileBound("a model", LARGEST_MESSAGE - 1, folder_help="name the .onnx file in it")


def read_model(path: Path, limits: Limits) -> tuple[Any, str]:
    """Return the parsed model and the SHA-256 of the file."""
    data = read_bytes(path, limits)
    return parse_model(data, str(path)), hashlib.sha256(data).hexdigest()


def read_split(path: Path, limits: Limits) -> tuple[Any, Mapping[int, memoryview], str]:
    """Return the parsed model without large initializers' bytes, these by initializer index, and the file's SHA-256."""
    return _parse_split(read_bytes(path, limits), str(path))


def read_split_memory(data: bytes, place: str, limits: Limits) -> tuple[Any, Mapping[int, memoryview], str]:
    """Parse a model's bytes in memory: the model without large initializers' bytes, these by index, and the SHA-256."""
    _check_size(len(data), place, limits)
    return _parse_split(data, place)


def _parse_split(data: bytes, place: str) -> tuple[Any, Mapping[int, memoryview], str]:
    split = split_payloads(data)
    return parse_model(split.model, place, data), split.payloads, hashlib.sha256(data).hexdigest()


def read_bytes(path: Path, limits: Limits) -> bytes:
    """Return the bytes of a regular, non-empty file within the limits.

    Raises:
        UsageError: the file is missing, not a regular file, or not readable.
        InputError: the file is empty, too large, or changed while it was read.
    """
    data = intake.read_bytes(path, _bound(limits))
    _check_size(len(data), str(path), limits)
    return data


def _bound(limits: Limits) -> intake.FileBound:
    allowed = min(limits.model_bytes, limits.protobuf_bytes, LARGEST_MESSAGE - 1)
    advice = "save its weights as external data" if allowed == LARGEST_MESSAGE - 1 else "raise --limits model_bytes= and protobuf_bytes="
    return replace(MODEL, bytes=allowed, help=advice)


def _check_size(size: int, place: str, limits: Limits) -> None:
    if size == 0:
        raise InputError("F102", "the file is empty", place=place)
    intake.check_size(size, _bound(limits), place)


def parse_model(data: bytes, place: str, file_bytes: bytes = b"") -> Any:
    """Parse a model; the second bytes are the whole file's where `data` lacks large weights.

    Raises:
        InputError: the bytes are another format, malformed protobuf, or a message without a graph.
    """
    file_bytes = file_bytes or data
    other_format = recognised_format(file_bytes)
    if other_format is not None:
        raise InputError("F104", f"this is not an ONNX model but {other_format.description}", place=place, help=other_format.help)
    from onnx import ModelProto

    try:
        model = ModelProto.FromString(data)
    except Exception:  # protobuf's DecodeError
        raise parse_refusal(file_bytes, place) from None
    if not model.HasField("graph"):
        raise InputError("F103", f"not an ONNX model: {len(file_bytes)} bytes were read and there is no graph in them", place=place)
    return model
