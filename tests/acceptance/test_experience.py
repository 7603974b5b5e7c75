"""More acceptance checks of a new user, one function each: files, options, editors, continuous integration, Python, and skeletons."""

from __future__ import annotations

import inspect
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import onnx
import pytest
from command import FLEXMATCH, flexmatch, process
from pages import blocks
from test_acceptance import CHECKS as FIRST_CHECKS
from test_acceptance import LINEAR, ROOT, Visitor, here, workshop

import flexmatch as public

__all__ = ["here", "workshop"]  # fixtures
WATCH_SECONDS = 120.0  # after which a command that was not interrupted ends
FALSE = '''from flexmatch import Law, Tensor, ops as o, rule


@rule(grade="A")
def relu_over_add(x: Tensor, y: Tensor) -> Law:
    """relu(x + y) = relu(x) + relu(y)"""
    return o.relu(o.add(x, y)), o.add(o.relu(x), o.relu(y))
'''
TRUE = FALSE.replace("relu_over_add", "add_turned").replace('"""relu(x + y) = relu(x) + relu(y)"""', '"""x + y = y + x"""').replace(
    "return o.relu(o.add(x, y)), o.add(o.relu(x), o.relu(y))", "return o.add(x, y), o.add(y, x)"
)  # fmt: skip


def no_input_is_replaced(here: Visitor) -> None:
    Path("laws.py").write_text(FALSE)
    commands = {
        "app.onnx": ("advise", "app.onnx", *LINEAR),
        "laws.py": ("prove", "laws.py"),
        "test.npz": ("cosim", "app.flexasr.json", "--data", "test.npz"),
        "app.flexasr.onnx": ("show", "app.flexasr.json"),
    }
    for name, command in commands.items():
        before = Path(name).read_bytes()
        answer = flexmatch(*command, "--json", name)
        assert (answer.code, answer.out) == (2, "")
        assert answer.err.startswith(f"error[F100]: {name} cannot be written: it is an input of this command")
        assert Path(name).read_bytes() == before


def both_files_of_a_plan_are_named(here: Visitor) -> None:
    answer = flexmatch("app.onnx", *LINEAR, "-o", "app.json")
    assert answer.code == 2
    assert "app.onnx cannot be written" in answer.err
    assert "a plan is two files, app.json and app.onnx" in answer.err


def an_option_without_effect_is_refused(here: Visitor) -> None:
    Path("laws.py").write_text(TRUE)
    for command in ("check laws.py --groups 2", "check app.flexasr.json --groups 2", "emit verilog vta --data test.npz"):
        words = command.split()
        answer = flexmatch(*words)
        assert (answer.code, answer.out) == (2, "")
        assert answer.err.startswith(f"error[F203]: {words[-2]} is for ")


