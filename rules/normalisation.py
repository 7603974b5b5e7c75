"""Batch normalisation as a scale and a bias, which then fold into the weights before it; layer norm from its parts, on rank 2."""

from rewrite_compiler import IsConstant, Law, Tensor, Where, rule
from rewrite_compiler import ops as o
from rewrite_compiler.rewrite import Float, Int, Ints


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


@rule(grade="E")
def flatten_layer_norm_over_axes(x: Tensor, g: Tensor, b: Tensor, axis: Int, eps: Float) -> Law:
    """layer_norm(x) over several axes = reshape(layer_norm(reshape(x, (rows, n)))), g and b flat"""
    y = o.layer_norm(x, g, b, axis=axis, epsilon=eps)
    n = g.size
    rows = o.layer_norm(o.reshape(x, (x.size // n, n)), o.reshape(g, (n,)), o.reshape(b, (n,)), axis=1, epsilon=eps)
    return y, o.reshape(rows, y.shape), Where(x.rank <= 3, axis < x.rank - 1, n > 0)


# -- layer norm from its parts: the importer writes a division by a root as a product with its reciprocal


def mean(x: Tensor) -> Tensor:
    """Return the mean over the last axis, which is kept."""
    averaged: Tensor = o.reduce_mean_(x, axes=(x.rank - 1,), keepdims=1)
    return averaged


def root(x: Tensor, added: Tensor) -> Tensor:
    """Return 1 / √(mean(x²) + ε)."""
    reciprocal: Tensor = o.reciprocal(o.sqrt(o.add(mean(o.mul(x, x)), added)))
    return reciprocal


@rule(grade="F")
def centred_rows_as_layer_norm(x: Tensor, s: Ints, eps: Float) -> Law:
    """(x − μ) / √(mean((x − μ)²) + ε) = layer_norm(x) over the last axis"""
    d, e, n = o.sub(x, mean(x)), o.full(s, eps), (x.shape[-1],)
    right = o.layer_norm(x, o.full(n, 1.0), o.full(n, 0.0), axis=x.rank - 1, epsilon=eps)
    return o.mul(d, root(d, e)), right, Where(e.size == 1, e.rank <= x.rank)


@rule(grade="F")
def rows_over_root_mean_square_as_layer_norm(x: Tensor, s: Ints, eps: Float) -> Law:
    """x / √(mean(x²) + ε) = first half of layer_norm([x, −x]) over the last axis"""
    e, n, axis = o.full(s, eps), x.shape[-1], x.rank - 1
    doubled = o.concat(x, o.neg(x), axis=axis)
    norm = o.layer_norm(doubled, o.full((2 * n,), 1.0), o.full((2 * n,), 0.0), axis=axis, epsilon=eps)
    return o.mul(x, root(x, e)), o.slice_(norm, axis=axis, start=0, stop=n), Where(e.size == 1, e.rank <= x.rank)


@rule(grade="A")
def scale_layer_norm(x: Tensor, g: Tensor, b: Tensor, s: Tensor, axis: Int, eps: Float) -> Law:
    """layer_norm(x, g, b) · s = layer_norm(x, g · s, b · s) for constant s along the last axis"""
    left = o.scale(o.layer_norm(x, g, b, axis=axis, epsilon=eps), s, axis=axis)
    right = o.layer_norm(x, o.mul(g, s), o.mul(b, s), axis=axis, epsilon=eps)
    return left, right, Where(axis == x.rank - 1, IsConstant(g), IsConstant(b), IsConstant(s))


@rule(grade="A")
def bias_layer_norm(x: Tensor, g: Tensor, b: Tensor, c: Tensor, axis: Int, eps: Float) -> Law:
    """layer_norm(x, g, b) + c = layer_norm(x, g, b + c) for constant c along the last axis"""
    left = o.bias_add(o.layer_norm(x, g, b, axis=axis, epsilon=eps), c, axis=axis)
    return left, o.layer_norm(x, g, o.add(b, c), axis=axis, epsilon=eps), Where(axis == x.rank - 1, IsConstant(b), IsConstant(c))


@rule(grade="A")
def scale_half_of_layer_norm(x: Tensor, g: Tensor, b: Tensor, s: Tensor, axis: Int, eps: Float, n: Int) -> Law:
    """first half of layer_norm(x, g, b) · s = first half of layer_norm(x, g · [s, s], b · [s, s])"""
    norm = o.layer_norm(x, g, b, axis=axis, epsilon=eps)
    left = o.scale(o.slice_(norm, axis=axis, start=0, stop=n), s, axis=axis)
    doubled = o.concat(s, s, axis=0)
    right = o.slice_(o.layer_norm(x, o.mul(g, doubled), o.mul(b, doubled), axis=axis, epsilon=eps), axis=axis, start=0, stop=n)
    return left, right, Where(axis == x.rank - 1, x.shape[-1] == 2 * n, IsConstant(g), IsConstant(b), IsConstant(s))


@rule(grade="A")
def scaled_reciprocal(x: Tensor, y: Tensor, g: Tensor) -> Law:
    """x · (1 / y · g) = (x · 1 / y) · g for constant g of one axis"""
    r = o.reciprocal(y)
    return o.mul(x, o.mul(r, g)), o.mul(o.mul(x, r), g), Where(IsConstant(g), g.rank == 1, y.rank == x.rank)


@rule(grade="A")
def reciprocal_of_scaled(x: Tensor, y: Tensor, g: Tensor) -> Law:
    """(x · g) · 1 / y = (x · 1 / y) · g for constant g of one axis"""
    r = o.reciprocal(y)
    return o.mul(o.mul(x, g), r), o.mul(o.mul(x, r), g), Where(IsConstant(g), g.rank == 1, y.rank == x.rank)


@rule(grade="A")
def shift_of_centred_rows(x: Tensor, k: Tensor, b: Tensor) -> Law:
    """x · k + (b − μ · k) = (x − μ) · k + b for constant b of one axis"""
    m = mean(x)
    left = o.add(o.mul(x, k), o.sub(b, o.mul(m, k)))
    return left, o.add(o.mul(o.sub(x, m), k), b), Where(IsConstant(b), b.rank == 1, k.shape == x.shape)


@rule(grade="F")
def shares_of_exponentials_as_softmax(x: Tensor, axes: Ints) -> Law:
    """exp(x − max) / sum of exp(x − max) = softmax(x) along one axis"""
    e = o.exp(o.sub(x, o.reduce_max_(x, axes=axes, keepdims=1)))
    return o.div(e, o.reduce_sum_(e, axes=axes, keepdims=1)), o.softmax(x, axis=axes[0]), Where(axes.length == 1)
