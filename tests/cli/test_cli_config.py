"""Settings: flag over environment over file over default; a file that is wrong is one sentence, and never loads code."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from command import flexmatch, refused

from rewrite_compiler.cli.config import KEYS
from rewrite_compiler.cli.verb_table import VERBS
from rewrite_compiler.cli.verbs.completion import parser_of
from rewrite_compiler.cli.verbs.show_config import config_parser

GIVE = "\n  help: flexmatch show --help lists the options"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def shown(*flags: str) -> dict[str, tuple[Any, str]]:
    """Return every setting and its origin."""
    answer = flexmatch("show", "config", *flags, "--json", "-")
    assert (answer.code, answer.err) == (0, "")
    return {row["key"]: (row["value"], row["origin"]) for row in json.loads(answer.out)["settings"]}


def test_flag_over_environment_over_file_over_default(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown()["batch"] == (0, "default")
    Path("pyproject.toml").write_text("[tool.flexmatch]\nbatch = 4\nthreads = 1\n", "utf-8")
    assert shown()["batch"] == (4, "pyproject.toml")
    Path("flexmatch.toml").write_text("batch = 8\n", "utf-8")
    assert shown()["batch"] == (8, "flexmatch.toml")
    assert shown()["threads"] == (0, "default")  # one file, not a mixture
    monkeypatch.setenv("FLEXMATCH_BATCH", "16")
    assert shown()["batch"] == (16, "FLEXMATCH_BATCH")
    assert shown("--batch", "2")["batch"] == (2, "flag")
    monkeypatch.setenv("FLEXMATCH_BATCH", "")
    assert shown()["batch"] == (8, "flexmatch.toml")


def test_lists_and_switches(monkeypatch: pytest.MonkeyPatch) -> None:
    text = 'accel = ["flexasr", "hlscnn:revision=ext16"]\nexact = true\nonly = ["linear", "lstm"]\nlimits = "rounds=3"\n'
    Path("flexmatch.toml").write_text(text, "utf-8")
    found = shown()
    assert found["accel"] == (["flexasr", "hlscnn:revision=ext16"], "flexmatch.toml")
    assert found["exact"] == (True, "flexmatch.toml")
    assert found["only"] == ("linear,lstm", "flexmatch.toml")
    assert found["limits"] == (["rounds=3"], "flexmatch.toml")
    monkeypatch.setenv("FLEXMATCH_ACCEL", "vta hlscnn")
    monkeypatch.setenv("FLEXMATCH_EXACT", "0")
    found = shown()
    assert found["accel"] == (["vta", "hlscnn"], "FLEXMATCH_ACCEL")
    assert found["exact"] == (False, "FLEXMATCH_EXACT")
    assert shown("--accel", "flexasr")["accel"] == (["flexasr"], "flag")  # a flag replaces, it does not add


def test_a_command_runs_by_its_configuration(prepared: Path) -> None:
    Path("flexmatch.toml").write_text('accel = "flexasr"\nexact = true\n', "utf-8")
    answer = flexmatch(prepared / "app.onnx", "-o", "plan")
    assert (answer.code, answer.err, answer.new) == (0, "", ("plan.json", "plan.onnx"))
    plan = json.loads(Path("plan.json").read_text("utf-8"))
    assert plan["settings"]["exact"] is True
    Path("flexmatch.toml").write_text('accel = "hlscnn"\nexact = true\n', "utf-8")
    answer = flexmatch("show", "plan.json", "-q")  # what is configured changes no plan that is made
    assert (answer.code, answer.err) == (0, "")


def test_the_text_form_names_file_and_environment() -> None:
    assert flexmatch("show", "config").out.startswith("file: none; environment: FLEXMATCH_KEY\n  setting ")
    Path("flexmatch.toml").write_text("batch = 8\n", "utf-8")
    text = flexmatch("show", "config").out
    assert text.startswith("file: flexmatch.toml; ")
    assert re.search(r"^  batch +8 +flexmatch\.toml$", text, re.MULTILINE)


def test_the_table_of_keys_is_what_parsers_let_configuration_set() -> None:
    assert set(KEYS) == set(config_parser().settings)
    for verb in VERBS:
        assert set(parser_of(verb).settings) <= set(KEYS), verb


KNOWN = f"keys: {', '.join(KEYS)}"
WRONG = {
    "table of a verb": (
        '\n[cosim]\nsamples = 3', 2,
        "flexmatch.toml:2: error[F203]: settings are for all verbs and stand at the top of the file, not in a table called cosim\n"
        "  help: leave out the heading of cosim",
    ),
    "second line": (
        'exact = true\n"acel" = "vta"', 2,
        f'flexmatch.toml:2: error[F203]: there is no setting called "acel"\n  help: did you mean "accel"? {KNOWN}',
    ),
    "unknown key": (
        "batchh = 1", 2, f'flexmatch.toml:1: error[F203]: there is no setting called "batchh"\n  help: did you mean "batch"? {KNOWN}',
    ),
    "wrong type": ("batch = 1.5", 2, f"flexmatch.toml:1: error[F203]: batch must be a text or a whole number, not float{GIVE}"),
    "no flag": ('exact = "yes"', 2, 'flexmatch.toml:1: error[F203]: exact must be true or false, not "yes"'
        '\n  help: --exact: match the program as written, no rewriting'),
    "no list": ("shape = 3", 2, "flexmatch.toml:1: error[F203]: shape must be a text or a list of texts, not int"
        "\n  help: --shape NAME=1,3,32,32: bind the shape of an input"),
    "below": ("batch = 0", 2, f'flexmatch.toml:1: error[F203]: batch must be a whole number from 1 on, not "0"{GIVE}'),
    "not TOML": (
        "batch =", 3,
        "flexmatch.toml: error[F103]: the configuration is not TOML: Invalid value (at end of document)\n  help: correct the file",
    ),
    "code": (
        'accel = "./mine.py"', 2,
        'flexmatch.toml:1: error[F203]: accel must be the name of an installed accelerator, not the path "./mine.py": '
        "a configuration file never loads code\n  help: give it with --accel",
    ),
    "metric of a module": (
        'metric = "mine:score"', 2,
        'flexmatch.toml:1: error[F203]: metric must be a name of flexmatch\'s own, not "mine:score": '
        "a configuration file never loads code\n  help: give it with --metric",
    ),
    "rules": ('rules = "mine.py"', 2, f'flexmatch.toml:1: error[F203]: there is no setting called "rules"\n  help: {KNOWN}'),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_file(name: str) -> None:
    text, code, said = WRONG[name]
    Path("flexmatch.toml").write_text(text, "utf-8")
    refused(flexmatch("show", "config"), code, said)


def test_files_that_are_no_text_or_no_table() -> None:
    Path("flexmatch.toml").write_bytes(b"\xff\xfe")
    said = "flexmatch.toml: error[F103]: the configuration is not TOML: it is not UTF-8 text: byte 0\n  help: correct the file"
    refused(flexmatch("show", "config"), 3, said)
    Path("flexmatch.toml").unlink()
    Path("pyproject.toml").write_text("tool.flexmatch = 3", "utf-8")
    said = "pyproject.toml: error[F103]: tool.flexmatch must be a table of options\n  help: write [tool.flexmatch]"
    refused(flexmatch("show", "config"), 3, said)
    Path("pyproject.toml").write_text("[project]\nname = 'x'\n", "utf-8")
    assert shown()["batch"] == (0, "default")


def test_a_wrong_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEXMATCH_TIER", "fast")
    refused(flexmatch("show", "config"), 2, f'error[F203]: FLEXMATCH_TIER must be one of auto, native, arrays, oracle, not "fast"{GIVE}')
    monkeypatch.delenv("FLEXMATCH_TIER")
    monkeypatch.setenv("FLEXMATCH_EXACT", "maybe")
    refused(flexmatch("show", "config"), 2, f'error[F203]: FLEXMATCH_EXACT must be one of 1, true, 0, false, not "maybe"{GIVE}')
