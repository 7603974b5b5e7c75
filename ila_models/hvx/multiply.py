"""HVX products: lane by lane, sums of four, words by halves, and fixed-point products of which the high part is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rewrite_compiler.lang import Expr, reduce_sum

from .encoding import Row
from .lanes import Scalar, Vector

Lanes = Callable[[Expr], Expr]
FOUR = 4  # bytes of a word


def _lane_products(row: Row, a: Vector, b: Vector | Scalar) -> Lanes:
    """Products of lanes; those that keep the rounded high half of twice the product have a shift in their flags."""
    if "<<1" in row.flags:
        return lambda n: (2 * a.lane(n) * b.lane(n) + (1 << 15)) >> 16
    return lambda n: a.lane(n) * b.lane(n)


def _sums_of_four(_: Row, a: Vector, b: Vector | Scalar) -> Lanes:
    return lambda n: reduce_sum(lambda k: a.lane(FOUR * n + k) * b.lane(FOUR * n + k), FOUR)


def _words_by_halves(odd: int, shift: int = 0) -> Callable[[Row, Vector, Vector], Lanes]:
    """Words times the even or odd halves, shifted right."""
    return lambda _, a, b: lambda n: (a.lane(n) * b.lane(2 * n + odd)) >> shift


def _fractions_by_odd(row: Row, a: Vector, b: Vector) -> Lanes:
    def lane(n: Expr) -> Expr:
        product = a.lane(n) * b.lane(2 * n + 1)
        return ((product >> 14) + 1) >> 1 if "rnd" in row.flags else product >> 15

    return lane


def _even_by_odd(_: Row, a: Vector, b: Vector) -> Lanes:
    return lambda n: (a.lane(2 * n) * b.lane(2 * n + 1)) << 16


PRODUCTS: Mapping[str, Callable[..., Lanes]] = {
    "vmpy": _lane_products,
    "vmpyi": _lane_products,
    "vrmpy": _sums_of_four,
    "vmpyio": _words_by_halves(1),
    "vmpyie": _words_by_halves(0),
    "vmpye": _words_by_halves(0, 16),
    "vmpyo": _fractions_by_odd,
    "vmpyieo": _even_by_odd,
}
