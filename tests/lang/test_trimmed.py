"""Tables whose ends repeat: what lies between is read, and every place has the entry that it has in the whole table."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from rewrite_compiler.lang import Expr, Leaf, Table, array, clamp, select, wrap
from rewrite_compiler.lang import intervals as iv
from rewrite_compiler.lang.arrays import Evaluator, evaluate, table_data
from rewrite_compiler.lang.kernels import Kernels
from rewrite_compiler.lang.named import Store
from rewrite_compiler.lang.trimmed import LARGE, placed

BITS = 17
DOMAIN = (-(1 << BITS - 1), (1 << BITS - 1) - 1)
SIZE = 1 << BITS


def mixed(x: Expr) -> Expr:
    """An entry unlike those beside it that takes more operators than are computed in place of a read."""
    for n in range(30):
        x = wrap(x * (2 * n + 3) + n, 32)
    return wrap(x, 16)


def between(x: Expr) -> Expr:
    """One number below, another one above."""
    return mixed(clamp(x, -3000, 5000))


def early(x: Expr) -> Expr:
    return mixed(clamp(x, None, DOMAIN[0] + 100))


def late(x: Expr) -> Expr:
    return select(x == DOMAIN[1], mixed(x), 7)


FUNCTIONS = [(mixed, SIZE), (between, 8001), (early, 101), (late, 2)]


@pytest.mark.parametrize(("function", "size"), FUNCTIONS)
def test_every_place_has_its_entry(function: Callable[[Expr], Expr], size: int) -> None:
    table = Table("t", function, DOMAIN)
    x = Leaf((SIZE,), DOMAIN, False, "x")
    entries, _ = placed(table, x[0] - DOMAIN[0])
    whole = table_data(table)
    assert whole.nbytes >= LARGE
    assert len(entries) == size
    places = {x: np.random.default_rng(1).permutation(np.arange(SIZE, dtype=np.int32) + DOMAIN[0])}
    ev = Evaluator({leaf: Store(data) for leaf, data in places.items()})
    ev.kernels = Kernels()
    found = ev.store_of(array(lambda i: table(x[i]), (SIZE,))).data
    assert ev.kernels.grids == 1
    np.testing.assert_array_equal(found, whole[places[x] - DOMAIN[0]])
    np.testing.assert_array_equal(found, evaluate(array(lambda i: table(x[i]), (SIZE,)), places))


def test_small_tables_stay_whole() -> None:
    table = Table("t", lambda x: mixed(clamp(x, -3, 3)), iv.of_width(10, True))
    place = Leaf((1,), iv.of_width(10, False), False, "x")[0]
    entries, same = placed(table, place)
    assert same is place
    assert len(entries) == 1 << 10
