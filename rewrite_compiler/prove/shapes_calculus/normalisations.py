"""Normalisations and dequantisation at symbolic shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from .contractions import conv, dense
from .polynomials import Poly, as_poly
from .real_elements import Real, ShapeMismatch, number
from .symbolic_tensors import Attributes, Index, Tensor, Typing, axis_of, integer_element, mean_of, tensor_by_index


def real_attribute(t: Typing, value: Any) -> Real:
    """Return a float attribute as a real element: a number, or an atom where the pattern binds it."""
    return number(value) if isinstance(value, Fraction) else t.reals.atom("float", value)


def _root(t: Typing, variance: Real, epsilon: Any) -> Real:
    return t.reals.apply("call sqrt", t.reals.add(variance, real_attribute(t, epsilon)))


def _batch_norm(t: Typing, operands: Sequence[Tensor], a: Attributes) -> Tensor:
    x, scale, bias, mean, variance = operands
    if len(x.shape) < 2 or any(len(v.shape) != 1 for v in operands[1:]):
        raise ShapeMismatch
    for v in operands[1:]:
        t.require_equal(v.shape[0], x.shape[1])
    r = t.reals

    def at(i: Index) -> Real:
        c = [i[1]]
        factor = r.apply("rdiv", scale.at(c), _root(t, variance.at(c), a["epsilon"]))
        return r.add(r.multiply(r.add(x.at(i), r.scaled(mean.at(c), -1)), factor), bias.at(c))

    return tensor_by_index(t, x.shape, at)


def _layer_norm(t: Typing, operands: Sequence[Tensor], a: Attributes) -> Tensor:
    x, scale, bias = operands
    axis, r = axis_of(a, x), t.reals
    tail = x.shape[axis:]
    for v in (scale, bias):
        if len(v.shape) != len(tail):
            raise ShapeMismatch
        for n, m in zip(v.shape, tail, strict=True):
            t.require_equal(n, m)

    def at(i: Index) -> Real:
        lead = i[:axis]
        mean = mean_of(t, tail, lambda *k: x.at([*lead, *k]))

        def square(*k: Poly) -> Real:
            gap = r.add(x.at([*lead, *k]), r.scaled(mean, -1))
            return r.multiply(gap, gap)

        inverse = r.apply("rdiv", number(1), _root(t, mean_of(t, tail, square), a["epsilon"]))
        gap = r.add(x.at(i), r.scaled(mean, -1))
        return r.add(r.multiply(r.multiply(gap, inverse), scale.at(i[axis:])), bias.at(i[axis:]))

    return tensor_by_index(t, x.shape, at)


def _softmax(t: Typing, operands: Sequence[Tensor], a: Attributes) -> Tensor:
    return _normalised(t, operands, a, lambda low, total: t.reals.apply("rdiv", t.reals.apply("call exp", low), total))


def _log_softmax(t: Typing, operands: Sequence[Tensor], a: Attributes) -> Tensor:
    return _normalised(t, operands, a, lambda low, total: t.reals.add(low, t.reals.scaled(t.reals.apply("call log", total), -1)))


def _normalised(t: Typing, operands: Sequence[Tensor], a: Attributes, combine: Callable[[Real, Real], Real]) -> Tensor:
    """Combine x less its maximum along an axis with the sum of exponentials of that."""
    (x,), axis, r = operands, axis_of(a, operands[0]), t.reals

    def at(i: Index) -> Real:
        def along(k: Poly) -> Real:
            return x.at([*i[:axis], k, *i[axis + 1 :]])

        top = r.scaled(r.extremum("max", [x.shape[axis]], along), -1)
        total = r.total([x.shape[axis]], lambda k: r.apply("call exp", r.add(along(k), top)))
        return combine(r.add(x.at(i), top), total)

    return tensor_by_index(t, x.shape, at)


def _dequantize(t: Typing, operands: Sequence[Tensor], a: Attributes) -> Tensor:
    x, s = operands
    if len(s.shape) != 1:
        raise ShapeMismatch
    axis = axis_of(a, x) if x.shape else 0
    extent = x.shape[axis] if x.shape else as_poly(1)
    t.require_equal(t.broadcast_extent(s.shape[0], extent), extent)
    is_one = t.facts.norm(s.shape[0]).number == 1
    centred = _centred(t, x, a["zero"])
    return tensor_by_index(t, x.shape, lambda i: t.reals.multiply(centred.at(i), s.at([as_poly(0) if is_one else i[axis]])))


def _centred(t: Typing, x: Tensor, zero: Poly) -> Tensor:
    """Return codes less their zero point."""
    less = t.reals.scaled(integer_element(t, zero), -1)
    return Tensor(x.shape, lambda i: t.reals.add(x.at(i), less), lambda p: t.reals.add(x.flat(p), less))


def _of_codes(layer: Callable[[Typing, Sequence[Tensor], Attributes], Tensor]) -> Callable[[Typing, Sequence[Tensor], Attributes], Tensor]:
    def reader(t: Typing, operands: Sequence[Tensor], a: Attributes) -> Tensor:
        x, w = operands
        return layer(t, (_centred(t, x, a["x_zero"]), _centred(t, w, a["w_zero"])), a)

    return reader


LAYERS: dict[str, Callable[[Typing, Sequence[Tensor], Attributes], Tensor]] = {
    "batch_norm": _batch_norm,
    "dequantize": _dequantize,
    "integer_conv": _of_codes(conv),
    "integer_dense": _of_codes(dense),
    "layer_norm": _layer_norm,
    "log_softmax": _log_softmax,
    "softmax": _softmax,
}
