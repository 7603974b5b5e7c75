"""Emergence: without the laws that read a convolution as a product, general laws of windows and contractions still find it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from rewrite_compiler.compile import Options, compile_model
from rewrite_compiler.prove import prove_rule
from rewrite_compiler.rewrite.ruleset import rules_at

LAWS = Path(__file__).with_name("windows.py")
DIRECT = ("conv1d-as-dense-of-windows", "conv2d-as-dense-of-windows")
GENERAL = ("each-window-as-an-image", "whole-image-as-a-contraction")


def convolution(path: Path, kernel: int, stride: int) -> Path:
    """Write a model of one convolution."""
    w = np.random.default_rng(0).normal(size=(4, 3, kernel, kernel)).astype(np.float32)
    node = helper.make_node("Conv", ["x", "w"], ["y"], name="conv", strides=[stride] * 2, pads=[kernel // 2] * 4)
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", (1, 3, 6, 6)), ("y", None)))
    graph = helper.make_graph([node], "convolution", [x], [y], [numpy_helper.from_array(w, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return path


@pytest.mark.parametrize("rule", rules_at(LAWS), ids=str)
def test_the_general_laws_are_proved(rule: object) -> None:
    assert prove_rule(rule).verdict in ("proved", "verified"), rule  # type: ignore[arg-type]


@pytest.mark.parametrize(("kernel", "stride"), [(1, 1), (3, 1), (3, 2), (1, 2)])
def test_im2col_emerges(kernel: int, stride: int, tmp_path: Path) -> None:
    path = convolution(tmp_path / "conv.onnx", kernel, stride)
    direct = compile_model(path, ["flexasr"])
    without = compile_model(path, ["flexasr"], Options(without=DIRECT))
    assert (direct.counts["flexasr"], without.counts["flexasr"]) == ({"linear": 1}, {})
    emerged = compile_model(path, ["flexasr"], Options(without=DIRECT, rules=(LAWS,), trusted=GENERAL))
    assert emerged.counts["flexasr"] == {"linear": 1}
    assert emerged.extraction["cost"] == direct.extraction["cost"]
    because = [r.rule for r in emerged.offloads[0].because]
    assert set(GENERAL) <= set(because)
    assert not set(DIRECT) & set(because)
    assert emerged.egraph["stop"]["reason"] == "saturated"
