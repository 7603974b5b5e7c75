"""Small ONNX models in the spellings that exporters use, written to files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

RANDOM = np.random.default_rng(5)


def weight(*shape: int) -> np.ndarray:
    return (RANDOM.standard_normal(shape) / 2).astype(np.float32)


W, WT, B, C = weight(6, 8), weight(8, 6), weight(6), weight(6)
FILTER, SQUARE, SQUARE2 = weight(4, 3, 3, 3), weight(8, 8), weight(8, 8)
GAMMA, MEAN, VARIANCE = weight(4), weight(4), abs(weight(4)) + 1


def node(op: str, inputs: str, output: str, **attributes: Any) -> Any:
    return helper.make_node(op, inputs.split(), output.split(), name=f"{op}_{output.split()[0]}", **attributes)


def written(path: Path, nodes: Sequence[Any], x: Sequence[int], outputs: Sequence[str], **constants: np.ndarray) -> Path:
    """Write a model of one input `x`."""
    graph = helper.make_graph(
        list(nodes), "small", [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(x))],
        [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(onnx.shape_inference.infer_shapes(model).SerializeToString())
    return path


Writer = Callable[[Path], Path]
ROWS, ROW_OF_ROWS, IMAGE = (2, 8), (3, 2, 8), (1, 3, 6, 6)
RESHAPED = np.array([1, -1], np.int64)

# spelling → how it is written, offloads with all rules, offloads with an exact pattern
SPELLINGS: dict[str, tuple[Writer, int, int]] = {
    "Gemm": (lambda p: written(p, [node("Gemm", "x w b", "y", transB=1)], ROWS, ["y"], w=W, b=B), 1, 1),
    "Gemm of an untransposed weight": (lambda p: written(p, [node("Gemm", "x w b", "y")], ROWS, ["y"], w=WT, b=B), 1, 1),
    "MatMul + Add": (lambda p: written(p, [node("MatMul", "x w", "h"), node("Add", "h b", "y")], ROWS, ["y"], w=WT, b=B), 1, 1),
    "Add + MatMul": (lambda p: written(p, [node("MatMul", "x w", "h"), node("Add", "b h", "y")], ROWS, ["y"], w=WT, b=B), 1, 1),
    "MatMul alone": (lambda p: written(p, [node("MatMul", "x w", "y")], ROWS, ["y"], w=WT), 1, 0),
    "MatMul of rank 3": (lambda p: written(p, [node("MatMul", "x w", "h"), node("Add", "h b", "y")], ROW_OF_ROWS, ["y"], w=WT, b=B), 1, 0),
    "Conv": (lambda p: written(p, [node("Conv", "x w b", "y", pads=[1] * 4)], IMAGE, ["y"], w=FILTER, b=weight(4)), 1, 0),
    "Conv + BatchNormalization": (
        lambda p: written(
            p, [node("Conv", "x w", "h"), node("BatchNormalization", "h g m m v", "y")], IMAGE, ["y"], w=FILTER, g=GAMMA, m=MEAN, v=VARIANCE
        ), 1, 0,
    ),
    "depthwise Conv": (lambda p: written(p, [node("Conv", "x w", "y", group=3)], IMAGE, ["y"], w=weight(3, 1, 3, 3)), 0, 0),
    "bias in two steps": (
        lambda p: written(
            p, [node("MatMul", "x w", "h"), node("Add", "h b", "i"), node("Add", "i c", "y")], ROWS, ["y"], w=WT, b=B, c=C
        ), 1, 1,
    ),
    "weight that is not known": (
        lambda p: written(p, [node("Transpose", "x", "t"), node("MatMul", "x t", "y")], ROWS, ["y"]), 0, 0,
    ),
    "nothing linear": (lambda p: written(p, [node("Relu", "x", "h"), node("Softmax", "h", "y")], ROWS, ["y"]), 0, 0),
    "two layers and a shortcut": (
        lambda p: written(
            p,
            [node("Gemm", "x w b", "h", transB=1), node("Relu", "h", "r"), node("Gemm", "r v b", "i", transB=1), node("Add", "i x", "y"),
             node("Sigmoid", "y", "z")],
            ROWS, ["y", "z"], w=SQUARE, v=SQUARE2, b=weight(8),
        ), 2, 2,
    ),
    "an operator that is not known": (
        lambda p: written(
            p, [node("Reshape", "x s", "r"), node("Gemm", "r w b", "g", transB=1), node("TopK", "g k", "y i"), node("Relu", "y", "z")],
            ROWS, ["z"], s=RESHAPED, w=weight(6, 16), b=B, k=np.array([2], np.int64),
        ), 1, 1,
    ),
}  # fmt: skip


# attention on computed queries, keys and values; HEADS stands for leading axes, PERM for the turn of the keys
ATTENTION = """<ir_version: 10, opset_import: ["": 21]>
net (float[HEADS8, 16] q, float[HEADS8, 16] k, float[HEADS8, 16] v) => (float[HEADS8, 16] y) <float c = {0.25}> {
    t = Transpose<perm = [PERM]>(k)
    s = MatMul(q, t)
    z = Mul(s, c)
    p = Softmax<axis = -1>(z)
    y = MatMul(p, v)
}"""
