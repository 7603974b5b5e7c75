"""The benchmark of reasons judges by what a changed program gets: true reasons hold, wrong ones are found."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from rewrite_compiler.compile.explanation.host_reasons import Reason
from rewrite_compiler.compile.matching.requirements import AttributeOf, Pinned, ResultOf
from rewrite_compiler.ir.program import Builder
from rewrite_compiler.ir.types import TensorType
from rewrite_compiler.ops.op import Apply
from rewrite_compiler.target import find_target

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import changed_programs  # noqa: E402
import why_not  # noqa: E402

TEXT = """<ir_version: 10, opset_import: ["": 21]>
net (float[1, 8, 6, 6] x) => (float[1, 8, 6, 6] y, float[1, 8, 6, 6] z) {
    c = Conv<group = 8, pads = [1, 1, 1, 1]>(x, w)
    y = Sigmoid(c)
    z = Relu(x)
}"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = onnx.parser.parse_model(TEXT)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((8, 1, 3, 3), np.float32), "w"))
    path = tmp_path_factory.mktemp("model") / "net.onnx"
    onnx.save(model, path)
    return path


def test_reasons_of_a_small_model_are_true(path: Path) -> None:
    c = why_not.compiled(path, find_target("hlscnn"))
    verdicts = {n.op: why_not.verdict(c, n)[:2] for n in c.host_nodes() if n.op != "sigmoid"}
    assert verdicts == {"conv": ("AttributeOf and lowering", True), "relu": ("ResultOf", True)}
    on_vta = why_not.compiled(path, find_target("vta"))
    assert why_not.verdict(on_vta, next(n for n in on_vta.host_nodes() if n.op == "relu"))[:2] == ("Pinned", True)


def test_wrong_reasons_are_found(path: Path) -> None:
    c = why_not.compiled(path, find_target("hlscnn"))
    nodes = {n.op: n for n in c.host_nodes()}
    conv, relu = nodes["conv"], nodes["relu"]
    good = c.reasons.reason(relu)
    (result,) = good.requirements
    assert isinstance(result, ResultOf)
    product = why_not.compiled(path, find_target("vta")).space.mappings
    dense = next(m.rule.left for m in product if m.name == "vta.dense")
    assert isinstance(dense, Apply)
    for node, wrong in (
        (conv, Reason("", (AttributeOf(conv, "strides", (2, 2)),))),
        (relu, replace(good, requirements=(replace(result, pattern=dense),))),
        (nodes["sigmoid"], Reason("", (Pinned("hlscnn"),))),
    ):
        assert not why_not.is_met(c, node, wrong)


def test_an_operator_that_no_operation_has_is_tried_in_many_forms() -> None:
    assert why_not.is_never_taken("hlscnn", "sigmoid", ())
    assert not why_not.is_never_taken("hlscnn", "relu", ())
    assert not why_not.is_never_taken("hlscnn", "add", ())


def test_the_program_around_a_node_has_its_neighbours_readers_and_constants() -> None:
    b = Builder("chain")
    chain = [b.input("x", TensorType((2,), "float32"))]
    for k in range(20):
        chain += b.apply("add", [chain[-1], b.constant(np.full(2, k, np.float32))])
    side = b.apply("add", [chain[9], chain[1]])[0]
    p = b.finish([chain[-1], side])
    part = changed_programs.around(p, p.nodes[9], 2)
    assert [n.outputs[0] for n in part.nodes] == [*chain[8:13], side]
    assert {*part.inputs} == {chain[7], chain[1]}
    assert {*part.outputs} == {chain[12], side}
    assert sorted(float(data[0]) for data in part.constants.values()) == [7, 8, 9, 10, 11]
    assert {n.outputs[0] for n in changed_programs.around(p, p.nodes[9], 30).nodes} == {n.outputs[0] for n in p.nodes}
