"""Recognition of common formats that are not ONNX from their first bytes."""

from __future__ import annotations

import struct
from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """A file format: the offset and bytes of its signature, its description, and the remedy."""

    at: int
    mark: bytes
    what: str
    help: str


_UNPACK = "unpack it and give the .onnx file inside"
_EXPORT = "export it to ONNX and give the .onnx file"
KINDS = (
    Kind(0, b"\x1f\x8b", "gzip", _UNPACK),
    Kind(0, b"\xfd7zXZ\x00", "xz", _UNPACK),
    Kind(0, b"BZh", "bzip2", _UNPACK),
    Kind(0, b"\x28\xb5\x2f\xfd", "zstd", _UNPACK),
    Kind(0, b"7z\xbc\xaf\x27\x1c", "a 7z archive", _UNPACK),
    Kind(257, b"ustar", "a tar archive", _UNPACK),
    Kind(0, b"version https://git-lfs", "a Git LFS pointer", "run git lfs pull"),
    Kind(4, b"TFL3", "a TFLite model", _EXPORT),
    Kind(4, b"ORTM", "a model in onnxruntime's own format", "give the .onnx file it was made from"),
    Kind(0, b"\x89HDF\r\n", "an HDF5 file (Keras)", _EXPORT),
    Kind(0, b"GGUF", "a GGUF model", _EXPORT),
    Kind(0, b"\x93NUMPY", "a numpy array", "give the .onnx file; data goes to --data"),
    Kind(0, b"%PDF", "a PDF document", "give the .onnx file"),
    Kind(0, b"\x7fELF", "a program", "give the .onnx file"),
    Kind(0, b"\x89PNG", "an image", "give the .onnx file"),
)
_PICKLE = Kind(0, b"\x80", "a Python pickle (PyTorch)", _EXPORT)
_TORCH = Kind(0, b"PK\x03\x04", "a PyTorch archive", _EXPORT)
_ZIP = Kind(0, b"PK\x03\x04", "a zip archive", _UNPACK)
_SAFETENSORS = Kind(8, b"{", "a safetensors file", _EXPORT)
_HTML = Kind(0, b"<", "an HTML page", "the download failed; fetch the file itself")
_XML = Kind(0, b"<?xml", "XML text", "give the .onnx file")
_JSON = Kind(0, b"{", "JSON text", "give the .onnx file")
_TEXT = Kind(0, b"<", "ONNX in text form", "convert it with onnx.parser and give the .onnx file")


def disguise(data: bytes) -> Kind | None:
    """Return the other format that the first bytes identify, or None."""
    for kind in KINDS:
        if data.startswith(kind.mark, kind.at):
            return kind
    return _archive(data) or _text(data) or _binary(data)


def _archive(data: bytes) -> Kind | None:
    if not data.startswith(_ZIP.mark):
        return None
    return _TORCH if b"data.pkl" in data[:4096] else _ZIP


def _text(data: bytes) -> Kind | None:
    start = data[:512].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if start.startswith(b"<?xml"):
        return _XML
    if start.startswith(b"<") and b"ir_version" in start:
        return _TEXT
    if start.startswith((b"<!doctype", b"<html", b"<head", b"<body", b"<script")):
        return _HTML
    following = start[1:].lstrip()
    return _JSON if start[:1] in (b"{", b"[") and following[:1] in (b'"', b"{", b"[", b"}", b"]") else None


def _binary(data: bytes) -> Kind | None:
    if len(data) > 2 and data[0] == 0x80 and data[1] in range(2, 6) and (b"torch" in data[:4096] or data[2:3] in b"}](c\x95\x8a"):
        return _PICKLE
    if len(data) > 9 and data[8:9] == b"{" and 2 <= struct.unpack("<Q", data[:8])[0] <= len(data) - 8:
        return _SAFETENSORS
    return None
