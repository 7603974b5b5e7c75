"""Laws of windows and of contractions: with them im2col follows, without any law that names it for a convolution."""

from rewrite_compiler import Law, Tensor, Where, rule
from rewrite_compiler import ops as o
from rewrite_compiler.rewrite import Ints

RING = ("ring",)


@rule(grade="A", marks=RING)
def each_window_as_an_image(x: Tensor, w: Tensor, strides: Ints, pads: Ints, dilations: Ints) -> Law:
    """conv(x, w) = transpose(reshape(conv(windows of x, each an image, w)))"""
    y = o.conv(x, w, strides, pads, dilations, group=1)
    windows = o.im2col(x, w.shape[2:4], strides, pads, dilations)
    pixels = y.shape[0] * y.shape[2] * y.shape[3]
    images = o.reshape(windows, (pixels, w.shape[1], w.shape[2], w.shape[3]))
    each = o.conv(images, w, (1, 1), (0, 0, 0, 0), (1, 1), group=1)
    rows = o.reshape(each, (y.shape[0], y.shape[2], y.shape[3], y.shape[1]))
    return y, o.transpose(rows, (0, 3, 1, 2)), Where(x.rank == 4, y.shape[2] * y.shape[3] > 1)


@rule(grade="A", marks=RING)
def whole_image_as_a_contraction(x: Tensor, w: Tensor, strides: Ints) -> Law:
    """conv(x, w) = reshape(dense(reshape(x), reshape(w))) when the kernel is as large as the image"""
    y = o.conv(x, w, strides, (0, 0, 0, 0), (1, 1), group=1)
    size = w.shape[1] * w.shape[2] * w.shape[3]
    product = o.dense(o.reshape(x, (x.shape[0], size)), o.reshape(w, (w.shape[0], size)))
    same = Where(x.rank == 4, x.shape[2] == w.shape[2], x.shape[3] == w.shape[3], w.shape[0] > 0)
    return y, o.reshape(product, (x.shape[0], w.shape[0], 1, 1)), same
