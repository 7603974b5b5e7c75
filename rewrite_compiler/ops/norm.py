"""Normalisations and softmax."""

from __future__ import annotations

from fractions import Fraction

from ..lang.binders import Array, array, reduce_max, reduce_sum
from ..lang.expr import Expr, call, const
from .op import Shape, ShapeError, op


def _batch_norm_shape(x: Shape, scale: Shape, bias: Shape, mean: Shape, variance: Shape, *, epsilon: float) -> Shape:
    if len(x) < 2:
        raise ShapeError(f"batch_norm needs x[N, C, …], not {x}")
    for name, shape in (("scale", scale), ("bias", bias), ("mean", mean), ("variance", variance)):
        if shape != (x[1],):
            raise ShapeError(f"{name} of batch_norm must have shape ({x[1]},), not {shape}")
    return x


@op("batch_norm", "x scale bias mean variance", _batch_norm_shape, attributes="epsilon:float")
def batch_norm(x: Array, scale: Array, bias: Array, mean: Array, variance: Array, *, epsilon: float) -> Array:
    """(x − mean) / √(variance + ε) · scale + bias, by channel (axis 1); inference only."""
    factor = array(lambda c: scale[c] / call("sqrt", variance[c] + const(Fraction(epsilon))), scale.shape)
    return array(lambda *i: (x[i] - mean[i[1]]) * factor[i[1]] + bias[i[1]], x.shape)


def _layer_norm_shape(x: Shape, scale: Shape, bias: Shape, *, axis: int, epsilon: float) -> Shape:
    if not 0 <= axis < len(x):
        raise ShapeError(f"Axis of layer_norm must be in 0…{len(x) - 1}, not {axis}")
    for name, shape in (("scale", scale), ("bias", bias)):
        if shape != x[axis:]:
            raise ShapeError(f"{name} of layer_norm over axes {axis}… of {x} must have shape {x[axis:]}, not {shape}")
    return x


@op("layer_norm", "x scale bias", _layer_norm_shape, attributes="axis:int epsilon:float")
def layer_norm(x: Array, scale: Array, bias: Array, *, axis: int, epsilon: float) -> Array:
    """(x − μ) / √(σ² + ε) · scale + bias over the axes from `axis` on; σ² is the population variance."""
    lead, tail = x.shape[:axis], tuple(int(n) for n in x.shape[axis:])  # type: ignore[arg-type]
    count = 1
    for n in tail:
        count *= n
    mean = array(lambda *i: reduce_sum(lambda *k: x[(*i, *k)], tail) / count, lead)

    def spread(*i: Expr) -> Expr:
        def square(*k: Expr) -> Expr:
            d = x[(*i, *k)] - mean[i]
            return d * d

        return reduce_sum(square, tail) / count

    variance = array(spread, lead)
    inverse = array(lambda *i: 1 / call("sqrt", variance[i] + const(Fraction(epsilon))), lead)
    return array(lambda *i: (x[i] - mean[i[:axis]]) * inverse[i[:axis]] * scale[i[axis:]] + bias[i[axis:]], x.shape)


def _softmax_shape(x: Shape, *, axis: int) -> Shape:
    if not 0 <= axis < len(x):
        raise ShapeError(f"Axis of softmax must be in 0…{len(x) - 1}, not {axis}")
    return x


def _shifted(x: Array, axis: int) -> tuple[Array, Array]:
    """Return x minus its maximum along the axis, and the sum of the exponentials of that."""
    other_extents = (*x.shape[:axis], *x.shape[axis + 1 :])
    top = array(lambda *i: reduce_max(lambda k: x[(*i[:axis], k, *i[axis:])], x.shape[axis]), other_extents)
    low = array(lambda *i: x[i] - top[(*i[:axis], *i[axis + 1 :])], x.shape)
    total = array(lambda *i: reduce_sum(lambda k: call("exp", low[(*i[:axis], k, *i[axis:])]), x.shape[axis]), other_extents)
    return low, total


@op("softmax", "x", _softmax_shape, attributes="axis:int")
def softmax(x: Array, *, axis: int) -> Array:
    """eˣ over its sum along the axis."""
    low, total = _shifted(x, axis)
    return array(lambda *i: call("exp", low[i]) / total[(*i[:axis], *i[axis + 1 :])], x.shape)


@op("log_softmax", "x", _softmax_shape, attributes="axis:int")
def log_softmax(x: Array, *, axis: int) -> Array:
    """The logarithm of softmax."""
    low, total = _shifted(x, axis)
    return array(lambda *i: low[i] - call("log", total[(*i[:axis], *i[axis + 1 :])]), x.shape)
