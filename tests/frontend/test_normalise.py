"""Each source operator, written in core operators, gives what onnxruntime gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx_models import agrees, imported, single

from rewrite_compiler.frontend.normalise import LOWERINGS

R = np.random.default_rng(3)
GROUPS = ["reshape", "layer_norm", "reshape", "scale", "bias_add"]
MOVES = ["reshape", "transpose", "reshape"]
OUTSIDE = "a window lies wholly in its padding"
SOFTPLUS = ["abs", "neg", "exp", "add", "log", "relu", "add"]


def normal(*shape: int) -> np.ndarray[Any, Any]:
    """A constant of standard normal elements."""
    return np.asarray(R.standard_normal(shape), np.float32)


def number(x: float) -> np.ndarray[Any, Any]:
    """A constant scalar."""
    return np.asarray(x, np.float32)


def positive(*shape: int) -> np.ndarray[Any, Any]:
    """A constant of elements between ½ and 1½."""
    return (R.random(shape) + 0.5).astype(np.float32)


def ints(*values: int) -> np.ndarray[Any, Any]:
    """A constant of int64 elements."""
    return np.asarray(values, np.int64)


# id → (operator, operands, attributes, the core operations expected)
CASES: dict[str, tuple[str, list[Any], dict[str, Any], list[str]]] = {
    "relu": ("Relu", [(2, 3)], {}, ["relu"]),
    "neg": ("Neg", [(2, 3)], {}, ["neg"]),
    "abs": ("Abs", [(2, 3)], {}, ["abs"]),
    "exp": ("Exp", [(2, 3)], {}, ["exp"]),
    "tanh": ("Tanh", [(2, 3)], {}, ["tanh"]),
    "erf": ("Erf", [(2, 3)], {}, ["erf"]),
    "sigmoid": ("Sigmoid", [(2, 3)], {}, ["sigmoid"]),
    "add": ("Add", [(2, 3, 4), (3, 1)], {}, ["add"]),
    "add constant left": ("Add", [normal(4), (2, 3, 4)], {}, ["add"]),
    "sub": ("Sub", [(2, 3, 4), (4,)], {}, ["sub"]),
    "sub constant left": ("Sub", [normal(4), (2, 3, 4)], {}, ["sub"]),
    "mul scalar": ("Mul", [(2, 3), number(2.5)], {}, ["mul"]),
    "div": ("Div", [(2, 3), positive(3)], {}, ["div"]),
    "pow": ("Pow", [(2, 3), number(3)], {}, ["pow"]),
    "square": ("Pow", [(2, 3), number(2)], {}, ["mul"]),
    "quotient of one": ("Div", [number(1), (2, 3)], {}, ["reciprocal"]),
    "sum of three": ("Sum", [(2, 3), (3,), (2, 1)], {}, ["add", "add"]),
    "sum of one": ("Sum", [(2, 3)], {}, ["reshape"]),
    "max": ("Max", [(2, 3), (3,), (2, 1)], {}, ["max", "max"]),
    "min": ("Min", [(2, 3), (3,)], {}, ["min"]),
    "clip": ("Clip", [(4, 5), number(-0.5), number(0.25)], {}, ["clip"]),
    "clip low": ("Clip", [(4, 5), number(-0.5)], {}, ["clip"]),
    "clip high": ("Clip", [(4, 5), None, number(0.5)], {}, ["clip"]),
    "clip nothing": ("Clip", [(4, 5)], {}, ["clip"]),
    "clip at run time": ("Clip", [(4, 5), (), ()], {}, ["max", "min"]),
    "clip low above high": ("Clip", [(4, 5), number(0.5), number(0.25)], {}, ["clip"]),
    "leaky relu": ("LeakyRelu", [(4, 5)], {"alpha": 0.1}, ["clip", "relu", "mul", "add"]),
    "prelu": ("PRelu", [(4, 5), normal(5)], {}, ["clip", "relu", "mul", "add"]),
    "hard sigmoid": ("HardSigmoid", [(4, 5)], {"alpha": 0.3, "beta": 0.4}, ["mul", "add", "clip"]),
    "hard swish": ("HardSwish", [(4, 5)], {}, ["mul", "add", "clip", "mul"]),
    "gelu": ("Gelu", [(4, 5)], {}, ["mul", "erf", "mul", "add", "mul"]),
    "gelu tanh": ("Gelu", [(4, 5)], {"approximate": "tanh"}, ["mul"] * 6 + ["tanh", "add", "add"]),
    "elu": ("Elu", [(4, 5)], {"alpha": 0.7}, ["clip", "exp", "add", "mul", "relu", "add"]),
    "elu of alpha 1": ("Elu", [(4, 5)], {}, ["clip", "exp", "add", "relu", "add"]),
    "selu": ("Selu", [(4, 5)], {}, ["clip", "exp", "add", "mul", "relu", "add", "mul"]),
    "celu": ("Celu", [(4, 5)], {"alpha": 2.0}, ["reciprocal", "mul", "clip", "exp", "add", "relu", "add", "mul"]),
    "softplus": ("Softplus", [(4, 5)], {}, SOFTPLUS),
    "softsign": ("Softsign", [(4, 5)], {}, ["abs", "add", "div"]),
    "mish": ("Mish", [(4, 5)], {}, [*SOFTPLUS, "tanh", "mul"]),
    "mean": ("Mean", [(2, 3), (3,), (1, 1)], {}, ["add", "add", "mul"]),
    "reduce min": ("ReduceMin", [(2, 3, 4), ints(2, 0)], {}, ["neg", "reduce_max", "neg"]),
    "matmul": ("MatMul", [(2, 1, 3, 4), (5, 4, 2)], {}, ["matmul"]),
    "matmul constant": ("MatMul", [(3, 4), normal(4, 2)], {}, ["matmul"]),
    "matmul vector left": ("MatMul", [(4,), (5, 4, 2)], {}, ["reshape", "matmul", "reshape"]),
    "matmul vector right": ("MatMul", [(5, 2, 4), (4,)], {}, ["reshape", "matmul", "reshape"]),
    "matmul vectors": ("MatMul", [(4,), (4,)], {}, ["reshape", "reshape", "matmul", "reshape"]),
    "gemm": ("Gemm", [(3, 4), normal(4, 5), normal(5)], {}, ["dense", "bias_add"]),
    "gemm transposed": ("Gemm", [(4, 3), normal(5, 4), normal(1, 5)], {"transA": 1, "transB": 1}, ["transpose", "dense", "bias_add"]),
    "gemm at run time": ("Gemm", [(3, 4), (4, 5), (3, 1)], {}, ["transpose", "dense", "add"]),
    "gemm of a row at run time": ("Gemm", [(1, 3), normal(3, 5), (5,)], {}, ["dense", "reshape", "add"]),
    "gemm no c": ("Gemm", [(3, 4), normal(5, 4)], {"transB": 1}, ["dense"]),
    "gemm factors": ("Gemm", [(3, 4), normal(4, 5), normal(5)], {"alpha": 0.5, "beta": 2.0}, ["dense", "mul", "mul", "bias_add"]),
    "gemm scalar c": ("Gemm", [(3, 4), normal(4, 5), normal()], {}, ["dense", "add"]),
    "conv": (
        "Conv", [(2, 4, 7, 8), normal(6, 2, 3, 2), normal(6)], {"group": 2, "strides": [2, 1], "pads": [1, 0, 1, 2]}, ["conv", "bias_add"],
    ),
    "conv dilated": ("Conv", [(1, 2, 9, 9), normal(3, 2, 3, 3)], {"dilations": [2, 3]}, ["conv"]),
    "conv same upper": ("Conv", [(1, 2, 7, 6), normal(3, 2, 4, 3)], {"auto_pad": "SAME_UPPER", "strides": [2, 3]}, ["conv"]),
    "conv same lower": ("Conv", [(1, 2, 7, 6), normal(3, 2, 4, 3)], {"auto_pad": "SAME_LOWER", "strides": [2, 3]}, ["conv"]),
    "conv valid": ("Conv", [(1, 2, 7, 6), normal(3, 2, 4, 3)], {"auto_pad": "VALID"}, ["conv"]),
    "conv 1-D": ("Conv", [(2, 3, 9), normal(4, 3, 3)], {"pads": [1, 1]}, ["conv"]),
    "conv 3-D": ("Conv", [(1, 2, 4, 5, 4), normal(3, 2, 2, 3, 2)], {}, ["conv"]),
    "conv weights at run time": ("Conv", [(1, 2, 5, 5), (3, 2, 3, 3), (3,)], {"kernel_shape": [3, 3]}, ["conv", "bias_add"]),
    "max pool": ("MaxPool", [(1, 2, 7, 8)], {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}, ["max_pool"]),
    "max pool dilated": ("MaxPool", [(1, 2, 9, 8)], {"kernel_shape": [3, 2], "dilations": [2, 3]}, ["max_pool"]),
    "max pool ceil": ("MaxPool", [(1, 2, 7, 8)], {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}, ["max_pool"]),
    "average pool": ("AveragePool", [(1, 2, 7, 8)], {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}, ["average_pool"]),
    "average pool padded": (
        "AveragePool", [(1, 2, 7, 8)], {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "count_include_pad": 1}, ["average_pool"],
    ),
    "average pool without padding": (
        "AveragePool", [(1, 2, 8)], {"kernel_shape": [4], "strides": [4], "count_include_pad": 1}, ["average_pool"],
    ),
    "average pool same": ("AveragePool", [(1, 2, 7)], {"kernel_shape": [3], "strides": [2], "auto_pad": "SAME_UPPER"}, ["average_pool"]),
    "global average": ("GlobalAveragePool", [(2, 3, 4, 5)], {}, ["reduce_mean"]),
    "global max": ("GlobalMaxPool", [(2, 3, 4)], {}, ["reduce_max"]),
    "batch norm": ("BatchNormalization", [(2, 3, 4, 5), normal(3), normal(3), normal(3), positive(3)], {"epsilon": 1e-3}, ["batch_norm"]),
    "layer norm": ("LayerNormalization", [(2, 3, 4), normal(4), normal(4)], {}, ["layer_norm"]),
    "layer norm two axes": ("LayerNormalization", [(2, 3, 4), normal(3, 4), normal(3, 4)], {"axis": -2, "epsilon": 1e-3}, ["layer_norm"]),
    "layer norm wide scale": ("LayerNormalization", [(2, 3, 4), normal(1, 1, 4), normal(4)], {}, ["layer_norm"]),
    "layer norm one scale": ("LayerNormalization", [(2, 3, 4), normal(1), normal(4)], {}, ["expand", "layer_norm"]),
    "layer norm no bias": ("LayerNormalization", [(2, 3, 4), normal(4)], {"axis": 2}, ["layer_norm"]),
    "group norm": (
        "GroupNormalization", [(2, 6, 4, 3), normal(6), normal(6)], {"num_groups": 3}, GROUPS,
    ),
    "instance norm": (
        "InstanceNormalization", [(2, 3, 4, 3), normal(3), normal(3)], {"epsilon": 1e-4}, GROUPS,
    ),
    "softmax": ("Softmax", [(2, 3, 4)], {"axis": 1}, ["softmax"]),
    "softmax last": ("Softmax", [(2, 3, 4)], {}, ["softmax"]),
    "log softmax": ("LogSoftmax", [(2, 3, 4)], {"axis": -2}, ["log_softmax"]),
    "reduce mean": ("ReduceMean", [(2, 3, 4), ints(-1, 0)], {"keepdims": 0}, ["reduce_mean"]),
    "reduce mean all": ("ReduceMean", [(2, 3, 4)], {}, ["reduce_mean"]),
    "reduce nothing": ("ReduceSum", [(2, 3, 4), ints()], {"noop_with_empty_axes": 1}, ["reshape"]),
    "reduce sum": ("ReduceSum", [(2, 3, 4), ints(1)], {}, ["reduce_sum"]),
    "reduce max": ("ReduceMax", [(2, 3, 4), ints(2)], {}, ["reduce_max"]),
    "reduce l1": ("ReduceL1", [(2, 3, 4), ints(2)], {}, ["abs", "reduce_sum"]),
    "reduce l2": ("ReduceL2", [(2, 3, 4), ints(2)], {}, ["mul", "reduce_sum", "sqrt"]),
    "reduce sum of squares": ("ReduceSumSquare", [(2, 3, 4), ints(2)], {}, ["mul", "reduce_sum"]),
    "identity": ("Identity", [(2, 3)], {}, ["reshape"]),
    "dropout": ("Dropout", [(2, 3)], {}, ["reshape"]),
    "cast to itself": ("Cast", [(2, 3)], {"to": 1}, ["reshape"]),
    "reshape": ("Reshape", [(2, 3, 4), ints(0, -1)], {}, ["reshape"]),
    "reshape empty": ("Reshape", [(2, 0, 4), ints(4, 0, 2)], {"allowzero": 1}, ["reshape"]),
    "flatten": ("Flatten", [(2, 3, 4)], {"axis": 2}, ["reshape"]),
    "flatten negative": ("Flatten", [(2, 3, 4)], {"axis": -2}, ["reshape"]),
    "squeeze": ("Squeeze", [(1, 3, 1), ints(-1)], {}, ["reshape"]),
    "squeeze all": ("Squeeze", [(1, 3, 1)], {}, ["reshape"]),
    "unsqueeze": ("Unsqueeze", [(3, 2), ints(0, -1)], {}, ["reshape"]),
    "transpose": ("Transpose", [(2, 3, 4)], {"perm": [2, 0, 1]}, ["transpose"]),
    "transpose reversed": ("Transpose", [(2, 3, 4)], {}, ["transpose"]),
    "concat": ("Concat", [(2, 3), (2, 1), normal(2, 2)], {"axis": -1}, ["concat"]),
    "concat empty": ("Concat", [(2, 3), (2, 0), (2, 2)], {"axis": 1}, ["concat"]),
    "slice": ("Slice", [(5, 9), ints(1, -7), ints(-1, 100), ints(0, 1), ints(1, 2)], {}, ["slice", "slice"]),
    "slice backwards": ("Slice", [(5, 9), ints(-1), ints(-100), ints(1), ints(-3)], {}, ["gather"]),
    "slice reversed": ("Slice", [(5, 9), ints(-1), ints(-100), ints(1), ints(-1)], {}, ["reverse"]),
    "slice reversed in part": ("Slice", [(5, 9), ints(3), ints(0), ints(0), ints(-1)], {}, ["slice", "reverse"]),
    "slice nothing left": ("Slice", [(5, 9), ints(3), ints(2), ints(0)], {}, ["slice"]),
    "pad": ("Pad", [(2, 3), ints(0, 1, 2, 0), number(-1.5)], {}, ["pad"]),
    "pad negative": ("Pad", [(4, 5), ints(-1, 1, 0, -2)], {}, ["slice", "slice", "pad"]),
    "pad axes": ("Pad", [(2, 3), ints(1, 2), None, ints(-1)], {}, ["pad"]),
    "pad reflect": ("Pad", [(3, 4), ints(2, 1, 0, 3)], {"mode": "reflect"}, ["gather", "gather"]),
    "pad edge": ("Pad", [(3, 4), ints(0, 1, 0, 6)], {"mode": "edge"}, ["gather"]),
    "pad wrap": ("Pad", [(3, 4), ints(1, 0, 1, 0)], {"mode": "wrap"}, ["gather"]),
    "pad wrap around twice": ("Pad", [(3, 4), ints(7, 0, 0, 0)], {"mode": "wrap"}, ["gather"]),
    "tile": ("Tile", [(2, 3, 4), ints(3, 1, 2)], {}, ["reshape", "expand", "reshape"]),
    "tile once": ("Tile", [(2, 3), ints(1, 1)], {}, ["reshape"]),
    "tile nothing": ("Tile", [(2, 3), ints(0, 2)], {}, ["reshape", "expand", "reshape"]),
    "unsqueeze one axis": ("Unsqueeze", [(3, 2), np.asarray(-1)], {}, ["reshape"]),
    "expand to one extent": ("Expand", [(3, 1), np.asarray(4)], {}, ["expand"]),
    "expand": ("Expand", [(3, 1), ints(2, 1, 4)], {}, ["expand"]),
    "expand to itself": ("Expand", [(3, 4), ints(4)], {}, ["reshape"]),
    "gather": ("Gather", [(5, 3), ("int64", (2, 2))], {}, ["gather"]),
    "gather constant": ("Gather", [(5, 3), ints(0, -1, 2)], {"axis": 1}, ["gather"]),
    "gather neighbours": ("Gather", [(5, 3), ints(1, 2, -2)], {}, ["slice"]),
    "gather backwards": ("Gather", [(5, 3), ints(2, 1, 0)], {"axis": 1}, ["reverse"]),
    "reverse sequence": ("ReverseSequence", [(5, 2, 3), ints(5, 5)], {}, ["reverse"]),
    "reverse batch first": ("ReverseSequence", [(2, 5), ints(5, 5)], {"time_axis": 1, "batch_axis": 0}, ["reverse"]),
    "gather one": ("Gather", [(5, 3), np.asarray(-2)], {"axis": 1}, ["slice", "reshape"]),
    "depth to space": ("DepthToSpace", [(1, 8, 2, 3)], {"blocksize": 2}, MOVES),
    "depth to space crd": ("DepthToSpace", [(1, 8, 2, 3)], {"blocksize": 2, "mode": "CRD"}, MOVES),
    "space to depth": ("SpaceToDepth", [(1, 2, 4, 6)], {"blocksize": 2}, MOVES),
    "shape": ("Shape", [(2, 3, 4)], {"start": 1}, ["reshape"]),
    "size": ("Size", [(2, 3, 4)], {}, ["reshape"]),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_node_gives_what_onnxruntime_gives(case: tuple[str, list[Any], dict[str, Any], list[str]]) -> None:
    op, operands, attributes, expected = case
    agrees(single(op, operands, **attributes), ops=expected)


@pytest.mark.parametrize("op", ["Log", "Sqrt", "Reciprocal", "ReduceLogSum"])
def test_a_node_on_positive_numbers_gives_what_onnxruntime_gives(op: str) -> None:
    agrees(single(op, [(3, 4)]), values={"x0": positive(3, 4)})


@pytest.mark.parametrize("dtype", ["float64", "float16"])
@pytest.mark.parametrize("op", ["Relu", "Add", "MatMul", "Softmax", "Reshape"])
def test_other_float_types(op: str, dtype: str) -> None:
    if (op, dtype) == ("Reshape", "float64"):
        operands: list[Any] = [(dtype, (2, 3)), ints(6)]
    else:
        operands = [(dtype, (3, 3))] * (2 if op in ("Add", "MatMul") else 1) + ([ints(9)] if op == "Reshape" else [])
    agrees(single(op, operands), tolerance=1e-9 if dtype == "float64" else 2e-3, real=np.dtype(dtype).type)


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", "bool"])
@pytest.mark.parametrize(
    ("op", "rest", "attributes"),
    [("Reshape", [ints(3, 2)], {}), ("Transpose", [], {}), ("Slice", [ints(1), ints(3), ints(1)], {}), ("Gather", [ints(0, 1, 1)], {})],
)
def test_movement_of_integers_is_known(op: str, rest: list[Any], attributes: dict[str, Any], dtype: str) -> None:
    loaded = agrees(single(op, [(dtype, (2, 3)), *rest], **attributes))
    assert not loaded.program.opaque


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Max", "Min", "Relu", "Neg", "Abs"])
def test_integers_of_32_bits_are_computed_with(op: str) -> None:
    """Sums and products wrap, as those of onnxruntime do."""
    operands: list[Any] = [("int32", (2, 4))] * (1 if op in ("Relu", "Neg", "Abs") else 2)
    largest = np.asarray([[2**31 - 1, -(2**31), 7, -7], [1 << 20, 3, -1, 0]], np.int32)
    loaded = agrees(single(op, operands), values={f"x{n}": np.roll(largest, n) for n in range(len(operands))}, tolerance=1e-12)
    assert not loaded.program.opaque


@pytest.mark.parametrize("bounds", [(-5, 6), (7, 3), (None, 1 << 19), (-(2**31), None)])
def test_integers_of_32_bits_are_limited(bounds: tuple[int | None, int | None]) -> None:
    """The upper bound decides where it is below the lower one, as in onnxruntime."""
    operands = [("int32", (2, 4)), *(None if b is None else np.asarray(b, np.int32) for b in bounds)]
    largest = np.asarray([[2**31 - 1, -(2**31), 7, -7], [1 << 20, 3, -1, 0]], np.int32)
    loaded = agrees(single("Clip", operands), values={"x0": largest}, tolerance=1e-12)
    assert not loaded.program.opaque
    assert {n.op for n in loaded.program.nodes} <= {"max", "min"}


def test_every_lowering_is_tested() -> None:
    alone = {"Log", "Sqrt", "Reciprocal", "ReduceLogSum"}
    elsewhere = {"LSTM", "GRU", "RNN", "Constant", "ConstantOfShape", "CastLike", "Split", "Mod"}
    elsewhere |= {"Attention", "Einsum", "RMSNormalization", "SimplifiedLayerNormalization", "ConvTranspose", "Resize"}
    quantised = {"QuantizeLinear", "DequantizeLinear", "QLinearConv", "QLinearMatMul", "MatMulInteger", "ConvInteger"}
    defined = {"Celu", "Mish", "Softsign"}  # by ONNX, in operators that are lowered
    assert ({case[0] for case in CASES.values()} - defined) | alone | elsewhere | quantised == set(LOWERINGS)


@pytest.mark.parametrize(("pads", "counts"), [([0, 0], 0), ([1, 1], 1)], ids=["no padding", "padding"])
def test_whether_padding_counts_is_kept_where_there_is_padding(pads: list[int], counts: int) -> None:
    """PyTorch's exporters always say that padding counts; laws are of pools without padding, for which it says nothing."""
    (pool,) = agrees(single("AveragePool", [(1, 2, 8)], kernel_shape=[4], pads=pads, count_include_pad=1)).program.nodes
    assert pool.attribute("count_include_pad") == counts


