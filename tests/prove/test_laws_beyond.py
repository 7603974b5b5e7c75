"""False laws that hold at the usual numbers, strides, extents, ranks and types are refuted, and true ones of the same kinds proved."""

from __future__ import annotations

from pathlib import Path

import pytest

from rewrite_compiler.prove.rules.rules import prove_rule
from rewrite_compiler.rewrite.rule import Rule
from rewrite_compiler.rewrite.text_file import rules_of_file, rules_of_text

LAWS = Path(__file__).parents[1] / "known_wrong"
# False by the rounding of 10^30 · 10^-30, which is less than draws of real numbers tell.
OPEN = """
rule far(x: tensor) grade A {
    mul(mul(x, full(shape=[], value=1e30)), full(shape=[], value=1e-30)) = x
}
"""


@pytest.mark.parametrize("law", rules_of_file(LAWS / "beyond.rules"), ids=str)
def test_a_false_law_is_refuted_with_an_instance(law: Rule) -> None:
    proof = prove_rule(law)
    assert (proof.verdict, proof.counterexample is not None) == ("refuted", True), proof


@pytest.mark.parametrize("law", rules_of_file(LAWS / "true.rules"), ids=str)
def test_a_true_law_is_proved(law: Rule) -> None:
    proof = prove_rule(law)
    assert proof.is_proved, proof


@pytest.mark.parametrize("law", rules_of_text(OPEN, "open.rules"), ids=str)
def test_a_false_law_that_no_draw_refutes_is_not_proved(law: Rule) -> None:
    assert not prove_rule(law).is_proved
