"""Tables and the functions that they approximate: which real function, at which binary points, and which entries stand out."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from ...ir.program import Data
from ...lang.binders import Table
from ...lang.expr import Expr, as_real, call, clamp, const, floor, select
from ...readings.arrays.evaluator import table_data

MOST_POINTS = 4096  # of a domain on which functions are compared
MOST_SHIFT = 24  # of a binary point
CLOSE = 0.02  # median distance to a function, of the table's own spread, within which a table approximates it
ENTRIES = 4  # that stand out most
NEIGHBOURS = 2  # on each side


@dataclass(frozen=True)
class RealFunction:
    """A function on floats and as a term, and whether it is defined for positive numbers only."""

    of_floats: Callable[[Data], Data]
    term: Callable[[Expr], Expr]
    is_positive: bool = False


FUNCTIONS: Mapping[str, RealFunction] = {
    "tanh": RealFunction(np.tanh, lambda x: call("tanh", x)),
    "sigmoid": RealFunction(lambda x: 1 / (1 + np.exp(-x)), lambda x: const(Fraction(1)) / (call("exp", -x) + 1)),
    "exp": RealFunction(np.exp, lambda x: call("exp", x)),
    "inverse square root": RealFunction(lambda x: x**-0.5, lambda x: const(Fraction(1)) / call("sqrt", x), is_positive=True),
    "square root": RealFunction(np.sqrt, lambda x: call("sqrt", x), is_positive=True),
    "reciprocal": RealFunction(lambda x: 1 / x, lambda x: const(Fraction(1)) / x, is_positive=True),
    "x": RealFunction(lambda x: x, lambda x: x),
}


@dataclass(frozen=True)
class Approximation:
    """What a table approximates: 2^scale · function(x / 2^point)."""

    function: str
    point: int
    scale: int


@lru_cache(maxsize=64)
def entries(table: Table) -> Data | None:
    """Return the entries of a table of one operand; None of any other."""
    if len(table.domains) != 1 or table.body.real:
        return None
    return np.asarray(table_data(table), np.float64)


@lru_cache(maxsize=64)
def approximation(table: Table) -> Approximation | None:
    """Return what a table approximates: the nearest function in the median, so that few wrong entries do not hide it."""
    y = entries(table)
    if y is None:
        return None
    low = table.domains[0][0] or 0
    places = np.unique(np.linspace(0, len(y) - 1, min(MOST_POINTS, len(y))).astype(np.int64))
    x, y = (places + low).astype(np.float64), y[places]
    best, least = None, CLOSE
    with np.errstate(all="ignore"):
        for (name, f), point in itertools.product(FUNCTIONS.items(), range(MOST_SHIFT)):
            inside = x > 0 if f.is_positive else np.ones(len(x), bool)
            if np.count_nonzero(inside) < 8:
                continue
            g, expected = f.of_floats(x[inside] / 2.0**point), y[inside]
            scale = _scale(g, expected)
            spread = float(np.quantile(expected, 0.9) - np.quantile(expected, 0.1))
            error = float(np.median(np.abs(g * 2.0**scale - expected))) / spread if spread else np.inf
            if error < least:
                best, least = Approximation(name, point, scale), error
    return best


def _scale(g: Data, y: Data) -> int:
    """Return the power of two nearest to the ratio of two functions in the median."""
    is_used = np.isfinite(g) & (np.abs(g) > 1e-6) & (y != 0)
    ratio = float(np.median(np.abs(y[is_used] / g[is_used]))) if is_used.any() else 1.0
    return int(np.clip(np.round(np.log2(ratio)), -MOST_SHIFT, 2 * MOST_SHIFT)) if ratio > 0 else 0


def exact_table(table: Table) -> Table:
    """Return the table of the function that a table approximates, each entry rounded to the nearest; itself where none is known."""
    a = approximation(table)
    if a is None or a.function == "x":
        return table
    f = FUNCTIONS[a.function]
    factor = Fraction(2) ** a.scale

    def function(x: Expr) -> Expr:
        real = f.term(as_real(x) * Fraction(1, 1 << a.point)) * factor + Fraction(1, 2)
        exact = clamp(floor(real), *table.body.interval)
        return select(x <= 0, table.function(x), exact) if f.is_positive else exact

    return Table(table.name, function, *table.domains)


@lru_cache(maxsize=64)
def odd_entries(table: Table) -> tuple[tuple[int, int, int], ...]:
    """Return the entries that stand out from the median of their neighbours: place, value, median; the oddest first."""
    y = entries(table)
    if y is None or len(y) < 4 * NEIGHBOURS + 1:
        return ()
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(y, NEIGHBOURS, mode="edge"), 2 * NEIGHBOURS + 1)
    medians = np.median(windows, axis=1)
    distance = np.abs(y - medians)
    usual = np.abs(np.diff(y, prepend=y[0]))
    local = np.median(np.lib.stride_tricks.sliding_window_view(np.pad(usual, 4, mode="edge"), 9), axis=1)
    odd = [k for k in np.argsort(-distance, kind="stable")[:ENTRIES] if distance[k] > 4 * local[k] + 1]
    low = table.domains[0][0] or 0
    return tuple((int(k) + low, int(y[k]), round(float(medians[k]))) for k in odd)


def with_entry(table: Table, at: int, value: int) -> Table:
    """Return a table with one other entry."""
    return Table(table.name, lambda x: select(x == at, value, table.function(x)), *table.domains)
