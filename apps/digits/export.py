"""A trained network as an ONNX model with one node per layer and batch size 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .network import Network, Weights

if TYPE_CHECKING:
    from onnx import ModelProto

OPSET, IR_VERSION = 17, 8


def to_onnx(name: str, network: Network, weights: Weights) -> ModelProto:
    """Return the model `name` with input `image` (1, 1, 8, 8) and output `logits` (1, 10)."""
    from onnx import TensorProto, checker, helper, numpy_helper

    nodes, tensors, value = [], [], "image"
    for k, (layer, params) in enumerate(zip(network, weights, strict=True)):
        node = f"{layer.op.lower()}_{k}"
        output = "logits" if k == len(network) - 1 else f"{node}.out"
        inputs = [f"{node}.{i}" for i in layer.inputs]
        tensors += [numpy_helper.from_array(params[i], f"{node}.{i}") for i in layer.inputs]
        nodes.append(helper.make_node(layer.op, [value, *inputs], [output], node, **layer.attributes))
        value = output
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 1, 8, 8])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, 10])
    graph = helper.make_graph(nodes, name, [image], [logits], tensors)
    opsets = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="rewrite_compiler.apps.digits")
    checker.check_model(model, full_check=True)
    return model
