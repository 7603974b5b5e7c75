"""Folds are equal up to the names of what they bind, and not where anything else of them differs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rewrite_compiler.lang import Leaf, array, fold, reduce_max, reduce_sum, wrap
from rewrite_compiler.lang.alpha_equivalence import are_alpha_equivalent
from rewrite_compiler.lang.binders import Array, Fold, fold_arrays, scalar_array

X, Y = Leaf((3, 4), (-8, 7), False, "x"), Leaf((3, 4), (-8, 7), False, "y")
START = array(lambda j: X[0, j], (4,))


def rows(of: Array = X, steps: int = 3, width: int = 9, start: Array = START, at: Callable[[Any, Any], Any] = lambda k, j: (k, j)) -> Fold:
    """Return sums that wrap, one a column, of the rows of an array."""
    return fold_arrays(steps, [start], lambda k, a: [array(lambda j: wrap(a[j] + of[at(k, j)], width), (4,))])[0].fold


def two(exchanged: bool = False) -> Fold:
    """Return a fold of two numbers, each of which starts at 0 or 1."""

    def step(k: Any, a: Array, b: Array) -> list[Array]:
        return [scalar_array(wrap(x[()] + X[k, 0], 9)) for x in ((b, a) if exchanged else (a, b))]

    return fold_arrays(3, [scalar_array(0), scalar_array(1)], step)[0].fold


def of_fold(component: int = 0, *, history: bool = False, steps: int = 3) -> Fold:
    """Return a fold that reads another one."""
    inner = fold_arrays(
        steps, [scalar_array(n) for n in (0, 1)], lambda k, *a: [scalar_array(wrap(x[()] + 2, 9)) for x in a], history=history
    )
    value = inner[component][1] if history else inner[component][()]
    return fold_arrays(2, [scalar_array(0)], lambda k, a: [scalar_array(wrap(a[()] + value + k, 9))])[0].fold


def of_reduction(reduction: Callable[..., Any] = reduce_sum, count: int = 4) -> Fold:
    """Return a fold of what is reduced in each step."""
    return fold_arrays(3, [scalar_array(0)], lambda k, a: [scalar_array(wrap(a[()] + reduction(lambda j: X[k, j], count), 9))])[0].fold


@pytest.mark.parametrize("make", [rows, two, of_fold, lambda: of_fold(history=True), of_reduction])
def test_a_fold_that_is_made_twice_is_the_same(make: Callable[[], Fold]) -> None:
    a, b = make(), make()
    assert a is not b
    assert are_alpha_equivalent(a, b)
    assert are_alpha_equivalent(a, a)


DIFFERENT = {
    "the array": (rows(), rows(Y)),
    "the number of steps": (rows(), rows(steps=2)),
    "a width": (rows(), rows(width=10)),
    "the start": (rows(), rows(start=array(lambda j: X[1, j], (4,)))),
    "the kind of the start": (rows(), rows(start=Leaf((4,), (-8, 7), False, "z"))),
    "two starts": (rows(start=Leaf((4,), (-8, 7), False, "z")), rows(start=Leaf((4,), (-8, 7), False, "z"))),
    "the place": (rows(), rows(at=lambda k, j: (2 - k, j))),
    "which variable": (rows(at=lambda k, j: (k, k)), rows(at=lambda k, j: (k, j % 3))),
    "the number of accumulators": (rows(), two()),
    "which accumulator": (two(), two(exchanged=True)),
    "a result of a fold": (of_fold(), of_fold(1)),
    "a step of a fold": (of_fold(), of_fold(history=True)),
    "a fold": (of_fold(), of_fold(steps=2)),
    "the rank of the start": (rows(), of_reduction()),
    "the monoid": (of_reduction(), of_reduction(reduce_max)),
    "how many are reduced": (of_reduction(), of_reduction(count=3)),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_a_fold_that_differs_in_one_thing_is_another(name: str) -> None:
    a, b = DIFFERENT[name]
    assert not are_alpha_equivalent(a, b)
    assert not are_alpha_equivalent(b, a)


def test_a_variable_from_outside_is_none_of_another_name() -> None:
    """Two folds in folds read the number of the outer step, each its own."""
    inner: list[Fold] = []

    def step(k: Any, acc: Any) -> Any:
        result = fold_arrays(2, [scalar_array(0)], lambda n, a: [scalar_array(wrap(a[()] + k, 9))])[0]
        inner.append(result.fold)
        return wrap(acc + result[()], 9)

    for _ in range(2):
        fold(3, 0, step)
    assert not are_alpha_equivalent(*inner)
