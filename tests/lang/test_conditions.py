"""Conditions that hold together, numbers of elements, quotients rounded up, and widths of accumulators."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from rewrite_compiler.errors import SpecError
from rewrite_compiler.lang import Expr, all_of, any_of, ceil_div, fold, leaf, row_major, sat
from rewrite_compiler.lang.binders import scalar_array
from rewrite_compiler.readings.kernels.evaluate import evaluate

FLAGS = leaf("flags", (3,), (0, 1))


def truth(term: Expr, flags: tuple[int, ...]) -> int:
    return int(evaluate(scalar_array(term), {FLAGS: np.array(flags)}))


@pytest.mark.parametrize("count", range(4))
def test_all_and_any(count: int) -> None:
    for flags in product((0, 1), repeat=3):
        terms = [FLAGS[n] for n in range(count)]
        assert (truth(all_of(iter(terms)), flags), truth(any_of(iter(terms)), flags)) == (all(flags[:count]), any(flags[:count]))


def test_one_condition_is_itself() -> None:
    assert all_of([FLAGS[0]]) is any_of([FLAGS[0]])
    assert (all_of(()).value, any_of(()).value) == (1, 0)


def test_elements_are_numbered_with_the_last_index_fastest() -> None:
    numbers = [row_major(index, (9, 3, 4)).value for index in np.ndindex(2, 3, 4)]
    assert numbers == list(range(24))
    with pytest.raises(ValueError, match="longer"):
        row_major((1, 2), (2, 3, 4))


def test_divisions_are_rounded_up() -> None:
    for a, b in product(range(-9, 10), range(1, 5)):
        assert ceil_div(a, b).value == -(-a // b)


def test_an_accumulator_may_be_given_by_its_bits() -> None:
    terms = [fold(5, 0, lambda k, acc: sat(acc + 40 * k, 8), width) for width in (8, (-128, 127))]
    assert [(term.interval, truth(term, (0, 0, 0))) for term in terms] == [((-128, 127), 127)] * 2
    with pytest.raises(SpecError, match="outside of its width"):
        fold(5, 0, lambda k, acc: acc + k, 8)
