"""Convolution and im2col over any number of spatial axes, batch first and channels second."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..lang.binders import Array, array, reduce_sum
from ..lang.expr import Expr, lift, select
from .op import LAYOUT, Shape, ShapeError, op

WINDOW = "strides:ints pads:ints dilations:ints"


def window_extents(spatial: Shape, kernel: Shape, strides: Shape, pads: Shape, dilations: Shape, *, ceil: bool = False) -> Shape:
    """Return the output extents of a sliding window over `spatial` axes (ONNX semantics).

    `pads` are the elements before each axis, then those after each; `ceil` counts a last window that is not whole.

    Raises:
        ShapeError: the lists have other lengths than the axes, an entry is out of range, or no window fits.
    """
    rank = len(spatial)
    if not len(kernel) == len(strides) == len(dilations) == rank or len(pads) != 2 * rank:
        raise ShapeError(
            f"a window over {rank} axes needs {rank} strides, {rank} dilations and {2 * rank} pads, not {strides}, {dilations}, {pads}"
        )
    for label, values in (("Strides", strides), ("Dilations", dilations), ("Kernel extents", kernel)):
        if any(v < 1 for v in values):
            raise ShapeError(f"{label} must be positive, not {tuple(values)}")
    if any(p < 0 for p in pads):
        raise ShapeError(f"Pads must not be negative, not {tuple(pads)}")
    extents = []
    for axis, (n, k, s, d) in enumerate(zip(spatial, kernel, strides, dilations, strict=True)):
        room = n + pads[axis] + pads[axis + rank] - d * (k - 1) - 1
        if room < 0:
            raise ShapeError(f"A window of {d * (k - 1) + 1} does not fit in {n} elements padded by {pads[axis]} and {pads[axis + rank]}")
        steps = -(-room // s) if ceil else room // s
        if ceil and steps * s >= n + pads[axis]:
            steps -= 1
        extents.append(steps + 1)
    return tuple(extents)


def zero_padded(x: Array, pads: Shape) -> Array:
    """Return x [N, C, …] with zeros around its spatial axes; `pads` are those before each axis, then those after each."""
    rank = x.rank - 2
    if not any(pads):
        return x
    extents = [int(n) for n in x.shape[2:]]  # type: ignore[arg-type]

    def element(n: Expr, c: Expr, *i: Expr) -> Expr:
        inside: Expr = lift(1)
        for axis, (place, size) in enumerate(zip(i, extents, strict=True)):
            inside = inside & (place >= pads[axis]) & (place < pads[axis] + size)
        return select(inside, x[(n, c, *(p - pads[a] for a, p in enumerate(i)))], 0)

    return array(element, (*x.shape[:2], *(size + pads[a] + pads[a + rank] for a, size in enumerate(extents))))


def _conv_shape(x: Shape, w: Shape, *, strides: Shape, pads: Shape, dilations: Shape, group: int) -> Shape:
    if len(x) < 3 or len(w) != len(x):
        raise ShapeError(f"conv needs x[N, C, …] and w[O, C/group, …] of one rank, not {x} and {w}")
    if group < 1 or x[1] % group or w[0] % group:
        raise ShapeError(f"Group of conv must divide the {x[1]} channels and {w[0]} filters, not {group}")
    if w[1] * group != x[1]:
        raise ShapeError(f"Filters of conv must have {x[1] // group} channels ({x[1]} over group {group}), not {w[1]}")
    return (x[0], w[0], *window_extents(x[2:], w[2:], strides, pads, dilations))


def _conv_macs(x: Shape, w: Shape, **attributes: object) -> int:
    out = _conv_shape(x, w, **attributes)  # type: ignore[arg-type]
    return math.prod(out) * math.prod(w[1:])


@op("conv", "x w", _conv_shape, attributes=f"{WINDOW} group:int", macs=_conv_macs)
def conv(x: Array, w: Array, *, strides: Shape, pads: Shape, dilations: Shape, group: int) -> Array:
    """Cross-correlation of zero-padded x[N, C, …] with w[O, C/group, …]."""
    padded = zero_padded(x, pads)
    shape = _conv_shape(x.shape, w.shape, strides=strides, pads=pads, dilations=dilations, group=group)  # type: ignore[arg-type]
    per_group, outputs = w.shape[1], shape[1] // group

    def element(n: Expr, o: Expr, *i: Expr) -> Expr:
        first = 0 if group == 1 else o // outputs * per_group

        def product(c: Expr, *k: Expr) -> Expr:
            places = [p * s + q * d for p, s, q, d in zip(i, strides, k, dilations, strict=True)]
            return padded[(n, first + c, *places)] * w[(o, c, *k)]

        return reduce_sum(product, (per_group, *w.shape[2:]))

    return array(element, shape)


def _im2col_shape(x: Shape, *, kernel: Shape, strides: Shape, pads: Shape, dilations: Shape) -> Shape:
    if len(x) < 3:
        raise ShapeError(f"im2col needs x[N, C, …], not {x}")
    rows = math.prod((x[0], *window_extents(x[2:], kernel, strides, pads, dilations)))
    return (rows, x[1] * math.prod(kernel))


@op("im2col", "x", _im2col_shape, attributes=f"kernel:ints {WINDOW}", kind=LAYOUT)
def im2col(x: Array, *, kernel: Shape, strides: Shape, pads: Shape, dilations: Shape) -> Array:
    """The window under each output position as a row; columns ordered channel, then kernel axes."""
    padded = zero_padded(x, pads)
    out = (int(x.shape[0]), *window_extents(x.shape[2:], kernel, strides, pads, dilations))  # type: ignore[arg-type]
    columns = (int(x.shape[1]), *kernel)  # type: ignore[arg-type]

    def element(row: Expr, column: Expr) -> Expr:
        n, *i = digits(row, out)
        c, *k = digits(column, columns)
        return padded[(n, c, *(p * s + q * d for p, s, q, d in zip(i, strides, k, dilations, strict=True)))]

    return array(element, (math.prod(out), math.prod(columns)))


def digits(number: Expr, extents: Sequence[int]) -> list[Expr]:
    """Return a row-major position as one index an axis."""
    places: list[Expr] = []
    for n in reversed(extents[1:]):
        places.insert(0, number % n)
        number = number // n
    return [number, *places]
