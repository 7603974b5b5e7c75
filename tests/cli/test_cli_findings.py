"""Findings as JUnit and SARIF, and commands that run again when a file changes."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote
from xml.etree import ElementTree

import onnx
import pytest
from command import flexmatch, perceptron, refused, samples

from rewrite_compiler.cli import watch as watching
from rewrite_compiler.cli.findings import Finding, junit, sarif, split_place

HEAD = "from rewrite_compiler import Law, Tensor, ops as o, rule\n\n\n"
TRUE = (
    '@rule(grade="A")\ndef relu_twice(x: Tensor) -> Law:\n    """relu(relu(x)) = relu(x)"""\n    return o.relu(o.relu(x)), o.relu(x)\n\n\n'
)
FALSE = (
    '@rule(grade="A")\ndef relu_over_add(x: Tensor, y: Tensor) -> Law:\n    """relu(x + y) = relu(x) + relu(y)"""\n'
    "    return o.relu(o.add(x, y)), o.add(o.relu(x), o.relu(y))\n"
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("laws.py").write_text(HEAD + TRUE + FALSE)


def test_proofs_as_test_cases_and_results() -> None:
    assert flexmatch("prove", "laws.py", "--junit", "p.xml", "--sarif", "p.sarif").code == 1
    root = ElementTree.parse("p.xml").getroot()
    assert (root.get("tests"), root.get("failures")) == ("2", "1")
    cases = {c.get("name"): c.find("failure") for c in root.iter("testcase")}
    assert cases["relu-twice"] is None
    failure = cases["relu-over-add"]
    assert failure is not None
    assert failure.get("type") == "R102"
    assert "left 0, right 1, with x = -1, y = 1" in str(failure.text)
    (result,) = json.loads(Path("p.sarif").read_text("utf-8"))["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]
    assert (result["ruleId"], place["region"], place["artifactLocation"]["uri"].rpartition("/")[2]) == (
        "R102",
        {"startLine": 10},
        "laws.py",
    )


def test_a_check_that_finds_nothing_is_one_good_case() -> None:
    Path("laws.py").write_text(HEAD + TRUE)
    assert flexmatch("check", "laws.py", "--junit", "c.xml", "--sarif", "c.sarif").code == 0
    assert [c.get("name") for c in ElementTree.parse("c.xml").getroot().iter("testcase")] == ["laws.py"]
    assert json.loads(Path("c.sarif").read_text("utf-8"))["runs"][0]["results"] == []


def test_a_check_that_finds_something_has_its_code() -> None:
    assert flexmatch("check", "laws.py", "--sarif", "c.sarif").code == 1
    assert [r["ruleId"] for r in json.loads(Path("c.sarif").read_text("utf-8"))["runs"][0]["results"]] == ["R102"]


def test_names_from_outside_stay_text() -> None:
    hostile = Finding('<a "b">&\x00\x1b', "dir/x.py:7", "left < right\x08\nand more", "R102")
    root = ElementTree.fromstring(junit("prove", [hostile]))
    (case,) = root.iter("testcase")
    assert (case.get("name"), case.get("classname")) == ('<a "b">&��', "dir/x.py")
    assert sarif([hostile, Finding("good", "")])["runs"][0]["tool"]["driver"]["rules"] == [{"id": "R102"}]
    assert [split_place(p) for p in ("a:b.py:12", "a.py", "")] == [("a:b.py", 12), ("a.py", 0), ("", 0)]


def test_a_file_that_cannot_be_written_is_refused_before_the_work() -> None:
    said = "error[F100]: none/p.xml cannot be written: there is no folder none\n  help: mkdir -p none makes it"
    refused(flexmatch("prove", "laws.py", "--junit", "none/p.xml"), 2, said)


@pytest.mark.parametrize(("folder_name", "root"), [("", "."), ("src/naïve rules", "."), ("src", "src")])
def test_sarif_names_files_from_the_checkout_on(folder_name: str, root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From any folder of a checkout; without one from the working folder."""
    if root == ".":
        Path(".git").mkdir()
    folder, here = Path(folder_name), Path.cwd()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "my läws.py").write_text(HEAD + FALSE)
    monkeypatch.chdir(folder)
    for verb in ("prove", "check"):
        assert flexmatch(verb, "my läws.py", "--sarif", "p.sarif").code == 1
        (run,) = json.loads(Path("p.sarif").read_text("utf-8"))["runs"]
        location = run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]
        assert location == {"uri": quote(str((folder / "my läws.py").relative_to(root))), "uriBaseId": "SRCROOT"}
        assert location["uri"].isascii()
        assert " " not in location["uri"]
        base = run["originalUriBaseIds"]["SRCROOT"]["uri"]
        assert base == f"{(here / root).resolve().as_uri()}/"


