"""The command line in this process or in one of its own, and small models and data for it."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from rewrite_compiler.cli.main import main

FLEXMATCH = (sys.executable, "-m", "rewrite_compiler.cli.main")


@dataclass(frozen=True)
class Answer:
    """What a command did: exit code, both streams, and the files it left that were not there, byte code of Python's imports apart."""

    code: int
    out: str
    err: str
    new: tuple[str, ...]


def flexmatch(*arguments: object) -> Answer:
    """Run a command in this process, in the working directory."""
    out, err = io.StringIO(), io.StringIO()
    before = set(os.listdir())
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(a) for a in arguments])
    return Answer(code, out.getvalue(), err.getvalue(), tuple(sorted({*os.listdir()} - before)))


def process(*arguments: object, env: dict[str, str] | None = None, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """Run a command in a process of its own."""
    command = [*FLEXMATCH, *map(str, arguments)]
    return subprocess.run(command, env={**os.environ, **(env or {})}, check=False, **({"capture_output": True} | options))


def refused(answer: Answer, code: int, said: str) -> None:
    """Assert that a command ended with one sentence and its remedy, said nothing else, and left nothing behind."""
    assert answer == Answer(code, "", f"{said}\n", ())
    assert said.count("\n  help: ") == 1
    assert "Traceback" not in said


def perceptron(sizes: Sequence[int], *, batch: object = 1, opset: int = 17, seed: int = 0) -> Any:
    """Return a chain of linear layers with ReLU between them, input "x", output "y"."""
    random = np.random.default_rng(seed)
    nodes, constants, last = [], [], "x"
    for n, (k, m) in enumerate(itertools.pairwise(sizes)):
        end = n == len(sizes) - 2
        constants += [
            numpy_helper.from_array(random.normal(0, 0.3, (m, k)).astype(np.float32), f"w{n}"),
            numpy_helper.from_array(random.normal(0, 0.3, m).astype(np.float32), f"b{n}"),
        ]
        nodes.append(helper.make_node("Gemm", [last, f"w{n}", f"b{n}"], ["y" if end else f"h{n}"], name=f"gemm{n}", transB=1))
        if not end:
            nodes.append(helper.make_node("Relu", [f"h{n}"], [f"r{n}"], name=f"relu{n}"))
        last = f"r{n}"
    return onnx_model(nodes, {"x": [batch, sizes[0]]}, ["y"], constants, opset=opset)


def onnx_model(
    nodes: Sequence[Any],
    inputs: dict[str, Sequence[object] | None],
    outputs: Sequence[str],
    constants: Sequence[Any] = (),
    *,
    opset: int = 17,
) -> Any:
    """Return a model with float32 inputs; its outputs are not declared further than by name."""
    declared = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s) for n, s in inputs.items()]
    graph = helper.make_graph(list(nodes), "app", declared, [onnx.ValueInfoProto(name=o) for o in outputs], list(constants))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def samples(path: Path, count: int, width: int, *, classes: int = 0, seed: int = 1) -> Path:
    """Write `count` samples of an input "x" [width], with labels when there are classes."""
    random = np.random.default_rng(seed)
    labels = {"labels": random.integers(0, classes, count)} if classes else {}
    np.savez(path, x=random.normal(0, 1, (count, width)).astype(np.float32), **labels)
    return path
