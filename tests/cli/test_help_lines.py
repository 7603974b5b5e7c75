"""Help lines add something to their sentence; `helplines` looks at every refusal that any test sees."""

from __future__ import annotations

import pytest
from helplines import adds_nothing

from rewrite_compiler.errors import InputError, Problem


@pytest.mark.parametrize(
    ("sentence", "remedy", "idle"),
    [
        ("a plan must be a file", "give a file that is a plan", False),
        ("a plan must be a file", "a file must be the plan", True),
        ("the axes must name x", "name x", True),
        ("the axes must name x", "", False),
        ("--limits nodes= must be at most 5", "raise --limits nodes=", False),
    ],
)
def test_a_help_line_is_idle_where_it_has_no_word_of_its_own(sentence: str, remedy: str, idle: bool) -> None:
    assert adds_nothing(Problem("F100", sentence, help=remedy)) is idle


def test_a_refusal_with_an_idle_help_line_fails_the_test_that_sees_it() -> None:
    with pytest.raises(AssertionError, match="the help line says what the sentence says"):
        InputError("F100", "the file must be a plan", help="a plan must be the file")
