"""A model that does not end on the host ends co-simulation with one sentence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from command import flexmatch
from onnx import TensorProto, helper, numpy_helper


def endless() -> onnx.ModelProto:
    """Return a linear layer, and after it a loop that never ends."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["go_in"], ["go"]), helper.make_node("Tanh", ["a_in"], ["a"])],
        "body",
        [helper.make_tensor_value_info(n, t, s) for n, t, s in (("i", 7, ()), ("go_in", 9, ()), ("a_in", 1, (1, 4)))],
        [helper.make_tensor_value_info("go", TensorProto.BOOL, ()), helper.make_tensor_value_info("a", TensorProto.FLOAT, (1, 4))],
    )
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Loop", ["", "yes", "h"], ["y"], body=body)]
    stored = [numpy_helper.from_array(np.ones((16, 4), np.float32), "w"), numpy_helper.from_array(np.asarray(True), "yes")]
    ends = [[helper.make_tensor_value_info(n, TensorProto.FLOAT, s)] for n, s in (("x", (1, 16)), ("y", (1, 4)))]
    return helper.make_model(helper.make_graph(nodes, "g", *ends, stored), opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def test_an_endless_model_ends_cosimulation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(endless(), "m.onnx")
    np.savez("d.npz", x=np.zeros((3, 1, 16), np.float32))
    answer = flexmatch("cosim", "m.onnx", "--accel", "flexasr", "--data", "d.npz", "--calibrate", "d.npz", "--limits", "host_seconds=1")
    assert (answer.code, answer.out) == (4, "")
    assert answer.err.startswith("error[C107]: the model must run on the host within 1 seconds\n")
