"""Loops of a driver that turn equally often in every call are listed: nothing says what they do for another count."""

from __future__ import annotations

from pathlib import Path

from rewrite_compiler.prove.mappings.control_classes import MANY, Fact, _steady_loops, line_of


def loops(n: int) -> int:
    for _ in range(n):
        n += 1
    for _ in range(2):
        n += 1
    return n


def test_loops_that_turn_equally_often_are_listed_with_their_turns() -> None:
    code = loops.__code__
    first, second = sorted(
        {offset for offset, _, line in code.co_lines() if line is not None and line_of(code, offset) > code.co_firstlineno + 1}
    )[:2]
    facts: list[Fact] = [
        ((code, first), 1), ((code, first), 2), ((code, second), 2), ((code, second), 2),
        code, (code, first, second), ("x", 1), ((1, 2), 2),
    ]  # fmt: skip
    place = f"{Path(__file__).name}:{line_of(code, second)}"
    assert list(_steady_loops(facts)) == [f"{place} (2)"]
    assert list(_steady_loops([((code, second), MANY)])) == []
