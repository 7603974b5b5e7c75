"""Files that are no model, and places that cannot be written: exit code, whole answer, nothing left behind."""

from __future__ import annotations

import errno
import gzip
import os
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from command import flexmatch, onnx_model, perceptron, process, refused
from onnx import helper, numpy_helper

from rewrite_compiler.cli.files import write_atomically
from rewrite_compiler.errors import UsageError

LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 3\n"
MODELS: dict[str, tuple[Callable[[bytes], bytes], int, str]] = {
    "empty": (lambda model: b"", 3, "error[F102]: the file is empty\n  help: export the model again"),
    "truncated": (
        lambda model: model[:400],
        3,
        "error[F103]: not an ONNX model: ends inside field 7 (graph) at byte 400\n"
        "  help: export or download it again; the sentence says at which byte it breaks",
    ),
    "text": (
        lambda model: b"hello world what",
        3,
        "error[F103]: not an ONNX model: field 13 (of model) is malformed at byte 2\n"
        "  help: export or download it again; the sentence says at which byte it breaks",
    ),
    "gzip": (gzip.compress, 3, "error[F104]: this is not an ONNX model but gzip\n  help: unpack it and give the .onnx file inside"),
    "json": (lambda model: b'{"a": 1}', 3, "error[F104]: this is not an ONNX model but JSON text\n  help: give the .onnx file"),
    "html": (
        lambda model: b"<!DOCTYPE html><html></html>",
        3,
        "error[F104]: this is not an ONNX model but an HTML page\n  help: the download failed; fetch the file itself",
    ),
    "lfs": (lambda model: LFS, 3, "error[F104]: this is not an ONNX model but a Git LFS pointer\n  help: run git lfs pull"),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_file_that_is_no_model(name: str, folder: Path) -> None:
    make, code, said = MODELS[name]
    Path("bad.onnx").write_bytes(make(Path("app.onnx").read_bytes()))
    refused(flexmatch("bad.onnx", "--accel", "flexasr"), code, f"bad.onnx: {said}")
    refused(flexmatch("cosim", "bad.onnx", "--accel", "flexasr", "--data", "test.npz"), code, f"bad.onnx: {said}")


@pytest.mark.parametrize("verb", [(), ("compile",)])
def test_a_missing_model_and_a_folder(verb: tuple[str, ...], folder: Path) -> None:
    missing = "none.onnx: error[F101]: there is no such file\n  help: check the path"
    refused(flexmatch(*verb, "none.onnx", "--accel", "flexasr"), 2, missing)
    Path("models").mkdir()
    is_folder = "models: error[F100]: a model must be a file, not a directory\n  help: name the .onnx file in it"
    refused(flexmatch(*verb, "models", "--accel", "flexasr"), 2, is_folder)


@pytest.mark.parametrize("verb", ["cosim", "explain"])
def test_a_missing_plan(verb: str, folder: Path) -> None:
    more = ["--data", "test.npz"] if verb == "cosim" else ["gemm0"]
    for name in ("none.json", "none.onnx", "none"):
        said = f"{name}: error[F101]: there is no such file\n  help: give a plan or a model"
        refused(flexmatch(verb, name, *more, "--accel", "flexasr"), 2, said)


def test_a_model_without_shapes(folder: Path) -> None:
    onnx.save(perceptron((16, 8, 4), batch="rows"), "open.onnx")
    assert flexmatch("open.onnx", "--accel", "flexasr", "-q").code == 0  # one open dimension 0 is set to 1
    node = helper.make_node("MatMul", ["a", "b"], ["y"], name="product")
    onnx.save(onnx_model([node], {"a": ["m", "k"], "b": ["k", "n"]}, ["y"]), "open.onnx")
    answer = flexmatch("open.onnx", "--accel", "flexasr")
    assert (answer.code, answer.out, answer.new) == (3, "", ())
    assert answer.err.startswith("open.onnx: error[F160]: ")
    remedy = answer.err.rpartition("help: ")[2]
    options = [part for part in remedy.replace(",…", "").split() if "=" in part]
    assert options, answer.err
    assert flexmatch("open.onnx", "--accel", "flexasr", "-q", "--shape", "a=2,3", "--shape", "b=3,4").code == 0


def test_a_node_with_wrong_attributes(folder: Path) -> None:
    w = numpy_helper.from_array(np.zeros((4, 3, 3, 3), np.float32), "w")
    node = helper.make_node("Conv", ["x", "w"], ["y"], name="first", group=3)
    onnx.save(onnx_model([node], {"x": [1, 3, 8, 8]}, ["y"], [w]), "bad.onnx")
    answer = flexmatch("bad.onnx", "--accel", "flexasr")
    assert (answer.code, answer.out, answer.new) == (3, "", ())
    assert answer.err.startswith('bad.onnx:node "first": error[F131]: ')
    assert answer.err.count("\n") == 2
    node = helper.make_node("Softmax", ["x"], ["y"], name="last", axis="one")
    onnx.save(onnx_model([node], {"x": [1, 3]}, ["y"]), "bad.onnx")
    answer = flexmatch("bad.onnx", "--accel", "flexasr")
    assert (answer.code, answer.out, answer.new) == (3, "", ())
    assert answer.err.startswith('bad.onnx:node "last": error[F130]: ')


OTHER_PLACE = "\n  help: choose another name or folder"
NOT_WRITTEN = {
    "no such folder": ("no/such", f"no/such cannot be written: there is no folder no{OTHER_PLACE}"),
    "a folder": ("sub", f"sub cannot be written: there is a folder of this name{OTHER_PLACE}"),
    "nothing": ("", f". cannot be written: this is not the name of a file{OTHER_PLACE}"),
    "the model": ("app", "app.onnx cannot be written: it is an input of this command\n  help: choose another name"),
    "the model by its name": ("app.onnx", "app.onnx cannot be written: it is an input of this command\n  help: choose another name"),
    "the name of a folder": ("taken", f"taken.json cannot be written: there is a folder of this name{OTHER_PLACE}"),
}


@pytest.mark.parametrize("name", NOT_WRITTEN)
def test_outputs_that_cannot_be_written_are_refused_before_the_work(name: str, folder: Path) -> None:
    output, said = NOT_WRITTEN[name]
    Path("sub").mkdir()
    Path("taken.json").mkdir()
    model = Path("app.onnx").read_bytes()
    refused(flexmatch("app.onnx", "--accel", "flexasr", "-o", output), 2, f"error[F100]: {said}")
    assert Path("app.onnx").read_bytes() == model


def test_a_name_with_an_ending_is_the_stem_of_both_files(folder: Path) -> None:
    answer = flexmatch("app.onnx", "--accel", "flexasr", "-q", "-o", "plan.json")
    assert (answer.code, answer.new) == (0, ("plan.json", "plan.onnx"))


@pytest.mark.parametrize(
    "arguments",
    [("app.onnx", "--accel", "flexasr", "-o", "plan"), ("cosim", "ready.json", "--data", "test.npz"), ("list",), ("explain", "F101")],
    ids=lambda a: a[0],
)
def test_a_document_that_cannot_be_written_is_refused_before_the_work(arguments: tuple[str, ...], folder: Path) -> None:
    Path("sub").mkdir()
    said = f"error[F100]: sub cannot be written: there is a folder of this name{OTHER_PLACE}"
    refused(flexmatch(*arguments, "--json", "sub"), 2, said)
    said = f"error[F100]: no/x.json cannot be written: there is no folder no{OTHER_PLACE}"
    refused(flexmatch(*arguments, "--json", "no/x.json"), 2, said)


def test_a_document_never_replaces_an_input(folder: Path) -> None:
    for name in ("ready.json", "test.npz"):
        before = Path(name).read_bytes()
        said = f"error[F100]: {name} cannot be written: it is an input of this command\n  help: choose another name"
        refused(flexmatch("cosim", "ready.json", "--data", "test.npz", "--json", name), 2, said)
        refused(flexmatch("cosim", "ready.json", "--data", "test.npz", "--json", f"./{name}"), 2, said)
        assert Path(name).read_bytes() == before


def test_a_folder_without_permission(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests may run as root, who may write everywhere, so the answer of the system is replaced."""
    Path("locked").mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: str(path) != "locked")
    said = f"error[F100]: locked/plan cannot be written: no permission to write in locked{OTHER_PLACE}"
    refused(flexmatch("app.onnx", "--accel", "flexasr", "-o", "locked/plan"), 2, said)


def test_a_disk_that_fills_up_while_the_files_are_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int, *arguments: object, **more: object) -> object:
        os.close(handle)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fdopen", full)
    said = f"error[F100]: plan.onnx cannot be written: No space left on device{OTHER_PLACE}"
    with pytest.raises(UsageError, match=f"^{re.escape(said)}$"):
        write_atomically({Path("plan.onnx"): b"1", Path("plan.json"): b"2"})
    assert not [name for name in os.listdir() if "plan" in name]


def test_two_files_are_written_or_none(folder: Path) -> None:
    Path("plan.json").mkdir()
    with pytest.raises(UsageError, match=r"^error\[F100\]: plan\.json cannot be written: Is a directory\n"):
        write_atomically({Path("plan.json"): b"2", Path("plan.onnx"): b"1"})
    assert not [name for name in os.listdir() if "plan" in name and name != "plan.json"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a device that is always full")
def test_a_full_disk_behind_standard_output() -> None:
    with open("/dev/full", "wb") as full:
        run = process("list", capture_output=False, stdout=full, stderr=-1)
    said = "error[F100]: standard output cannot be written: No space left on device\n"
    assert (run.returncode, run.stderr.decode()) == (2, f"{said}  help: free some space, or write elsewhere\n")
