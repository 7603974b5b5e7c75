"""Elementwise laws with every operand and float attribute a symbol: what z3 proves, what it shows false, and what it does not decide."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from rewrite_compiler.ops.static import holds
from rewrite_compiler.prove.instances.element_terms import BINARY, Node, call, constant, leaf, node
from rewrite_compiler.prove.instances.instance_search import drawn_instances
from rewrite_compiler.prove.rules.rules import prove_rule
from rewrite_compiler.prove.rules.scalar_laws import is_partial, is_pointwise, scalar_answer
from rewrite_compiler.prove.verdict import Stop, Theorem
from rewrite_compiler.readings.smt.scalars.real_numbers import Comparison, difference
from rewrite_compiler.readings.smt.scalars.scalar_term import Undecided
from rewrite_compiler.rewrite.domain import EVERYWHERE, Domain
from rewrite_compiler.rewrite.rule import Rule
from rewrite_compiler.rewrite.text_file import rules_of_text

WORK = 2_000_000
X, Y, V = leaf("x", 0), leaf("y", 0), leaf("v", -1)
ADD, SUB, MUL, DIV, MAX, MIN, LT = (BINARY[op] for op in ("add", "sub", "mul", "rdiv", "max", "min", "lt"))
EXP, LOG, SQRT, TANH, POW = map(call, ("exp", "log", "sqrt", "tanh", "pow"))
ZERO, ONE, TWO = map(constant, (0, 1, 2))
EQUAL: dict[str, tuple[Node, Node, list[Comparison]]] = {
    "a factor that is not negative": (MAX(MUL(X, V), ZERO), MUL(MAX(X, ZERO), V), [(0.0, "le", "v")]),
    "a quotient where the left has one": (DIV(X, V), MUL(X, DIV(ONE, V)), []),
    "a divisor that the guard excludes": (MUL(X, V), DIV(MUL(X, MUL(V, V)), V), [("v", "ne", 0.0)]),
    "increasing functions": (MAX(EXP(X), EXP(Y)), EXP(MAX(X, Y)), []),
    "an odd function": (TANH(SUB(ZERO, X)), SUB(ZERO, TANH(X)), []),
    "a root of a square": (SQRT(MUL(X, X)), MAX(X, SUB(ZERO, X)), []),
    "a square": (POW(X, TWO), MUL(X, X), []),
    "a logarithm of a power": (LOG(EXP(X)), X, []),
    "a power of a logarithm": (EXP(LOG(X)), X, []),
    "a power that both have": (POW(X, V), MAX(POW(X, V), POW(X, V)), []),
    "truth values as numbers": (MUL(LT(X, Y), LT(X, Y)), LT(X, Y), []),
}
APART: dict[str, tuple[Node, Node, list[Comparison]]] = {
    "a negative factor": (MAX(MUL(X, V), ZERO), MUL(MAX(X, ZERO), V), [(-0.001, "le", "v")]),
    "a divisor of 0": (X, DIV(MUL(X, V), V), []),
    "a divisor of 0 that counts nothing": (ZERO, node("mul", (DIV(ONE, X), ZERO)), []),
    "a divisor whose root is no number of floating point": (
        Y,
        ADD(Y, SUB(DIV(ONE, SUB(MUL(X, X), TWO)), DIV(ONE, SUB(MUL(X, X), TWO)))),
        [],
    ),
    "a logarithm of a negative number": (X, EXP(LOG(X)), []),
    "a root of a negative number": (X, MUL(SQRT(X), SQRT(X)), []),
    "a bound one off": (MIN(X, V), X, [(40.0, "le", "v")]),
}


@pytest.mark.parametrize(("left", "right", "guard"), EQUAL.values(), ids=EQUAL)
def test_equal_terms(left: Node, right: Node, guard: list[Comparison]) -> None:
    assert difference(left, right, guard, WORK) is None


@pytest.mark.parametrize(("left", "right", "guard"), APART.values(), ids=APART)
def test_different_terms(left: Node, right: Node, guard: list[Comparison]) -> None:
    assert difference(left, right, guard, WORK) is not None


@pytest.mark.parametrize("guard", [("v", "eq", math.inf), (math.inf, "le", "v"), ("v", "le", -math.inf)], ids=str)
def test_a_guard_that_leaves_infinite_numbers_alone_is_not_decided(guard: Comparison) -> None:
    with pytest.raises(Undecided, match="the guard leaves infinite numbers alone"):
        difference(X, X, [guard], WORK)


def test_a_question_that_is_too_hard_is_not_decided() -> None:
    sides = (POW(X, V), MUL(POW(X, DIV(V, TWO)), POW(X, DIV(V, TWO))))
    assert difference(*sides, [], WORK) is not None  # numbers that are none: functions are not interpreted
    with pytest.raises(Undecided, match="z3 gives up after 1 steps"):
        difference(MUL(MUL(X, Y), V), MUL(X, MUL(Y, V)), [], 1)


def law(text: str) -> Rule:
    (r,) = rules_of_text(f"rule law{text}", "law.rules")
    return r


BOUND = "(x: tensor, l: float, h: float) grade F { clip(x, low=l, high=h) = min(add(relu(sub(x, L)), L), H) where l <= h }".replace(
    "L)", "full(shape=[], value=l))"
).replace("H)", "full(shape=[], value=h))")


def test_a_bound_that_becomes_an_element_is_finite_in_every_match() -> None:
    r = law(BOUND)
    assert prove_rule(r).is_proved
    shown = {str(c) for c in Domain().conditions(r.pairs)}
    assert shown == {f"{v} {sign}inf" for v in "lh" for sign in ("> -", "< ")}
    assert not EVERYWHERE.conditions(r.pairs)
    infinite = [i for i in drawn_instances(r, range(1, 3), 1, 60) if any(map(math.isinf, (i.values["l"], i.values["h"])))]
    assert infinite
    assert not any(all(holds(c, i.binding()) for c in Domain().conditions(r.pairs)) for i in infinite)


def test_a_bound_that_stays_one_may_be_infinite() -> None:
    r = law("(x: tensor, l: float, h: float) grade E { clip(neg(neg(x)), low=l, high=h) = clip(x, low=l, high=h) }")
    assert prove_rule(r).is_proved
    assert not Domain().conditions(r.pairs)


def test_numbers_that_z3_finds_refute_the_law_when_they_are_executed() -> None:
    r = law("(x: tensor, v: float) grade F { abs(mul(x, V)) = mul(abs(x), V) where v > -0.01 }".replace("V", "full(shape=[], value=v)"))
    answer = scalar_answer(r)
    assert isinstance(answer, Stop)
    assert answer.numbers is not None
    assert -0.01 < answer.numbers["v"] < 0
    proof = prove_rule(r)
    assert (proof.verdict, proof.code) == ("refuted", "R102")


def test_what_divides_is_not_left_to_the_calculus() -> None:
    r = law("(x: tensor, y: tensor) grade F { sub(add(x, y), y) = sub(add(x, log(y)), log(y)) where x.shape == y.shape }")
    assert is_partial(r)
    assert prove_rule(r).verdict == "refuted"
    whole = law("(x: tensor) grade A { div(x, full(shape=[], value=4.0)) = mul(x, full(shape=[], value=0.25)) }")
    assert isinstance(scalar_answer(whole), Theorem)


def test_every_pair_of_a_rule_is_asked() -> None:
    right, wrong = law("(x: tensor) grade F { neg(neg(x)) = x }"), law("(x: tensor) grade F { abs(neg(x)) = x }")
    assert isinstance(scalar_answer(replace(right, pairs=right.pairs * 2)), Theorem)
    for pairs in ((*right.pairs, *wrong.pairs), (*wrong.pairs, *right.pairs)):
        assert isinstance(scalar_answer(replace(right, pairs=pairs)), Stop)


def test_sides_of_other_operands_have_no_shape_in_common() -> None:
    """Where y has more axes than x, x + y − y has them, too."""
    assert not is_pointwise(law("(x: tensor, y: tensor) grade F { sub(add(x, y), y) = x }"))
    assert is_pointwise(law("(x: tensor, y: tensor) grade F { sub(add(x, y), y) = sub(sub(x, y), neg(y)) }"))


def test_both_bounds_of_a_clip_count() -> None:
    low, high = (f"full(shape=[], value={v})" for v in "lh")
    for sides, is_law in ((f"min(max(x, {low}), {high})", True), (f"min(x, {high})", False), (f"max(x, {low})", False)):
        answer = scalar_answer(law(f"(x: tensor, l: float, h: float) grade F {{ clip(x, low=l, high=h) = {sides} where l <= h }}"))
        assert isinstance(answer, Theorem if is_law else Stop)
