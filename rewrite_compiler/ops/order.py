"""Order: what comparisons of float attributes say of each other, their bounds and whether any numbers satisfy all of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from .static import Condition, Real, RealIs

Side = str | float  # the name of a float attribute, or a number


@dataclass(frozen=True)
class Order:
    """Comparisons that are assumed: each as a kind with the two sides, a name for an attribute."""

    comparisons: tuple[tuple[Side, str, Side], ...] = ()

    @property
    def is_contradictory(self) -> bool:
        """Tell whether no numbers satisfy all comparisons."""
        below = _closure(self.comparisons, ())
        return any(below.get((x, x), False) for x in {s for s, _ in below}) or any(
            (a, b) in below and (b, a) in below for a, kind, b in self.comparisons if kind == "ne"
        )

    def is_below(self, a: Side, b: Side) -> bool:
        """Tell whether a is at most b wherever the comparisons hold."""
        return a == b or (a, b) in _closure(self.comparisons, tuple(x for x in (a, b) if isinstance(x, float)))

    def value(self, name: str) -> float | None:
        """Return the only number that an attribute can be, None where it can be several."""
        below = _closure(self.comparisons, ())
        numbers = (x for x, _ in below if isinstance(x, float))
        return next((x for x in numbers if (x, name) in below and (name, x) in below), None)


def order_of(conditions: Iterable[Condition]) -> Order:
    """Return what a guard says of float attributes."""
    return Order(tuple((_side(c.left), c.comparison, _side(c.right)) for c in conditions if isinstance(c, RealIs)))


def _side(x: Real | float) -> Side:
    return x.name if isinstance(x, Real) else x


@cache
def _closure(comparisons: Sequence[tuple[Side, str, Side]], more: Sequence[float]) -> dict[tuple[Side, Side], bool]:
    """Return every pair of which the first is at most the second, and whether it is less."""
    sides: set[Side] = {s for a, _, b in comparisons for s in (a, b)} | {math.inf, -math.inf, *more}
    below: dict[tuple[Side, Side], bool] = {}

    def add(a: Side, b: Side, strict: bool) -> None:
        below[a, b] = strict or below.get((a, b), False)

    for s in sides:
        add(-math.inf, s, isinstance(s, float) and s > -math.inf)
        add(s, math.inf, isinstance(s, float) and s < math.inf)
    numbers = sorted(s for s in sides if isinstance(s, float))
    for n, m in itertools.combinations(numbers, 2):
        add(n, m, True)
    for a, kind, b in comparisons:
        if kind != "ne":
            add(a, b, kind == "lt")
        if kind == "eq":
            add(b, a, False)
    for k, i, j in itertools.product(sides, repeat=3):
        if (i, k) in below and (k, j) in below:
            add(i, j, below[i, k] or below[k, j])
    return below
