"""reduce: the smallest part of a model that shows a problem, with the shapes of the whole."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from command import flexmatch, refused
from onnx import helper, numpy_helper

from rewrite_compiler.apps import find_application
from rewrite_compiler.study.laws import reduce
from rewrite_compiler.study.laws.reduce import CRASH, MISMATCH, Question, reduce_model

ACCEL = ("--accel", "flexasr")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model of nine nodes: Exp and Cos among layers that do not matter."""
    monkeypatch.chdir(tmp_path)
    names = ["x", *"abcdefgh"]
    ops = ["Relu", "MatMul", "Tanh", "Exp", "Relu", "Cos", "Sigmoid", "Softmax"]
    nodes = [
        helper.make_node(op, [names[k], *(["w"] if op == "MatMul" else [])], [names[k + 1]], name=f"{op.lower()}_{k}")
        for k, op in enumerate(ops)
    ]
    nodes.append(helper.make_node("Add", ["h", "d"], ["y"], name="add_8"))
    weights = numpy_helper.from_array(np.ones((6, 6), np.float32), "w")
    shape = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, 6])
    output = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2, 6])
    graph = helper.make_graph(nodes, "app", [shape], [output], [weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "app.onnx")
    return tmp_path


def ops_of(path: Path) -> list[str]:
    return [n.op_type for n in onnx.load(path).graph.node]


def holding(*needed: str) -> Any:
    """Return a run that fails as long as a model has all of some operators, and counts how often it ran."""

    def run(command: Sequence[str], _: Question) -> tuple[int, str]:
        path = next(Path(c) for c in command if c.endswith(".onnx"))
        onnx.checker.check_model(onnx.load(path))  # what is cut is a model
        is_bad = set(needed) <= set(ops_of(path))
        return (5, "error[X100]: internal error: KeyError: 7") if is_bad else (0, "")

    return run


def test_a_crash_is_reduced_to_the_nodes_that_cause_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reduce, "_run", holding("Exp", "Cos"))
    answer = flexmatch("reduce", "app.onnx", "--check", "crash", *ACCEL, "--json", "-")
    assert (answer.code, answer.err, answer.new) == (0, "", ("app.reduced.onnx",))
    document = json.loads(answer.out)
    assert (document["ops_before"], document["ops_after"]) == (9, 2)
    assert document["outcome"] == "internal error: KeyError"
    assert sorted(ops_of(Path("app.reduced.onnx"))) == ["Cos", "Exp"]
    graph = onnx.load("app.reduced.onnx").graph
    assert [[d.dim_value for d in i.type.tensor_type.shape.dim] for i in graph.input] == [[2, 6], [2, 6]]
    assert not graph.initializer


def test_another_crash_is_not_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: Sequence[str], q: Question) -> tuple[int, str]:
        code, said = holding("Exp")(command, q)
        small = len(ops_of(next(Path(c) for c in command if c.endswith(".onnx")))) < 4
        return (code, said.replace("KeyError", "ValueError") if small else said)

    monkeypatch.setattr(reduce, "_run", run)
    found = reduce_model(Path("app.onnx"), Question(CRASH, ("flexasr",)))
    assert (found.ops_after, found.outcome) == (4, "internal error: KeyError")


def test_a_plan_that_differs_from_its_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: Sequence[str], q: Question) -> tuple[int, str]:
        code, _ = holding("Tanh")(command, q)
        return code, "error[X100]: the plan differs from its model by 0.5 of the largest output" if code else ""

    monkeypatch.setattr(reduce, "_run", run)
    found = reduce_model(Path("app.onnx"), Question(MISMATCH, ("flexasr",)))
    assert (found.ops_after, found.outcome) == (1, "the plan differs from its model")
    monkeypatch.setattr(reduce, "_run", lambda command, q: (5, "error[X100]: internal error: KeyError: 7"))
    said = "app.onnx: error[F214]: the model does not show what --check mismatch looks for\n  help: "
    remedy = "run the command that showed it again, and give reduce the same options"
    refused(flexmatch("reduce", "app.onnx", "--check", "mismatch", *ACCEL), 1, said + remedy)


def test_a_node_that_is_not_offloaded() -> None:
    answer = flexmatch("reduce", "app.onnx", "--check", "not-offloaded", "--node", "cos_5", *ACCEL)
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith("app.onnx  9 → 1 ops after ")
    assert ops_of(Path("app.reduced.onnx")) == ["Cos"]
    answer = flexmatch("reduce", "app.onnx", "--check", "not-offloaded", "--node", "matmul_1", *ACCEL)
    assert answer.err.startswith('app.onnx: error[F214]: node "matmul_1" is not on the host\n')


def test_a_command_decides(here: Path) -> None:
    (here / "has.py").write_text("import onnx, sys\nsys.exit('Sigmoid' not in {n.op_type for n in onnx.load(sys.argv[1]).graph.node})\n")
    answer = flexmatch("reduce", "app.onnx", "--check", f"{sys.executable} has.py", "--tests", "5", *ACCEL)
    assert (answer.code, answer.err) == (0, "")
    assert 1 <= int(answer.out.split(" after ")[1].split()[0]) <= 5
    assert "Sigmoid" in ops_of(Path("app.reduced.onnx"))
    missing = flexmatch("reduce", "app.onnx", "--check", "./no-such-program", *ACCEL)
    known = "checks: crash, mismatch, not-offloaded, or a command"
    assert missing.err == f'error[F203]: the check "./no-such-program" cannot be run: No such file or directory\n  help: {known}\n'


def test_weights_and_subgraphs_go_with_their_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(find_application("digits_cnn").model, "digits.onnx")
    monkeypatch.setattr(reduce, "_run", holding("Gemm"))
    found = reduce_model(Path("digits.onnx"), Question(CRASH, ("flexasr",)))
    assert found.ops_after == 1
    graph = onnx.load_model_from_string(found.onnx).graph
    assert {t.name for t in graph.initializer} == set(graph.node[0].input[1:])
