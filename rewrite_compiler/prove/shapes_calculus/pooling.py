"""Pooling at symbolic shapes: windows without padding, whose taps are all inside, and means over padded ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .polynomials import Poly, product
from .real_elements import ZERO_ELEMENT, NotProved, Real, ShapeMismatch, number
from .symbolic_tensors import (
    Attributes,
    Index,
    Tensor,
    Typing,
    all_axis_pads,
    integer_element,
    mean_of,
    padded_read,
    tensor_by_index,
    windows,
)


def _pool(
    combined: Callable[[Typing, Sequence[Poly], Callable[..., Real]], Real],
) -> Callable[[Typing, Sequence[Tensor], Attributes], Tensor]:
    def reader(t: Typing, operands: Sequence[Tensor], a: Attributes) -> Tensor:
        (x,), kernel = operands, a["kernel"]
        if len(x.shape) < 3:
            raise ShapeMismatch
        for k in kernel:
            t.require_nonnegative(k - 1)
        is_padded = any(t.facts.norm(p).number != 0 for p in a["pads"])
        if a["ceil"].number != 0 or (is_padded and "count_include_pad" not in a):
            raise NotProved("it has no reading of windows rounded up, and of extrema of windows with pads")
        shape = [*x.shape[:2], *windows(t, x.shape[2:], kernel, a)]
        pads = all_axis_pads(x, a["pads"])

        def at(i: Index) -> Real:
            n, c, *p = i

            def place(k: Sequence[Poly]) -> list[Poly]:
                return [n, c, *(q * s + j * d for q, s, j, d in zip(p, a["strides"], k, a["dilations"], strict=True))]

            if not is_padded:
                return combined(t, kernel, lambda *k: x.at(place(k)))
            total = t.reals.total(kernel, lambda *k: padded_read(t, x, place(k), pads, ZERO_ELEMENT))
            if a["count_include_pad"].number:
                return t.reals.apply("rdiv", total, integer_element(t, product(kernel)))
            ones = Tensor(x.shape, lambda i: number(1), lambda p: number(1))
            counted = t.reals.total(kernel, lambda *k: padded_read(t, ones, place(k), pads, ZERO_ELEMENT))
            return t.reals.apply("rdiv", total, t.reals.apply("max", counted, number(1)))

        return tensor_by_index(t, shape, at)

    return reader


POOLS: dict[str, Callable[[Typing, Sequence[Tensor], Attributes], Tensor]] = {
    "average_pool": _pool(mean_of),
    "max_pool": _pool(lambda t, extents, tap: t.reals.extremum("max", extents, tap)),
}
