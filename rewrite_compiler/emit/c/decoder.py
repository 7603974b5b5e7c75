"""The decoder as a decision tree: decodes that bound an input are found by binary search, the others are tested in sequence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ...lang import intervals as iv
from ...lang.binders import Leaf
from ...lang.expr import Expr
from ...lang.intervals import Interval
from ...lang.step import Step, assign, seq, when

FEW = 3  # decodes that are asked one by one


@dataclass(frozen=True)
class _Decode:
    number: int
    condition: Expr
    low: int
    high: int


def decode_tree(decodes: Sequence[Expr], inputs: Sequence[Leaf], number: Leaf) -> Step:
    """Return the step that sets a leaf, initially 0, to the number, from 1, of the last decode that holds."""
    bounds = {x: [_bounds(d, x) for d in decodes] for x in inputs if not x.shape and None not in x.interval}
    bounded_counts = Counter({x: sum(b != x.interval for b in bounds[x]) for x in bounds})
    key_input = next((x for x, _ in bounded_counts.most_common(1)), None)
    limits = [(None, None)] * len(decodes) if key_input is None else bounds[key_input]
    bounded, sequential = list[_Decode](), list[Step]()
    for n, (condition, (low, high)) in enumerate(zip(decodes, limits, strict=True), 1):
        if key_input is not None and low is not None and high is not None and (low, high) != key_input.interval:
            bounded.append(_Decode(n, condition, low, high))
        else:
            sequential.append(when(condition & (number[()] < n), assign(number, n)))
    return seq(*([] if key_input is None else [_binary_search(sorted(bounded, key=lambda d: d.low), key_input, number)]), *sequential)


def _binary_search(decodes: Sequence[_Decode], key_input: Leaf, number: Leaf) -> Step:
    middle = _split(decodes) if len(decodes) > FEW else None
    if middle is None:
        return seq(*(when(d.condition, assign(number, d.number)) for d in sorted(decodes, key=lambda d: d.number)))
    return when(
        key_input[()] < decodes[middle].low,
        _binary_search(decodes[:middle], key_input, number),
        _binary_search(decodes[middle:], key_input, number),
    )


def _split(decodes: Sequence[_Decode]) -> int | None:
    """Return the split nearest to the middle of decodes ordered by `low`, such that no interval spans it."""
    highest, places = decodes[0].high, list[int]()
    for n, d in enumerate(decodes):
        places += [n] if d.low > highest else []
        highest = max(highest, d.high)
    return min(places, key=lambda n: abs(2 * n - len(decodes)), default=None)


def _bounds(e: Expr, x: Leaf) -> Interval:
    """Return an interval that an input lies in whenever a condition holds."""
    if e.op == "bitand" and e.interval == iv.TRUTH:
        return _intersection(*(_bounds(a, x) for a in e.args))
    if e.op not in ("eq", "le", "lt"):
        return x.interval
    (a, b), less = e.args, int(e.op == "lt")
    if b.op == "const":
        return _intersection(x.interval, _inverse(a, b.data if e.op == "eq" else None, b.data - less, x))
    return _intersection(x.interval, _inverse(b, a.data + less, a.data if e.op == "eq" else None, x)) if a.op == "const" else x.interval


def _inverse(e: Expr, low: int | None, high: int | None, x: Leaf) -> Interval:
    """Return the interval of an input for which a quotient of it lies in an interval."""
    if e.op == "load" and e.data is x:
        return low, high
    divisor = _divisor(e)
    if divisor is None:
        return None, None
    return _inverse(e.args[0], None if low is None else low * divisor, None if high is None else high * divisor + divisor - 1, x)


def _divisor(e: Expr) -> int | None:
    """Return the divisor of a floor division or right shift by a constant; None for other terms."""
    if e.op not in ("div", "shr") or e.args[1].op != "const" or e.args[1].data < 0:
        return None
    return int(e.args[1].data) if e.op == "div" else 1 << int(e.args[1].data)


def _intersection(*intervals: Interval) -> Interval:
    lows, highs = ([x for x in ends if x is not None] for ends in zip(*intervals, strict=True))
    return max(lows, default=None), min(highs, default=None)
