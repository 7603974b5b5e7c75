"""flexmatch show: text and page of a plan, with the accuracy of its co-simulation; other documents are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command import flexmatch, refused

AGAIN = "\n  help: run flexmatch cosim again"


@pytest.fixture
def report(folder: Path) -> Path:
    """The document of a co-simulation of ready.json."""
    assert flexmatch("cosim", "ready.json", "--data", "test.npz", "--json", "report.json", "-q").code == 0
    return folder / "report.json"


def test_a_plan_as_text_and_as_a_page(report: Path) -> None:
    text = flexmatch("show", "ready.json", "--cosim", "report.json")
    assert (text.code, text.err, text.new) == (0, "", ())
    assert "plan      2 linear on flexasr (as written: 2 linear) · 100.0% of 160 MACs\n" in text.out
    assert "\nhost       top1 " in text.out
    made = flexmatch("show", "ready.json", "--cosim", "report.json", "--html", "report.html")
    assert (made.code, made.out, made.new) == (0, "wrote     report.html\n", ("report.html",))
    page = Path("report.html").read_text("utf-8")
    assert "<h1>app.onnx on flexasr</h1>" in page
    assert "<h2>Accuracy</h2>" in page
    assert "<h2>Accuracy</h2>" not in (flexmatch("show", "ready.onnx", "--html", "p.html"), Path("p.html").read_text("utf-8"))[1]
    assert flexmatch("show", "app.onnx", "--accel", "flexasr").code == 0


def test_a_page_is_opened_in_a_browser(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda url: not opened.append(url))
    answer = flexmatch("show", "ready.json", "--open")
    assert (answer.code, answer.err, answer.new) == (0, "", ("ready.html",))
    assert opened == [(folder / "ready.html").as_uri()]
    assert '<svg id="graph"' in Path("ready.html").read_text("utf-8")
    monkeypatch.setattr("webbrowser.open", lambda url: False)
    said = "error[F100]: ready.html was written, and no browser could be started\n  help: open the file yourself\n"
    again = flexmatch("show", "ready.json", "--open", "-q")
    assert (again.code, again.err) == (2, said)


TENSOR = {
    "tensor": "x", "format": "fixed", "values": 1, "zeros": 0, "saturated": 0, "underflowed": 0, "range": [0, 1], "largest": 1,
    "relative_error": 0, "histogram": {"first_exponent": 0, "counts": [1]},
}  # fmt: skip
WRONG: dict[str, tuple[Callable[[Any], Any], str]] = {
    "another document": (lambda r: {**r, "schema": "flexmatch.plan/1"}, 'Schema of a report must be "flexmatch.cosim/1"'),
    "a list": (lambda r: [r], 'Schema of a report must be "flexmatch.cosim/1"'),
    "another model": (lambda r: {**r, "model": {"sha256": "00"}}, "the report is about another model"),
    "no metric": (lambda r: {k: v for k, v in r.items() if k != "metric"}, 'report has no key "metric"'),
    "an interval that is a text": (
        lambda r: {**r, "paired": {**r["paired"], "interval": "wide"}},
        "report.paired.interval must be two numbers or nulls, not a text",
    ),
    "a range of three": (
        lambda r: {**r, "offloads": [{**r["offloads"][0], "range_in": [0, 1, 2]}]},
        "report.offloads[0].range_in must be two numbers or nulls, not a list",
    ),
    "a tensor without a histogram": (
        lambda r: {**r, "offloads": [{**r["offloads"][0], "tensors": [{k: v for k, v in TENSOR.items() if k != "histogram"}]}]},
        'report.offloads[0].tensors[0] has no key "histogram"',
    ),
    "a negative count": (
        lambda r: {**r, "offloads": [{**r["offloads"][0], "tensors": [{**TENSOR, "histogram": {"first_exponent": 0, "counts": [-1]}}]}]},
        "report.offloads[0].tensors[0].histogram.counts[0] must be a number from 0 on or null, not a whole number",
    ),
    "seconds that are null": (
        lambda r: {**r, "run": {**r["run"], "wall_seconds": None}},
        "report.run.wall_seconds must be a number from 0 on, not null",
    ),
    "seconds that are no number": (
        lambda r: {**r, "run": {**r["run"], "wall_seconds": float("nan")}},
        "report.run.wall_seconds must be a number from 0 on, not a number",
    ),
    "a figure beyond all floats": (
        lambda r: {**r, "paired": {**r["paired"], "difference": 10**4000}}, "report.paired.difference must be within 64 bits",
    ),
    "a count beyond 64 bits": (lambda r: {**r, "samples": 1 << 63}, "report.samples must be within 64 bits"),
    "offloads without their audit": (
        lambda r: {**r, "offloads": [{k: v for k, v in r["offloads"][0].items() if k != "validated_samples"}]},
        'report.offloads[0] has no key "validated_samples"',
    ),
    "an audit that is a list": (
        lambda r: {**r, "simulator": {**r["simulator"], "audited": []}}, "report.simulator.audited must be a whole number, not a list",
    ),
    "an error that is a text": (
        lambda r: {**r, "offloads": [{**r["offloads"][0], "relative_error": "2%"}]},
        "report.offloads[0].relative_error must be a number from 0 on or null, not a text",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_document_that_is_no_report_of_the_plan(name: str, report: Path) -> None:
    change, said = WRONG[name]
    report.write_text(json.dumps(change(json.loads(report.read_text("utf-8")))), "utf-8")
    for more in ((), ("--html", "report.html")):
        refused(flexmatch("show", "ready.json", "--cosim", "report.json", *more), 3, f"report.json: error[C100]: {said}{AGAIN}")


def test_a_long_name_of_an_accelerator_is_a_line_of_its_own(report: Path) -> None:
    document = json.loads(report.read_text("utf-8"))
    report.write_text(json.dumps({**document, "targets": ["x" * 5000]}), "utf-8")
    answer = flexmatch("show", "ready.json", "--cosim", "report.json")
    assert (answer.code, answer.err) == (0, "")
    lines = answer.out.splitlines()
    at = lines.index(f"{'x' * 1024}…")
    assert lines[at + 1] == "  (5000 characters)"
    assert lines[at + 2].startswith("           top1 ")  # under the text of the other rows


def test_files_that_cannot_be_read_or_written(folder: Path) -> None:
    said = "none.json: error[F101]: there is no such file\n  help: check the path"
    refused(flexmatch("show", "ready.json", "--cosim", "none.json"), 2, said)
    Path("junk.json").write_bytes(b"{")
    said = "junk.json: error[F103]: the file is not JSON: Expecting property name enclosed in double quotes, line 1"
    refused(flexmatch("show", "ready.json", "--cosim", "junk.json"), 3, f"{said}{AGAIN}")
    refused(flexmatch("show", "none.json"), 2, "none.json: error[F101]: there is no such file\n  help: give a plan or a model")
    said = "error[F100]: ready.json cannot be written: it is an input of this command\n  help: choose another name"
    refused(flexmatch("show", "ready.json", "--html", "ready.json"), 2, said)
    said = "error[F100]: no/page.html cannot be written: there is no folder no\n  help: mkdir -p no makes it"
    refused(flexmatch("show", "ready.json", "--html", "no/page.html"), 2, said)


UNIT = '''from rewrite_compiler.ila import Ila, mmio
from rewrite_compiler.lang import update

unit = Ila("unit", "A unit.")
bus = mmio(unit)
unit.memory("rows", (16, 16), 8, doc="Rows.")


@unit.instruction("store", bus.write_range(0x1000, 16), lanes="row")
def store(index, row):
    """Store a row."""
    return update(unit.s.rows, 16, lambda j: ((index[()], j), row[j]))
'''


def test_a_file_with_a_model_alone_is_shown(folder: Path) -> None:
    (folder / "unit.py").write_text(UNIT, "utf-8")
    shown = flexmatch("show", "ila", "unit.py")
    assert (shown.code, shown.err) == (0, "")
    assert "rows[index, i] := row[i]   for i in 0 … 15" in shown.out
    sentence = "error[F203]: unit.py defines a model and no target, so it takes no parameters\n  help: leave out :size=4\n"
    given = flexmatch("show", "ila", "unit.py:size=4")
    assert (given.code, given.err) == (2, sentence)
    (folder / "unit.py").write_text(UNIT.replace("row[j]", "row[j] + 1"), "utf-8")
    refused = flexmatch("show", "ila", "unit.py")
    assert "unit.py:9 in store: error[I102]: rows holds values in 0…255, not 1…256" in refused.err
