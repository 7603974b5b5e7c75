"""Judging rules: what is proved, what stays unproved, and how the certificate says it."""

from __future__ import annotations

import itertools
import math
import re

import pytest

from rewrite_compiler import IsConstant, Law, Rule, Tensor, Where, rule
from rewrite_compiler import ops as o
from rewrite_compiler.prove.instances import covering_sets as instances
from rewrite_compiler.prove.instances import instance_search as shapes
from rewrite_compiler.prove.instances.covering_sets import instances_of
from rewrite_compiler.prove.instances.instance_search import Search, drawn_instances
from rewrite_compiler.prove.rules.rules import NO_INSTANCE, prove_rule, prove_rules, with_suggestion
from rewrite_compiler.rewrite import Int, Ints
from rewrite_compiler.rewrite.text_file import rules_of_text


@rule(grade="F")
def exponential_of_twice(x: Tensor) -> Law:
    """e^(x + x) = e^x · e^x"""
    return o.exp(o.add(x, x)), o.mul(o.exp(x), o.exp(x))


@rule
def impossible(x: Tensor) -> Law:
    """A guard that nothing satisfies"""
    return o.relu(x), o.neg(x), Where(x.rank < 0)


@rule
def relu_twice(x: Tensor) -> Law:
    """relu(relu(x)) = relu(x)"""
    return o.relu(o.relu(x)), o.relu(x)


@rule
def magnitude_of_relu(x: Tensor) -> Law:
    """|relu(x)| = relu(x)"""
    return o.abs_(o.relu(x)), o.relu(x)


@rule
def both_results(x: Tensor, w: Tensor, r: Tensor, b: Tensor, h: Tensor) -> Law:
    """A weight turned twice gives the same two results."""
    turned = o.transpose(o.transpose(w, (1, 0)), (1, 0))
    (every, last), (same_every, same_last) = o.rnn(x, turned, r, b, h, "relu"), o.rnn(x, w, r, b, h, "relu")
    return (every, same_every), (last, same_last)


@rule
def scale_into_bias(x: Tensor, s: Tensor, b: Tensor, axis: Int) -> Law:
    """A law with a slot for each kind of variable"""
    return o.bias_add(o.scale(x, s, axis=axis), b, axis=axis), o.bias_add(o.scale(x, s, axis=axis), b, axis=axis), Where(IsConstant(s))


@rule
def half_of_relu(x: Tensor, y: Tensor) -> Law:
    """False: relu is not additive"""
    half = o.full((), 0.5)
    return o.relu(o.mul(o.add(x, y), half)), o.add(o.relu(o.mul(x, half)), o.relu(o.mul(y, half))), Where(x.rank == 0, y.rank == 0)


@rule
def bias_along_the_wrong_axis(x: Tensor, b: Tensor) -> Law:
    """False, and it does not even type"""
    return o.bias_add(x, b, axis=0), o.bias_add(x, b, axis=1), Where(x.rank == 2, x.shape == (1, 2))


def test_a_refutation_shows_small_operands_and_fractions() -> None:
    problem = prove_rule(half_of_relu).problem
    assert problem is not None
    assert problem.sentence == "rule half-of-relu is false: the sides differ; left 0, right 1/2, with x = -1, y = 1"
    assert problem.help == "correct the side that is wrong, or add a guard that such operands do not meet"
    assert re.fullmatch(r".*/test_rules\.py:\d+", problem.place)


def test_a_refutation_shows_shapes_that_do_not_type() -> None:
    problem = prove_rule(bias_along_the_wrong_axis).problem
    assert problem is not None
    assert (problem.code, problem.sentence) == (
        "R105",
        "rule bias-along-the-wrong-axis is false: the right side has no meaning where the left has one: "
        "A bias or scale along axis 1 of (1, 2) must have shape (2,), not (1,); "
        "left (1, 2), right no meaning, with x = tensor[1, 2], b = tensor[1]",
    )


def test_a_law_of_a_real_function_is_not_proved() -> None:
    proof = prove_rule(exponential_of_twice)
    assert (proof.verdict, proof.code, proof.counterexample) == ("unproved", "R103", None)
    assert re.fullmatch(r"real arithmetic \(z3\): without the values of exp the sides may differ at x = \S+", proof.evidence)
    assert proof.problem is not None
    assert proof.problem.sentence == f"rule exponential-of-twice is not proved: {proof.evidence}"


