"""Rows 1–17 and 81–92: files that are no model, and external data that is not what it should be."""

from __future__ import annotations

import gzip
import io
import os
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from bad_case import Case, Write, file, good, linear, proto

BYTES = good().SerializeToString()
ACCEL = ("--accel", "flexasr")
OF_LINES = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n"


def archive(kind: str) -> bytes:
    """Return the good model packed."""
    out = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(out, "w") as packed:
            packed.writestr("app.onnx", BYTES)
    else:
        with tarfile.open(fileobj=out, mode="w") as packed:
            entry = tarfile.TarInfo("app.onnx")
            entry.size = len(BYTES)
            packed.addfile(entry, io.BytesIO(BYTES))
    return out.getvalue()


def compiled(row: int, name: str, write: Write) -> Case:
    """Return a case whose file is compiled."""
    return Case(row, write, (name, *ACCEL))


def plain(row: int, **contents: bytes) -> dict[str, Case]:
    """Return cases of files with some bytes."""
    return {name: compiled(row, f"{name}.onnx", file(f"{name}.onnx", data)) for name, data in contents.items()}


def truncated(at: int) -> bytes:
    """Return the first bytes of the good model."""
    return BYTES[:at]


def sparse(folder: Path) -> None:
    """Make a file of 2 GiB that takes no space."""
    (folder / "huge.onnx").write_bytes(BYTES)
    os.truncate(folder / "huge.onnx", 1 << 31)


FILES: dict[str, Case] = {
    "missing": compiled(1, "missing.onnx", lambda folder: None),
    "directory": compiled(2, "folder.onnx", lambda folder: (folder / "folder.onnx").mkdir()),
    "pipe": compiled(3, "pipe.onnx", lambda folder: os.mkfifo(folder / "pipe.onnx")),
    "device": compiled(3, "/dev/zero", lambda folder: None),
    **plain(4, empty=b""),
    **plain(5, random=bytes(range(7, 256)) * 9),
    **plain(6, **{f"truncated_{at}": truncated(at) for at in (1, 20, len(BYTES) // 2, len(BYTES) - 1)}),
    **plain(7, json=b'{"nodes": [1]}'),
    **plain(8, gzip=gzip.compress(BYTES, mtime=0), zip=archive("zip"), tar=archive("tar")),
    **plain(9, pointer=OF_LINES),
    **plain(10, page=b"<!DOCTYPE html><html>404</html>"),
    **plain(11, length=b"\x08\x0a\x3a\xff\xff\xff\xff\x0f\x0a"),
    "huge": compiled(12, "huge.onnx", sparse),
    **plain(13, torch=b"\x80\x02}q\x00", tflite=b"\x1c\x00\x00\x00TFL3\x14\x00", safetensors=struct.pack("<Q", 2) + b"{}"),
    "escape": Case(14, lambda folder: None, ("a\x1b[31m\nb.onnx", *ACCEL)),
    "dash": Case(14, lambda folder: None, ("-app.onnx", *ACCEL)),
    "bytes": Case(14, lambda folder: None, (os.fsdecode(b"\xff\xfe.onnx"), *ACCEL)),
    "loop": compiled(15, "loop.onnx", lambda folder: (folder / "loop.onnx").symlink_to("loop.onnx")),
    "nowhere": Case(17, proto("small", linear), ("small.onnx", *ACCEL, "-o", "no/such/folder/plan")),
    "device_output": Case(17, proto("small", linear), ("small.onnx", *ACCEL, "-o", "/dev/full/plan")),
}

WEIGHTS = np.arange(24, dtype=np.float32).tobytes()
Trick = Callable[[Path], Any]


def external(*entries: tuple[str, str], trick: Trick = lambda folder: None, name: str = "external.onnx") -> Write:
    """Write a model whose weights are elsewhere, and then do something to its folder."""

    def write(folder: Path) -> None:
        made = good()
        tensor = made.graph.initializer[0]
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, where in entries or [("location", "weights.bin")]:
            tensor.external_data.add(key=key, value=where)
        (folder / name).write_bytes(made.SerializeToString())
        (folder / "weights.bin").write_bytes(WEIGHTS)
        trick(folder)

    return write


def linked(to: str) -> Trick:
    """Replace the weights by a symbolic link."""
    return lambda folder: ((folder / "weights.bin").unlink(), (folder / "weights.bin").symlink_to(to))


def replaced(by: Trick) -> Trick:
    """Replace the weights by something."""
    return lambda folder: ((folder / "weights.bin").unlink(), by(folder))


def at(where: str, **more: str) -> Write:
    """Write a model whose weights are said to be somewhere."""
    return external(("location", where), *more.items())


def beside(row: int, write: Write) -> Case:
    """Return a case of external data."""
    return compiled(row, "external.onnx", write)


EXTERNAL: dict[str, Case] = {
    "external_good": Case(81, external(name="external_good.onnx")),
    "external_parent": beside(82, at("../weights.bin")),
    "external_inner_parent": beside(82, at("a/../../weights.bin")),
    "external_absolute": beside(83, at("/etc/passwd")),
    "external_link": beside(84, external(trick=linked("../elsewhere.bin"))),
    "external_zero": beside(85, external(trick=linked("/dev/zero"))),
    "external_pipe": beside(86, external(trick=replaced(lambda folder: os.mkfifo(folder / "weights.bin")))),
    "external_second_name": beside(87, external(trick=lambda folder: os.link(folder / "weights.bin", folder / "second.bin"))),
    "external_missing": beside(88, external(trick=replaced(lambda folder: None))),
    "external_offset": beside(89, at("weights.bin", offset="1000")),
    "external_negative": beside(89, at("weights.bin", offset="-1")),
    "external_word": beside(89, at("weights.bin", offset="many")),
    "external_length": beside(90, at("weights.bin", length=str(1 << 40))),
    "external_environment": beside(91, at("/proc/self/environ")),
    "external_twice": beside(92, external(("location", "weights.bin"), ("location", "b"))),
    "external_dunder": beside(92, external(("location", "weights.bin"), ("__class__", "x"))),
}
