"""Weights in other files: read from the model's folder only, never beyond what a regular file holds."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx_models import check_accounts, host, info, model, normal_model

from rewrite_compiler.errors import FlexmatchError
from rewrite_compiler.frontend.load import load
from rewrite_compiler.ir.evaluate import run
from rewrite_compiler.ir.types import TensorType

Entries = dict[str, str] | list[tuple[str, str]]
WEIGHTS = np.linspace(-1, 1, 24, dtype=np.float32).reshape(2, 3, 2, 2)


def write(folder: Path, entries: Entries, data: bytes | None = None) -> Path:
    """Write the model with its first weight outside, and the file `weights.bin` beside it."""
    proto = normal_model()
    t = proto.graph.initializer[0]
    t.ClearField("raw_data")
    t.data_location = onnx.TensorProto.EXTERNAL
    for key, value in entries.items() if isinstance(entries, dict) else entries:
        t.external_data.add(key=key, value=value)
    (folder / "weights.bin").write_bytes(WEIGHTS.tobytes() if data is None else data)
    path = folder / "app.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def said(path: Path) -> str:
    """Return the refusal of a file, with its folder cut off."""
    with pytest.raises(FlexmatchError) as caught:
        load(path)
    return str(caught.value).replace(f"{path.parent}/", "")


@pytest.mark.parametrize("entries", [{"location": "weights.bin"}, {"location": "./weights.bin", "offset": "0", "length": "96"}])
def test_weights_are_found(tmp_path: Path, entries: Entries) -> None:
    p = load(write(tmp_path, entries)).program
    check_accounts(p, 4)
    assert any(np.array_equal(x, WEIGHTS) for x in p.constants.values())


def test_weights_at_an_offset_in_a_folder_below(tmp_path: Path) -> None:
    path = write(tmp_path, {"location": "below/weights.bin", "offset": "5", "checksum": "ignored"})
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "weights.bin").write_bytes(b"12345" + WEIGHTS.tobytes() + b"more")
    assert any(np.array_equal(x, WEIGHTS) for x in load(path).program.constants.values())


@pytest.mark.parametrize("location", ["../weights.bin", "/etc/passwd", "/proc/self/environ", "a/../../weights.bin", "a\\b", "a\0b", "."])
def test_nothing_outside_the_folder_is_opened(tmp_path: Path, location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, {"location": location})
    opened: list[str] = []
    real = os.open
    monkeypatch.setattr(os, "open", lambda name, *rest, **more: opened.append(str(name)) or real(name, *rest, **more))
    shown = location.replace("\0", "\\x00")
    sentence = f'external data of Initializer "w" must lie in the folder of the model, not at "{shown}"'
    assert said(path) == f"app.onnx: error[F150]: {sentence}"
    assert opened == [str(path)]


def link(folder: Path) -> None:
    """Replace the weights by a symbolic link to a file elsewhere."""
    (folder / "weights.bin").rename(folder.parent / "elsewhere.bin")
    (folder / "weights.bin").symlink_to("../elsewhere.bin")


def hard_link(folder: Path) -> None:
    """Give the weights a second name."""
    os.link(folder / "weights.bin", folder.parent / "second.bin")


def pipe(folder: Path) -> None:
    """Replace the weights by a named pipe."""
    (folder / "weights.bin").unlink()
    os.mkfifo(folder / "weights.bin")


def linked_folder(folder: Path) -> None:
    """Put the weights behind a linked folder."""
    (folder / "below").symlink_to("..")


TRICKS: list[tuple[Callable[[Path], Any], str, str]] = [
    (link, "weights.bin", 'error[F150]: external data of Initializer "w" must not go through a symbolic link: "weights.bin"'),
    (
        linked_folder, "below/weights.bin",
        'error[F150]: external data of Initializer "w" must not go through a symbolic link: "below/weights.bin"',
    ),
    (
        hard_link,
        "weights.bin",
        'error[F150]: external data of Initializer "w" must be a file of its own; "weights.bin" has 2 names (hard links)',
    ),
    (pipe, "weights.bin", 'error[F151]: external data of Initializer "w" must be a regular file; "weights.bin" is not'),
    (
        lambda folder: (folder / "weights.bin").unlink(),
        "weights.bin",
        'error[F151]: external data of Initializer "w" is missing: "weights.bin"\n  help: put the file beside the model',
    ),
    (
        lambda folder: None,
        "weights.bin/x",
        'error[F151]: external data of Initializer "w" cannot be read: "weights.bin/x" (not a directory)',
    ),
]  # fmt: skip


@pytest.mark.parametrize(("trick", "location", "sentence"), TRICKS, ids=range(len(TRICKS)))
def test_files_that_are_not_what_they_seem(tmp_path: Path, trick: Callable[[Path], Any], location: str, sentence: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    path = write(folder, {"location": location})
    trick(folder)
    assert said(path) == f"app.onnx: {sentence}"


ENTRIES: list[tuple[Entries, str]] = [
    ({}, 'external data of Initializer "w" names no file'),
    ({"location": ""}, 'external data of Initializer "w" names no file'),
    (
        {"location": "weights.bin", "__class__": "x"},
        'external data of Initializer "w" must have the entries checksum, length, location, offset, not "__class__"',
    ),
    ([("location", "weights.bin"), ("location", "b")], 'external data of Initializer "w" has the entry "location" twice'),
    ({"location": "weights.bin", "offset": "-1"}, 'offset of the external data of Initializer "w" must be a number of bytes, not "-1"'),
    ({"location": "weights.bin", "offset": "½"}, 'offset of the external data of Initializer "w" must be a number of bytes, not "½"'),
    ({"location": "weights.bin", "length": "1e3"}, 'length of the external data of Initializer "w" must be a number of bytes, not "1e3"'),
    ({"location": "weights.bin", "length": str(1 << 40)}, f'external data of Initializer "w" must have 96 bytes, not {1 << 40}'),
    ({"location": "weights.bin", "length": "95"}, 'external data of Initializer "w" must have 96 bytes, not 95'),
    ({"location": "weights.bin", "length": "97"}, 'external data of Initializer "w" must have 96 bytes, not 97'),
    (
        {"location": "weights.bin", "offset": "9" * 19},
        f'bytes {"9" * 19} to {10**19 + 95} of Initializer "w" lie beyond the 96 bytes of "weights.bin"',
    ),
    (
        {"location": "weights.bin", "offset": "0" * 20},
        f'offset of the external data of Initializer "w" must be a number of bytes, not "{"0" * 20}"',
    ),
    ({"location": "weights.bin", "offset": "1"}, 'bytes 1 to 97 of Initializer "w" lie beyond the 96 bytes of "weights.bin"'),
]


@pytest.mark.parametrize(("entries", "sentence"), ENTRIES, ids=range(len(ENTRIES)))
def test_entries_that_make_no_sense(tmp_path: Path, entries: Entries, sentence: str) -> None:
    assert said(write(tmp_path, entries)) == f"app.onnx: error[F151]: {sentence}"


def test_two_payloads(tmp_path: Path) -> None:
    path = write(tmp_path, {"location": "weights.bin"})
    proto = onnx.load_model(path, load_external_data=False)
    proto.graph.initializer[0].raw_data = WEIGHTS.tobytes()
    path.write_bytes(proto.SerializeToString())
    assert said(path) == 'app.onnx: error[F141]: Initializer "w" must have one payload, not raw_data and external data'


def test_declared_sizes_are_checked_before_anything_is_read(tmp_path: Path) -> None:
    path = write(tmp_path, {"location": "weights.bin"})
    proto = onnx.load_model(path, load_external_data=False)
    proto.graph.initializer[0].dims[:] = [1 << 20, 1 << 20]
    path.write_bytes(proto.SerializeToString())
    sentence = f'Initializer "w" must have at most {2 << 30} bytes, not {4 << 40}'
    assert said(path) == f"app.onnx: error[F105]: {sentence}\n  help: raise --limits tensor_bytes="


def test_a_large_file_beside_the_model_is_not_read_for_a_small_part_of_it(tmp_path: Path) -> None:
    path = write(tmp_path, {"location": "weights.bin"})
    os.truncate(tmp_path / "weights.bin", 20 << 30)
    sentence = f'"weights.bin" with external data of Initializer "w" must have at most {4 << 30} bytes, not {20 << 30}'
    assert said(path) == f"app.onnx: error[F105]: {sentence}\n  help: raise --limits model_bytes="


def test_weights_inside_a_subgraph_are_taken_into_it(tmp_path: Path) -> None:
    """A branch that is kept whole has its external weights with it, and a wrong one is refused."""
    weight = onnx.TensorProto(name="w", data_type=1, dims=[2, 3], data_location=onnx.TensorProto.EXTERNAL)
    weight.external_data.add(key="location", value="weights.bin")
    y = info("y", TensorType((2, 3)))
    then = helper.make_graph([helper.make_node("Mul", ["x", "w"], ["y"])], "then", [], [y], [weight])
    other = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "else", [], [y])
    chosen = helper.make_node("If", ["c"], ["z"], name="if", then_branch=then, else_branch=other)
    inputs = {"x": TensorType((2, 3)), "c": TensorType((), "bool")}
    path = tmp_path / "app.onnx"
    path.write_bytes(model([chosen], inputs, [info("z", TensorType((2, 3)))]).SerializeToString())
    (tmp_path / "weights.bin").write_bytes(np.arange(6, dtype=np.float32).tobytes())
    loaded = load(path)
    x = np.ones((2, 3), np.float32)
    found = run(loaded.program, dict(zip(loaded.program.inputs, [x, np.asarray(True)], strict=True)), opaque=host(loaded))
    assert found[loaded.program.outputs[0]].tolist() == [[0, 1, 2], [3, 4, 5]]
    (tmp_path / "weights.bin").write_bytes(b"short")
    sentence = 'bytes 0 to 24 of tensor "w" of If lie beyond the 5 bytes of "weights.bin"'
    assert said(path) == f'app.onnx:node "if": error[F151]: {sentence}'