def test_a_rule_without_instances_is_not_proved() -> None:
    proof = prove_rule(impossible)
    assert (proof.verdict, proof.code) == ("unproved", "R103")
    assert proof.evidence == NO_INSTANCE
    assert with_suggestion(proof, impossible).evidence == f"{NO_INSTANCE}; there are some without 0"


def test_a_maximum_is_a_set_of_operands() -> None:
    assert prove_rule(relu_twice).evidence == "both sides are equal by the index calculus"


def test_every_result_is_compared() -> None:
    proof = prove_rule(both_results, count=5)
    assert (proof.verdict, proof.evidence) == ("proved", "both sides are the same elements")


def test_proofs_are_the_same_each_time() -> None:
    assert list(prove_rules([conv_of_lines, scale_into_bias], count=10)) == list(prove_rules([conv_of_lines, scale_into_bias], count=10))


def test_a_theorem_says_what_it_covers() -> None:
    proof = prove_rule(both_results, count=5)
    assert (proof.strength, proof.ranks) == ("all shapes: every extent and attribute, ranks 0…5, 1 form", 5)
    proof = prove_rule(relu_twice)
    assert (proof.strength, proof.ranks) == ("all shapes: every extent and attribute, every rank", None)


@pytest.mark.parametrize("count", [3, 10])
def test_so_many_instances_are_drawn(count: int) -> None:
    assert len(instances_of(scale_into_bias, count).nonempty) == count


def test_where_none_is_drawn_small_ones_are_searched_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instances, "drawn_instances", lambda *_, **__: [])
    monkeypatch.setattr(instances, "_covering_pairs", lambda *_: [])
    found = instances_of(scale_into_bias)
    assert found.nonempty == instances.smallest_instances(scale_into_bias).nonempty != ()


def names(r: Rule, limit: int) -> set[tuple[object, ...]]:
    search = Search(r, range(1, limit + 1), 4, lambda candidates: candidates, 10_000_000)
    return {(*i.operands.items(), *sorted(i.attributes.items(), key=str)) for i in search.instances()}


@rule
def conv_of_lines(x: Tensor, w: Tensor, strides: Ints, pads: Ints, dilations: Ints) -> Law:
    """A convolution of one spatial axis"""
    y = o.conv(x, w, strides, pads, dilations, group=1)
    return y, y, Where(x.rank == 3)


@rule
def normalised(x: Tensor, g: Tensor, b: Tensor) -> Law:
    """A layer normalisation over the last axis"""
    y = o.layer_norm(x, g, b, 0, 0.5)
    return y, y, Where(x.rank < 3)


@pytest.mark.parametrize("r", [scale_into_bias, conv_of_lines, normalised], ids=str)
def test_narrowed_candidates_leave_no_instance_out(r: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    narrowed = names(r, 1) | names(r, 2) if r is not conv_of_lines else names(r, 1)
    monkeypatch.setattr(shapes, "OPERANDS", {})
    every = names(r, 1) | names(r, 2) if r is not conv_of_lines else names(r, 1)
    assert narrowed == every


def test_drawn_instances_satisfy_the_guard() -> None:
    for instance in drawn_instances(conv_of_lines, range(1, 6), 4, 30):
        assert len(instance.operands["x"]) == 3
        assert len(instance.operands["w"]) == 3


def test_every_factoring_is_tried() -> None:
    found = [s for r in range(1, 4) for s in itertools.product(range(1, 7), repeat=r) if math.prod(s) == 6]
    assert sorted(shapes.factorings(6, 3)) == sorted(found)


def test_a_guard_on_a_result_that_the_left_side_lacks_is_no_crash() -> None:
    text = "rule law(x: tensor) grade E { relu(relu(x)) = relu(x) where reshape(x, shape=[4]).shape[0] == 4 }"
    (law,) = rules_of_text(text, "law.rules")
    proof = prove_rule(law)
    assert proof.verdict == "unproved"
    assert "a result that the left side does not have" in proof.evidence
