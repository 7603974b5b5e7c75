"""Interval arithmetic on exact integers; `None` is an open end."""

from __future__ import annotations

from collections.abc import Callable

Interval = tuple[int | None, int | None]
EVERYTHING: Interval = (None, None)
TRUTH: Interval = (0, 1)
LARGEST_SHIFT = 4096


def is_bounded(a: Interval) -> bool:
    """Tell whether both ends are known."""
    return a[0] is not None and a[1] is not None


def hull(*intervals: Interval) -> Interval:
    """Return the smallest interval that holds all of `intervals`."""
    lows, highs = [a[0] for a in intervals], [a[1] for a in intervals]
    low = None if None in lows else min(x for x in lows if x is not None)
    high = None if None in highs else max(x for x in highs if x is not None)
    return low, high


def inside(a: Interval, b: Interval) -> bool:
    """Tell whether every value of `a` lies in `b`."""
    low = b[0] is None or (a[0] is not None and a[0] >= b[0])
    return low and (b[1] is None or (a[1] is not None and a[1] <= b[1]))


def of_width(bits: int, signed: bool) -> Interval:
    """Return the range of a two's complement (or unsigned) word of `bits` bits."""
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)


def width_of(a: Interval) -> tuple[int, bool] | None:
    """Return the narrowest (bits, signed) word that holds `a`, or None when it is open."""
    if a[0] is None or a[1] is None:
        return None
    if a[0] >= 0:
        return max(1, a[1].bit_length()), False
    return max((~a[0]).bit_length(), a[1].bit_length() if a[1] >= 0 else 0) + 1, True


def storage_bytes(a: Interval) -> int:
    """Return the bytes of the narrowest machine word that holds `a`; those of a pointer where none does, or `a` is open."""
    word = width_of(a)
    return next((n for n in (1, 2, 4) if word is not None and word[0] <= 8 * n), 8)


def add(a: Interval, b: Interval) -> Interval:
    """Return the interval of a + b."""
    return _plus(a[0], b[0]), _plus(a[1], b[1])


def neg(a: Interval) -> Interval:
    """Return the interval of −a."""
    return (None if a[1] is None else -a[1]), (None if a[0] is None else -a[0])


def sub(a: Interval, b: Interval) -> Interval:
    """Return the interval of a − b."""
    return add(a, neg(b))


def mul(a: Interval, b: Interval) -> Interval:
    """Return the interval of a · b."""
    if a == (0, 0) or b == (0, 0):
        return 0, 0
    (low, high), (least, most) = a, b
    if low is not None and high is not None and least is not None and most is not None:
        corners = low * least, low * most, high * least, high * most
        return min(corners), max(corners)
    if _low(a) >= 0 and _low(b) >= 0:
        return _low(a) * _low(b), None
    return EVERYTHING


def floor_div(a: Interval, b: Interval) -> Interval:
    """Return the interval of ⌊a / b⌋; the divisor zero is left out."""
    return _divided(a, b, lambda x, y: x // y)


def trunc_div(a: Interval, b: Interval) -> Interval:
    """Return the interval of a / b rounded toward zero."""
    return _divided(a, b, lambda x, y: abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1))


def floor_mod(a: Interval, b: Interval) -> Interval:
    """Return the interval of a mod b, which has the sign of b."""
    if b[0] is not None and b[0] > 0:
        if b[0] == b[1] and a[0] is not None and a[1] is not None and a[0] // b[0] == a[1] // b[0]:
            return a[0] % b[0], a[1] % b[0]
        top = None if b[1] is None else b[1] - 1
        if a[0] is not None and a[0] >= 0 and a[1] is not None:
            return 0, a[1] if top is None else min(top, a[1])
        return 0, top
    if not is_bounded(b):
        return EVERYTHING
    return min(_low(b) + 1, 0), max(_high(b) - 1, 0)


def trunc_mod(a: Interval, b: Interval) -> Interval:
    """Return the interval of the remainder of division toward zero, which has the sign of a."""
    if not is_bounded(b):
        return EVERYTHING
    top = max(abs(_low(b)), abs(_high(b))) - 1
    low = 0 if a[0] is not None and a[0] >= 0 else -top
    high = 0 if a[1] is not None and a[1] <= 0 else top
    return low, high


