"""Shares of the multiply-accumulates count what stays whole on the host, and are bounds where that is not known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from rewrite_compiler.compile import compile_model, to_json
from rewrite_compiler.report.page.html import report_page
from rewrite_compiler.report.page.verdict import verdict_lines
from rewrite_compiler.report.terminal import offload_texts, share

DENSE = "h = MatMul(x, w)"
# what stands behind a product of 2 × 16 × 64: nodes, shape of the result, what is said of the share
CASES = {
    "counted": ("y = MatMulInteger(c, c)", "int32[4, 8, 8]", "50.0% of 4,096 MACs", "50.0% of the multiply-accumulates"),
    "free": ("y = Sin(h)", "float[2, 64]", "100.0% of 2,048 MACs", "0.0% of the multiply-accumulates"),
    "unknown": (
        "y = Det(a)", "float[5]", "less than 100% of at least 2,048 MACs, Det not counted",
        "at least 0.0% of the multiply-accumulates, Det not counted",
    ),
    "both": (
        "z = MatMulInteger(c, c) y = Det(a)", "float[5]", "at most 50.0% of at least 4,096 MACs, Det not counted",
        "at least 50.0% of the multiply-accumulates, Det not counted",
    ),
}  # fmt: skip


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, tuple[str, ...]]:
    """Return the plan of a small model, and what is to be said of it."""
    nodes, shape, *said = CASES[request.param]
    outputs = f"float[2, 64] h, {shape} y" + (", int32[4, 8, 8] z" if "z =" in nodes else "")
    text = f"""<ir_version: 10, opset_import: ["": 21]>
    m (float[2, 16] x, float[5, 3, 3] a, uint8[4, 8, 8] c) => ({outputs}) <float[16, 64] w> {{ {DENSE} {nodes} }}"""
    proto = onnx.parser.parse_model(text)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((16, 64), np.float32), "w"))
    onnx.save(proto, tmp_path / "m.onnx")
    return compile_model(tmp_path / "m.onnx", ["flexasr"]), tuple(said)


def test_shares_count_what_stays_whole(case: tuple[Any, tuple[str, ...]]) -> None:
    plan, (offloaded, left) = case
    document = to_json(plan)
    assert [text.split(" · ")[1] for text in offload_texts(document)] == [offloaded]
    (line,) = [(mark, text) for mark, what, text in verdict_lines(document, None) if what == "on the host"]
    assert line[1].split("; ")[1] == left
    assert (line[0] == "✓") == (offloaded == "100.0% of 2,048 MACs")
    assert document["uncounted"] == [n.name for n in plan.source.sources if n.op_type == "Det"]
    assert offloaded.split(" of ")[0] in report_page(plan, None, document)


def test_what_is_not_all_is_not_called_all() -> None:
    assert [share(9_999, 10_000), share(10_000, 10_000), share(0, 0)] == ["99.9%", "100.0%", "–"]
