"""Lowerings of fused com.microsoft operators and of attention to the operators that onnxruntime fused."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

from ...ir.program import Value
from ...ops.op import ShapeError
from ..site.context import Unsupported
from ..site.site import Lowering, Site
from .activation import gelu, gelu_of
from .conv import TABLE as CONVOLUTIONS
from .elementwise import binary
from .linear import TABLE as PRODUCTS
from .norm import layer_norm_of, rms_norm

ACTIVATIONS = {"Relu": "relu", "Sigmoid": "sigmoid", "Tanh": "tanh", "": ""}


def _biased_gelu(curve: str) -> Callable[[Site], list[Value]]:
    def lower(site: Site) -> list[Value]:
        site.require_float()
        x = binary(site, "add", site.value(0), site.value(1)) if site.has(1) else site.value(0)
        return [gelu_of(site, x, curve)]

    return lower


def _quick_gelu(site: Site) -> list[Value]:
    site.require_float()
    x = site.value(0)
    gate = site.apply("sigmoid", site.apply("mul", x, site.number(site.get("alpha", 1.702), x, "alpha")))
    return [site.apply("mul", x, gate)]


def _skip_norm(site: Site, scale: int, bias: int | None, addend: int) -> list[Value | None]:
    """Lower a norm of a sum; the sum is returned where it is read, mean and deviation are not supported."""
    site.require_float()
    if any(site.outputs[1:3]):
        raise Unsupported("its mean or deviation is used")
    x = site.apply("add", site.value(0), site.value(1))
    if site.has(addend):
        x = binary(site, "add", x, site.value(addend))
    epsilon = float(site.get("epsilon", 1e-12))
    if bias is None:
        y = site.apply("mul", rms_norm(site, x, epsilon, site.rank(0) - 1), site.value(scale))
    else:
        y = layer_norm_of(site, x, site.value(scale), site.value(bias) if site.has(bias) else None, site.rank(0) - 1, epsilon)
    return [y, None, None, x][: len(site.outputs)]


def _skip_layer_norm(site: Site) -> list[Value | None]:
    return _skip_norm(site, 2, 3, 4)


def _skip_root_mean_square(site: Site) -> list[Value | None]:
    return _skip_norm(site, 2, None, 3)


def _fused_matmul(site: Site) -> list[Value]:
    site.require_float()
    if site.flag("transBatchA") or site.flag("transBatchB"):
        raise Unsupported("it transposes the batch")
    if site.rank(0) < 2 or site.rank(1) < 2:
        raise Unsupported("it multiplies a vector")
    a, b = (_swapped(site, site.value(n)) if site.flag(f"trans{'AB'[n]}") else site.value(n) for n in (0, 1))
    return [_times(site, site.apply("matmul", a, b), float(site.get("alpha", 1.0)), "alpha")]


def _swapped(site: Site, v: Value) -> Value:
    rank = len(site.type(v).shape)
    return site.transpose(v, (*range(rank - 2), rank - 1, rank - 2))


def _times(site: Site, v: Value, factor: float, name: str) -> Value:
    return v if factor == 1.0 else site.apply("mul", v, site.number(factor, v, name))


def _activated(inner: Lowering, operands: int) -> Callable[[Site], list[Value]]:
    """Return the lowering of an operator that is another one followed by an activation."""

    def lower(site: Site) -> list[Value]:
        activation = site.get("activation", "")
        if activation not in ACTIVATIONS:
            raise Unsupported(f"its activation is {activation}")
        if site.has(operands):
            raise Unsupported("it adds a further tensor")
        (y,) = inner(site)
        if y is None:
            raise AssertionError("a product without a result")
        return [site.apply(ACTIVATIONS[activation], y) if activation else y]

    return lower


def _heads(site: Site, v: Value, count: int) -> Value:
    """Return [batch, rows, heads · width] as [batch, heads, rows, width]."""
    batch, rows, width = site.type(v).shape
    if count < 1 or width % count:
        raise ShapeError(f"Heads of {site.op} must divide the width {width}, not be {count}")
    return site.transpose(site.reshape(v, (batch, rows, count, width // count)), (0, 2, 1, 3))


def _rows(site: Site, v: Value) -> Value:
    batch, count, rows, width = site.type(v).shape
    return site.reshape(site.transpose(v, (0, 2, 1, 3)), (batch, rows, count * width))


def attention(site: Site, q: Value, k: Value, v: Value, scale: float, mask: Value | None = None) -> Value:
    """Return softmax(q·kᵀ·scale + mask)·v for q, k, v of shape [batch, heads, rows, width]."""
    scores = _times(site, site.apply("matmul", q, site.transpose(k, (0, 1, 3, 2))), scale, "scale")
    if mask is not None:
        scores = binary(site, "add", scores, mask)
    return site.apply("matmul", site.apply("softmax", scores, axis=3), v)


def _packed_attention(site: Site) -> list[Value]:
    """Lower com.microsoft.Attention: one matrix product projects to queries, keys and values."""
    _check_unmasked(site, 3)
    shape, count = site.shape(0), int(site.get("num_heads", 0))
    width = site.shape(1)[-1] // 3
    if len(shape) != 3 or site.shape(1)[-1] % 3:
        raise Unsupported(f"its operands have the shapes {shape} and {site.shape(1)}")
    packed = site.apply("matmul", site.value(0), site.value(1))
    if site.has(2):
        packed = site.apply("bias_add", packed, site.value(2), axis=2)
    parts = [site.apply("slice", packed, axis=2, start=n * width, stop=(n + 1) * width, step=1) for n in range(3)]
    q, k, v = (_heads(site, part, count) for part in parts)
    scale = float(site.get("scale", 0.0)) or 1 / math.sqrt(width // count)
    return [_rows(site, attention(site, q, k, v, scale))]


def _multi_head_attention(site: Site) -> list[Value]:
    """Lower com.microsoft.MultiHeadAttention on queries, keys and values of rank 3, each with its bias."""
    _check_unmasked(site, 4)
    count = int(site.get("num_heads", 0))
    if [site.rank(n) for n in range(3)] != [3, 3, 3]:
        raise Unsupported("its keys and values are not of rank 3")
    operands = [site.value(n) for n in range(3)]
    if site.has(3):
        ends = np.cumsum([0, *(site.type(v).shape[2] for v in operands)])
        cuts = [site.apply("slice", site.value(3), axis=0, start=int(a), stop=int(b), step=1) for a, b in itertools.pairwise(ends)]
        operands = [site.apply("bias_add", v, b, axis=2) for v, b in zip(operands, cuts, strict=True)]
    q, k, v = (_heads(site, x, count) for x in operands)
    scale = float(site.get("scale", 0.0)) or 1 / math.sqrt(site.type(q).shape[3])
    return [_rows(site, attention(site, q, k, v, scale))]


def _check_unmasked(site: Site, operands: int) -> None:
    site.require_float()
    if any(site.has(n) for n in range(operands, len(site.inputs))):
        raise Unsupported("it has a mask or a past")
    if any(site.outputs[1:]):
        raise Unsupported("its past is used")
    _check_attributes(site, ("num_heads", "scale", "mask_filter_value"))


def _check_attributes(site: Site, supported: Sequence[str]) -> None:
    """Refuse nonzero attributes that are not supported."""
    for name, value in site.attributes.items():
        if name not in supported and value != 0:
            raise Unsupported(f"it has the attribute {name}")


def _attention(site: Site) -> list[Value]:
    """Lower Attention of operator set 23: rank 3 with the number of heads, or rank 4; the mask is additive."""
    site.require_float()
    if any(site.has(n) for n in range(4, len(site.inputs))) or any(site.outputs[1:]):
        raise Unsupported("it has a past")
    _check_attributes(site, ("q_num_heads", "kv_num_heads", "scale"))
    operands, ranks = [site.value(n) for n in range(3)], [site.rank(n) for n in range(3)]
    if ranks not in ([3] * 3, [4] * 3):
        raise ShapeError(f"Queries, keys and values of Attention must all have rank 3 or all rank 4, not {', '.join(map(str, ranks))}")
    counts = [int(site.get(f"{who}_num_heads", 0)) for who in ("q", "kv", "kv")]
    is_flat = ranks[0] == 3
    q, k, v = (_heads(site, x, n) for x, n in zip(operands, counts, strict=True)) if is_flat else operands
    if len({site.type(x).shape[1] for x in (q, k, v)}) != 1:
        raise Unsupported("several heads share keys and values")
    scale = float(site.get("scale", 0.0)) or 1 / math.sqrt(site.type(q).shape[3])
    y = attention(site, q, k, v, scale, site.value(3) if site.has(3) else None)
    return [_rows(site, y) if is_flat else y]


TABLE: dict[str, Lowering] = {"Attention": _attention}
CONTRIB: dict[str, Lowering] = {
    "Gelu": gelu,
    "BiasGelu": _biased_gelu("erf"),
    "FastGelu": _biased_gelu("tanh"),
    "QuickGelu": _quick_gelu,
    "SkipLayerNormalization": _skip_layer_norm,
    "SkipSimplifiedLayerNormalization": _skip_root_mean_square,
    "FusedMatMul": _fused_matmul,
    "FusedGemm": _activated(PRODUCTS["Gemm"], 3),
    "FusedConv": _activated(CONVOLUTIONS["Conv"], 3),
    "Attention": _packed_attention,
    "MultiHeadAttention": _multi_head_attention,
}
