"""The shipped rules: each has its certificate, compiles to the e-graph, and holds on larger data than the proofs use."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rewrite_compiler.egraph.saturation.rule_text import rule_text
from rewrite_compiler.prove.instances.instance_search import drawn_instances
from rewrite_compiler.prove.instances.sides import operands_from, right_shape, side_values
from rewrite_compiler.prove.rules.rules import prove_rule
from rewrite_compiler.rewrite.rule import Rule
from rewrite_compiler.rewrite.ruleset import shipped_rules

RULES = shipped_rules()
LARGER, RANK = range(1, 6), 4


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_every_rule_is_proved(rule: Rule) -> None:
    proof = prove_rule(rule, count=60)
    assert proof.is_proved, proof.problem


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_every_rule_has_a_law_and_a_text(rule: Rule) -> None:
    assert " = " in rule.doc
    assert rule_text(rule, 0).startswith("(rule (")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(st.sampled_from(RULES), st.integers(0, 2**32 - 1))
def test_rules_hold_on_larger_tensors(rule: Rule, seed: int) -> None:
    rank = 6 if rule.name.startswith("drop-transpose") else RANK
    random = np.random.default_rng(seed)
    for instance in drawn_instances(rule, LARGER, rank, 1, seed):
        for left, right in rule.pairs:
            assert right_shape(right, instance) == instance.shapes[id(left)]
        data = operands_from(instance, lambda shape: random.uniform(0.25, 2.0, shape))
        for got, expected in side_values(rule.pairs, instance, data, np.float64):
            np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9)
