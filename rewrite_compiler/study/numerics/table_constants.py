"""Constants of the segments of a table's function, each fitted to the function that the table approximates.

A piecewise-linear function has a start and a slope for each segment. One that is wrong stands out: with another value of it alone the
table is as near to its function as elsewhere. The table depends on such a constant linearly, so its value is a median of ratios.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from ...ir.program import Data
from ...lang.binders import Leaf, Table, array
from ...lang.expr import Expr, const, lift, select
from ...lang.traversal import terms_of
from ...readings.kernels.evaluate import evaluate_together
from .exact_tables import exact_table
from .rewriting import Rewrite, Rewriter, table_of

POINTS = 2048  # of a domain in equal steps, and as many in equal ratios
PROBE = 64  # what is added to a constant to see what depends on it
LEAST_GAIN = 0.25  # of the distance to the function that another value must take away
MOST_FITTED = 2


@dataclass(frozen=True)
class SegmentConstant:
    """A constant that a select by the number of a segment gives: the select, which of its branches, and the value."""

    term: Expr
    branch: int  # 1: where the number is that of the comparison, 2: elsewhere
    value: int

    @property
    def segment(self) -> int:
        """The number that the select compares with."""
        return next(int(a.value) for a in self.term.args[0].args if a.value is not None)

    def rewrite(self) -> Rewrite:
        """Return the rewrite of the select to one with this value."""
        return lambda e, args: select(args[0], *(const(self.value) if at == self.branch else a for at, a in enumerate(args) if at))


def segment_constants(table: Table) -> Iterator[SegmentConstant]:
    """Yield the constants that selects by the number of a segment give."""
    for e in terms_of(table.body):
        if e.op == "select" and e.args[0].op == "eq" and any(a.value is not None for a in e.args[0].args):
            for branch in (1, 2):
                value = e.args[branch].value
                if value is not None and not e.args[branch].real:
                    yield SegmentConstant(e, branch, int(value))


@lru_cache(maxsize=64)
def fitted_constants(table: Table) -> tuple[tuple[SegmentConstant, int], ...]:
    """Return the constants of which another value alone brings the table nearest to its function, with that value; the best first."""
    exact = exact_table(table)
    if exact is table or len(table.domains) != 1:
        return ()
    points = _points(*table.domains[0])
    now = _at(table, points)
    missing = _at(exact, points) - now
    distance = float(np.abs(missing).sum())
    candidates: list[tuple[float, SegmentConstant, int]] = []
    for c in segment_constants(table):
        effect = _at(_with_constant(table, replace(c, value=c.value + PROBE)), points) - now
        is_moved = effect != 0
        if not is_moved.any():
            continue
        step = round(float(np.median(missing[is_moved] / effect[is_moved])) * PROBE)
        if step:
            left = _at(exact, points) - _at(_with_constant(table, replace(c, value=c.value + step)), points)
            candidates.append((distance - float(np.abs(left).sum()), c, c.value + step))
    candidates.sort(key=lambda item: -item[0])
    return tuple((c, value) for gain, c, value in candidates[:MOST_FITTED] if gain > LEAST_GAIN * distance)


def _with_constant(table: Table, c: SegmentConstant) -> Table:
    return table_of(table, Rewriter({c.term: c.rewrite()}).term(table.body))


def _points(low: int | None, high: int | None) -> Data:
    """Return integers of a domain, in equal steps and denser towards zero."""
    low, high = low or 0, high or 0
    steps = np.linspace(low, high, min(POINTS, high - low + 1))
    ratios = np.geomspace(1, max(abs(low), abs(high), 1), POINTS)
    both = np.unique(np.concatenate([steps, ratios, -ratios]).round().astype(np.int64))
    points: Data = both[(both >= low) & (both <= high)]
    return points


def _at(table: Table, points: Data) -> Data:
    """Return the entries of a table at points of its domain, by its function."""
    x = Leaf((len(points),), table.domains[0], False, "x")
    entries: Data = evaluate_together(array(lambda i: lift(table.function(x[i])), len(points)), {x: points[None]})[0].astype(np.float64)
    return entries
