"""Derived integer arithmetic: rounding shifts, signed fields, concatenation. Formulas checked exhaustively in tests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import reduce
from operator import and_, or_

from ..errors import SpecError
from .expr import Expr, Operand, binary, clamp, extract, floor, lift, round_even, select, wrap

ROUNDINGS = ("floor", "half_up", "half_down", "half_even", "zero", "half_away")


def shift_right(a: Operand, amount: Operand, rounding: str = "floor") -> Expr:
    """Return a / 2^amount rounded to an integer; amount ≥ 0.

    floor ⌊·⌋ · half_up nearest, ties to +∞ · half_down ties to −∞ · half_even ties to even · zero toward 0 ·
    half_away ties away from 0.

    Raises:
        SpecError: `rounding` is none of these.
    """
    x, n = lift(a), lift(amount)
    half = (lift(1) << n) >> 1
    if rounding == "floor":
        return x >> n
    if rounding == "half_up":
        return (x + half) >> n
    if rounding == "half_down":
        return (x + binary("max", half - 1, 0)) >> n
    if rounding == "half_even":
        return select(n == 0, x, (x + half - 1 + ((x >> n) % 2)) >> n)
    if rounding == "zero":
        return (x + select(x < 0, (lift(1) << n) - 1, 0)) >> n
    if rounding == "half_away":
        return select(x < 0, -((-x + half) >> n), (x + half) >> n)
    raise _unknown(rounding)


def rounded(a: Operand, rounding: str = "floor") -> Expr:
    """Return a real term rounded to an integer in one of the modes of `shift_right`.

    Written so that 64-bit floats give the exact answer: x − ⌊x⌋ ≥ ½ is never misjudged, x + ½ would be.

    Raises:
        SpecError: `rounding` is none of the modes.
    """
    x = lift(a)
    if not x.real:
        return x
    if rounding == "floor":
        return floor(x)
    if rounding == "half_up":
        return _half_up(x)
    if rounding == "half_down":
        return -_half_up(-x)
    if rounding == "half_even":
        return round_even(x)
    if rounding == "zero":
        return select(x < 0, -floor(-x), floor(x))
    if rounding == "half_away":
        return select(x < 0, -_half_up(-x), _half_up(x))
    raise _unknown(rounding)


def _half_up(x: Expr) -> Expr:
    below = floor(x)
    return below + (x - below >= Fraction(1, 2))


def _unknown(rounding: str) -> SpecError:
    return SpecError("I102", f'there is no rounding "{rounding}"', help=f"known: {', '.join(ROUNDINGS)}")


def shift(a: Operand, amount: Operand) -> Expr:
    """Return ⌊a / 2^amount⌋; a negative amount shifts left."""
    x, n = lift(a), lift(amount)
    if n.value is not None:
        return x >> n if int(n.value) >= 0 else x << -n
    return select(n < 0, x << binary("max", -n, 0), x >> binary("max", n, 0))


def signed(a: Operand, bits: int) -> Expr:
    """Return the low `bits` bits of an integer as a two's complement word."""
    return wrap(a, bits, True)


def concat(*parts: tuple[Operand, int]) -> Expr:
    """Return the concatenation of unsigned fields (value, width in bits), the most significant first."""
    total = lift(0)
    for value, width in parts:
        total = (total << width) + extract(wrap(value, width, False), 0, width)
    return total


def bit_not(a: Operand, bits: int) -> Expr:
    """Return the complement of an unsigned word of `bits` bits."""
    return lift((1 << bits) - 1) - lift(a)


def absolute(a: Operand) -> Expr:
    """Return |a|."""
    x = lift(a)
    return clamp(binary("max", x, -x), 0, None)


def minimum(a: Operand, b: Operand) -> Expr:
    """Return the smaller of two terms."""
    return binary("min", a, b)


def maximum(a: Operand, b: Operand) -> Expr:
    """Return the larger of two terms."""
    return binary("max", a, b)


def ceil_div(a: Operand, b: Operand) -> Expr:
    """Return ⌈a / b⌉ of integers, b > 0."""
    return (lift(a) + (b - 1)) // b


def trunc_div(a: Operand, b: Operand) -> Expr:
    """Return a / b rounded toward zero."""
    return binary("tdiv", a, b)


def trunc_mod(a: Operand, b: Operand) -> Expr:
    """Return the remainder of the division toward zero."""
    return binary("tmod", a, b)


def all_of(conditions: Iterable[Operand]) -> Expr:
    """Return 1 where every condition is 1, and where there is none."""
    first, *remaining = [*map(lift, conditions)] or [lift(1)]
    return reduce(and_, remaining, first)


def any_of(conditions: Iterable[Operand]) -> Expr:
    """Return 1 where a condition is 1."""
    first, *remaining = [*map(lift, conditions)] or [lift(0)]
    return reduce(or_, remaining, first)


def row_major(index: Sequence[Operand], extents: Sequence[Operand]) -> Expr:
    """Return the row-major offset of an element, the last index fastest; the first extent does not matter."""
    number = lift(index[0])
    for i, extent in zip(index[1:], extents[1:], strict=True):
        number = number * extent + i
    return number


def switch(index: Operand, *cases: Operand) -> Expr:
    """Return cases[index]; the last case also stands for every larger index."""
    result = lift(cases[-1])
    i = lift(index)
    for n in reversed(range(len(cases) - 1)):
        result = select(i == n, cases[n], result)
    return result
