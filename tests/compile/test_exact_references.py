"""Quantised models compile on a processor whose products of uint8 and int8 saturate, and the user is told what differs there."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

from rewrite_compiler.compile import compile_model, plan_onnx
from rewrite_compiler.compile.verify import PlanDiffers, check_plan
from rewrite_compiler.hostrun import has_wide_weights, saturates, session

sys.path.append(str(Path(__file__).parents[1] / "hostrun"))
from saturating import Saturating

NET = """<ir_version: 10, opset_import: ["": 21]>
net (float[1, 3, 8, 8] x) => (float[1, 10] y) <float[16, 3, 3, 3] w, float[16] b, float[256, 16] m, float[16, 10] n> {
    a = Conv<pads = [1, 1, 1, 1], strides = [2, 2]>(x, w, b)
    p = Relu(a)
    f = Flatten(p)
    h = MatMul(f, m)
    r = Relu(h)
    y = MatMul(r, n)
}"""
# as onnxruntime's quantiser makes them by default, in its three ways
WAYS: dict[str, dict[str, Any]] = {
    "QDQ": {},
    "QDQ by channel": {"activation_type": QuantType.QInt8, "weight_type": QuantType.QInt8, "per_channel": True},
    "QOperator": {"quant_format": QuantFormat.QOperator, "activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8},
}


SAID = re.compile(
    r"onnxruntime with its own settings gives other numbers on this processor, by up to (0\.\d+) of the largest value of y \((.*)\): (.*)"
)


class Samples(CalibrationDataReader):  # type: ignore[misc]
    """A few samples for the quantiser."""

    def __init__(self) -> None:
        random = np.random.default_rng(1)
        self.left = [{"x": random.normal(0, 1, (1, 3, 8, 8)).astype(np.float32)} for _ in range(4)]

    def get_next(self) -> Any:
        return self.left.pop() if self.left else None


@pytest.fixture(params=WAYS)
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a network as onnxruntime quantises it."""
    proto, random = onnx.parser.parse_model(NET), np.random.default_rng(2)
    for info in proto.graph.value_info:
        shape = [d.dim_value for d in info.type.tensor_type.shape.dim]
        proto.graph.initializer.append(onnx.numpy_helper.from_array(random.choice((-0.4, 0.1, 0.4), shape).astype(np.float32), info.name))
    del proto.graph.value_info[:]
    onnx.save(proto, tmp_path / "float.onnx")
    quantize_static(str(tmp_path / "float.onnx"), str(tmp_path / "m.onnx"), Samples(), **WAYS[request.param])
    return tmp_path / "m.onnx"


@pytest.mark.parametrize(
    ("weights", "is_wide"),
    [(np.int8([[64, -64]]), False), (np.int8([[65, 0]]), True), (np.int8([[-128, 0]]), True), (np.uint8([[255, 255]]), False),
     (np.float32([[9, 9]]), True), (np.int8([127, 127]), True)],
)  # fmt: skip
def test_small_or_unsigned_weights_cannot_saturate(weights: Any, is_wide: bool) -> None:
    """Weights that the model does not have as codes may be anything; a list of codes is no matrix of them."""
    proto = onnx.ModelProto()
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    assert has_wide_weights(proto.SerializeToString()) is is_wide


@pytest.fixture
def without_vnni(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let sessions compute as on a processor without VNNI."""
    monkeypatch.setattr(onnxruntime, "InferenceSession", Saturating)
    saturates.cache_clear()
    yield
    saturates.cache_clear()


def test_a_quantised_model_gets_a_plan_where_products_saturate(model: Path, without_vnni: None, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = compile_model(model, ["vta"])
    assert plan.counts.get("vta")
    content = plan_onnx(plan)
    checked = check_plan(plan, content, model)
    assert (checked.against, checked.relative_difference) == ("model", 0)
    start, operators, end = SAID.fullmatch(checked.defaults).groups()  # type: ignore[union-attr]
    assert 0.01 < float(start) < 1
    assert operators == (
        "QLinearConv, QLinearMatMul" if "Linear" in operators and "De" not in operators else "DequantizeLinear, QuantizeLinear"
    )
    assert end == "without VNNI its sums of products of uint8 and int8 saturate in 16 bits"
    monkeypatch.setattr(session, "with_unsigned_codes", lambda data: data)
    monkeypatch.setattr(session, "EXACT", {})
    with pytest.raises(PlanDiffers, match="the plan differs from its model by"):
        check_plan(plan, content, model)
