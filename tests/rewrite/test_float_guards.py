"""Guards on float attributes: in Python and as text, in the e-graph, in proofs, in suggestions, and what is refused."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest

from rewrite_compiler import Law, Rule, Tensor, Where, rule
from rewrite_compiler import ops as o
from rewrite_compiler.egraph.saturation.saturate import saturate
from rewrite_compiler.errors import FlexmatchError
from rewrite_compiler.ir.program import Builder, Program
from rewrite_compiler.ir.types import TensorType
from rewrite_compiler.ops.order import Order, order_of
from rewrite_compiler.ops.static import Binding, RealComparison, holds
from rewrite_compiler.prove.rules.all_shapes import theorem_of
from rewrite_compiler.prove.rules.rules import prove_rule, with_suggestion
from rewrite_compiler.prove.verdict import Stop, Theorem
from rewrite_compiler.rewrite import Float, Ints
from rewrite_compiler.rewrite.ruleset import rules_at
from rewrite_compiler.rewrite.text import condition_text, rule_text
from rewrite_compiler.rewrite.text_file import rules_of_text

v_, w_ = Float("v"), Float("w")
ONE_BY_ONE = "give the guard its conditions one by one, parted by commas"


@rule
def pad_past_relu(x: Tensor, q: Ints, v: Float) -> Law:
    """pad(relu(x), q, v) = relu(pad(x, q, v)) where v ≥ 0"""
    return o.pad(o.relu(x), q, v), o.relu(o.pad(x, q, v)), Where(v >= 0)


@rule
def pad_past_relu_of_any_value(x: Tensor, q: Ints, v: Float) -> Law:
    """False where v < 0"""
    return o.pad(o.relu(x), q, v), o.relu(o.pad(x, q, v))


@rule
def product_with_one(x: Tensor, v: Float) -> Law:
    """x · v = x where v = 1"""
    return o.mul(x, o.full((), v)), x, Where(v == 1.0)


@rule
def limits_in_turn(x: Tensor, low: Float, high: Float) -> Law:
    """max(low, min(x, high)) with low ≤ high has both limits, in whatever turn"""
    return o.clip(x, low, high), o.clip(o.clip(x, low, high), low, high), Where(low <= high, low > -math.inf, high < 1e30, high != 2.5)


@rule
def limit_from_nothing(x: Tensor, low: Float) -> Law:
    """False where low is not 0"""
    return o.clip(x, low, 1.0), o.clip(x, 0.0, 1.0)


HELD = [
    (v_ >= 0.0, 0.0, True), (v_ >= 0.0, -0.0, True), (v_ >= 0.0, -1e-30, False), (v_ >= 0, 3.0, True), (v_ > 0, 0.0, False),
    (v_ < math.inf, math.inf, False), (v_ <= math.inf, math.inf, True), (v_ == 1, 1.0, True), (v_ != 1, 2.0, True), (v_ != 1, 1.0, False),
    *((c, math.nan, False) for c in (v_ >= 0, v_ <= 0, v_ < 0, v_ > 0, v_ == 0, v_ != 0, v_ <= math.inf, v_ >= -math.inf)),
]  # fmt: skip


@pytest.mark.parametrize(("condition", "value", "expected"), HELD, ids=lambda x: str(x))
def test_a_comparison_holds_of_numbers_and_never_of_what_is_none(condition: RealComparison, value: float, expected: bool) -> None:
    assert holds(condition, Binding(lambda _: (), {"v": value})) is expected


@pytest.mark.parametrize("r", [pad_past_relu, product_with_one, limits_in_turn], ids=str)
def test_the_text_form_keeps_the_guard(r: Rule) -> None:
    text = rule_text(r)
    (again,) = rules_of_text(text, "again.rules")
    assert rule_text(again) == text
    assert [str(c) for c in again.where] == [str(c) for c in r.where]


def test_conditions_are_written_with_the_attribute_first() -> None:
    written = [condition_text(c) for c in (v_ >= 0, v_ < 1.5, v_ == 2, w_ >= v_, v_ != -math.inf)]
    assert written == ["v >= 0.0", "v < 1.5", "v == 2.0", "v <= w", "v != -inf"]


def clipped(low: float, high: float) -> Program:
    b = Builder("p")
    return b.finish(b.apply("clip", [b.input("x", TensorType((4,)))], {"low": low, "high": high}))


def padded(value: float) -> Program:
    b = Builder("p")
    y = b.apply("relu", [b.input("x", TensorType((4,)))], {})
    return b.finish(b.apply("pad", y, {"pads": (1, 1), "value": value}))


PADDED = [(0.0, True), (-0.0, True), (2.5, True), (math.inf, True), (-1.0, False), (math.nan, False)]
CLIPPED = [
    (0.0, 6.0, True), (6.0, 6.0, True), (6.0, 0.0, False), (-math.inf, 1.0, False), (-1e30, 1.0, True), (0.0, 1e30, False),
    (0.0, 2.5, False), (0.0, math.nan, False), (math.nan, math.nan, False), (math.nan, 0.0, False),
]  # fmt: skip
MATCHED = [
    *((pad_past_relu, padded(value), matches) for value, matches in PADDED),
    *((limits_in_turn, clipped(low, high), matches) for low, high, matches in CLIPPED),
]


@pytest.mark.parametrize(("r", "program", "matches"), MATCHED)
def test_the_e_graph_matches_where_the_guard_holds(r: Rule, program: Program, matches: bool) -> None:
    found = saturate(program, [r], [])
    assert (r.name in found.matches) is matches


def test_a_uniform_constant_is_compared_like_an_attribute() -> None:
    for value, matches in ((1.0, True), (2.0, False)):
        b = Builder("p")
        x = b.input("x", TensorType((4,)))
        p = b.finish(b.apply("mul", [x, b.constant(np.array(value, np.float32))], {}))
        assert ("product-with-one" in saturate(p, [product_with_one], []).matches) is matches


def test_what_a_guard_says_of_floats_is_used_in_the_proof_at_all_shapes() -> None:
    assert isinstance(theorem_of(pad_past_relu), Theorem)
    assert isinstance(theorem_of(pad_past_relu_of_any_value), Stop)
    assert str(theorem_of(product_with_one)) == "all shapes: every extent and attribute, every rank"


def test_a_guard_on_floats_is_suggested() -> None:
    found = with_suggestion(prove_rule(limit_from_nothing), limit_from_nothing)
    assert found.verdict == "refuted"
    assert found.suggestion == "low == 0.0"


def test_an_order_knows_what_follows_and_what_contradicts() -> None:
    order = order_of((v_ >= 1.0, v_ <= w_, w_ < 6.0))
    assert order.is_below(0.0, "v")
    assert order.is_below(1.0, "w")
    assert order.is_below("v", 6.5)
    assert not order.is_below("v", 5.0)
    assert not order.is_contradictory
    assert order_of((v_ >= 2, v_ <= 2)).value("v") == 2.0
    assert Order().value("v") is None
    assert all(
        order_of(c).is_contradictory
        for c in ((v_ < 0, v_ >= 0), (v_ == 1, v_ == 2), (v_ < w_, w_ < v_), (v_ == 1, v_ != 1), (v_ > math.inf,))
    )


TEXT = 'rule wrong(x: tensor, {kind}) {{\n    "a rule"\n    clip(x, low=low, high=1.0)\n        = x\n    where {where}\n}}\n'
REFUSED = [
    ("low: float", "low >= 1.0, low < 0.0", "the guard of wrong contradicts itself: no low satisfies low >= 1.0 and low < 0.0"),
    ("low: float", "low > inf", "the guard of wrong contradicts itself: no low satisfies low > inf"),
    ("low: float, v: float", "v >= 0.0", 'the right side or guard of wrong uses "v", which its left side does not bind'),
    ("low: float", "low >= x.rank", "the float attribute low is compared with a term of integers"),
    ("low: float", "(low >= 0.0) & (low < 1.0)", "conditions on lists, tensors and float attributes are not joined by & or |"),
    ("low: str", "low == \"a\"", "the text low is compared"),
    ("low: float", "low == nan", "the float attribute low is compared with not-a-number, which nothing equals, exceeds or is less than"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "where", "sentence"), REFUSED)
def test_a_bad_guard_of_the_text_form_is_refused_at_its_line(kind: str, where: str, sentence: str) -> None:
    with pytest.raises(FlexmatchError) as caught:
        rules_of_text(TEXT.replace(") {{", ") grade A {{").format(kind=kind, where=where), "bad.rules")
    problem = caught.value.problem
    line = 1 if " of wrong " in sentence else 5  # of the rule, or of its guard
    assert (problem.code, problem.sentence, problem.place) == ("R101", sentence, f"bad.rules:{line}")
    assert problem.help


def test_a_number_of_a_pattern_that_nothing_equals_is_refused() -> None:
    with pytest.raises(FlexmatchError) as caught:
        rules_of_text("rule wrong(x: tensor) {\n    clip(x, low=nan, high=1.0) = x\n}\n", "bad.rules")
    problem = caught.value.problem
    sentence = "attribute low of clip in wrong is not-a-number, which no number of a model equals"
    assert (problem.code, problem.sentence, problem.place) == ("R101", sentence, "bad.rules:1")


PYTHON = """from rewrite_compiler.rewrite import Float, Law, Tensor, Where, rule
from rewrite_compiler import ops as o

