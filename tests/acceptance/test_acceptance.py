"""The acceptance checks of a new user, one function each, in one table; the README shows the table."""

from __future__ import annotations

import ast
import json
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from command import FLEXMATCH, flexmatch, onnx_model, process
from onnx import helper

from rewrite_compiler.apps import named
from rewrite_compiler.cli.verbs import VERBS

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {"onnx", "onnxruntime", "egglog", "z3", "numpy", "llvmlite", "highspy"}
LINEAR = ("--accel", "flexasr")
RULE = '''from rewrite_compiler import Law, Tensor, rule
from rewrite_compiler import ops as o

@rule(grade="E")
def relu_twice(x: Tensor) -> Law:
    """relu(relu(x)) = relu(x)"""
    return o.relu(o.relu(x)), o.relu(x)
'''
NEGATED = '''from rewrite_compiler import Law, Tensor, rule
from rewrite_compiler import ops as o

@rule(grade="A")
def negate_weights(x: Tensor, w: Tensor) -> Law:
    """−(x·wᵀ) = x·(−w)ᵀ"""
    return o.neg(o.dense(x, w)), o.dense(x, o.neg(w))
'''


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a shipped model, its data, and its plan."""
    folder = tmp_path_factory.mktemp("workshop")
    app = named("digits_mlp")
    for source, name in ((app.model, "app.onnx"), (app.data, "test.npz"), (app.calibration, "calibration.npz")):
        shutil.copy(source, folder / name)
    back = os.getcwd()
    os.chdir(folder)
    try:
        answer = flexmatch("app.onnx", *LINEAR, "--calibrate", "calibration.npz")
    finally:
        os.chdir(back)
    (folder / "said.txt").write_text(f"{answer.code}\n{answer.out}{answer.err}", "utf-8")
    return folder


@pytest.fixture
def here(workshop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the workshop, as working directory."""
    copy = tmp_path / "here"
    shutil.copytree(workshop, copy)
    monkeypatch.chdir(copy)
    return copy


def held_by(*tests: str) -> None:
    """Require that tests elsewhere exist which hold the check in full."""
    for test in tests:
        path, _, name = test.partition("::")
        names = {n.name for n in ast.walk(ast.parse((ROOT / path).read_text("utf-8"))) if isinstance(n, ast.FunctionDef)}
        assert name in names, test


def plan() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(Path("app.flexasr.json").read_text("utf-8"))
    return document


def child_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def installing_brings_only_what_is_named(here: Path) -> None:
    held_by(
        "tests/test_wheel.py::test_the_wheel_needs_the_stated_packages_only", "tests/test_wheel.py::test_everything_imports_from_the_wheel"
    )
    before = child_seconds()
    assert process("--version").stdout.startswith(b"flexmatch ")
    assert child_seconds() - before < 0.2


def help_is_short_and_light(here: Path) -> None:
    run = subprocess.run([sys.executable, "-X", "importtime", *FLEXMATCH[1:], "--help"], capture_output=True, text=True, check=True)
    assert len(run.stdout.splitlines()) <= 40
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in run.stderr.splitlines()}
    assert not loaded & HEAVY


def readme_works(here: Path) -> None:
    held_by("tests/test_docs.py::test_every_block_does_what_its_page_says")
    assert "```console\n$ flexmatch demo\n" in (ROOT / "README.md").read_text("utf-8")


def compiling_prints_plan_and_next_step(here: Path) -> None:
    code, said = (here / "said.txt").read_text("utf-8").split("\n", 1)
    assert code == "0"
    assert re.search(r"^plan      3 linear on flexasr ", said, re.MULTILINE)
    assert re.search(r"^next      flexmatch cosim app\.flexasr\.json --data FILE$", said, re.MULTILINE)


def written_model_is_onnx(here: Path) -> None:
    model = onnx.load("app.flexasr.onnx")
    onnx.checker.check_model(model, full_check=True)
    assert "flexmatch.flexasr" in {o.domain for o in model.opset_import}


