"""Watch: what every intermediate of an operation's numerics does on data: its range, the bits that hold it, what leaves its word.

Each term becomes an array over all variables that it depends on: indices of results, and steps of the sums and folds around it.
Inside of a fold the accumulator of a step is read from the history of the fold.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...ir.program import Data
from ...lang import intervals as iv
from ...lang.binders import Accumulator, Array, Comprehension, Extent, Fold, FoldResult, Leaf, array
from ...lang.expr import Expr, binary, lift, select
from ...lang.traversal import terms_of
from ...readings.kernels.evaluate import evaluate_together
from .edits import SourceTerms, clamp_of
from .rewriting import Rewriter
from .source_places import SourcePlace

MOST_ELEMENTS = 1 << 20  # of one term, over all samples; of larger ones the first results are watched
KINDS = {"wrap": "wraps", "min": "saturates", "max": "saturates", "shr": "shift", "reduce": "sum", "table": "table", "load": "fold"}


@dataclass(frozen=True)
class Watched:
    """An intermediate on data: its range before its word limits it, the word, and how many values leave the word."""

    place: SourcePlace
    kind: str
    low: int
    high: int
    word: iv.Interval
    outside: int
    count: int
    is_complete: bool  # all elements were looked at

    @property
    def bits(self) -> int:
        """Bits of the narrowest word that holds all values."""
        width = iv.width_of((self.low, self.high))
        return 0 if width is None else width[0]

    def document(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {"term": self.place.text, "place": str(self.place), "kind": self.kind, "range": [self.low, self.high], "bits": self.bits,
                "word": list(self.word), "outside": self.outside, "count": self.count, "complete": self.is_complete}  # fmt: skip


def watch(terms: SourceTerms, operands: Mapping[Leaf, Data], constants: Mapping[Leaf, Data]) -> list[Watched]:
    """Return what the intermediates of numerics do, those that leave their word first, then in the order of the terms."""
    probes = _Probes(terms.results)
    rows: dict[tuple[SourcePlace, str, iv.Interval], Watched] = {}
    for e in terms.outermost():
        limited = _limited(e)
        if limited is None or not e.reads:
            continue
        place, kind = terms.places[e][0], KINDS[e.op]
        values, is_complete = probes.values(limited, operands, constants)
        if not values.size:
            continue
        low, high = int(values.min()), int(values.max())
        outside = int(np.count_nonzero((values < _end(e.interval[0], low)) | (values > _end(e.interval[1], high))))
        row = Watched(place, kind, low, high, e.interval, outside, values.size, is_complete)
        key = place, kind, e.interval  # of a line that says two words both are rows: what leaves the one may fit the other
        rows[key] = _joined(rows[key], row) if key in rows else row
    return sorted(rows.values(), key=lambda row: -row.outside / row.count)


def _end(end: int | None, otherwise: int) -> int:
    return otherwise if end is None else end


def _limited(e: Expr) -> Expr | None:
    """Return the integer term whose values a term limits, or itself; None where nothing is worth watching."""
    if e.real or e.op not in KINDS:
        return None
    if e.op == "wrap":
        return e.args[0]
    if e.op in ("min", "max"):
        limits = clamp_of(e)
        return None if limits is None else limits[0]
    if e.op == "load":
        return e if isinstance(e.data, FoldResult) else None
    return e


def _joined(a: Watched, b: Watched) -> Watched:
    """Return two terms of one place and one word as one."""
    return Watched(
        a.place, a.kind, min(a.low, b.low), max(a.high, b.high), a.word, a.outside + b.outside, a.count + b.count,
        a.is_complete and b.is_complete,
    )  # fmt: skip


class _Probes:
    """Arrays of the values of terms: the extents of all bound variables, and accumulators as histories of their folds."""

    def __init__(self, results: Sequence[Array]) -> None:
        self.extents: dict[Expr, Extent] = {}
        folds: dict[int, Fold] = {}
        for result in results:
            self._enter_array(result)
            for e in terms_of(result[tuple(lift(0) for _ in result.shape)]):
                if e.op == "reduce":
                    self.extents.update(zip(e.data[1], e.args[1:], strict=True))
                elif e.op == "load":
                    self._enter_array(e.data)
                    if isinstance(e.data, FoldResult):
                        folds[id(e.data.fold)] = e.data.fold
        self.histories: dict[Array, Array] = {}
        for f in sorted(folds.values(), key=_depth):
            self._enter_fold(f)

    def _enter_array(self, a: Array) -> None:
        if isinstance(a, Comprehension):
            self.extents.update(zip(a.variables, a.shape, strict=True))

    def _enter_fold(self, f: Fold) -> None:
        """Let each accumulator stand for its value before a step: the initial one, then that after the step before."""
        self.extents[f.variable] = f.extent
        outside = Rewriter({}, self.histories)
        for n, a in enumerate(f.accumulators):
            history = outside.array(FoldResult((f.extent, *a.shape), a.interval, a.real, f, n, history=True))
            initial = outside.array(f.initial[n])
            self.histories[a] = _before_step(f.variable, initial, history)

    def values(self, e: Expr, operands: Mapping[Leaf, Data], constants: Mapping[Leaf, Data]) -> tuple[Data, bool]:
        """Return the values of a term over all its variables and samples, and whether none is left out."""
        term = Rewriter({}, self.histories).term(e)
        variables = sorted((v for v in term.free if v in self.extents), key=lambda v: v.data[1])
        samples = len(next(iter(operands.values()))) if operands else 1
        shape = [int(lift(self.extents[v]).value or 0) for v in variables]
        first = _first(shape, max(1, MOST_ELEMENTS // samples))
        probe = Comprehension(tuple(first), term.interval, False, tuple(variables), term)
        values = evaluate_together(probe, operands, constants)
        return np.asarray(values).reshape(-1), first == shape


def _before_step(k: Expr, initial: Array, history: Array) -> Array:
    """Return an accumulator before step k."""
    return array(lambda *i: select(k == 0, initial[i], history[(binary("max", k - 1, 0), *i)]), initial.shape)


def _depth(f: Fold) -> int:
    """Return how many accumulators of folds around a fold it reads."""
    return sum(isinstance(leaf, Accumulator) for leaf in f.reads)


def _first(shape: Sequence[int], most: int) -> list[int]:
    """Return the leading part of a shape with at most so many elements: outer axes are cut first."""
    first = list(shape)
    for axis in range(len(first)):
        others = math.prod(first) // max(first[axis], 1)
        if math.prod(first) > most:
            first[axis] = max(1, most // max(others, 1))
    return first


def overflowing(rows: Sequence[Watched]) -> Iterator[Watched]:
    """Yield the intermediates of which some values leave their word."""
    return (row for row in rows if row.outside)