@rule
def wrong(x: Tensor, low: Float) -> Law:
    guard = Where({where})
    return o.clip(x, low, 1.0), x, guard
"""
PYTHON_REFUSED = [
    ('low >= float("nan")', "the float attribute low is compared with not-a-number, which nothing equals, exceeds or is less than", 6),
    ("0.0 <= low <= 1.0", "a condition has no truth value before a pattern has matched", 6),
    ("low >= 1.0, low < 0.0", "the guard of wrong contradicts itself: no low satisfies low >= 1.0 and low < 0.0", 4),
]


@pytest.mark.parametrize(("where", "sentence", "line"), PYTHON_REFUSED)
def test_a_bad_guard_in_python_is_refused_at_its_line(where: str, sentence: str, line: int, tmp_path: Path) -> None:
    path = tmp_path / "bad.py"
    path.write_text(PYTHON.format(where=where))
    with pytest.raises(FlexmatchError) as caught:
        rules_at(path)
    problem = caught.value.problem
    assert (problem.code, problem.sentence, problem.place) == ("R101", sentence, f"{path}:{line}")
    assert problem.help


INFINITE = "attribute value of {op} in wrong is infinite, which only a bound may be: of clip, or beside an elementwise min or max"
FAR = [
    ("mul(x, full(shape=[], value=inf)) = x", "full"),
    ("x = div(x, full(shape=[], value=1e400))", "full"),
    ("add(x, full(shape=[], value=inf)) = full(shape=[], value=1.0)", "full"),
    ("relu(x) = full(shape=[], value=-inf)", "full"),
    ("max(x, neg(full(shape=[], value=inf))) = x", "full"),
    ("pad(x, pads=[1, 1], value=-inf) = x", "pad"),
    ("mul(min(x, full(shape=[], value=inf)), full(shape=[], value=inf)) = x", "full"),
]


@pytest.mark.parametrize(("law", "op"), FAR)
def test_an_infinite_number_that_is_no_bound_is_refused_at_its_line(law: str, op: str) -> None:
    with pytest.raises(FlexmatchError) as caught:
        rules_of_text(f"\nrule wrong(x: tensor) {{\n    {law}\n}}\n", "bad.rules")
    problem = caught.value.problem
    assert (problem.code, problem.sentence, problem.place) == ("R101", INFINITE.format(op=op), "bad.rules:2")


@pytest.mark.parametrize("number", ["inf", "-inf", "nan"])
@pytest.mark.parametrize("law", ["o.mul(x, o.full(shape=[], value=n)), x", "x, o.pad(x, [1, 1], n)", "o.reshape(x, [n, 1]), x"])
def test_python_with_an_infinite_number_is_refused_with_file_and_line(law: str, number: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(f'{PYTHON.partition("@rule")[0]}n = float("{number}")\n\n\n@rule\ndef wrong(x: Tensor) -> Law:\n    return {law}\n')
    with pytest.raises(FlexmatchError) as caught:
        rules_at(path)
    assert caught.value.problem.code == "R101"
    assert re.match(re.escape(str(path)) + r":\d+$", caught.value.problem.place)
    assert re.search("is infinite|is not-a-number|has no meaning: cannot convert", caught.value.problem.sentence)


@pytest.mark.parametrize("law", ["min(x, full(shape=[], value=inf)) = x", "max(full(shape=[], value=-inf), relu(x)) = relu(x)"])
def test_an_infinite_bound_is_none_that_an_engine_reads(law: str) -> None:
    (bounded,) = rules_of_text(f"rule bounded(x: tensor) {{ {law} }}", "rules")
    proof = with_suggestion(prove_rule(bounded), bounded)
    assert (proof.verdict, proof.suggestion) == ("unproved", "")
    assert proof.evidence == "no engine reads the infinite number of full: leave the bound out"
    (clipped,) = rules_of_text("rule clipped(x: tensor) { clip(x, low=-inf, high=inf) = x }", "rules")
    assert prove_rule(clipped).is_proved
