"""Suggested guards: false rules of the gallery that one condition makes true, and none where none does."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from command import flexmatch
from known_wrong import layout

from rewrite_compiler import Law, Rule, Tensor, Where, rule
from rewrite_compiler import ops as o
from rewrite_compiler.prove.certificates import judge as court
from rewrite_compiler.prove.certificates.cache import Cache
from rewrite_compiler.prove.rules import floating_point, guard_synthesis, rules
from rewrite_compiler.prove.rules.guard_synthesis import helpful_guard
from rewrite_compiler.prove.rules.rules import NO_INSTANCE, prove_rule, with_suggestion
from rewrite_compiler.rewrite import Int, Ints
from rewrite_compiler.rewrite.text_file import rules_of_text


@rule
def bias_of_any_vector(x: Tensor, b: Tensor) -> Law:
    """True where b lies along the last axis"""
    return o.add(x, b), o.bias_add(x, b, axis=x.rank - 1), Where(x.rank == 2, b.rank == 1)


@rule
def reshape_is_nothing(x: Tensor, s: Ints) -> Law:
    return o.reshape(x, s), x


@rule
def negation_is_nothing(x: Tensor) -> Law:
    return o.neg(x), x


GUARDS = [
    (bias_of_any_vector, "b.shape[-1] == x.shape[-1]"),
    (reshape_is_nothing, "s == x.shape"),
    (layout.addition_past_reshapes_of_different_shapes, "y.shape == x.shape"),
]


@pytest.mark.parametrize(("false", "guard"), GUARDS, ids=str)
def test_a_guard_is_suggested_that_proves_the_rule(false: Rule, guard: str) -> None:
    proof = with_suggestion(prove_rule(false), false)
    assert (proof.verdict, proof.suggestion) == ("refuted", guard)
    assert proof.problem is not None
    assert proof.problem.help == f"it is proved under the guard {guard}"


def test_nothing_is_suggested_where_nothing_helps() -> None:
    proof = with_suggestion(prove_rule(negation_is_nothing), negation_is_nothing)
    assert (proof.verdict, proof.suggestion) == ("refuted", "")


def test_a_suggestion_is_a_guard_of_the_text_form() -> None:
    text = "rule mine(x: tensor, s: ints) { reshape(x, shape=s) = x }"
    (mine,) = rules_of_text(text, "mine.rules")
    guard = court.judge_rule(mine, Cache(None)).suggestion
    (guarded,) = rules_of_text(text.replace("= x }", f"= x where {guard} }}"), "mine.rules")
    assert prove_rule(guarded).is_proved


@rule(grade="E")
def slice_past_any_reshape(x: Tensor, s: Ints, first: Int, last: Int) -> Law:
    """Some instances have no elements, and operands that none can be read of."""
    y = o.slice_(o.reshape(x, s), axis=0, start=first, stop=last)
    return y, o.reshape(o.slice_(x, axis=0, start=first, stop=last), y.shape), Where(x.size == s[0] * s[1])


def test_instances_without_elements_do_not_end_the_search() -> None:
    proof = with_suggestion(prove_rule(slice_past_any_reshape), slice_past_any_reshape)
    assert (proof.verdict, proof.counterexample is not None) == ("refuted", True)


@rule(grade="Z")
def relu_past_max_pool(x: Tensor, k: Ints, s: Ints, p: Ints, d: Ints) -> Law:
    """Padding has no largest element: there are no windows of padding alone."""
    return o.max_pool(o.relu(x), k, s, p, d), o.relu(o.max_pool(x, k, s, p, d)), Where(x.rank == 3)


def test_a_pool_has_no_windows_of_padding_alone() -> None:
    assert prove_rule(relu_past_max_pool).verdict == "unproved"


UNPROVED = """
rule pool-of-negatives(x: tensor, k: ints, s: ints, p: ints, d: ints) grade E {
    max_pool(neg(neg(x)), kernel=k, strides=s, pads=p, dilations=d, ceil=0) = max_pool(x, kernel=k, strides=s, pads=p, dilations=d, ceil=0)
    where x.rank == 3
}
"""


def test_a_rule_that_no_engine_decides_says_where_it_stopped_and_what_would_help(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("open.rules").write_text(UNPROVED)
    answer = flexmatch("prove", "open.rules", "--json", "verdicts.json")
    assert answer.code == 1
    (pool,) = json.loads(Path("verdicts.json").read_text())["rules"]
    stopped = "index calculus: it has no reading of windows rounded up, and of extrema of windows with pads, with x of rank 3"
    assert (pool["verdict"], pool["evidence"], pool["suggestion"]) == ("unproved", stopped, "p == [0, 0]")
    assert re.fullmatch(r"x = tensor\[.*\], k = .*, s = .*, p = \((?!0, 0).*\), d = .*", pool["left_out"])
    text = " ".join(answer.out.split())
    assert f"open.rules:2: pool-of-negatives: unproved · {stopped} proved under the guard p == [0, 0], which leaves out x" in text


def test_no_guard_is_sought_where_floating_point_alone_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Rule] = []
    monkeypatch.setattr(floating_point, "WORK", 1)
    monkeypatch.setattr(rules, "helpful_guard", lambda r, *_: asked.append(r) or ("", ""))
    (mine,) = rules_of_text(
        "rule mine(x: tensor) grade E { div(x, full(shape=[], value=2.0)) = mul(x, full(shape=[], value=0.5)) }", "rules"
    )
    proof = with_suggestion(prove_rule(mine), mine)
    assert (proof.verdict, proof.suggestion, asked) == ("unproved", "", [])
    assert proof.evidence.startswith(rules.OPEN_GRADE)
    (pool,) = rules_of_text(UNPROVED, "rules")
    assert with_suggestion(prove_rule(pool), pool).suggestion == ""
    assert asked == [pool]


def test_the_search_for_a_guard_ends_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    (pool,) = rules_of_text(UNPROVED, "rules")
    asked: list[Rule] = []

    def helps_not(r: Rule) -> bool:
        asked.append(r)
        return False

    assert helpful_guard(pool, helps_not, prove_rule) == ("", "")
    assert len(asked) > 1
    asked.clear()
    monkeypatch.setattr(guard_synthesis, "SECONDS", 0.0)
    assert helpful_guard(pool, helps_not, prove_rule) == ("", "")
    assert asked == []


def test_the_condition_that_leaves_no_instance_is_named() -> None:
    (mine,) = rules_of_text("rule mine(x: tensor) { relu(relu(x)) = relu(x) where x.rank == 2, x.rank == 3 }", "mine.rules")
    evidence = with_suggestion(prove_rule(mine), mine).evidence
    assert evidence == f"{NO_INSTANCE}; there are some without x.rank == 2 or without x.rank == 3"
