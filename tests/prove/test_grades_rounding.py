"""Grades of floating point: true laws that overflow, underflow or cancel on one side only do not keep the grade they claim."""

from __future__ import annotations

from pathlib import Path

import pytest
from known_wrong import gallery

from rewrite_compiler.prove.instances.instance_search import drawn_instances
from rewrite_compiler.prove.rules.grades import grade_violation
from rewrite_compiler.prove.rules.rules import prove_rule
from rewrite_compiler.rewrite.rule import Rule
from rewrite_compiler.rewrite.text_file import rules_of_file, rules_of_text

TEXT = Path(gallery.__file__).with_name("rounding.rules")
KEPT = """
rule sums(x: tensor, y: tensor, z: tensor) grade A {
    "(x + y) + z = x + (y + z)"
    add(add(x, y), z) = add(x, add(y, z))
    where x.shape == y.shape, y.shape == z.shape
}
rule products(x: tensor, y: tensor, z: tensor) grade A {
    "(x·y)·z = x·(y·z)"
    mul(mul(x, y), z) = mul(x, mul(y, z))
    where x.shape == y.shape, y.shape == z.shape
}
rule distributes(x: tensor, y: tensor, z: tensor) grade A {
    "(x + y)·z = x·z + y·z"
    mul(add(x, y), z) = add(mul(x, z), mul(y, z))
}
rule negatives(x: tensor) grade E {
    "−(−x) = x"
    neg(neg(x)) = x
}
"""


@pytest.mark.parametrize("rule", rules_of_file(TEXT), ids=str)
def test_a_law_that_claims_too_much_of_rounding_is_refused_with_a_sample(rule: Rule) -> None:
    proof = prove_rule(rule)
    assert (proof.verdict, proof.code) == ("refuted", "R102")
    assert proof.evidence.startswith(f"it is not of grade {rule.grade}: ")
    assert proof.counterexample is not None
    assert proof.counterexample.left != proof.counterexample.right


def test_numbers_whose_product_is_not_one_prove_nothing() -> None:
    far = "mul(mul(x, full(shape=[], value=1e30)), full(shape=[], value=1e-30))"
    (rule,) = rules_of_text(f"rule far-and-back(x: tensor) grade A {{ {far} = x }}", "rules")
    assert not prove_rule(rule).is_proved


@pytest.mark.parametrize("rule", rules_of_text(KEPT, "rules"), ids=str)
def test_rounding_of_another_order_keeps_the_grade(rule: Rule) -> None:
    assert prove_rule(rule).is_proved


@pytest.mark.parametrize("rule", [r for r in rules_of_file(TEXT) if r.grade == "A" and "large" not in r.name], ids=str)
def test_a_law_that_claims_nothing_of_rounding_is_proved(rule: Rule) -> None:
    (free,) = rules_of_text(next(f"rule {r}".replace("grade A", "grade F") for r in parts() if r.startswith(f"{rule.name}(")), "rules")
    assert prove_rule(free).is_proved


def parts() -> list[str]:
    """Return the texts of the rules."""
    return TEXT.read_text("utf-8").split("\nrule ")[1:]


def test_a_law_that_changes_the_sign_of_a_zero_is_not_of_grade_e() -> None:
    text = """
rule turned(x: tensor, y: tensor) grade E {
    "−(x − y) = y − x"
    neg(sub(x, y)) = sub(y, x)
    where x.shape == y.shape
}
"""
    (rule,) = rules_of_text(text, "rules")
    proof = prove_rule(rule)
    assert (proof.verdict, proof.code) == ("refuted", "R102")
    assert proof.counterexample is not None
    assert {proof.counterexample.left, proof.counterexample.right} == {"0.0", "-0.0"}
    found = grade_violation(rule, drawn_instances(rule, range(1, 4), 4, 8), False)  # by data alone
    assert found is not None
    assert found[1] is not None
    assert {found[1].left, found[1].right} == {"0.0", "-0.0"}


@pytest.mark.parametrize(
    ("law", "same_order"),
    [
        ("add(x, full(shape=[], value=0.0)) = x", True),
        ("div(x, full(shape=[], value=3.0)) = mul(x, full(shape=[], value=0.33333334))", False),
    ],
)
def test_a_grade_is_kept_on_every_instance(law: str, same_order: bool) -> None:
    """An instance of one element may show nothing; one of many that comes behind it shows a zero whose sign goes, or another rounding."""
    (rule,) = rules_of_text(f"rule law(x: tensor) grade E {{ {law} }}", "rules")
    instances = drawn_instances(rule, range(3), 6, 60)
    silent = next(i for i in instances if grade_violation(rule, [i], same_order) is None)
    found = grade_violation(rule, [silent, max(instances, key=lambda i: i.size)], same_order)
    assert found is not None
    assert found[0].startswith("it is not of grade E: the sides ")
    assert found[1] is not None
