"""Hoisting out of folds: terms that do not depend on the accumulators are evaluated over all steps before the fold runs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from ...lang.binders import Accumulator, Comprehension, Fold, FoldResult
from ...lang.expr import Expr
from .labelled_array import Named, axis_of
from .scope import Evaluation

AHEAD_ELEMENTS = 1 << 19  # the most elements of one term over all steps


class Nest:
    """A nest of folds that share accumulators, and the terms in it that do not depend on them."""

    def __init__(self, fold: Fold) -> None:
        """Collect the nest of `fold`; only folds of scalars are entered."""
        self.folds: list[Fold] = []
        self.terms: list[Expr] = []
        self._accumulators: set[Accumulator] = set()
        self._variables: set[Expr] = set()
        if all(a.shape == () for a in fold.accumulators):
            self._add(fold)

    def _add(self, fold: Fold) -> None:
        self.folds.append(fold)
        self._accumulators.update(fold.accumulators)
        self._variables.add(fold.variable)
        for a in (*fold.bodies, *fold.initial):
            if isinstance(a, Comprehension) and not a.variables:
                self._search(a.body)

    def _search(self, e: Expr) -> None:
        if e.reads.isdisjoint(self._accumulators):
            if e.op != "var" and not e.free.isdisjoint(self._variables):
                self.terms.append(e)
        elif e.op == "load" and isinstance(e.data, FoldResult):
            if e.data.fold not in self.folds and all(a.shape == () for a in e.data.fold.accumulators):
                self._add(e.data.fold)
        elif e.op != "reduce":
            for a in e.args:
                self._search(a)

    @property
    def is_regular(self) -> bool:
        """Whether the nest is rectangular: no extent depends on a variable or an accumulator of the nest."""
        return all(f.extent.free.isdisjoint(self._variables) and f.extent.reads.isdisjoint(self._accumulators) for f in self.folds)


class FoldHoisting:
    """Loop-invariant code motion out of the folds that an evaluator runs."""

    def __init__(self) -> None:
        self.nests: dict[Fold, Nest] = {}
        self.covered: frozenset[Fold] = frozenset()  # folds whose terms are computed already

    @contextmanager
    def precomputed(self, ev: Evaluation, fold: Fold) -> Iterator[None]:
        """Fill `ev.precomputed` with the hoisted terms while the fold runs; with none where they would take too much memory."""
        enclosing = ev.precomputed, self.covered
        if fold not in self.covered:
            if fold not in self.nests:
                self.nests[fold] = Nest(fold)
            values = _values_over_steps(ev, self.nests[fold])
            if values:
                ev.precomputed, self.covered = {**ev.precomputed, **values}, self.covered.union(self.nests[fold].folds)
        yield
        ev.precomputed, self.covered = enclosing


def _values_over_steps(ev: Evaluation, nest: Nest) -> dict[Expr, Named]:
    if not nest.terms or not nest.is_regular:
        return {}
    extents = [(f.variable, ev.number(f.extent)) for f in nest.folds]
    steps = math.prod(n for _, n in extents)
    if steps < 2 or steps * ev.elements(nest.folds[0].free, nest.folds[0].reads) > AHEAD_ELEMENTS:
        return {}
    with ev.inner(axes=extents):
        return {e: ev.value(e) for e in nest.terms}


def at_step(ev: Evaluation, e: Expr, over: Named) -> Named:
    """Return the slice at the current step of the values of a term over all steps."""
    positions = {axis_of(v): ev.scope.known[v] for v in e.free if v in ev.scope.known}
    data = over.data[tuple(positions.get(a, slice(None)) for a in over.axes)] if over.axes else over.data
    axes = tuple(a for a in over.axes if a not in positions)
    return Named(data if axes or not isinstance(data, np.generic) else data.item(), axes)
