"""Real operators on codes as integer operators: what the import of quantised models uses, and rows of any rank for codes."""

from rewrite_compiler import IsConstant, Law, Tensor, Where, rule
from rewrite_compiler import ops as o
from rewrite_compiler.rewrite import Int, Ints


@rule(grade="F")
def product_of_codes(x: Tensor, w: Tensor, s: Tensor, t: Tensor, zero: Int) -> Law:
    """dense((x − z)·s, w·t) = dense(x − z, w)·(s·t), s one number and t one for each row of w"""
    y = o.dense(o.dequantize(x, s, axis=0, zero=zero), o.dequantize(w, t, axis=0, zero=0))
    sums = o.integer_dense(x, w, x_zero=zero, w_zero=0)
    return y, o.dequantize(sums, o.mul(s, t), axis=1, zero=0), Where(x.rank == 2, s.shape == (1,))


@rule(grade="F")
def convolution_of_codes(
    x: Tensor, w: Tensor, s: Tensor, t: Tensor, zero: Int, strides: Ints, pads: Ints, dilations: Ints, group: Int
) -> Law:  # fmt: skip
    """conv((x − z)·s, w·t) = conv(x − z, w)·(s·t), s one number and t one for each filter"""
    y = o.conv(o.dequantize(x, s, axis=0, zero=zero), o.dequantize(w, t, axis=0, zero=0), strides, pads, dilations, group)
    sums = o.integer_conv(x, w, strides, pads, dilations, group, x_zero=zero, w_zero=0)
    return y, o.dequantize(sums, o.mul(s, t), axis=1, zero=0), Where(s.shape == (1,))


@rule(grade="F")
def bias_of_codes(x: Tensor, b: Tensor, s: Tensor) -> Law:
    """x·s + b·s = (x + b)·s by channel, b of the scale of the sums"""
    y = o.bias_add(o.dequantize(x, s, axis=1, zero=0), o.dequantize(b, s, axis=0, zero=0), axis=1)
    return y, o.dequantize(o.bias_add(x, b, axis=1), s, axis=1, zero=0)


@rule(grade="E", marks=("any_dtype",))
def flatten_integer_dense(x: Tensor, w: Tensor, x_zero: Int, w_zero: Int) -> Law:
    """dense(x, w) of codes = reshape(dense(reshape(x, (rows, k)), w))"""
    y = o.integer_dense(x, w, x_zero=x_zero, w_zero=w_zero)
    k = w.shape[1]
    rows = o.integer_dense(o.reshape(x, (x.size // k, k)), w, x_zero=x_zero, w_zero=w_zero)
    return y, o.reshape(rows, y.shape), Where(x.rank != 2, k > 0)


@rule(grade="E", marks=("any_dtype",))
def integer_conv1d_as_conv2d(
    x: Tensor, w: Tensor, strides: Ints, pads: Ints, dilations: Ints, group: Int, x_zero: Int, w_zero: Int
) -> Law:  # fmt: skip
    """conv(x, w) of codes over one axis = conv(x, w) over two, the first of size 1"""
    y = o.integer_conv(x, w, strides, pads, dilations, group, x_zero=x_zero, w_zero=w_zero)
    image = o.reshape(x, (x.shape[0], x.shape[1], 1, x.shape[2]))
    filters = o.reshape(w, (w.shape[0], w.shape[1], 1, w.shape[2]))
    window = ((1, strides[0]), (0, pads[0], 0, pads[1]), (1, dilations[0]))
    wide = o.integer_conv(image, filters, *window, group, x_zero=x_zero, w_zero=w_zero)
    return y, o.reshape(wide, y.shape), Where(x.rank == 3, IsConstant(w))
