"""The wide refuter: laws that hold of small attributes, extents and ranks only are refuted; mended ones and true ones are not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from known_wrong import gallery

from rewrite_compiler.prove.instances.covering_sets import WIDE
from rewrite_compiler.prove.instances.thresholds import near, thresholds_of
from rewrite_compiler.prove.rules import refuter
from rewrite_compiler.prove.rules.refuter import witness
from rewrite_compiler.prove.rules.rules import prove_rule
from rewrite_compiler.rewrite.rule import Rule
from rewrite_compiler.rewrite.ruleset import every_rule
from rewrite_compiler.rewrite.text_file import rules_of_file, rules_of_text

ATTACKS = rules_of_file(Path(gallery.__file__).with_name("attacks.rules"))
MENDED = {
    "a1": "v == 1.0", "a3": "v >= 0.0", "a5": "v >= 0.0", "a7": "l <= 0.0, h >= 0.0", "n1": "v >= 0.0", "n3": "v >= 0.0", "n6": "v == 1.0",
    "b1": "s[0] < 3", "b3": "s[0] < 3", "c1": "d[0] < 3", "d1": "k[0] == 2", "d3": "k[0] < 5", "d5": "k[1] < 3", "e1": "p[0] < 2",
    "e3": "p[0] + p[1] == 0", "e5": "p[0] < 3", "f1": "n < 4", "f3": "x.shape[0] < 4", "f5": "g < 4", "f9": "n < 4",
    "f11": "n < 4", "f13": "x.size < 28", "g1": "x.rank < 5", "g3": "x.rank < 5", "g5": "a < 4", "g7": "x.rank < 5",
}  # fmt: skip
SHIPPED = every_rule()


@pytest.mark.parametrize("rule", ATTACKS, ids=str)
def test_a_law_that_holds_of_small_instances_only_is_refuted(rule: Rule) -> None:
    found = witness(rule)
    assert found is not None
    example, sentence = found
    assert example.left != example.right
    assert sentence.startswith(("the sides differ", "the sides have different shapes", "the right side has no meaning"))


def mended(name: str) -> Rule:
    """Return an attack with the guard that makes it true."""
    text = Path(gallery.__file__).with_name("attacks.rules").read_text("utf-8")
    of = next(r for r in text.split("\nrule ") if r.startswith(f"{name}("))
    head, _, tail = of.rpartition("}")
    guard = f", {MENDED[name]}" if "\n    where " in of else f"    where {MENDED[name]}\n"
    return rules_of_text(f"rule {head.rstrip() if guard.startswith(',') else head}{guard}\n}}{tail}", "mended.rules")[0]


@pytest.mark.parametrize("name", MENDED)
def test_its_guard_mends_it(name: str) -> None:
    assert witness(mended(name)) is None


def test_every_other_attack_has_a_guard_that_mends_it() -> None:
    assert MENDED.keys() == {r.name for r in ATTACKS} - {"f7"}  # which is true of nothing that its guard admits


@pytest.mark.parametrize("name", ["a1", "n6", "d3", "g1"])
def test_the_court_refutes_what_its_instances_let_through(name: str) -> None:
    rule = next(r for r in ATTACKS if r.name == name)
    proof = prove_rule(rule)
    assert (proof.verdict, proof.code) == ("refuted", "R105" if name == "g1" else "R102")
    assert proof.problem is not None
    assert proof.counterexample is not None
    assert str(proof.counterexample) in proof.problem.sentence


@pytest.mark.parametrize("rule", SHIPPED[::12], ids=str)
def test_a_true_rule_is_not_refuted(rule: Rule) -> None:
    assert witness(rule, seed=7) is None


def test_equal_rules_get_equal_witnesses() -> None:
    rule = next(r for r in ATTACKS if r.name == "f5")
    assert witness(rule) == witness(rule)


def test_a_large_operand_is_told_by_what_is_not_zero() -> None:
    x = np.zeros((5, 6))
    x[2, 3] = 0.5
    assert refuter._text(x) == "zeros[5, 6] but 1/2 at [2, 3]"


def test_terms_are_compared_beyond_the_extents_that_are_judged_first() -> None:
    found = [i for r in every_rule()[::12] for i in refuter.larger_instances(r)]
    assert found
    assert max(n for i in found for shape in i.operands.values() for n in shape) > WIDE


@pytest.mark.parametrize(
    ("law", "thresholds"),
    [
        ("neg(x) = neg(x) where x.rank == 4", ()),
        ("neg(x) = neg(slice(x, axis=0, start=x.shape[0] // 11, stop=x.shape[0], step=1)) where x.rank == 1", (11,)),
        ("transpose(x, perm=[0, 2, 3, 1]) = x where x.shape[1] <= 7, x.size < 500", (7,)),
        ("reshape(x, shape=[x.shape[0] * 9, -1]) = x where x.shape[2:4] == [1, 6 + x.shape[1]]", (6, 9)),
    ],
)
def test_thresholds_are_numbers_that_terms_compute_with(law: str, thresholds: tuple[int, ...]) -> None:
    sides, _, guard = law.partition(" where ")
    (rule,) = rules_of_text(f"rule r(x: tensor) grade F {{ {sides} {f'where {guard}' if guard else ''} }}", "r.rules")
    assert thresholds_of(rule) == thresholds


def test_neighbours_and_doubles_are_near_a_threshold() -> None:
    assert near((4, 11)) == (3, 4, 5, 8, 10, 11, 12, 22)
