"""Induction on reduction lengths: what is the same step by step is proved at every length, anything else is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from prove.test_mappings import LINEAR, WRONG, model, tampered

from rewrite_compiler.prove.mappings.induction import Steps, _step_failures, induction_failure
from rewrite_compiler.prove.mappings.limit_edges import literal_edges
from rewrite_compiler.prove.mappings.mappings import first_sizes, inductions, prove_mapping
from rewrite_compiler.readings.arrays.labelled_array import Data
from rewrite_compiler.readings.smt.normal_form_evaluator import variables
from rewrite_compiler.readings.smt.polynomial_terms import Number, Terms
from rewrite_compiler.target import find_target

Made = Callable[[Terms, Data, int], Number]


def dot(terms: Terms, x: Data, n: int, first: int = 0) -> Number:
    return terms.total([first, *(terms.product(x[0, k], x[1, k]) for k in range(n))])


def saturating(terms: Terms, x: Data, n: int, most: Callable[[int], int] = lambda k: 99) -> Number:
    total: Number = 0
    for k in range(n):
        total = terms.extremum("min", terms.total((total, terms.product(x[0, k], x[1, k]))), most(k))
    return total


MADE: dict[str, tuple[Made, bool]] = {
    "a sum": (lambda t, x, n: t.quotient(dot(t, x, n), 16), True),
    "a sum that wraps": (lambda t, x, n: t.modulo(dot(t, x, n), 1 << 16), True),
    "an ordered fold": (saturating, True),
    "what it ends with depends on the length": (lambda t, x, n: t.quotient(dot(t, x, n), n), False),
    "what it starts from depends on the length": (lambda t, x, n: dot(t, x, n, n), False),
    "every step does something else": (lambda t, x, n: saturating(t, x, n, lambda k: 99 + k), False),
    "one step does something else": (lambda t, x, n: saturating(t, x, n, lambda k: 98 if k == 2 else 99), False),
    "an element is skipped": (lambda t, x, n: dot(t, np.delete(x, 2, 1), n - 1), False),
    "the last element comes first": (lambda t, x, n: saturating(t, np.roll(x[:, :n], 1, 1), n), False),
}


@pytest.mark.parametrize("name", MADE)
def test_only_steps_that_are_alike_are_an_induction(name: str) -> None:
    made, is_one = MADE[name]
    terms = Terms(unbounded=True)
    x = variables(terms, "x", (2, 5), (0, 9))
    found = induction_failure([(n, [made(terms, x, n)]) for n in (4, 5)], Steps({"x": x}, {"x": ("p", "k")}, "k"), 1)
    assert (found == "") == is_one, found


def strengths(target: str, *names: str) -> list[str]:
    made = find_target(target)
    return [s for n in names for s in inductions(made.mappings[n], made.ila(), first_sizes(made.mappings[n])[0] or {}).proved]


def test_the_shipped_products_hold_at_every_length() -> None:
    assert strengths("flexasr", "linear", "linear_tanh") == ["every k from 16 on by induction in steps of 1"] * 2
    assert strengths("vta", "dense", "dense_bias_uint8") == ["every k from 16 on by induction in steps of 1"] * 2
    assert strengths("vta", "conv2d") == ["every c from 16 on by induction in steps of 1"]
    assert strengths("hlscnn", "conv2d_bias_relu") == ["every c from 24 on by induction in steps of 8"]


def test_what_has_no_induction_says_why() -> None:
    flexasr = find_target("flexasr")
    reasons = {
        n: inductions(m, flexasr.ila(), first_sizes(m)[0] or {}).reasons
        for n, m in flexasr.mappings.items()
        if n in ("attention", "max_pool", "layer_norm")
    }
    assert reasons == {
        "attention": ["t: driver and numerics at m=1, t=2, d=1 are not the same term"],
        "max_pool": ["w: another size alone does not fit the pattern"],
        "layer_norm": ["every dimension is one of the result's"],
    }


def test_a_driver_that_is_wrong_from_the_second_vector_on_is_refuted_by_the_step() -> None:
    """Its only trial is one vector long, where it is right."""
    wrong = replace(tampered(WRONG["weight tiles in reverse order"]), trials=({"t": 1, "k": 16, "n": 64},))
    proof = prove_mapping(wrong, model())
    assert (proof.verdict, proof.code, proof.evidence) == ("refuted", "I105", "driver and numerics differ at t=1, k=17, n=64")
    assert prove_mapping(replace(LINEAR, trials=wrong.trials), model()).strength.endswith("; every k from 16 on by induction in steps of 1")


@pytest.mark.parametrize(
    ("predecessors", "previous", "functions", "failure"),
    [
        (["a1"], ["a1"], {"a2": "f", "a1": "f"}, ""),
        ([], ["a1"], {"a2": "f", "a1": "f"}, "the accumulator is made of 0 earlier ones"),
        (["a1", "b1"], ["a1", "b1"], {"a2": "f", "a1": "f", "b1": "f"}, "the accumulator is made of 2 earlier ones"),
        (["a1"], ["b1"], {"a2": "f", "a1": "f"}, "the accumulator depends on the length"),
        (["a1"], ["a1"], {"a2": "f", "a1": "g"}, "two steps are not the same function of the accumulator"),
    ],
)
def test_an_accumulator_advances_by_one_function_from_the_one_before(
    predecessors: list[Any], previous: list[Any], functions: dict[str, str], failure: str
) -> None:
    """Accumulators are names here, and functions of steps as well."""

    class Named(Steps):
        def __init__(self) -> None:
            pass

        def function(self, value: Any, last: int) -> tuple[str, list[Any]]:
            return functions[value], predecessors if last == 4 else ["a0"]

    assert list(_step_failures(["a2"], previous, Named(), 4, 1)) == ([failure] if failure else [])  # type: ignore[list-item]


def test_sizes_beside_a_number_of_a_driver_are_on_both_sides_of_it() -> None:
    """VTA's driver of pools has a 4 and an 8; both sides of a number show whether a comparison is strict."""
    sizes = [dict(x) for x in literal_edges(find_target("vta").mappings["max_pool_int8"], 4)]
    for d in ("b", "c"):
        assert {8, 9} <= {x[d] for x in sizes}
        assert {4, 5}.isdisjoint(x[d] for x in sizes)
