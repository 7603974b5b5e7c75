"""Inverse pairs: words that are split and joined again become their variable, and each question is given the pairs that it has."""

from __future__ import annotations

from typing import Any

import pytest
import z3

from rewrite_compiler.readings.smt.inverse_pairs import without_inverse_pairs

BYTES = 8
RANGES = {f"x{n}": (-128, 127) for n in range(BYTES)}
WORDS = [z3.Int(name) for name in RANGES]


def joined(x: z3.ArithRef) -> z3.ArithRef:
    """Return a byte as the device reads what the driver has written: without its sign, and with it again."""
    return (x % 256 + 128) % 256 - 128


def test_a_pair_is_its_variable_and_what_is_none_stays() -> None:
    x, y, free = WORDS[0], WORDS[1], z3.Int("free")
    terms = [joined(x) * joined(y), x % 256, joined(free), 7, joined(joined(x)) + free]
    assert [*map(str, without_inverse_pairs(terms, RANGES))] == ["x0*x1", "x0%256", str(joined(free)), "7", "x0 + free"]


def test_a_term_is_given_its_own_pairs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[int] = []
    substitute = z3.substitute

    def counted(term: z3.ExprRef, *pairs: Any) -> z3.ExprRef:
        given.append(len(pairs))
        return substitute(term, *pairs)

    terms = [joined(x) + 1 for x in WORDS] + [WORDS[0] + 1, joined(WORDS[0]) * joined(WORDS[1])]
    monkeypatch.setattr("rewrite_compiler.readings.smt.inverse_pairs.z3.substitute", counted)
    found = without_inverse_pairs(terms, RANGES)
    assert [*map(str, found)] == [*(f"x{n} + 1" for n in range(BYTES)), "x0 + 1", "x0*x1"]
    assert sorted(given, reverse=True)[:2] == [2, 1]  # two of the last term, and one of each other and of each question
