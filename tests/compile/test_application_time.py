"""The time of a whole application: the same as the totals of its host nodes and offloads, inserted layout work counted in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from rewrite_compiler.apps import find_application
from rewrite_compiler.compile import Options, compile_model, to_json
from rewrite_compiler.study.designs.totals import Run, totals

CNN = find_application("digits_cnn").model


@pytest.mark.parametrize("accel", ["vta", "hlscnn", "flexasr"])
def test_both_ways_are_the_totals(accel: str) -> None:
    plan = compile_model(CNN, [accel], Options(shapes={"image": (1, 1, 8, 8)}))
    times = to_json(plan)["application"]
    offloads = {o.node.outputs[0]: o for o in plan.offloads}
    on_host = totals(plan.source, lambda _: None).nanoseconds
    assert times["host_nanoseconds"] == pytest.approx(on_host, abs=len(plan.source.nodes) + 1)
    runs = {v: Run(o.tiling.calls, o.price) for v, o in offloads.items()}
    mixed = totals(plan.program, lambda n: runs.get(n.outputs[0]))
    fixed = [n for n in plan.program.nodes if all(v in plan.program.constants for v in n.inputs)]
    constant = totals(replace(plan.program, nodes=tuple(fixed)), lambda _: None).nanoseconds
    assert times["nanoseconds"] == pytest.approx(mixed.nanoseconds - constant, abs=len(plan.program.nodes) + 1)
    assert times["nanoseconds"] > sum(o.price.picoseconds for o in plan.offloads if o.price) // 1000


def test_what_the_host_takes_for_the_same_nodes_has_no_operation_that_only_the_device_needs(tmp_path: Path) -> None:
    """FlexASR's layer has a bias and a tanh: of a product with a tanh behind it the host does not add zeros."""
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"], name="product"), helper.make_node("Tanh", ["h"], ["y"], name="tanh")], "g",
        *([helper.make_tensor_value_info(n, TensorProto.FLOAT, (1, 16))] for n in "xy"),
        [numpy_helper.from_array(np.eye(16, dtype=np.float32), "w")],
    )  # fmt: skip
    path = tmp_path / "layer.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    plan = compile_model(path, "flexasr")
    assert [o.nodes for o in plan.offloads] == [("product", "tanh")]
    document = to_json(plan)
    assert sum(o["cost"]["host_nanoseconds"] for o in document["offloads"]) == document["application"]["host_nanoseconds"]


def test_it_is_not_known_where_a_target_gives_no_cost() -> None:
    plan = compile_model(CNN, ["vta"], Options(shapes={"image": (1, 1, 8, 8)}))
    unpriced = replace(plan, offloads=(replace(plan.offloads[0], price=None), *plan.offloads[1:]))
    assert to_json(unpriced)["application"] is None
