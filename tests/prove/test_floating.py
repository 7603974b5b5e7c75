"""Bits decided: grades E and Z by exact laws and z3 floating point, where draws show nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from known_wrong import gallery

from rewrite_compiler.prove.instances.element_terms import BINARY, UNARY, Node, call, constant, leaf
from rewrite_compiler.prove.rules import floating_point as floating
from rewrite_compiler.prove.rules.floating_point import UndecidedPairs
from rewrite_compiler.prove.rules.rules import _symbolic_pairs, prove_rule
from rewrite_compiler.prove.verdict import Stop
from rewrite_compiler.rewrite.ruleset import every_rule
from rewrite_compiler.rewrite.text_file import rules_of_file, rules_of_text

X, Y = leaf("x", 0), leaf("y", 0)
ADD, SUB, MUL, DIV, MAX, NEG = *(BINARY[op] for op in ("add", "sub", "mul", "rdiv", "max")), UNARY["neg"]
TWO, HALF = constant(2), BINARY["rdiv"](constant(1), constant(2))
ROUNDING = Path(gallery.__file__).with_name("rounding.rules")
LAWS = """
rule halved(x: tensor) grade E {
    "x / 2 = x·½"
    div(x, full(shape=[], value=2.0)) = mul(x, full(shape=[], value=0.5))
}
rule by-an-attribute(x: tensor, v: float) grade E {
    "(x + x)·v = x·(v + v): overflows on one side at v = 1/4, the same at 0 and 1"
    mul(add(x, x), full(shape=[], value=v)) = mul(x, add(full(shape=[], value=v), full(shape=[], value=v)))
}
rule far-and-back(x: tensor, v: float) grade E {
    "x·((v·2^127)·2^-127) = x·v: overflows on one side at v = 4"
    mul(x, mul(mul(full(shape=[], value=v), full(shape=[], value=FAR)), full(shape=[], value=BACK))) = mul(x, full(shape=[], value=v))
}
rule sign-past-an-attribute(x: tensor, v: float) grade E {
    mul(neg(x), full(shape=[], value=v)) = neg(mul(x, full(shape=[], value=v)))
}
rule bounded(x: tensor, v: float) grade E {
    relu(min(x, full(shape=[], value=v))) = min(relu(x), full(shape=[], value=v))
    where v > 0.0
}
""".replace("FAR", repr(2.0**127)).replace("BACK", repr(2.0**-127))


def decided(a: Node, b: Node, up_to_zeros: bool = False) -> object:
    """Return what is decided of two elements."""
    left_open = UndecidedPairs(up_to_zeros)
    left_open.add([(a, b)])
    return left_open.decision()


EQUAL = {
    "a product with two": (MUL(X, TWO), ADD(X, X)),
    "a quotient by two": (DIV(X, TWO), MUL(X, HALF)),
    "a difference of a number": (SUB(X, TWO), ADD(X, constant(-2))),
    "signs of a product": (MUL(NEG(X), NEG(Y)), MUL(Y, X)),
    "functions of equal bits": (call("exp")(MUL(X, TWO)), call("exp")(ADD(X, X))),
    "an extremum of doubled numbers": (MAX(MUL(X, TWO), MUL(Y, TWO)), MUL(MAX(X, Y), TWO)),
}
APART = {
    "overflow": (MUL(ADD(X, X), HALF), X),
    "underflow": (MUL(MUL(X, HALF), TWO), X),
    "the sign of zero": (NEG(SUB(X, Y)), SUB(Y, X)),
    "zeros of both signs added": (SUB(X, constant(0)), ADD(X, constant(0))),
    "no added zero": (ADD(X, constant(0)), X),
    "a third": (DIV(X, constant(3)), MUL(X, DIV(constant(1), constant(3)))),
}


@pytest.mark.parametrize("pair", EQUAL.values(), ids=EQUAL)
def test_the_same_bits_are_shown(pair: tuple[Node, Node]) -> None:
    assert decided(*pair) is None


@pytest.mark.parametrize("pair", APART.values(), ids=APART)
def test_other_bits_are_shown_with_operands(pair: tuple[Node, Node]) -> None:
    answer = decided(*pair)
    assert isinstance(answer, tuple)
    kind, example = answer
    assert kind in floating.KINDS
    assert example.left != example.right
    assert "x[0]" in example.operands


@pytest.mark.parametrize("name", ["the sign of zero", "zeros of both signs added", "no added zero"])
def test_zeros_do_not_count_in_grade_z(name: str) -> None:
    assert decided(*APART[name], up_to_zeros=True) is None


def test_less_by_a_zero_is_exact_and_more_by_a_zero_is_not() -> None:
    assert decided(BINARY["sub"](X, constant(0)), X) is None
    assert isinstance(decided(ADD(X, constant(0)), X), tuple)


def test_what_is_not_decided_is_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(decided(call("tanh")(NEG(X)), NEG(call("tanh")(X))), Stop)
    assert isinstance(decided(BINARY["mod"](X, Y), X), Stop)
    monkeypatch.setattr(floating, "WORK", 1)
    rule, *_ = rules_of_text(LAWS, "rules")
    proof = prove_rule(rule)
    assert (proof.verdict, proof.code) == ("unproved", "R103")
    assert proof.evidence == "it is not shown to be of grade E: floating point (z3): it gives up at float16"


def test_float_attributes_are_symbols_of_floating_point() -> None:
    halved, by_an_attribute, far_and_back, *exact = rules_of_text(LAWS, "rules")
    assert prove_rule(halved).is_proved
    proof = prove_rule(by_an_attribute)  # which z3 does not always decide
    assert not proof.is_proved
    assert proof.evidence.startswith(("it is not shown to be of grade E", "it is not of grade E"))
    assert prove_rule(far_and_back).verdict == "refuted"  # by a sample at float16, whose largest number is less than one of the law
    decision = _symbolic_pairs(far_and_back).decision()
    assert isinstance(decision, tuple)
    assert {*decision[1].operands} == {"x[0]", "v"}
    assert all(prove_rule(rule).is_proved for rule in exact)


def test_a_law_that_differs_where_no_draw_is_is_refuted() -> None:
    (rule,) = (r for r in rules_of_file(ROUNDING) if r.name == "through-the-least-number")
    proof = prove_rule(rule)
    assert (proof.verdict, proof.evidence) == ("refuted", "it is not of grade Z: the sides differ in float32")


@pytest.mark.parametrize("name", ["subtract-constant", "max-pool-of-max-pool-2d", "add-zero-bias"])
def test_shipped_rules_keep_their_grade_without_a_solver(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(floating, "WORK", 1)
    (rule,) = (r for r in every_rule() if r.name == name)
    assert prove_rule(rule).is_proved
