"""Order: the transitive closure of comparisons of float attributes: implied bounds, and whether they are satisfiable."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from .static import Condition, Real, RealComparison

Side = str | float  # the name of a float attribute, or a number


@dataclass(frozen=True)
class Order:
    """Assumed comparisons (left, kind, right); a side is a number or the name of a float attribute."""

    comparisons: tuple[tuple[Side, str, Side], ...] = ()

    @property
    def is_contradictory(self) -> bool:
        """Tell whether no numbers satisfy all comparisons."""
        at_most = _closure(self.comparisons, ())
        return any(at_most.get((x, x), False) for x in {s for s, _ in at_most}) or any(
            (a, b) in at_most and (b, a) in at_most for a, kind, b in self.comparisons if kind == "ne"
        )

    def is_below(self, a: Side, b: Side) -> bool:
        """Tell whether a is at most b wherever the comparisons hold."""
        return a == b or (a, b) in _closure(self.comparisons, tuple(x for x in (a, b) if isinstance(x, float)))

    def value(self, name: str) -> float | None:
        """Return the only number that an attribute can be, None where it can be several."""
        at_most = _closure(self.comparisons, ())
        numbers = (x for x, _ in at_most if isinstance(x, float))
        return next((x for x in numbers if (x, name) in at_most and (name, x) in at_most), None)


def order_of(conditions: Iterable[Condition]) -> Order:
    """Return the comparisons of float attributes in a guard."""
    return Order(tuple((_side(c.left), c.comparison, _side(c.right)) for c in conditions if isinstance(c, RealComparison)))


def _side(x: Real | float) -> Side:
    return x.name if isinstance(x, Real) else x


@cache
def _closure(comparisons: Sequence[tuple[Side, str, Side]], more: Sequence[float]) -> dict[tuple[Side, Side], bool]:
    """Return every pair of which the first is at most the second, and whether it is less."""
    sides: set[Side] = {s for a, _, b in comparisons for s in (a, b)} | {math.inf, -math.inf, *more}
    at_most: dict[tuple[Side, Side], bool] = {}

    def add(a: Side, b: Side, strict: bool) -> None:
        at_most[a, b] = strict or at_most.get((a, b), False)

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
        if (i, k) in at_most and (k, j) in at_most:
            add(i, j, at_most[i, k] or at_most[k, j])
    return at_most
