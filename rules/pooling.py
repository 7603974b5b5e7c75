"""Pooling: windows and global reductions as reductions over the middle axis of rank 3, a form that pooling engines share.

Windows fall apart, along one axis after the other and in halves, down to the two elements that such an engine compares; pools
of pools are one.
"""

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


def image_as_rows(reduce: Op, grade: str) -> tuple[Rule, Rule, Rule]:
    """Return the rules that read a reduction over an image, the last axis, or the middle axis with that axis kept, as one of rows."""

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

    @rule(name=f"{reduce.name.replace('_', '-')}-of-last-as-rows", grade=grade)
    def of_last(x: Tensor, keepdims: Int) -> Law:
        """reduce(x, last) = reshape(reduce(transpose(x), middle))"""
        y = reduce(x, axes=(2,), keepdims=keepdims)
        rows = o.transpose(x, (0, 2, 1))
        return y, o.reshape(reduce(rows, axes=(1,), keepdims=0), y.shape), Where(x.rank == 3, *halves(x.shape[2]).conditions)

    return of_image, drop_axis, of_last


# -- windows of windows


def across(pool: Op, extra: dict[str, int], grade: str) -> Rule:
    """Return the rule that pools an image along one axis after the other."""

    @rule(name=f"{pool.name.replace('_', '-')}-axis-by-axis", grade=grade)
    def axis_by_axis(x: Tensor, kernel: Ints, strides: Ints, dilations: Ints) -> Law:
        """pool(x, (k, l)) = pool(pool(x, (1, l)), (k, 1))"""
        columns = pool(x, (1, kernel[1]), (1, strides[1]), (0,) * 4, (1, dilations[1]), ceil=0, **extra)
        rows = pool(columns, (kernel[0], 1), (strides[0], 1), (0,) * 4, (dilations[0], 1), ceil=0, **extra)
        pooled = pool(x, kernel, strides, (0,) * 4, dilations, ceil=0, **extra)
        return pooled, rows, Where(x.rank == 4, kernel[0] > 1, kernel[1] > 1)

    return axis_by_axis


def nested(axes: int) -> tuple[Rule, Rule]:
    """Return the rules that read the pool of a pool over `axes` spatial axes as one: windows that meet, of means that do not overlap."""
    zeros, ones = (0,) * (2 * axes), (1,) * axes

    def both(pool: Op, x: Tensor, k: Ints, s: Ints, m: Ints, t: Ints, **extra: int) -> tuple[Tensor, Tensor]:
        outer = pool(pool(x, k, s, zeros, ones, ceil=0, **extra), m, t, zeros, ones, ceil=0, **extra)
        wide, stride = tuple(k[a] + (m[a] - 1) * s[a] for a in range(axes)), tuple(s[a] * t[a] for a in range(axes))
        return outer, pool(x, wide, stride, zeros, ones, ceil=0, **extra)

    @rule(name=f"max-pool-of-max-pool-{axes}d", grade="E")
    def of_maxima(x: Tensor, k: Ints, s: Ints, m: Ints, t: Ints) -> Law:
        """max_pool(max_pool(x, k, stride s), m, stride t) = max_pool(x, k + (m − 1)·s, stride s·t)"""
        return *both(o.max_pool, x, k, s, m, t), Where(x.rank == axes + 2, *(s[a] <= k[a] for a in range(axes)))

    @rule(name=f"average-pool-of-average-pool-{axes}d", grade="A")
    def of_means(x: Tensor, k: Ints, s: Ints, m: Ints, t: Ints) -> Law:
        """average_pool(average_pool(x, k, stride k), m, stride t) = average_pool(x, k·m, stride k·t)"""
        return *both(o.average_pool, x, k, s, m, t, count_include_pad=0), Where(x.rank == axes + 2, s == k)

    return of_maxima, of_means


