"""Lowerings: grouped convolutions in dense blocks, products as convolutions, and products of computed pairs.

Only `--rules lowering` uses them, with the operations that write weights at run time.

They cost more than what they stand for (zeros are multiplied, layers become several calls), so that they count apart.
"""

from rewrite_compiler import IsConstant, Law, Rule, Tensor, Where, rule
from rewrite_compiler import ops as o
from rewrite_compiler.rewrite import Int, Ints

LOWERING = ("lowering", "ring")
BLOCK = 16  # channels of a block: what the engines take at once


@rule(grade="E", marks=LOWERING)
def split_groups(x: Tensor, w: Tensor, strides: Ints, pads: Ints, dilations: Ints, group: Int) -> Law:
    """conv(x, w) in g groups = its first ⌊g / 2⌋ groups beside the others"""
    y = o.conv(x, w, strides, pads, dilations, group)
    first = group // 2
    channels, filters = first * w.shape[1], w.shape[0] // group * first
    low = o.conv(
        o.slice_(x, axis=1, start=0, stop=channels), o.slice_(w, axis=0, start=0, stop=filters), strides, pads, dilations, first
    )  # fmt: skip
    high = o.conv(
        o.slice_(x, axis=1, start=channels, stop=x.shape[1]), o.slice_(w, axis=0, start=filters, stop=w.shape[0]),
        strides, pads, dilations, group - first,
    )  # fmt: skip
    return y, o.concat(low, high, axis=1), Where(IsConstant(w), group > 1, group <= 8 * w.shape[1])


def merged(axes: int) -> Rule:
    """Return the rule that makes one group of every two over `axes` spatial axes."""

    @rule(name=f"merge-groups-{axes}d", grade="Z", marks=LOWERING)
    def merge(x: Tensor, w: Tensor, strides: Ints, pads: Ints, dilations: Ints, group: Int) -> Law:
        """conv(x, w) in g groups = conv(x, w') in g / 2 groups, w' with zeros where the other group's channels are"""
        y = o.conv(x, w, strides, pads, dilations, group)
        taps = [w.shape[2 + a] for a in range(axes)]
        channels, filters = w.shape[1], w.shape[0] // group
        pairs = o.reshape(w, (group // 2, 2, filters, channels, *taps))
        none = [0] * (4 + axes)
        before, after = list(none), list(none)
        before[3] = after[3] = channels
        even = o.pad(o.slice_(pairs, axis=1, start=0, stop=1), (*none, *after), 0.0)
        odd = o.pad(o.slice_(pairs, axis=1, start=1, stop=2), (*before, *none), 0.0)
        block_diagonal = o.reshape(o.concat(even, odd, axis=1), (w.shape[0], 2 * channels, *taps))
        small = Where(IsConstant(w), x.rank == axes + 2, group % 2 == 0, group > 1, channels < BLOCK, channels > 0, filters > 0)
        return y, o.conv(x, block_diagonal, strides, pads, dilations, group // 2), small

    return merge


merging = [merged(axes) for axes in (1, 2)]


@rule(phase="late", grade="E", marks=LOWERING)
def dense_as_conv2d(x: Tensor, w: Tensor) -> Law:
    """dense(x, w) = conv(xᵀ, w) with one tap, the rows side by side in one image"""
    rows, inner, columns = x.shape[0], w.shape[1], w.shape[0]
    image = o.reshape(o.transpose(x, (1, 0)), (1, inner, 1, rows))
    product = o.conv(image, o.reshape(w, (columns, inner, 1, 1)), (1, 1), (0, 0, 0, 0), (1, 1), group=1)
    return o.dense(x, w), o.transpose(o.reshape(product, (columns, rows)), (1, 0)), Where(x.rank == 2, rows > 0, inner > 0, IsConstant(w))


@rule(phase="late", grade="E", marks=LOWERING)
def dense_as_pair(x: Tensor, w: Tensor) -> Law:
    """dense(x, w) = the one product of a batch of pairs"""
    y = o.dense(x, w)
    rows, inner, columns = x.shape[0], w.shape[1], w.shape[0]
    pair = o.matmul(o.reshape(x, (1, rows, inner)), o.reshape(o.transpose(w, (1, 0)), (1, inner, columns)))
    return y, o.reshape(pair, (rows, columns)), Where(x.rank == 2, rows > 0, inner > 0, columns > 0)


def one_axis_of_pairs(axes: int) -> Rule:
    """Return the rule that puts the pairs over `axes` axes one after the other."""

    @rule(name=f"one-axis-of-pairs-{axes}", grade="E", marks=LOWERING)
    def one_axis(a: Tensor, b: Tensor) -> Law:
        """a·b = reshape(reshape(a)·reshape(b)) with one axis of pairs in place of several"""
        y = o.matmul(a, b)
        pairs = a.shape[0]
        for k in range(1, axes):
            pairs = pairs * a.shape[k]
        rows, inner, columns = a.shape[axes], a.shape[axes + 1], b.shape[axes + 1]
        product = o.matmul(o.reshape(a, (pairs, rows, inner)), o.reshape(b, (pairs, inner, columns)))
        same = [a.shape[k] == b.shape[k] for k in range(axes)]
        return y, o.reshape(product, y.shape), Where(a.rank == axes + 2, b.rank == axes + 2, *same)

    return one_axis


pairs = [one_axis_of_pairs(axes) for axes in (2, 3)]
