"""Learning: a law that was taken away is found again on a model that needs it, with a certificate."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from command import flexmatch
from onnx import TensorProto, helper

from rewrite_compiler.egraph.saturation.rule_text import compile_rule
from rewrite_compiler.ops import add, bias_add, dense, expand, relu, reshape
from rewrite_compiler.ops.op import Variable
from rewrite_compiler.ops.static import NamedList, as_condition
from rewrite_compiler.rewrite.text_file import rules_of_text
from rewrite_compiler.study.laws.learn import Fragment, _laws, shared_operators


def model(path: Path) -> Path:
    """Write a matrix product of a constant with an input."""
    weight = onnx.numpy_helper.from_array(np.eye(64, 16, dtype=np.float32), "w")
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [2, 3, 16]), ("y", [2, 3, 64]))]
    nodes = [helper.make_node("Transpose", ["w"], ["t"]), helper.make_node("MatMul", ["x", "t"], ["y"])]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_a_law_that_is_missing_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model(Path("m.onnx"))
    answer = flexmatch("learn", "m.onnx", "--accel", "vta", "--without", "flatten-dense", "--json", "-")
    assert (answer.code, answer.err) == (0, "")
    document = json.loads(answer.out)
    (law,) = document["laws"]
    assert (law["verdict"], law["gain"] > 0, document["offloads"]) == ("proved", True, 0)
    (rule,) = rules_of_text(law["text"], "learned.rules")
    Path("learned.rules").write_text(law["text"])
    assert flexmatch("prove", "learned.rules").code == 0
    assert rule.name.startswith("learned-")


def test_every_suggested_law_can_be_matched() -> None:
    """Conditions on the product of a list that is no shape are none that matching has."""
    x, y, shape = Variable("x"), Variable("y"), NamedList("shape")
    guard = (as_condition(x.rank == 4), as_condition(y.rank == 0))
    laws, _ = _laws(Fragment(add(x, expand(y, shape)), {"x": x, "y": y, "shape": shape}, guard, 0))
    assert laws
    assert [compile_rule(law, 0).rule for law in laws] == laws


def test_how_near_a_fragment_is() -> None:
    x, w, b = (Variable(n) for n in "xwb")
    pattern = bias_add(dense(x, w), b, axis=1)
    assert shared_operators(pattern, bias_add(reshape(dense(x, w), (2, 3)), b, axis=1)) == 1
    assert shared_operators(pattern, bias_add(dense(relu(x), w), b, axis=0)) == 2
    assert shared_operators(pattern, add(x, b)) == 0
