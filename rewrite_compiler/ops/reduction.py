"""Pooling and reductions over axes."""

from __future__ import annotations

import math
from collections.abc import Callable

from ..lang.arithmetic import maximum, minimum
from ..lang.binders import Array, array, reduce_max, reduce_sum
from ..lang.expr import Expr, as_real, lift, select
from .conv import WINDOW, window_extents
from .op import Op, Shape, ShapeError, op


def _pool_shape(x: Shape, *, kernel: Shape, strides: Shape, pads: Shape, dilations: Shape, ceil: int, **_: int) -> Shape:
    if len(x) < 3:
        raise ShapeError(f"pooling needs x[N, C, …], not {x}")
    return (*x[:2], *window_extents(x[2:], kernel, strides, pads, dilations, ceil=bool(ceil)))


def _max_pool_shape(x: Shape, *, kernel: Shape, strides: Shape, pads: Shape, dilations: Shape, ceil: int) -> Shape:
    shape = _pool_shape(x, kernel=kernel, strides=strides, pads=pads, dilations=dilations, ceil=ceil)
    if ceil or any(pads):
        for n, count, k, s, d, before in zip(x[2:], shape[2:], kernel, strides, dilations, pads, strict=False):
            start = next((start for p in range(count) if not _holds_element(start := p * s - before, n, k, d)), None)
            if start is not None:
                taps = f"A window of {k} taps {d} apart from {start} on"
                raise ShapeError(f"{taps} holds none of the {n} elements: padding has no largest one")
    return shape


def _holds_element(start: int, n: int, taps: int, apart: int) -> bool:
    """Tell whether one of the taps from `start` on lies in 0 … n − 1."""
    first = max(-(start // apart), 0)
    return first < taps and start + first * apart < n


@op("max_pool", "x", _max_pool_shape, attributes=f"kernel:ints {WINDOW} ceil:int=0")
def max_pool(x: Array, *, kernel: Shape, strides: Shape, pads: Shape, dilations: Shape, ceil: int) -> Array:
    """The largest element of each window; padding counts as −∞."""
    shape = _max_pool_shape(x.shape, kernel=kernel, strides=strides, pads=pads, dilations=dilations, ceil=ceil)  # type: ignore[arg-type]

    def element(n: Expr, c: Expr, *i: Expr) -> Expr:
        def tap(*k: Expr) -> Expr:
            places = []
            for axis, (p, q) in enumerate(zip(i, k, strict=True)):
                start, d = p * strides[axis] - pads[axis], dilations[axis]
                # a tap outside is replaced by the nearest tap of the same window that is inside
                first = (maximum(-start, 0) + d - 1) // d
                last = (int(x.shape[axis + 2]) - 1 - start) // d  # type: ignore[arg-type]
                places.append(start + minimum(maximum(q, first), last) * d)
            return x[(n, c, *places)]

        return reduce_max(tap, kernel)

    return array(element, shape)


@op("average_pool", "x", _pool_shape, attributes=f"kernel:ints {WINDOW} ceil:int=0 count_include_pad:int=0")
def average_pool(x: Array, *, kernel: Shape, strides: Shape, pads: Shape, dilations: Shape, ceil: int, count_include_pad: int) -> Array:
    """The mean of each window over its real elements, or over its padded ones too."""
    attributes = {"kernel": kernel, "strides": strides, "pads": pads, "dilations": dilations}
    shape = _pool_shape(x.shape, **attributes, ceil=ceil)  # type: ignore[arg-type]
    rank = len(kernel)
    extents = [int(n) for n in x.shape[2:]]  # type: ignore[arg-type]

    def element(n: Expr, c: Expr, *i: Expr) -> Expr:
        starts = [p * s - b for p, s, b in zip(i, strides, pads, strict=False)]

        def tap(*k: Expr) -> Expr:
            places = [start + q * d for start, q, d in zip(starts, k, dilations, strict=True)]
            inside: Expr = lift(1)
            for place, size in zip(places, extents, strict=True):
                inside = inside & (place >= 0) & (place < size)
            if inside.value == 0:  # every window lies in the padding: there is no element to name
                return as_real(lift(0)) if x.real else lift(0)
            return select(inside, x[(n, c, *places)], 0)

        def counted(*k: Expr) -> Expr:
            inside: Expr = lift(1)
            for axis, (start, q, d) in enumerate(zip(starts, k, dilations, strict=True)):
                place = start + q * d
                low, high = (-pads[axis], extents[axis] + pads[axis + rank]) if count_include_pad else (0, extents[axis])
                inside = inside & (place >= low) & (place < high)
            return inside

        return reduce_sum(tap, kernel) / as_real(maximum(reduce_sum(counted, kernel), 1))

    return array(element, shape)


def _reduced_shape(x: Shape, *, axes: Shape, keepdims: int) -> Shape:
    if len(set(axes)) != len(axes) or any(not 0 <= a < len(x) for a in axes):
        raise ShapeError(f"Reduced axes must be different and in 0…{len(x) - 1}, not {tuple(axes)}")
    return tuple(1 if a in axes else n for a, n in enumerate(x) if keepdims or a not in axes)


def _reduction(name: str, reduce: Callable[[Callable[..., Expr], Shape], Expr], finish: Callable[[Expr, int], Expr], doc: str) -> Op:
    def meaning(x: Array, *, axes: Shape, keepdims: int) -> Array:
        extents = tuple(int(x.shape[a]) for a in axes)  # type: ignore[arg-type]

        def element(*i: Expr) -> Expr:
            remaining = iter([p for a, p in enumerate(i) if a not in axes] if keepdims else i)

            def term(*k: Expr) -> Expr:
                inner = dict(zip(axes, k, strict=True))
                outer = iter(saved)
                return x[tuple(inner[a] if a in inner else next(outer) for a in range(x.rank))]

            saved = list(remaining)
            return finish(reduce(term, extents), math.prod(extents))

        return array(element, _reduced_shape(x.shape, axes=axes, keepdims=keepdims))  # type: ignore[arg-type]

    meaning.__doc__ = doc
    return op(name, "x", _reduced_shape, attributes="axes:ints keepdims:int=1")(meaning)


reduce_mean_ = _reduction("reduce_mean", reduce_sum, lambda e, n: as_real(e) / n, "The mean over some axes.")
reduce_sum_ = _reduction("reduce_sum", reduce_sum, lambda e, n: e, "The sum over some axes.")
reduce_max_ = _reduction("reduce_max", reduce_max, lambda e, n: e, "The largest element over some axes.")
