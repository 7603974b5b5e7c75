"""Charts say what they show: names below bars where they fit, round numbers on an axis, the busy share of a lane."""

from __future__ import annotations

import re

import pytest

from rewrite_compiler.report.graphics.charts import error_profile, gantt_chart, ticks
from rewrite_compiler.report.graphics.graph import HOST, Box, Graph, svg


def words(drawing: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", drawing)


@pytest.mark.parametrize(
    ("end", "places"),
    [(0, [0]), (1, [0, 0.2, 0.4, 0.6, 0.8, 1]), (7, [0, 2, 4, 6]), (36_391, [0, 10_000, 20_000, 30_000]), (60, [0, 20, 40, 60])],
)
def test_an_axis_has_round_numbers(end: float, places: list[float]) -> None:
    assert ticks(end) == pytest.approx(places)


def test_a_lane_has_its_name_its_share_and_the_axis_its_unit() -> None:
    drawing = gantt_chart("t", 200.0, {"load": [(0, 20), (100, 130)], "compute": [(20, 200)]}, "cycles")
    assert words(drawing) == ["0", "50", "100", "150", "200", "load", "25%", "compute", "90%", "cycles"]


def test_bars_have_names_where_these_fit() -> None:
    few, many = (error_profile("e", [(f"offload_{n}", 0.1, 0.2) for n in range(count)]) for count in (4, 60))
    assert {f"offload_{n}" for n in range(4)} <= {*words(few)}
    assert not [w for w in words(many) if w.startswith("offload")]
    assert "offload_59: 10%, all up to here 20%" in many


def test_an_edge_has_the_extents_of_what_it_carries() -> None:
    boxes = (Box("a", "Conv", HOST, "", (), "float32[1, 16, 8, 8]", (), "1×16×8×8"), Box("b", "Relu", HOST, "", (), "float32[4]", (), "4"))
    drawing = svg(Graph(boxes, ((0, 1),)), ())
    assert words(drawing) == ["1×16×8×8", "Conv", "a", "Relu", "b"]  # nothing reads what the last box gives
    assert drawing.count('marker-end="url(#arrow)"') == 1
