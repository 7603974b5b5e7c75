"""The front of a model: equal to trying every choice of the layers' mappings, also where only some of it is kept."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewrite_compiler.fit.mappers import model_front as module
from rewrite_compiler.fit.mappers.model_front import model_front

COSTS = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1, max_size=5)


@given(st.lists(st.tuples(st.integers(1, 4), COSTS), min_size=1, max_size=4))
def test_the_front_is_that_of_all_choices(layers: list[tuple[int, list[tuple[int, int]]]]) -> None:
    front = model_front(layers)
    assert front.is_complete
    totals = set()
    for choice in itertools.product(*(costs for _, costs in layers)):
        totals.add(tuple(sum(repeats * cost[k] for (repeats, _), cost in zip(layers, choice, strict=True)) for k in range(2)))
    expected = [t for t in totals if not any(o != t and o[0] <= t[0] and o[1] <= t[1] for o in totals)]
    assert [(p.cycles, p.energy_fj) for p in front.points] == sorted(expected)
    for p in front.points:
        costs = [(repeats, costs[k]) for (repeats, costs), k in zip(layers, p.choices, strict=True)]
        assert (p.cycles, p.energy_fj) == tuple(sum(n * cost[k] for n, cost in costs) for k in range(2))
    assert min(c * e for c, e in totals) == min(p.edp for p in front.points)


def test_a_front_that_is_too_long_keeps_its_ends_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept costs no more than a share of cycles beyond what is left out."""
    layers = [(1, [(10 + k, 1000 // (k + 1)) for k in range(30)]), (2, [(7 + 3 * k, 900 // (k + 2)) for k in range(30)])]
    whole = model_front(layers)
    monkeypatch.setattr(module, "MOST", 16)
    part = model_front(layers)
    assert whole.is_complete
    assert not part.is_complete
    assert len(part.points) <= 16 < len(whole.points)
    assert part.points[0].cycles == whole.points[0].cycles
    assert part.points[-1].energy_fj == whole.points[-1].energy_fj
    assert min(p.edp for p in part.points) <= 1.2 * min(p.edp for p in whole.points)
    steps = [(p.cycles, p.energy_fj) for p in part.points]
    assert all(a[0] < b[0] and a[1] > b[1] for a, b in itertools.pairwise(steps))
