"""A plan's arithmetic beside its model's, on data: how much more rounding may cost, and the conditions of its laws' grades."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...compile.plan.grade_conditions import GradeCondition, grade_conditions
from ...compile.plan.plan import Plan
from ...compile.plan.rounding import RoundingRatio, rounding_ratio
from ...compile.verify import SEED, random_inputs
from ...data import Samples, samples_for
from ...ir.program import Data
from ...limits import DEFAULT, Limits

MOST_SAMPLES = 4  # of data, from the first on


@dataclass(frozen=True)
class PlanArithmetic:
    """What rounding may cost a plan more than its model, and the conditions under which its laws have their grades."""

    rounding: RoundingRatio
    conditions: tuple[GradeCondition, ...]
    samples: int
    is_random: bool


def plan_arithmetic(plan: Plan, data: Samples | None = None, limits: Limits = DEFAULT) -> PlanArithmetic:
    """Return what a plan's arithmetic may lose beside its model's on the first samples of data, else on one random input.

    A random input shows no condition of a grade.
    """
    samples = list(_samples(plan, data, limits))
    ratios = [rounding_ratio(plan, sample) for sample in samples]
    worst = max(ratios, key=lambda r: float("inf") if r.ratio is None else r.ratio)
    unknown = next((r for r in ratios if r.ratio is None), worst)
    return PlanArithmetic(unknown, grade_conditions(plan, () if data is None else samples, limits), len(samples), data is None)


def _samples(plan: Plan, data: Samples | None, limits: Limits) -> Iterator[Mapping[str, Data]]:
    if data is None:
        yield random_inputs(plan.source, np.random.default_rng(SEED))
        return
    inputs = samples_for(plan.source, data, limits).rows(slice(0, MOST_SAMPLES)).inputs
    for n in range(min((MOST_SAMPLES, *map(len, inputs.values())))):
        yield {name: x[n] for name, x in inputs.items()}


def arithmetic_document(a: PlanArithmetic) -> dict[str, Any]:
    """Return it as JSON; a ratio that is not bounded is the text `unbounded`, one that is not known null."""
    r = a.rounding
    ratio = None if r.ratio is None else "unbounded" if np.isinf(r.ratio) else r.ratio
    return {
        "rounding": {
            "ratio": ratio, "output": r.output, "unknown": r.unknown, "host_operators": list(r.host_operators),
            "samples": a.samples, "random": a.is_random,
        },
        "conditions": [
            {"rule": c.rule, "at": c.at, "grade": c.grade, "bound": c.bound, "places": c.places, "evidence": c.evidence.value}
            for c in a.conditions
        ],
    }  # fmt: skip


def arithmetic_lines(a: PlanArithmetic) -> list[str]:
    """Return it as lines for people."""
    samples = "one random input" if a.is_random else f"{a.samples} sample{'s' * (a.samples != 1)}"
    host_text = f"; as given: {', '.join(a.rounding.host_operators)}" if a.rounding.host_operators else ""
    return [
        f"rounding  {a.rounding} the model's error bound on {samples}{host_text}"
        if a.rounding.ratio is not None
        else f"rounding  {a.rounding}",
        "          of the laws that were applied, in float32; number formats are not in it",
        *(f"condition {c}" for c in a.conditions),
    ]
