"""What a saturation tells of itself: its growth and the matches of every rule, in the plan with their source lines."""

from __future__ import annotations

from rewrite_compiler.apps import App, find_application
from rewrite_compiler.compile import compile_model, to_json


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