def shift_left(a: Interval, n: Interval) -> Interval:
    """Return the interval of a · 2ⁿ, n ≥ 0; an end that needs a shift by more than LARGEST_SHIFT bits is left open."""
    least = min(max(n[0] or 0, 0), LARGEST_SHIFT)
    most = n[1] if n[1] is not None and n[1] <= LARGEST_SHIFT else None
    low, high = (_scaled_end(x, least, most) for x in (a[0], neg(a)[0]))
    return low, None if high is None else -high


def shift_right(a: Interval, n: Interval) -> Interval:
    """Return the interval of ⌊a / 2ⁿ⌋, n ≥ 0."""
    if is_bounded(n):
        least, most = max(_low(n), 0), max(_high(n), 0)
        low = None if a[0] is None else a[0] >> (least if a[0] < 0 else most)
        high = None if a[1] is None else a[1] >> (most if a[1] < 0 else least)
        return low, high
    return hull(a, (0, 0)) if a[0] is None or a[0] < 0 else (0, a[1])


def minimum(a: Interval, b: Interval) -> Interval:
    """Return the interval of min(a, b)."""
    low = None if a[0] is None or b[0] is None else min(a[0], b[0])
    highs = [x for x in (a[1], b[1]) if x is not None]
    return low, min(highs) if highs else None


def maximum(a: Interval, b: Interval) -> Interval:
    """Return the interval of max(a, b)."""
    return neg(minimum(neg(a), neg(b)))


def bit_and(a: Interval, b: Interval) -> Interval:
    """Return an interval of the bitwise conjunction of two's complement integers."""
    tops = [x[1] for x in (a, b) if x[0] is not None and x[0] >= 0]
    if tops:
        finite = [t for t in tops if t is not None]
        return 0, min(finite) if finite else None
    return _common_word(a, b)


def bit_or(a: Interval, b: Interval) -> Interval:
    """Return an interval of the bitwise disjunction (and exclusive or)."""
    return _common_word(a, b)


def clamp(a: Interval, to: Interval) -> Interval:
    """Return the interval of `a` clamped into the bounded interval `to`."""
    low, high = _low(to), _high(to)
    return (low if a[0] is None else min(max(a[0], low), high)), (high if a[1] is None else min(max(a[1], low), high))


def scale(a: Interval, n: Interval) -> Interval:
    """Return the interval of a sum of between n[0] and n[1] values of `a`."""
    counts = (max(n[0] or 0, 0), n[1])
    return hull(mul(a, counts), (0, 0)) if counts[0] == 0 else mul(a, counts)


def _divided(a: Interval, b: Interval, divide: Callable[[int, int], int]) -> Interval:
    if is_bounded(a) and is_bounded(b):
        parts = [p for p in ((b[0], min(_high(b), -1)), (max(_low(b), 1), b[1])) if _low(p) <= _high(p)]
        return hull(*(_corners(a, p, divide) for p in parts)) if parts else EVERYTHING
    if b[0] is not None and b[0] > 0 and a[0] is not None and a[0] >= 0:
        return 0, None if a[1] is None else a[1] // b[0]
    return EVERYTHING


def _corners(a: Interval, b: Interval, f: Callable[[int, int], int]) -> Interval:
    values = [f(x, y) for x in (_low(a), _high(a)) for y in (_low(b), _high(b))]
    return min(values), max(values)


def _common_word(a: Interval, b: Interval) -> Interval:
    union = hull(a, b)
    word = width_of(union)
    if union == (0, 0):  # zeros alone fill no word
        return union
    return EVERYTHING if word is None else of_width(*word)


def _scaled_end(low: int | None, least: int, most: int | None) -> int | None:
    """Return the lower end of x · 2ⁿ for x ≥ low and n in least … most (None: unlimited)."""
    if low is None:
        return None
    if low >= 0:
        return low << least
    return None if most is None else low << max(most, 0)


def _plus(x: int | None, y: int | None) -> int | None:
    return None if x is None or y is None else x + y


def _low(a: Interval) -> int:
    return -(1 << 4096) if a[0] is None else a[0]


def _high(a: Interval) -> int:
    return 1 << 4096 if a[1] is None else a[1]
