"""Proofs at all shapes: readers agree with the operators' one meaning, false rules are not proved, true ones are."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from known_wrong.gallery import FALSE, gallery

from rewrite_compiler import Law, Rule, Tensor, rule
from rewrite_compiler import ops as o
from rewrite_compiler.ir.evaluate import run_op
from rewrite_compiler.ops import OPS
from rewrite_compiler.prove.general import proved_for_all_shapes
from rewrite_compiler.prove.integers import Contradiction, Facts, Poly, as_poly, atom, atom_number, key_of
from rewrite_compiler.prove.readers import READERS, Typing, read, variable
from rewrite_compiler.prove.reals import Reals, _height
from rewrite_compiler.rewrite import Int, Ints

Env = Mapping[int, int]
WINDOW = {"strides": (2, 1), "pads": (1, 0, 0, 2), "dilations": (1, 2)}
# operator → shapes of operands and attributes
CASES: dict[str, tuple[list[tuple[int, ...]], dict[str, Any]]] = {
    "reshape": ([(2, 3, 4)], {"shape": (4, 6)}),
    "transpose": ([(2, 3, 4)], {"perm": (1, 2, 0)}),
    "slice": ([(2, 7)], {"axis": 1, "start": 1, "stop": 6, "step": 2}),
    "concat": ([(2, 3), (2, 1)], {"axis": 1}),
    "pad": ([(2, 3)], {"pads": (1, 0, 0, 2), "value": 2.0}),
    "expand": ([(3, 1)], {"shape": (2, 3, 4)}),
    "full": ([], {"shape": (2, 3), "value": 0.5}),
    "dense": ([(2, 3, 4), (5, 4)], {}),
    "matmul": ([(2, 3, 4), (1, 4, 2)], {}),
    "bias_add": ([(2, 3), (2,)], {"axis": 0}),
    "scale": ([(2, 3), (3,)], {"axis": 1}),
    "gate_sum": ([(2, 3), (2, 4), (5, 3), (5, 4), (5,), (5,)], {}),
    "conv": ([(2, 4, 5, 5), (6, 2, 3, 2)], {**WINDOW, "group": 2}),
    "im2col": ([(2, 2, 5, 5)], {**WINDOW, "kernel": (3, 2)}),
    **{f"reduce_{kind}": ([(2, 3, 4)], {"axes": (0, 2), "keepdims": 0}) for kind in ("sum", "mean", "max")},
}


def integer(p: Poly, env: Env) -> int:
    return sum(c * math.prod(integer_atom(a, env) for a in m) for m, c in p.terms)


def integer_atom(a: int, env: Env) -> int:
    if a in env:
        return env[a]
    _, p, n = key_of(a)
    return integer(p, env) // integer(n, env)


def real(terms: Any, env: Env, data: Mapping[str, Any]) -> float:
    """Return the value of an element in normal form."""
    held = (t for t in terms if all(integer(p, env) >= 0 for p in t[0][0]))
    return sum(float(c) * math.prod(real_atom(key_of(a), env, data) for a in atoms) for (_, atoms), c in held)


def real_atom(key: Any, env: Env, data: Mapping[str, Any]) -> float:
    if key[0] == "read":
        return float(data[key[1]].reshape(-1)[integer(key[2], env)])
    if key[0] == "integer":
        return integer(key[1], env)
    if key[0] == "call":
        assert key[1] == "rdiv"
        return real(key[2], env, data) / real(key[3], env, data)
    _, extents, body = key[-1]
    height, found = _height(body), []
    for place in itertools.product(*(range(integer(e, env)) for e in extents)):
        inner = {**env, **{atom_number(("bound", height, k)): i for k, i in enumerate(place)}}
        found.append(real([(body, Fraction(1))] if key[0] == "sum" else body, inner, data))
    return sum(found) if key[0] == "sum" else max(found)


@pytest.mark.parametrize("name", READERS)
def test_a_reader_agrees_with_the_meaning(name: str) -> None:
    if name == "reduce_min":
        assert name not in OPS
        return
    shapes, attributes = CASES[name]
    random = np.random.default_rng(0)
    data = {f"x{n}": random.standard_normal(s) for n, s in enumerate(shapes)}
    (expected,) = run_op(OPS[name], [*data.values()], attributes, np.float64)
    reals = Reals(Facts())
    operands = [variable(reals, n, [as_poly(e) for e in x.shape]) for n, x in data.items()]
    symbolic = {k: symbol(v) for k, v in attributes.items()}
    found = read(OPS[name], Typing(reals), operands, symbolic)
    assert [n.number for n in found.shape] == list(expected.shape)
    for place in np.ndindex(expected.shape):
        index = [as_poly(i) for i in place]
        assert math.isclose(real(found.at(index).frozen, {}, data), expected[place], rel_tol=1e-9, abs_tol=1e-12)
        flat = as_poly(int(np.ravel_multi_index(place, expected.shape)) if place else 0)
        assert math.isclose(real(found.flat(flat).frozen, {}, data), expected[place], rel_tol=1e-9, abs_tol=1e-12)


def symbol(value: Any) -> Any:
    if isinstance(value, tuple):
        return [as_poly(n) for n in value]
    return as_poly(value) if isinstance(value, int) else Fraction(value)


@pytest.mark.parametrize("false", gallery(*FALSE)[::4], ids=str)
def test_a_false_rule_is_not_proved(false: Rule) -> None:
    assert proved_for_all_shapes(false) == ""


@rule
def relu_of_concat(x: Tensor, y: Tensor, axis: Int) -> Law:
    return o.relu(o.concat(x, y, axis=axis)), o.concat(o.relu(x), o.relu(y), axis=axis)


@rule
def halves_of_concat(x: Tensor, y: Tensor, axis: Int) -> Law:
    return o.slice_(o.concat(x, y, axis=axis), axis=axis, start=0, stop=x.shape[axis]), x


@rule
def wrong_half_of_concat(x: Tensor, y: Tensor, axis: Int) -> Law:
    return o.slice_(o.concat(x, y, axis=axis), axis=axis, start=0, stop=x.shape[axis]), y


@rule
def reshape_there_and_back(x: Tensor, s: Ints) -> Law:
    return o.reshape(o.reshape(x, s), x.shape), x


TRUE = (relu_of_concat, halves_of_concat, reshape_there_and_back)


@pytest.mark.parametrize("law", TRUE, ids=str)
def test_a_law_of_places_holds_at_all_shapes(law: Rule) -> None:
    assert proved_for_all_shapes(law).startswith("every extent from 1 on, ranks 0…4, ")


def test_a_law_with_the_wrong_half_does_not() -> None:
    assert proved_for_all_shapes(wrong_half_of_concat) == ""


def test_division_is_proved_by_the_size_of_the_remainder() -> None:
    facts = Facts()
    a, b = facts.extent("a"), facts.extent("b")
    i, j = facts.index("i", a), facts.index("j", b)
    assert facts.divided(i * b + j, b) == i
    assert facts.digits(i * b + j, [a, b]) == [i, j]
    kept = facts.divided(i * b + j, a)
    assert [key_of(x)[0] for x in kept.atoms] == ["div"]
    assert not facts.nonnegative(a - b)
    facts.unify(a, b)
    assert facts.nonnegative(a - b)
    with pytest.raises(Contradiction):
        facts.unify(a + 1, b)
    assert facts.norm(atom("a")) == facts.norm(atom("b"))
