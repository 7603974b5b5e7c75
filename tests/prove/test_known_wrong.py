"""The gallery of false rules: each is refuted, with operands on which its sides really differ or do not type."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from known_wrong.gallery import FALSE, gallery
from known_wrong.stored import refutes, stored
from pace import within_steps

from rewrite_compiler.prove.rules.rules import prove_rule
from rewrite_compiler.rewrite.rule import Rule

KEPT = stored()
STEPS = (
    1_000_000_000  # of Python, about 40 seconds: no search that does not end; how long each takes is measured by benchmarks/certificates.py
)


@pytest.mark.parametrize("rule", gallery(*FALSE), ids=str)
def test_a_false_rule_is_refuted(rule: Rule) -> None:
    proof = within_steps(STEPS, lambda: prove_rule(rule))
    assert (proof.verdict, proof.code) in {("refuted", "R102"), ("refuted", "R105")}, proof
    assert proof.counterexample is not None
    assert proof.counterexample.left != proof.counterexample.right
    assert proof.problem is not None
    assert re.fullmatch(r"rule [a-z0-9-]+ is false: .+; left .+, right .+, with .+", proof.problem.sentence, re.DOTALL)
    assert proof.problem.place == rule.place


@pytest.mark.parametrize("rule", gallery(*FALSE), ids=str)
def test_a_stored_counterexample_refutes_without_the_court(rule: Rule) -> None:
    assert refutes(rule, KEPT[rule.name])
    true = replace(rule, pairs=tuple((left, left) for left, _ in rule.pairs))
    assert not refutes(true, KEPT[rule.name])


def test_nothing_else_is_stored() -> None:
    assert KEPT.keys() == {r.name for r in gallery(*FALSE)}


@pytest.mark.parametrize("rule", gallery("claims"), ids=str)
def test_a_true_rule_that_claims_too_much_is_refuted(rule: Rule) -> None:
    proof = prove_rule(rule)
    assert (proof.verdict, proof.code) == ("refuted", "R102")
    assert re.match(r"it is (not of grade|marked)", proof.evidence), proof.evidence
    assert prove_rule(replace(rule, grade="F", marks=frozenset())).is_proved


def test_the_gallery_is_large_enough() -> None:
    assert len(gallery(*FALSE)) >= 60
