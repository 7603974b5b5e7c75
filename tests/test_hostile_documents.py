"""Documents that commands read by a name: sparse gigabytes are refused unread, and a hostile mebibyte of each kind is answered soon."""

from __future__ import annotations

import os
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from command import flexmatch, perceptron, samples
from pace import within_steps

from rewrite_compiler.compile.document import SCHEMA, read_plan
from rewrite_compiler.cosim.journal import Journal
from rewrite_compiler.data import load_data
from rewrite_compiler.disk_cache import DiskCache, user_key
from rewrite_compiler.errors import FlexmatchError
from rewrite_compiler.ir.types import TensorType
from rewrite_compiler.rewrite.text_file import rules_of_file

GIB, MEBIBYTE = 1 << 30, 1 << 20
GEMM = ("map", "gemm:m=2,n=2,k=2", "--arch")
# name of the file → the command that reads it
COMMANDS: dict[str, tuple[str, ...]] = {
    "layer.json": ("map", "layer.json", "--arch", "edge"),
    "arch.toml": (*GEMM, "arch.toml"),
    "arch.json": (*GEMM, "arch.json"),
    "limits.json": (*GEMM, "edge", "--constraints", "limits.json"),
    "mapping.json": (*GEMM, "edge", "--mapping", "mapping.json"),
    "mapping.txt": (*GEMM, "edge", "--mapping", "mapping.txt"),
    "found.json": ("explain", "found.json"),
    "report.json": ("show", "report.json"),
    "old.json": ("show", "compare", "old.json", "old.json"),
    "plan.json": ("show", "plan.json"),
    "new.onnx": ("diff", "flexasr", "vta", "new.onnx"),
    "mine.py": ("diff", "flexasr", "./mine.py", "app.onnx"),
    "law.py": ("compile", "app.onnx", "--accel", "flexasr", "--rules", "law.py"),
    "trace.jsonl": ("emit", "asm", "trace.jsonl", "--accel", "flexasr"),
    "x.npz": ("cosim", "app.onnx", "--accel", "flexasr", "--data", "x.npz"),
    "x.toml": ("cosim", "app.onnx", "--accel", "flexasr", "--data", "x.toml"),
    "score.py": ("cosim", "app.onnx", "--accel", "flexasr", "--data", "d.npz", "--metric", "score.py:score"),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    onnx.save(perceptron((4, 3)), "app.onnx")
    return tmp_path


def sparse(file: Path, size: int) -> Path:
    file.write_bytes(b"")
    os.truncate(file, size)
    return file


@pytest.mark.parametrize("name", COMMANDS)
def test_a_document_of_gigabytes_is_refused_by_its_size(name: str, folder: Path) -> None:
    samples(folder / "d.npz", 2, 4)
    sparse(folder / name, 1)
    flexmatch(*COMMANDS[name])  # imports
    sparse(folder / name, 20 * GIB)
    tracemalloc.start()
    answer = within_steps(25_000_000, lambda: flexmatch(*COMMANDS[name]))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (answer.code, answer.out, answer.new) == (3, "", ())
    assert answer.err.count("\n") == 2
    assert answer.err.startswith(f"{name}: error[")
    assert " bytes, not 21474836480\n" in answer.err
    assert most < 100 << 20


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


HEAD = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 5, 4, 8, 2, 0, 0, 0))
JPEG = b"\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00"
SEAL = b"0" * 32
OFFLOADS = f'{{"schema": "{SCHEMA}", "offloads": ['.encode()
IMAGE = {"x": TensorType((1, 3, 4, 5), "float32")}
DESCRIPTION = """
[inputs.x]
folder = "pictures"
layout = "NHWC->NCHW"
"""


def images(file: Path) -> object:
    (file.parent / "pictures").mkdir()
    file.rename(file.parent / "pictures" / file.name)
    (file.parent / "d.toml").write_text(DESCRIPTION, "utf-8")
    return load_data(file.parent / "d.toml", IMAGE).inputs["x"][:]


