"""Rules as egglog text: what cannot be matched is refused in one sentence, the rest runs."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from in_process import engine_of, extracted, saturated
from programs import constant

from rewrite_compiler import IsConstant, Law, Rule, Tensor, Where, rule
from rewrite_compiler import ops as o
from rewrite_compiler.egraph.saturation.rule_text import rule_text
from rewrite_compiler.errors import SpecError
from rewrite_compiler.ir.evaluate import random_inputs, run
from rewrite_compiler.ir.program import Builder, Program
from rewrite_compiler.ir.types import TensorType
from rewrite_compiler.ir.verify import verify
from rewrite_compiler.ops import HasType
from rewrite_compiler.rewrite import Int, Ints
from rewrite_compiler.rewrite.ruleset import shipped_rules

SIMPLER = "split the rule or simplify the guard"
BIND = "every variable must occur as an operand or a plain attribute on the left"


def two_types(x: Tensor) -> Law:
    return o.relu(x), x, Where(HasType(x, ("float32", "float16")))


def either_rank(x: Tensor) -> Law:
    return o.relu(x), x, Where((x.rank == 2) | (x.rank == 3))


def shape_of_the_right(x: Tensor, w: Tensor) -> Law:
    return o.dense(x, w), x, Where(o.matmul(x, w).shape == x.shape)


def product_of_an_attribute(x: Tensor, s: Ints) -> Law:
    return o.reshape(x, s), x, Where(s.product == 4)


def middle_of_a_shape(x: Tensor, y: Tensor) -> Law:
    return o.add(x, y), o.add(y, x), Where(x.shape[1:-1] == y.shape[1:-1])


def shifted(x: Tensor) -> Law:
    return o.relu(x), x, Where((x.rank << 1) == 4)


REFUSED: list[tuple[Callable[..., Law], str]] = [
    (two_types, "a guard of kind HasType in two-types"),
    (either_rank, r"the condition .+ in either-rank"),
    (shape_of_the_right, "a shape or type of a pattern that is not part of the left side in shape-of-the-right"),
    (product_of_an_attribute, "the product of a list that is not a shape in product-of-an-attribute"),
    (middle_of_a_shape, r"the part \[1:-1\] of a list in middle-of-a-shape"),
    (shifted, r"the term .+ in shifted"),
]  # fmt: skip


@pytest.mark.parametrize(("law", "sentence"), REFUSED, ids=lambda x: getattr(x, "__name__", ""))
def test_what_the_e_graph_cannot_match_is_refused(law: Callable[..., Law], sentence: str) -> None:
    made = rule(law)
    with pytest.raises(SpecError) as caught:
        rule_text(made, 0)
    problem = caught.value.problem
    assert problem.code == "R101"
    assert re.fullmatch(f"{sentence} cannot be matched in the e-graph", problem.sentence), problem.sentence
    assert problem.place == made.place
    assert re.fullmatch(r".+/test_rule_text\.py:\d+", problem.place)
    assert problem.help == SIMPLER


def unbound_operand(x: Tensor, y: Tensor) -> Law:
    return o.relu(x), o.add(x, y)


def unbound_attribute(x: Tensor, s: Ints) -> Law:
    return o.relu(x), o.reshape(x, s)


def unbound_in_guard(x: Tensor, n: Int) -> Law:
    return o.relu(x), x, Where(x.rank == n)


@pytest.mark.parametrize(("law", "name"), [(unbound_operand, "y"), (unbound_attribute, "s"), (unbound_in_guard, "n")])
def test_unbound_variables_are_refused(law: Callable[..., Law], name: str) -> None:
    with pytest.raises(SpecError) as caught:
        rule(law)
    called = law.__name__.replace("_", "-")
    assert caught.value.problem.sentence == f'the right side or guard of {called} uses "{name}", which its left side does not bind'
    assert (caught.value.problem.code, caught.value.problem.help) == ("R101", BIND)


def computed_only(x: Tensor, p: Ints, q: Ints) -> Law:
    return o.transpose(x, p.permuted(q)), o.transpose(o.transpose(x, p), q)


def test_a_variable_that_is_only_computed_with_is_refused() -> None:
    with pytest.raises(SpecError) as caught:
        rule(computed_only)
    assert caught.value.problem.code == "R101"
    assert caught.value.problem.sentence == 'the right side or guard of computed-only uses "p", which its left side does not bind'


def test_the_shipped_rules_parse_together() -> None:
    made = Builder("relu")
    engine = engine_of(made.finish(made.apply("relu", [made.input("x", TensorType((2, 3)))])), shipped_rules())
    assert all(not engine.run_round(phase) for phase in ("ir", "late"))


# -- each construct of a guard or an attribute, on a program where it holds and on one where it does not


@rule
def last_is_four(x: Tensor) -> Law:
    """relu(x) = x: false, so that a match shows"""
    return o.relu(x), x, Where(x.shape[-1] == 4)


@rule
def rows_are_many(x: Tensor) -> Law:
    """relu(x) = x: false"""
    return o.relu(x), x, Where(x.shape[0] * 2 > 7)


@rule
def rank_is_not_two(x: Tensor) -> Law:
    """relu(x) = x: false"""
    return o.relu(x), x, Where(x.rank != 2)


@rule
def size_is_twelve(x: Tensor) -> Law:
    """relu(x) = x: false"""
    return o.relu(x), x, Where(x.size == 12)


@rule
def constant_only(x: Tensor) -> Law:
    """relu(x) = x: false"""
    return o.relu(x), x, Where(IsConstant(x))


@rule
def doubles_only(x: Tensor) -> Law:
    """relu(x) = x: false"""
    return o.relu(x), x, Where(HasType(x, ("float64",)))


@rule
def literal_shape(x: Tensor) -> Law:
    """relu(x) = x: false"""
    return o.relu(x), x, Where(x.shape == (3, 4))


@rule
def all_but_last(x: Tensor) -> Law:
    """relu(x) = x: false"""
    return o.relu(x), x, Where(x.shape[:-1] == (3,))


@rule
def joined(x: Tensor) -> Law:
    """relu(x) = x: false"""
    return o.relu(x), x, Where([3, 4] + x.shape == (3, 4, 3, 4))  # noqa: RUF005


@rule
def replaced(x: Tensor) -> Law:
    """relu(x) = x: false"""
    return o.relu(x), x, Where(x.shape.with_element(-1, 9) == (3, 9))


@rule
def two_conditions(x: Tensor) -> Law:
    """relu(x) = x: false"""
    return o.relu(x), x, Where((x.shape[0] == 3) & (x.shape[1] == 4))


@rule
def last_two(x: Tensor) -> Law:
    """relu(x) = x: false"""
    return o.relu(x), x, Where(x.shape[-2:] == (3, 4))


@rule
def inner_two(x: Tensor) -> Law:
    """relu(x) = x: false"""
    return o.relu(x), x, Where(x.shape[1:3] == (3, 4))


@rule
def halves_are_odd(x: Tensor) -> Law:
    """relu(x) = x: false"""
    return o.relu(x), x, Where((x.shape[0] // 2) % 2 == 1)


@rule
def not_square(x: Tensor) -> Law:
    """relu(x) = x: false"""
    return o.relu(x), x, Where(~(x.shape[0] == x.shape[1]))


@rule
def next_to_last_is_three(x: Tensor) -> Law:
    """relu(x) = x: false"""
    return o.relu(x), x, Where(x.shape[-2] == 3)


@rule
def never(x: Tensor) -> Law:
    """relu(x) = x: false"""
    return o.relu(x), x, Where(False)


def merged(r: Rule, shape: tuple[int, ...], dtype: str = "float32", *, fixed: bool = False) -> bool:
    made = Builder("relu")
    x = made.constant(constant(*shape).astype(dtype)) if fixed else made.input("x", TensorType(shape, dtype))
    (y,) = made.apply("relu", [x])
    graph = saturated(made.finish([y]), [r])
    return graph.values[x] == graph.values[y]


MATCHES: list[tuple[Rule, tuple[int, ...], tuple[int, ...]]] = [
    (last_is_four, (3, 4), (4, 3)),
    (rows_are_many, (4, 1), (3, 9)),
    (rank_is_not_two, (3, 4, 5), (3, 4)),
    (size_is_twelve, (3, 2, 2), (3, 5)),
    (literal_shape, (3, 4), (3, 4, 1)),
    (all_but_last, (3, 7), (4, 7)),
    (joined, (3, 4), (3, 5)),
    (replaced, (3, 4), (4, 4)),
    (two_conditions, (3, 4), (3, 3)),
    (last_two, (2, 3, 4), (3, 4, 2)),
    (inner_two, (2, 3, 4, 5), (3, 4, 2, 5)),
    (halves_are_odd, (7, 1), (5, 1)),
    (next_to_last_is_three, (3, 4), (4, 3)),
    (not_square, (3, 4), (3, 3)),
]


@pytest.mark.parametrize(("r", "yes", "no"), MATCHES, ids=lambda x: str(x))
def test_guards_decide_by_shape(r: Rule, yes: tuple[int, ...], no: tuple[int, ...]) -> None:
    assert merged(r, yes)
    assert not merged(r, no)


def test_an_element_that_is_not_there_fails_the_guard() -> None:
    assert not merged(last_is_four, ())
    assert not merged(two_conditions, (3,))


def test_guards_decide_by_constness_and_type() -> None:
    assert merged(constant_only, (2, 2), fixed=True)
    assert not merged(constant_only, (2, 2))
    assert merged(doubles_only, (2, 2), "float64")
    assert not merged(doubles_only, (2, 2))
    assert not merged(never, (2, 2))


def test_a_rule_without_a_mark_leaves_integers_alone() -> None:
    @rule(marks=("any_dtype",))
    def for_all(x: Tensor) -> Law:
        """relu(x) = x: false"""
        return o.relu(x), x

    @rule
    def for_reals(x: Tensor) -> Law:
        """relu(x) = x: false"""
        return o.relu(x), x

    assert merged(for_all, (2,), "int32")
    assert merged(for_reals, (2,), "float32")
    assert not merged(for_reals, (2,), "int32")


# -- rules with operators of several results on either side


@rule
def turned_weight(x: Tensor, w: Tensor, r: Tensor, b: Tensor, h: Tensor) -> Law:
    """A recurrent layer may read its weight turned twice."""
    turned = o.transpose(o.transpose(w, (1, 0)), (1, 0))
    (every, last), (same_every, same_last) = o.rnn(x, w, r, b, h, "relu"), o.rnn(x, turned, r, b, h, "relu")
    return (every, same_every), (last, same_last)


def recurrent() -> Program:
    made = Builder("rnn")
    inputs = [made.input(n, TensorType(s)) for n, s in zip("xwrbh", ((5, 2, 3), (4, 3), (4, 4), (8,), (2, 4)), strict=True)]
    return made.finish(made.apply("rnn", inputs, {"activation": "relu"}))


def test_rules_on_several_results_join_both() -> None:
    p = recurrent()
    graph = saturated(p, [turned_weight], rounds=3)
    tuples = [c for c in graph.classes.values() if any(n.op == "o_rnn" for n in c.nodes)]
    assert len(tuples) >= 1
    assert all(c.type is None for c in tuples)  # a tuple of results has no type of its own
    for v in p.outputs:
        assert graph.classes[graph.values[v]].type == p.types[v]
    back, _ = extracted(p, graph)
    verify(back)
    fed = random_inputs(p)
    results, expected = run(back, dict(zip(back.inputs, fed.values(), strict=True))), run(p, fed)
    for a, b in zip(back.outputs, p.outputs, strict=True):
        assert (results[a] == expected[b]).all()
