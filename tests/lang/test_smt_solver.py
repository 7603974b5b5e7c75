"""The solver of all questions: with z3's preprocessing or by its core alone, within limits in both ways."""

from __future__ import annotations

import pytest
import z3

from rewrite_compiler.readings.smt import solver
from rewrite_compiler.readings.smt.solver import Outcome, limited_solver, solve

X, Y = z3.BitVecs("x y", 16)


@pytest.mark.parametrize("preprocessed", [True, False])
def test_both_ways_prove_and_refute(preprocessed: bool) -> None:
    assert solve([X & Y != Y & X], 1.0, preprocessed=preprocessed).outcome == Outcome.PROVED
    refuted = solve([X * 3 == 21, z3.ULT(X, 100)], 1.0, preprocessed=preprocessed)
    assert (refuted.outcome, refuted.model) == (Outcome.REFUTED, {"x": 7})


@pytest.mark.parametrize("preprocessed", [True, False])
def test_both_ways_give_up_within_their_work(preprocessed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solver, "WORK", 1)
    verdict = solve([X * Y == 0x7FED, z3.ULT(X, Y), X != 1], 1.0, preprocessed=preprocessed)
    assert verdict.outcome == Outcome.UNKNOWN
    assert verdict.reason


def test_the_core_alone_is_asked_where_preprocessing_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    for name in ("Solver", "SimpleSolver"):
        make = getattr(z3, name)
        monkeypatch.setattr(
            f"rewrite_compiler.readings.smt.solver.z3.{name}", lambda *_, ctx, make=make, name=name: asked.append(name) or make(ctx=ctx)
        )
    limited_solver([X == Y], 1.0, preprocessed=False)
    limited_solver([X == Y], 1.0)
    assert asked == ["SimpleSolver", "Solver"]
