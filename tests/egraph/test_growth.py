"""What a saturation tells of itself: its growth and the matches of every rule, in the plan with their source lines."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rewrite_compiler.apps import App, find_application
from rewrite_compiler.compile import compile_model, to_json
from rewrite_compiler.egraph.graph.outcome import StopReason
from rewrite_compiler.egraph.saturation.worker import Schedule


def test_growth_and_the_rules_that_fired() -> None:
    app = find_application("digits_cnn")
    assert isinstance(app, App)
    first, second = (to_json(compile_model(app.model, ["flexasr"]))["egraph"] for _ in range(2))
    assert first == second
    growth, fired = first["growth"], {row["rule"]: row for row in first["fired"]}
    assert len(growth) == first["rounds"] + 1
    assert 0 < growth[0] < growth[1] < growth[2]  # later rounds may merge more than they make
    assert growth[-1] <= first["e_nodes"]
    assert 0 < len(fired) < first["rules"]
    windows = fired["conv2d-as-dense-of-windows"]
    assert windows["matches"] >= 2
    assert windows["at"].partition(":")[0] == "rules/convolution.py"
    assert fired["flexasr.linear"]["matches"] >= 3
    because = {r["rule"] for o in to_json(compile_model(app.model, ["flexasr"]))["offloads"] for r in o["because"]}
    assert because <= fired.keys()


@pytest.mark.parametrize(
    ("previous", "current", "rounds", "reason"),
    [
        (10, 70, 1, None),  # twice 70 · 70/10
        (10, 71, 1, StopReason.E_NODES),
        (100, 223, 1, None),
        (100, 224, 1, StopReason.E_NODES),
        (0, 22, 1, None),
        (0, 23, 1, StopReason.E_NODES),
        (900, 900, 1, None),  # it does not grow
        (900, 800, 1, None),
        (900, 900, 4, None),
        (900, 900, 5, StopReason.ROUNDS),
        (10, 71, 5, StopReason.E_NODES),
    ],
)
def test_a_round_that_may_exceed_the_limit_is_not_begun(previous: int, current: int, rounds: int, reason: StopReason | None) -> None:
    schedule: Any = SimpleNamespace(limits={"e_nodes": 1000, "rounds": 5}, rounds=rounds)
    stop = Schedule.reason_to_stop(schedule, previous, current)
    assert (stop and stop[0]) == reason
