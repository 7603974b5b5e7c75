"""One small program for every operator, and opaque ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rewrite_compiler.ir.program import OPAQUE, Builder, Node, OpaqueOp, Program, Source, Value
from rewrite_compiler.ir.types import TensorType
from rewrite_compiler.ops.op import AttributeValue

Attributes = Mapping[str, AttributeValue]
IMAGE = (1, 4, 5, 5)
WINDOW = {"strides": (2, 1), "pads": (1, 0, 1, 0), "dilations": (1, 2)}
UNARY = ("relu", "neg", "abs", "exp", "log", "sqrt", "tanh", "erf", "sigmoid", "reciprocal")
BINARY = ("add", "sub", "mul", "div", "pow", "min", "max")
CELL = ((5, 2, 3), (4, 3), (4, 4), (8,), (2, 4))  # x w r b h of a recurrent layer with one gate

# operator → operand shapes and attributes
CASES: dict[str, tuple[Sequence[tuple[int, ...]], Attributes]] = {
    **{name: ([(2, 3)], {}) for name in UNARY},
    **{name: ([(2, 3), (3,)], {}) for name in BINARY},
    "clip": ([(2, 3)], {"low": 0.0, "high": 6.0}),
    "conv": ([IMAGE, (6, 2, 3, 2)], {**WINDOW, "group": 2}),
    "im2col": ([IMAGE], {**WINDOW, "kernel": (3, 2)}),
    "max_pool": ([IMAGE], {**WINDOW, "kernel": (3, 2)}),
    "average_pool": ([IMAGE], {**WINDOW, "kernel": (3, 2), "count_include_pad": 1}),
    "reshape": ([(2, 6)], {"shape": (3, 4)}),
    "transpose": ([(2, 3, 4)], {"perm": (2, 0, 1)}),
    "slice": ([(8, 3)], {"axis": 0, "start": 1, "stop": 7, "step": 2}),
    "concat": ([(2, 3), (4, 3)], {"axis": 0}),
    "pad": ([(2, 3)], {"pads": (0, 1, 2, 0), "value": -1.5}),
    "expand": ([(1, 3)], {"shape": (4, 3)}),
    "gather": ([(5, 3), (2,)], {"axis": 0}),
    "reverse": ([(5, 3)], {"axis": 0}),
    "dense": ([(2, 3), (4, 3)], {}),
    "matmul": ([(2, 3, 4), (4, 5)], {}),
    "bias_add": ([(2, 3), (3,)], {"axis": 1}),
    "scale": ([(2, 3), (2,)], {"axis": 0}),
    "full": ([], {"shape": (2, 3), "value": 0.25}),
    "batch_norm": ([IMAGE, *[(4,)] * 4], {"epsilon": 1e-5}),
    "layer_norm": ([(2, 3), (3,), (3,)], {"axis": 1, "epsilon": 1e-5}),
    "softmax": ([(2, 3)], {"axis": 1}),
    "log_softmax": ([(2, 3)], {"axis": 0}),
    "reduce_mean": ([(2, 3, 4)], {"axes": (0, 2), "keepdims": 1}),
    "reduce_sum": ([(2, 3, 4)], {"axes": (1,), "keepdims": 0}),
    "reduce_max": ([(2, 3, 4)], {"axes": (), "keepdims": 1}),
    "gate_sum": ([(2, 3), (2, 4), (5, 3), (5, 4), (5,), (5,)], {}),
    "lstm": ([(5, 2, 3), (16, 3), (16, 4), (32,), (2, 4), (2, 4)], {}),
    "gru": ([(5, 2, 3), (12, 3), (12, 4), (24,), (2, 4)], {"linear_before_reset": 1}),
    "rnn": (CELL, {"activation": "tanh"}),
    "quantize": ([(2, 3), (3,)], {"axis": 1, "zero": 7, "to": "uint8"}),
    "dequantize": ([(2, 3), (3,)], {"axis": 1, "zero": -7}),
    "requantize": ([(2, 3)], {"multiplier": (3, 5, 9), "shift": (4, 4, 6), "axis": 1, "zero": 128, "low": 128, "high": 255, "to": "uint8"}),
    "quantized_add": (
        [(2, 3), (2, 3)],
        {"multiplier": (5, 3), "shift": (3, 5), "zeros": (128, 7), "zero": 9, "low": 9, "high": 200, "to": "uint8"},
    ),
    "integer_conv": ([IMAGE, (6, 2, 3, 2)], {**WINDOW, "group": 2, "x_zero": 128, "w_zero": -3}),
    "integer_dense": ([(2, 3), (4, 3)], {"x_zero": 128, "w_zero": -3}),
}
# operator → element types of its operands, where these are not all real numbers
DTYPES = {
    "gather": ("float32", "int64"),
    "dequantize": ("int8", "float32"),
    "requantize": ("int32",),
    "quantized_add": ("uint8", "uint8"),
    "integer_conv": ("uint8", "int8"),
    "integer_dense": ("uint8", "int8"),
}


def program_of(op: str) -> Program:
    """Return a program of one node; every result is an output."""
    shapes, attributes = CASES[op]
    made = Builder(op)
    made.sources.append(Source("only", op))
    dtypes = DTYPES.get(op, ("float32",) * len(shapes))
    inputs = [made.input(f"x{n}", TensorType(s, d)) for n, (s, d) in enumerate(zip(shapes, dtypes, strict=True))]
    return made.finish(made.apply(op, inputs, attributes, origins=(0,)))


def opaque(made: Builder, key: str, inputs: Sequence[Value], results: Sequence[TensorType]) -> tuple[Value, ...]:
    """Add an operator the engine does not know."""
    outputs = tuple(made.value(t) for t in results)
    made.opaque[key] = OpaqueOp("TopK", "", key.encode(), "not an operator of the engine")
    made.sources.append(Source(f"opaque_{len(made.sources)}", "TopK"))
    made.node(Node(OPAQUE, tuple(inputs), outputs, (("key", key),), frozenset({len(made.sources) - 1})))
    return outputs


def constant(*shape: int, seed: int = 0) -> np.ndarray:
    """Return reproducible weights."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
