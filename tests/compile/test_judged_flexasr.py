"""A refuted operation of a shipped accelerator: in a copy whose accumulator is too narrow nothing compiles, runs or leaves the tool."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from house import CONTENT, ENGINE, PUBLIC, ROOT
from onnx import TensorProto, helper, numpy_helper

from rewrite_compiler.compile import compile_model, to_json

WIDE = "total = wrap(reduce_sum(product, (count, LANES)), 32)"
COMMANDS = (
    ("compile", "dense.onnx", "--accel", "flexasr"),
    ("cosim", "plan.json", "--data", "x.npz"),
    ("emit", "trace", "plan.json", "--data", "x.npz"),
)

# runs commands in one process, and prints the exit code of each and what it said of errors
ANSWERS = """
import contextlib, io, json, sys
from rewrite_compiler.cli.main import main

answers = []
for command in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
        answers.append([main(command), said.getvalue()])
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a model, its data, its plan by the accelerator as it is, and a copy of the package with an accumulator of 22 bits."""
    folder = tmp_path_factory.mktemp("narrow")
    random = np.random.default_rng(0)
    w = numpy_helper.from_array(random.normal(size=(32, 16)).astype(np.float32), "w")
    tensors = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", (1, 32)), ("y", (1, 16)))]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", tensors[:1], tensors[1:], [w])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "dense.onnx")
    x = random.normal(size=(8, 1, 32)).astype(np.float32)
    np.savez(folder / "x.npz", x=x, labels=x[:, 0].argmax(axis=1) % 16)
    plan = compile_model(folder / "dense.onnx", "flexasr", calibrate={"x": x})
    assert plan.offloads
    assert not plan.notes
    (folder / "plan.json").write_text(json.dumps(to_json(plan)), "utf-8")
    ignored = shutil.ignore_patterns("*.pyc.*")  # what another process compiles just now; what is compiled serves the copy
    for name in (PUBLIC, ENGINE):
        shutil.copytree(ROOT / name, folder / "copy" / name, ignore=ignored)
    for name in CONTENT:
        shutil.copytree(ROOT / name, folder / "copy" / ENGINE / name, ignore=ignored, dirs_exist_ok=True)
    element = folder / "copy" / ENGINE / "ila_models" / "flexasr" / "element.py"
    text = element.read_text("utf-8")
    assert text.count(WIDE) == 1
    element.write_text(text.replace(WIDE, WIDE.replace("32)", "22)")), "utf-8")
    return folder


def test_a_narrow_accumulator_is_refused_by_all_that_makes_or_reads_plans(folder: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(folder / "copy"), "FLEXMATCH_CACHE": str(folder / "cache")}
    ran = subprocess.run([sys.executable, "-c", ANSWERS, json.dumps(COMMANDS)], cwd=folder, env=environment, capture_output=True, text=True)
    answers = json.loads(ran.stdout)
    assert len(answers) == len(COMMANDS)
    for code, said in answers:
        assert code == 1, said
        assert "I105" in said
        assert "operation flexasr.linear is false: driver and numerics differ at" in said
        assert str(folder / "copy") in said  # it is the copy that ran
