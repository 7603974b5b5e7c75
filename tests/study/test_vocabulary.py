"""What `learn` tries: each family of right sides writes what it says, with attributes of the left side."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from rewrite_compiler.lang.expr import var
from rewrite_compiler.ops import add, bias_add, mul, neg, sub, transpose
from rewrite_compiler.ops.op import Apply, Tensor, Variable
from rewrite_compiler.ops.static import NamedList
from rewrite_compiler.study.laws import vocabulary as v

X, A, B = (Variable(n) for n in "xab")
P, Q = NamedList("p"), NamedList("q")
VARIABLES = {"x": X, "a": A, "b": B}
LEFT = mul(add(X, A), B)
FAMILIES: list[tuple[Callable[[Apply, v.Variables], Iterator[Tensor]], Apply, list[Tensor]]] = [
    (v.commute, LEFT, [mul(B, add(X, A))]),
    (v.subtract_as_add, sub(X, add(A, B)), [add(X, neg(add(A, B)))]),
    (v.drop_operator, LEFT, [mul(X, B), mul(A, B), add(X, A)]),
    (v.swap_operators, LEFT, [add(mul(X, B), A), add(X, mul(A, B))]),
    (v.distribute, LEFT, [add(mul(X, B), A), add(X, mul(A, B)), add(add(X, B), A)]),
    (v.distribute_twice, LEFT, [add(mul(X, B), mul(A, B)), add(mul(X, B), add(A, B))]),
    (v.replace_operator, mul(X, A), [mul(X, A), mul(A, X)]),
]


@pytest.mark.parametrize(("family", "left", "some"), FAMILIES, ids=[f.__name__ for f, *_ in FAMILIES])
def test_a_family_has_its_terms(family: Callable[[Apply, v.Variables], Iterator[Tensor]], left: Apply, some: list[Tensor]) -> None:
    found = list(family(left, VARIABLES))
    assert {str(t) for t in some} <= {str(t) for t in found}
    operands = {len(t.op.operands) == len(t.operands) for t in found if isinstance(t, Apply)}
    assert operands == {True}


def test_attributes_are_those_of_the_left_side_and_few_others() -> None:
    axis = var("k")
    left = transpose(bias_add(X, A, axis=axis), perm=P)
    variables = {"x": X, "a": A, "k": axis, "p": P, "q": Q}
    axes = [axis, P[axis], Q[axis], *(t.rank - n for t in (X, A) for n in (1, 2, 3)), 0, 1, 2]
    assert list(map(str, v.axis_values(variables))) == list(map(str, axes))
    lists = [P, Q, left.shape, P.permuted(Q), Q.permuted(P), X.shape, A.shape]
    assert list(map(str, v.list_values(left, variables)))[: len(lists)] == list(map(str, lists))
