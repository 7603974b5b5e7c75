"""Counterfactuals: options that offload a node of the host, each compiled before it is said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import helper, numpy_helper

from rewrite_compiler.cli.main import main
from rewrite_compiler.compile import Options
from rewrite_compiler.compile.counterfactuals import _changes, counterfactuals
from rewrite_compiler.target import load_target


@pytest.fixture
def grouped(tmp_path: Path) -> Path:
    """Return a model of one convolution with four groups of eight channels."""
    path = tmp_path / "app.onnx"
    w = np.random.default_rng(0).standard_normal((32, 8, 3, 3)).astype(np.float32)
    x, y = (helper.make_tensor_value_info(n, 1, [1, 32, k, k]) for n, k in (("x", 4), ("y", 2)))
    node = helper.make_node("Conv", ["x", "w"], ["y"], name="conv", group=4)
    graph = helper.make_graph([node], "app", [x], [y], [numpy_helper.from_array(w, "w")])
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())
    return path


def test_each_name_that_is_left_out_is_taken_back_alone() -> None:
    base = Options(exact=True, without=("linear", "lstm"))
    changed = {option: options for option, _, options in _changes([load_target("flexasr")], "conv", base)}
    assert changed["no --exact"] == replace(base, exact=False)
    assert changed["no --without linear"] == replace(base, without=("lstm",))
    assert changed["no --without lstm"] == replace(base, without=("linear",))
    assert changed["--on flexasr=conv"] == replace(base, on=("flexasr=conv",))


def test_what_would_offload_a_node_is_compiled_and_measured(grouped: Path) -> None:
    found = [str(c) for c in counterfactuals(grouped, ["flexasr"], "conv")]
    assert "with --rules lowering it becomes 2 flexasr.linear, 2 device calls, +100 % MACs" in found


def test_explain_says_it(grouped: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(grouped), "conv", "--accel", "flexasr"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "conv (Conv) stays on the host" in printed
    assert "with --rules lowering it becomes 2 flexasr.linear, 2 device calls, +100 % MACs" in printed
