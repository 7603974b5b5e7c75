"""False laws of linear layers, biases and elementwise operators; the numbers are those of the notes (K published, W near misses)."""

from __future__ import annotations

from rewrite_compiler import IsConstant, Law, Tensor, Where, rule
from rewrite_compiler import ops as o
from rewrite_compiler.rewrite import Int, Ints


@rule
def bias_before_reshape_of_any_shape(x: Tensor, w: Tensor, b: Tensor, s: Ints) -> Law:
    """K2"""
    y = o.dense(x, w)
    return o.add(o.reshape(y, s), b), o.reshape(o.bias_add(y, b, axis=1), s), Where(x.rank == 2, b.rank == 1)


@rule
def add_as_bias_of_axis_1(x: Tensor, b: Tensor) -> Law:
    """K3"""
    return o.add(x, b), o.bias_add(x, b, axis=1), Where(b.rank == 1, b.shape[0] == x.shape[1])


@rule
def zero_bias_as_long_as_the_columns(x: Tensor, w: Tensor) -> Law:
    """K4"""
    y = o.dense(x, w)
    return y, o.bias_add(y, o.full((w.shape[1],), 0.0), axis=1), Where(x.rank == 2)


@rule
def bias_axis_ignored(x: Tensor, w: Tensor, b: Tensor, axis: Int) -> Law:
    """K6"""
    y = o.dense(x, w)
    return o.bias_add(y, b, axis=axis), o.bias_add(y, b, axis=1), Where(x.rank == 2)


@rule
def relu_over_addition(a: Tensor, b: Tensor) -> Law:
    """W2"""
    return o.relu(o.add(a, b)), o.add(o.relu(a), o.relu(b))


@rule
def commute_matmul(a: Tensor, b: Tensor) -> Law:
    """W24"""
    return o.matmul(a, b), o.matmul(b, a), Where(a.rank == 2, a.shape == b.shape, a.shape[0] == a.shape[1])


@rule
def transpose_of_product_without_exchange(a: Tensor, b: Tensor) -> Law:
    """W25"""
    turned = (1, 0)
    left = o.transpose(o.matmul(a, b), turned)
    return left, o.matmul(o.transpose(a, turned), o.transpose(b, turned)), Where(a.shape == b.shape, a.shape[0] == a.shape[1])


@rule
def matmul_as_dense_without_transpose(a: Tensor, b: Tensor) -> Law:
    """W26: the transposition of a square weight is ignored."""
    return o.matmul(a, b), o.dense(a, b), Where(b.rank == 2, b.shape[0] == b.shape[1])


@rule
def bias_of_rows_as_bias_of_columns(x: Tensor, c: Tensor) -> Law:
    """W27"""
    square = Where(x.rank == 2, c.rank == 2, c.shape[0] == x.shape[0], c.shape[1] == 1, x.shape[0] == x.shape[1])
    return o.add(x, c), o.bias_add(x, o.reshape(c, (c.shape[0],)), axis=1), square


@rule
def squeeze_dropped_from_any_addition(x: Tensor, y: Tensor, s: Ints) -> Law:
    """R9 without its guard"""
    return o.add(x, o.reshape(y, s)), o.add(x, y)


@rule
def expand_dropped_although_it_widens(x: Tensor, b: Tensor, s: Ints) -> Law:
    """W34"""
    return o.add(x, o.expand(b, s)), o.add(x, b)


@rule
def inner_axis_padded_with_ones(x: Tensor, w: Tensor) -> Law:
    """W35"""
    wide = (0, 0, 0, 1)
    return o.dense(x, w), o.dense(o.pad(x, wide, 1.0), o.pad(w, wide, 1.0)), Where(x.rank == 2)


@rule
def any_constant_is_the_identity(x: Tensor, c: Tensor) -> Law:
    """W41"""
    return o.matmul(x, c), x, Where(IsConstant(c), c.rank == 2, c.shape[0] == c.shape[1])


@rule
def scale_out_of_relu(x: Tensor, s: Tensor, axis: Int) -> Law:
    """W42"""
    return o.relu(o.scale(x, s, axis=axis)), o.scale(o.relu(x), s, axis=axis)


@rule
def clip_over_addition(x: Tensor, y: Tensor) -> Law:
    """W43"""
    return o.clip(o.add(x, y), 0.0, 1.0), o.add(o.clip(x, 0.0, 1.0), o.clip(y, 0.0, 1.0))


@rule
def commute_subtraction(x: Tensor, y: Tensor) -> Law:
    """W48"""
    return o.sub(x, y), o.sub(y, x)


@rule
def scale_of_weight_columns(x: Tensor, w: Tensor, s: Tensor) -> Law:
    """The factor of an output is applied to an input."""
    return o.scale(o.dense(x, w), s, axis=1), o.dense(x, o.scale(w, s, axis=1)), Where(x.rank == 2, w.shape[0] == w.shape[1])


@rule
def merge_biases_of_different_axes(x: Tensor, b: Tensor, c: Tensor) -> Law:
    """Biases along two axes are not one bias."""
    left = o.bias_add(o.bias_add(x, b, axis=1), c, axis=0)
    return left, o.bias_add(x, o.add(b, c), axis=1), Where(b.shape == c.shape)


@rule
def bias_left_unscaled(x: Tensor, b: Tensor, s: Tensor, axis: Int) -> Law:
    """(x + b) · s is not x · s + b"""
    return o.scale(o.bias_add(x, b, axis=axis), s, axis=axis), o.bias_add(o.scale(x, s, axis=axis), b, axis=axis)


@rule
def dense_past_any_reshape(x: Tensor, w: Tensor, s: Ints) -> Law:
    """L3 without its guard on the last axis"""
    y = o.dense(o.reshape(x, s), w)
    return y, o.reshape(o.dense(x, w), y.shape)


@rule
def rows_of_a_bias_flattened(x: Tensor, w: Tensor) -> Law:
    """L3 with the wrong number of rows"""
    y = o.dense(x, w)
    return y, o.reshape(o.dense(o.reshape(x, (x.shape[0], w.shape[1])), w), y.shape), Where(x.rank > 2)


@rule
def addition_forgets(x: Tensor, y: Tensor) -> Law:
    """a + b = a"""
    return o.add(x, y), x, Where(x.shape == y.shape)


@rule
def quotient_of_itself_is_one(x: Tensor) -> Law:
    """x / x = 1 fails at 0"""
    return o.div(x, x), o.full(x.shape, 1.0)


@rule
def root_of_square_is_itself(x: Tensor) -> Law:
    """√(x · x) = x fails below 0"""
    return o.sqrt(o.mul(x, x)), x


@rule
def exponential_over_addition(x: Tensor, y: Tensor) -> Law:
    """e^(x + y) is a product"""
    return o.exp(o.add(x, y)), o.add(o.exp(x), o.exp(y))


@rule
def sigmoid_is_odd(x: Tensor) -> Law:
    """Only tanh is"""
    return o.sigmoid(o.neg(x)), o.neg(o.sigmoid(x))


@rule
def gelu_by_tanh(x: Tensor) -> Law:
    """W23"""
    half = o.full(x.shape, 0.5)
    one = o.full(x.shape, 1.0)
    cubic = o.add(x, o.mul(o.full(x.shape, 0.044715), o.mul(x, o.mul(x, x))))
    by_erf = o.mul(o.mul(x, half), o.add(one, o.erf(o.mul(x, o.full(x.shape, 0.7071067811865476)))))
    return by_erf, o.mul(o.mul(x, half), o.add(one, o.tanh(o.mul(o.full(x.shape, 0.7978845608028654), cubic))))
