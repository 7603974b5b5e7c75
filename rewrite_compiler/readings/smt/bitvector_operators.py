"""Integer operators on z3 bit-vectors: a value is a signed word as wide as its term's interval needs, or a Python number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import z3

from ...errors import SpecError
from ...lang import intervals as iv
from ...lang.expr import Expr

Word = Any  # int or z3.BitVecRef


def width_of(interval: iv.Interval) -> int:
    """Return the width of a signed bit-vector that holds an interval, at least 2.

    Raises:
        SpecError: the interval is unbounded.
    """
    word = iv.width_of(interval)
    if word is None:
        raise SpecError("I102", f"a word of bits needs a bounded interval, not {interval}")
    return max(2, word[0] + (not word[1]))


def resize(x: Word, width: int) -> z3.BitVecRef:
    """Return a value sign-extended or truncated to `width` bits."""
    if not isinstance(x, z3.ExprRef):
        return z3.BitVecVal(int(x), width)
    size = x.size()
    return x if size == width else z3.SignExt(width - size, x) if size < width else z3.Extract(width - 1, 0, x)


def to_common_width(*words: Word) -> tuple[z3.BitVecRef, ...]:
    """Return values in bit-vectors of one width that holds all of them."""
    width = max(w.size() if isinstance(w, z3.ExprRef) else max(2, int(w).bit_length() + 1) for w in words)
    return tuple(resize(w, width) for w in words)


def truth_word(condition: z3.BoolRef) -> z3.BitVecRef:
    """Return a condition as 0 or 1."""
    return z3.If(condition, z3.BitVecVal(1, 2), z3.BitVecVal(0, 2))


def minimum(a: Word, b: Word) -> z3.BitVecRef:
    """Return the smaller value."""
    x, y = to_common_width(a, b)
    return z3.If(x <= y, x, y)


def maximum(a: Word, b: Word) -> z3.BitVecRef:
    """Return the larger value."""
    x, y = to_common_width(a, b)
    return z3.If(x >= y, x, y)


def _ring(function: Callable[..., z3.BitVecRef]) -> Callable[..., Word]:
    """Sums and products modulo the result's width: the interval says that nothing is lost."""

    def apply(e: Expr, *words: Word) -> Word:
        return function(*(resize(w, width_of(e.interval)) for w in words))

    return apply


def _common_width(e: Expr) -> int:
    """Return a width that holds the operands and the result."""
    return max(width_of(x.interval) for x in (e, *e.args))


def _wide_operator(function: Callable[..., z3.BitVecRef]) -> Callable[..., Word]:
    def apply(e: Expr, *words: Word) -> Word:
        return resize(function(*(resize(w, _common_width(e)) for w in words)), width_of(e.interval))

    return apply


def _comparison(function: Callable[..., z3.BoolRef]) -> Callable[..., Word]:
    def apply(e: Expr, a: Word, b: Word) -> Word:
        return truth_word(function(*to_common_width(a, b)))

    return apply


def _divide(e: Expr, a: Word, b: Word) -> Word:
    is_positive = (e.args[1].interval[0] or 0) > 0
    x, y = (resize(w, _common_width(e) + (not is_positive)) for w in (a, b))  # the least number by -1 needs a bit more
    quotient, remainder = x / y, z3.SRem(x, y)  # z3 rounds toward zero
    if e.op in ("div", "mod"):
        rounds_down = remainder < 0 if is_positive else z3.And(remainder != 0, (remainder < 0) != (y < 0))
        quotient, remainder = z3.If(rounds_down, quotient - 1, quotient), z3.If(rounds_down, remainder + y, remainder)
    return resize(quotient if e.op in ("div", "tdiv") else remainder, width_of(e.interval))


def _wrap(e: Expr, a: Word) -> Word:
    bits, is_signed = e.data
    low = resize(a, bits)
    return low if is_signed else z3.ZeroExt(1, low)


def _extract(e: Expr, a: Word) -> Word:
    low, width = e.data
    word = resize(a, max(width_of(e.args[0].interval), low + width))
    return resize(z3.ZeroExt(1, z3.Extract(low + width - 1, low, word)), width_of(e.interval))


def _leading_zeros(e: Expr, a: Word) -> Word:
    word = resize(a, e.data + 1)
    width = width_of((0, e.data))
    result = z3.BitVecVal(e.data, width)
    for n in reversed(range(e.data)):
        result = z3.If(z3.Extract(e.data - 1 - n, e.data - 1 - n, word) == 1, z3.BitVecVal(n, width), result)
    return resize(result, width_of(e.interval))


WORDS: dict[str, Callable[..., Word]] = {
    "add": _ring(lambda x, y: x + y),
    "sub": _ring(lambda x, y: x - y),
    "mul": _ring(lambda x, y: x * y),
    "neg": _ring(lambda x: -x),
    "shl": _wide_operator(lambda x, n: x << n),
    "shr": _wide_operator(lambda x, n: x >> n),
    **dict.fromkeys(("div", "mod", "tdiv", "tmod"), _divide),
    "min": lambda e, a, b: resize(minimum(a, b), width_of(e.interval)),
    "max": lambda e, a, b: resize(maximum(a, b), width_of(e.interval)),
    "bitand": _wide_operator(lambda x, y: x & y),
    "bitor": _wide_operator(lambda x, y: x | y),
    "bitxor": _wide_operator(lambda x, y: x ^ y),
    "eq": _comparison(lambda x, y: x == y),
    "ne": _comparison(lambda x, y: x != y),
    "lt": _comparison(lambda x, y: x < y),
    "le": _comparison(lambda x, y: x <= y),
    "not": lambda e, a: 1 - a,
    "wrap": _wrap,
    "extract": _extract,
    "clz": _leading_zeros,
}
