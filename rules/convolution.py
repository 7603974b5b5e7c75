"""Convolution as a linear layer on windows, the windows of one tap as channels, one axis as two, and padding."""

from rewrite_compiler import IsConstant, Law, Rule, Tensor, Where, rule
from rewrite_compiler import ops as o
from rewrite_compiler.rewrite import Int, Ints

RING = ("ring",)


def as_dense(axes: int) -> tuple[Rule, Rule]:
    """Return the rules that read a convolution over `axes` spatial axes as a linear layer."""
    channels_last = (0, *range(2, axes + 2), 1)
    channels_first = (0, axes + 1, *range(1, axes + 1))

    @rule(name=f"conv{axes}d-as-dense-of-windows", grade="A", marks=RING)
    def of_windows(x: Tensor, w: Tensor, strides: Ints, pads: Ints, dilations: Ints) -> Law:
        """conv(x, w) = transpose(reshape(dense(im2col(x), reshape(w))))"""
        y = o.conv(x, w, strides, pads, dilations, group=1)
        windows = o.im2col(x, w.shape[2 : axes + 2], strides, pads, dilations)
        rows = o.dense(windows, o.reshape(w, (w.shape[0], w.size // w.shape[0])))
        shape = [y.shape[a] for a in channels_last]
        return y, o.transpose(o.reshape(rows, shape), channels_first), Where(x.rank == axes + 2, w.shape[0] > 0)

    @rule(name=f"one-tap-windows{axes}d-as-channels", grade="E", marks=("any_dtype",))
    def of_channels(x: Tensor, dilations: Ints) -> Law:
        """im2col(x) = reshape(transpose(x)) for a kernel of one tap"""
        ones, zeros = (1,) * axes, (0,) * (2 * axes)
        y = o.im2col(x, ones, ones, zeros, dilations)
        return y, o.reshape(o.transpose(x, channels_last), y.shape)

    return of_windows, of_channels


linear = [r for axes in (1, 2) for r in as_dense(axes)]


@rule(grade="E", marks=RING)
def conv1d_as_conv2d(x: Tensor, w: Tensor, strides: Ints, pads: Ints, dilations: Ints, group: Int) -> Law:
    """conv(x, w) over one axis = conv(x, w) over two, the first of size 1"""
    y = o.conv(x, w, strides, pads, dilations, group)
    image = o.reshape(x, (x.shape[0], x.shape[1], 1, x.shape[2]))
    filters = o.reshape(w, (w.shape[0], w.shape[1], 1, w.shape[2]))
    wide = o.conv(image, filters, (1, strides[0]), (0, pads[0], 0, pads[1]), (1, dilations[0]), group)
    return y, o.reshape(wide, y.shape), Where(x.rank == 3, IsConstant(w))


@rule(grade="A", marks=RING)
def scale_filters(x: Tensor, w: Tensor, s: Tensor, strides: Ints, pads: Ints, dilations: Ints, group: Int) -> Law:
    """conv(x, w) · s = conv(x, w · s by filter) for constant w and s"""
    left = o.scale(o.conv(x, w, strides, pads, dilations, group), s, axis=1)
    return left, o.conv(x, o.scale(w, s, axis=0), strides, pads, dilations, group), Where(IsConstant(w), IsConstant(s))


@rule(grade="A", marks=RING)
def scale_channels(x: Tensor, w: Tensor, s: Tensor, strides: Ints, pads: Ints, dilations: Ints) -> Law:
    """conv(x · s, w) = conv(x, w · s by input channel) for constant w and s"""
    left = o.conv(o.scale(x, s, axis=1), w, strides, pads, dilations, group=1)
    return left, o.conv(x, o.scale(w, s, axis=1), strides, pads, dilations, group=1), Where(IsConstant(w), IsConstant(s))


@rule(grade="Z", marks=RING)
def pad_inside_conv2d(x: Tensor, w: Tensor, outer: Ints, strides: Ints, pads: Ints, dilations: Ints, group: Int) -> Law:
    """conv(pad(x, q), w, pads p) = conv(x, w, pads p + q) for zeros around the spatial axes"""
    left = o.conv(o.pad(x, outer, 0.0), w, strides, pads, dilations, group)
    sums = (pads[0] + outer[2], pads[1] + outer[3], pads[2] + outer[6], pads[3] + outer[7])
    spatial = Where(x.rank == 4, outer[0] + outer[1] + outer[4] + outer[5] == 0)
    return left, o.conv(x, w, strides, sums, dilations, group), spatial


@rule(phase="late", grade="Z", marks=RING)
def pad_before_conv2d(x: Tensor, w: Tensor, strides: Ints, pads: Ints, dilations: Ints, group: Int) -> Law:
    """conv(x, w, pads p) = conv(pad(x, p), w, pads 0)"""
    left = o.conv(x, w, strides, pads, dilations, group)
    around = (0, 0, pads[0], pads[1], 0, 0, pads[2], pads[3])
    padded = Where(x.rank == 4, pads[0] + pads[1] + pads[2] + pads[3] > 0)
    return left, o.conv(o.pad(x, around, 0.0), w, strides, (0, 0, 0, 0), dilations, group), padded
