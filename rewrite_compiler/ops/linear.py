"""Linear operators: dense, matmul and bias."""

from __future__ import annotations

import math
from fractions import Fraction

from ..lang.binders import Array, array, reduce_sum
from ..lang.expr import const
from .elementwise import broadcast, broadcast_read
from .op import Shape, ShapeError, op


def _dense_shape(x: Shape, w: Shape) -> Shape:
    if len(w) != 2 or not x:
        raise ShapeError(f"dense multiplies x[…, k] by w[n, k]; w has shape {w} and x {x}")
    if x[-1] != w[1]:
        raise ShapeError(f"Inner dimensions of dense must agree: x has {x[-1]} and w has {w[1]}")
    return (*x[:-1], w[0])


@op("dense", "x w", _dense_shape, macs=lambda x, w: math.prod(x) * w[0])
def dense(x: Array, w: Array) -> Array:
    """Rows of x times rows of w: y[…, n] = Σ_k x[…, k] · w[n, k]."""
    k = w.shape[1]
    shape = (*x.shape[:-1], w.shape[0])
    return array(lambda *i: reduce_sum(lambda c: x[(*i[:-1], c)] * w[i[-1], c], k), shape)


def _matmul_shape(a: Shape, b: Shape) -> Shape:
    if len(a) < 2 or len(b) < 2:
        raise ShapeError(f"matmul needs operands of rank 2 or more, not {a} and {b}")
    if a[-1] != b[-2]:
        raise ShapeError(f"Inner dimensions of matmul must agree: a has {a[-1]} and b has {b[-2]}")
    return (*broadcast(a[:-2], b[:-2]), a[-2], b[-1])


def _matmul_macs(a: Shape, b: Shape) -> int:
    return math.prod(_matmul_shape(a, b)) * a[-1]


@op("matmul", "a b", _matmul_shape, macs=_matmul_macs)
def matmul(a: Array, b: Array) -> Array:
    """Matrix product over the last two axes, the axes before them broadcast."""
    shape = _matmul_shape(a.shape, b.shape)  # type: ignore[arg-type]
    k = a.shape[-1]

    def element(*i: object) -> object:
        lead, m, n = i[:-2], i[-2], i[-1]
        return reduce_sum(lambda c: broadcast_read(a, (*lead, m, c)) * broadcast_read(b, (*lead, c, n)), k)  # type: ignore[arg-type]

    return array(element, shape)  # type: ignore[arg-type]


def _bias_shape(x: Shape, b: Shape, *, axis: int) -> Shape:
    if not 0 <= axis < len(x):
        raise ShapeError(f"A bias or scale lies along an axis of x; x has {len(x)} axes and the axis is {axis}")
    if b != (x[axis],):
        raise ShapeError(f"A bias or scale along axis {axis} of {x} must have shape ({x[axis]},), not {b}")
    return x


@op("bias_add", "x b", _bias_shape, attributes="axis:int", kind="elementwise")
def bias_add(x: Array, b: Array, *, axis: int) -> Array:
    """Add one bias an element of `axis`: y[…, i, …] = x[…, i, …] + b[i]."""
    return array(lambda *i: x[i] + b[i[axis]], x.shape)


@op("scale", "x s", _bias_shape, attributes="axis:int", kind="elementwise")
def scale(x: Array, s: Array, *, axis: int) -> Array:
    """Multiply by one factor an element of `axis`: y[…, i, …] = x[…, i, …] · s[i]."""
    return array(lambda *i: x[i] * s[i[axis]], x.shape)


@op("full", "", lambda *, shape, value: tuple(shape), attributes="shape:ints value:float", kind="layout")
def full(*, shape: Shape, value: float) -> Array:
    """A tensor whose elements are all `value`."""
    return array(lambda *_: const(Fraction(value)), shape)
