"""Proofs at all shapes: readers agree with the operators' one meaning, false rules are not proved, true ones are."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
from known_wrong.gallery import FALSE, gallery

from rewrite_compiler import IsConstant, Law, Rule, Tensor, Where, rule
from rewrite_compiler import ops as o
from rewrite_compiler.ir.evaluate import run_op
from rewrite_compiler.ops import OPS
from rewrite_compiler.prove.rules.all_shapes import theorem_of
from rewrite_compiler.prove.shapes_calculus.atom_keys import height_of
from rewrite_compiler.prove.shapes_calculus.operator_readers import READERS, read
from rewrite_compiler.prove.shapes_calculus.polynomials import Contradiction, Facts, Poly, as_poly, atom, atom_number, key_of
from rewrite_compiler.prove.shapes_calculus.real_elements import Reals
from rewrite_compiler.prove.shapes_calculus.symbolic_tensors import Typing, variable
from rewrite_compiler.prove.verdict import Stop, Theorem
from rewrite_compiler.rewrite import Int, Ints
from rewrite_compiler.rewrite.ruleset import every_rule

Env = Mapping[int, int]
WINDOW = {"strides": (2, 1), "pads": (1, 0, 0, 2), "dilations": (1, 2)}
# operator → shapes of operands and attributes
CASES: dict[str, tuple[list[tuple[int, ...]], dict[str, Any]]] = {
    "reshape": ([(2, 3, 4)], {"shape": (4, 6)}),
    "transpose": ([(2, 3, 4)], {"perm": (1, 2, 0)}),
    "slice": ([(2, 7)], {"axis": 1, "start": 1, "stop": 6, "step": 2}),
    "concat": ([(2, 3), (2, 1)], {"axis": 1}),
    "reverse": ([(2, 5)], {"axis": 1}),
    "pad": ([(2, 3)], {"pads": (1, 0, 0, 2), "value": 2.0}),
    "expand": ([(3, 1)], {"shape": (2, 3, 4)}),
    "full": ([], {"shape": (2, 3), "value": 0.5}),
    "dense": ([(2, 3, 4), (5, 4)], {}),
    "matmul": ([(2, 3, 4), (1, 4, 2)], {}),
    "bias_add": ([(2, 3), (2,)], {"axis": 0}),
    "scale": ([(2, 3), (3,)], {"axis": 1}),
    "gate_sum": ([(2, 3), (2, 4), (5, 3), (5, 4), (5,), (5,)], {}),
    "conv": ([(1, 4, 4, 4), (4, 2, 3, 2)], {**WINDOW, "group": 2}),
    "im2col": ([(2, 2, 5, 5)], {**WINDOW, "kernel": (3, 2)}),
    "max_pool": ([(1, 2, 5, 4)], {**WINDOW, "pads": (0, 0, 0, 0), "kernel": (2, 2), "ceil": 0}),
    "average_pool": ([(1, 2, 5, 4)], {**WINDOW, "pads": (0, 0, 0, 0), "kernel": (2, 2), "ceil": 0, "count_include_pad": 1}),
    "batch_norm": ([(2, 3, 2), (3,), (3,), (3,), (3,)], {"epsilon": 0.5}),
    "layer_norm": ([(2, 3, 2), (3, 2), (3, 2)], {"axis": 1, "epsilon": 0.5}),
    **dict.fromkeys(("softmax", "log_softmax"), ([(2, 3, 2)], {"axis": 1})),
    "dequantize": ([(2, 3), (3,)], {"axis": 1, "zero": 2}),
    "integer_dense": ([(2, 3), (4, 3)], {"x_zero": 2, "w_zero": -1}),
    "integer_conv": ([(1, 2, 4, 4), (2, 1, 2, 2)], {**WINDOW, "group": 2, "x_zero": 3, "w_zero": 1}),
    "lstm": ([(2, 1, 1), (8, 1), (8, 2), (16,), (1, 2), (1, 2)], {}),
    "gru": ([(2, 2, 1), (3, 1), (3, 1), (6,), (2, 1)], {"linear_before_reset": 0}),
    "rnn": ([(5, 2, 1), (2, 1), (2, 2), (4,), (2, 2)], {"activation": "relu"}),
    **{f"reduce_{kind}": ([(2, 3, 4)], {"axes": (0, 2), "keepdims": 0}) for kind in ("sum", "mean", "max")},
}


def ranks(r: Rule) -> int | None:
    """Return up to which rank a rule is proved, None: at every one."""
    found = theorem_of(r)
    assert isinstance(found, Theorem), found
    return found.ranks


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
        return CALLS[key[1]](*(real(x, env, data) for x in key[2:]))
    if key[0] == "fold":
        return folded(key, env, data)
    if key[0] == "state":
        (states,) = key[1].atoms
        return states_of(env, states)(key[2], integer(key[3], env), integer(key[4], env))
    if key[1] == "of":
        return max(real(x, env, data) for x in key[2])
    _, extents, body = key[-1]
    height, found = height_of(body), []
    for place in itertools.product(*(range(integer(e, env)) for e in extents)):
        inner = {**env, **{atom_number(("bound", height, k)): i for k, i in enumerate(place)}}
        found.append(real([(body, Fraction(1))] if key[0] == "sum" else body, inner, data))
    return sum(found) if key[0] == "sum" else max(found)


CALLS: dict[str, Any] = {
    "rdiv": lambda a, b: a / b, "call sqrt": math.sqrt, "call exp": math.exp, "call tanh": math.tanh, "call log": math.log,
}  # fmt: skip


def states_of(env: Env, states: int) -> Any:
    return env[states]


def folded(key: Any, env: Env, data: Mapping[str, Any]) -> float:
    """Return a state after so many steps, each step on the states before it."""
    _, k, steps, row, column, first, step = key

    @cache
    def state(n: int, k: int, i: int, j: int) -> float:
        _, height, _, bodies = step if n else first
        bound: dict[int, Any] = {atom_number(("bound", height, place)): x for place, x in ((0, n - 1), (1, i), (2, j))}
        bound[atom_number(("bound", height, 3))] = lambda *at: state(n - 1, *at)
        return real(bodies[k], {**env, **bound}, data)

    return state(integer(steps, env), k, integer(row, env), integer(column, env))


@pytest.mark.parametrize("name", READERS)
def test_a_reader_agrees_with_the_meaning(name: str) -> None:
    if name == "reduce_min":
        assert name not in OPS
        return
    shapes, attributes = CASES[name]
    random = np.random.default_rng(0)
    data = {f"x{n}": random.standard_normal(s) for n, s in enumerate(shapes)}
    if name == "batch_norm":
        data["x4"] = np.abs(data["x4"])
    wanted = run_op(OPS[name], [*data.values()], attributes, np.float64)
    reals = Reals(Facts())
    operands = [variable(reals, n, [as_poly(e) for e in x.shape]) for n, x in data.items()]
    symbolic = {k: symbol(v) for k, v in attributes.items()}
    for found, expected in zip(read(OPS[name], Typing(reals), operands, symbolic), wanted, strict=True):
        assert [n.number for n in found.shape] == list(expected.shape)
        for place in np.ndindex(expected.shape):
            index = [as_poly(i) for i in place]
            assert math.isclose(real(found.at(index).frozen, {}, data), expected[place], rel_tol=1e-9, abs_tol=1e-12)
            flat = as_poly(int(np.ravel_multi_index(place, expected.shape)) if place else 0)
            assert math.isclose(real(found.flat(flat).frozen, {}, data), expected[place], rel_tol=1e-9, abs_tol=1e-12)


def symbol(value: Any) -> Any:
    if isinstance(value, tuple):
        return [as_poly(n) for n in value]
    if isinstance(value, str):
        return value
    return as_poly(value) if isinstance(value, int) else Fraction(value)


@pytest.mark.parametrize("false", gallery(*FALSE)[::4], ids=str)
def test_a_false_rule_is_not_proved(false: Rule) -> None:
    assert isinstance(theorem_of(false), Stop)


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
    assert ranks(law) == 5


def test_a_law_with_the_wrong_half_does_not() -> None:
    assert isinstance(theorem_of(wrong_half_of_concat), Stop)


@rule
def largest_of_largest(x: Tensor, y: Tensor) -> Law:
    top = o.reduce_max_(x, axes=(0,), keepdims=0)
    return o.add(o.relu(top), y), o.add(o.relu(o.neg(top)), y)


@rule
def codes_along_the_wrong_axis(x: Tensor, s: Tensor, zero: Int) -> Law:
    flat = o.dequantize(o.transpose(x, (1, 0)), s, axis=0, zero=zero)
    return o.transpose(flat, (1, 0)), o.dequantize(x, s, axis=0, zero=zero)


@rule
def groups_exchanged(x: Tensor, w: Tensor, group: Int) -> Law:
    """The halves of a convolution in groups, in the wrong order."""
    one, c, n = {"strides": (1,), "pads": (0, 0), "dilations": (1,)}, group // 2 * w.shape[1], w.shape[0] // 2
    low = o.conv(o.slice_(x, axis=1, start=0, stop=c), o.slice_(w, axis=0, start=0, stop=n), **one, group=group // 2)
    high = o.conv(o.slice_(x, axis=1, start=c, stop=2 * c), o.slice_(w, axis=0, start=n, stop=2 * n), **one, group=group // 2)
    return o.conv(x, w, **one, group=group), o.concat(high, low, axis=1), Where(group % 2 == 0, group > 1)


@rule
def pairs_of_groups_beside_the_wrong_zeros(x: Tensor, w: Tensor, group: Int) -> Law:
    """Two groups as one, the zeros behind the filters of both."""
    one, c = {"strides": (1,), "pads": (0, 0), "dilations": (1,)}, w.shape[1]
    pairs = o.reshape(w, (group // 2, 2, w.shape[0] // group, c, w.shape[2]))
    whole = o.reshape(o.pad(pairs, (0, 0, 0, 0, 0, 0, 0, 0, c, 0), 0.0), (w.shape[0], 2 * c, w.shape[2]))
    return o.conv(x, w, **one, group=group), o.conv(x, whole, **one, group=group // 2), Where(group % 2 == 0, group > 1)


@rule
def operand_that_widens_left_out(x: Tensor, y: Tensor) -> Law:
    """True of numbers, but y may be wider than x."""
    return o.sub(o.add(x, y), y), x


@rule
def sum_of_what_widens(x: Tensor, y: Tensor) -> Law:
    """Where y has one element, the sum on the left adds it as often as x has elements."""
    flag: Any = {"axes": (0,), "keepdims": 0}
    return o.reduce_sum_(o.add(x, y), **flag), o.add(o.reduce_sum_(x, **flag), o.reduce_sum_(y, **flag)), Where(x.rank == y.rank)


@rule
def one_operand_turned(x: Tensor, y: Tensor) -> Law:
    return o.transpose(o.mul(x, y), (1, 0)), o.mul(o.transpose(x, (1, 0)), y), Where(x.rank == 2, y.rank == 2)


@rule
def layer_from_zero(s: Tensor, w: Tensor, r: Tensor, b: Tensor, h: Tensor, m: Int, n: Int) -> Law:
    """The second layer starts from the state of the first, not from the same one."""
    _, before = o.rnn(o.slice_(s, axis=0, start=0, stop=m), w, r, b, h, activation="tanh")
    _, after = o.rnn(o.slice_(s, axis=0, start=m, stop=n), w, r, b, before, activation="tanh")
    _, wrong = o.rnn(o.slice_(s, axis=0, start=m, stop=n), w, r, b, h, activation="tanh")
    return after, wrong


@rule
def skipped_step(s: Tensor, w: Tensor, r: Tensor, b: Tensor, h: Tensor, m: Int, n: Int) -> Law:
    _, before = o.rnn(o.slice_(s, axis=0, start=0, stop=m), w, r, b, h, activation="tanh")
    _, after = o.rnn(o.slice_(s, axis=0, start=m + 1, stop=n), w, r, b, before, activation="tanh")
    _, whole = o.rnn(o.slice_(s, axis=0, start=0, stop=n), w, r, b, h, activation="tanh")
    return after, whole


@rule
def single_step_from_further_on(s: Tensor, w: Tensor, r: Tensor, b: Tensor, h: Tensor, m: Int) -> Law:
    """The one step after the first layer is not the one that follows."""
    _, before = o.rnn(o.slice_(s, axis=0, start=0, stop=m), w, r, b, h, activation="tanh")
    _, after = o.rnn(o.slice_(s, axis=0, start=m + 1, stop=m + 2), w, r, b, before, activation="tanh")
    _, whole = o.rnn(o.slice_(s, axis=0, start=0, stop=m + 1), w, r, b, h, activation="tanh")
    return after, whole


@rule
def half_of_a_mean(x: Tensor) -> Law:
    """The mean over twice as many elements is not that of one half."""
    both = o.reduce_mean_(o.concat(x, o.relu(x), axis=0), axes=(0,), keepdims=0)
    return both, o.reduce_mean_(x, axes=(0,), keepdims=0)


@rule
def expanded_beyond_the_sum(x: Tensor, y: Tensor, s: Ints) -> Law:
    """The expanded operand may be wider than what is added to it."""
    return o.add(x, o.expand(y, s)), o.add(x, y)


WRONG = (
    largest_of_largest,
    codes_along_the_wrong_axis,
    groups_exchanged,
    pairs_of_groups_beside_the_wrong_zeros,
    operand_that_widens_left_out,
    sum_of_what_widens,
    one_operand_turned,
    single_step_from_further_on,
    half_of_a_mean,
    expanded_beyond_the_sum,
    layer_from_zero,
    skipped_step,
)


@pytest.mark.parametrize("false", WRONG, ids=str)
def test_a_law_that_is_false_for_other_data_does_not(false: Rule) -> None:
    assert isinstance(theorem_of(false), Stop)


SHIPPED = {r.name: r for r in every_rule()}
HOLD = ("continue-gru-backwards", "drop-expand-before-addition", "rows-over-root-mean-square-as-layer-norm")


@pytest.mark.parametrize("name", HOLD)
def test_shipped_rules_hold_at_all_shapes(name: str) -> None:
    assert ranks(SHIPPED[name]) == 5


@pytest.mark.parametrize("name", ["split-groups", "merge-groups-1d"])
def test_groups_hold_at_all_shapes(name: str) -> None:
    law = SHIPPED[name]
    assert ranks(law) == 5
    unguarded = replace(law, where=tuple(c for c in law.where if isinstance(c, IsConstant)))
    assert isinstance(theorem_of(unguarded), Stop)


def test_a_law_of_elements_holds_at_every_rank() -> None:
    assert ranks(SHIPPED["interpolation-of-states"]) is None


def test_what_broadcasts_is_left_open() -> None:
    found = theorem_of(SHIPPED["mul-past-transposes"])
    assert str(found) == "all shapes: every extent and attribute, ranks 0…5, 154 forms"  # of a rank or a permutation each
    facts = Facts()
    a, b, c = (facts.extent(n) for n in "abc")
    assert facts.join(a, b, assumed=False) is None
    wide = facts.join(a, b, assumed=True)
    assert wide is not None
    i = facts.index("i", wide)
    assert facts.broadcast_index(i, wide, wide) == i
    assert facts.broadcast_index(i, wide, as_poly(1)) == as_poly(0)
    read = facts.broadcast_index(i, wide, a)
    assert facts.nonnegative(a - 1 - read)
    assert read != i
    both = facts.join(wide, c, assumed=True)
    assert both is not None
    j = facts.index("j", both)
    assert facts.broadcast_index(facts.broadcast_index(j, both, wide), wide, a) == facts.broadcast_index(j, both, a)
    assert facts.join(c, a, assumed=False) is not None


def test_an_unknown_is_twice_its_half_and_a_rest() -> None:
    facts = Facts()
    n = facts.extent("n")
    facts.assume(n - 2)
    half = facts.floor_quotient(n, as_poly(2))
    assert facts.nonnegative(half - 1)
    assert facts.nonnegative(n - half * 2)
    assert facts.nonnegative(half * 2 + 1 - n)
    assert not facts.nonnegative(half - 2)
    assert not facts.nonnegative(half * 2 - n)
    facts.unify(n - half * 2, as_poly(0))
    assert facts.equal(n, half * 2)


def test_a_common_factor_of_a_division_is_left_out() -> None:
    facts = Facts()
    a, b = facts.extent("a"), facts.extent("b")
    i, j = facts.index("i", a), facts.index("j", b)
    assert facts.floor_quotient(i * b + j, b * 2) == facts.floor_quotient(i, as_poly(2))
    assert facts.floor_quotient(i * b + j + b, b * 2) == facts.floor_quotient(i + 1, as_poly(2))
    assert facts.floor_quotient(i * b + j + 1, b * 2) != facts.floor_quotient(i, as_poly(2))


def test_a_range_that_may_be_empty_says_nothing_of_its_extent() -> None:
    reals = Reals(Facts())
    pad, n = reals.facts.amount("pad"), reals.facts.extent("n")
    reals.total([pad], lambda i: reals.read("x", reals.facts.floor_quotient(i, n)))
    assert not reals.facts.nonnegative(pad - 1)


def test_division_is_proved_by_the_size_of_the_remainder() -> None:
    facts = Facts()
    a, b = facts.extent("a"), facts.extent("b")
    i, j = facts.index("i", a), facts.index("j", b)
    assert facts.floor_quotient(i * b + j, b) == i
    assert facts.digits(i * b + j, [a, b]) == [i, j]
    kept = facts.floor_quotient(i * b + j, a)
    assert [key_of(x)[0] for x in kept.atoms] == ["div"]
    assert not facts.nonnegative(a - b)
    facts.unify(a, b)
    assert facts.nonnegative(a - b)
    with pytest.raises(Contradiction):
        facts.unify(a + 1, b)
    assert facts.norm(atom("a")) == facts.norm(atom("b"))
