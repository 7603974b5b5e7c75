"""Which instruction a command is: decodes that fix where an input lies are found by halving, the others are asked one by one."""

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


def decoding(decodes: Sequence[Expr], inputs: Sequence[Leaf], found: Leaf) -> Step:
    """Return the step that sets `found`, which is 0 before, to the number of the last decode that holds, counted from 1."""
    bounds = {x: [_bounds(d, x) for d in decodes] for x in inputs if not x.shape and None not in x.interval}
    told = Counter({x: sum(b != x.interval for b in bounds[x]) for x in bounds})
    by = next((x for x, _ in told.most_common(1)), None)
    limits = [(None, None)] * len(decodes) if by is None else bounds[by]
    bounded, others = list[_Decode](), list[Step]()
    for n, (condition, (low, high)) in enumerate(zip(decodes, limits, strict=True), 1):
        if by is not None and low is not None and high is not None and (low, high) != by.interval:
            bounded.append(_Decode(n, condition, low, high))
        else:
            others.append(when(condition & (found[()] < n), assign(found, n)))
    return seq(*([] if by is None else [_halved(sorted(bounded, key=lambda d: d.low), by, found)]), *others)


def _halved(decodes: Sequence[_Decode], by: Leaf, found: Leaf) -> Step:
    at = _split(decodes) if len(decodes) > FEW else None
    if at is None:
        return seq(*(when(d.condition, assign(found, d.number)) for d in sorted(decodes, key=lambda d: d.number)))
    return when(by[()] < decodes[at].low, _halved(decodes[:at], by, found), _halved(decodes[at:], by, found))


def _split(decodes: Sequence[_Decode]) -> int | None:
    """Return the place nearest to the middle from where on every decode lies above those before; they are in order of their lows."""
    highest, places = decodes[0].high, list[int]()
    for n, d in enumerate(decodes):
        places += [n] if d.low > highest else []
        highest = max(highest, d.high)
    return min(places, key=lambda n: abs(2 * n - len(decodes)), default=None)


def _bounds(e: Expr, x: Leaf) -> Interval:
    """Return where an input lies whenever a condition holds."""
    if e.op == "bitand" and e.interval == iv.TRUTH:
        return _both(*(_bounds(a, x) for a in e.args))
    if e.op not in ("eq", "le", "lt"):
        return x.interval
    (a, b), less = e.args, int(e.op == "lt")
    if b.op == "const":
        return _both(x.interval, _inverse(a, b.data if e.op == "eq" else None, b.data - less, x))
    return _both(x.interval, _inverse(b, a.data + less, a.data if e.op == "eq" else None, x)) if a.op == "const" else x.interval


def _inverse(e: Expr, low: int | None, high: int | None, x: Leaf) -> Interval:
    """Return where an input lies when what is made of it lies in an interval."""
    if e.op == "load" and e.data is x:
        return low, high
    divisor = _divisor(e)
    if divisor is None:
        return None, None
    return _inverse(e.args[0], None if low is None else low * divisor, None if high is None else high * divisor + divisor - 1, x)


def _divisor(e: Expr) -> int | None:
    """Return what a value is divided by, rounded down; None where it is made in another way."""
    if e.op not in ("div", "shr") or e.args[1].op != "const" or e.args[1].data < 0:
        return None
    return int(e.args[1].data) if e.op == "div" else 1 << int(e.args[1].data)


def _both(*intervals: Interval) -> Interval:
    lows, highs = ([x for x in ends if x is not None] for ends in zip(*intervals, strict=True))
    return max(lows, default=None), min(highs, default=None)
