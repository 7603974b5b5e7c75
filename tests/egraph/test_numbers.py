"""Numbers of float attributes: those that a guard may compare, each the number of its own text."""

from __future__ import annotations

from rewrite_compiler.egraph.numbers import DECLARED, number_commands

ROWS = [("Clip", "1.5", "-0.0", "nan", "inf"), ("Scale", "1.50", "1", "relu", "1.5", 3)]


def test_texts_of_floats_have_numbers() -> None:
    """Not NaN, and no text that is not the shortest of its float: an attribute is never written so."""
    found = number_commands(['(rule ((< (number a) 2.5)) ((f "0.25" "x")))'], ROWS)
    assert found == [DECLARED, *(f'(set (number "{x}") {x})' for x in ("0.25", "1.5", "-0.0", "inf"))]


def test_rules_that_compare_no_float_need_none() -> None:
    assert number_commands(['(rule ((numbers a)) ((f "0.25")))'], ROWS) == []
