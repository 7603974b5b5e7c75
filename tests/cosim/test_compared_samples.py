"""Errors of offloads are measured on as many samples as their work allows, and what is printed says on how many."""

from __future__ import annotations

from dataclasses import replace

from rewrite_compiler.apps import find_application
from rewrite_compiler.compile import compile_model
from rewrite_compiler.cosim import cosimulate
from rewrite_compiler.cosim.engine import LEAST_COMPARED, MOST_COMPARED, compared_samples
from rewrite_compiler.report.terminal import cosim_lines


def test_more_samples_of_small_offloads_are_compared() -> None:
    plan = compile_model(find_application("digits_mlp").model, ["flexasr"])
    assert compared_samples(plan) == MOST_COMPARED
    large = replace(plan, offloads=tuple(replace(o, macs=1 << 30) for o in plan.offloads))
    assert compared_samples(large) == LEAST_COMPARED


def test_a_page_says_of_how_many_samples_its_errors_are() -> None:
    app = find_application("digits_mlp")
    report = cosimulate(compile_model(app.model, ["flexasr"]), app.data, calibrate=app.calibration, samples=100)
    text = "\n".join(cosim_lines(report.document))
    assert report.document["compared_samples"] == MOST_COMPARED
    assert f"measured on the first {MOST_COMPARED} samples" in text
    few = cosimulate(compile_model(app.model, ["flexasr"]), app.data, calibrate=app.calibration, samples=20)
    assert few.document["compared_samples"] == 20
    assert "measured on" not in "\n".join(cosim_lines(few.document))
    values = [t["values"] for t in few.document["offloads"][-1]["tensors"] if t["tensor"] == "y"]
    assert values == [20 * 10]