def running_again_gives_the_same_bytes(here: Path) -> None:
    first = plan()
    assert flexmatch("app.onnx", *LINEAR, "--calibrate", "calibration.npz", "-q").code == 0
    again = plan()
    assert {k: v for k, v in first.items() if k != "run"} == {k: v for k, v in again.items() if k != "run"}


def a_misspelt_name_is_guessed(here: Path) -> None:
    answer = flexmatch("app.onnx", "--accel", "flexsar")
    assert answer.code == 2
    assert answer.err.startswith('error[F201]: there is no accelerator called "flexsar"\n  help: did you mean "flexasr"?')
    assert answer.err.count("\n") == 2


def what_is_no_model_is_named(here: Path) -> None:
    Path("folder.onnx").mkdir()
    contents = {
        "empty": b"",
        "lfs": b"version https://git-lfs.github.com/spec/v1\n",
        "gzip": b"\x1f\x8b\x08",
        "html": b"<!DOCTYPE html><p>",
    }
    for name, data in contents.items():
        Path(f"{name}.onnx").write_bytes(data)
    words = {"missing": "no such file", "folder": "not a directory", "empty": "is empty", "lfs": "LFS", "gzip": "gzip", "html": "HTML"}
    for name, word in words.items():
        answer = flexmatch(f"{name}.onnx", *LINEAR)
        assert answer.code == (2 if name in ("missing", "folder") else 3)
        assert word in answer.err
        assert "Traceback" not in answer.err


def an_unknown_operator_is_listed(here: Path) -> None:
    nodes = [helper.make_node("Frobnicate", [a], [b], domain="mine") for a, b in (("x", "a"), ("a", "y"))]
    made = onnx_model(nodes, {"x": [1, 4]}, ["y"])
    made.opset_import.add(domain="mine", version=1)
    made.graph.value_info.add().CopyFrom(helper.make_tensor_value_info("a", onnx.TensorProto.FLOAT, [1, 4]))
    made.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 4]))
    onnx.save(made, "odd.onnx")
    answer = flexmatch("odd.onnx", *LINEAR)
    assert answer.code == 0
    assert "not sent  2 mine.Frobnicate: " in answer.out or "not sent  2 Frobnicate: " in answer.out


def shapes_can_be_given(here: Path) -> None:
    onnx.save(onnx_model([helper.make_node("Relu", ["x"], ["y"])], {"x": ["n", 3, "h", "w"]}, ["y"]), "open.onnx")
    answer = flexmatch("open.onnx", *LINEAR)
    assert answer.code == 3
    assert "--shape x=" in answer.err
    assert flexmatch("open.onnx", *LINEAR, "--shape", "x=1,3,8,8").code == 0


def explain_gives_reasons_with_numbers(here: Path) -> None:
    o = plan()["offloads"][0]
    said = flexmatch("explain", "app.flexasr.json", o["nodes"][0]).out
    assert "linear on flexasr, t=" in said
    assert re.search(r"flexasr\.linear\w* +\S+\.py:\d+ +grade", said)
    assert "stays on the host\n  because " in flexmatch("explain", "app.flexasr.json", plan()["host"][0]["node"]).out


def the_page_needs_no_network(here: Path) -> None:
    held_by("tests/report/test_page_browser.py::test_search_finds_a_node_and_a_click_says_why")
    held_by("tests/cli/test_cli_show.py::test_a_page_is_opened_in_a_browser")
    assert flexmatch("show", "app.flexasr.json", "--html", "page.html").code == 0
    page = Path("page.html").read_text("utf-8")
    assert "default-src 'none'" in page
    assert not re.search(r"https?://|src=|@import|url\(", page)


