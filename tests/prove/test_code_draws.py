"""Codes on which drivers and numerics are compared: results do not saturate, for every mapping; the smallest codes are among them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from rewrite_compiler.lang import AdaptivFloat, Fixed
from rewrite_compiler.lang.binders import Leaf
from rewrite_compiler.lang.formats import Format
from rewrite_compiler.prove.mappings.code_draws import MAX_EXTREME_CODES, MOST_SATURATED, CodeDraws, Codes, Results
from rewrite_compiler.prove.mappings.mappings import SEED, code_draws, first_sizes
from rewrite_compiler.readings.kernels.format_conversion import values_of
from rewrite_compiler.target import find_target, target_names

MAPPINGS = [f"{name}/{variant}" for name in target_names() for variant in find_target(name).mappings]


def draws_of(name: str) -> CodeDraws:
    target, _, variant = name.partition("/")
    m = find_target(target).mappings[variant]
    sizes = m.trials[min(1, len(m.trials) - 1)] if m.trials else first_sizes(m)[0]
    assert sizes is not None
    return code_draws(m, sizes, SEED)


@pytest.mark.parametrize("name", MAPPINGS)
def test_few_results_saturate(name: str) -> None:
    draws = draws_of(name)
    saturated, zero = draws.shares(*draws.numerics([draws.scaled()]))
    assert saturated < MOST_SATURATED
    assert zero < 1


def test_the_draw_of_one_number_is_not_near_0() -> None:
    """The first trial of attention has one number in each operand; their random deviations were so small that all codes were 0."""
    m = find_target("flexasr").mappings["attention"]
    draws = code_draws(m, m.trials[0], SEED)
    codes = draws.scaled()
    assert all(np.prod(shape) == 1 for shape in draws.shapes.values())
    assert all(np.any(x) for x in codes.values())
    assert draws.shares(*draws.numerics([codes]))[1] == 0


def test_random_codes_would_saturate() -> None:
    draws = draws_of("flexasr/linear")
    random = np.random.default_rng(1)
    saturated, _ = draws.shares(*draws.numerics([{n: random.integers(0, 256, shape) for n, shape in draws.shapes.items()}]))
    assert saturated > 0.5


@pytest.mark.parametrize(("form", "is_searched"), [(Fixed(8, 7), False), (AdaptivFloat(bias=3), True)])
def test_where_the_largest_codes_give_zeros_only_numbers_of_equal_steps_are_searched_no_further(form: Format, is_searched: bool) -> None:
    """Smaller ones give no fewer; those of floats may, as a gate that is closed by a large one opens."""
    asked = []

    def numerics(draws: Sequence[Codes]) -> list[Results]:
        asked.extend(draws)
        return [(np.zeros(4, np.int64),) for _ in draws]

    draws = CodeDraws({"x": Leaf((4,), form.codes, False, "x")}, {"x": form, "y": Fixed(8, 0)}, ("y",), numerics, SEED)
    codes = draws.scaled()
    assert (len(asked) > 1) == is_searched
    assert np.any(codes["x"])


@pytest.mark.parametrize(("form", "largest"), [(Fixed(8, 7), 2.0**-7), (AdaptivFloat(bias=3), None)])
def test_the_smallest_codes_are_0_and_the_least_values(form: Fixed | AdaptivFloat, largest: float | None) -> None:
    draws = draws_of("vta/dense" if isinstance(form, Fixed) else "flexasr/linear")
    assert sum(int(np.prod(shape)) for shape in draws.shapes.values()) <= MAX_EXTREME_CODES
    smallest = {what: codes for what, codes, _ in draws.draws()}["smallest of "]
    name = next(iter(smallest))
    f = draws.formats[name]
    sizes = np.unique(np.abs(values_of(f, smallest[name])))
    every = np.unique(np.abs(values_of(f, np.arange(f.codes[0] or 0, (f.codes[1] or 0) + 1))))
    assert list(sizes) == list(every[:2])
    assert largest is None or sizes[1] == float(1 / (1 << f.fraction))  # type: ignore[attr-defined]
