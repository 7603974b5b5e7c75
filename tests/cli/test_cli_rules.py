"""Rule files of a user: judged before they are used, refused with a counter-example, or stamped when trusted."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from command import flexmatch

from rewrite_compiler.apps import find_application

HEAD = """from rewrite_compiler import Law, Tensor, rule
from rewrite_compiler import ops as o

"""
GOOD = f'''{HEAD}@rule(grade="E")
def relu_twice(x: Tensor) -> Law:
    """relu(relu(x)) = relu(x)"""
    return o.relu(o.relu(x)), o.relu(x)
'''
BAD = f'''{HEAD}@rule(grade="E")
def relu_over_add(x: Tensor, y: Tensor) -> Law:
    """relu(x + y) = relu(x) + relu(y)"""
    return o.relu(o.add(x, y)), o.add(o.relu(x), o.relu(y))
'''
DIFFER = "rule relu-over-add is false: the sides differ; left 0, right 1, with x = -1, y = 1"
REMEDY = "correct the side that is wrong, or add a guard that such operands do not meet, or name it with --trust-unproved"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("good.py").write_text(GOOD)
    Path("bad.py").write_text(BAD)
    Path("none.py").write_text(HEAD)
    Path("broken.py").write_text("1 / 0\n")
    shutil.copy(find_application("digits_mlp").model, "app.onnx")


def compile_with(*arguments: str) -> list[object]:
    answer = flexmatch("app.onnx", "--accel", "flexasr", *arguments)
    return [answer.code, answer.err]


def test_a_proved_rule_is_used() -> None:
    assert compile_with("--rules", "good.py") == [0, ""]
    plan = json.loads(Path("app.flexasr.json").read_text())
    assert plan["settings"]["rules"] == ["good.py"]
    assert plan["notes"] == []


def test_a_false_rule_is_refused_with_its_counterexample() -> None:
    place = Path("bad.py").absolute()
    assert compile_with("--rules", "bad.py") == [1, f"{place}:4: error[R102]: {DIFFER}\n  help: {REMEDY}\n"]


def test_a_trusted_rule_is_stamped() -> None:
    assert compile_with("--rules", "bad.py", "--trust-unproved", "relu-over-add") == [0, ""]
    assert json.loads(Path("app.flexasr.json").read_text())["notes"] == ["rule relu-over-add is refuted and used on trust (R108)"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (
            ("--rules", "lost.py"),
            2,
            "error[F101]: there is no rule file lost.py\n  help: give the path of a Python file that defines a Rule\n",
        ),
        (("--rules", "none.py"), 3, "none.py: error[R101]: the rule file defines no rule\n  help: decorate a function with @rule\n"),
        (
            ("--rules", "good.py", "--trust-unproved", "relu"),
            2,
            'error[F203]: there is no rule or operation called "relu"\n  help: rules given: relu-twice; '
            "of an accelerator `flexmatch list` shows the operations\n",
        ),
    ],
)
def test_what_is_not_a_rule_file(arguments: tuple[str, ...], code: int, said: str) -> None:
    assert compile_with(*arguments) == [code, said]


def test_an_exception_in_a_rule_file_is_told_in_its_line() -> None:
    code, said = compile_with("--rules", "broken.py")
    assert code == 3
    assert str(said).startswith("broken.py:1: error[R100]: the rule file cannot be imported: ZeroDivisionError: division by zero\n")


def test_a_plan_needs_its_rule_files_again() -> None:
    compile_with("--rules", "good.py")
    answer = flexmatch("explain", "app.flexasr.json", "linear_0")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("app.flexasr.json: error[F220]: Rule files must be those the plan was made with (good.py)\n")
    assert flexmatch("explain", "app.flexasr.json", "linear_0", "--rules", "good.py").code == 0


def test_prove_judges_a_file() -> None:
    first, line, last = flexmatch("prove", "good.py").out.splitlines()
    assert (first, last) == ("rules     1 of 1 proved", "mappings  0 of 0 proved")
    assert re.fullmatch(
        r"  relu-twice  proved    all shapes           equal by the index calculus  (\d\.\d\d s|kept \d{4}-\d\d-\d\d)", line
    ), line
    answer = flexmatch("prove", "bad.py")
    assert answer.code == 1
    assert "left 0, right 1, with x = -1, y = 1" in answer.out


def test_one_mapping_is_judged_by_its_name() -> None:
    first, second, line = flexmatch("prove", "--only", "flexasr.max_pool").out.splitlines()
    assert (first, second) == ("rules     0 of 0 proved", "mappings  1 of 1 proved")
    expected = r"  flexasr\.max_pool  proved    symbolic, codes at 5 sizes; \d+ calls of all control classes .* (s|kept \S+)"
    assert re.fullmatch(expected, line), line
    answer = flexmatch("prove", "--only", "flexasr.max_pol")
    assert (answer.code, answer.out) == (2, "")
    assert "max_pool" in answer.err
