"""Formats whose binary points lie far apart: sums are shifted by numbers of places that usual data never need, and no branch shows it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from known_wrong.drivers import Fault, planted

from rewrite_compiler.lang.formats import Fixed
from rewrite_compiler.prove.mappings.draws import with_magnitudes
from rewrite_compiler.prove.mappings.mappings import execute, is_same_term, with_results
from rewrite_compiler.prove.mappings.small_designs import _far_format_calls, drawn_design_calls, verdict_at
from rewrite_compiler.prove.verdict import REFUTED
from rewrite_compiler.readings.smt.polynomial_terms import Terms
from rewrite_compiler.target import find_target

UNSHIFTED = Fault("hvx.dense", "hvx.products", "set_constants", "BEFORE: before", "BEFORE: 0")


@pytest.mark.parametrize("places", [-12, -8, -1, 7, 15, 16, 18, 30, 50])
def test_sums_of_hvx_are_one_term_wherever_the_binary_points_lie(places: int) -> None:
    hvx = find_target("hvx")
    m = hvx.mappings["dense"]
    point = {"x": 0, "w": places, "y": 0}
    formats = {n: lambda _, at=at: Fixed(8, at, "half_even", True) for n, at in point.items()}
    run = execute(replace(m, formats=formats), hvx.ila(), with_results(m, {"t": 1, "k": 2, "n": 2}), Terms(), None)
    assert all(is_same_term(a, b) for a, b in run.pairs)


def test_a_driver_that_forgets_the_shift_of_fine_weights_is_refuted() -> None:
    hvx = find_target("hvx")
    with planted(UNSHIFTED):
        usual = next(drawn_design_calls(hvx, hvx.mappings["dense"]))
        assert verdict_at(usual)[0] is None
        verdicts = [verdict_at(call)[0] for call in _far_format_calls([usual])]
    assert [v["verdict"] for v in verdicts if v] == [REFUTED, REFUTED]


def test_formats_of_data_or_of_the_other_operands_are_moved() -> None:
    m = find_target("hvx").mappings["dense"]
    at = {n: with_magnitudes(m, 2.0**-12).format_choices[n](1.0).fraction for n in "xwy"}  # type: ignore[attr-defined]
    others = {n: with_magnitudes(m, 2.0**-12, of_data=False).format_choices[n](1.0).fraction for n in "xwy"}  # type: ignore[attr-defined]
    assert at == {"x": 18, "w": 6, "y": 18}
    assert others == {"x": 6, "w": 18, "y": 6}


def test_digits_of_a_quotient_are_recombined_and_only_those() -> None:
    terms = Terms()
    x = terms.variable("x", (-(1 << 20), 1 << 20))
    shifted = terms.quotient(x, 8)
    digits = terms.total((terms.modulo(shifted, 256), terms.product(256, terms.quotient(shifted, 256))))
    assert digits is shifted
    other = terms.total((terms.modulo(shifted, 256), terms.product(256, terms.quotient(x, 256))))
    assert other is not shifted
    y = terms.variable("y", (-5, 5))
    for m, is_same in ((1 << 24, True), (1 << 16, False)):
        below = terms.total((terms.product(256, terms.modulo(x, m)), y))
        assert (terms.modulo(below, 1 << 32) is terms.modulo(terms.total((terms.product(256, x), y)), 1 << 32)) == is_same
