"""The reference pages say what the program has: options, codes, limits, schemas and every key of its documents; every page is listed."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator
from dataclasses import fields
from types import ModuleType
from typing import Any

import pytest
from command import flexmatch
from pages import ROOT

from rewrite_compiler.apps import find_application
from rewrite_compiler.cli.error_codes import CODES
from rewrite_compiler.cli.verb_table import VERBS
from rewrite_compiler.errors import BUDGET, DONE, INTERNAL, INTERRUPTED, NO, REFUSED, TERMINATED, USAGE
from rewrite_compiler.frontend.normalise import BY_DOMAIN, LOWERINGS
from rewrite_compiler.limits import Limits

REFERENCE = ROOT / "docs" / "reference"
STEERED = ("advise", "bench", "compile", "cosim", "diff", "emit", "explain", "learn", "reduce", "repair", "show", "sweep")
# objects whose keys are names of the run, by the path of the object; what they hold is described once
NAMED = {
    "counts": "TARGET", "counts.TARGET": "OPERATION", "lowered_counts": "TARGET", "lowered_counts.TARGET": "OPERATION",
    "exact_counts": "TARGET", "exact_counts.TARGET": "OPERATION", "device_calls": "TARGET", "device_calls.TARGET": "OPERATION",
    "targets[].parameters": "PARAMETER", "settings.shapes": "INPUT", "offloads[].shape": "DIMENSION", "offloads[].tiles": "DIMENSION",
    "offloads[].cost.traffic": "TENSOR", "offloads[].cost.links": "LINK", "offloads[].formats": "TENSOR",
    "offloads[].formats.TENSOR": "PARAMETER",
    "formats[].parameters": "PARAMETER", "extraction.cost": "LEVEL", "extraction.bound": "LEVEL",
    "offloads[].cost.levels": "MEMORY", "offloads[].cost.levels.MEMORY": "TENSOR", "offloads[].resident.constants": "TENSOR",
    "offloads[].resident.why_not": "TENSOR", "residency": "TARGET", "residency.TARGET.saved": "SOURCE", "run.rule_seconds": "RULE",
}  # fmt: skip


def section(text: str, heading: str) -> str:
    """Return what stands under a heading, up to the next one of its depth or less."""
    depth = len(heading.split()[0])
    found = re.search(rf"^{re.escape(heading)}\n(.*?)(?=^#{{1,{depth}}} |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, heading
    return found[1]


def rows(text: str) -> Iterator[list[str]]:
    """Yield the cells of the tables of a text, without their headings."""
    for table in re.findall(r"^\|(?:.+)\n\|[-|]+\n((?:\|.*\n)+)", text, re.MULTILINE):
        yield from ([c.strip() for c in line.strip("|").split(" | ")] for line in table.strip().splitlines())


def options(text: str) -> set[str]:
    """Return the long options that the first cells of tables name."""
    return {o for row in rows(text) for o in re.findall(r"`(--[\w-]+)", row[0])}


COMMANDS = (REFERENCE / "command-line.md").read_text("utf-8")


@pytest.mark.parametrize("verb", VERBS)
def test_the_page_lists_every_option_of_a_verb(verb: str) -> None:
    answer = flexmatch(verb, "--help-all")
    has = set(re.findall(r"^  (?:-\w(?: \w+)?, )?(--[\w-]+)", answer.out, re.MULTILINE))
    listed = options(section(COMMANDS, f"### {verb}")) | options(section(COMMANDS, "## Options of every verb"))
    steering = options(section(COMMANDS, "## Options that steer compilation"))
    assert has == listed | (steering if verb in STEERED else set())


def test_the_page_lists_every_verb() -> None:
    assert set(re.findall(r"^### (\w+)$", COMMANDS, re.MULTILINE)) == VERBS.keys()


def test_the_page_lists_every_error_code() -> None:
    assert [tuple(row) for row in rows(section(COMMANDS, "## Errors"))] == [(code, *page) for code, page in CODES.items()]


def test_the_page_lists_every_limit_with_its_default() -> None:
    listed = {row[0].strip("`"): int(row[1].replace(",", "")) for row in rows(section(COMMANDS, "## Limits"))}
    assert listed == {f.name: f.default for f in fields(Limits)}


def test_the_page_lists_every_exit_code() -> None:
    listed = {int(row[0]) for row in rows(section(COMMANDS, "## Exit codes"))}
    assert listed == {DONE, NO, USAGE, REFUSED, BUDGET, INTERNAL, INTERRUPTED, TERMINATED}


def keys(value: Any, path: str = "") -> Iterator[str]:
    """Yield the path of every value in a document: a.b, a[].b; names of the run stand for what they name."""
    if isinstance(value, dict):
        for key, x in value.items():
            yield from keys(x, f"{path}.{NAMED.get(path, key)}".lstrip("."))
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for x in value:
            yield from keys(x, f"{path}[]")
    else:
        yield path


def documented(page: str) -> set[str]:
    """Return the keys that a page describes."""
    return {k for row in rows((REFERENCE / page).read_text("utf-8")) for k in re.findall(r"`([^`]+)`", row[0])}


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A calibrated plan with everything in it, and a co-simulation."""
    app, folder = find_application("digits_cnn"), tmp_path_factory.mktemp("documents")
    plan, report = folder / "plan.json", folder / "report.json"
    given = ("--calibrate", app.calibration, "--shape", "image=1,1,8,8", "-o", plan)
    made = flexmatch(app.model, "--accel", "flexasr", *given)
    assert made.code == 0, made.err
    ran = flexmatch("cosim", plan, "--data", app.data, "--samples", "8", "--json", report)
    assert ran.code == 0, ran.err
    return {"plan.md": json.loads(plan.read_text("utf-8")), "cosim.md": json.loads(report.read_text("utf-8"))}


