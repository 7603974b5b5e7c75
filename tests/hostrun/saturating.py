"""A stand-in for onnxruntime on a processor without VNNI: products of uint8 and int8 are added in pairs of 16 bits that saturate.

As measured there: matrix products and QLinearConv of uint8 by int8 saturate, ConvInteger of int8 by uint8, and all that is fused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.lib.stride_tricks import sliding_window_view
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

Array = np.ndarray[Any, Any]
FUSED = 0.9  # by which results of what is fused between codes are wrong
NO_FUSION = "session.disable_quant_qdq"


def products(a: Array, b: Array, a_zero: Array, b_zero: Array, saturate: tuple[str, str] = ("uint8", "int8")) -> Array:
    """Return the matrix product of codes less their zero points; those of operands of the types `saturate` do."""
    rows, columns = a.astype(np.int64), b.astype(np.int64)
    each = rows[..., :, None] * columns
    if (a.dtype.name, b.dtype.name) == saturate:
        odd = each.shape[-2] % 2
        each = np.pad(each, [(0, 0)] * (each.ndim - 2) + [(0, odd), (0, 0)])
        each = each.reshape(*each.shape[:-2], -1, 2, each.shape[-1]).sum(-2).clip(-(1 << 15), (1 << 15) - 1)
    zero = int(np.reshape(a_zero, -1)[0])
    corrected = each.sum(-2) - zero * columns.sum(0) - b_zero.astype(np.int64) * (rows.sum(-1, keepdims=True) - zero * rows.shape[-1])
    return np.asarray(corrected.astype(np.int32))


def windows(
    x: Array, w: Array, x_zero: Array, w_zero: Array, window: Mapping[str, Any], saturate: tuple[str, str] = ("uint8", "int8")
) -> Array:  # fmt: skip
    """Return the convolution of codes less their zero points, undilated, of two axes."""
    group, strides, pads = window["group"] or 1, window["strides"], window["pads"]
    top, left, bottom, right = pads or (0, 0, 0, 0)
    down, across = strides or (1, 1)
    padded = np.pad(x, [(0, 0), (0, 0), (top, bottom), (left, right)], constant_values=np.reshape(x_zero, -1)[0])
    found = []
    for part, filters in zip(np.split(padded, group, 1), np.split(w, group), strict=True):
        seen = sliding_window_view(part, w.shape[2:], (2, 3))[:, :, ::down, ::across].transpose(0, 2, 3, 1, 4, 5)
        flat = seen.reshape(*seen.shape[:3], -1)
        found.append(
            products(flat, filters.reshape(len(filters), -1).T, x_zero, np.reshape(w_zero, -1)[:1], saturate).transpose(0, 3, 1, 2)
        )
    return np.concatenate(found, 1)


def given(zero: Any) -> Array:
    """Return zero points, 0 where they are absent."""
    return np.zeros(1, np.int64) if zero is None else np.asarray(zero)


def codes(sums: Array, factor: Array, zero: Array) -> Array:
    """Return the codes of sums."""
    bounds = np.iinfo(zero.dtype)
    found: Array = np.clip(np.rint(sums.astype(np.float32) * factor.astype(np.float32)) + zero, bounds.min, bounds.max).astype(zero.dtype)
    return found


class MatMulInteger(OpRun):  # type: ignore[misc]
    op_domain = ""

    def _run(self, a: Array, b: Array, a_zero: Any = None, b_zero: Any = None) -> tuple[Array]:
        return (products(a, b, given(a_zero), given(b_zero)),)


class ConvInteger(OpRun):  # type: ignore[misc]
    op_domain = ""

    def _run(self, x: Array, w: Array, x_zero: Any = None, w_zero: Any = None, **how: Any) -> tuple[Array]:
        return (windows(x, w, given(x_zero), given(w_zero), how, ("int8", "uint8")),)


class QLinearMatMul(OpRun):  # type: ignore[misc]
    op_domain = ""

    def _run(self, a: Array, s: Array, a_zero: Array, b: Array, t: Array, b_zero: Array, u: Array, zero: Array) -> tuple[Array]:
        return (codes(products(a, b, a_zero, b_zero), s * t / u, zero),)


class QLinearConv(OpRun):  # type: ignore[misc]
    op_domain = ""

    def _run(
        self, x: Array, s: Array, x_zero: Array, w: Array, t: Array, w_zero: Array, u: Array, zero: Array, *bias: Any, **how: Any
    ) -> tuple[Array]:
        sums = windows(x, w, x_zero, w_zero, how)
        biased = sums + bias[0].reshape(-1, 1, 1) if bias and bias[0] is not None else sums
        return (codes(biased, (s * t / u).reshape(-1, 1, 1), zero),)


class Saturating:
    """A session that evaluates a model by the operators' definitions, but for what such a processor does otherwise."""

    make: Callable[..., Any] = staticmethod(onnxruntime.InferenceSession)

    def __init__(self, source: Any, options: Any, **settings: Any) -> None:
        self.real = self.make(source, options, **settings)
        self.model = onnx.load(source) if isinstance(source, str) else onnx.load_from_string(source)
        self.get_inputs, self.get_outputs = self.real.get_inputs, self.real.get_outputs
        kinds = {n.op_type for n in self.model.graph.node}
        self.is_fused = {"DequantizeLinear", "Conv", "MatMul"} <= kinds and not _has(options, NO_FUSION)

    @staticmethod
    def evaluated(model: Any) -> Any:
        """Return what evaluates a model."""
        proto = onnx.load_from_string(model) if isinstance(model, bytes) else model
        return ReferenceEvaluator(proto, new_ops=[MatMulInteger, ConvInteger, QLinearMatMul, QLinearConv])

    def run(self, wanted: Sequence[str], inputs: Mapping[str, Any], _: Any = None) -> list[Any]:
        """Return the outputs that are wanted."""
        found = self.evaluated(self.model).run(wanted, dict(inputs))
        return [x * np.float32(FUSED) if self.is_fused and x.dtype.kind == "f" else x for x in found]


def _has(options: Any, setting: str) -> bool:
    try:
        return bool(options.get_session_config_entry(setting) == "1")
    except RuntimeError:
        return False
