"""The second engine: products as a function known by its ranges; what it proves holds, what it finds counts only if it is real."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
import z3

from rewrite_compiler.readings.smt import evaluator, uninterpreted_products
from rewrite_compiler.readings.smt.uninterpreted_products import SPURIOUS_SOLUTION, refute_by_ranges

x, y, z, w = VARIABLES = z3.Ints("x y z w")
LOW, HIGH = -8, 7
WITHIN = [c for v in VARIABLES for c in (v >= LOW, v <= HIGH)]
LARGE = [c for v in VARIABLES for c in (v >= -128, v <= 127)]
TRUE = {  # negated: no values hold
    "commuted": (x * y * z + w) % 16 != (z * (y * x) + w) % 16,
    "distributed": (x * (y + z)) % 64 != (x * z + y * x) % 64,
    "a wrap that does nothing": (x * y + z * w + 256) % 512 - 256 != x * y + z * w,
    "rounded": (x * y + 4) / 8 != (y * x + 4) / 8,
    "a square": x * x + y * y < 0,
    "out of range": x * y * z > 512,
    "a choice": z3.If(x * y > 20, 20, x * y) != z3.If(y * x <= 20, y * x, 20),
}
FALSE = {
    "a wrap of 6 bits": (x * y + 32) % 64 - 32 != x * y,
    "floors apart": x * y / 8 + z * w / 8 != (x * y + z * w) / 8,
    "another sign": x * y != x * w,
}


@pytest.mark.parametrize("name", TRUE)
def test_what_holds_in_every_range_is_proved(name: str) -> None:
    assert refute_by_ranges([*WITHIN, TRUE[name]], 5.0).outcome == "proved"


@pytest.mark.parametrize("name", FALSE)
def test_a_solution_counts_only_with_real_products(name: str) -> None:
    found = refute_by_ranges([*WITHIN, FALSE[name]], 5.0)
    assert found.outcome in ("refuted", "unknown")
    if found.outcome == "refuted":
        values = [(v, z3.IntVal(int(found.model.get(str(v), 0)))) for v in VARIABLES]
        assert z3.is_true(z3.simplify(z3.substitute(z3.And(*WITHIN, FALSE[name]), *values)))


def test_a_real_solution_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which solutions of the abstraction z3 meets first depends on what the process asked before; one is real soon."""
    monkeypatch.setattr(uninterpreted_products, "ROUNDS", 64)
    found = refute_by_ranges([*WITHIN, (x * y + 32) % 64 - 32 != x * y], 10.0)
    assert found.outcome == "refuted"
    assert not -32 <= int(found.model["x"]) * int(found.model["y"]) <= 31


def test_a_solution_of_other_functions_is_none() -> None:
    """A prime is between the least and the largest product, but no product of such numbers."""
    found = refute_by_ranges([*WITHIN, x * y == 47], 5.0)
    assert found.outcome == "proved" or found.reason == SPURIOUS_SOLUTION


def test_where_the_first_engine_gives_up_the_second_one_is_asked() -> None:
    question = [*LARGE, x * y * z * w > 128**4]
    assert evaluator.solve(question, 0.02).outcome == "unknown"
    assert evaluator.refute(question, 0.02).outcome == "proved"


def test_without_products_there_is_nothing_to_ask() -> None:
    assert refute_by_ranges([x > 3, 5 * x < 2], 1.0).reason == "no product of two unknown integers"


def evaluated(kind: int, a: Any, b: Any, c: Any) -> Any:
    """Return one of four terms, of numbers or z3's."""
    return (a * b, a * b * c, a * b + c, (a * b + 2) % 8 * c)[kind]


def test_random_questions_are_answered_as_all_values_answer_them() -> None:
    """Whatever is proved has no solution among all values of three variables."""
    numbers, proved = random.Random(5), 0
    values = list(itertools.product(range(-3, 4), repeat=3))
    within = [c for v in (x, y, z) for c in (v >= -3, v <= 3)]
    for _ in range(12):
        chosen, kind = [numbers.randrange(3) for _ in range(3)], numbers.randrange(4)
        term = evaluated(kind, *((x, y, z)[n] for n in chosen))
        bound = numbers.randint(5, 40)
        found = refute_by_ranges([*within, term > bound], 1.0)
        held = [v for v in values if evaluated(kind, *(v[n] for n in chosen)) > bound]
        proved += found.outcome == "proved"
        assert (found.outcome == "proved") <= (not held)
        assert (found.outcome == "refuted") <= bool(held)
    assert proved > 2
