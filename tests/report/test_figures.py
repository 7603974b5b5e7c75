"""Figures with the decimals that their interval bears, rounded outwards: what is shown never claims more than what was computed."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewrite_compiler.report.figures import difference_text, interval_text, round_outwards

ENDS = st.tuples(st.floats(-1e6, 1e6), st.floats(1e-9, 1e6)).map(lambda e: (e[0], e[0] + e[1])).filter(lambda e: e[1] > e[0])


@pytest.mark.parametrize(
    ("ends", "shown"),
    [
        ((-0.007624, 0.007624), "-0.008 … +0.008"),
        ((-0.0112, 0.0056), "-0.012 … +0.006"),
        ((0.18, 0.75), "+0.18 … +0.75"),
        ((-0.2, 0.1), "-0.20 … +0.10"),
        ((-120.3, 4.6), "-121 … +5"),
        ((-0.5, -0.5), "-0.5 … -0.5"),
        ((0.0, 0.0012), "+0.0000 … +0.0012"),
    ],
)
def test_an_interval_is_shown_with_two_digits_of_its_width(ends: tuple[float, float], shown: str) -> None:
    assert interval_text(ends) == shown


@given(ENDS)
def test_what_is_shown_holds_the_interval_and_is_at_most_a_fifth_wider(ends: tuple[float, float]) -> None:
    low, high = map(float, interval_text(ends).split(" … "))
    width = ends[1] - ends[0]
    slack = 1e-8 * width + 1e-12 * max(map(abs, ends))
    assert low <= ends[0] + slack
    assert high >= ends[1] - slack
    assert width < 1 or high - low <= max(1.2 * width, width + 2) + slack


def test_a_difference_has_the_decimals_of_its_interval() -> None:
    assert difference_text(-0.002, (-0.0112, 0.0056)) == "-0.002"
    assert difference_text(0.0, (-0.1, 0.1)) == "+0"
    assert difference_text(0.123456, None) == "+0.1235"
    assert round_outwards((0.01, 0.0199)) == ("0.0100", "0.0199")
    assert round_outwards((math.pi, math.pi)) == ("3.142", "3.142")
