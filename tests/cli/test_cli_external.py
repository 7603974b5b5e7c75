"""Models whose weights lie in a file beside them: missing, too short, outside of the folder, or another one's."""

from __future__ import annotations

import shutil
from pathlib import Path

import onnx
import pytest
from command import flexmatch, perceptron, refused

COPY = "copy the data file that belongs to the model"


@pytest.fixture
def model(folder: Path) -> Path:
    """external.onnx with its weights in weights.bin."""
    onnx.save(perceptron((16, 8, 4)), "external.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    assert flexmatch("external.onnx", "--accel", "flexasr", "-q", "-o", "good").code == 0
    return folder / "external.onnx"


def said(folder: Path, *arguments: str) -> str:
    """Return what a refused command says; exit code 3, nothing else printed, nothing written."""
    answer = flexmatch(*arguments)
    assert (answer.code, answer.out, answer.new) == (3, "", ())
    assert answer.err.count("\n  help: ") == 1
    assert answer.err.count("\n") == 2
    return answer.err.partition("\n  help: ")[0].replace(f"{folder}/", "")


def test_a_missing_data_file(model: Path, folder: Path) -> None:
    Path("weights.bin").unlink()
    for arguments in (("external.onnx", "--accel", "flexasr"), ("cosim", "good.json", "--data", "test.npz")):
        found = said(folder, *arguments)
        assert found.startswith("external.onnx")
        assert "error[F151]: " in found
        assert "weights.bin" in found


def test_a_data_file_that_is_too_short(model: Path, folder: Path) -> None:
    Path("weights.bin").write_bytes(Path("weights.bin").read_bytes()[:100])
    assert "error[F151]: " in said(folder, "external.onnx", "--accel", "flexasr")


def test_a_data_file_of_another_folder(model: Path, folder: Path) -> None:
    Path("sub").mkdir()
    shutil.move("weights.bin", "sub/weights.bin")
    Path("weights.bin").symlink_to("/etc/hostname")
    found = said(folder, "external.onnx", "--accel", "flexasr")
    assert "error[F150]: " in found or "error[F151]: " in found
    proto = onnx.load("external.onnx", load_external_data=False)
    for t in proto.graph.initializer:
        for entry in t.external_data:
            if entry.key == "location":
                entry.value = "../weights.bin"
    onnx.save(proto, "outside.onnx")
    assert "error[F150]: " in said(folder, "outside.onnx", "--accel", "flexasr")


def test_other_weights_under_the_same_name_are_noticed(model: Path, folder: Path) -> None:
    """The plan names the hash of the model; weights beside it are part of the model."""
    plan = Path("good.json").read_bytes()
    onnx.save(perceptron((16, 8, 4), seed=9), "other.onnx", save_as_external_data=True, location="other.bin", size_threshold=0)
    shutil.move("other.bin", "weights.bin")
    sentence = "good.json: error[F106]: external.onnx is not the model the plan was made of: its sha256 differs\n  help: compile again"
    refused(flexmatch("cosim", "good.json", "--data", "test.npz"), 3, sentence)
    assert Path("good.json").read_bytes() == plan
