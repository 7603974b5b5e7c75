"""Where a user's function is said to be: whatever kind of callable it is, and however it is wrapped."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial, wraps
from typing import Any

import pytest

from rewrite_compiler.errors import SpecError
from rewrite_compiler.target.functions import Role, call_user, place_of_function
from rewrite_compiler.target.resources import MOST_HERTZ, Clock


def plain(x: object) -> object:
    """Return nothing that a target could use."""
    return x


def circle() -> object:
    """Have wrappers that go round in a circle."""


circle.__wrapped__ = circle  # type: ignore[attr-defined]


@wraps(plain)
def wrapper(x: object) -> object:
    return plain(x)


class Table:
    """An object that is called, and fails when it is asked for anything."""

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(name)

    def __call__(self, x: object = 0) -> object:
        return x

    def method(self) -> None:
        """Do nothing."""


def line(f: Callable[..., Any]) -> str:
    return f"{__file__}:{f.__code__.co_firstlineno}"


PLACES: dict[str, tuple[Callable[..., Any], str]] = {
    "function": (plain, line(plain)),
    "wrapper": (wrapper, line(plain)),
    "memoised": (lru_cache(plain), line(plain)),
    "partial": (partial(plain, 1), line(plain)),
    "partial of a function of the engine": (partial(max, plain), line(plain)),
    "object": (Table(), line(Table.__call__)),
    "method": (Table().method, line(Table.method)),
    "built-in": (len, ""),
    "circle of wrappers": (circle, ""),
}


@pytest.mark.parametrize("kind", PLACES)
def test_a_callable_has_the_place_of_its_code(kind: str) -> None:
    f, place = PLACES[kind]
    assert place_of_function(f) == place


@pytest.mark.parametrize(("f", "place"), [(Table(), line(Table.__call__)), (circle, "here.py:1")], ids=["object", "circle"])
def test_a_wrong_result_is_told_at_the_callable_or_else_at_the_role(f: Callable[..., Any], place: str) -> None:
    with pytest.raises(SpecError) as refusal:
        call_user(Role("The costs of toy.dense", "a Cost", "here.py:1"), float, f)
    assert refusal.value.problem.place == place


@pytest.mark.parametrize(("hertz", "said"), [(MOST_HERTZ + 1, "1,000,000,000,001"), (10**40, "about 2^132"), (10**400, "about 2^1328")])
def test_a_clock_is_not_faster_than_times_are_counted(hertz: int, said: str) -> None:
    assert Clock(MOST_HERTZ, "made up").hertz == MOST_HERTZ
    with pytest.raises(SpecError) as refusal:
        Clock(hertz, "made up")
    assert refusal.value.problem.sentence == f"Hertz of a clock must be at most 1,000,000,000,000, not {said}"
