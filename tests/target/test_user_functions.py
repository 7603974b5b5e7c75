"""A target's functions are its user's code: wrong operands, exceptions and wrong results are told with file and line, never as a bug."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from command import flexmatch
from onnx import TensorProto, helper, numpy_helper

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tutorial" / "first-accelerator.md"
MORE = """

def describe(ila, parameters):
    clock = Clock(100_000_000, "the tutorial")
    memories = (Memory("x", 8, INPUTS * LANES), Memory("w", 8, WEIGHTS * LANES), Memory("y", 8, RESULTS * LANES))
    units = (Unit("core", ("dense",), ("int8",), {"k": LANES}),)
    return Resources(clock, memories, units, (Link("host", "x", 8), Link("host", "w", 8), Link("y", "host", 8)))


target = replace(target, describe=describe)


@dense.costs
def costs(t, k, n, resources):
    return Cost("core", t * k * n // LANES, t * k + k * n + t * n, {"x": t * k, "w": k * n, "y": t * n})


@dense.residency
def residency(t, k, n):
    return Room("x", t * k, "x", (t, k)), Room("w", k * n, "w", lasting=True), Room("y", t * n, "y", (t, n))


@dense.levels
def levels(t, k, n):
    return {"x": {"x": (t * k * n, t * k)}, "w": {"w": (k * n, k * n)}, "y": {"y": (t * n, t * n)}}
"""
# function → its first line with its operands, what it is called in sentences
FUNCTIONS = {
    "build": ("def build()", "model"),
    "describe": ("def describe(ila, parameters)", "resources"),
    "costs": ("def costs(t, k, n, resources)", "costs"),
    "capacities": ("def capacities(t, k, n)", "limits"),
    "levels": ("def levels(t, k, n)", "levels"),
    "residency": ("def residency(t, k, n)", "residency"),
    "drive": ("def drive(device, x, w, f)", "driver"),
    "dense": ("def dense(x: Tensor, w: Tensor)", "mapping|toy.dense"),
    "codes": ("def codes(x, w, f)", "numerics"),
}
FAULTS = {
    "another operand": lambda line: (line.replace("(", "(another, ").replace(", )", ")"), ""),
    "an exception": lambda line: (line, "    raise KeyError('lost')\n"),
    "None": lambda line: (line, "    return None\n"),
    "a text": lambda line: (line, "    return 'a text'\n"),
    "a list of numbers": lambda line: (line, "    return [1, 2.5]\n"),
}
COMMANDS = (
    ("prove", "--accel", "./toy.py", "--no-rules", "--jobs", "1"),
    ("check", "./toy.py", "--groups", "1"),
    ("show", "target", "./toy.py"),
    ("compile", "dense.onnx", "--accel", "./toy.py"),
    ("compile", "dense.onnx", "--accel", "./toy.py", "--objective", "cycles"),
    ("cosim", "dense.onnx", "--accel", "./toy.py", "--data", "data.npz"),
)


def text() -> str:
    """Return the tutorial's accelerator with all functions that a target may have."""
    page = re.search(r"```python file=toy.py\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert page is not None
    names = "Clock, Cost, Limit, Link, Memory, Resources, Room, Target, Unit"
    source = page[1].replace("from rewrite_compiler.target import Limit, Target", f"from rewrite_compiler.target import {names}")
    return source.replace("import math\n", "import math\nfrom dataclasses import replace\n", 1) + MORE


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    numbers = np.random.default_rng(0)
    w = numpy_helper.from_array(numbers.normal(size=(16, 4)).astype(np.float32), "w")
    tensors = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", (1, 16)), ("y", (1, 4)))]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", tensors[:1], tensors[1:], [w])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "dense.onnx")
    np.savez(tmp_path / "data.npz", x=numbers.normal(size=(40, 1, 16)).astype(np.float32), labels=numbers.integers(0, 4, 40))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def answers(source: str) -> list[tuple[int, str]]:
    """Return exit code and words of every command that uses a target."""
    Path("toy.py").write_text(source, "utf-8")
    return [(a.code, a.out + a.err) for a in (flexmatch(*command) for command in COMMANDS)]


def test_the_target_without_faults_passes(folder: Path) -> None:
    assert [code for code, _ in answers(text())] == [0] * len(COMMANDS)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_that_is_wrong_is_told_with_its_line(function: str, fault: str, folder: Path) -> None:
    line, what = FUNCTIONS[function]
    head, body = FAULTS[fault](line)
    source = text()
    start = source.index(line)
    end = source.index(":\n", start) + 2
    source = f"{source[:start]}{head}{source[start + len(line) : end]}{body}{source[end:]}"
    said = answers(source)
    assert all("X100" not in words and "Traceback" not in words for _, words in said), said
    first = source[:start].count("\n") + 1
    refusals = [words for code, words in said if code != 0]
    assert refusals
    assert any(re.search(rf"toy\.py:({first - 1}|{first}|{first + 1})\b", words) for words in refusals), refusals
    assert any(re.search(what, words) for words in refusals), refusals
