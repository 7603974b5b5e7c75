"""Contractions at symbolic shapes: the sums of products that dense, matmul, conv and the like read at any index."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .polynomials import Poly, as_poly, product
from .real_elements import ZERO_ELEMENT, Real, ShapeMismatch
from .symbolic_tensors import (
    Attributes,
    Index,
    Tensor,
    Typing,
    all_axis_pads,
    broadcast,
    broadcast_read,
    padded_read,
    tensor_by_index,
    windows,
)


def dense(t: Typing, operands: Sequence[Tensor], a: Attributes) -> Tensor:
    """Return x·wᵀ over the last axis: x [..., k], w [n, k] → [..., n].

    Raises:
        ShapeMismatch: w is no matrix, x a scalar, or k differs.
    """
    x, w = operands
    if len(w.shape) != 2 or not x.shape:
        raise ShapeMismatch
    t.require_equal(x.shape[-1], w.shape[1])
    r = t.reals
    return tensor_by_index(
        t,
        (*x.shape[:-1], w.shape[0]),
        lambda i: r.total([w.shape[1]], lambda c: r.multiply(x.at((*i[:-1], c)), w.at((i[-1], c)))),
    )


def matmul(t: Typing, operands: Sequence[Tensor], a: Attributes) -> Tensor:
    """Return a matrix product over the last two axes, the leading ones broadcast: [..., m, k], [..., k, n] → [..., m, n].

    Raises:
        ShapeMismatch: an operand has fewer than two axes, k differs, or the leading axes do not broadcast.
    """
    x, y = operands
    if len(x.shape) < 2 or len(y.shape) < 2:
        raise ShapeMismatch
    t.require_equal(x.shape[-1], y.shape[-2])
    shape = (*broadcast(t, [x.shape[:-2], y.shape[:-2]]), x.shape[-2], y.shape[-1])
    r = t.reals

    def at(i: Index) -> Real:
        lead, m, n = i[:-2], i[-2], i[-1]

        def term(c: Poly) -> Real:
            return r.multiply(*(broadcast_read(t, v, (*lead, *p), (*shape[:-2], *v.shape[-2:])) for v, p in ((x, (m, c)), (y, (c, n)))))

        return r.total([x.shape[-1]], term)

    return tensor_by_index(t, shape, at)


def gate_sum(t: Typing, operands: Sequence[Tensor], a: Attributes) -> Tensor:
    """Return x·wᵀ + h·rᵀ + a + b: x [n, k], h [n, u], w [m, k], r [m, u], a and b [m] → [n, m].

    Raises:
        ShapeMismatch: ranks or extents differ from these.
    """
    x, h, w, r, first, second = operands
    if any(len(m.shape) != 2 for m in (x, h, w, r)) or any(len(v.shape) != 1 for v in (first, second)):
        raise ShapeMismatch
    equal_extents = ((x, 0, h, 0), (w, 1, x, 1), (r, 0, w, 0), (r, 1, h, 1), (first, 0, w, 0), (second, 0, w, 0))
    for left, k, right, n in equal_extents:
        t.require_equal(left.shape[k], right.shape[n])
    reals = t.reals

    def at(i: Index) -> Real:
        n, j = i
        from_x = reals.total([w.shape[1]], lambda c: reals.multiply(x.at((n, c)), w.at((j, c))))
        from_h = reals.total([r.shape[1]], lambda c: reals.multiply(h.at((n, c)), r.at((j, c))))
        return reals.add(from_x, from_h, first.at([j]), second.at([j]))

    return tensor_by_index(t, (x.shape[0], w.shape[0]), at)


def conv(t: Typing, operands: Sequence[Tensor], a: Attributes) -> Tensor:
    """Return a cross-correlation: x [n, c, …], w [o, c / group, …] → [n, o, …].

    Raises:
        ShapeMismatch: ranks, channels or windows do not fit.
    """
    x, w = operands
    if len(x.shape) < 3 or len(w.shape) != len(x.shape):
        raise ShapeMismatch
    group = a["group"]
    t.require_nonnegative(group - 1)
    t.require_equal(x.shape[1], w.shape[1] * group)
    out = windows(t, x.shape[2:], w.shape[2:], a)
    outputs = w.shape[0]
    if group.number != 1:
        outputs = t.facts.floor_quotient(w.shape[0], group)
        t.require_equal(outputs * group, w.shape[0])
    pads, r = all_axis_pads(x, a["pads"]), t.reals

    def at(i: Index) -> Real:
        n, o, *p = i
        first = as_poly(0) if group.number == 1 else t.facts.floor_quotient(o, outputs) * w.shape[1]

        def term(c: Poly, *k: Poly) -> Real:
            places = [q * s + j * d for q, s, j, d in zip(p, a["strides"], k, a["dilations"], strict=True)]
            return r.multiply(padded_read(t, x, [n, first + c, *places], pads, ZERO_ELEMENT), w.at([o, c, *k]))

        return r.total([w.shape[1], *w.shape[2:]], term)

    return tensor_by_index(t, [x.shape[0], w.shape[0], *out], at)


def im2col(t: Typing, operands: Sequence[Tensor], a: Attributes) -> Tensor:
    """Return the windows of x [n, c, …] as rows: [n · positions, c · window].

    Raises:
        ShapeMismatch: x has no spatial axis, or the windows do not fit.
    """
    (x,), kernel = operands, a["kernel"]
    if len(x.shape) < 3:
        raise ShapeMismatch
    for k in kernel:
        t.require_nonnegative(k - 1)
    out = [x.shape[0], *windows(t, x.shape[2:], kernel, a)]
    columns, pads = [x.shape[1], *kernel], all_axis_pads(x, a["pads"])

    def at(i: Index) -> Real:
        n, *p = t.facts.digits(i[0], out)
        c, *k = t.facts.digits(i[1], columns)
        places = [q * s + j * d for q, s, j, d in zip(p, a["strides"], k, a["dilations"], strict=True)]
        return padded_read(t, x, [n, c, *places], pads, ZERO_ELEMENT)

    return tensor_by_index(t, [product(out), product(columns)], at)


CONTRACTIONS: dict[str, Callable[[Typing, Sequence[Tensor], Attributes], Tensor]] = {
    "conv": conv,
    "dense": dense,
    "gate_sum": gate_sum,
    "im2col": im2col,
    "matmul": matmul,
}
