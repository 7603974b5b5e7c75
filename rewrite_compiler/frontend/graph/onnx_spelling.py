"""Lowering of every core operator to plain ONNX operators, operator set 21 and later."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ...errors import InputError
from ...ir.program import Data, Node, Program, Value
from ...ir.types import TensorType
from ...ops.quantised import code_range
from ..file.tensors import CODES
from .writer import Writer


@dataclass(frozen=True)
class NodeExport:
    """One node to be lowered to ONNX: its operands, the names of its results, and the writer of the nodes."""

    program: Program
    node: Node
    results: Sequence[str]
    labels: Sequence[str]  # what the operands are called
    read: Callable[[Value], str]  # the name of a value that the written node reads
    writer: Writer

    def __getitem__(self, attribute: str) -> Any:
        """Return one attribute."""
        return self.node.attribute(attribute)

    @property
    def x(self) -> str:
        """Name of the first operand."""
        return self.read(self.node.inputs[0])

    @property
    def names(self) -> list[str]:
        """Names of all operands; constants among them are written."""
        return [self.read(v) for v in self.node.inputs]

    @property
    def operands(self) -> list[TensorType]:
        """Types of the operands."""
        return [self.program.types[v] for v in self.node.inputs]

    @property
    def result(self) -> TensorType:
        """Type of the first result."""
        return self.program.types[self.node.outputs[0]]

    def emit(self, op_type: str, *inputs: str, **attributes: Any) -> None:
        """Add the node that defines all results."""
        self.writer.node(op_type, inputs, self.results, **attributes)

    def hint(self, suffix: str) -> str:
        """Return a name proposal for an intermediate value."""
        return f"{self.results[0]}.{suffix}"

    def ints(self, values: Sequence[int]) -> str:
        """Return the name of a list of 64-bit integers."""
        return self.writer.integers(values)

    def number(self, suffix: str, value: float, dtype: str) -> str:
        """Return the name of a scalar."""
        return self.writer.literal(self.hint(suffix), scalar_of(value, dtype), dtype)

    def rearranged(self, operand: int, suffix: str, change: Callable[[Data], Data], by_nodes: Callable[[str], str]) -> str:
        """Return the name of an operand with another layout: of the rearranged data if it is constant, else of an added node's result."""
        value = self.node.inputs[operand]
        data = self.program.constants.get(value)
        if data is None:
            return by_nodes(self.read(value))
        return self.writer.derived(f"{self.labels[operand]}.{suffix}", (value, suffix), lambda: change(data), self.operands[operand].dtype)


Exporter = Callable[[NodeExport], None]


def scalar_of(value: float, dtype: str) -> Data:
    """Return a number as an array of rank 0; an element type that numpy lacks is written from a float32."""
    if dtype in ("float64", "float16"):
        return np.array(value, dtype)
    return np.array(int(value), dtype) if "int" in dtype or dtype == "bool" else np.array(value, np.float32)


def export_node(task: NodeExport) -> None:
    """Write the node of `task` in plain ONNX operators.

    Raises:
        InputError: the operator has no expression in ONNX.
    """
    speller = EXPORTERS.get(task.node.op)
    if speller is None:
        raise InputError("F161", f"operator {task.node.op} has no spelling in ONNX", place=f'node "{task.results[0]}"')
    speller(task)


def _plain(op_type: str, task: NodeExport) -> None:
    task.emit(op_type, *task.names)


def _with_attributes(op_type: str, task: NodeExport) -> None:
    attributes = {k: list(v) if isinstance(v, tuple) else v for k, v in task.node.attributes}
    task.emit(op_type, *task.names, **attributes)


def _div(task: NodeExport) -> None:
    if task.result.is_float:
        return task.emit("Div", *task.names)
    # integers round down; ONNX divides toward zero and its Mod has the sign of the divisor
    remainder = task.writer.step(task.hint("rest"), "Mod", *task.names)
    multiple = task.writer.step(task.hint("whole"), "Sub", task.x, remainder)
    return task.emit("Div", multiple, task.names[1])


def _clip(task: NodeExport) -> None:
    dtype = task.result.dtype
    absent = {"low": -math.inf, "high": math.inf}
    bounds = ["" if task[k] == absent[k] else task.number(k, task[k], dtype) for k in absent]
    task.emit("Clip" if any(bounds) else "Identity", task.x, *(bounds if bounds[1] else bounds[:1] if bounds[0] else ()))


