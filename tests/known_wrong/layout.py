"""False laws of data movement."""

from __future__ import annotations

from rewrite_compiler import Law, Tensor, Where, rule
from rewrite_compiler import ops as o
from rewrite_compiler.ops import Condition, Inverse
from rewrite_compiler.rewrite import Int, Ints


def cube(x: Tensor) -> Condition:
    """Three axes of extent 2: any permutation types, so that only the elements tell."""
    return x.shape == (2, 2, 2)


@rule
def transposes_composed_in_the_wrong_order(x: Tensor, p: Ints, q: Ints) -> Law:
    """W1"""
    return o.transpose(o.transpose(x, p), q), o.transpose(x, q.permuted(p)), Where(cube(x))


@rule
def transpose_twice_is_nothing(x: Tensor, p: Ints) -> Law:
    """Only involutions cancel themselves."""
    return o.transpose(o.transpose(x, p), p), x, Where(cube(x))


@rule
def transpose_as_reshape(x: Tensor, p: Ints) -> Law:
    """W31"""
    y = o.transpose(x, p)
    return y, o.reshape(x, y.shape)


@rule
def reshape_forgets_transpose(x: Tensor, p: Ints, s: Ints) -> Law:
    """W46: NHWC data flattened as if it were NCHW"""
    return o.reshape(o.transpose(x, p), s), o.reshape(x, s)


@rule
def bias_past_reshape_without_last_axis(x: Tensor, b: Tensor, s: Ints, axis: Int) -> Law:
    """L4 without the guard that the last axis is kept"""
    return o.bias_add(o.reshape(x, s), b, axis=axis), o.reshape(o.bias_add(x, b, axis=x.rank - 1), s), Where(axis == s.length - 1)


@rule
def bias_past_reshape_with_equal_extent_elsewhere(x: Tensor, b: Tensor, s: Ints) -> Law:
    """The axis has the same extent, but other elements lie along it."""
    kept = Where(s.length == 2, x.rank == 2, x.shape[1] == s[0], x.shape[0] == s[1])
    return o.bias_add(o.reshape(x, s), b, axis=0), o.reshape(o.bias_add(x, b, axis=1), s), kept


@rule
def bias_past_transpose_on_its_own_axis(x: Tensor, b: Tensor, p: Ints, axis: Int) -> Law:
    """W33"""
    return o.bias_add(o.transpose(x, p), b, axis=axis), o.transpose(o.bias_add(x, b, axis=axis), p), Where(cube(x))


@rule
def bias_past_transpose_on_the_inverse_axis(x: Tensor, b: Tensor, p: Ints, axis: Int) -> Law:
    """p⁻¹ in the place of p"""
    right = o.transpose(o.bias_add(x, b, axis=Inverse(p)[axis]), p)
    return o.bias_add(o.transpose(x, p), b, axis=axis), right, Where(cube(x))


@rule
def addition_past_different_transposes(x: Tensor, y: Tensor, p: Ints, q: Ints) -> Law:
    """The permutations must be equal."""
    return o.add(o.transpose(x, p), o.transpose(y, q)), o.transpose(o.add(x, y), p), Where(cube(x), cube(y))


@rule
def addition_past_reshapes_of_different_shapes(x: Tensor, y: Tensor, s: Ints) -> Law:
    """R13 without its guard"""
    return o.add(o.reshape(x, s), o.reshape(y, s)), o.reshape(o.add(x, y), s)


@rule
def slices_fused_by_adding_the_ends(x: Tensor, a: Int, l0: Int, h0: Int, l1: Int, h1: Int) -> Law:
    """W4"""
    left = o.slice_(o.slice_(x, axis=a, start=l0, stop=h0, step=1), axis=a, start=l1, stop=h1, step=1)
    return left, o.slice_(x, axis=a, start=l0 + l1, stop=h0 + h1, step=1), Where(x.rank == 1)


@rule
def slice_past_transpose_on_the_inverse_axis(x: Tensor, p: Ints, a: Int, low: Int, high: Int) -> Law:
    """W6"""
    left = o.slice_(o.transpose(x, p), axis=a, start=low, stop=high, step=1)
    return left, o.transpose(o.slice_(x, axis=Inverse(p)[a], start=low, stop=high, step=1), p), Where(x.rank == 3)


@rule
def pad_past_transpose_on_the_same_axis(x: Tensor) -> Law:
    """W7"""
    below = (1, 0, 0, 0)
    return o.transpose(o.pad(x, below, 0.0), (1, 0)), o.pad(o.transpose(x, (1, 0)), below, 0.0)


@rule
def flatten_over_concatenation(x: Tensor, y: Tensor) -> Law:
    """W32"""
    left = o.reshape(o.concat(x, y, axis=1), (x.size + y.size,))
    return left, o.concat(o.reshape(x, (x.size,)), o.reshape(y, (y.size,)), axis=0)


@rule
def commute_concatenation(x: Tensor, y: Tensor, axis: Int) -> Law:
    """The order of the parts is the order of the elements."""
    return o.concat(x, y, axis=axis), o.concat(y, x, axis=axis)


@rule
def sigmoid_inside_pad(x: Tensor, p: Ints) -> Law:
    """S9: σ(0) is not 0"""
    return o.sigmoid(o.pad(x, p, 0.0)), o.pad(o.sigmoid(x), p, 0.0), Where(x.rank == 2)


@rule
def bias_inside_pad(x: Tensor, b: Tensor, p: Ints) -> Law:
    """The padding has no bias."""
    kept = Where(x.rank == 2, p[1] + p[3] == 0)
    return o.bias_add(o.pad(x, p, 0.0), b, axis=1), o.pad(o.bias_add(x, b, axis=1), p, 0.0), kept


@rule
def products_of_rows_joined_along_columns(a: Tensor, b: Tensor, w: Tensor) -> Law:
    """W44"""
    return o.dense(o.concat(a, b, axis=0), w), o.concat(o.dense(a, w), o.dense(b, w), axis=1), Where(a.rank == 2)
