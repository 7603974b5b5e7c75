"""Alternatives: plans that one more option gives, the cheapest first, all of them different."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import helper, numpy_helper

from rewrite_compiler.compile import compile_model
from rewrite_compiler.compile.alternatives import alternatives


def test_each_alternative_is_what_its_option_gives(tmp_path: Path) -> None:
    path = tmp_path / "app.onnx"
    draw = np.random.default_rng(0).standard_normal
    weights = [numpy_helper.from_array(draw(s).astype(np.float32), n) for n, s in (("w", (32, 16)), ("b", (32,)))]
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["h"], name="layer", transB=1), helper.make_node("Relu", ["h"], ["y"], name="relu")]
    x, y = helper.make_tensor_value_info("x", 1, [4, 16]), helper.make_tensor_value_info("y", 1, [4, 32])
    graph = helper.make_graph(nodes, "app", [x], [y], weights)
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())
    best = compile_model(path, ["flexasr"])
    found = alternatives(path, ["flexasr"], 5)
    assert [a.option for a in found] == ["--without linear_relu", "--on host=layer"]
    costs = [tuple(best.extraction["cost"].values()), *(a.cost for a in found)]
    assert costs == sorted(costs)
    assert [a.plan.extraction["status"] for a in found] == ["optimal", "optimal"]
    again = compile_model(path, ["flexasr"], found[0].options)
    assert [o.mapping.name for o in again.offloads] == [o.mapping.name for o in found[0].plan.offloads] == ["flexasr.linear"]
