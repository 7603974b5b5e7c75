"""Lowerings of normalisations and softmax."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ...ir.program import Value
from ...ops.op import ShapeError
from ..site.context import Unsupported
from ..site.site import Lowering, Site


def _batch_normalization(site: Site) -> list[Value]:
    site.require_float()
    if site.flag("training_mode") or any(site.outputs[1:]):
        raise Unsupported("it is in training mode")
    operands = [site.value(n) for n in range(5)]
    return [site.apply("batch_norm", *operands, epsilon=float(site.get("epsilon", 1e-5)))]


def _layer_normalization(site: Site) -> list[Value]:
    site.require_float()
    if any(site.outputs[1:]):
        raise Unsupported("its mean or deviation is used")
    x, shape = site.value(0), site.shape(0)
    axis = site.axis(-1, len(shape))
    if not 0 <= axis < len(shape):
        raise ShapeError(f"axis of LayerNormalization must be in {-len(shape)}…{len(shape) - 1}, not {site.get('axis', -1)}")
    return [layer_norm_of(site, x, site.value(1), site.value(2) if site.has(2) else None, axis, float(site.get("epsilon", 1e-5)))]


def layer_norm_of(site: Site, x: Value, scale: Value, bias: Value | None, axis: int, epsilon: float) -> Value:
    """Return the layer norm over the axes from `axis` on; without a bias it is zero."""
    normalized_shape, dtype = site.type(x).shape[axis:], site.type(x).dtype
    shift = (
        _broadcast_to(site, bias, normalized_shape) if bias is not None else site.constant(np.zeros(normalized_shape, dtype), "zero_bias")
    )
    return site.apply("layer_norm", x, _broadcast_to(site, scale, normalized_shape), shift, axis=axis, epsilon=epsilon)


def _root_mean_square_normalization(site: Site) -> list[Value]:
    """Lower RMSNormalization, and onnxruntime's SimplifiedLayerNormalization."""
    site.require_float()
    if any(site.outputs[1:]) or site.get("stash_type", 1) != 1:
        raise Unsupported("its deviation is used, or computed in another type")
    rank = site.rank(0)
    axis = site.axis(-1, rank)
    if not 0 <= axis < rank:
        raise ShapeError(f"axis of {site.op} must be in {-rank}…{rank - 1}, not {site.get('axis', -1)}")
    y = rms_norm(site, site.value(0), float(site.get("epsilon", 1e-5)), axis)
    return [site.apply("mul", y, site.value(1))]


def rms_norm(site: Site, x: Value, epsilon: float, axis: int) -> Value:
    """Return x / √(mean(x²) + ε), the mean over the axes from `axis` on."""
    axes = tuple(range(axis, len(site.type(x).shape)))
    mean = site.apply("reduce_mean", site.apply("mul", x, x), axes=axes, keepdims=1)
    root = site.apply("sqrt", site.apply("add", mean, site.number(epsilon, x, "epsilon")))
    return site.apply("mul", x, site.apply("reciprocal", root))


def _broadcast_to(site: Site, v: Value, shape: tuple[int, ...]) -> Value:
    operand_shape = site.type(v).shape
    if operand_shape == shape:
        return v
    if math.prod(operand_shape) == math.prod(shape) and len(operand_shape) > len(shape):
        return site.reshape(v, shape)
    return site.apply("expand", v, shape=shape)


def _softmax(op: str) -> Callable[[Site], list[Value]]:
    def lower(site: Site) -> list[Value]:
        site.require_float()
        x, shape = site.value(0), site.shape(0)
        axis = site.axis(-1 if site.version >= 13 else 1, len(shape))
        if not 0 <= axis < max(1, len(shape)):
            raise ShapeError(f"axis of {site.op} must be in {-len(shape)}…{len(shape) - 1}, not {site.get('axis', -1)}")
        if site.version >= 13 or axis == len(shape) - 1 or math.prod(shape[axis + 1 :]) == 1:
            return [site.apply(op, x, axis=axis)]
        # before version 13 the axes from `axis` on were one
        rows = site.reshape(x, (math.prod(shape[:axis]), math.prod(shape[axis:])))
        return [site.reshape(site.apply(op, rows, axis=1), shape)]

    return lower


def _group_normalization(site: Site) -> list[Value]:
    site.require_float()
    x, shape, groups = site.value(0), site.shape(0), int(site.get("num_groups", 0))
    if len(shape) < 3 or groups < 1 or shape[1] % groups:
        raise ShapeError(f"num_groups of GroupNormalization must divide the channels of {shape}, not be {groups}")
    return [_normalized_groups(site, x, groups)]


def _normalized_groups(site: Site, x: Value, groups: int) -> Value:
    shape, dtype = site.type(x).shape, site.type(x).dtype
    rows = site.reshape(x, (shape[0], groups, math.prod(shape[1:]) // groups))
    normalized_shape = site.type(rows).shape[2:]
    ones, zeros = site.constant(np.ones(normalized_shape, dtype), "one"), site.constant(np.zeros(normalized_shape, dtype), "zero")
    flat = site.apply("layer_norm", rows, ones, zeros, axis=2, epsilon=float(site.get("epsilon", 1e-5)))
    y = site.reshape(flat, shape)
    factors = [_per_channel(site, site.value(n), shape[1], groups) for n in (1, 2)]
    return site.apply("bias_add", site.apply("scale", y, factors[0], axis=1), factors[1], axis=1)


def _per_channel(site: Site, v: Value, channels: int, groups: int) -> Value:
    """Return one factor a channel; before version 21 GroupNormalization had one a group."""
    if site.op != "GroupNormalization" or site.version >= 21 or groups == channels:
        return v
    spread = site.apply("expand", site.reshape(v, (groups, 1)), shape=(groups, channels // groups))
    return site.reshape(spread, (channels,))


def _instance_normalization(site: Site) -> list[Value]:
    site.require_float()
    if site.rank(0) < 3:
        raise ShapeError(f"InstanceNormalization needs x[N, C, …], not {site.shape(0)}")
    return [_normalized_groups(site, site.value(0), site.shape(0)[1])]


TABLE: dict[str, Lowering] = {
    "BatchNormalization": _batch_normalization,
    "LayerNormalization": _layer_normalization,
    "RMSNormalization": _root_mean_square_normalization,
    "SimplifiedLayerNormalization": _root_mean_square_normalization,
    "GroupNormalization": _group_normalization,
    "InstanceNormalization": _instance_normalization,
    "Softmax": _softmax("softmax"),
    "LogSoftmax": _softmax("log_softmax"),
}
