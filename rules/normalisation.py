"""Batch normalisation as a scale and a bias, which then fold into the weights before it."""

from rewrite_compiler import Float, IsConstant, Law, Tensor, Where, rule
from rewrite_compiler import ops as o


@rule(grade="F")
def batch_norm_as_scale_and_bias(x: Tensor, g: Tensor, b: Tensor, m: Tensor, v: Tensor, eps: Float) -> Law:
    """batch_norm(x) = x · k + (b − m · k) by channel, k = g / √(v + ε)"""
    k = o.div(g, o.sqrt(o.add(v, o.full(v.shape, eps))))
    constant = Where(IsConstant(g), IsConstant(b), IsConstant(m), IsConstant(v))
    return o.batch_norm(x, g, b, m, v, eps), o.bias_add(o.scale(x, k, axis=1), o.sub(b, o.mul(m, k)), axis=1), constant
