"""Files that are no model: one sentence each, nothing allocated, nothing blocked."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import socket
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx_models import FILE, normal_model

from rewrite_compiler.errors import REFUSED, USAGE, FlexmatchError
from rewrite_compiler.frontend.file.not_onnx import FILE_FORMATS
from rewrite_compiler.frontend.file.read import parse_model, read_bytes
from rewrite_compiler.frontend.load import import_model, load
from rewrite_compiler.limits import Limits

BYTES = normal_model().SerializeToString()


def said(path: Path, limits: Limits | None = None) -> tuple[int, str]:
    """Return exit code and text of the refusal of a file, with its folder cut off."""
    with pytest.raises(FlexmatchError) as caught:
        load(path, limits=limits or Limits())
    return caught.value.exit_code, str(caught.value).replace(f"{path.parent}/", "")


@pytest.fixture
def file(tmp_path: Path) -> Callable[[bytes], Path]:
    """A file called app.onnx with some bytes."""

    def make(data: bytes) -> Path:
        path = tmp_path / "app.onnx"
        path.write_bytes(data)
        return path

    return make


def test_a_missing_file(tmp_path: Path) -> None:
    wanted = (USAGE, "app.onnx: error[F101]: there is no such file\n  help: check the path")
    assert said(tmp_path / "app.onnx") == wanted
    (tmp_path / "file").write_bytes(b"x")
    assert said(tmp_path / "file" / "app.onnx")[1].endswith("error[F101]: there is no such file\n  help: check the path")
    assert said(tmp_path / "a\0b")[0] == USAGE


def test_a_directory(tmp_path: Path) -> None:
    (tmp_path / "app.onnx").mkdir()
    sentence = "app.onnx: error[F100]: a model must be a file, not a directory\n  help: name the .onnx file in it"
    assert said(tmp_path / "app.onnx") == (USAGE, sentence)


def test_a_named_pipe_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "app.onnx")
    assert said(tmp_path / "app.onnx") == (USAGE, "app.onnx: error[F100]: a model must be a regular file, not a named pipe")


def test_a_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as end:
        end.bind("app.onnx")
        assert said(tmp_path / "app.onnx") == (USAGE, "app.onnx: error[F100]: a model must be a regular file, not a socket")


def test_a_device() -> None:
    assert said(Path("/dev/zero")) == (USAGE, "zero: error[F100]: a model must be a regular file, not a device")


def test_a_loop_of_links(tmp_path: Path) -> None:
    (tmp_path / "app.onnx").symlink_to("app.onnx")
    assert said(tmp_path / "app.onnx") == (USAGE, "app.onnx: error[F100]: the file cannot be read: too many levels of symbolic links")


def test_a_file_without_permission(file: Callable[[bytes], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    path = file(BYTES)
    monkeypatch.setattr(os, "open", refuse)
    assert said(path) == (USAGE, "app.onnx: error[F100]: the file cannot be read: permission denied")


def test_an_empty_file(file: Callable[[bytes], Path]) -> None:
    assert said(file(b"")) == (REFUSED, "app.onnx: error[F102]: the file is empty")


def test_a_file_over_the_limit(file: Callable[[bytes], Path]) -> None:
    path = file(BYTES)
    sentence = f"app.onnx: error[F105]: a model file must have at most 10 bytes, not {len(BYTES)}"
    wanted = f"{sentence}\n  help: raise --limits model_bytes= and protobuf_bytes="
    assert said(path, Limits(model_bytes=10)) == (REFUSED, wanted)
    assert said(path, Limits(protobuf_bytes=10)) == (REFUSED, wanted)


def test_a_file_over_what_protobuf_holds(file: Callable[[bytes], Path]) -> None:
    path = file(BYTES)
    os.truncate(path, 1 << 31)  # sparse: nothing is stored and nothing is read
    sentence = "app.onnx: error[F105]: a model file must have at most 2147483647 bytes, not 2147483648"
    assert said(path) == (REFUSED, f"{sentence}\n  help: save its weights as external data")


def test_a_file_that_changes_while_it_is_read(file: Callable[[bytes], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    path, real = file(BYTES), os.fdopen

    def change(descriptor: int, mode: str) -> object:
        with path.open("ab") as end:
            end.write(b"more")
        return real(descriptor, mode)

    monkeypatch.setattr(os, "fdopen", change)
    stat = os.stat(path)
    monkeypatch.setattr(os, "fstat", lambda _: stat)
    sentence = "app.onnx: error[F106]: the file changed while it was read\n  help: try again when it is complete"
    assert said(path) == (REFUSED, sentence)


UNPACK, EXPORT = "unpack it and give the .onnx file inside", "export it to ONNX and give the .onnx file"
DISGUISES: list[tuple[bytes, str, str]] = [
    (gzip.compress(BYTES), "gzip", UNPACK),
    (lzma.compress(BYTES), "xz", UNPACK),
    (b"BZh91AY&SY", "bzip2", UNPACK),
    (b"\x28\xb5\x2f\xfd\x00", "zstd", UNPACK),
    (json.dumps({"nodes": [1]}).encode(), "JSON text", "give the .onnx file"),
    (b'\xef\xbb\xbf [ {"a": 1} ]', "JSON text", "give the .onnx file"),
    (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n", "a Git LFS pointer", "run git lfs pull"),
    (b"\n<!DOCTYPE html><html></html>", "an HTML page", "the download failed; fetch the file itself"),
    (b'<?xml version="1.0"?><net/>', "XML text", "give the .onnx file"),
    (b'<\n  ir_version: 8,\n  opset_import: ["" : 17]\n>\n', "ONNX in text form", "convert it with onnx.parser and give the .onnx file"),
    (b"\x1c\x00\x00\x00TFL3\x14\x00", "a TFLite model", EXPORT),
    (b"\x1c\x00\x00\x00ORTM\x14\x00", "a model in onnxruntime's own format", "give the .onnx file it was made from"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file (Keras)", EXPORT),
    (struct.pack("<Q", 2) + b"{}", "a safetensors file", EXPORT),
    (b"\x80\x02}q\x00", "a Python pickle (PyTorch)", EXPORT),
    (b"GGUF\x03\x00", "a GGUF model", EXPORT),
    (b"\x93NUMPY\x01\x00", "a numpy array", "give the .onnx file; data goes to --data"),
]


@pytest.mark.parametrize(("data", "what", "remedy"), DISGUISES, ids=[what for _, what, _ in DISGUISES])
def test_something_else_is_named(file: Callable[[bytes], Path], data: bytes, what: str, remedy: str) -> None:
    assert said(file(data)) == (REFUSED, f"app.onnx: error[F104]: this is not an ONNX model but {what}\n  help: {remedy}")


def test_archives_are_named(tmp_path: Path) -> None:
    path = tmp_path / "app.onnx"
    with tarfile.open(path, "w") as tar:
        tar.add(__file__, "a.py")
    assert said(path)[1] == f"app.onnx: error[F104]: this is not an ONNX model but a tar archive\n  help: {UNPACK}"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.txt", "text")
    assert said(path)[1] == f"app.onnx: error[F104]: this is not an ONNX model but a zip archive\n  help: {UNPACK}"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model/data.pkl", "text")
    assert said(path)[1] == f"app.onnx: error[F104]: this is not an ONNX model but a PyTorch archive\n  help: {EXPORT}"


def test_no_mark_is_how_a_model_starts() -> None:
    assert not any(BYTES.startswith(kind.signature, kind.offset) for kind in FILE_FORMATS)


def test_every_truncation_is_refused_with_its_byte(file: Callable[[bytes], Path]) -> None:
    whole = normal_model().SerializeToString()
    for end in range(1, len(whole)):
        code, text = said(file(whole[:end]))
        assert code == REFUSED
        at_boundary = "there is no graph in them" in text or "F111" in text
        assert at_boundary or f"at byte {end}" in text or "is malformed at byte" in text, text
    path = file(whole[: len(whole) // 2])
    assert said(path)[1] == f"app.onnx: error[F103]: not an ONNX model: ends inside field 7 (graph) at byte {len(whole) // 2}"


def test_a_length_beyond_the_end_allocates_nothing() -> None:
    with pytest.raises(FlexmatchError) as caught:
        parse_model(b"\x3a\xff\xff\xff\xff\x07abc", "app.onnx")
    assert str(caught.value) == "app.onnx: error[F103]: not an ONNX model: ends inside field 7 (graph) at byte 9"


def test_damage_inside_a_node_is_found() -> None:
    at = BYTES.index(b"Relu") - 2
    with pytest.raises(FlexmatchError) as caught:
        parse_model(BYTES[:at] + b"\x0b" + BYTES[at + 1 :], "app.onnx")
    assert str(caught.value) == f"app.onnx: error[F103]: not an ONNX model: field 1 (of node) is malformed at byte {at}"


def test_bytes_without_a_graph() -> None:
    with pytest.raises(FlexmatchError) as caught:
        parse_model(b"\x08\x07", "app.onnx")
    assert str(caught.value) == "app.onnx: error[F103]: not an ONNX model: 2 bytes were read and there is no graph in them"


def test_messages_nested_beyond_what_protobuf_parses() -> None:
    data = b""
    for _ in range(60):  # a graph in a node's attribute in a graph …
        for field in (b"\x32", b"\x2a", b"\x0a"):
            data = field + _length(data) + data
    data = b"\x3a" + _length(data) + data
    with pytest.raises(FlexmatchError) as caught:
        parse_model(data, "app.onnx")
    assert str(caught.value) == "app.onnx: error[F125]: its messages are nested deeper than 100, which protobuf refuses to parse"


def _length(data: bytes) -> bytes:
    n, out = len(data), b""
    while n >= 0x80:
        out, n = out + bytes([n & 0x7F | 0x80]), n >> 7
    return out + bytes([n])


def test_an_odd_name_is_escaped(tmp_path: Path) -> None:
    path = tmp_path / "a\x1b[31m\nb.onnx"
    path.write_bytes(b"")
    with pytest.raises(FlexmatchError) as caught:
        read_bytes(path, Limits())
    assert "\x1b" not in str(caught.value)


def outcome(data: bytes) -> str:
    """Return the code with which some bytes are refused, or nothing when they are imported."""
    try:
        import_model(parse_model(data, FILE), Path(FILE), "", {}, Limits(tensor_bytes=1 << 20))
    except FlexmatchError as error:
        return error.problem.code
    return ""


@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_random_bytes_are_refused_with_a_sentence(data: bytes) -> None:
    assert outcome(data) in {"F103", "F104", "F110", "F111", "F125"}


@settings(max_examples=500)
@given(st.lists(st.tuples(st.integers(0, len(BYTES) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_mutated_bytes_are_accepted_or_refused(changes: list[tuple[int, int]]) -> None:
    data = bytearray(BYTES)
    for at, value in changes:
        data[at] = value
    assert outcome(bytes(data))[:1] in {"", "F"}
