"""HVX shifts: by a scalar, by the lanes of a vector, and shifts that narrow lanes of two vectors into one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from rewrite_compiler.lang import Expr, maximum, select, shift_right, signed

from .encoding import Row
from .lanes import TYPES, Scalar, Vector, either

Lanes = Callable[[Expr], Expr]
AMOUNT_BITS = 6  # of a shift by a lane: negative amounts shift the other way


def _shift(sign: int, row: Row, a: Vector, b: Vector | Scalar, by: Scalar | None = None) -> Lanes:
    """Shift right where `sign` is 1, left where it is −1; with three sources, narrow."""
    if isinstance(b, Scalar):
        amount = b.value % (8 * a.size)
        return lambda n: a.lane(n) >> amount if sign > 0 else a.lane(n) << amount
    if by is not None:
        return _narrow(row, a, b, by)
    return lambda n: _either_way(a.lane(n), sign * signed(b.lane(n), AMOUNT_BITS))


def _either_way(x: Expr, amount: Expr) -> Expr:
    return select(amount < 0, x << maximum(-amount, 0), x >> maximum(amount, 0))


def _narrow(row: Row, u: Vector, v: Vector, by: Scalar) -> Lanes:
    """Even lanes come from the second vector and odd ones from the first."""
    amount = by.value % (8 * TYPES[row.type][0])
    rounding = "half_up" if "rnd" in row.flags else "floor"
    return lambda n: shift_right(either(n % 2, v, u).lane(n // 2), amount, rounding)


def _round(row: Row, u: Vector, v: Vector) -> Lanes:
    """Keep the high half, rounded."""
    bits = 8 * TYPES[row.type][0]
    return lambda n: shift_right(either(n % 2, v, u).lane(n // 2), bits, "half_up")


SHIFTS: Mapping[str, Callable[..., Lanes]] = {
    "vasr": partial(_shift, 1),
    "vasl": partial(_shift, -1),
    "vlsr": partial(_shift, 1),
    "vround": _round,
}