def test_sarif_names_a_file_outside_of_the_checkout_whole() -> None:
    Path("inside").mkdir()
    with contextlib.chdir("inside"):
        assert flexmatch("prove", "../laws.py", "--sarif", "p.sarif").code == 1
    (result,) = json.loads(Path("inside/p.sarif").read_text("utf-8"))["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"] == {"uri": Path("laws.py").resolve().as_uri()}


def test_a_place_inside_of_a_file_is_no_part_of_its_name() -> None:
    Path("bad: model.onnx").write_bytes(b"")
    assert split_place('bad: model.onnx:node "first"') == ("bad: model.onnx", 0)
    assert split_place("laws.py:7:12") == ("laws.py", 7)


def after(monkeypatch: pytest.MonkeyPatch, *changes: Callable[[], object]) -> None:
    """Do one thing each time the watch sleeps, then interrupt it."""
    pending = [*changes]

    def sleep(_: float) -> None:
        if not pending:
            raise KeyboardInterrupt
        pending.pop(0)()

    monkeypatch.setattr(watching.time, "sleep", sleep)


def test_a_watched_proof_runs_again_when_its_file_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    after(monkeypatch, lambda: None, lambda: Path("laws.py").write_text(HEAD + TRUE), lambda: None)
    answer = flexmatch("prove", "laws.py", "--watch")
    assert answer.code == 0
    assert [line for line in answer.out.splitlines() if line.startswith("rules")] == ["rules     1 of 2 proved", "rules     1 of 1 proved"]
    assert answer.err == "watching  1 files; Ctrl-C ends\nchanged   laws.py\n"


def test_a_watched_co_simulation_runs_again_when_its_data_change(monkeypatch: pytest.MonkeyPatch) -> None:
    onnx.save(perceptron((16, 8, 4)), "app.onnx")
    samples(Path("test.npz"), 48, 16, classes=4)
    after(monkeypatch, lambda: None, lambda: samples(Path("test.npz"), 60, 16, classes=4), lambda: Path("test.npz").unlink())
    answer = flexmatch("cosim", "app.onnx", "--accel", "flexasr", "--data", "test.npz", "--json", "report.json", "--watch")
    assert answer.code == 2  # of the last run, which has no data
    assert [line.split()[1] for line in answer.out.splitlines() if line.startswith("samples")] == ["16", "28"]
    assert json.loads(Path("report.json").read_text("utf-8"))["samples"] == 28
    assert answer.err.count("changed   test.npz\n") == 2
    assert answer.err.endswith("changed   test.npz\ntest.npz: error[F101]: there is no such file or folder\n  help: check the path\n")


def test_a_watched_co_simulation_sees_its_accelerator_and_its_plan_change(monkeypatch: pytest.MonkeyPatch) -> None:
    onnx.save(perceptron((16, 8, 4)), "app.onnx")
    samples(Path("test.npz"), 48, 16, classes=4)
    assert flexmatch("init", "accelerator", "mine").code == 0
    device = Path("mine/mine.py")
    changes = (
        lambda: device.write_text(device.read_text("utf-8") + "# changed\n", "utf-8"),
        lambda: onnx.save(perceptron((16, 4)), "app.onnx"),
    )
    after(monkeypatch, *changes, lambda: None)
    answer = flexmatch("cosim", "app.onnx", "--accel", device, "--data", "test.npz", "--watch")
    assert answer.code == 0, answer.err
    assert [line for line in answer.err.splitlines() if line.startswith("changed")] == [f"changed   {device}", "changed   app.onnx"]
    assert answer.out.count("samples    16") == 3


def test_a_watch_goes_on_after_a_refusal_and_sees_files_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    after(monkeypatch, lambda: Path("laws.py").write_text("1 / 0\n"), lambda: Path("other.py").write_text(""))
    answer = flexmatch("prove", "laws.py", "--watch")
    assert answer.code == 3
    assert answer.err.count("error[R100]") == 2
    assert "changed   other.py\n" in answer.err
