"""True laws that claim too much: a grade or a mark that does not hold."""

from __future__ import annotations

from rewrite_compiler import Law, Tensor, Where, rule
from rewrite_compiler import ops as o
from rewrite_compiler.rewrite import Float, Int


@rule(grade="E")
def added_zero_is_exact(x: Tensor) -> Law:
    """−0 + 0 = 0"""
    return o.add(x, o.full(x.shape, 0.0)), x


@rule(grade="E")
def product_with_zero_is_exact(x: Tensor) -> Law:
    """∞ · 0 is not a number"""
    return o.mul(x, o.full(x.shape, 0.0)), o.full(x.shape, 0.0)


@rule(grade="E")
def merged_biases_are_exact(x: Tensor, b: Tensor, c: Tensor, axis: Int) -> Law:
    """Sums round."""
    return o.bias_add(o.bias_add(x, b, axis=axis), c, axis=axis), o.bias_add(x, o.add(b, c), axis=axis)


@rule(grade="E")
def scaled_weights_are_exact(x: Tensor, w: Tensor, s: Tensor) -> Law:
    """Products round."""
    return o.scale(o.dense(x, w), s, axis=1), o.dense(x, o.scale(w, s, axis=0)), Where(x.rank == 2)


@rule(grade="Z")
def distribution_keeps_all_but_zeros(x: Tensor, y: Tensor) -> Law:
    """Sums round."""
    two = o.full((), 3.0)
    return o.mul(o.add(x, y), two), o.add(o.mul(x, two), o.mul(y, two))


@rule(grade="E", marks=("any_dtype",))
def addition_only_moves_data(x: Tensor, y: Tensor) -> Law:
    """Commuting is a law of +."""
    return o.add(x, y), o.add(y, x)


@rule(grade="F", marks=("ring",))
def batch_norm_is_a_polynomial(x: Tensor, g: Tensor, b: Tensor, m: Tensor, v: Tensor, eps: Float) -> Law:
    """It divides."""
    k = o.div(g, o.sqrt(o.add(v, o.full(v.shape, eps))))
    return o.batch_norm(x, g, b, m, v, eps), o.bias_add(o.scale(x, k, axis=1), o.sub(b, o.mul(m, k)), axis=1)


@rule(grade="E", marks=("ring",))
def relu_is_a_polynomial(x: Tensor) -> Law:
    """It compares; modulo 2ʷ there is no order."""
    return o.relu(o.relu(x)), o.relu(x)
