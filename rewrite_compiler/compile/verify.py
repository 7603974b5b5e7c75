"""Check a written plan against its model: both run on the host engine on one random input."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..errors import BudgetError, FlexmatchError, InputError
from ..frontend.emit import to_onnx
from ..frontend.read import read_model
from ..frontend.structure import drop_absent_ends
from ..hostrun import Session, reference
from ..ir.evaluate import random_tensor
from ..ir.program import Data
from ..limits import DEFAULT, Limits
from .plan import Plan

TOLERANCE = 1e-5  # of the largest output: what float32 rounding in another order may do
SEED = 20261
NO_HOST = ("F162", "C100", "C107")  # the host engine refuses a model, its declared inputs, or to run it


class PlanDiffers(FlexmatchError):
    """The plan does not compute what the model computes: a bug, never the user's mistake."""

    exit_code = 5


@dataclass(frozen=True)
class Checked:
    """How far the plan's outputs are from those of what it was compared with, relative to the largest output.

    `against` is "model", "imported program" when the host engine refuses the model as it is written, or why nothing was compared.
    """

    relative_difference: float | None
    outputs: int
    against: str = "model"


def check_plan(plan: Plan, onnx: bytes, model: Path, limits: Limits = DEFAULT) -> Checked:
    """Run plan and model on the same random input; PlanDiffers when an output differs by more than the tolerance."""
    random = np.random.default_rng(SEED)
    p = plan.program
    values = {p.names[v]: random_tensor(p.types[v], random) for v in p.inputs}
    try:
        expected, against = _expected(plan, model, values, limits.host_seconds)
    except (InputError, BudgetError) as error:
        if error.problem.code not in NO_HOST:
            raise
        return Checked(None, 0, f"not compared with the model: {error.problem.sentence}")
    found = Session(onnx, name="the plan").run(values, seconds=10 * limits.host_seconds)
    differences = [_difference(x, y) for x, y in zip(expected.values(), found.values(), strict=True) if x.dtype.kind == "f"]
    worst = max(differences, default=0.0)
    if not worst <= TOLERANCE:
        raise PlanDiffers(
            "X100", f"the plan differs from its model by {worst:.3g} of the largest output; {TOLERANCE:g} is allowed", place=str(model)
        )
    return Checked(worst, len(expected), against)


def _expected(plan: Plan, model: Path, values: Mapping[str, Data], seconds: float) -> tuple[dict[str, Data], str]:
    """Return the outputs of the model as it is written, else of the program that was imported, and which of them."""
    try:
        if not drop_absent_ends(read_model(model, DEFAULT)[0]):
            source = reference(model)
            return source.run(_fitting(source, values), seconds=seconds), "model"
    except InputError as error:
        if error.problem.code not in NO_HOST:
            raise
    return Session(to_onnx(plan.source), name="the imported program").run(values, seconds=seconds), "imported program"


def _difference(expected: Data, found: Data) -> float:
    """Return the largest difference by the largest value, where the model's own value is finite."""
    if expected.shape != found.shape:
        return math.inf
    comparable = np.isfinite(expected)
    x, y = expected[comparable].astype(np.float64), found[comparable].astype(np.float64)
    if not np.isfinite(y).all():
        return math.inf
    scale = max(float(np.max(np.abs(x), initial=0)), 1e-30)
    return float(np.max(np.abs(x - y), initial=0)) / scale


def _fitting(source: Session, values: Mapping[str, Data]) -> dict[str, Data]:
    """Return the inputs that a model declares."""
    return {port.name: values[port.name] for port in source.inputs if port.name in values}
