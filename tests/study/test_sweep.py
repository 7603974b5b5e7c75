"""Axes and points of sweeps."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from house import ROOT

from rewrite_compiler.apps import find_application
from rewrite_compiler.cli.verbs.sweep import FIGURES, lines
from rewrite_compiler.cosim import Settings
from rewrite_compiler.errors import UsageError
from rewrite_compiler.report.graphics.blocks import html_page, markdown
from rewrite_compiler.report.graphics.sweep import sweep_blocks
from rewrite_compiler.study.designs.sweep import Axis, axes_of, points, sweep
from rewrite_compiler.target import find_target, load_target

TARGETS = [find_target("flexasr"), find_target("hlscnn")]


def test_sets_of_accelerators_are_an_axis() -> None:
    assert axes_of(["accel"], TARGETS) == [Axis("accel", ("flexasr", "hlscnn", "flexasr+hlscnn"))]
    assert axes_of(["accel=flexasr+hlscnn,hlscnn"], TARGETS) == [Axis("accel", ("flexasr+hlscnn", "hlscnn"))]


def test_a_set_must_be_of_the_named_accelerators() -> None:
    with pytest.raises(UsageError) as caught:
        axes_of(["accel=flexasr+vta"], TARGETS)
    assert caught.value.problem.sentence == 'accel must be one of flexasr, hlscnn, flexasr+hlscnn, not "flexasr+vta"'


def test_sets_and_methods_are_not_varied_unless_named() -> None:
    assert all(axis.name.startswith(("flexasr.", "hlscnn.")) for axis in axes_of([], TARGETS))


def test_a_parameter_of_an_accelerator_that_is_left_out_is_not_varied() -> None:
    axes = [Axis("accel", ("flexasr", "hlscnn")), Axis("hlscnn.revision", ("ext8", "ext16")), Axis("calibration-method", ("max",))]
    assert list(points(axes)) == [
        {"accel": "flexasr", "calibration-method": "max"},
        {"accel": "hlscnn", "hlscnn.revision": "ext8", "calibration-method": "max"},
        {"accel": "hlscnn", "hlscnn.revision": "ext16", "calibration-method": "max"},
    ]


def test_a_point_counts_what_samples_leave_on_the_device(tmp_path: Path) -> None:
    """An accumulator that is so narrow that zeros would be nearer is not used: the metric there is that of the host."""
    page = (ROOT / "docs/tutorial/first-accelerator.md").read_text("utf-8")
    text = re.findall(r"```python file=toy.py\n(.*?)```", page, re.DOTALL)[0]
    narrow = "wrap(acc + reduce_sum(lambda j: x(v, j) * w(v, j), LANES), 12)"
    text = text.replace("sat(acc + reduce_sum(lambda j: x(v, j) * w(v, j), LANES), 20)", narrow)
    (tmp_path / "toy.py").write_text(
        text.replace("sources=", 'parameters={"id": ("1",)}, sources=').replace("def build()", "def build(id)")
    )
    app = find_application("digits_mlp")
    toy = load_target(str(tmp_path / "toy.py"))
    settings = Settings(samples=32)
    document = sweep(app.model, [toy], app.data, axes_of([], [toy]), calibrate=app.calibration, settings=settings)
    (point,) = document["points"]
    assert (point["counts"], point["difference"], len(point["out_of_range"])) == ({"toy": {}}, 0, 3)
    assert lines(document)[-1].split("   ")[-1].strip() == "0, 3 out of range"


def test_points_are_drawn_with_their_intervals() -> None:
    found = [
        {"at": {"toy.bits": "20"}, "difference": 0.0, "interval": [-0.04, 0.04]},
        {"at": {"toy.bits": "<14>"}, "difference": -0.11, "interval": [-0.2, -0.03]},
        {"at": {"toy.bits": "2"}, "difference": None, "interval": None},
    ]
    document = {
        "model": {"path": "a/digits.onnx"}, "metric": "top1", "lower_is_better": False, "samples": 100, "reference": {"value": 0.97},
        "over": [{"name": "toy.bits", "values": ["20", "<14>", "2"]}], "points": found,
    }  # fmt: skip
    blocks = list(sweep_blocks(document, ("toy.bits", "top1", *FIGURES), [("20", "0.97", "+0", "-0.04 … +0.04", "3")]))
    page = html_page("digits", blocks)
    assert "&lt;14&gt;: -0.2 … -0.03" in page
    assert "<14>" not in page
    marks, bars = page.count('class="p0"'), page.count('class="held"')
    assert (marks, bars) == (2, 2)
    widths = [float(w) for w in re.findall(r'<rect [^>]*width="([\d.]+)" height="4"', page)]
    assert widths[1] / widths[0] == pytest.approx(0.17 / 0.08, rel=0.01)  # to one scale
    assert "Difference of top1 from the host at every point" in markdown(blocks)
