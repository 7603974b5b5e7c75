"""Questions to z3, bounded by work and time, and their verdicts."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import z3

WORK = 3_000_000  # steps that z3 counts in a second of an idle processor: its limit is work, so that a busy machine proves as much
PATIENCE = 20  # times the seconds, by the clock, after which a question is given up in any case


class Outcome(enum.StrEnum):
    """How a proof attempt ends."""

    PROVED = "proved"
    """The negated goal has no solution."""
    REFUTED = "refuted"
    """A counterexample is known."""
    UNKNOWN = "unknown"
    """The solver gave up: never a pass."""


@dataclass(frozen=True)
class Verdict:
    """The result of a proof attempt: an `Outcome`, the model of a refutation, the reason of an unknown one."""

    outcome: str
    model: Mapping[str, Fraction | int] = field(default_factory=dict)
    reason: str = ""


def solve(constraints: Sequence[z3.BoolRef], seconds: float, *, preprocessed: bool = True) -> Verdict:
    """Return z3's verdict on the claim that the constraints have no solution; a solution refutes it. Seconds are of an idle processor.

    The question is asked in a context of its own: what z3 finds within its limit does not depend on what was asked before. Without
    `preprocessed` z3's core takes the question as it is, arrays as they come: it decides some that preprocessing leaves open.
    """
    context = z3.Context()
    solver = limited_solver([c.translate(context) for c in constraints], seconds, context, preprocessed=preprocessed)
    answer = solver.check()
    if answer == z3.unsat:
        return Verdict(Outcome.PROVED)
    if answer == z3.sat:
        return Verdict(Outcome.REFUTED, model_values(solver.model()))
    return Verdict(Outcome.UNKNOWN, reason=solver.reason_unknown())


def limited_solver(
    constraints: Sequence[z3.BoolRef], seconds: float, context: z3.Context | None = None, *, preprocessed: bool = True
) -> z3.Solver:
    """Return a solver with the constraints that gives up after so many seconds of an idle processor."""
    solver = z3.Solver(ctx=context) if preprocessed else z3.SimpleSolver(ctx=context)
    _limit(solver, int(seconds * WORK))
    solver.add(*constraints)
    return solver


def _limit(solver: z3.Solver, work: int) -> None:
    """Let a solver give up after so many steps, or at last by the clock."""
    solver.set("rlimit", max(work, 1))
    solver.set("timeout", max(work * PATIENCE * 1000 // WORK, 1))


def lone_solver(constraints: Iterable[z3.BoolRef], work: int, tactic: str = "") -> z3.Solver:
    """Return a solver of a context of its own, by a tactic or z3's own choice, that gives up after so many steps, or at last by the clock.

    Steps are no bound alone: one of them on algebraic numbers may take seconds. A model is translated back by its `translate`.
    """
    context = z3.Context()
    solver = z3.Tactic(tactic, ctx=context).solver() if tactic else z3.Solver(ctx=context)
    _limit(solver, work)
    solver.add(*(c.translate(context) for c in constraints))
    return solver


def model_values(model: z3.ModelRef) -> dict[str, Fraction | int]:
    """Return the values of a model's variables; algebraic numbers to 20 decimals."""
    numbers: dict[str, Fraction | int] = {}
    for d in model.decls():
        value = model[d]
        if d.arity() == 0 and z3.is_int_value(value):
            numbers[d.name()] = value.as_long()
        elif d.arity() == 0 and z3.is_bv_value(value):
            numbers[d.name()] = value.as_signed_long()
        elif d.arity() == 0 and z3.is_rational_value(value):
            numbers[d.name()] = Fraction(value.numerator_as_long(), value.denominator_as_long())
        elif d.arity() == 0 and z3.is_algebraic_value(value):
            rounded = value.approx(20)
            numbers[d.name()] = Fraction(rounded.numerator_as_long(), rounded.denominator_as_long())
    return numbers
