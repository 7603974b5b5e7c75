"""What conditions of a path imply is asked of a solver: of registers, not of memories."""

from __future__ import annotations

import pytest

from rewrite_compiler.ila.verification.path_conditions import counterexample, implies
from rewrite_compiler.lang import Leaf

X, Y = (Leaf((), (0, 255), False, name) for name in "xy")


def test_an_implication_holds_or_has_values_at_which_it_does_not() -> None:
    x, y = X[()], Y[()]
    assert implies([x > 3, y > x], y > 4)
    assert not implies([x > 3, y > x], y > 5)
    found = counterexample([x > 3, y > x], y > 5)
    assert found is not None
    assert found["y"] == 5 > found["x"] > 3
    assert counterexample([x > 3, y > x], y > 4) is None


@pytest.mark.parametrize(("count", "is_decided"), [(1024, True), (1025, False)])
def test_a_memory_is_no_register(count: int, is_decided: bool) -> None:
    rows = Leaf((count,), (0, 255), False, "rows")
    assert implies([rows[7] > 3], rows[7] > 2) is is_decided
