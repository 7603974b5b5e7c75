"""The acceptance checks of a new user, one function each, in one table; the page of promises shows the table."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from command import FLEXMATCH, flexmatch, onnx_model, process
from onnx import helper
from pace import within_steps
from pages import Session, blocks, built_site, can_run, commands, pages, run_once
from test_docs import dead_links
from test_types import typed
from test_wheel import DEPENDENCIES
from wheels import call

from rewrite_compiler.apps import find_application
from rewrite_compiler.cli.verb_table import VERBS

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
    app = find_application("digits_mlp")
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


@dataclass(frozen=True)
class Visitor:
    """A new user in a folder of their own, which is the working directory; what tests share is there by name."""

    folder: Path
    fixture: Callable[[str], Any]


@pytest.fixture
def here(workshop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Visitor:
    """A user in a copy of the workshop."""
    copy = tmp_path / "here"
    shutil.copytree(workshop, copy)
    monkeypatch.chdir(copy)
    return Visitor(copy, request.getfixturevalue)


def plan() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(Path("app.flexasr.json").read_text("utf-8"))
    return document


def child_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def installing_brings_only_what_is_named(here: Visitor) -> None:
    programs = here.fixture("installed")
    listed = "from importlib.metadata import requires; print(*(r for r in requires('flexmatch') if 'extra ==' not in r), sep='\\n')"
    needed = call(programs / "python", "-c", listed, cwd=here.folder).split("\n")
    assert {re.split(r"[^\w-]", n)[0] for n in needed if n} == DEPENDENCIES
    before = child_seconds()
    assert call(programs / "flexmatch", "--version", cwd=here.folder).startswith("flexmatch ")
    assert child_seconds() - before < 0.2


def help_is_short_and_light(here: Visitor) -> None:
    run = subprocess.run([sys.executable, "-X", "importtime", *FLEXMATCH[1:], "--help"], capture_output=True, text=True, check=True)
    assert len(run.stdout.splitlines()) <= 40
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in run.stderr.splitlines()}
    assert not loaded & HEAVY


def readme_works(here: Visitor) -> None:
    demo = next(b for b in blocks(ROOT / "README.md") if b.text.startswith("$ flexmatch demo"))
    before = child_seconds()
    Session(here.folder).run(demo)  # in an installation; `python -m venv` and pip are in tests/acceptance/test_installation.py
    assert child_seconds() - before < 60


def compiling_prints_plan_and_next_step(here: Visitor) -> None:
    code, said = (here.folder / "said.txt").read_text("utf-8").split("\n", 1)
    assert code == "0"
    assert re.search(r"^plan      3 linear on flexasr ", said, re.MULTILINE)
    assert re.search(r"^next      flexmatch cosim app\.flexasr\.json --data FILE$", said, re.MULTILINE)


def written_model_is_onnx(here: Visitor) -> None:
    model = onnx.load("app.flexasr.onnx")
    onnx.checker.check_model(model, full_check=True)
    assert "flexmatch.flexasr" in {o.domain for o in model.opset_import}


def running_again_gives_the_same_bytes(here: Visitor) -> None:
    first = plan()
    assert flexmatch("app.onnx", *LINEAR, "--calibrate", "calibration.npz", "-q").code == 0
    again = plan()
    assert {k: v for k, v in first.items() if k != "run"} == {k: v for k, v in again.items() if k != "run"}


def a_misspelt_name_is_guessed(here: Visitor) -> None:
    answer = flexmatch("app.onnx", "--accel", "flexsar")
    assert answer.code == 2
    assert answer.err.startswith('error[F201]: there is no accelerator called "flexsar"\n  help: did you mean "flexasr"?')
    assert answer.err.count("\n") == 2


def what_is_no_model_is_named(here: Visitor) -> None:
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


def an_unknown_operator_is_listed(here: Visitor) -> None:
    nodes = [helper.make_node("Frobnicate", [a], [b], domain="mine") for a, b in (("x", "a"), ("a", "y"))]
    made = onnx_model(nodes, {"x": [1, 4]}, ["y"])
    made.opset_import.add(domain="mine", version=1)
    made.graph.value_info.add().CopyFrom(helper.make_tensor_value_info("a", onnx.TensorProto.FLOAT, [1, 4]))
    made.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 4]))
    onnx.save(made, "odd.onnx")
    answer = flexmatch("odd.onnx", *LINEAR)
    assert answer.code == 0
    assert "not sent  2 mine.Frobnicate: " in answer.out or "not sent  2 Frobnicate: " in answer.out


def shapes_can_be_given(here: Visitor) -> None:
    onnx.save(onnx_model([helper.make_node("Relu", ["x"], ["y"])], {"x": ["n", 3, "h", "w"]}, ["y"]), "open.onnx")
    answer = flexmatch("open.onnx", *LINEAR)
    assert answer.code == 3
    assert "--shape x=" in answer.err
    assert flexmatch("open.onnx", *LINEAR, "--shape", "x=1,3,8,8").code == 0


def explain_gives_reasons_with_numbers(here: Visitor) -> None:
    o = plan()["offloads"][0]
    said = flexmatch("explain", "app.flexasr.json", o["nodes"][0]).out
    assert "linear on flexasr, t=" in said
    assert re.search(r"flexasr\.linear\w* +\S+\.py:\d+ +grade", said)
    assert "stays on the host\n  because " in flexmatch("explain", "app.flexasr.json", plan()["host"][0]["node"]).out


def the_page_needs_no_network(here: Visitor) -> None:
    opened: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("webbrowser.open", lambda url: not opened.append(url))
        assert flexmatch("show", "app.flexasr.json", "--open").code == 0
    page = Path("app.flexasr.html").read_text("utf-8")
    assert "default-src 'none'" in page
    assert not re.search(r"https?://|src=|@import|url\(", page)
    assert opened == [(here.folder / "app.flexasr.html").as_uri()]
    unplugged = here.fixture("browser").new_context(offline=True).new_page()
    asked: list[str] = []
    unplugged.on("request", lambda r: asked.append(r.url))
    unplugged.goto(opened[0])
    unplugged.fill("#search", plan()["offloads"][0]["nodes"][0])
    unplugged.press("#search", "Enter")
    assert "linear on flexasr" in unplugged.inner_text("#panel")
    assert asked == opened


def a_rule_is_proved_and_a_broken_one_refuted(here: Visitor) -> None:
    flexmatch("prove", "--only", "add-zero-bias")  # the solver is loaded
    Path("mine.py").write_text(RULE)
    answer = within_steps(40_000_000, lambda: flexmatch("prove", "mine.py", "--json", "-", "--no-cache"))
    assert answer.code == 0
    assert json.loads(answer.out)["rules"][0]["verdict"] == "proved"
    Path("mine.py").write_text(RULE.replace("o.relu(o.relu(x)), o.relu(x)", "o.relu(o.relu(x)), x"))
    broken = flexmatch("prove", "mine.py")
    assert broken.code == 1
    assert re.search(r"/mine\.py:4: relu-twice: refuted", broken.out)
    assert re.search(r"left 0, right -1\b", " ".join(broken.out.split()))


def an_unbound_variable_is_named(here: Visitor) -> None:
    Path("mine.py").write_text(RULE.replace("x: Tensor", "x: Tensor, y: Tensor").replace(", o.relu(x)", ", o.add(x, y)"))
    answer = flexmatch("prove", "mine.py")
    assert answer.code == 3
    assert re.search(r'mine\.py:4: error\[R101\]: .*"y"', answer.err)


def a_rule_of_mine_changes_the_plan(here: Visitor) -> None:
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
    assert ("negate-weights", "all shapes") in {(r["rule"], r["covers"]) for o in plans[1]["offloads"] for r in o["because"]}
    shown = flexmatch("show", "plan.json", "--rules", "mine.py", "-v").out
    assert re.search(r"^ *rule +written at +grade +matches +new nodes +seconds +offloads *$", shown, re.MULTILINE)
    assert re.search(r"^ *negate-weights +\S+/mine\.py:4 +A +\d+ +\d+ +\d\.\d+ +1 *$", shown, re.MULTILINE)


def a_changed_capacity_changes_the_calls(here: Visitor) -> None:
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


def the_tutorial_of_an_accelerator_is_executed(here: Visitor) -> None:
    page = ROOT / "docs/tutorial/first-accelerator.md"
    found = blocks(page)
    toy = next(b for b in found if b.file == "toy.py")
    code = [line for line in toy.text.splitlines() if line.strip() and not line.strip().startswith(("#", '"""'))]
    assert len(code) <= 60
    steps = [b for b in found if b.language == "console"]
    assert len(steps) >= 4
    assert not any(b.is_skipped for b in steps)
    assert sum(any(expected for _, expected in commands(b)) for b in steps) >= 4
    run_once(page)


