"""Conditions that hold together, and numbers of elements."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from rewrite_compiler.lang import Expr, all_of, any_of, leaf, row_major
from rewrite_compiler.lang.arrays import evaluate
from rewrite_compiler.lang.binders import scalar_array

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