def halving(axes: int, along: int) -> Rule:
    """Return the rule that makes the maximum of a window along one axis the larger one of two windows of half its length."""
    ones = (1,) * axes

    def only(value: Expr | int) -> tuple[Expr | int, ...]:
        return tuple(value if a == along else 1 for a in range(axes))

    @rule(name=f"max-pool-{axes}d-in-halves-{along}", grade="E")
    def halves_of_window(x: Tensor, kernel: Ints, strides: Ints) -> Law:
        """max_pool(x, k, stride s) = max_pool(max_pool(x, ⌈k / 2⌉, stride 1), 2 taps ⌊k / 2⌋ apart, stride s)"""
        k = kernel[along]
        half = o.max_pool(x, only((k + 1) // 2), ones, (0,) * (2 * axes), ones, ceil=0)
        pair = o.max_pool(half, only(2), strides, (0,) * (2 * axes), only(k // 2), ceil=0)
        unit_axes = [kernel[a] == 1 for a in range(axes) if a != along]
        return o.max_pool(x, kernel, strides, (0,) * (2 * axes), ones, ceil=0), pair, Where(x.rank == axes + 2, k > 2, *unit_axes)

    return halves_of_window


def whole_window(pool: Op, reduce: Op, extra: dict[str, int], grade: str) -> tuple[Rule, Rule]:
    """Return the rules that read a reduction over an image as a pool whose window is the image, and back."""

    @rule(name=f"{reduce.name.replace('_', '-')}-as-window", grade=grade)
    def as_window(x: Tensor, keepdims: Int) -> Law:
        """reduce(x, height and width) = reshape(pool(x, (height, width)))"""
        y = reduce(x, axes=(2, 3), keepdims=keepdims)
        pooled = pool(x, (x.shape[2], x.shape[3]), (1, 1), (0,) * 4, (1, 1), ceil=0, **extra)
        return y, o.reshape(pooled, y.shape), Where(x.rank == 4, x.size > 0)

    @rule(name=f"{pool.name.replace('_', '-')}-of-image-as-reduction", grade=grade)
    def as_reduction(x: Tensor, kernel: Ints, strides: Ints) -> Law:
        """pool(x, (height, width)) = reduce(x, height and width, kept)"""
        y = pool(x, kernel, strides, (0,) * 4, (1, 1), ceil=0, **extra)
        return y, reduce(x, axes=(2, 3), keepdims=1), Where(x.rank == 4, kernel == x.shape[2:4])

    return as_window, as_reduction


@rule(grade="E", marks=("any_dtype",))
def max_pool_of_row_as_image(x: Tensor, kernel: Ints, strides: Ints, dilations: Ints) -> Law:
    """max_pool(x) over one axis = max_pool(x) over two, the first of size 1"""
    y = o.max_pool(x, kernel, strides, (0, 0), dilations, ceil=0)
    image = o.reshape(x, (x.shape[0], x.shape[1], 1, x.shape[2]))
    wide = o.max_pool(image, (1, kernel[0]), (1, strides[0]), (0, 0, 0, 0), (1, dilations[0]), ceil=0)
    return y, o.reshape(wide, y.shape), Where(x.rank == 3)


def rows_of_image(reduce: Op, grade: str) -> Rule:
    """Return the rule that reads a reduction over height and width, channels last, as one over the rows of a matrix."""

    @rule(name=f"{reduce.name.replace('_', '-')}-of-image-of-channels", grade=grade)
    def of_image(x: Tensor, keepdims: Int) -> Law:
        """reduce(x, height and width) = reduce(reshape(x), rows), channels last"""
        y = reduce(x, axes=(1, 2), keepdims=keepdims)
        pixels = x.shape[1] * x.shape[2]
        rows = o.reshape(x, (x.shape[0], pixels, x.shape[3]))
        return y, o.reshape(reduce(rows, axes=(1,), keepdims=0), y.shape), Where(x.rank == 4, *halves(pixels).conditions)

    return of_image


PLAIN: dict[str, int] = {}
NO_PADS = {"count_include_pad": 0}
axis_by_axis = [across(o.max_pool, PLAIN, "E"), across(o.average_pool, NO_PADS, "A")]
pools_of_pools = [r for axes in (1, 2) for r in nested(axes)]
in_halves = [halving(1, 0), halving(2, 0), halving(2, 1)]
of_images = [*whole_window(o.max_pool, o.reduce_max_, PLAIN, "E"), *whole_window(o.average_pool, o.reduce_mean_, NO_PADS, "A")]
windows = [windows_as_rows(o.max_pool, o.reduce_max_, "E", axes) for axes in (1, 2)]
means = [windows_as_rows(o.average_pool, o.reduce_mean_, "A", axes) for axes in (1, 2)]
images = [r for reduce, grade in ((o.reduce_max_, "E"), (o.reduce_mean_, "A")) for r in image_as_rows(reduce, grade)]
channels_last = [rows_of_image(o.reduce_max_, "E"), rows_of_image(o.reduce_mean_, "A")]
