"""Several plans and reports side by side: paired by model and accelerators, and what does not belong together is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import flexmatch, refused

from rewrite_compiler.report.figures import interval_text

REMEDY = "give what compile, cosim and demo write with --json"


@pytest.fixture
def reports(folder: Path) -> None:
    assert flexmatch("cosim", "ready.json", "--data", "test.npz", "--samples", "8", "--json", "report.json", "-q").code == 0
    assert flexmatch("app.onnx", "--accel", "vta", "-q").code == 0


@pytest.mark.usefixtures("reports")
def test_applications_by_accelerators() -> None:
    answer = flexmatch("show", "compare", "report.json", "ready.json", "app.vta.json", "--html", "page.html", "--json", "c.json")
    assert (answer.code, answer.err) == (0, "")
    rows = json.loads(Path("c.json").read_text("utf-8"))["reports"]
    assert [(r["application"], r["accelerators"], r["accuracy"][-1] == "–") for r in rows] == [
        ("app", "flexasr", False),
        ("app", "vta", True),
    ]
    interval = json.loads(Path("report.json").read_text("utf-8"))["paired"]["interval"]
    assert f" ({interval_text(interval)})" in rows[0]["accuracy"]
    page = Path("page.html").read_text("utf-8")
    assert f"<small>{interval_text(interval)}</small>" in page  # on the dashboard
    assert "1 application on 2 accelerators" in page
    assert page.count("<script") == 1


@pytest.mark.usefixtures("reports")
def test_parameters_are_named_where_they_vary() -> None:
    for name, revision in (("first", "ext16"), ("other", "orig")):  # both have certificates
        assert flexmatch("app.onnx", "--accel", f"hlscnn:revision={revision}", "-q", "-o", name).code == 0
    answer = flexmatch("show", "compare", "first.json", "other.json", "--json", "-")
    assert [r["accelerators"].partition(":")[2] for r in json.loads(answer.out)["reports"]] == ["revision=ext16", "revision=orig"]


@pytest.mark.usefixtures("reports")
def test_a_report_without_its_plan() -> None:
    said = (
        "report.json: error[C100]: no plan here is of this report's model and accelerators\n"
        "  help: give its plan, too: show compare PLAN.json report.json"
    )
    refused(flexmatch("show", "compare", "report.json", "app.vta.json"), 3, said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "error[F103]: the file is not JSON: Expecting property name enclosed in double quotes, line 1"),
        ("[]", 'error[C100]: schema must be "flexmatch.plan/1", "flexmatch.cosim/1" or "flexmatch.demo/1"'),
        ('{"schema": "flexmatch.plan/1"}', "error[C100]: the document does not say its model and accelerators"),
        (
            '{"schema": "flexmatch.plan/1", "model": {"path": "a", "sha256": "b"}, "targets": [{"name": "t", "parameters": {}}]}',
            "error[C100]: the document lacks what a comparison reads: 'offloads'",
        ),
        (
            '{"schema": "flexmatch.plan/1", "model": {"sha256": "b"}, "targets": [{"name": "t", "parameters": []}]}',
            "error[C100]: the document lacks what a comparison reads: 'list' object has no attribute 'items'",
        ),
    ],
)
def test_documents_of_another_kind(text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.json").write_text(text)
    answer = flexmatch("show", "compare", "x.json")
    assert answer.code == 3
    assert answer.err == f"x.json: {said}\n  help: {REMEDY}\n"


def test_names_are_text_on_the_page(folder: Path) -> None:
    document = json.loads(Path("ready.json").read_text("utf-8"))
    document["model"]["path"] = "<script>alert(1)<"
    document["targets"][0]["name"] = "<b>x"
    Path("x.json").write_text(json.dumps(document))
    assert flexmatch("show", "compare", "x.json", "--html", "page.html").code == 0
    page = Path("page.html").read_text("utf-8")
    assert "<script>alert" not in page
    assert "<b>x" not in page
