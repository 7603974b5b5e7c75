"""Sizes at which an operation is tried: ragged and whole multiples of its units, lists, and sizes that follow from others."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

from rewrite_compiler.prove.mappings.draws import ENTRIES, EXTENTS, _Drawn, ties

TRIALS: list[dict[str, Any]] = [
    {"n": 2, "gates": 8, "pads": (0, 1), "skip": 0, "point": (200,), "m": 5},
    {"n": 3, "gates": 12, "pads": (1, 1), "skip": 4, "point": (7,), "m": 6},
]


def operation(trials: list[dict[str, Any]]) -> Any:
    axes = SimpleNamespace(results=("y",), of={"x": ("n", "gates"), "y": ("n", "m")})
    operands = (SimpleNamespace(name="x"),)
    return SimpleNamespace(
        trials=trials, axes=axes, operands=operands, units={"n": 16, "m": 4}, statics=(("pads", "ints"), ("skip", "int"), ("point", "ints"))
    )


def test_a_size_that_is_a_multiple_of_another_in_all_trials_stays_one() -> None:
    """Where the other is 0 nothing is said; m is a size of the result alone."""
    assert ties(operation(TRIALS)) == {"gates": ("n", 4)}
    assert ties(operation([{"n": 2, "gates": 8}, {"n": 3, "gates": 13}])) == {}
    assert ties(operation([])) == {}


def test_sizes_are_drawn_in_units_and_around_them() -> None:
    drawn = _Drawn.of(operation(TRIALS))
    assert (drawn.lists, dict(drawn.units), drawn.results) == (("pads",), {"n": 16, "gates": 1}, {"m"})
    random = Random(1)
    found = [drawn.candidate(random) for _ in range(2000)]
    sizes = {c["n"] for c in found}
    assert sizes == {*EXTENTS, *(max(1, 16 * k - r) for k in EXTENTS for r in (0, 1, 2, 14, 15))}
    assert {c["gates"] - 4 * c["n"] for c in found} == {0}
    assert {x for c in found for x in c["pads"]} == {*ENTRIES}
    assert {len(c["pads"]) for c in found} == {2}
    assert {c["point"] for c in found} == {(200,), (7,)}
    assert all("m" not in c for c in found)