def a_changed_width_moves_the_accuracy(here: Visitor) -> None:
    app, values = find_application("digits_cnn"), []
    for revision in ("orig", "ext16"):
        given = ("--accel", f"hlscnn:revision={revision}", "--calibrate", app.calibration, "--samples", "24", "--json", "-")
        answer = flexmatch("cosim", app.model, "--data", app.data, *given)
        assert answer.code == 0, answer.err
        values.append([o["relative_error"] for o in json.loads(answer.out)["offloads"]])
    assert values[0]
    assert values[0] != values[1]


def a_broken_run_goes_on(here: Visitor) -> None:
    command = ("cosim", "app.flexasr.json", "--data", "test.npz", "--samples", "24")
    slow = ("--tier", "oracle", "--batch", "1", "--threads", "1")
    terminal, slave = os.openpty()
    run = subprocess.Popen([*FLEXMATCH, *command, *slow, "--json", "r.json"], stdout=subprocess.DEVNULL, stderr=slave)
    os.close(slave)
    said = b""
    while not re.search(rb"cosim +[3-9]/24 samples .* s left", said):
        said += os.read(terminal, 4096)
    run.send_signal(signal.SIGINT)
    assert run.wait(60) == 130
    os.close(terminal)
    assert not Path("r.json").exists()
    assert flexmatch(*command, *slow, "--json", "r.json").code == 0
    report = json.loads(Path("r.json").read_text("utf-8"))
    assert 3 <= report["run"]["resumed_samples"] < 24
    assert flexmatch(*command, "--json", "unbroken.json").code == 0
    unbroken = json.loads(Path("unbroken.json").read_text("utf-8"))
    assert report["accelerated"] == unbroken["accelerated"]
    assert report["offloads"] == unbroken["offloads"]


