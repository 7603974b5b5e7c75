"""Symbolic elements: every operator's nodes have the values that its meaning has in numbers; what forms call equal is."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from rewrite_compiler import ops as o
from rewrite_compiler.ir.evaluate import run_op
from rewrite_compiler.ops.op import Op
from rewrite_compiler.prove.instances import element_terms as nodes
from rewrite_compiler.prove.instances.element_meaning import NoSymbolicMeaning, apply_symbolically, symbols
from rewrite_compiler.prove.instances.element_terms import Node

WINDOW = {"strides": (1, 2), "pads": (1, 0, 0, 1), "dilations": (2, 1)}
CASES: list[tuple[Op, list[tuple[int, ...]], dict[str, Any]]] = [
    (o.conv, [(1, 4, 3, 3), (2, 2, 2, 2)], {**WINDOW, "group": 2}),
    (o.im2col, [(2, 2, 3, 3)], {"kernel": (2, 2), **WINDOW}),
    (o.max_pool, [(1, 2, 3, 4)], {"kernel": (2, 2), **WINDOW, "ceil": 1}),
    (o.average_pool, [(1, 2, 3, 4)], {"kernel": (2, 2), **WINDOW, "ceil": 1, "count_include_pad": 0}),
    (o.batch_norm, [(2, 3, 2), (3,), (3,), (3,), (3,)], {"epsilon": 0.5}),
    (o.layer_norm, [(2, 3), (3,), (3,)], {"axis": 1, "epsilon": 0.5}),
    (o.softmax, [(2, 3)], {"axis": 0}),
    (o.log_softmax, [(2, 3)], {"axis": 1}),
    (o.reduce_mean_, [(2, 3, 2)], {"axes": (0, 2), "keepdims": 1}),
    (o.reduce_max_, [(2, 3, 2)], {"axes": (1,), "keepdims": 0}),
    (o.dense, [(2, 2, 3), (4, 3)], {}),
    (o.matmul, [(2, 1, 3), (3, 2)], {}),
    (o.clip, [(3, 4)], {"low": -0.5, "high": math.inf}),
    (o.abs_, [(3, 4)], {}),
    (o.sigmoid, [(3, 4)], {}),
    (o.concat, [(2, 1), (2, 3)], {"axis": 1}),
    (o.pad, [(2, 3)], {"pads": (1, 0, 0, 2), "value": 1.0}),
    (o.slice_, [(2, 5)], {"axis": 1, "start": 1, "stop": 5, "step": 2}),
    (o.expand, [(1, 3)], {"shape": (2, 2, 3)}),
    (o.bias_add, [(2, 3), (3,)], {"axis": 1}),
    (o.sub, [(2, 3), (3,)], {}),
    (o.lstm, [(2, 1, 3), (8, 3), (8, 2), (16,), (1, 2), (1, 2)], {}),
    (o.gru, [(2, 1, 3), (6, 3), (6, 2), (12,), (1, 2)], {"linear_before_reset": 1}),
]
FUNCTIONS = {"exp": math.exp, "tanh": math.tanh, "log": math.log, "sqrt": math.sqrt}
OPERATIONS: dict[str, Any] = {
    "add": lambda x, y: x + y, "sub": lambda x, y: x - y, "mul": lambda x, y: x * y, "rdiv": lambda x, y: x / y, "neg": lambda x: -x,
    "max": max, "min": min, "sum": lambda *x: sum(x), "lt": lambda x, y: x < y, "le": lambda x, y: x <= y,
    "select": lambda c, x, y: x if c else y, "real": lambda x: x,
}  # fmt: skip


def value(x: Node, given: dict[tuple[str, int], Any]) -> Any:
    if x.op == "leaf":
        return given[x.data[0], x.data[1]]
    if x.op == "const":
        return x.data
    operation = FUNCTIONS[x.data] if x.op == "call" else OPERATIONS[x.op]
    return operation(*(value(a, given) for a in x.args))


@pytest.mark.parametrize(("operator", "shapes", "attributes"), CASES, ids=lambda x: x.name if isinstance(x, Op) else "")
def test_nodes_have_the_values_of_numbers(operator: Op, shapes: list[tuple[int, ...]], attributes: dict[str, Any]) -> None:
    source = np.random.default_rng(3)
    data = [np.abs(source.standard_normal(s)) + 0.1 if operator is o.batch_norm else source.standard_normal(s) for s in shapes]
    given = {(f"x{n}", place): x for n, d in enumerate(data) for place, x in enumerate(d.flat)}
    for _ in range(2):  # found, then kept
        found = apply_symbolically(operator, [symbols(f"x{n}", s) for n, s in enumerate(shapes)], attributes)
        for elements, expected in zip(found, run_op(operator, data, attributes, np.float64), strict=True):
            np.testing.assert_allclose([float(value(x, given)) for x in elements.data.flat], expected.reshape(-1), rtol=1e-12)
            assert elements.data.shape == expected.shape


def test_places_that_depend_on_data_are_not_read() -> None:
    with pytest.raises(NoSymbolicMeaning):
        apply_symbolically(o.gather, [symbols("x", (3,)), symbols("i", (2,), real=False)], {"axis": 0})


def test_forms_that_agree_have_equal_values() -> None:
    """Random terms: wherever two are called equal, they are equal on random fractions; and some are."""
    source = random.Random(5)
    leaves = [nodes.leaf("x", n) for n in range(3)] + [nodes.constant(n) for n in (0, 1, 2)]

    def term(depth: int) -> Node:
        if depth == 0:
            return source.choice(leaves)
        return nodes.BINARY[source.choice(("add", "sub", "mul", "max", "min"))](term(depth - 1), term(depth - 1))

    given = [{("x", n): Fraction(source.randint(-9, 9), source.randint(1, 9)) for n in range(3)} for _ in range(4)]
    found = dict[Any, Node]()
    agreed = 0
    for _ in range(3_000):
        x = term(source.randint(1, 3))
        other = found.setdefault(frozenset(nodes.polynomial(x).items()), x)
        agreed += other is not x
        assert all(value(x, g) == value(other, g) for g in given)
    assert agreed > 500


def test_structure_is_kept_apart_from_value() -> None:
    a, b, c = (nodes.leaf("x", n) for n in range(3))
    plus, times = nodes.BINARY["add"], nodes.BINARY["mul"]
    assert nodes.same_operations(plus(times(a, b), c), plus(c, times(b, a)))
    assert not nodes.same_operations(plus(plus(a, b), c), plus(a, plus(b, c)))
    assert nodes.normal_forms_agree(plus(plus(a, b), c), plus(a, plus(b, c)))
    with_zero = plus(a, nodes.constant(0))
    assert not nodes.same_operations(with_zero, a)
    assert nodes.same_operations(with_zero, a, drop_zeros=True)
    assert not nodes.normal_forms_agree(times(a, b), times(a, c))


def test_a_quotient_by_a_number_is_a_factor_and_any_other_an_atom() -> None:
    a, b, c = (nodes.leaf("x", n) for n in range(3))
    plus, times, over = (nodes.BINARY[op] for op in ("add", "mul", "rdiv"))
    half = nodes.constant(Fraction(1, 2))
    assert nodes.normal_forms_agree(over(plus(a, b), nodes.constant(2)), plus(times(half, b), times(half, a)))
    assert nodes.normal_forms_agree(over(plus(a, b), c), over(plus(b, a), c))
    assert not nodes.normal_forms_agree(over(a, b), times(a, b))
    assert not nodes.normal_forms_agree(over(a, b), over(b, a))


def test_large_products_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "MAX_MONOMIALS", 20)
    total = nodes.total([nodes.leaf("y", n) for n in range(12)])
    square = nodes.BINARY["mul"](total, total)
    assert not nodes.normal_forms_agree(square, nodes.BINARY["add"](square, nodes.constant(0)))


def test_forgotten_nodes_are_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "MAX_NODES", 0)
    generations = set()
    for _ in range(3):
        nodes.clear_when_large()
        generations.add(nodes.generation())
        x, y = (apply_symbolically(o.relu, [symbols("x", (2,))], {})[0].data for _ in range(2))
        assert all(a is b for a, b in zip(x, y, strict=True))
    assert len(generations) == 3


def test_an_operator_on_no_elements_has_none() -> None:
    (y,) = apply_symbolically(o.reshape, [symbols("x", (0, 2))], {"shape": (2, 0, 3)})
    assert (y.data.shape, y.real) == ((2, 0, 3), True)