def a_rule_is_proved_and_a_broken_one_refuted(here: Path) -> None:
    Path("mine.py").write_text(RULE)
    answer = flexmatch("prove", "mine.py", "--json", "-")
    assert answer.code == 0
    assert json.loads(answer.out)["rules"][0]["seconds"] < 1
    Path("mine.py").write_text(RULE.replace("o.relu(o.relu(x)), o.relu(x)", "o.relu(o.relu(x)), x"))
    broken = flexmatch("prove", "mine.py")
    assert broken.code == 1
    assert re.search(r"/mine\.py:4: relu-twice: refuted", broken.out)
    assert re.search(r"left 0, right -1\b", " ".join(broken.out.split()))


def an_unbound_variable_is_named(here: Path) -> None:
    Path("mine.py").write_text(RULE.replace("x: Tensor", "x: Tensor, y: Tensor").replace(", o.relu(x)", ", o.add(x, y)"))
    answer = flexmatch("prove", "mine.py")
    assert answer.code == 3
    assert re.search(r'mine\.py:4: error\[R101\]: .*"y"', answer.err)


def a_rule_of_mine_changes_the_plan(here: Path) -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Neg", ["a"], ["y"])]
    weights = onnx.numpy_helper.from_array(np.eye(16, dtype=np.float32), "w")
    onnx.save(onnx_model(nodes, {"x": [1, 16]}, ["y"], [weights]), "neg.onnx")
    Path("mine.py").write_text(NEGATED)
    plans = []
    for given in ((), ("--rules", "mine.py")):
        answer = flexmatch("neg.onnx", *LINEAR, *given, "--json", "-", "-o", "plan")
        assert answer.code == 0, answer.err
        plans.append(json.loads(answer.out))
    assert [len(p["host"]) for p in plans] == [1, 0]
    assert "negate-weights" in {r["rule"] for o in plans[1]["offloads"] for r in o["because"]}
    assert re.search(r"negate-weights +\S+/mine\.py:4 +A +1 offload", flexmatch("show", "plan.json", "--rules", "mine.py", "-v").out)


def a_changed_capacity_changes_the_calls(here: Path) -> None:
    page = (ROOT / "docs/tutorial/first-accelerator.md").read_text("utf-8")
    found = re.search(r"```python file=toy\.py\n(.*?)```", page, re.DOTALL)
    assert found
    calls = []
    for weights in (512, 64):
        Path("mine.py").write_text(found[1].replace("64, 512, 64  #", f"64, {weights}, 64  #"), "utf-8")
        answer = flexmatch("app.onnx", "--accel", "./mine.py", "-o", "mine", "--json", "-")
        assert answer.code == 0, answer.err
        calls.append(json.loads(answer.out)["device_calls"]["toy"]["dense"])
    assert calls[1] > calls[0] > 0


def the_tutorial_of_an_accelerator_is_executed(here: Path) -> None:
    held_by("tests/test_docs.py::test_every_block_does_what_its_page_says")
    page = (ROOT / "docs/tutorial/first-accelerator.md").read_text("utf-8")
    assert page.count("```console\n") >= 4
    assert "```console skip" not in page


def a_changed_width_moves_the_accuracy(here: Path) -> None:
    app, values = named("digits_cnn"), []
    for revision in ("orig", "ext16"):
        given = ("--accel", f"hlscnn:revision={revision}", "--calibrate", app.calibration, "--samples", "24", "--json", "-")
        answer = flexmatch("cosim", app.model, "--data", app.data, *given)
        assert answer.code == 0, answer.err
        values.append([o["relative_error"] for o in json.loads(answer.out)["offloads"]])
    assert values[0]
    assert values[0] != values[1]


def a_broken_run_goes_on(here: Path) -> None:
    held_by("tests/cosim/test_log.py::test_a_killed_command_goes_on_where_it_was")
    held_by("tests/cosim/test_log.py::test_a_resumed_run_gives_the_bits_of_an_unbroken_one")


def json_stands_alone(here: Path) -> None:
    answer = flexmatch("app.onnx", *LINEAR, "--json", "-", "-o", "again")
    assert json.loads(answer.out)["offloads"][0]["id"] == "linear_0"
    assert answer.err == ""