def json_stands_alone(here: Visitor) -> None:
    answer = flexmatch("app.onnx", *LINEAR, "--json", "-", "-o", "again")
    assert json.loads(answer.out)["offloads"][0]["id"] == "linear_0"
    assert answer.err == ""


def shells_complete(here: Visitor) -> None:
    Path("mine.py").touch()
    script = flexmatch("completion", "bash").out
    for words, wanted in (
        (("sho",), "show"),
        (("cosim", "--samp"), "--samples"),
        (("compile", "--accel", "fl"), "flexasr"),
        (("compile", "--rules", "mi"), "mine.py"),
    ):
        typed_words = " ".join(("flexmatch", *words))
        ask = f'COMP_WORDS=({typed_words}); COMP_CWORD={len(words)}; _flexmatch; printf "%s\\n" "${{COMPREPLY[@]}}"'
        run = subprocess.run(["bash", "-c", f"{script}\n{ask}"], capture_output=True, text=True, check=True)
        assert run.stdout.split() == [wanted]


def plain_terminals_are_readable(here: Visitor) -> None:
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


def python_is_typed_and_shown(here: Visitor) -> None:
    import rewrite_compiler as public
    from rewrite_compiler.report.page.notebook import install

    install()  # as importing in Jupyter does
    compiled = public.compile("app.onnx", accel=["flexasr"], calibrate="calibration.npz")
    report = public.cosimulate(compiled, "test.npz", samples=4)
    for noun, word in ((compiled, "linear_0"), (compiled.program, "flexasr.linear"), (report, "top1")):
        assert word in noun._repr_html_()
    assert typed().startswith("Success: no issues found")


def documentation_is_executed(here: Visitor) -> None:
    for page in filter(can_run, pages()):
        run_once(page)
        assert not dead_links(page)
    site, complaints = built_site()
    assert complaints == ""
    found = json.loads((site / "search" / "search_index.json").read_text("utf-8"))
    known = {entry["location"].partition("#")[0] for entry in found["docs"]}
    assert {p.relative_to(ROOT / "docs").with_suffix(".html").as_posix() for p in pages()[1:] if p.name != "README.md"} <= known


def nothing_is_left_at_the_top(here: Visitor) -> None:
    with zipfile.ZipFile(here.fixture("wheel")) as archive:
        names = archive.namelist()
        (record,) = (n for n in names if n.endswith(".dist-info/RECORD"))
        listed = [line.split(",")[0] for line in archive.read(record).decode().splitlines()]
    assert sorted(listed) == sorted(names)
    assert {n.partition("/")[0] for n in listed} == {"rewrite_compiler", record.partition("/")[0]}


CHECKS: tuple[tuple[str, Callable[[Visitor], None]], ...] = (
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


BUILT = pytest.mark.xdist_group("wheel")  # the process that builds the wheel for the other tests of it


@pytest.mark.parametrize(
    ("says", "check"),
    [
        pytest.param(
            says,
            check,
            id=f"{n:02} {says}",
            marks=[BUILT] if check in (installing_brings_only_what_is_named, nothing_is_left_at_the_top) else [],
        )
        for n, (says, check) in enumerate(CHECKS, 1)
    ],
)
def test_acceptance(says: str, check: Callable[[Visitor], None], here: Visitor) -> None:
    check(here)


def test_the_page_of_promises_shows_this_table() -> None:
    text = (ROOT / "docs" / "explanation" / "promises.md").read_text("utf-8")
    assert len(CHECKS) == 25
    assert all(f"| {n} | {says} |" in text for n, (says, _) in enumerate(CHECKS, 1))
    assert len(VERBS) >= 9
