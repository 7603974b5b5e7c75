"""Operands of blocked folds: nests of scalar folds over products of a row of A and a column of B, as matrix products have.

The step between two products is whatever the specification says: rounding, saturation, shifts of single lanes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...errors import SpecError
from ...lang import intervals as iv
from ...lang.binders import Accumulator, Comprehension, Fold, FoldResult
from ...lang.expr import Expr
from ..arrays.labelled_array import Axis, Data, LabelledArray, Store, axis_of, storage_dtype, strided_view, value_range, without_zero_terms
from ..arrays.scope import Evaluation
from ..straightline.code import Code, Op, TooWide, Tracer, bits_of, is_operator
from .selection import OperandTrace, Strides

INT16, INT32 = iv.of_width(16, True), iv.of_width(32, True)


Compute = Callable[..., LabelledArray]  # of evaluator, loops, trace, codes, the start, and the type of the result


@dataclass(frozen=True)
class Factor:
    """One factor of a product: an array and its strides, in elements, along axes."""

    data: Data
    strides: Strides


@dataclass(frozen=True)
class ProductSite:
    """A sum of `lanes` products along the axis `lane`; 0 lanes: one product."""

    factors: tuple[Factor, Factor]
    lanes: int = 0
    lane: Axis = -1


@dataclass
class FoldTrace(OperandTrace):
    """The operands of the step of a fold: sites of products, scalars, the accumulator."""

    accumulator: Accumulator | None = None
    loops: tuple[Axis, ...] = ()
    is_last: bool = False  # whether the code of the last step is traced, which may differ from that of the others
    has_last: bool = False
    sites: list[ProductSite] = field(default_factory=list)
    site_numbers: dict[Expr, int] = field(default_factory=dict)
    magnitudes: list[tuple[int, int]] = field(default_factory=list)  # of each site: how large its factors are by their intervals

    def leaf(self, e: Expr) -> Op | Expr | None:
        """Return the operand that stands for a term, or the branch to trace in its place; None when its operator is part of the code.

        Raises:
            TooWide: the term is neither an operator, a product of loads, a sum of them, nor uniform.
        """
        if e.op == "load" and e.data is self.accumulator:
            return Op("acc", (), None, 32)
        if not self.varies(e):
            return self._scalar(e)
        if e.op == "select" and (branch := self._uniform_branch(e)) is not None:
            return branch
        if e.op == "reduce" and e.data[0] == "sum" and len(e.data[1]) == 1:
            return self._dot(e)
        if e.op == "mul" and self.accumulator not in e.reads and all(x.op == "load" for x in e.args):
            return self._site(e, e.args, 0, -1)
        if is_operator(e):
            return None
        raise TooWide

    def varies(self, e: Expr) -> bool:
        """Tell whether a term may differ between elements of the grid; one that reads the accumulator does."""
        return self.accumulator in e.reads or super().varies(e)

    def _uniform_branch(self, e: Expr) -> Expr | None:
        branch = super()._uniform_branch(e)
        if branch is not None:
            return branch
        condition = self.ev.value(e.args[0])
        if not set(condition.axes) <= set(self.loops):
            return None
        order = self.ev.axes.union(self.loops)
        steps = self.ev.axes.full(condition, order).transpose([order.index(a) for a in self.loops]).reshape(-1)
        if (steps[:-1] != steps[0]).any():
            return None
        self.has_last = True
        return e.args[1] if steps[-1 if self.is_last else 0] else e.args[2]

    def _dot(self, e: Expr) -> Op:
        (variable,), body, lanes = e.data[1], e.args[0], self.ev.number(e.args[1])
        is_product = body.op == "mul" and self.accumulator not in e.reads and all(x.op == "load" for x in body.args)
        if not is_product or lanes <= 0:
            raise TooWide
        with self.ev.inner_scope(axes=[(variable, lanes)]):
            return self._site(e, body.args, lanes, axis_of(variable))

    def _site(self, e: Expr, factors: Sequence[Expr], lanes: int, lane: Axis) -> Op:
        name = "dot" if lanes else "product"
        if e in self.site_numbers:
            return Op(name, (), self.site_numbers[e], bits_of(e))
        if any(not iv.is_bounded(f.interval) for f in factors):
            raise TooWide
        self.magnitudes.append((magnitude(factors[0]), magnitude(factors[1])))
        first, second = (self._factor(f) for f in factors)
        self.site_numbers[e] = len(self.sites)
        self.sites.append(ProductSite((first, second), lanes, lane))
        return Op(name, (), self.site_numbers[e], bits_of(e))

    def _factor(self, e: Expr) -> Factor:
        ev = self.ev
        store = ev.store_of(e.data)
        affine_indices = [ev.affine(i) for i in e.args]
        if store.data.dtype.kind not in "iu" or 0 in store.element_shape or None in affine_indices:
            raise TooWide
        indices = [without_zero_terms(i) for i in affine_indices if i is not None]
        box = [value_range(i, ev.axes) for i in indices]
        if any(low < 0 or high >= n for (low, high), n in zip(box, store.element_shape, strict=True)):
            raise TooWide
        window, origin = store.window([b[0] for b in box], [b[1] for b in box], ev.axes)
        view, names = strided_view(window, origin, indices, ev.axes)
        strides = {a: s // view.itemsize for a, s, n in zip(names, view.strides, view.shape, strict=True)}
        return Factor(view, strides)


def magnitude(e: Expr) -> int:
    """Return the largest magnitude of a bounded term."""
    low, high = e.interval
    return max(abs(low or 0), abs(high or 0))


# -- folds


def fold_nest_of(f: Fold) -> tuple[list[Fold], Expr] | None:
    """Return the perfect nest of folds over one integer scalar accumulator, outermost first, and its step; None for other folds."""
    folds = [f]
    while True:
        f = folds[-1]
        if len(f.accumulators) != 1 or f.accumulators[0].shape or f.accumulators[0].real:
            return None
        body = f.bodies[0]
        if not isinstance(body, Comprehension):
            return None
        step = body.body
        if step.op != "load" or not isinstance(step.data, FoldResult) or step.data.history:
            return folds, step
        inner = step.data.fold
        first = inner.initial[0]
        is_accumulator_passed = isinstance(first, Comprehension) and first.body.op == "load" and first.body.data is f.accumulators[0]
        if len(inner.initial) != 1 or not is_accumulator_passed:
            return None
        folds.append(inner)


def evaluate_blocked_fold(ev: Evaluation, f: Fold, compute: Compute, least: int = 1) -> Store | None:
    """Evaluate a blocked fold by `compute`: its accumulator after the last step; None when it is not one, or of fewer elements.

    They are counted over all steps: of those that have fewer than `least` no operand is looked for.
    """
    nest = fold_nest_of(f)
    if nest is None:
        return None
    folds, step = nest
    start = f.initial[0]
    if not isinstance(start, Comprehension) or not iv.inside(f.accumulators[0].interval, INT32):
        return None
    variables = [x.variable for x in folds]
    try:
        if any(not x.extent.free.isdisjoint(variables) for x in folds):
            return None
        loops = [(x.variable, ev.number(x.extent)) for x in folds]
        steps = math.prod(n for _, n in loops)
        if steps * ev.element_count(f.free, f.reads) < max(least, 1):
            return None
        first = ev.value(start.body)
        with ev.inner_scope(axes=loops):
            trace = FoldTrace(ev, accumulator=folds[-1].accumulators[0], loops=tuple(axis_of(v) for v, _ in loops))
            codes = [_code(trace, step)]
            if trace.has_last:
                trace.is_last = True
                codes.append(_code(trace, step))
            kind = np.dtype(storage_dtype(f.accumulators[0].interval))
            if not trace.sites:
                return None
            result = compute(ev, [(axis_of(v), n) for v, n in loops], trace, codes, first, kind)
    except (TooWide, SpecError):
        return None
    return Store(result.data, result.axes)


def _code(trace: FoldTrace, step: Expr) -> Code:
    """Return the code of a step; its last operator is its value."""
    tracer = Tracer(trace.leaf)
    if tracer.trace(step) != len(tracer.code) - 1:
        raise TooWide
    return tuple(tracer.code)
