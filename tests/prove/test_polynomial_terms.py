"""Terms in normal form: an operator that was applied before has the same result, whatever was forgotten meanwhile."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewrite_compiler.readings.smt import polynomial_terms
from rewrite_compiler.readings.smt.polynomial_terms import Number, Terms

STEPS = st.lists(st.tuples(st.sampled_from("+*%/"), st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=12)


def values_of(steps: list[tuple[str, int, int]], start: list[Any]) -> list[Any]:
    """Return the values of steps, each of two values before it, or of one and a small number where it divides."""
    values = list(start)
    for op, a, b in steps:
        x, y = values[-1 - a % len(values)], values[-1 - b % len(values)]
        values.append(x + y if op == "+" else x * y if op == "*" else x % (b + 2) if op == "%" else x // (b + 2))
    return values


def terms_of(steps: list[tuple[str, int, int]], memorised: int) -> list[Number]:
    """Return the terms of steps on two variables, applied twice, where so many results are kept."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(polynomial_terms, "MEMORISED", memorised)
        terms = Terms()
        variables = [terms.variable(name, (0, 9)) for name in "xy"]
        first, second = (values_of(steps, variables) for _ in range(2))
    assert all(a is b or (isinstance(a, int) and a == b) for a, b in zip(first, second, strict=True))
    return first


@given(STEPS)
def test_results_do_not_depend_on_what_was_kept(steps: list[tuple[str, int, int]]) -> None:
    assert list(map(repr, terms_of(steps, 1 << 20))) == list(map(repr, terms_of(steps, 1)))


def value_at(term: Number, numbers: dict[str, int]) -> int:
    """Return what a term is where its variables have numbers."""
    if isinstance(term, int):
        return term
    args = [value_at(a, numbers) for a in term.args]
    if term.op == "sum":
        constant, factors = term.data
        return int(constant + sum(c * a for c, a in zip(factors, args, strict=True)))
    return {
        "var": lambda: numbers[term.data],
        "mul": lambda: math.prod(args),
        "mod": lambda: args[0] % term.data,
        "div": lambda: args[0] // term.data,
    }[term.op]()


@given(STEPS, st.integers(0, 9), st.integers(0, 9))
def test_a_term_has_the_value_of_what_it_was_made_of(steps: list[tuple[str, int, int]], x: int, y: int) -> None:
    values = [value_at(term, {"x": x, "y": y}) for term in terms_of(steps, 1 << 20)]
    assert values == values_of(steps, [x, y])
