"""Ranges of real terms: between which numbers a term lies whatever its operands are within their ranges, roundings included."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...lang.binders import Array, Comprehension, Leaf
from ...lang.expr import Expr

Range = tuple[float, float]
EVERYTHING: Range = (-math.inf, math.inf)
ROUNDING = 1e-6  # of a bound, for each operation that rounds: a few units in the last place of float32
LARGEST_EXPONENT = 700.0


class Ranges:
    """The ranges of terms over leaves of known ranges; others are unbounded."""

    def __init__(self, leaves: Mapping[Leaf, Range]) -> None:
        self.leaves = leaves
        self.terms: dict[Expr, Range] = {}
        self.arrays: dict[Array, Range] = {}

    def array(self, a: Array) -> Range:
        """Return the range of all elements of an array."""
        if isinstance(a, Leaf):
            return self.leaves.get(a, _of_interval(a.interval))
        if not isinstance(a, Comprehension):
            return _of_interval(a.interval)
        if a not in self.arrays:
            self.arrays[a] = self.term(a.body)
        return self.arrays[a]

    def term(self, e: Expr) -> Range:
        """Return the range of a term."""
        if e not in self.terms:
            self.terms[e] = _within(self._term(e), _of_interval(e.interval))
        return self.terms[e]

    def _term(self, e: Expr) -> Range:
        if e.op == "const":
            return float(e.data), float(e.data)
        if e.op == "load":
            return self.array(e.data)
        if e.op == "reduce":
            return self._reduction(e)
        if e.op == "select":
            return _hull([self.term(a) for a in e.args[1:]])
        if e.op == "mul" and e.args[0] is e.args[1]:
            return _rounded(_square(self.term(e.args[0])))
        rule = RULES.get(e.data if e.op == "call" else e.op)
        if rule is None:
            return EVERYTHING
        return rule(*(self.term(a) for a in e.args))

    def _reduction(self, e: Expr) -> Range:
        low, high = self.term(e.args[0])
        if e.data[0] != "sum":
            return low, high
        count = math.prod(self.term(n)[1] for n in e.args[1:])
        return _rounded((min(low, 0.0) * count if low < 0 else low, max(high, 0.0) * count), count)


def _of_interval(interval: tuple[int | None, int | None]) -> Range:
    low, high = interval
    return -math.inf if low is None else float(low), math.inf if high is None else float(high)


def _within(a: Range, b: Range) -> Range:
    return max(a[0], b[0]), min(a[1], b[1])


def _hull(ranges: Sequence[Range]) -> Range:
    return min(low for low, _ in ranges), max(high for _, high in ranges)


def _rounded(a: Range, operations: float = 1) -> Range:
    share = min(operations, 1e5) * ROUNDING
    low, high = (end if math.isnan(x) else x for x, end in zip(a, EVERYTHING, strict=True))
    return low - abs(low) * share if math.isfinite(low) else low, high + abs(high) * share if math.isfinite(high) else high


def _corners(operation: Callable[[float, float], float]) -> Callable[[Range, Range], Range]:
    def rule(a: Range, b: Range) -> Range:
        results = [operation(x, y) for x in a for y in b]
        return _rounded((min(results), max(results)))

    return rule


def _times(x: float, y: float) -> float:
    return 0.0 if 0 in (x, y) else x * y


def _square(a: Range) -> Range:
    ends = [_times(x, x) for x in a]
    return 0.0 if a[0] <= 0 <= a[1] else min(ends), max(ends)


def _quotient(a: Range, b: Range) -> Range:
    if b[0] <= 0 <= b[1]:
        return EVERYTHING
    inverse = sorted(1 / x for x in b)
    return _corners(_times)(a, (inverse[0], inverse[1]))


def _growing(function: Callable[[float], float]) -> Callable[[Range], Range]:
    def rule(a: Range) -> Range:
        return _rounded((function(a[0]), function(a[1])))

    return rule


def _exponential(x: float) -> float:
    return math.inf if x > LARGEST_EXPONENT else math.exp(x)


def _logarithm(a: Range) -> Range:
    low, high = (-math.inf if x <= 0 else math.log(x) for x in a)
    return _rounded((low, high))


def _power(a: Range, b: Range) -> Range:
    return (0.0, math.inf) if a[0] >= 0 else EVERYTHING


RULES: dict[str, Callable[..., Range]] = {
    "add": lambda a, b: _rounded((a[0] + b[0], a[1] + b[1])),
    "sub": lambda a, b: _rounded((a[0] - b[1], a[1] - b[0])),
    "mul": _corners(_times),
    "rdiv": _quotient,
    "neg": lambda a: (-a[1], -a[0]),
    "min": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "max": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "real": lambda a: a,
    "floor": lambda a: (a[0] - 1, a[1]),
    "rint": lambda a: (a[0] - 1, a[1] + 1),
    "exp": _growing(_exponential),
    "tanh": _growing(math.tanh),
    "erf": _growing(math.erf),
    "sqrt": _growing(lambda x: math.sqrt(max(x, 0.0))),
    "log": _logarithm,
    "pow": _power,
    **dict.fromkeys(("sin", "cos"), lambda a: (-1.0, 1.0)),
}
SHARES: dict[str, Any] = {"softmax": (0.0, 1.0), "log_softmax": (-math.inf, 0.0)}  # what quotients of sums hide


def ranges_of(name: str, results: Sequence[Array], leaves: Mapping[Leaf, Range]) -> list[Range]:
    """Return the ranges of an operator's results, given as terms over leaves of known ranges."""
    ranges = Ranges(leaves)
    share: Range = SHARES.get(name, EVERYTHING)
    return [_within(ranges.array(y), _rounded(share)) for y in results]
