"""Terms that are wider than what holds them: the language says so, a reading adds a value at which they are."""

from __future__ import annotations

import copy

import pytest

from rewrite_compiler.errors import SpecError
from rewrite_compiler.lang import Expr, as_real, assign, clz, fold
from rewrite_compiler.lang.binders import Leaf
from rewrite_compiler.lang.out_of_range import OutOfRange
from rewrite_compiler.readings.oracle.counterexample import with_example

STATE = Leaf((), (0, 255), False, "s")
REMEDY = "wrap() or sat() the value to the width of the state"


def test_a_value_wider_than_its_state_is_refused_and_whoever_evaluates_says_where() -> None:
    with pytest.raises(OutOfRange) as refusal:
        assign(STATE, STATE[()] + 1)
    assert refusal.value.problem.help == REMEDY
    shown = with_example(refusal.value.at("spec.py:3")).problem
    assert (shown.code, shown.place) == ("I102", "spec.py:3")
    assert shown.help == f"it is 256 where s is 255; {REMEDY}"
    assert str(copy.copy(refusal.value)) == str(refusal.value)


def test_an_accumulator_wider_than_its_width_is_refused_and_whoever_evaluates_says_where() -> None:
    with pytest.raises(OutOfRange) as refusal:
        fold(4, 0, lambda i, a: a + STATE[()], (0, 255))
    assert "it is " in with_example(refusal.value).problem.help


def test_other_refusals_stay_as_they_are() -> None:
    refusal = SpecError("I102", "another one", help="do this")
    assert with_example(refusal) is refusal


@pytest.mark.parametrize("operand", [STATE[()] - 1, STATE[()] + 1, as_real(STATE[()]), Leaf((), (None, 7), False, "s")[()]])
def test_leading_zeros_are_counted_in_a_word_that_holds_the_operand(operand: Expr) -> None:
    assert clz(STATE[()], 8).interval == (0, 8)
    with pytest.raises(SpecError, match=r"clz of 8 bits needs a value in 0…255, not "):
        clz(operand, 8)
