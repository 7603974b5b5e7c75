"""Recognition of common formats that are not ONNX from their first bytes."""

from __future__ import annotations

import struct
from dataclasses import dataclass


@dataclass(frozen=True)
class FileFormat:
    """A file format: the offset and bytes of its signature, its description, and the remedy."""

    offset: int
    signature: bytes
    description: str
    help: str


_UNPACK = "unpack it and give the .onnx file inside"
_EXPORT = "export it to ONNX and give the .onnx file"
FILE_FORMATS = (
    FileFormat(0, b"\x1f\x8b", "gzip", _UNPACK),
    FileFormat(0, b"\xfd7zXZ\x00", "xz", _UNPACK),
    FileFormat(0, b"BZh", "bzip2", _UNPACK),
    FileFormat(0, b"\x28\xb5\x2f\xfd", "zstd", _UNPACK),
    FileFormat(0, b"7z\xbc\xaf\x27\x1c", "a 7z archive", _UNPACK),
    FileFormat(257, b"ustar", "a tar archive", _UNPACK),
    FileFormat(0, b"version https://git-lfs", "a Git LFS pointer", "run git lfs pull"),
    FileFormat(4, b"TFL3", "a TFLite model", _EXPORT),
    FileFormat(4, b"ORTM", "a model in onnxruntime's own format", "give the .onnx file it was made from"),
    FileFormat(0, b"\x89HDF\r\n", "an HDF5 file (Keras)", _EXPORT),
    FileFormat(0, b"GGUF", "a GGUF model", _EXPORT),
    FileFormat(0, b"\x93NUMPY", "a numpy array", "give the .onnx file; data goes to --data"),
    FileFormat(0, b"%PDF", "a PDF document", "give the .onnx file"),
    FileFormat(0, b"\x7fELF", "a program", "give the .onnx file"),
    FileFormat(0, b"\x89PNG", "an image", "give the .onnx file"),
)
_PICKLE = FileFormat(0, b"\x80", "a Python pickle (PyTorch)", _EXPORT)
_TORCH = FileFormat(0, b"PK\x03\x04", "a PyTorch archive", _EXPORT)
_ZIP = FileFormat(0, b"PK\x03\x04", "a zip archive", _UNPACK)
_SAFETENSORS = FileFormat(8, b"{", "a safetensors file", _EXPORT)
_HTML = FileFormat(0, b"<", "an HTML page", "the download failed; fetch the file itself")
_XML = FileFormat(0, b"<?xml", "XML text", "give the .onnx file")
_JSON = FileFormat(0, b"{", "JSON text", "give the .onnx file")
_TEXT = FileFormat(0, b"<", "ONNX in text form", "convert it with onnx.parser and give the .onnx file")


def recognised_format(data: bytes) -> FileFormat | None:
    """Return the other format that the first bytes identify, or None."""
    for kind in FILE_FORMATS:
        if data.startswith(kind.signature, kind.offset):
            return kind
    return _archive(data) or _text(data) or _binary(data)


def _archive(data: bytes) -> FileFormat | None:
    if not data.startswith(_ZIP.signature):
        return None
    return _TORCH if b"data.pkl" in data[:4096] else _ZIP


def _text(data: bytes) -> FileFormat | None:
    start = data[:512].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if start.startswith(b"<?xml"):
        return _XML
    if start.startswith(b"<") and b"ir_version" in start:
        return _TEXT
    if start.startswith((b"<!doctype", b"<html", b"<head", b"<body", b"<script")):
        return _HTML
    following = start[1:].lstrip()
    return _JSON if start[:1] in (b"{", b"[") and following[:1] in (b'"', b"{", b"[", b"}", b"]") else None


def _binary(data: bytes) -> FileFormat | None:
    if len(data) > 2 and data[0] == 0x80 and data[1] in range(2, 6) and (b"torch" in data[:4096] or data[2:3] in b"}](c\x95\x8a"):
        return _PICKLE
    if len(data) > 9 and data[8:9] == b"{" and 2 <= struct.unpack("<Q", data[:8])[0] <= len(data) - 8:
        return _SAFETENSORS
    return None
