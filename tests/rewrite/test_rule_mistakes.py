"""Mistakes in files of rules as users make them: each is told at its line, with what was meant or what can stand there."""

from __future__ import annotations

from pathlib import Path

import pytest

from rewrite_compiler.errors import InputError
from rewrite_compiler.rewrite.ruleset import rules_at

CODE = """from flexmatch import IsConstant, Law, Tensor, Where, ops as o, rule


@rule(grade="E")
def mine(x: Tensor) -> Law:
    return o.relu(o.relu(x)), o.relu(x)
"""
TEXT = """rule mine(x: tensor) grade E {
    "Idempotent."
    relu(relu(x))
        = relu(x)
}
"""
ONE_BY_ONE = "give the guard its conditions one by one, parted by commas; write | for `or`"
IN_CODE = [
    ("grade=", "grad=", 4, 'rule has no argument "grad"', 'did you mean "grade"?'),
    ('grade="E"', '"E"', 4, "function must be a function of pattern variables, not str", ""),
    ('grade="E"', 'marks="rings"', 4, 'mark must be one of any_dtype, ring, spelling, lowering, not "rings"', 'did you mean "ring"?'),
    (
        "o.relu(o", "o.rellu(o", 6,
        "the rule file cannot be imported: AttributeError: module 'rewrite_compiler.ops' has no attribute 'rellu'", 'did you mean "relu"?',
    ),
    (
        "ops as o", "opps as o", 1, "the rule file cannot be imported: ImportError: cannot import name 'opps' from 'flexmatch'",
        'did you mean "ops"?',
    ),
    ("x: Tensor", "x: Tensr", 5, "the rule file cannot be imported: NameError: name 'Tensr' is not defined", 'did you mean "Tensor"?'),
    ("return o.", "return (o.", 6, "the rule file cannot be imported: SyntaxError: '(' was never closed", ""),
    (", o.relu(x)\n", ", o.softmax(x, axs=1)\n", 6, 'softmax has no attribute "axs"', 'did you mean "axis"?'),
    (", o.relu(x)\n", ", o.add(x, 0)\n", 6, "operand y of add must be a pattern, not 0", ""),
    (
        ", o.relu(x)\n", "\n", 4, "a rule returns its left side, its right side and, last, Where(…)",
        "end it with `return left, right` or `return left, right, Where(…)`",
    ),
    (
        "o.relu(x)\n", "o.relu(x), Where(x.rank)\n", 6, "a guard must be a condition, not a number",
        "compare it with one, as in x.rank == 2",
    ),
    (
        "o.relu(x)\n", "o.relu(x), Where(x.rank == 2 and x.size == 3)\n", 6,
        "a condition has no truth value before a pattern has matched", ONE_BY_ONE,
    ),
    (
        "o.relu(x)\n", "o.relu(x), Where(IsConstant(3))\n", 6,
        "a condition on constness or element type must be on a tensor, not on 3", "name a variable of the pattern",
    ),
    ("o.relu(x)\n", "o.relu(x), Where(IsConstant())\n", 6, "the argument tensor of IsConstant is missing", "write IsConstant(tensor)"),
    (
        "o.relu(x)\n", "o.relu(x), Where(IsConstant(x, x))\n", 6, "IsConstant takes at most 1 argument without a name, not 2",
        "write IsConstant(tensor)",
    ),
    (
        ", o.relu(x)\n", ", Tensor(3)\n", 6, "Tensor must be the type of a pattern's parameter, not a call, Tensor(3)",
        "take an unknown tensor as a parameter, `x: Tensor`; a number is full((1,), 3.0) of the operators",
    ),
    (
        ", o.relu(x)\n", ", x + x\n", 6, "a pattern must name its operators, not write + between tensors",
        "write add(…), from rewrite_compiler.ops",
    ),
    (
        ", o.relu(x)\n", ", 2 * x\n", 6, "a pattern must name its operators, not write * between tensors",
        "write mul(…), from rewrite_compiler.ops",
    ),
]  # fmt: skip
UNREADABLE = "the rule text cannot be read: "
IN_TEXT = [
    ("rule mine", "rul mine", 1, f'{UNREADABLE}"rul" cannot stand here', 'did you mean "rule"?'),
    ("x: tensor", "x: tensr", 1, f'{UNREADABLE}"tensr" cannot stand here', 'did you mean "tensor"?'),
    ("x: tensor", "x = tensor", 1, f'{UNREADABLE}"=" cannot stand here', "here stands `:`"),
    ("grade E", "grade E marks rings", 1, 'mark must be one of any_dtype, ring, spelling, lowering, not "rings"', 'did you mean "ring"?'),
    ("relu(relu(x))", "add(x)", 3, "add takes x, y; the pattern gives 1 value", ""),
    ("relu(relu(x))", "softmax(x, axs=1)", 3, 'softmax has no attribute "axs"', 'did you mean "axis"?'),
    ("= relu(x)", "= relu(y)", 4, 'there is no variable called "y"', "the names are x"),
    ("(x: tensor", "(weights: tensor", 3, 'there is no variable called "x"', "the names are weights"),
    ("        = relu(x)\n", "", 4, f'{UNREADABLE}"}}" cannot stand here', "here stands `=`"),
    ("= relu(x)", "= relu(x) where x.rank = 2", 4, f'{UNREADABLE}"=" cannot stand here', "a comparison is written =="),
    ("= relu(x)", "= relu(x) where x.rank", 4, "a guard must be a condition, not a number", "compare it with one, as in x.rank == 2"),
    (TEXT, "", 0, "the rule file defines no rule", "write rule NAME(x: tensor) { left = right }"),
]


@pytest.mark.parametrize(
    ("name", "text", "line", "sentence", "remedy"),
    [
        *(("mine.py", CODE.replace(a, b), *rest) for a, b, *rest in IN_CODE),
        *(("mine.rules", TEXT.replace(a, b), *rest) for a, b, *rest in IN_TEXT),
    ],
)
def test_a_mistake_is_told_at_its_line(name: str, text: str, line: int, sentence: str, remedy: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        rules_at(path)
    problem = caught.value.problem
    assert (problem.place, problem.sentence, problem.help) == (f"{path}:{line}" if line else str(path), sentence, remedy)
    assert caught.value.exit_code == 3