def editors_find_the_place_of_a_finding(here: Visitor) -> None:
    folder = Path("my rules")
    folder.mkdir()
    (folder / "laws.py").write_text(FALSE)
    assert flexmatch("prove", folder / "laws.py", "--sarif", "f.sarif", "--junit", "f.xml").code == 1
    (run,) = json.loads(Path("f.sarif").read_text("utf-8"))["runs"]
    place = run["results"][0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "my%20rules/laws.py"
    assert place["region"]["startLine"] == 4
    (case,) = ElementTree.parse("f.xml").getroot().iter("testcase")
    assert case.find("failure") is not None


def ended_by_interrupt(*arguments: str, change: Callable[[], object], runs: str) -> str:
    """Run a command that watches; change a file after its first answer, interrupt it after the second, and return what it printed."""
    command, said = [*FLEXMATCH, *arguments, "--watch"], ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as watching:
        assert watching.stdout is not None
        limit = threading.Timer(WATCH_SECONDS, watching.kill)
        limit.start()
        for line in watching.stdout:
            said += line
            if line.startswith("watching"):
                change()
            if line.startswith(runs) and "changed " in said:
                watching.send_signal(signal.SIGINT)
    limit.cancel()
    return said


def a_watched_proof_runs_again(here: Visitor) -> None:
    Path("laws.py").write_text(FALSE)
    said = ended_by_interrupt("prove", "laws.py", change=lambda: Path("laws.py").write_text(TRUE), runs="mappings")
    assert re.findall(r"^rules +(.*)$", said, re.MULTILINE) == ["0 of 1 proved", "1 of 1 proved"]


def a_watched_co_simulation_runs_again(here: Visitor) -> None:
    with np.load("test.npz") as data:
        fewer = {name: data[name][:40] for name in data.files}
    said = ended_by_interrupt(
        "cosim", "app.flexasr.json", "--data", "test.npz", change=lambda: np.savez("test.npz", **fewer), runs="samples"
    )  # fmt: skip
    assert re.findall(r"^samples +(\d+)", said, re.MULTILINE)[1] == "40"


def a_narrower_skeleton_loses_accuracy(here: Visitor) -> None:
    """The README's story, word for word."""
    page = next(b.text for b in blocks(ROOT / "README.md") if b.text.startswith("$ flexmatch init accelerator"))
    assert "top1 0.86" in page
    assert flexmatch("init", "accelerator", "unit", "-q").code == 0
    os.chdir("unit")
    values = []
    for width in (20, 14):
        text = Path("unit.py").read_text("utf-8")
        Path("unit.py").write_text(re.sub(r"^ACCUMULATOR = \d+", f"ACCUMULATOR = {width}", text, flags=re.MULTILINE), "utf-8")
        given = ("--accel", "./unit.py", "--data", "test.npz", "--calibrate", "calibration.npz", "--samples", "100", "--json", "-")
        values.append(json.loads(flexmatch("cosim", "model.onnx", *given).out)["accelerated"]["value"])
    assert values == [0.97, 0.86]


def ten_lines_are_an_accelerator(here: Visitor) -> None:
    text = next(b.text for b in blocks(ROOT / "README.md") if b.file == "mac.py")
    assert len([line for line in text.splitlines() if line and not line.startswith("from ")]) == 10
    Path("mac.py").write_text(text)
    assert flexmatch("check", "mac.py").code == 0
    Path("mac.py").write_text(text.replace(", 20))", ", 100))"))
    answer = flexmatch("check", "mac.py")
    assert answer.code == 1
    assert re.search(r"mac\.py:12 in step: error\[I102\]: total holds values in ", answer.err)


def python_takes_models_and_data_as_they_are(here: Visitor) -> None:
    model, plans = onnx.load("app.onnx"), []
    for form in ("app.onnx", Path("app.onnx").read_bytes(), model):
        plans.append(public.compile(form, "flexasr", calibrate="calibration.npz"))
    assert {len(p.offloads) for p in plans} == {3}
    with np.load("test.npz") as data:
        arrays = {name: data[name] for name in data.files}
    reports = [public.cosimulate(plans[0], data, samples=8) for data in ("test.npz", arrays)]
    assert reports[0].document["accelerated"] == reports[1].document["accelerated"]


def public_names_are_few_and_described(here: Visitor) -> None:
    names = [n for n in dir(public) if not n.startswith("_")]
    assert 10 <= len(names) <= 20
    assert all(inspect.getdoc(getattr(public, n)) for n in names)
    for function in (public.compile, public.cosimulate, public.map):
        parameters = inspect.signature(function).parameters.values()
        assert not any(p.kind == p.VAR_POSITIONAL for p in parameters)
        assert all(p.annotation is not p.empty for p in parameters)


def importing_is_quick(here: Visitor) -> None:
    """Processor seconds beyond those of a Python that imports nothing, the least of five."""

    def seconds(code: str) -> float:
        before = os.times()
        subprocess.run([sys.executable, "-c", code], check=True)
        after = os.times()
        return after.children_user + after.children_system - before.children_user - before.children_system

    assert min(seconds("import flexmatch") for _ in range(5)) - min(seconds("pass") for _ in range(5)) <= 0.1


def a_plan_prints_as_a_line(here: Visitor) -> None:
    compiled = public.compile("app.onnx", "flexasr")
    assert len(repr(compiled)) < 200
    assert "\n" not in repr(compiled)
    assert "flexasr" in repr(compiled)


def nodes_are_explained_by_any_name(here: Visitor) -> None:
    lines = flexmatch("explain", "app.flexasr.json").out.splitlines()
    assert len(lines) >= len(onnx.load("app.onnx").graph.node)
    for name in ("Gemm", "*gemm*", "0"):
        answer = flexmatch("explain", "app.flexasr.json", name)
        assert answer.code == 0, answer.err
        assert answer.out


def reports_stand_side_by_side(here: Visitor) -> None:
    for name in ("flexasr", "vta"):
        assert flexmatch("app.onnx", "--accel", name, "-o", name, "-q").code == 0
    answer = flexmatch("show", "compare", "flexasr.json", "vta.json", "--html", "both.html")
    assert answer.code == 0, answer.err
    assert {"flexasr", "vta"} <= set(answer.out.split())
    assert "default-src 'none'" in Path("both.html").read_text("utf-8")


def the_demo_leaves_a_report_and_a_next_step(here: Visitor) -> None:
    before = time.time() - 1
    answer = process("demo", "digits_mlp", "--samples", "8")
    said = answer.stdout.decode()
    assert answer.returncode == 0
    assert re.search(r"^wrote +digits_mlp\.html", said, re.MULTILINE)
    assert re.search(r"^next +.*flexmatch MODEL\.onnx --accel NAME", said, re.MULTILINE)
    assert Path("digits_mlp.html").stat().st_mtime >= before


CHECKS: tuple[tuple[str, Callable[[Visitor], None]], ...] = (
    ("no output replaces an input, whichever verb is asked", no_input_is_replaced),
    ("a plan beside its model is refused by the names of both of its files", both_files_of_a_plan_are_named),
    ("an option that would change nothing is refused", an_option_without_effect_is_refused),
    ("SARIF and JUnit name file and line, from the checkout on", editors_find_the_place_of_a_finding),
    ("`prove --watch` judges again when its file changes", a_watched_proof_runs_again),
    ("`cosim --watch` runs again when its data change", a_watched_co_simulation_runs_again),
    ("a skeleton of an accelerator runs; a narrower accumulator loses accuracy, 0.97 to 0.86", a_narrower_skeleton_loses_accuracy),
    ("ten lines specify an accelerator, and a value that does not fit is named at its line", ten_lines_are_an_accelerator),
    ("Python takes a model as path, bytes or ModelProto, and data as arrays", python_takes_models_and_data_as_they_are),
    ("at most twenty public names, with signatures and docstrings", public_names_are_few_and_described),
    ("`import flexmatch` within 0.1 s", importing_is_quick),
    ("a plan prints as one short line", a_plan_prints_as_a_line),
    ("`explain` takes operators, globs and numbers, and no name for all nodes", nodes_are_explained_by_any_name),
    ("plans for several accelerators stand on one page", reports_stand_side_by_side),
    ("`demo` leaves a report, and says what to do next", the_demo_leaves_a_report_and_a_next_step),
)  # fmt: skip


@pytest.mark.parametrize(
    ("says", "check"), [pytest.param(says, check, id=f"{n} {says}") for n, (says, check) in enumerate(CHECKS, len(FIRST_CHECKS) + 1)]
)
def test_experience(says: str, check: Callable[[Visitor], None], here: Visitor) -> None:  # noqa: F811
    check(here)


def test_the_page_of_promises_shows_this_table() -> None:
    text = (ROOT / "docs" / "explanation" / "promises.md").read_text("utf-8")
    assert len(CHECKS) == 15
    assert all(f"| {n} | {says} |" in text for n, (says, _) in enumerate(CHECKS, len(FIRST_CHECKS) + 1))
