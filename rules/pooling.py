"""Pooling: windows and global reductions as reductions over the middle axis of rank 3, a form that pooling engines share."""

from rewrite_compiler import Law, Rule, Tensor, Where, rule
from rewrite_compiler import ops as o
from rewrite_compiler.lang import Expr
from rewrite_compiler.ops import Op
from rewrite_compiler.rewrite import Int, Ints

WINDOWS = 1 << 16


def halves(size: Expr) -> Where:
    """Return the condition that a window halves down to one element: its size is a power of two, not 1."""
    return Where(size > 1, WINDOWS % size == 0)


def windows_as_rows(pool: Op, reduce: Op, grade: str, axes: int) -> Rule:
    """Return the rule that reads pooling over `axes` spatial axes, without padding, as a reduction of the windows' rows."""
    zeros = (0,) * (2 * axes)
    channels_first = (0, axes + 1, *range(1, axes + 1))
    extra = {"count_include_pad": 0} if pool is o.average_pool else {}

    @rule(name=f"{pool.name.replace('_', '-')}{axes}d-as-reduction-of-rows", grade=grade)
    def of_rows(x: Tensor, kernel: Ints, strides: Ints, dilations: Ints) -> Law:
        """pool(x) = transpose(reshape(reduce(transpose(reshape(im2col(x))))))"""
        y = pool(x, kernel, strides, zeros, dilations, ceil=0, **extra)
        taps = kernel[0] if axes == 1 else kernel[0] * kernel[1]
        windows = o.reshape(o.im2col(x, kernel, strides, zeros, dilations), (y.size // x.shape[1], x.shape[1], taps))
        reduced = reduce(o.transpose(windows, (0, 2, 1)), axes=(1,), keepdims=0)
        shape = (y.shape[0], *(y.shape[a] for a in range(2, axes + 2)), y.shape[1])
        right = o.transpose(o.reshape(reduced, shape), channels_first)
        return y, right, Where(x.rank == axes + 2, x.shape[1] > 0, *halves(taps).conditions)

    return of_rows


def image_as_rows(reduce: Op, grade: str) -> tuple[Rule, Rule]:
    """Return the rules that read a reduction over an image, or over the middle axis with that axis kept, as one of rows."""

    @rule(name=f"{reduce.name.replace('_', '-')}-of-image-as-rows", grade=grade)
    def of_image(x: Tensor, keepdims: Int) -> Law:
        """reduce(x, height and width) = reshape(reduce(transpose(reshape(x)), middle))"""
        y = reduce(x, axes=(2, 3), keepdims=keepdims)
        pixels = x.shape[2] * x.shape[3]
        rows = o.transpose(o.reshape(x, (x.shape[0], x.shape[1], pixels)), (0, 2, 1))
        return y, o.reshape(reduce(rows, axes=(1,), keepdims=0), y.shape), Where(x.rank == 4, *halves(pixels).conditions)

    @rule(name=f"{reduce.name.replace('_', '-')}-drop-kept-axis", grade="E")
    def drop_axis(x: Tensor) -> Law:
        """reduce(x, middle, kept) = reshape(reduce(x, middle))"""
        y = reduce(x, axes=(1,), keepdims=1)
        return y, o.reshape(reduce(x, axes=(1,), keepdims=0), y.shape), Where(x.rank == 3, *halves(x.shape[1]).conditions)

    return of_image, drop_axis


windows = [windows_as_rows(o.max_pool, o.reduce_max_, "E", axes) for axes in (1, 2)]
means = [windows_as_rows(o.average_pool, o.reduce_mean_, "A", axes) for axes in (1, 2)]
images = [r for reduce, grade in ((o.reduce_max_, "E"), (o.reduce_mean_, "A")) for r in image_as_rows(reduce, grade)]