# operator, operands, attributes, results → why the host runs it
OPAQUE: dict[str, tuple[str, list[Any], dict[str, Any], int, str]] = {
    "integers": ("Add", [("int64", (2,)), ("int64", (2,))], {}, 1, "it works on int64"),
    "integer quotient": ("Div", [("int32", (2,)), np.asarray([3, 5], np.int32)], {}, 1, "it works on int32"),
    "clip to no number": ("Clip", [(2, 3), number(float("nan"))], {}, 1, "its bounds are nan and inf"),
    "cast": ("Cast", [(2, 3)], {"to": 7}, 1, "it casts float32 to int64"),
    "remainder": ("Mod", [("int64", (2,)), ints(3)], {}, 1, "no core operators express it"),
    "cast like": ("CastLike", [(2, 3), ("int64", (1,))], {}, 1, "it casts to another type"),
    "pad mode": ("Pad", [(3, 4), ints(0, -1, 0, 1)], {"mode": "edge"}, 1, "its mode is edge and it takes elements away"),
    "pad infinite": ("Pad", [(3, 4), ints(1, 1, 1, 1), number(float("inf"))], {}, 1, "it pads with inf"),
    "pool indices": ("MaxPool", [(1, 1, 4, 4)], {"kernel_shape": [2, 2]}, 2, "its indices are used"),
    "pool in padding": (
        "MaxPool", [(1, 1, 2, 2)], {"kernel_shape": [2, 2], "dilations": [3, 3], "pads": [1, 1, 1, 1]}, 1, OUTSIDE,
    ),
    "empty reduction": ("ReduceSum", [(2, 0), ints(1)], {}, 1, "it reduces an empty tensor"),
    "unknown": ("Sin", [(2, 3)], {}, 1, "no core operators express it"),
    "half scales": (
        "QuantizeLinear", [("float16", (2, 3)), np.asarray(0.1, np.float16), np.asarray(3, np.uint8)], {}, 1,
        "its scales are not float32 numbers, one or one for each place of an axis",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", OPAQUE.values(), ids=OPAQUE)
def test_what_is_not_expressed_stays_opaque_with_its_reason(case: tuple[str, list[Any], dict[str, Any], int, str]) -> None:
    op, operands, attributes, results, reason = case
    proto = single(op, operands, results=results, **attributes)
    loaded = agrees(proto) if reason != OUTSIDE else imported(proto)
    assert [(o.op_type, o.reason) for o in loaded.program.opaque.values()] == [(op, reason)]
    assert [n.op for n in loaded.program.nodes] == ["opaque"]


def test_axes_computed_at_run_time_stay_opaque() -> None:
    proto = single("ReduceSum", [(2, 3), ("int64", (1,))])
    proto.graph.output[0].type.tensor_type.elem_type = 1
    for n in (1, 3):
        proto.graph.output[0].type.tensor_type.shape.dim.add(dim_value=n)
    (opaque,) = imported(proto).program.opaque.values()
    assert opaque.reason == 'its axes, "x1", are computed at run time'


def test_a_layer_norm_whose_mean_is_used_is_written_out() -> None:
    loaded = agrees(single("LayerNormalization", [(2, 4), normal(4), normal(4)], results=2))
    assert not loaded.program.opaque
    assert "layer_norm" not in {n.op for n in loaded.program.nodes}
