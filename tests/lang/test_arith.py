"""Shifts round as their words say, for every mode, sign and amount, an amount of nothing among them."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from rewrite_compiler.lang import array, sat, shift_right, wrap
from rewrite_compiler.lang.arithmetic import ROUNDINGS
from rewrite_compiler.readings.oracle.emit_python import evaluate

HALF = Fraction(1, 2)
MEANT = {
    "floor": math.floor,
    "half_up": lambda q: math.floor(q + HALF),
    "half_down": lambda q: math.ceil(q - HALF),
    "half_even": round,
    "zero": math.trunc,
    "half_away": lambda q: math.floor(abs(q) + HALF) * (1 if q > 0 else -1),
}


@pytest.mark.parametrize("mode", ROUNDINGS)
def test_a_shift_rounds_as_its_mode_says(mode: str) -> None:
    wanted = [MEANT[mode](Fraction(value, 1 << amount)) for value in range(-20, 21) for amount in range(5)]
    assert [shift_right(value, amount, mode).value for value in range(-20, 21) for amount in range(5)] == wanted
    assert evaluate(array(lambda i, j: shift_right(i - 20, j, mode), (41, 5)), {}, 205) == wanted


@pytest.mark.parametrize("signed", [False, True])
def test_a_constant_wraps_and_saturates_as_a_word_does(signed: bool) -> None:
    for bits in range(1, 10):
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        for value in range(-1100, 1100, 7):
            word = wrap(value, bits, signed).value
            assert word is not None
            assert low <= word <= high
            assert (value - word) % (1 << bits) == 0
            assert sat(value, bits, signed).value == min(max(value, low), high)
