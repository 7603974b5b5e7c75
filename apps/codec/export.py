"""The codec as an ONNX model: the transforms are convolutions whose stride is a block, the quantisation is elementwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .transform import BLOCK, MIDDLE, STEPS, cosines

if TYPE_CHECKING:
    from onnx import ModelProto

OPSET, IR_VERSION, SIDE = 17, 8, 32


def to_onnx() -> ModelProto:
    """Return the model with input `image` (1, 1, 32, 32) of values from 0 to 1 and output `restored` of the same shape."""
    from onnx import TensorProto, checker, helper, numpy_helper

    basis = cosines()[:, None]  # orthonormal: the inverse transform is the transposed convolution with it
    constants = {
        "basis": basis, "shift": -MIDDLE * basis.sum((1, 2, 3)), "fineness": 1 / STEPS[:, None, None], "steps": STEPS[:, None, None],
        "middle": np.array([MIDDLE]), "black": np.array(0.0), "white": np.array(1.0),
    }  # fmt: skip
    window = {"kernel_shape": [BLOCK, BLOCK], "strides": [BLOCK, BLOCK]}
    nodes = [
        helper.make_node("Conv", ["image", "basis", "shift"], ["coefficients"], "transform", **window),
        helper.make_node("Mul", ["coefficients", "fineness"], ["ratios"], "divide"),
        helper.make_node("Round", ["ratios"], ["codes"], "quantise"),
        helper.make_node("Mul", ["codes", "steps"], ["rounded"], "multiply"),
        helper.make_node("ConvTranspose", ["rounded", "basis", "middle"], ["levels"], "invert", **window),
        helper.make_node("Clip", ["levels", "black", "white"], ["restored"], "limit"),
    ]
    image, restored = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 1, SIDE, SIDE]) for n in ("image", "restored"))
    tensors = [numpy_helper.from_array(x.astype(np.float32), name) for name, x in constants.items()]
    graph = helper.make_graph(nodes, "codec", [image], [restored], tensors)
    opsets = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="rewrite_compiler.apps.codec")
    checker.check_model(model, full_check=True)
    return model
