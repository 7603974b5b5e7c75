"""Rules are loaded once e-nodes have all operators of their queries: the e-graph is that of all rules from the beginning."""

from __future__ import annotations

import pytest
from in_process import engine_of

from rewrite_compiler import Law, Rule, Tensor, rule
from rewrite_compiler import ops as o
from rewrite_compiler.ir.program import Builder, Program
from rewrite_compiler.ir.types import TensorType
from rewrite_compiler.rewrite.ruleset import shipped_rules


@rule
def relu_as_neg(x: Tensor) -> Law:
    """relu(x) = −x"""
    return o.relu(x), o.neg(x)


@rule
def neg_as_exp(x: Tensor) -> Law:
    """−x = exp(x)"""
    return o.neg(x), o.exp(x)


@rule(phase="late")
def exp_of_neg_as_tanh(x: Tensor) -> Law:
    """exp(−x) = tanh(x)"""
    return o.exp(o.neg(x)), o.tanh(x)


@rule
def erf_as_relu(x: Tensor) -> Law:
    """erf(x) = relu(x)"""
    return o.erf(x), o.relu(x)


CHAIN = (relu_as_neg, neg_as_exp, exp_of_neg_as_tanh, erf_as_relu)


def relu_twice() -> Program:
    made = Builder("relu twice")
    (y,) = made.apply("relu", made.apply("relu", [made.input("x", TensorType((2, 3)))]))
    return made.finish([y])


def graph_of(p: Program, rules: tuple[Rule, ...]) -> tuple[str, int]:
    engine = engine_of(p, rules)
    while engine.run_round("ir"):
        pass
    engine.run_round("late")
    return str(engine.snapshot()), sum(text.startswith("(rule ") for text in engine.pending)


def test_a_rule_is_loaded_once_another_makes_its_operator() -> None:
    engine = engine_of(relu_twice(), CHAIN)
    waiting = []
    for ruleset in ("ir", "ir", "late"):
        engine.run_round(ruleset)
        waiting.append(len(engine.pending))
    assert waiting == [3, 2, 1]  # what rewrites erf is never loaded
    assert sum(n.op == "o_tanh" for c in engine.snapshot().classes.values() for n in c.nodes) == 1


@pytest.mark.parametrize("rules", [CHAIN, tuple(shipped_rules())], ids=["chain", "shipped"])
def test_the_e_graph_is_that_of_all_rules_at_once(rules: tuple[Rule, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    graph, waiting = graph_of(relu_twice(), rules)
    monkeypatch.setattr("rewrite_compiler.egraph.saturation.engine.query_operators", lambda _: set())
    assert graph_of(relu_twice(), rules) == (graph, 0)
    assert waiting > 0
