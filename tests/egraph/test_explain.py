"""Explaining: the rules behind an e-node, those that made only inner parts included."""

from __future__ import annotations

import importlib

import pytest
from in_process import saturated
from programs import constant

from rewrite_compiler.egraph.extraction.extract import extract
from rewrite_compiler.egraph.graph.graph import EClass, EGraph, ENode
from rewrite_compiler.egraph.graph.schema import op_constructor
from rewrite_compiler.egraph.saturation.explanation import BirthRule, Explainer, operand_classes
from rewrite_compiler.ir.program import Builder, Program
from rewrite_compiler.ir.types import TensorType
from rewrite_compiler.ops import OPS
from rewrite_compiler.rewrite.ruleset import shipped_rules

RULES = shipped_rules()


def explained(p: Program, root: str) -> list[str]:
    """Return the rules behind the output of a program when it is built with `root` as its operator."""
    graph = saturated(p, RULES)
    wanted = graph.values[p.outputs[0]]

    def cost(c: int, node: ENode) -> tuple[int] | None:
        if graph.classes[c].fixed:
            return (0,)
        return None if c == wanted and node.op != root else (1,)

    choice = extract(graph, [wanted], cost, 5.0).choice
    explainer = Explainer(graph, choice, [BirthRule(r) for r in RULES])
    return [RULES[b].name for b in explainer.births(choice[wanted])]


def test_an_inner_part_has_its_rule() -> None:
    """relu moves past the reshape of a layer that was itself made of a product of rank 3."""
    made = Builder("net")
    x = made.input("x", TensorType((2, 3, 4)))
    (y,) = made.apply("matmul", [x, made.constant(constant(4, 5))])
    p = made.finish(made.apply("relu", [y]))
    assert explained(p, "o_reshape") == ["relu-past-reshape", "flatten-dense", "matmul-as-dense"]


def test_a_program_needs_no_rule() -> None:
    made = Builder("net")
    p = made.finish(made.apply("relu", [made.input("x", TensorType((2, 3)))]))
    assert explained(p, "o_relu") == []


def test_all_results_of_an_operator() -> None:
    """A rule made the layer whose last result the program's output is; its sums were made by another."""
    made = Builder("net")
    x, h = made.input("x", TensorType((1, 3))), made.input("h", TensorType((1, 2)))
    products = [made.apply("dense", [v, made.constant(constant(2, n, seed=n))])[0] for v, n in ((x, 3), (h, 2))]
    p = made.finish(made.apply("tanh", made.apply("add", products)))
    graph = saturated(p, RULES)
    last = next(n for n in graph.classes[graph.values[p.outputs[0]]].nodes if n.op == "Result")
    layer = next(n for n in graph.classes[last.children[0]].nodes if n.op == "o_rnn")
    births = Explainer(graph, {last.children[0]: layer}, [BirthRule(r) for r in RULES]).births(layer)
    names = [RULES[b].name for b in births]
    assert names[0] == "rnn-cell-as-layer"
    assert "products-as-gate-sum" in names


@pytest.mark.parametrize(("most", "count"), [(0, 0), (1, 1), (2, 2), (3, 3), (4, 3)])
def test_a_match_visits_so_many_e_nodes_and_no_more(most: int, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A class of three sums has three matches of a sum, and a search from each class has the whole limit."""
    sums = tuple(ENode(op_constructor(OPS["add"]).name, operands, (), -1, frozenset()) for operands in ((0, 1), (1, 0), (0, 0)))
    leaves = {c: EClass(TensorType((2,)), False, (ENode("Input", (), (c,), -1, frozenset()),)) for c in (0, 1)}
    graph = EGraph({**leaves, 2: EClass(TensorType((2,)), False, sums)}, {})
    pattern = next(r for r in RULES if r.name == "commute-addition").left
    monkeypatch.setattr(importlib.import_module("rewrite_compiler.egraph.saturation.explanation"), "MOST_NODES", most)
    assert len([*operand_classes(graph, pattern)]) == count