def _dense(task: NodeExport) -> None:
    def transpose(w: str) -> str:
        return task.writer.step(task.hint("w"), "Transpose", w, perm=[1, 0])

    task.emit("MatMul", task.x, task.rearranged(1, "transposed", lambda w: w.T, transpose))


def _along(op_type: str, task: NodeExport) -> None:
    axis, rank = int(task["axis"]), len(task.result.shape)
    if axis == rank - 1:
        return task.emit(op_type, *task.names)
    shape = (task.result.shape[axis], *[1] * (rank - 1 - axis))
    return task.emit(op_type, task.x, _reshaped(task, 1, shape))


def _reshaped(task: NodeExport, operand: int, shape: tuple[int, ...]) -> str:
    def reshape(name: str) -> str:
        return task.writer.step(task.hint("reshaped"), "Reshape", name, task.ints(shape))

    return task.rearranged(operand, "x".join(map(str, shape)), lambda data: data.reshape(shape), reshape)


def _full(task: NodeExport) -> None:
    task.emit("Expand", task.number("value", task["value"], task.result.dtype), task.ints(task.result.shape))


def _reshape(task: NodeExport) -> None:
    shape = tuple(task["shape"])
    task.emit("Reshape", task.x, task.ints(shape), **({"allowzero": 1} if 0 in shape else {}))


def _slice(task: NodeExport) -> None:
    task.emit("Slice", task.x, *(task.ints([int(task[k])]) for k in ("start", "stop", "axis", "step")))


def _reverse(task: NodeExport) -> None:
    """Write a slice with step −1 from the last element to before the first."""
    axis = int(task["axis"])
    task.emit("Slice", task.x, *(task.ints([n]) for n in (-1, -1 - task.result.shape[axis], axis, -1)))


def _pad(task: NodeExport) -> None:
    task.emit("Pad", task.x, task.ints(task["pads"]), task.number("fill", task["value"], task.result.dtype))


def _expand(task: NodeExport) -> None:
    task.emit("Expand", task.x, task.ints(task["shape"]))


def _reduce(op_type: str, task: NodeExport) -> None:
    axes = tuple(task["axes"])
    if not axes:  # ONNX reads "no axes" as all axes
        return task.emit("Identity", task.x)
    return task.emit(op_type, task.x, task.ints(axes), keepdims=int(task["keepdims"]))


def _pool(op_type: str, task: NodeExport) -> None:
    attributes: dict[str, Any] = {k: list(task[k]) for k in ("strides", "pads")}
    if any(d != 1 for d in task["dilations"]):  # between codes onnxruntime makes an operator of it that has no dilations
        attributes["dilations"] = list(task["dilations"])
    if op_type == "AveragePool":
        attributes["count_include_pad"] = int(task["count_include_pad"])
    task.emit(op_type, task.x, kernel_shape=list(task["kernel"]), ceil_mode=int(task["ceil"]), **attributes)


