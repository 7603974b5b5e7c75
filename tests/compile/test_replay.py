"""Replay: an offload is derived again by the rules that it needs, and an e-node that is wrong is found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import helper, numpy_helper

from rewrite_compiler.compile import Plan, compile_model
from rewrite_compiler.compile.explanation.derivation_check import _Check, check_derivation, subprogram_of
from rewrite_compiler.compile.matching.match import match
from rewrite_compiler.ir.program import Builder
from rewrite_compiler.ir.types import TensorType
from rewrite_compiler.limits import DEFAULT
from rewrite_compiler.rewrite.ruleset import shipped_rules


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    """Return the plan of a convolution with bias and ReLU."""
    draw = np.random.default_rng(0).standard_normal
    weights = [numpy_helper.from_array(draw(s).astype(np.float32), n) for n, s in (("w", (8, 4, 3, 3)), ("b", (8,)))]
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["h"], name="conv"), helper.make_node("Relu", ["h"], ["y"], name="relu")]
    x, y = helper.make_tensor_value_info("x", 1, [1, 4, 5, 5]), helper.make_tensor_value_info("y", 1, [1, 8, 3, 3])
    path: Path = tmp_path_factory.mktemp("replay") / "app.onnx"
    graph = helper.make_graph(nodes, "app", [x], [y], weights)
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())
    return compile_model(path, ["flexasr"])


def test_an_offload_is_derived_again_by_the_rules_it_needs(plan: Plan) -> None:
    (offload,) = plan.offloads
    found = check_derivation(plan, offload)
    assert found.agrees
    assert found.rules is not None
    assert "conv2d-as-dense-of-windows" in found.rules
    assert set(found.rules) <= {r.rule for r in offload.because}
    assert 0 < found.compared < found.e_nodes


def test_an_e_node_in_the_wrong_class_is_found(plan: Plan) -> None:
    (offload,) = plan.offloads
    p = subprogram_of(plan.source, offload.node.origins)
    rules = [r for r in shipped_rules() if r.name in {x.rule for x in offload.because}]
    graph = match(p, rules, [offload.mapping], DEFAULT).saturation.graph
    assert _Check(p, graph, offload.mapping).result()[2] < 1e-9
    number, relu = next((c, n) for c, found in graph.classes.items() for n in found.nodes if n.op == "o_relu")
    wrong = replace(graph.classes[number], nodes=tuple(replace(n, op="o_neg") if n is relu else n for n in graph.classes[number].nodes))
    assert _Check(p, replace(graph, classes={**graph.classes, number: wrong}), offload.mapping).result()[2] > 1e-3


def test_a_subprogram_has_the_nodes_between_its_own_and_no_others() -> None:
    b = Builder("chain")
    values = [b.input("x", TensorType((2, 3)))]
    for n, op in enumerate(("relu", "tanh", "neg", "exp", "sigmoid")):
        values += b.apply(op, [values[-1]], origins=(n,))
    side = b.apply("abs", [values[2]], origins=(7,))
    (total,) = b.apply("add", [values[-1], *side], origins=(8,))
    p = b.finish([total])
    for origins, nodes in (({1, 3}, "tanh neg exp"), ({2}, "neg"), ({1, 8}, "tanh neg exp sigmoid abs add"), ({0, 7}, "relu tanh abs")):
        part = subprogram_of(p, frozenset(origins))
        assert [n.op for n in part.nodes] == nodes.split()
        assert part.inputs == (part.nodes[0].inputs[0],)
