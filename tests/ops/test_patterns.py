"""Patterns and static lists: what a rule's text stands for, under a match."""

from __future__ import annotations

from typing import Any

import pytest

from rewrite_compiler import ops as o
from rewrite_compiler.errors import SpecError
from rewrite_compiler.ops.op import subterms
from rewrite_compiler.ops.static import Binding, NamedList, as_condition, as_ints, holds, list_of, value_of


def binding(**lists: tuple[int, ...]) -> Binding:
    """A match that gives lists to attribute names and the shape (2, 3, 4) to every tensor."""
    return Binding(shape=lambda _: (2, 3, 4), attributes=lists)


X = o.Variable("x")
S = NamedList("s")
AT = binding(s=(5, 6, 7), p=(2, 0, 1))

LISTS: list[tuple[Any, tuple[int, ...]]] = [
    (S, (5, 6, 7)),
    (X.shape, (2, 3, 4)),
    (X.shape[:-1], (2, 3)),
    (X.shape[1:], (3, 4)),
    (S[1:2], (6,)),
    (X.shape[:1] + S, (2, 5, 6, 7)),
    (as_ints((1, X.shape[0])) + S[2:], (1, 2, 7)),
    (S.with_element(1, X.shape[2]), (5, 4, 7)),
    (X.shape.permuted(NamedList("p")), (4, 2, 3)),
    (o.Inverse(NamedList("p")), (1, 2, 0)),
    (as_ints((1, 2)), (1, 2)),
]


@pytest.mark.parametrize(("term", "expected"), LISTS, ids=range(len(LISTS)))
def test_the_value_of_a_list(term: Any, expected: tuple[int, ...]) -> None:
    assert list_of(term, AT) == expected


NUMBERS: list[tuple[Any, int]] = [
    (X.shape[-1], 4),
    (X.rank, 3),
    (X.size, 24),
    (S.product, 210),
    (S.length, 3),
    (X.shape[0] * S[0] + 1, 11),
    (S[X.shape[0]], 7),
]


@pytest.mark.parametrize(("term", "expected"), NUMBERS, ids=range(len(NUMBERS)))
def test_the_value_of_a_number(term: Any, expected: int) -> None:
    assert value_of(term, AT) == expected


CONDITIONS: list[tuple[Any, bool]] = [
    (X.shape == (2, 3, 4), True),
    (X.shape[:2] == S, False),
    (X.shape[0] == 2, True),
    (X.rank >= 4, False),
    (S[7] == 1, False),  # a list that is too short fails a condition
    (X.size // S[0] == 4, True),
    (o.IsConstant(X), False),
    (o.HasType(X, ("float32",)), True),
    (o.HasType(X, ("int8",)), False),
    (True, True),
    (False, False),
]


@pytest.mark.parametrize(("condition", "expected"), CONDITIONS, ids=range(len(CONDITIONS)))
def test_a_condition_under_a_match(condition: Any, expected: bool) -> None:
    assert holds(as_condition(condition), AT) is expected


def test_equal_requests_for_an_element_give_one_term() -> None:
    assert X.shape[0] is X.shape[0]
    assert X.shape[0] is not o.Variable("x").shape[0]


def test_a_list_has_no_truth_before_a_match() -> None:
    with pytest.raises(TypeError, match=r"^a static list has no truth value before a pattern has matched$"):
        bool(X.shape)


def test_calling_an_operator_builds_a_pattern() -> None:
    y = o.relu(o.dense(X, o.Variable("w")))
    assert isinstance(y, o.Apply)
    assert [type(t).__name__ for t in subterms(y)] == ["Variable", "Variable", "Apply", "Apply"]
    history, h, c = o.lstm(X, *(o.Variable(n) for n in "wrbhc"))
    assert [t.output for t in (history, h, c)] == [0, 1, 2]
    assert o.concat(X, X, X, axis=1).operands == (X, X, X)
    assert o.slice_(X, 0, 1, 2).attributes == {"axis": 0, "start": 1, "stop": 2, "step": 1}


MISUSES: list[tuple[Any, str]] = [
    (lambda: o.relu(), "relu takes x; the pattern gives 0 values"),
    (lambda: o.dense(X), "dense takes x, w; the pattern gives 1 value"),
    (lambda: o.bias_add(X, X, 1, 2), "bias_add takes x, b, axis; the pattern gives 4 values"),
    (lambda: o.relu(3), "operand x of relu must be a pattern, not 3"),
    (lambda: as_ints(3), "a static list is needed, not 3"),
    (lambda: as_condition("yes"), "a guard must be a condition on shapes or attributes, not 'yes'"),
]


@pytest.mark.parametrize(("misuse", "sentence"), MISUSES, ids=range(len(MISUSES)))
def test_a_misuse_is_a_sentence(misuse: Any, sentence: str) -> None:
    with pytest.raises(SpecError) as caught:
        misuse()
    assert caught.value.problem.sentence == sentence
