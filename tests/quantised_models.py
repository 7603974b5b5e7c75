"""Small quantised networks, written with random weights: a classifier, and a block of a mobile network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper


def quantised_model(path: Path, dtype: Any) -> Path:
    """Write a model of QLinear operators: a padded convolution with scales by channel, and a classifier."""
    random = np.random.default_rng(4)
    zero = int(np.iinfo(dtype).min) + 11
    data = {
        "s": np.float32(0.02), "z": np.asarray(zero, dtype), "w": random.integers(-127, 128, (20, 3, 3, 3)).astype(np.int8),
        "ws": random.uniform(0.001, 0.01, 20).astype(np.float32), "wz": np.zeros(20, np.int8), "ys": np.float32(0.05),
        "yz": np.asarray(zero - 9, dtype), "b": random.integers(-900, 900, 20).astype(np.int32), "shape": np.asarray([1, 320]),
        "m": random.integers(-127, 128, (320, 6)).astype(np.int8), "ms": np.float32(0.002), "mz": np.asarray(0, np.int8),
        "os": np.float32(0.04), "oz": np.asarray(zero + 50, dtype),
    }  # fmt: skip
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("QLinearConv", ["q", "s", "z", "w", "ws", "wz", "ys", "yz", "b"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Reshape", ["c", "shape"], ["r"]),
        helper.make_node("QLinearMatMul", ["r", "ys", "yz", "m", "ms", "mz", "os", "oz"], ["p"]),
        helper.make_node("DequantizeLinear", ["p", "os", "oz"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "quantised", [helper.make_tensor_value_info("x", 1, [1, 3, 8, 8])], [helper.make_tensor_value_info("y", 1, [1, 6])],
        [numpy_helper.from_array(np.asarray(x), n) for n, x in data.items()],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    return path


def residual_model(path: Path, dtype: Any) -> Path:
    """Write a block of a mobile network in codes: convolution, depthwise one, their sum, both pools."""
    random = np.random.default_rng(8)
    zeros = {f"{n}z": np.asarray(int(np.iinfo(dtype).min) + k, dtype) for n, k in zip("scdamg", (100, 9, 30, 77, 77, 50), strict=True)}
    scales = {f"{n}s": np.float32(s) for n, s in zip("scdamg", (0.02, 0.05, 0.0437, 0.0611, 0.0611, 0.021), strict=True)}
    data = {
        **zeros, **scales, "w": random.integers(-127, 128, (20, 3, 3, 3)).astype(np.int8), "wz": np.zeros(20, np.int8),
        "ws": random.uniform(0.001, 0.01, 20).astype(np.float32), "f": random.integers(-127, 128, (20, 1, 3, 3)).astype(np.int8),
        "b": random.integers(-900, 900, 20).astype(np.int32),
    }  # fmt: skip
    around = {"pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "ss", "sz"], ["q"]),
        helper.make_node("QLinearConv", ["q", "ss", "sz", "w", "ws", "wz", "cs", "cz"], ["c"], **around),
        helper.make_node("QLinearConv", ["c", "cs", "cz", "f", "ws", "wz", "ds", "dz", "b"], ["d"], group=20, **around),
        helper.make_node("QLinearAdd", ["c", "cs", "cz", "d", "ds", "dz", "as", "az"], ["a"], domain="com.microsoft"),
        helper.make_node("MaxPool", ["a"], ["m"], kernel_shape=[3, 3], strides=[2, 2], **around),
        helper.make_node("QLinearGlobalAveragePool", ["m", "ms", "mz", "gs", "gz"], ["g"], domain="com.microsoft"),
        helper.make_node("DequantizeLinear", ["g", "gs", "gz"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(n, 1, s) for n, s in (("x", [1, 3, 14, 14]), ("y", [1, 20, 1, 1]))]
    graph = helper.make_graph(nodes, "residual", ends[:1], ends[1:], [numpy_helper.from_array(np.asarray(a), n) for n, a in data.items()])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return path
