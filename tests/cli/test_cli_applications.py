"""Shipped applications by name wherever a command takes a model: their file, and their data where a verb runs them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import flexmatch, refused

from rewrite_compiler.apps import find_application

MLP = find_application("digits_mlp")


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_verb_that_takes_a_model_takes_its_name() -> None:
    by_file = flexmatch("explain", str(MLP.model), "--accel", "vta")
    assert flexmatch("explain", "digits_mlp", "--accel", "vta") == by_file
    assert by_file.code == 0
    compiled = flexmatch("digits_mlp", "--accel", "vta", "-q")
    assert (compiled.code, compiled.new) == (0, ("mlp.vta.json", "mlp.vta.onnx"))
    assert flexmatch("check", "digits_mlp").out == "problems  none\n"
    assert flexmatch("show", "digits_mlp", "--accel", "vta") == flexmatch("show", str(MLP.model), "--accel", "vta")
    assert flexmatch("emit", "c", "digits_mlp", "--accel", "vta", "--calibrate", str(MLP.calibration), "-q").new == ("model.c", "model.h")


def test_an_application_is_run_on_its_own_data() -> None:
    words = ("--accel", "vta", "--samples", "8", "--json")
    assert flexmatch("cosim", "digits_mlp", *words, "named.json").code == 0
    given = ("--data", str(MLP.data), "--calibrate", str(MLP.calibration), "--metric", MLP.metric)
    assert flexmatch("cosim", str(MLP.model), *given, *words, "given.json").code == 0
    named, by_file = (json.loads(Path(f"{name}.json").read_bytes()) for name in ("named", "given"))
    assert [named[key] for key in ("metric", "accelerated", "paired")] == [by_file[key] for key in ("metric", "accelerated", "paired")]


def test_a_file_of_the_same_name_goes_first() -> None:
    Path("digits_mlp").write_bytes(b"no model")
    assert flexmatch("explain", "digits_mlp", "--accel", "vta").err.startswith("digits_mlp: error[F103]: ")


REFUSED = {
    "misspelt": (
        ("explain", "digits_mpl", "--accel", "vta"),
        'digits_mpl: error[F101]: there is neither a file nor an application of this name\n  help: did you mean "digits_mlp"?',
    ),
    "misspelt, without a verb": (
        ("digits_mpl", "--accel", "vta"),
        'digits_mpl: error[F101]: there is neither a file nor an application of this name\n  help: did you mean "digits_mlp"?',
    ),
    "an architecture": (
        ("compile", "resnet50", "--accel", "vta"),
        "resnet50: error[F101]: there is no such file; the architecture of this name is built from code\n"
        "  help: flexmatch demo resnet50 -o resnet50.onnx writes it",
    ),
    "a file has no data of its own": (
        ("cosim", str(MLP.data.with_name("cnn.json")), "--accel", "vta"),
        "error[F203]: --data is missing\n  help: --data FILE: samples: .npz, a folder of them, or a .toml that describes them",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_application(name: str) -> None:
    arguments, said = REFUSED[name]
    refused(flexmatch(*arguments), 2, said)
