"""Grades with a condition on float32 operands: proved within bounds, refuted where these are too wide, refused where they say nothing."""

from __future__ import annotations

import re

import numpy as np
import pytest

from rewrite_compiler import Law, Tensor, rule
from rewrite_compiler import ops as o
from rewrite_compiler.errors import FlexmatchError
from rewrite_compiler.prove.rules.rules import prove_rule
from rewrite_compiler.prove.verdict import PROVED, REFUTED
from rewrite_compiler.rewrite.float_condition import graded, within
from rewrite_compiler.rewrite.text import rule_text
from rewrite_compiler.rewrite.text_file import rules_of_text

HALF_OF_TWICE = "mul(add(x, x), full(shape=[], value=0.5)) = x"
TWICE_HALF = "mul(mul(x, full(shape=[], value=0.5)), full(shape=[], value=2.0)) = x"
JUDGED = {
    f"E if abs(x) < 2^126: {HALF_OF_TWICE}": PROVED,
    f"E if abs(x) < 2^127: {HALF_OF_TWICE}": PROVED,
    f"E if abs(x) <= 2^127: {HALF_OF_TWICE}": REFUTED,
    f"E if x < 2^127: {HALF_OF_TWICE}": REFUTED,
    f"E: {HALF_OF_TWICE}": REFUTED,
    f"E if abs(x) >= 2^-125: {TWICE_HALF}": PROVED,
    f"E if abs(x) >= 2^-126: {TWICE_HALF}": REFUTED,
    "E if x > 0: add(x, full(shape=[], value=0.0)) = x": PROVED,
    "E if x >= 0: add(x, full(shape=[], value=0.0)) = x": REFUTED,  # -0 is at least 0
    "Z if abs(x) < 2^127: mul(add(x, x), full(shape=[], value=0.5)) = add(x, full(shape=[], value=0.0))": PROVED,
}
REFUSED = {
    "A if x > 0": "a condition must stand at grade E or Z",
    "E if y > 0": 'must name operands of the rule (x), not "y"',
    "E if x > 0 and x < 0": "contradicts itself: no x satisfies x > 0 and x < 0",
    "E if nan < x": 'must compare operands with numbers, not be "nan < x"',
    "E if x == 0": 'must compare operands with numbers, not be "x == 0"',
    "E if x < 0.1": "must be a float32 number, not 0.1",
    "E if x < 1e400": "must be a float32 number, not 1e400",
    "E if x < 2^9999": "must be a float32 number, not 2^9999",
    "E if x < 0^-1": "must be a float32 number, not 0^-1",
}


@pytest.mark.parametrize("law", JUDGED)
def test_the_court_decides_within_the_condition(law: str) -> None:
    grade, _, equation = law.partition(": ")
    (r,) = rules_of_text(f"rule r(x: tensor) grade {grade} {{ {equation} }}", "r.rules")
    proof = prove_rule(r)
    assert proof.verdict == JUDGED[law], proof.evidence
    assert proof.grade == grade
    if proof.verdict == REFUTED:
        assert f"it is not of grade {grade}: " in proof.evidence


def test_both_forms_say_it_alike() -> None:
    @rule(grade="E if abs(x) < 2^126 and y >= -1.5", marks=["ring"])
    def r(x: Tensor, y: Tensor) -> Law:
        """x + y = y + x"""
        return o.add(x, y), o.add(y, x)

    text = rule_text(r)
    assert text.startswith("rule r(x: tensor, y: tensor) grade E if abs(x) < 2^126 and y >= -1.5 marks ring {")
    (read,) = rules_of_text(text, "r.rules")
    assert (read.grade, read.bounds, read.marks) == (r.grade, r.bounds, r.marks)
    assert read.full_grade == "E if abs(x) < 2^126 and y >= -1.5"


@pytest.mark.parametrize("grade", REFUSED)
def test_a_condition_that_says_nothing_is_refused_at_its_place(grade: str) -> None:
    with pytest.raises(FlexmatchError, match=re.escape(REFUSED[grade])) as refusal:
        rules_of_text(f"\nrule r(x: tensor) grade {grade} {{ relu(x) = x }}", "r.rules")
    assert refusal.value.problem.place == "r.rules:2"
    with pytest.raises(FlexmatchError, match=re.escape(REFUSED[grade])) as refusal:

        @rule(grade=grade)
        def r(x: Tensor) -> Law:
            """relu(x) = x"""
            return o.relu(x), x

    assert (refusal.value.problem.place or "").startswith(__file__)


def test_data_are_drawn_within_bounds() -> None:
    _, bounds = graded("E if abs(x) < 2^3 and x > 1")
    x = np.array([np.nan, np.inf, -3.0, 1.0, 1.5, 8.0], np.float32)
    kept = within({"x": x, "y": x}, bounds)
    assert kept["x"].dtype == np.float32
    assert [all(b.holds(n) for b in bounds) for n in kept["x"]] == [True] * 6
    assert kept["x"][4] == 1.5
    assert kept["y"] is x
