"""Laws on integers that wrap around: true over the reals and false in a type of integers, and the other way round."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from rewrite_compiler.prove.rules.rules import prove_rule
from rewrite_compiler.prove.rules.wrapped_words import bitvector_answer, has_integer_operands, operand_types
from rewrite_compiler.prove.verdict import Counterexample
from rewrite_compiler.rewrite.rule import Rule
from rewrite_compiler.rewrite.text_file import rules_of_file, rules_of_text

FALSE = Path(__file__).parents[1] / "known_wrong" / "integers.rules"
TRUE = """
rule abs-of-neg(x: tensor) grade E {
    abs(neg(x)) = abs(x)
    where type(x, "int8")
}
rule assoc(x: tensor, y: tensor, z: tensor) grade A {
    add(add(x, y), z) = add(x, add(y, z))
    where type(x, "int32"), type(y, "int32"), type(z, "int32")
}
rule distribute(x: tensor, y: tensor, z: tensor) grade A {
    mul(add(x, y), z) = add(mul(x, z), mul(y, z))
    where type(x, "int8"), type(y, "int8"), type(z, "int8")
}
rule reduce-neg(x: tensor, a: ints) grade E {
    neg(reduce_sum(x, axes=a, keepdims=1)) = reduce_sum(neg(x), axes=a, keepdims=1)
    where type(x, "int8")
}
rule sub-neg(x: tensor, y: tensor) grade A {
    sub(x, y) = add(x, neg(y))
    where type(x, "uint8"), type(y, "uint8")
}
rule relu-uint(x: tensor) grade E {
    relu(x) = x
    where type(x, "uint8")
}
rule relu-transpose(x: tensor, p: ints) grade E {
    relu(transpose(x, perm=p)) = transpose(relu(x), perm=p)
    where type(x, "int8", "int32")
}
rule div-floor(x: tensor) grade E {
    div(div(x, full(shape=[], value=2.0)), full(shape=[], value=2.0)) = div(x, full(shape=[], value=4.0))
    where type(x, "int8", "uint8", "int32")
}
rule large(x: tensor) grade A {
    sub(mul(x, full(shape=[], value=3.0)), x) = add(x, x)
    where type(x, "int64")
}
"""
# 200 is no number of int8
OPEN = """
rule range(x: tensor) grade E {
    min(x, full(shape=[], value=200.0)) = x
    where type(x, "int8")
}
"""


def laws(text: str) -> list[Rule]:
    return list(rules_of_text(text, "integers.rules"))


@pytest.mark.parametrize("law", rules_of_file(FALSE), ids=str)
def test_a_law_that_is_false_of_integers_is_refuted_with_them(law: Rule) -> None:
    proof = prove_rule(law)
    assert (proof.verdict, proof.evidence) == ("refuted", "the sides differ on integers that wrap around")
    assert proof.counterexample is not None
    kind = operand_types(law)[0]
    assert all(x.endswith(f"({kind})") for x in proof.counterexample.operands.values())
    assert proof.counterexample.left != proof.counterexample.right


@pytest.mark.parametrize("law", laws(TRUE), ids=str)
def test_a_law_that_is_true_of_integers_is_proved(law: Rule) -> None:
    proof = prove_rule(law)
    assert proof.is_proved, proof
    assert has_integer_operands(law)


def test_an_operand_has_the_type_of_another_only_where_an_operator_takes_both() -> None:
    """A convolution's image and weights, each of a sum, have types of their own."""
    conv = "conv(add(x, y), add(v, w), strides=s, pads=p, dilations=s, group=1)"
    for typed, has_them in (
        ('type(x, "int8")', False),
        ('type(x, "int8"), type(w, "int8")', True),
        ('type(x, "int8"), type(y, "int8")', False),
    ):
        (law,) = laws(f"rule r(x: tensor, y: tensor, v: tensor, w: tensor, s: ints, p: ints) grade E {{ {conv} = {conv} where {typed} }}")
        assert has_integer_operands(law) is has_them


@pytest.mark.parametrize("law", laws(OPEN), ids=str)
def test_what_is_not_read_on_integers_is_unproved(law: Rule) -> None:
    assert prove_rule(law).verdict == "unproved"


def test_the_counterexample_is_one_in_the_arithmetic_of_the_type() -> None:
    (law,) = laws('rule halved(x: tensor) grade E { div(add(x, x), full(shape=[], value=2.0)) = x where type(x, "int8") }')
    example = prove_rule(law).counterexample
    assert example is not None
    x = int(str(example.operands["x"]).split()[0])
    assert int(example.left) == ((2 * x + 128) % 256 - 128) // 2 != x == int(example.right)


TYPES = 'type(x, "int8"), type(y, "int8")'
NEVER_DEFINED = [  # the divisor is 0 whatever the operands are
    "div(x, sub(y, y)) = div(neg(x), sub(y, y))",
    "div(x, mul(y, sub(x, x))) = x",
    "reduce_sum(div(x, sub(y, y)), axes=[0], keepdims=1) = reduce_sum(div(neg(x), sub(y, y)), axes=[0], keepdims=1)",
    "matmul(div(x, sub(y, y)), y) = matmul(div(neg(x), sub(y, y)), y)",
]
SOMETIMES_DEFINED = ["div(x, sub(y, x)) = div(x, sub(x, y))", "div(y, sub(x, y)) = add(x, y)", "div(x, max(sub(x, y), sub(y, x))) = x"]


@pytest.mark.parametrize("law", NEVER_DEFINED)
def test_a_law_that_divides_by_a_computed_zero_is_neither_proved_nor_refuted_by_a_value_that_is_none(law: str) -> None:
    (rule,) = laws(f"rule never(x: tensor, y: tensor) grade F {{ {law} where x.shape == y.shape, x.rank == 2, {TYPES} }}")
    proof = prove_rule(rule)
    assert (proof.verdict, proof.counterexample) == ("unproved", None)


@pytest.mark.parametrize("law", SOMETIMES_DEFINED)
def test_a_counterexample_divides_by_no_computed_zero(law: str) -> None:
    (rule,) = laws(f"rule sometimes(x: tensor, y: tensor) grade F {{ {law} where x.shape == y.shape, {TYPES} }}")
    example = prove_rule(rule).counterexample
    assert example is not None
    x, y = (np.array(json.loads(str(example.operands[name]).removesuffix(" (int8)"))) for name in "xy")
    assert np.all(x != y)


@pytest.mark.parametrize("types", ['"uint8", "int8"', '"int8", "uint8"', '"uint8", "uint16", "int32"'])
def test_a_law_holds_in_each_of_its_types(types: str) -> None:
    (law,) = laws(f"rule law(x: tensor) grade E {{ relu(x) = x where type(x, {types}) }}")
    answer = bitvector_answer(law)
    assert isinstance(answer, Counterexample)
    assert "(int" in str(answer.operands["x"])
