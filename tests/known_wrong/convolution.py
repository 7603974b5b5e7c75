"""False laws of convolution, pooling and batch normalisation."""

from __future__ import annotations

from rewrite_compiler import Law, Tensor, Where, rule
from rewrite_compiler import ops as o
from rewrite_compiler.ops import Tensor as Pattern
from rewrite_compiler.rewrite import Float, Int, Ints


def windows_as_dense(
    x: Tensor, w: Tensor, matrix: Pattern, y: Pattern, kernel: Ints, strides: Ints, pads: Ints, dilations: Ints
) -> Pattern:
    """Return transpose(reshape(dense(im2col(x), matrix))), which is a convolution when everything fits."""
    rows = o.dense(o.im2col(x, kernel, strides, pads, dilations), matrix)
    shaped: Pattern = o.reshape(rows, (y.shape[0], y.shape[2], y.shape[3], y.shape[1]))
    return shaped


def as_matrix(w: Tensor) -> Pattern:
    """Return a weight as filters by taps."""
    matrix: Pattern = o.reshape(w, (w.shape[0], w.size // w.shape[0]))
    return matrix


BACK = (0, 3, 1, 2)


@rule
def windows_of_a_grouped_convolution(x: Tensor, w: Tensor, strides: Ints, pads: Ints, dilations: Ints, group: Int) -> Law:
    """C1 without the guard on groups"""
    y = o.conv(x, w, strides, pads, dilations, group)
    return y, o.transpose(windows_as_dense(x, w, as_matrix(w), y, w.shape[2:4], strides, pads, dilations), BACK), Where(x.rank == 4)


@rule
def windows_ordered_kernel_first(x: Tensor, w: Tensor, strides: Ints, pads: Ints, dilations: Ints) -> Law:
    """W29"""
    y = o.conv(x, w, strides, pads, dilations, group=1)
    matrix = o.reshape(o.transpose(w, (0, 2, 3, 1)), (w.shape[0], w.size // w.shape[0]))
    return y, o.transpose(windows_as_dense(x, w, matrix, y, w.shape[2:4], strides, pads, dilations), BACK), Where(x.rank == 4)


@rule
def windows_turned_back_wrongly(x: Tensor, w: Tensor, strides: Ints, pads: Ints, dilations: Ints) -> Law:
    """Rows and columns exchanged on the way back to channels first"""
    y = o.conv(x, w, strides, pads, dilations, group=1)
    turned = o.transpose(windows_as_dense(x, w, as_matrix(w), y, w.shape[2:4], strides, pads, dilations), (0, 3, 2, 1))
    return y, turned, Where(x.rank == 4, y.shape[2] == y.shape[3])


@rule
def windows_without_dilation(x: Tensor, w: Tensor, strides: Ints, pads: Ints, dilations: Ints) -> Law:
    """K10"""
    y = o.conv(x, w, strides, pads, dilations, group=1)
    return y, o.transpose(windows_as_dense(x, w, as_matrix(w), y, w.shape[2:4], strides, pads, (1, 1)), BACK), Where(x.rank == 4)


@rule
def windows_padded_on_the_other_side(x: Tensor, w: Tensor, strides: Ints, pads: Ints, dilations: Ints) -> Law:
    """The befores taken for the afters"""
    y = o.conv(x, w, strides, pads, dilations, group=1)
    other = (pads[2], pads[3], pads[0], pads[1])
    return y, o.transpose(windows_as_dense(x, w, as_matrix(w), y, w.shape[2:4], strides, other, dilations), BACK), Where(x.rank == 4)


@rule
def one_tap_with_strides(x: Tensor, w: Tensor, strides: Ints) -> Law:
    """W28"""
    y = o.conv(x, w, strides, (0, 0, 0, 0), (1, 1), group=1)
    matrix = o.reshape(w, (w.shape[0], w.shape[1]))
    return y, o.transpose(o.dense(o.transpose(x, (0, 2, 3, 1)), matrix), BACK), Where(w.shape[2:4] == (1, 1))


@rule
def filters_and_channels_exchanged(x: Tensor, w: Tensor, strides: Ints, pads: Ints, dilations: Ints) -> Law:
    """W30"""
    square = Where(w.shape[0] == w.shape[1], x.rank == 4)
    left = o.conv(x, w, strides, pads, dilations, group=1)
    return left, o.conv(x, o.transpose(w, (1, 0, 2, 3)), strides, pads, dilations, group=1), square


@rule
def filters_read_rows_as_columns(x: Tensor, w: Tensor, strides: Ints, pads: Ints, dilations: Ints) -> Law:
    """HWIO read as WHIO"""
    square = Where(w.shape[2] == w.shape[3], x.rank == 4)
    left = o.conv(x, w, strides, pads, dilations, group=1)
    return left, o.conv(x, o.transpose(w, (0, 1, 3, 2)), strides, pads, dilations, group=1), square


@rule
def bias_of_a_convolution_along_its_last_axis(x: Tensor, w: Tensor, b: Tensor, strides: Ints, pads: Ints, dilations: Ints) -> Law:
    """W11"""
    y = o.conv(x, w, strides, pads, dilations, group=1)
    return o.bias_add(y, b, axis=1), o.add(y, b), Where(x.rank == 4, y.shape[1] == y.shape[3])


@rule
def padding_with_ones_inside_convolution(x: Tensor, w: Tensor, p: Ints) -> Law:
    """W10"""
    left = o.conv(o.pad(x, (0, 0, p[0], p[1], 0, 0, p[2], p[3]), 1.0), w, (1, 1), (0, 0, 0, 0), (1, 1), group=1)
    return o.conv(x, w, (1, 1), p, (1, 1), group=1), left, Where(x.rank == 4)


@rule
def padding_of_channels_inside_convolution(x: Tensor, w: Tensor, q: Ints) -> Law:
    """C3 without the guard that only spatial axes are padded"""
    left = o.conv(o.pad(x, q, 0.0), w, (1, 1), (0, 0, 0, 0), (1, 1), group=1)
    return left, o.conv(x, w, (1, 1), (q[2], q[3], q[6], q[7]), (1, 1), group=1), Where(x.rank == 4)


@rule
def relu_into_convolution(x: Tensor, w: Tensor, strides: Ints, pads: Ints, dilations: Ints) -> Law:
    """relu is not linear"""
    left = o.relu(o.conv(x, w, strides, pads, dilations, group=1))
    return left, o.conv(o.relu(x), w, strides, pads, dilations, group=1), Where(x.rank == 3)


@rule
def channels_split_and_joined(a: Tensor, b: Tensor, v: Tensor, w: Tensor) -> Law:
    """W45"""
    ones, zeros = (1,), (0, 0)
    left = o.conv(o.concat(a, b, axis=1), o.concat(v, w, axis=1), ones, zeros, ones, group=1)
    right = o.concat(o.conv(a, v, ones, zeros, ones, group=1), o.conv(b, w, ones, zeros, ones, group=1), axis=1)
    return left, right, Where(a.rank == 3)


@rule
def max_pool_takes_over_zero_padding(x: Tensor, p: Ints, kernel: Ints, strides: Ints) -> Law:
    """W8"""
    right = o.max_pool(o.pad(x, (0, 0, p[0], 0, 0, p[1]), 0.0), kernel, strides, (0, 0), (1,))
    return o.max_pool(x, kernel, strides, p, (1,)), right, Where(x.rank == 3)


@rule
def average_pool_takes_over_zero_padding(x: Tensor, p: Ints, kernel: Ints, strides: Ints) -> Law:
    """W9"""
    right = o.average_pool(o.pad(x, (0, 0, p[0], 0, 0, p[1]), 0.0), kernel, strides, (0, 0), (1,))
    return o.average_pool(x, kernel, strides, p, (1,)), right, Where(x.rank == 3)


@rule
def max_pool_of_the_negative(x: Tensor, kernel: Ints, strides: Ints) -> Law:
    """W17"""
    left = o.max_pool(o.neg(x), kernel, strides, (0, 0), (1,))
    return left, o.neg(o.max_pool(x, kernel, strides, (0, 0), (1,))), Where(x.rank == 3)


@rule
def relu_inside_average_pool(x: Tensor, kernel: Ints, strides: Ints) -> Law:
    """W18"""
    left = o.relu(o.average_pool(x, kernel, strides, (0, 0), (1,)))
    return left, o.average_pool(o.relu(x), kernel, strides, (0, 0), (1,)), Where(x.rank == 3)


@rule
def max_over_padded_axis(x: Tensor) -> Law:
    """W38"""
    return o.reduce_max_(x, (1,), 0), o.reduce_max_(o.pad(x, (0, 0, 0, 1), 0.0), (1,), 0), Where(x.rank == 2)


@rule
def pooled_maximum_over_uncovered_windows(x: Tensor, kernel: Ints, strides: Ints) -> Law:
    """K9"""
    pooled = o.max_pool(x, kernel, strides, (0, 0), (1,))
    return o.reduce_max_(pooled, (2,), 0), o.reduce_max_(x, (2,), 0), Where(x.rank == 3)


# -- batch normalisation


def factor(g: Tensor, v: Tensor, eps: Float) -> Pattern:
    """Return g / √(v + ε)."""
    made: Pattern = o.div(g, o.sqrt(o.add(v, o.full(v.shape, eps))))
    return made


@rule
def batch_norm_with_epsilon_outside_the_root(x: Tensor, g: Tensor, b: Tensor, m: Tensor, v: Tensor, eps: Float) -> Law:
    """W21"""
    k = o.div(g, o.add(o.sqrt(v), o.full(v.shape, eps)))
    return o.batch_norm(x, g, b, m, v, eps), o.bias_add(o.scale(x, k, axis=1), o.sub(b, o.mul(m, k)), axis=1)


@rule
def batch_norm_without_the_root(x: Tensor, g: Tensor, b: Tensor, m: Tensor, v: Tensor, eps: Float) -> Law:
    """Variance taken for deviation"""
    k = o.div(g, o.add(v, o.full(v.shape, eps)))
    return o.batch_norm(x, g, b, m, v, eps), o.bias_add(o.scale(x, k, axis=1), o.sub(b, o.mul(m, k)), axis=1)


@rule
def batch_norm_with_unscaled_mean(x: Tensor, g: Tensor, b: Tensor, m: Tensor, v: Tensor, eps: Float) -> Law:
    """b − m in the place of b − m · k"""
    return o.batch_norm(x, g, b, m, v, eps), o.bias_add(o.scale(x, factor(g, v, eps), axis=1), o.sub(b, m), axis=1)


@rule
def batch_norm_with_scale_and_bias_exchanged(x: Tensor, g: Tensor, b: Tensor, m: Tensor, v: Tensor, eps: Float) -> Law:
    """Operands in the wrong order"""
    return o.batch_norm(x, g, b, m, v, eps), o.batch_norm(x, b, g, m, v, eps)


@rule
def batch_norm_fold_with_unscaled_bias(x: Tensor, w: Tensor, c: Tensor, g: Tensor, b: Tensor, m: Tensor, v: Tensor, eps: Float) -> Law:
    """W14"""
    k = factor(g, v, eps)
    left = o.batch_norm(o.bias_add(o.dense(x, w), c, axis=1), g, b, m, v, eps)
    folded = o.bias_add(o.dense(x, o.scale(w, k, axis=0)), c, axis=1)
    return left, o.bias_add(folded, o.sub(b, o.mul(m, k)), axis=1), Where(x.rank == 2)


@rule
def batch_norm_fold_on_the_input_channels(x: Tensor, w: Tensor, g: Tensor, b: Tensor, m: Tensor, v: Tensor, eps: Float) -> Law:
    """W15"""
    k, ones, zeros = factor(g, v, eps), (1, 1), (0, 0, 0, 0)
    left = o.batch_norm(o.conv(x, w, ones, zeros, ones, group=1), g, b, m, v, eps)
    folded = o.conv(x, o.scale(w, k, axis=1), ones, zeros, ones, group=1)
    return left, o.bias_add(folded, o.sub(b, o.mul(m, k)), axis=1), Where(w.shape[0] == w.shape[1])


@rule
def batch_norm_past_relu(x: Tensor, g: Tensor, b: Tensor, m: Tensor, v: Tensor, eps: Float) -> Law:
    """W16"""
    return o.batch_norm(o.relu(x), g, b, m, v, eps), o.relu(o.batch_norm(x, g, b, m, v, eps))