@pytest.mark.parametrize("page", ["plan.md", "cosim.md"])
def test_the_page_describes_every_key_of_a_real_document(page: str, documents: dict[str, Any]) -> None:
    assert set(keys(documents[page])) - documented(page) == set()


def test_a_key_that_no_page_describes_is_noticed() -> None:
    plan = {"counts": {"flexasr": {"linear": 1}}, "offloads": [{"id": "a"}, {"news": 1}], "empty": []}
    assert set(keys(plan)) == {"counts.TARGET.OPERATION", "offloads[].id", "offloads[].news", "empty"}
    assert "offloads[].news" not in documented("plan.md")


def test_the_page_names_the_schema_of_every_document() -> None:
    written = set(re.findall(r'"(flexmatch\.\w+/\d+)"', "\n".join(p.read_text("utf-8") for p in (ROOT / "rewrite_compiler").rglob("*.py"))))
    assert {row[1].strip("`") for row in rows(section(COMMANDS, "## Documents"))} == written


def test_every_page_is_listed() -> None:
    listed = set(re.findall(r"\]\(([\w/-]+\.md)\)", (ROOT / "docs" / "README.md").read_text("utf-8")))
    assert listed == {str(p.relative_to(ROOT / "docs")) for p in (ROOT / "docs").rglob("*.md")} - {"README.md"}


def maker(name: str) -> ModuleType:
    """Return the script that makes a reference page."""
    spec = importlib.util.spec_from_file_location(f"reference_{name}", REFERENCE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


def test_the_page_of_the_python_interface_is_what_the_docstrings_say() -> None:
    assert (REFERENCE / "python.md").read_text("utf-8") == maker("make").page(), "run python docs/reference/make.py"


def test_the_page_of_supported_operators_is_what_import_table_laws_and_mappings_say() -> None:
    page = maker("operators").page()
    assert (REFERENCE / "supported-operators.md").read_text("utf-8") == page, "run python docs/reference/operators.py"
    cells = {row[0].strip("`| "): row for row in rows(section(page, "## ONNX operators"))}
    listed = section(page, "## Operators that compute nothing on an accelerator")
    table = [".".join(part for part in (domain, name) if part) for domain, names in BY_DOMAIN.items() for name in names]
    assert all((name in cells) != (f"`{name}`" in listed) for name in table)
    assert "`conv2d` (weights constant" in cells["Conv"][3]
    assert "step by step" in cells["LSTM"][4]
    assert set(cells["Exp"][2:]) <= {"–", "– |"}
    assert "folded into constants of `conv`" in cells["BatchNormalization"][3]


def test_operators_of_an_import_function_are_read_from_its_source_and_closure() -> None:
    applied = maker("operators").applied_operators
    assert applied(LOWERINGS["Relu"]) == {"relu"}
    assert {"conv", "bias_add"} <= applied(LOWERINGS["Conv"])
    assert "lstm" in applied(LOWERINGS["LSTM"])


def test_a_condition_without_words_is_written_as_it_is() -> None:
    sentence = maker("operators")._sentence
    assert sentence("constant(w)") == "weights constant"
    assert sentence("x.rank == 4") == "rank 4"
    assert sentence("x.shape[0] < 3") == "`x.shape[0] < 3`"
