"""The text form of rules: what is written is read back, what is wrong is said with its line, nothing is run."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewrite_compiler.egraph.saturation import rule_text as compiled
from rewrite_compiler.errors import FlexmatchError, InputError, UsageError
from rewrite_compiler.ops.op import subterms
from rewrite_compiler.rewrite import text_file as textfile
from rewrite_compiler.rewrite.rule import Rule
from rewrite_compiler.rewrite.ruleset import rules_at, shipped_rules
from rewrite_compiler.rewrite.text import attribute_text, condition_text, rule_text, tensor_text
from rewrite_compiler.rewrite.text_file import rules_of_text

EXAMPLE = """
# the linear family
rule add-as-bias(x: tensor, b: tensor) grade E marks ring, spelling {
    "x + b = bias_add(x, b)"
    let flat = reshape(b, shape=[b.size])
    add(x, b) = bias_add(x, flat, axis=x.rank - 1)
    where constant(b), b.size > 0, b.size == b.shape[-1], b.size == x.shape[-1], b.rank <= x.rank, x.rank > 1
}
"""


@pytest.mark.parametrize("r", shipped_rules(), ids=str)
def test_every_shipped_rule_is_read_back(r: Rule) -> None:
    text = rule_text(r)
    (back,) = rules_of_text(text, "file")
    assert rule_text(back) == text
    assert (back.name, back.grade, back.phase, back.marks, len(back.where)) == (r.name, r.grade, r.phase, r.marks, len(r.where))
    terms = {id(x): tensor_text(x) for pair in r.pairs for side in pair for x in subterms(side)}
    if len(terms) == len(set(terms.values())):
        assert compiled_text(back) == compiled_text(r)
    else:  # equal terms that were several become one
        assert len(compiled_text(back)) <= len(compiled_text(r))


def compiled_text(r: Rule) -> str:
    try:
        return compiled.rule_text(r, 0)
    except FlexmatchError as error:
        return str(error.problem.sentence)


def test_an_example_is_the_rule_it_says() -> None:
    (r,) = rules_of_text(EXAMPLE, "file")
    shipped = next(s for s in shipped_rules() if s.name == "add-as-bias-1")
    assert (r.place, r.doc, r.marks) == ("file:3", "x + b = bias_add(x, b)", frozenset({"ring", "spelling"}))
    assert (
        rule_text(r).partition("{")[2].partition("\n")[2].partition("\n")[2]
        == rule_text(shipped).partition("{")[2].partition("\n")[2].partition("\n")[2]
    )


# a guard → how it is written again, where that differs
GUARDS = {
    'type(x, "float32", "int8")': "",
    "constant(x)": "",
    "prod(s) == x.size": "",
    "len(s) > 1": "1 < len(s)",
    "(x.shape + s)[1:] == s": "",
    "x.shape + s + [1] == s": "(x.shape + s) + [1] == s",
    "x.shape[1:-1] == s": "",
    "replaced(s, 0, x.rank - 1) == s": "",
    "permuted(x.shape, inverse(s)) == s": "",
    "[1, x.rank] == s": "",
    "s[-1] * (x.rank + 1) == 4": "",
    "max(x.rank, 2) == 2": "",
    "x.rank - (x.size - 1) == 0": "",
    "s[0] - (0 - x.rank) == 3": "",
    "s[-1] // 2 == 1": "",
}


@pytest.mark.parametrize("guard", GUARDS)
def test_a_guard_is_written_as_it_is_read(guard: str) -> None:
    written = GUARDS[guard] or guard
    head = 'rule g(x: tensor, s: ints) grade E {\n    "false"\n    reshape(x, shape=s) = x\n'
    for text in (guard, written):
        (r,) = rules_of_text(f"{head}    where {text}\n}}\n", "f")
        assert [condition_text(c) for c in r.where] == [written]


def test_infinite_bounds_are_words() -> None:
    assert [attribute_text(v) for v in (float("inf"), float("-inf"), 0.5, 3, "edge")] == ["inf", "-inf", "0.5", "3", '"edge"']


def test_a_shared_term_is_one_term() -> None:
    (r,) = rules_of_text("rule same(x: tensor, y: tensor) { add(x, y) = add(y, x) where add(x, y).shape == x.shape }", "file")
    assert r.where[0].left.tensor is r.left  # type: ignore[attr-defined]


REFUSED = {
    "rule a(x: tensor) { relu(x = x }": 'the rule text cannot be read: "}" cannot stand here',
    "rule a(x: tensor) { relu(x) = x": "the rule text cannot be read: it ends inside of a rule",
    "rule a(x: tensor) { relu(x) = $ }": "the rule text cannot be read: character 31 of the line begins nothing that can stand here",
    "rule a(x: tensor) { rellu(x) = x }": 'there is no operator called "rellu"',
    "rule a(x: tensor) { relu(x) = y }": 'there is no variable called "y"',
    "rule a(x: tensor) grade Q { relu(x) = x }": 'grade must be one of E, Z, A, F, not "Q"',
    "rule a(x: tensor) phase soon { relu(x) = x }": "phase must be one of ",
    "rule a(x: tensor) marks odd { relu(x) = x }": 'mark must be one of any_dtype, ring, spelling, lowering, not "odd"',
    "rule a(x: tensor) { relu(x) = x where x.__class__ == 1 }": 'a tensor has shape, rank and size; there is no "__class__" here',
    "rule a(x: tensor) { relu(x) = x + 1 }": "a pattern must name its operators, not write + between tensors",
    "rule a(x: tensor) { relu(x) = 1 }": "both sides of an equation must be tensors",
    "rule a(x: tensor) { relu(x) = relu(x).1 }": "there is no output 1 here",
    "rule a(x: tensor) { relu(x, axis=1) = x }": 'relu has no attribute "axis"',
    "rule a(x: tensor) { reshape(x, shape=x) = x }": "an attribute is a list, a number or a text, not a tensor",
    "rule a(x: tensor) { relu(x) = x where x.shape[0:x.rank] == x.shape }": "the bounds of a part of a list must be numbers",
    "rule a(x: tensor, y: tensor) { relu(x) = y }": 'the right side or guard of a uses "y", which its left side does not bind',
    f"rule a(x: tensor) {{ {'relu(' * 70}x{')' * 70} = x }}": "brackets must be nested at most 60 deep",
}


DOUBLED = "\n".join(["rule a(a0: tensor) {", *(f"    let a{n + 1} = add(a{n}, a{n})" for n in range(60)), "    add(a60, a60) = a60", "}"])
CHAIN = "\n".join(["rule a(a0: tensor) {", *(f"    let a{n + 1} = relu(a{n})" for n in range(1000)), "    a1000 = a0", "}"])
MANY = "rule a(x: tensor) {\n    relu(x) = x\n    where " + " + ".join(["1"] * 200) + " == 200\n}"
NEGATIVE = "rule a(x: tensor) {\n    relu(x) = x\n    where " + "-" * 5000 + "1 == 1\n}"
DEEP = "  help: write a law for each part: laws are applied one after the other"
LARGE = {
    DOUBLED: "r.rules:15: error[R101]: the rules must have at most 32768 terms up to here, with their names written out, not 65518\n"
    "  help: share the rules among several files",
    CHAIN: "r.rules:129: error[R101]: terms must lie at most 128 deep in one another, with their names written out, not 129\n" + DEEP,
    MANY: "r.rules:3: error[R101]: terms must lie at most 128 deep in one another, with their names written out, not 201\n" + DEEP,
    NEGATIVE: "r.rules:3: error[R101]: terms must lie at most 128 deep in one another, with their names written out, not 5002\n" + DEEP,
}


@pytest.mark.parametrize("text", LARGE, ids=("doubled", "chain", "many", "negative"))
def test_names_that_stand_for_much_are_refused_before_they_are_written_out(text: str) -> None:
    with pytest.raises(InputError) as caught:
        rules_of_text(text, "r.rules")
    assert str(caught.value) == LARGE[text]


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_wrong_is_said_with_its_line(text: str) -> None:
    with pytest.raises(InputError) as refusal:
        rules_of_text(f"\n{text}", "file")
    assert refusal.value.problem.sentence.startswith(REFUSED[text])
    assert refusal.value.problem.place == "file:2"


@given(st.text(alphabet=st.sampled_from(list('rule a(x:tnso){}=[].,+-*%<>&|"#\n01/\\')), max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(InputError):  # anything else is a mistake
        rules_of_text(f"rule a(x: tensor) {{ relu(x) = {text} }}", "file")


def test_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mine.rules"
    with pytest.raises(UsageError, match="there is no rule file"):
        rules_at(path)
    path.write_text(EXAMPLE)
    assert [r.name for r in rules_at(path)] == ["add-as-bias"]
    path.write_text("# nothing")
    with pytest.raises(InputError, match="the rule file defines no rule"):
        rules_at(path)
    path.write_bytes(b"rule \xff")
    with pytest.raises(InputError, match="a rule file must be UTF-8; byte 5 is not"):
        rules_at(path)
    monkeypatch.setattr(textfile, "MAX_BYTES", 5)
    with pytest.raises(InputError, match="a rule file must have at most 5 bytes"):
        rules_at(path)