def log(file: Path) -> object:
    return Journal(file, {"plan": "p", "samples": 4})


# name of a file → about a mebibyte for it, and what reads it
HOSTILE: dict[str, tuple[bytes, Callable[[Path], object]]] = {
    "chunks.png": (HEAD + chunk(b"tEXt", b"") * (MEBIBYTE // 12), images),
    "nothing.png": (HEAD + chunk(b"IDAT", b"") * (MEBIBYTE // 12) + chunk(b"IEND", b""), images),
    "fill.jpg": (b"\xff\xd8" + b"\xff" * MEBIBYTE, images),
    "segments.jpg": (JPEG + b"\xff\xe1\x00\x02" * (MEBIBYTE // 4), images),
    "scans.jpg": (JPEG + b"\xff\xda\x00\x02" * (MEBIBYTE // 4), images),
    "blanks.ppm": (b"P6 " + b" " * MEBIBYTE, images),
    "comments.pgm": (b"P5\n" + b"#\n" * (MEBIBYTE // 2), images),
    "digits.pgm": (b"P5\n" + b"#\n " * (MEBIBYTE // 4) + b"1 " * (MEBIBYTE // 4), images),
    "members.npz": (
        (b"PK\x01\x02" + bytes(42)) * 22795 + b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 22795, 22795, 22795 * 46, 0, 0),
        lambda file: load_data(file, IMAGE),
    ),
    "ends.npz": (b"PK\x05\x06" * (MEBIBYTE // 4) + b"PK\x05\x06" + bytes(18), lambda file: load_data(file, IMAGE)),
    "head.npy": (b"\x93NUMPY\x02\x00" + struct.pack("<I", MEBIBYTE) + b"(" * MEBIBYTE, lambda file: load_data(file.parent, IMAGE)),
    "ends.log": (b"\n" * MEBIBYTE, log),
    "lines.log": ((SEAL + b" {}\n") * (MEBIBYTE // 36), log),
    "long.log": (SEAL + b" {" + b"a" * MEBIBYTE + b"}\n", log),
    "objects.json": (OFFLOADS + b"{}," * (MEBIBYTE // 3) + b"{}]}", read_plan),
    "numbers.json": (b'{"a":' * 100 + b"[" + b"0," * (MEBIBYTE // 2) + b"0]" + b"}" * 100, read_plan),
    "escapes.json": (b'{"' + rb"\u0041" * (MEBIBYTE // 6) + b'":1}', read_plan),
    "names.rules": (b"a" * 60_000, rules_of_file),
}


def refusal(action: Callable[[], object]) -> FlexmatchError:
    with pytest.raises(FlexmatchError) as caught:
        action()
    return caught.value


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_mebibyte_is_answered_at_once(name: str, tmp_path: Path) -> None:
    data, read = HOSTILE[name]
    (tmp_path / "few.json").write_text("{}", "utf-8")
    for reads in (read_plan, rules_of_file):  # imports
        with pytest.raises(FlexmatchError):
            reads(tmp_path / "few.json")
    (tmp_path / name).write_bytes(data)
    within_steps(25_000_000, lambda: refusal(lambda: read(tmp_path / name)))


def test_entries_and_keys_of_gigabytes_are_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They count as not there: results are computed anew, and nothing is sealed with what cannot be a key."""
    folder.chmod(0o700)
    monkeypatch.setenv("FLEXMATCH_CACHE", str(folder))
    cache = DiskCache(folder)
    cache.put("entry", b"result")
    assert cache.get("entry") == b"result"
    tracemalloc.start()
    for size in (5 * GIB, 20 * GIB):
        os.truncate(folder / "entry", size)
        assert cache.get("entry") is None
    os.truncate(folder / "key", 5 * GIB)
    assert user_key() is None
    assert tracemalloc.get_traced_memory()[1] < 100 << 20
    tracemalloc.stop()
