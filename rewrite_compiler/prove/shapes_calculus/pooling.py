"""Pooling at symbolic shapes: windows without padding, whose taps are all inside."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .polynomials import Poly
from .real_elements import NotProved, Real, ShapeMismatch
from .symbolic_tensors import Attributes, Index, Tensor, Typing, mean_of, tensor_by_index, windows


def _pool(
    combined: Callable[[Typing, Sequence[Poly], Callable[..., Real]], Real],
) -> Callable[[Typing, Sequence[Tensor], Attributes], Tensor]:
    def reader(t: Typing, operands: Sequence[Tensor], a: Attributes) -> Tensor:
        (x,), kernel = operands, a["kernel"]
        if len(x.shape) < 3:
            raise ShapeMismatch
        for k in kernel:
            t.require_nonnegative(k - 1)
        if a["ceil"].number != 0 or any(t.facts.norm(p).number != 0 for p in a["pads"]):
            raise NotProved("it has no reading of windows with pads or rounded up")
        shape = [*x.shape[:2], *windows(t, x.shape[2:], kernel, a)]

        def at(i: Index) -> Real:
            n, c, *p = i

            def tap(*k: Poly) -> Real:
                return x.at([n, c, *(q * s + j * d for q, s, j, d in zip(p, a["strides"], k, a["dilations"], strict=True))])

            return combined(t, kernel, tap)

        return tensor_by_index(t, shape, at)

    return reader


POOLS: dict[str, Callable[[Typing, Sequence[Tensor], Attributes], Tensor]] = {
    "average_pool": _pool(mean_of),
    "max_pool": _pool(lambda t, extents, tap: t.reals.extremum("max", extents, tap)),
}
