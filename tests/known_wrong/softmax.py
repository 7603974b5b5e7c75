"""False laws of softmax and layer normalisation."""

from __future__ import annotations

from rewrite_compiler import Law, Tensor, Where, rule
from rewrite_compiler import ops as o
from rewrite_compiler.rewrite import Float, Int, Ints


@rule
def softmax_on_the_old_axis(x: Tensor) -> Law:
    """W19"""
    return o.softmax(o.transpose(x, (1, 0)), axis=1), o.transpose(o.softmax(x, axis=1), (1, 0))


@rule
def softmax_of_a_multiple(x: Tensor) -> Law:
    """W20"""
    return o.softmax(o.mul(x, o.full((), 2.0)), axis=0), o.softmax(x, axis=0)


@rule
def softmax_of_a_scaled_axis(x: Tensor, s: Tensor, axis: Int) -> Law:
    """softmax ∘ scale"""
    return o.softmax(o.scale(x, s, axis=axis), axis=axis), o.scale(o.softmax(x, axis=axis), s, axis=axis)


@rule
def softmax_past_reshape(x: Tensor, s: Ints) -> Law:
    """The elements that are summed change."""
    return o.softmax(o.reshape(x, s), axis=0), o.reshape(o.softmax(x, axis=0), s), Where(x.rank > 0, s.length > 0)


@rule
def softmax_of_a_bias_along_the_axis(x: Tensor, b: Tensor) -> Law:
    """Only a constant along the axis cancels."""
    return o.softmax(o.bias_add(x, b, axis=1), axis=1), o.softmax(x, axis=1)


@rule
def softmax_over_padded_axis(x: Tensor) -> Law:
    """W36"""
    padded = o.softmax(o.pad(x, (0, 1), 0.0), axis=0)
    return o.softmax(x, axis=0), o.slice_(padded, axis=0, start=0, stop=x.shape[0], step=1), Where(x.rank == 1)


@rule
def layer_norm_over_padded_axis(x: Tensor, g: Tensor, b: Tensor, eps: Float) -> Law:
    """W37"""
    p = (0, 1)
    padded = o.layer_norm(o.pad(x, p, 0.0), o.pad(g, p, 0.0), o.pad(b, p, 0.0), 0, eps)
    return o.layer_norm(x, g, b, 0, eps), o.slice_(padded, axis=0, start=0, stop=x.shape[0], step=1), Where(x.rank == 1)


@rule
def layer_norm_of_a_multiple(x: Tensor, g: Tensor, b: Tensor) -> Law:
    """True only without ε"""
    return o.layer_norm(o.mul(x, o.full((), 2.0)), g, b, 0, 0.5), o.layer_norm(x, g, b, 0, 0.5)


@rule
def layer_norm_past_addition_of_a_bias(x: Tensor, g: Tensor, b: Tensor, c: Tensor, eps: Float) -> Law:
    """Only a constant along the axes cancels."""
    return o.layer_norm(o.bias_add(x, c, axis=1), g, b, 1, eps), o.layer_norm(x, g, b, 1, eps), Where(x.rank == 2)
