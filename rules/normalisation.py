"""Batch normalisation as a scale and a bias, which then fold into the weights before it; layer norm on rank 2."""

from rewrite_compiler import IsConstant, Law, Tensor, Where, rule
from rewrite_compiler import ops as o
from rewrite_compiler.rewrite import Float, Int


@rule(grade="F")
def batch_norm_as_scale_and_bias(x: Tensor, g: Tensor, b: Tensor, m: Tensor, v: Tensor, eps: Float) -> Law:
    """batch_norm(x) = x · k + (b − m · k) by channel, k = g / √(v + ε)"""
    k = o.div(g, o.sqrt(o.add(v, o.full(v.shape, eps))))
    constant = Where(IsConstant(g), IsConstant(b), IsConstant(m), IsConstant(v))
    return o.batch_norm(x, g, b, m, v, eps), o.bias_add(o.scale(x, k, axis=1), o.sub(b, o.mul(m, k)), axis=1), constant


@rule(grade="E")
def flatten_layer_norm(x: Tensor, g: Tensor, b: Tensor, axis: Int, eps: Float) -> Law:
    """layer_norm(x) = reshape(layer_norm(reshape(x, (rows, n)))), g and b flat"""
    y = o.layer_norm(x, g, b, axis=axis, epsilon=eps)
    n = g.size
    rows = o.layer_norm(o.reshape(x, (x.size // n, n)), o.reshape(g, (n,)), o.reshape(b, (n,)), axis=1, epsilon=eps)
    return y, o.reshape(rows, y.shape), Where(x.rank > 3, n > 0)
