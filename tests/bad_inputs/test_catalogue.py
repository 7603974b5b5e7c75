"""Every bad input ends as the table says: exit code and whole sentence; nothing accepted silently, no traceback, nothing left behind."""

from __future__ import annotations

import json
import os
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bad_case import Case
from catalogue import CASES, ELSEWHERE, ROWS, STATED
from command import flexmatch
from pace import within_steps

from rewrite_compiler.cli.error_codes import CODES
from rewrite_compiler.errors import FlexmatchError
from rewrite_compiler.frontend.load import load
from rewrite_compiler.limits import DEFAULT

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
EXPECTED: dict[str, dict[str, Any]] = tomllib.loads((HERE / "expected.toml").read_text("utf-8"))
STEPS = 250_000_000  # of Python, for any case: about 10 seconds; the largest models have 20,000 nodes
IMPORT_SECONDS = 1


def made(root: Path, name: str, case: Case) -> Path:
    """Write the files of a case into a folder of its own."""
    folder = root / name
    folder.mkdir()
    case.write(folder)
    return folder


def outcome(name: str, case: Case, folder: Path) -> tuple[int, str]:
    """Return exit code and what was said: the error, or the text for people, or the notes of an import."""
    os.chdir(folder)
    if case.command:
        answer = flexmatch(*case.command, "--json", "-")
        return answer.code, answer.err.replace(f"{folder}/", "") or verdicts(json.loads(answer.out))
    try:
        return 0, "\n".join(load(f"{name}.onnx", case.shapes).program.notes)
    except FlexmatchError as error:
        return error.exit_code, str(error)


def verdicts(document: dict[str, Any]) -> str:
    """Return what a document says of rules that were judged; of a plan, why matching stopped and what it was compared with."""
    if "egraph" in document:
        return f"matching: {document['egraph']['stop']['reason']}; checked against: {document['run']['check']['against']}"
    return "\n".join(f"{r['name']}: {r['verdict']}, grade {r['grade']}" for r in document["rules"])


@pytest.mark.parametrize("name", CASES)
def test_a_bad_input_ends_as_the_table_says(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rewrite_compiler.rewrite.user_file.DEFAULT", replace(DEFAULT, import_seconds=IMPORT_SECONDS))
    monkeypatch.chdir(tmp_path)
    folder = made(tmp_path, name, CASES[name])
    before = set(os.listdir(folder))
    code, said = within_steps(STEPS, lambda: outcome(name, CASES[name], folder))
    expected = EXPECTED[name]
    assert (code, said) == (expected["code"], expected["said"])
    assert code == 0 or set(os.listdir(folder)) - before <= {"__pycache__"}
    assert not any(c in said for c in ("Traceback", "\x1b", "\u202e"))


def test_table_and_cases_are_one() -> None:
    assert EXPECTED.keys() == CASES.keys()
    assert f"[{len(CASES)} kinds of bad input]" in (ROOT / "docs" / "explanation" / "promises.md").read_text("utf-8")
    assert all(EXPECTED[name]["row"] == case.row for name, case in CASES.items())


def test_every_row_of_the_catalogue_is_held_somewhere() -> None:
    assert {c.row for c in CASES.values()} | ELSEWHERE.keys() | STATED.keys() == set(ROWS)
    for page, words in STATED.values():
        assert words in (ROOT / page).read_text("utf-8")
    for place in ELSEWHERE.values():
        path, _, test = place.partition("::")
        assert f"def {test}(" in (ROOT / path).read_text("utf-8"), place


def test_every_refusal_has_a_code_with_a_page() -> None:
    for name, row in EXPECTED.items():
        if row["code"] > 1:
            assert any(f"error[{code}]: " in row["said"] for code in CODES), name