def _im2col(task: NodeExport) -> None:
    """Write im2col axis by axis: the taps of an axis are slices, concatenated in front of the channels."""
    kernel, strides, dilations = (tuple(task[k]) for k in ("kernel", "strides", "dilations"))
    x, (batch, channels, *spatial) = _padded(task)
    extents = [(n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(spatial, kernel, strides, dilations, strict=True)]
    for axis, (out, k, s, d) in enumerate(zip(extents, kernel, strides, dilations, strict=True)):
        taps = [_tap(task, x, axis + 2, q * d, out, s) for q in range(k)]
        x = taps[0] if k == 1 else task.writer.step(task.hint("taps"), "Concat", *taps, axis=1)
    # the last axis sliced is the outermost of axis 1
    rank = len(kernel)
    split = (batch, *reversed(kernel), channels, *extents)
    x = task.writer.step(task.hint("split"), "Reshape", x, task.ints(split))
    perm = [0, *range(rank + 2, 2 * rank + 2), rank + 1, *range(rank, 0, -1)]
    x = task.writer.step(task.hint("rows"), "Transpose", x, perm=perm)
    task.emit("Reshape", x, task.ints(task.result.shape))


def _padded(task: NodeExport) -> tuple[str, tuple[int, ...]]:
    shape, pads = task.operands[0].shape, tuple(task["pads"])
    if not any(pads):
        return task.x, shape
    rank = len(shape) - 2
    full = (0, 0, *pads[:rank], 0, 0, *pads[rank:])
    name = task.writer.step(task.hint("padded"), "Pad", task.x, task.ints(full))
    return name, tuple(n + full[a] + full[a + rank + 2] for a, n in enumerate(shape))


def _tap(task: NodeExport, x: str, axis: int, start: int, count: int, step: int) -> str:
    bounds = (start, start + (count - 1) * step + 1, axis, step)
    return task.writer.step(task.hint("tap"), "Slice", x, *(task.ints([n]) for n in bounds))


def _recurrent(op_type: str, task: NodeExport) -> None:
    """Write a recurrent layer with one direction; ONNX has an axis for directions everywhere."""
    w, r, b, *initial = (_reshaped(task, n, (1, *t.shape)) for n, t in enumerate(task.operands) if n)
    attributes: dict[str, Any] = {"hidden_size": task.operands[2].shape[1]}
    if op_type == "GRU":
        attributes["linear_before_reset"] = int(task["linear_before_reset"])
    if op_type == "RNN":
        attributes["activations"] = [str(task["activation"]).capitalize()]
    raw = [task.writer.names.unique(task.hint(f"raw{n}")) for n in range(len(task.results))]
    task.writer.node(op_type, [task.x, w, r, b, "", *initial], raw, **attributes)
    for n, (directed, result) in enumerate(zip(raw, task.results, strict=True)):
        task.writer.node("Squeeze", [directed, task.ints([1 if n == 0 else 0])], [result])


def _gate_sum(task: NodeExport) -> None:
    """Write a sum of two matrix products and two biases."""
    x, h, w, r, a, b = task.names
    parts = []
    for operand, weight in ((x, w), (h, r)):
        transposed = task.writer.step(task.hint("turned"), "Transpose", weight, perm=[1, 0])
        parts.append(task.writer.step(task.hint("product"), "MatMul", operand, transposed))
    products = task.writer.step(task.hint("products"), "Add", *parts)
    task.emit("Add", task.writer.step(task.hint("biased"), "Add", products, a), b)


def _quantize(task: NodeExport) -> None:
    scale, zero = _scale(task, task.result.dtype)
    task.emit("QuantizeLinear", task.x, scale, zero, axis=int(task["axis"]))


def _dequantize(task: NodeExport) -> None:
    scale, zero = _scale(task, task.operands[0].dtype)
    task.emit("DequantizeLinear", task.x, scale, *([] if task.operands[0].dtype == "int32" else [zero]), axis=int(task["axis"]))


def _scale(task: NodeExport, codes: str) -> tuple[str, str]:
    """Return the names of scale and zero point, scalars for per-tensor quantisation."""
    shape = task.operands[1].shape if task.operands[1].size != 1 else ()

    def reshape(name: str) -> str:
        return task.writer.step(task.hint("scale"), "Reshape", name, task.ints(shape))

    scale = task.names[1] if shape else task.rearranged(1, "scalar", lambda data: data.reshape(shape), reshape)
    return scale, task.writer.literal(task.hint("zero"), np.full(shape, int(task["zero"]), codes), codes)


def _requantize(task: NodeExport) -> None:
    """Write requantisation as a float32 product and QuantizeLinear with scale 1, which rounds ties to even."""
    scales = np.array([math.ldexp(m, -n) for m, n in zip(task["multiplier"], task["shift"], strict=True)], np.float32)
    shape = (-1, *[1] * (len(task.result.shape) - 1 - int(task["axis"]))) if scales.size > 1 else ()
    real = task.writer.step(task.hint("real"), "Cast", task.x, to=CODES["float32"])
    scaled = task.writer.step(task.hint("scaled"), "Mul", real, task.writer.literal(task.hint("scale"), scales.reshape(shape), "float32"))
    _emit_codes(task, scaled)


def _emit_codes(task: NodeExport, scaled: str) -> None:
    """Quantise a float32 value with scale 1 and clip it to the bounds of the codes."""
    dtype, low, high = task.result.dtype, int(task["low"]), int(task["high"])
    unit_scale = task.writer.literal(task.hint("one"), np.array(1, np.float32), "float32")
    operands = [scaled, unit_scale, task.number("zero", int(task["zero"]), dtype)]
    if code_range(dtype) == (low, high):
        return task.emit("QuantizeLinear", *operands)
    codes = task.writer.step(task.hint("codes"), "QuantizeLinear", *operands)
    return task.emit("Clip", codes, task.number("low", low, dtype), task.number("high", high, dtype))


def _quantized_add(task: NodeExport) -> None:
    """Write a sum of codes as real numbers in units of the result's scale, rounded with ties to even."""
    real = []
    for n, (name, t) in enumerate(zip(task.names, task.operands, strict=True)):
        scale = task.number(f"scale{n}", math.ldexp(task["multiplier"][n], -task["shift"][n]), "float32")
        real.append(
            task.writer.step(task.hint("real"), "DequantizeLinear", name, scale, task.number(f"zero{n}", task["zeros"][n], t.dtype))
        )
    _emit_codes(task, task.writer.step(task.hint("sum"), "Add", *real))


def _integer_conv(task: NodeExport) -> None:
    attributes = {k: list(task[k]) for k in ("strides", "pads", "dilations")}
    task.emit("ConvInteger", *task.names, *_zero_points(task), group=int(task["group"]), **attributes)


def _zero_points(task: NodeExport) -> list[str]:
    kinds = zip(("x_zero", "w_zero"), task.operands, strict=True)
    return [task.number(name, int(task[name]), t.dtype) for name, t in kinds]


def _integer_dense(task: NodeExport) -> None:
    def transpose(w: str) -> str:
        return task.writer.step(task.hint("w"), "Transpose", w, perm=[1, 0])

    task.emit("MatMulInteger", task.x, task.rearranged(1, "transposed", lambda w: w.T, transpose), *_zero_points(task))


ONE_TO_ONE = {
    "relu": "Relu",
    "neg": "Neg",
    "abs": "Abs",
    "exp": "Exp",
    "log": "Log",
    "sqrt": "Sqrt",
    "tanh": "Tanh",
    "erf": "Erf",
    "sigmoid": "Sigmoid",
    "reciprocal": "Reciprocal",
    "add": "Add",
    "sub": "Sub",
    "mul": "Mul",
    "pow": "Pow",
    "max": "Max",
    "min": "Min",
    "matmul": "MatMul",
}
SAME_ATTRIBUTES = {
    "conv": "Conv",
    "transpose": "Transpose",
    "concat": "Concat",
    "gather": "Gather",
    "batch_norm": "BatchNormalization",
    "layer_norm": "LayerNormalization",
    "softmax": "Softmax",
    "log_softmax": "LogSoftmax",
}
EXPORTERS: dict[str, Exporter] = {
    **{name: partial(_plain, op_type) for name, op_type in ONE_TO_ONE.items()},
    **{name: partial(_with_attributes, op_type) for name, op_type in SAME_ATTRIBUTES.items()},
    "div": _div,
    "clip": _clip,
    "dense": _dense,
    "bias_add": partial(_along, "Add"),
    "scale": partial(_along, "Mul"),
    "full": _full,
    "reshape": _reshape,
    "slice": _slice,
    "pad": _pad,
    "reverse": _reverse,
    "expand": _expand,
    "im2col": _im2col,
    "max_pool": partial(_pool, "MaxPool"),
    "average_pool": partial(_pool, "AveragePool"),
    "reduce_mean": partial(_reduce, "ReduceMean"),
    "reduce_sum": partial(_reduce, "ReduceSum"),
    "reduce_max": partial(_reduce, "ReduceMax"),
    "gate_sum": _gate_sum,
    "quantize": _quantize,
    "dequantize": _dequantize,
    "requantize": _requantize,
    "quantized_add": _quantized_add,
    "integer_conv": _integer_conv,
    "integer_dense": _integer_dense,
    "lstm": partial(_recurrent, "LSTM"),
    "gru": partial(_recurrent, "GRU"),
    "rnn": partial(_recurrent, "RNN"),
}