def shells_complete(here: Path) -> None:
    held_by("tests/cli/test_cli_schemas.py::test_bash_completes_verbs_options_accelerators_values_and_rule_files")
    assert flexmatch("completion", "bash").code == 0


def plain_terminals_are_readable(here: Path) -> None:
    environment = {
        "NO_COLOR": "1",
        "COLUMNS": "80",
        "LC_ALL": "C",
        "PYTHONIOENCODING": "ascii",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
    }
    run = process("show", "app.flexasr.json", env=environment)
    assert (run.returncode, run.stderr) == (0, b"")
    assert run.stdout.isascii()
    assert b"\x1b" not in run.stdout


def python_is_typed_and_shown(here: Path) -> None:
    held_by(
        "tests/test_types.py::test_every_file_and_a_users_program_are_typed_strictly",
        "tests/report/test_reprs.py::test_every_noun_is_shown_as_text_and_as_html",
    )


def documentation_is_executed(here: Path) -> None:
    held_by(
        "tests/test_docs.py::test_every_block_does_what_its_page_says",
        "tests/test_docs.py::test_every_link_inside_the_project_leads_somewhere",
    )
    assert "search" in (ROOT / "mkdocs.yml").read_text("utf-8")


def nothing_is_left_at_the_top(here: Path) -> None:
    held_by("tests/test_wheel.py::test_the_wheel_holds_the_tree_and_nothing_else")


CHECKS: tuple[tuple[str, Callable[[Path], None]], ...] = (
    ("a clean installation brings only the named dependencies; `--version` within 0.2 s", installing_brings_only_what_is_named),
    ("`--help` within 40 lines, without onnx, egglog, z3", help_is_short_and_light),
    ("the README's first block works", readme_works),
    ("compiling prints plan and next step", compiling_prints_plan_and_next_step),
    ("the written model passes onnx's checker", written_model_is_onnx),
    ("running again gives the same bytes", running_again_gives_the_same_bytes),
    ("a misspelt accelerator is guessed", a_misspelt_name_is_guessed),
    ("what is no model is named in one sentence", what_is_no_model_is_named),
    ("an unknown operator compiles and is listed with its count", an_unknown_operator_is_listed),
    ("a model without shapes asks for `--shape` and takes it", shapes_can_be_given),
    ("`explain` gives why or why not, with numbers", explain_gives_reasons_with_numbers),
    ("the page works without a network", the_page_needs_no_network),
    ("a six-line rule is proved within 1 s, a broken one refuted", a_rule_is_proved_and_a_broken_one_refuted),
    ("an unbound variable is named with file and line", an_unbound_variable_is_named),
    ("a rule of one's own changes the plan", a_rule_of_mine_changes_the_plan),
    ("a changed capacity changes the calls, nothing else edited", a_changed_capacity_changes_the_calls),
    ("the tutorial of an accelerator is executed", the_tutorial_of_an_accelerator_is_executed),
    ("a changed width of HLSCNN moves what cosim measures", a_changed_width_moves_the_accuracy),
    ("a broken co-simulation goes on where it was", a_broken_run_goes_on),
    ("`--json -` is JSON and nothing else", json_stands_alone),
    ("completion knows verbs, options, accelerators, rule files", shells_complete),
    ("plain terminals are readable", plain_terminals_are_readable),
    ("the Python interface is typed and shown in notebooks", python_is_typed_and_shown),
    ("documentation is executed, without dead links, with search", documentation_is_executed),
    ("an installation leaves nothing at the top level", nothing_is_left_at_the_top),
)


@pytest.mark.parametrize(("says", "check"), CHECKS, ids=[f"{n:02} {says}" for n, (says, _) in enumerate(CHECKS, 1)])
def test_acceptance(says: str, check: Callable[[Path], None], here: Path) -> None:
    check(here)


def test_the_readme_shows_this_table() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    assert len(CHECKS) == 25
    assert all(f"| {n} | {says} |" in text for n, (says, _) in enumerate(CHECKS, 1))
    assert len(VERBS) >= 9
