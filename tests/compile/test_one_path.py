"""Compiling with samples, and co-simulating with them what was compiled without, complete a plan in the same way."""

from __future__ import annotations

import pytest

import rewrite_compiler.compile.compile as driver
from rewrite_compiler.apps import APPS, App
from rewrite_compiler.compile import Plan, compile_model, plan_digest
from rewrite_compiler.cosim.cosimulate import dataset_for, with_formats

TARGETS = ("flexasr", "genesys", "hlscnn", "hvx", "vta")
SAMPLES = 2


def both_paths(app: App, target: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Plan, Plan]:
    """Return the plan of compiling with samples, and that of the formats which co-simulation chooses by them."""
    plan = compile_model(app.model, target)
    samples = dataset_for(plan, app.calibration or app.data).rows(slice(0, SAMPLES))
    with monkeypatch.context() as patch:
        patch.setattr(driver, "_uncalibrated_plan", lambda *_: plan)  # matched once: it is the rest that is compared
        compiled = compile_model(app.model, target, calibrate=samples)
    return compiled, with_formats(plan, samples, samples)[0]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("app", APPS, ids=lambda app: app.name)
def test_both_paths_give_the_same_plan(app: App, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled, simulated = both_paths(app, target, monkeypatch)
    assert (plan_digest(simulated), simulated.notes) == (plan_digest(compiled), compiled.notes)
