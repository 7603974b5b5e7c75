"""Check a written plan against its model: both run on the host engine on one random input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..errors import FlexmatchError
from ..hostrun import Session, reference
from ..ir.evaluate import random_tensor
from ..ir.program import Data
from .plan import Plan

TOLERANCE = 1e-5  # of the largest output: what float32 rounding in another order may do
SEED = 20261


class PlanDiffers(FlexmatchError):
    """The plan does not compute what the model computes: a bug, never the user's mistake."""

    exit_code = 5


@dataclass(frozen=True)
class Checked:
    """How far the plan's outputs are from the model's, relative to the largest output."""

    relative_difference: float
    outputs: int


def check_plan(plan: Plan, onnx: bytes, model: Path) -> Checked:
    """Run plan and model on the same random input; PlanDiffers when an output differs by more than the tolerance."""
    random = np.random.default_rng(SEED)
    p = plan.program
    values = {p.names[v]: random_tensor(p.types[v], random) for v in p.inputs}
    source = reference(model)
    expected = source.run(_fitting(source, values))
    found = Session(onnx).run(values)
    worst = 0.0
    for name, x in expected.items():
        if x.dtype.kind != "f":
            continue
        scale = max(float(np.max(np.abs(x), initial=0)), 1e-30)
        worst = max(worst, float(np.max(np.abs(x.astype(np.float64) - found[name]), initial=0)) / scale)
    if not worst <= TOLERANCE:
        raise PlanDiffers(
            "X100", f"the plan differs from its model by {worst:.3g} of the largest output; {TOLERANCE:g} is allowed", place=str(model)
        )
    return Checked(worst, len(expected))


def _fitting(source: Session, values: Mapping[str, Data]) -> dict[str, Data]:
    """Return the inputs that a model declares."""
    return {port.name: values[port.name] for port in source.inputs if port.name in values}
