"""Skeletons: each passes its own test, `check`, `prove`, `compile` and `cosim` run on it, and nothing is ever written over."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from command import flexmatch, refused

from rewrite_compiler.cli.verbs.init import SKELETONS

NAMES = {"accelerator": "vector_unit", "rule": "merge_two_layers", "app": "waves"}
FORM = "a name must be at most 40 lower case letters, digits and _, the first a letter, not"
FILE = "it becomes the name of a Python file and of what is in it"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def written(kind: str) -> list[str]:
    """Write the skeleton of a kind, go into its folder, and return the commands that come next."""
    answer = flexmatch("init", kind, NAMES[kind])
    assert (answer.code, answer.err) == (0, "")
    os.chdir(NAMES[kind])
    return [
        line.strip() for line in answer.out.splitlines() if line.startswith("  ") and line.strip().startswith(("flexmatch ", "python "))
    ]


@pytest.mark.parametrize("kind", SKELETONS)
def test_every_next_command_answers_yes(kind: str) -> None:
    test, *commands = written(kind)
    assert test == f"python test_{NAMES[kind]}.py"
    for command in commands:
        answer = flexmatch(*shlex.split(command)[1:])
        assert (answer.code, answer.err) == (0, ""), command


@pytest.mark.parametrize("kind", SKELETONS)
def test_its_own_test_passes_by_itself(kind: str) -> None:
    test, *_ = written(kind)
    run = subprocess.run([sys.executable, *shlex.split(test)[1:]], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.startswith("passed test_")


def test_the_test_of_an_accelerator_sees_a_fault() -> None:
    test, *_ = written("accelerator")
    source = Path("vector_unit.py")
    faulty = source.read_text("utf-8").replace("first=n * length", "first=n")
    assert faulty != source.read_text("utf-8")
    source.write_text(faulty, "utf-8")
    run = subprocess.run([sys.executable, *shlex.split(test)[1:]], capture_output=True, text=True, check=False)
    assert run.returncode != 0
    assert "test_the_driver_does_what_the_numerics_say" in run.stderr


@pytest.mark.parametrize("kind", SKELETONS)
def test_the_files_are_clean(kind: str) -> None:
    written(kind)
    run = subprocess.run([sys.executable, "-m", "ruff", "check", "--isolated", "--select", "E4,E7,E9,F,B,UP", "--ignore", "E731", "."],
                         capture_output=True, text=True, check=False)  # fmt: skip
    assert run.returncode == 0, run.stdout


def test_a_file_that_is_there_is_kept() -> None:
    Path("waves").mkdir()
    Path("waves/test.npz").write_bytes(b"mine")
    said = "error[F100]: waves/test.npz is there already, and is not written over\n  help: choose another name, or -o FOLDER"
    refused(flexmatch("init", "app", "waves"), 2, said)
    assert {p.name for p in Path("waves").iterdir()} == {"test.npz"}
    assert Path("waves/test.npz").read_bytes() == b"mine"


def test_a_second_time_is_refused_and_another_folder_is_not() -> None:
    assert flexmatch("init", "rule", "law").code == 0
    assert flexmatch("init", "rule", "law").code == 2
    assert flexmatch("init", "rule", "law", "-o", "deep/down").code == 0
    assert Path("deep/down/law.py").is_file()


@pytest.mark.parametrize(
    ("words", "said"),
    {
        "no kind of that name": (("accelerater", "a"), 'there is no skeleton of kind "accelerater"\n  help: did you mean "accelerator"?'),
        "upper case": (("app", "Waves"), f'{FORM} "Waves"\n  help: {FILE}'),
        "a path": (("app", "../waves"), f'{FORM} "../waves"\n  help: {FILE}'),
        "a hyphen": (("rule", "my-law"), f'{FORM} "my-law"\n  help: {FILE}'),
        "empty": (("rule", ""), f'{FORM} ""\n  help: {FILE}'),
        "long": (("rule", "a" * 41), f'{FORM} "{"a" * 41}"\n  help: {FILE}'),
        "a word of Python": (("app", "lambda"), 'a name must not be a word of Python, not "lambda"\n  help: my_lambda is free'),
        "a shipped accelerator": (
            ("accelerator", "vta"),
            'there is one called "vta" already\n  help: my_vta is free; `flexmatch list` shows the names in use',
        ),
        "a shipped application": (
            ("app", "digits_cnn"),
            'there is one called "digits_cnn" already\n  help: my_digits_cnn is free; `flexmatch list` shows the names in use',
        ),
        "a module of Python": (("app", "json"), 'a name must not be that of another Python module, not "json"\n  help: my_json is free'),
        "an installed module": (
            ("app", "numpy"),
            'a name must not be that of another Python module, not "numpy"\n  help: my_numpy is free',
        ),
    }.values(),
)
def test_a_wrong_word(words: tuple[str, ...], said: str) -> None:
    refused(flexmatch("init", *words), 2, f"error[F203]: {said}")


def test_a_folder_that_cannot_be_made() -> None:
    Path("file").write_text("")
    said = "error[F100]: file/waves cannot be made: Not a directory\n  help: choose another folder with -o"
    refused(flexmatch("init", "app", "waves", "-o", "file/waves"), 2, said)
