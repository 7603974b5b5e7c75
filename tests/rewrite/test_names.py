"""Names of rules: words of small letters, each rule its own; others are refused at their line before anything is judged."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import flexmatch

from rewrite_compiler.errors import InputError
from rewrite_compiler.rewrite.ruleset import rules_at

HEAD = "from rewrite_compiler import Law, Tensor, rule\nfrom rewrite_compiler import ops as o\n\n"
RULE = '@rule(grade="E"{name})\ndef {function}(x: Tensor) -> Law:\n    return o.relu(o.relu(x)), o.relu(x)\n\n'
TEXT = "rule {name}(x: tensor) grade E {{\n    relu(relu(x)) = relu(x)\n}}\n"


def python(*names: tuple[str, str]) -> str:
    """Return a file of rules, each of a function's name and the name that is given."""
    return HEAD + "".join(RULE.format(name=f', name="{given}"' if given else "", function=function) for function, given in names)


SMALL = "the name of a rule must be words of small letters and digits, not"
TWICE = 'there are two rules called "same"'
REFUSED = [
    ("a.py", python(("Relu_twice", ""), ("other", "")), 4, f'{SMALL} "Relu-twice"'),
    ("a.py", python(("one", "Two words")), 4, f'{SMALL} "Two words"'),
    ("a.rules", TEXT.format(name="fine") + TEXT.format(name="Relu-twice"), 4, f'{SMALL} "Relu-twice"'),
    ("a.py", python(("one", "same"), ("two", "same")), 8, TWICE),
    ("a.rules", TEXT.format(name="same") * 2, 4, TWICE),
]


@pytest.mark.parametrize(("file", "content", "line", "sentence"), REFUSED)
def test_a_name_is_refused_at_its_line(file: str, content: str, line: int, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / file
    path.write_text(content)
    with pytest.raises(InputError) as caught:
        rules_at(path)
    problem = caught.value.problem
    assert (problem.sentence, problem.place) == (sentence, f"{path}:{line}")
    assert problem.help in {'call it "relu-twice"', 'call it "two-words"', f"the first is at {path}:{1 if file == 'a.rules' else 4}"}


def test_prove_refuses_two_files_with_one_name(tmp_path: Path) -> None:
    for file in ("a.py", "b.py"):
        (tmp_path / file).write_text(python(("same", "")))
    answer = flexmatch("prove", str(tmp_path / "a.py"), str(tmp_path / "b.py"))
    assert answer.code == 3
    assert answer.err.startswith(f'{tmp_path / "b.py"}:4: error[R104]: there are two rules called "same"\n')


def test_prove_tells_of_a_capital_letter_before_it_judges(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(python(("Relu_twice", ""), ("other", "")))
    answer = flexmatch("prove", str(tmp_path / "a.py"))
    assert answer.code == 3
    assert answer.err.startswith(f"{tmp_path / 'a.py'}:4: error[R101]: the name of a rule must be")
