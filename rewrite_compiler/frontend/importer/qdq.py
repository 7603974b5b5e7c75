"""Brings models with quantise and dequantise around real operators (QDQ) into the integer form of QLinear operators.

The identities used, each proved by `prove` (rules/quantised.py), for codes p, q of scales s, t:
dequantize(p, s)·dequantize(q, t) = dequantize(p·q, s·t), the same with a bias of scale s·t; quantising commutes with bounds,
and with operators that only move or choose elements; codes that become real numbers and the same codes again are themselves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...ir.program import Builder, Data, Node, Value
from ...ops.op import AttributeValue
from ...ops.quantised import code_range, multiplier_of
from ..normalise.quantised import MAX_TAPS, fits_64_bits, has_constant_divisor
from ..site.context import Absorption, Context, QuantizedTensor
from ..site.zero_point import centred_weights, integer_products

MOVEMENT = frozenset({"reshape", "transpose", "slice", "max_pool"})
BIAS_SCALE_RTOL = 1e-6  # relative: a bias has the scale of its sums, rounded in another order


@dataclass(frozen=True)
class Accumulators:
    """Int32 accumulators that stand for real numbers: their scale, clamp bounds, and the source nodes of the bounds."""

    value: Value
    scale: Data
    axis: int
    low: float = -np.inf
    high: float = np.inf
    origins: frozenset[int] = frozenset()


def integer_form(context: Context, outputs: Sequence[Value]) -> None:
    """Rewrite QDQ patterns of an import to integer operators in place; other values keep their numbers."""
    b = context.builder
    if any(n.op in ("quantize", "dequantize") for n in b.nodes):
        _Pass(context).run(outputs)


class _Pass:
    def __init__(self, context: Context) -> None:
        self.context = context
        self.b: Builder = context.builder
        self.original_nodes = list(self.b.nodes)
        self.producer = {v: n for n in self.original_nodes for v in n.outputs}
        self.sums_of: dict[Value, Accumulators | None] = {}
        self.codes_of: dict[Value, QuantizedTensor | None] = {}

    def run(self, outputs: Sequence[Value]) -> None:
        """Replace every quantize, and products of codes whose real result is used."""
        self.b.nodes.clear()
        original_origins = {o for n in self.original_nodes for o in n.origins}
        for node in self.original_nodes:
            self.b.nodes.append(self.replacement(node) or node)
        self.drop_unread(outputs)
        remaining_origins = {o for n in self.b.nodes for o in n.origins}
        self.context.reasons.update(dict.fromkeys(original_origins - remaining_origins, Absorption.INTEGER_FORM))

    def drop_unread(self, outputs: Sequence[Value]) -> None:
        """Remove dead nodes: those whose results are not needed for the outputs."""
        live_values = set(outputs)
        live_nodes = []
        for node in reversed(self.b.nodes):
            if live_values.intersection(node.outputs):
                live_nodes.append(node)
                live_values.update(node.inputs)
        self.b.nodes[:] = reversed(live_nodes)

    def replacement(self, node: Node) -> Node | None:
        if node.op == "quantize":
            return self.codes_operation(node)
        if node.op in ("conv", "dense", "matmul", "bias_add", "add", "relu", "clip"):
            sums = self.sums(node.outputs[0])
            if sums is not None and np.isinf(sums.low) and np.isinf(sums.high):
                return self.node("dequantize", [sums.value, self.constant(sums.scale)], node, axis=sums.axis, zero=0)
        return None

    def codes_operation(self, node: Node) -> Node | None:
        """Return the integer operation that computes the codes of a quantize, or None."""
        scale, attributes = self.b.constants.get(node.inputs[1]), dict(node.attributes)
        if scale is None or scale.size != 1:
            return None
        to, zero = str(attributes["to"]), int(attributes["zero"])  # type: ignore[arg-type]
        sums = self.sums(node.inputs[0])
        if sums is not None:
            return self.requantization(node, sums, scale, zero, to)
        addition = self.quantized_sum(node, scale, zero, to)
        if addition is not None:
            return addition
        codes = self.codes(node.inputs[0])
        if codes is None or codes.scale.size != 1 or codes.scale != scale or codes.zero != zero or self.b.types[codes.codes].dtype != to:
            return None
        return self.node("reshape", [codes.codes], node, shape=self.b.types[codes.codes].shape)

    def quantized_sum(self, node: Node, scale: Data, zero: int, to: str) -> Node | None:
        """Return the operation for the codes of a sum of two dequantised tensors, clamped or not."""
        low, high, v, origins = -np.inf, np.inf, node.inputs[0], node.origins
        while (producer := self.producer.get(v)) is not None and producer.op in ("relu", "clip"):
            bounds = _bounds_of(producer)
            low, high, v, origins = max(low, bounds[0]), min(high, bounds[1]), producer.inputs[0], origins | producer.origins
        if producer is None or producer.op != "add":
            return None
        operands = [self.codes(x) for x in producer.inputs]
        if any(c is None or c.scale.size != 1 or self.b.types[c.codes].dtype != to for c in operands):
            return None
        x, z = (c for c in operands if c is not None)
        pairs = [multiplier_of(float(np.float32(c.scale.reshape(-1)[0] / scale.reshape(-1)[0]))) for c in (x, z)]
        if self.b.types[x.codes].shape != self.b.types[z.codes].shape or not fits_64_bits(pairs):
            return None
        least, most = (_code(b, scale, zero, *code_range(to)) for b in (low, high))
        multiplier, shift = (tuple(values) for values in zip(*pairs, strict=True))
        operation = self.node(
            "quantized_add", [x.codes, z.codes], node, multiplier=multiplier, shift=shift, zeros=(x.zero, z.zero), zero=zero,
            low=least, high=most, to=to,
        )  # fmt: skip
        return replace(operation, origins=operation.origins | origins | producer.origins)

    def requantization(self, node: Node, sums: Accumulators, scale: Data, zero: int, to: str) -> Node | None:
        factors = np.asarray(sums.scale / scale, np.float32)
        pairs = [multiplier_of(float(x)) for x in factors]
        if any(m <= 0 or not 0 <= n <= 62 for m, n in pairs):
            return None
        least, most = code_range(to)
        low, high = (_code(x, scale, zero, least, most) for x in (sums.low, sums.high))
        multiplier, shift = (tuple(x) for x in zip(*pairs, strict=True))
        operation = self.node(
            "requantize", [sums.value], node, multiplier=multiplier, shift=shift, axis=sums.axis, zero=zero, low=low, high=high, to=to
        )
        return replace(operation, origins=operation.origins | sums.origins)

    def node(self, op: str, inputs: list[Value], instead: Node, **attributes: AttributeValue) -> Node:
        """Return an operation that defines the results of another node."""
        self.b.apply(op, inputs, attributes, origins=instead.origins)
        operation = self.b.nodes.pop()
        return replace(operation, outputs=instead.outputs)

    def apply(self, op: str, inputs: list[Value], origins: frozenset[int], **attributes: AttributeValue) -> Value:
        (v,) = self.b.apply(op, inputs, attributes, origins=origins)
        self.b.names[v] = self.context.unique(f"{op}_{v}")
        return v

    def constant(self, data: Data) -> Value:
        return self.context.constant(np.asarray(data), "integer")

    # -- codes

    def codes(self, v: Value) -> QuantizedTensor | None:
        """Return the codes that a real value is dequantised from, or None."""
        if v not in self.codes_of:
            self.codes_of[v] = self.trace_codes(v)
        return self.codes_of[v]

    def trace_codes(self, v: Value) -> QuantizedTensor | None:
        if v in self.context.dequantized:
            return self.context.dequantized[v]
        node = self.producer.get(v)
        if node is None:
            return None
        if node.op == "dequantize":
            scale, attributes = self.b.constants.get(node.inputs[1]), dict(node.attributes)
            return None if scale is None else QuantizedTensor(node.inputs[0], scale, int(attributes["axis"]), int(attributes["zero"]))  # type: ignore[arg-type]
        if node.op not in MOVEMENT:
            return None
        source = self.codes(node.inputs[0])
        if source is None or source.scale.size != 1 or (node.op == "max_pool" and not self.are_bytes(source.codes)):
            return None  # ONNX has pools of codes of 8 bits only
        return replace(source, codes=self.apply(node.op, [source.codes], node.origins, **dict(node.attributes)))

    # -- sums

    def sums(self, v: Value) -> Accumulators | None:
        """Return the integer accumulators that a real value stands for, or None."""
        if v not in self.sums_of:
            node = self.producer.get(v)
            self.sums_of[v] = None if node is None else self.trace_sums(node)
        return self.sums_of[v]

    def trace_sums(self, node: Node) -> Accumulators | None:
        if node.op in ("conv", "dense", "matmul"):
            return self.products(node)
        if node.op in ("bias_add", "add"):
            return self.biased_sums(node)
        if node.op in ("average_pool", "reduce_mean"):
            return self.means(node)
        if node.op in ("relu", "clip"):
            source = self.sums(node.inputs[0])
            low, high = _bounds_of(node)
            return source and replace(
                source, low=max(source.low, low), high=min(source.high, high), origins=source.origins | node.origins
            )  # fmt: skip
        return None

    def products(self, node: Node) -> Accumulators | None:
        x, w = (self.codes(v) for v in node.inputs)
        if x is None or w is None or x.scale.size != 1 or not self.are_bytes(x.codes, w.codes):
            return None
        along = {"conv": 0, "dense": 0, "matmul": 1}[node.op]
        if (w.scale.size != 1 and w.axis != along) or (node.op == "matmul" and len(self.b.types[w.codes].shape) != 2):
            return None
        rows = self.transposed(w.codes) if node.op == "matmul" else w.codes
        attributes: dict[str, AttributeValue] = {"x_zero": x.zero, "w_zero": w.zero, **dict(node.attributes)}
        op = "integer_conv" if node.op == "conv" else "integer_dense"
        data = self.b.constants.get(rows) if w.zero else None
        if data is None:
            value = self.apply(op, [x.codes, rows], node.origins, **attributes)
        else:
            weights = centred_weights(data, np.asarray(w.zero))
            value = integer_products(
                op, x.codes, weights, attributes, lambda o, v, a: self.apply(o, list(v), node.origins, **a), self.constant
            )
        rank = len(self.b.types[value].shape)
        return Accumulators(value, np.asarray(x.scale * w.scale, np.float32), 1 if node.op == "conv" else rank - 1)

    def means(self, node: Node) -> Accumulators | None:
        """Return means over windows of one size, or over all spatial axes, as sums of codes by channel."""
        x, attributes = self.codes(node.inputs[0]), dict(node.attributes)
        if x is None or x.scale.size != 1 or not self.are_bytes(x.codes):
            return None
        shape = self.b.types[x.codes].shape
        window = _window_of(node.op, attributes, shape)
        if window is None:
            return None
        kernel, places = window
        ones = self.constant(np.ones((shape[1], 1, *kernel), np.int8))
        value = self.apply("integer_conv", [x.codes, ones], node.origins, group=shape[1], x_zero=x.zero, w_zero=0, **places)
        if self.b.types[value].shape != self.b.types[node.outputs[0]].shape:
            value = self.apply("reshape", [value], node.origins, shape=self.b.types[node.outputs[0]].shape)
        return Accumulators(value, np.asarray(x.scale / np.float32(np.prod(kernel)), np.float32), 1)

    def are_bytes(self, *values: Value) -> bool:
        return all(self.b.types[v].dtype in ("int8", "uint8") for v in values)

    def transposed(self, v: Value) -> Value:
        data = self.b.constants.get(v)
        return self.apply("transpose", [v], frozenset(), perm=(1, 0)) if data is None else self.constant(data.T)

    def biased_sums(self, node: Node) -> Accumulators | None:
        """Return accumulators with a bias; an addition is one when its constant lies along the axis of the accumulators."""
        for summand, bias in (node.inputs, node.inputs[::-1]):
            sums, scaled_bias = self.sums(summand), self.context.dequantized.get(bias)
            if sums is None or scaled_bias is None or np.isfinite([sums.low, sums.high]).any():
                continue
            codes = self.bias_codes(sums, scaled_bias, node)
            if codes is not None:
                return replace(sums, value=self.apply("bias_add", [sums.value, codes], node.origins, axis=sums.axis))
        return None

    def bias_codes(self, sums: Accumulators, scaled_bias: QuantizedTensor, node: Node) -> Value | None:
        t, extent = self.b.types[scaled_bias.codes], self.b.types[sums.value].shape[sums.axis]
        if t.dtype != "int32" or t.size != extent or not np.allclose(scaled_bias.scale, sums.scale, rtol=BIAS_SCALE_RTOL, atol=0):
            return None
        if (node.op == "add" and t.shape[-1:] != (extent,)) or (node.op == "bias_add" and dict(node.attributes)["axis"] != sums.axis):
            return None
        data = self.b.constants[scaled_bias.codes]
        return scaled_bias.codes if t.shape == (extent,) else self.constant(data.reshape(extent))


def _bounds_of(node: Node) -> tuple[float, float]:
    """Return the bounds of a relu or clip."""
    bounds: Mapping[str, Any] = {"low": 0.0, "high": np.inf} if node.op == "relu" else dict(node.attributes)
    return float(bounds["low"]), float(bounds["high"])


def _window_of(op: str, attributes: Mapping[str, Any], shape: Sequence[int]) -> tuple[tuple[int, ...], dict[str, AttributeValue]] | None:
    """Return the kernel of a mean and its window attributes; None where windows have differing numbers of elements."""
    rank = len(shape) - 2
    places: dict[str, AttributeValue] = {"strides": (1,) * rank, "pads": (0,) * 2 * rank, "dilations": (1,) * rank}
    if op == "reduce_mean":
        kernel, is_window = tuple(shape[2:]), rank > 0 and sorted(attributes["axes"]) == list(range(2, rank + 2))
    else:
        kernel, is_window = tuple(attributes["kernel"]), has_constant_divisor(attributes, attributes)
        places = {name: attributes[name] for name in places}
    return (kernel, places) if is_window and math.prod(kernel) <= MAX_TAPS else None


def _code(x: float, scale: Data, zero: int, least: int, most: int) -> int:
    """Return the code of a clamp bound of real numbers."""
    if np.isinf(x):
        return least if x < 0 else most
    return int(np.clip(np.rint(np.float32(x) / scale.reshape(-1)[0]) + zero, least, most))
