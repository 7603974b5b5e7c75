"""Hoisting out of folds: terms that do not depend on the accumulators are evaluated over all steps before the fold runs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from ...lang.binders import Accumulator, Comprehension, Fold, FoldResult
from ...lang.expr import Expr
from .labelled_array import LabelledArray, axis_of
from .scope import Evaluation

MAX_HOISTED_ELEMENTS = 1 << 19  # the most elements of one term over all steps


class FoldNest:
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
        self.nests: dict[Fold, FoldNest] = {}
        self.covered: frozenset[Fold] = frozenset()  # folds whose terms are computed already

    @contextmanager
    def hoisted_terms(self, ev: Evaluation, fold: Fold) -> Iterator[None]:
        """Fill `ev.precomputed` with the hoisted terms while the fold runs; with none where they would take too much memory."""
        enclosing = ev.hoisted, self.covered
        if fold not in self.covered:
            if fold not in self.nests:
                self.nests[fold] = FoldNest(fold)
            values = _values_over_steps(ev, self.nests[fold])
            if values:
                ev.hoisted, self.covered = {**ev.hoisted, **values}, self.covered.union(self.nests[fold].folds)
        yield
        ev.hoisted, self.covered = enclosing


def _values_over_steps(ev: Evaluation, nest: FoldNest) -> dict[Expr, LabelledArray]:
    if not nest.terms or not nest.is_regular:
        return {}
    extents = [(f.variable, ev.number(f.extent)) for f in nest.folds]
    steps = math.prod(n for _, n in extents)
    if steps < 2 or steps * ev.element_count(nest.folds[0].free, nest.folds[0].reads) > MAX_HOISTED_ELEMENTS:
        return {}
    with ev.inner_scope(axes=extents):
        return {e: ev.value(e) for e in nest.terms}


def at_step(ev: Evaluation, e: Expr, values_over_steps: LabelledArray) -> LabelledArray:
    """Return the slice at the current step of the values of a term over all steps."""
    positions = {axis_of(v): ev.scope.bound_numbers[v] for v in e.free if v in ev.scope.bound_numbers}
    data = (
        values_over_steps.data[tuple(positions.get(a, slice(None)) for a in values_over_steps.axes)]
        if values_over_steps.axes
        else values_over_steps.data
    )
    axes = tuple(a for a in values_over_steps.axes if a not in positions)
    return LabelledArray(data if axes or not isinstance(data, np.generic) else data.item(), axes)
