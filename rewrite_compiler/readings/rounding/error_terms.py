"""Bounds of rounding errors as terms: from a term another one whose value bounds how far the first is off when it is rounded.

Operators mean terms, so their error bounds need no rules of their own: those of the few operations of terms are enough, sums of
products are bounded by sums of products of magnitudes, and a fold carries errors beside its accumulators.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from ...lang.arithmetic import maximum, minimum
from ...lang.binders import Accumulator, Array, Comprehension, Fold, FoldResult, Leaf, array, reduction
from ...lang.expr import FUNCTIONS, Expr, as_real, call, const, floor, lift, round_even, select, var
from ...lang.intervals import inside
from ...lang.substitution import substitute
from .error_rules import CALL_ROUNDINGS, ERROR_RULES, EXACT, rounding

WHOLE = 1 << 24  # integers up to it are float32 numbers
NONE = as_real(lift(0))
MASKED = -(1 << 1000)  # exponents below are −∞ in float32


class TermArithmetic:
    """The operations of error rules on terms."""

    infinity = as_real(lift(1)) / 0

    def absolute(self, x: Expr) -> Expr:
        """Return |x|."""
        return maximum(x, -x)

    def maximum(self, x: Expr, y: Any) -> Expr:
        """Return the larger one."""
        return maximum(x, _term(y))

    def minimum(self, x: Expr, y: Any) -> Expr:
        """Return the smaller one."""
        return minimum(x, _term(y))

    def where(self, truth: Expr, x: Any, y: Any) -> Expr:
        """Return x where it holds, else y."""
        return select(truth, as_real(_term(x)), as_real(_term(y)))

    def call(self, function: str, *operands: Expr) -> Expr:
        """Return a real function by its name."""
        return call(function, *operands)


def _term(x: Any) -> Expr:
    return x if isinstance(x, Expr) else const(x)


class ErrorTerms:
    """Error bounds of terms over leaves: `errors` has a leaf of bounds for each leaf that is not exact."""

    def __init__(self, errors: Mapping[Leaf, Array], unit: Fraction, least: Fraction) -> None:
        """Round each operation by a relative error of `unit`, and an absolute one of `least`."""
        self.arithmetic = TermArithmetic()
        self.unit, self.least = const(unit), const(least)
        self.arrays: dict[Array, Array | None] = dict[Array, Array | None](errors.items())
        self.magnitudes: dict[Array, Array] = {}
        self.folds: dict[Fold, tuple[Fold, tuple[int | None, ...]]] = {}
        self.terms: dict[Expr, Expr] = {}

    def array(self, a: Array) -> Array | None:
        """Return the bounds of an array's elements, of the array's shape; None where all are exact."""
        if a not in self.arrays:
            self.arrays[a] = self._array(a)
        return self.arrays[a]

    def _array(self, a: Array) -> Array | None:
        if isinstance(a, Comprehension):
            error = self.error(a.body)
            return None if error is NONE else Comprehension(a.shape, error.interval, True, a.variables, error)
        if isinstance(a, FoldResult):
            loop, places = self._fold(a.fold)
            place = places[a.component]
            return None if place is None else FoldResult(a.shape, (None, None), True, loop, place, a.history)
        return None

    def _fold(self, f: Fold) -> tuple[Fold, tuple[int | None, ...]]:
        """Return a fold of values and of their errors, and the place of each accumulator's errors; None for one that stays exact."""
        if f not in self.folds:
            self.folds[f] = self._fold_with_errors(f)
        return self.folds[f]

    def _fold_with_errors(self, f: Fold) -> tuple[Fold, tuple[int | None, ...]]:
        variable = var(f.variable.data[0], f.variable.interval)
        fresh = [Accumulator(a.shape, a.interval, a.real, a.name, variable) for a in f.accumulators]
        renaming = {f.variable: variable}
        bodies = [_replaced(b, renaming, dict(zip(f.accumulators, fresh, strict=True))) for b in f.bodies]
        is_exact = [self.array(first) is None and not first.real for first in f.initial]
        while True:
            bounds = [None if exact else Accumulator(a.shape, (None, None), True, f"error of {a.name}", variable)
                      for a, exact in zip(fresh, is_exact, strict=True)]  # fmt: skip
            inner = ErrorTerms({}, Fraction(self.unit.data), Fraction(self.least.data))
            inner.arrays = {**self.arrays, **dict(zip(fresh, bounds, strict=True))}
            errors = [inner.array(b) for b in bodies]
            stays_exact = [exact and e is None for exact, e in zip(is_exact, errors, strict=True)]
            if stays_exact == is_exact:
                break
            is_exact = stays_exact
        carried = [n for n, exact in enumerate(is_exact) if not exact]
        initial = [*f.initial, *(self.array(f.initial[n]) or _zeros(f.initial[n]) for n in carried)]
        steps = [*bodies, *(errors[n] or _zeros(bodies[n]) for n in carried)]
        accumulators = (*fresh, *(b for b in bounds if b is not None))
        places = tuple(len(fresh) + carried.index(n) if n in carried else None for n in range(len(fresh)))
        return Fold(variable, f.extent, tuple(initial), accumulators, tuple(steps)), places

    def error(self, e: Expr) -> Expr:
        """Return the error bound of a term; NONE, the constant 0, where it is exact."""
        if e not in self.terms:
            self.terms[e] = self._error(e)
        return self.terms[e]

    def _error(self, e: Expr) -> Expr:
        if e.op == "const":
            return NONE if not e.real or _is_float32(e.data) else const(abs(e.data)) * self.unit
        if e.op == "var":
            return NONE
        if e.op == "load":
            return self._of_load(e)
        if e.op == "reduce":
            return self._of_reduction(e)
        errors = [self.error(a) for a in e.args]
        if all(x is NONE for x in errors) and (not e.real or _is_exact(e)):
            return NONE
        if not e.real and e.op in ("floor", "rint"):
            return self._of_rounded(e, errors[0])
        name = e.data if e.op == "call" else e.op
        rule = ERROR_RULES.get(name)
        if rule is None:
            return self._of_any(e, errors)
        propagated: Expr = rule(self.arithmetic, [as_real(a) for a in e.args], errors, as_real(e))
        if name == "exp":  # of what a mask makes −∞ nothing is off
            propagated = self.arithmetic.where(as_real(e.args[0]) < MASKED, 0, propagated)
        if not e.real or _is_exact(e):
            return propagated
        added: Expr = rounding(self.magnitude(e), propagated, self.unit, self.least, CALL_ROUNDINGS if e.op == "call" else 1)
        return propagated + added

    def _of_load(self, e: Expr) -> Expr:
        errors = self.array(e.data)
        bound = NONE if errors is None else errors[e.args]
        for i in map(self.error, e.args):  # an index that is off reads any element
            bound = bound if i is NONE else self.arithmetic.where(i > 0, self.arithmetic.infinity, bound)
        return bound

    def _of_rounded(self, e: Expr, error: Expr) -> Expr:
        """Return how far an integer is off when the real number that is rounded to it is."""
        x, function = e.args[0], floor if e.op == "floor" else round_even
        return as_real(maximum(function(x + error) - e, e - function(x - error)))

    def _of_any(self, e: Expr, errors: Sequence[Expr]) -> Expr:
        """Return the bound of an operation on integers of which no more is known than the interval of its results."""
        low, high = e.interval
        width = self.arithmetic.infinity if low is None or high is None or e.real else as_real(lift(high - low))
        if e.op == "shr" and errors[1] is NONE:
            width = self.arithmetic.minimum(errors[0] / as_real(lift(1) << e.args[1]) + 1, width)
        total = errors[0]
        for x in errors[1:]:
            total = total + x
        return self.arithmetic.where(total > 0, width, 0)

    def _of_reduction(self, e: Expr) -> Expr:
        monoid, variables = e.data
        body, extents = e.args[0], e.args[1:]

        def reduced(kind: str, term: Expr) -> Expr:
            return reduction(kind, variables, extents, term)

        factors = _factors(body)
        errors = [self.error(f) for f in factors]
        if monoid != "sum":
            error = self.error(body)
            return NONE if error is NONE else reduced("max", error)
        roundings = const(Fraction(1))
        for n in extents:
            roundings = roundings * as_real(n)
        kappa = self.unit * (roundings + len(factors) - 1) if e.real else NONE
        if len(factors) == 1:
            (error,), size = errors, self.magnitude(factors[0])
        else:  # the last factor is one side, the product of the others is the other
            error, size = errors[0], self.magnitude(factors[0])
            for f, more in zip(factors[1:-1], errors[1:-1], strict=True):
                a = self.magnitude(f)
                error = _sum(_times(size, more), _times(error, _sum(a, more)))
                size = size * a
        if len(factors) == 1:
            parts = [_sum(error, _times(kappa, _sum(size, error)))]
        else:
            b, eb = self.magnitude(factors[-1]), errors[-1]
            parts = [_times(size, _sum(_sum(eb, _times(kappa, eb)), _times(kappa, b))), _times(error, _scaled(_sum(b, eb), kappa))]
        terms = [reduced("sum", p) for p in parts if p is not NONE]
        if not terms:
            return NONE
        total = terms[0] if len(terms) == 1 else terms[0] + terms[1]
        return total + roundings * self.least if e.real else total

    def magnitude(self, e: Expr) -> Expr:
        """Return |e|, of an element of an array as an element of the array of magnitudes, which is computed once."""
        if e.op == "load" and not e.data.free:
            a: Array = e.data
            if a not in self.magnitudes:
                self.magnitudes[a] = array(lambda *i: as_real(self.arithmetic.absolute(a[i])), a.shape)
            return self.magnitudes[a][e.args]
        return as_real(self.arithmetic.absolute(e))


def _times(a: Expr, b: Expr) -> Expr:
    return NONE if a is NONE or b is NONE else a * b


def _sum(a: Expr, b: Expr) -> Expr:
    return b if a is NONE else a if b is NONE else a + b


def _scaled(x: Expr, kappa: Expr) -> Expr:
    """Return x · (1 + κ)."""
    return x if kappa is NONE else x + kappa * x


def _is_exact(e: Expr) -> bool:
    return e.op in EXACT and (e.op != "real" or inside(e.args[0].interval, (-WHOLE, WHOLE)))


def _is_float32(n: Fraction) -> bool:
    with np.errstate(over="ignore"):
        single = float(np.float32(float(n)))
    return math.isfinite(single) and Fraction(single) == n


def _factors(e: Expr) -> list[Expr]:
    if e.op == "mul":
        return [f for a in e.args for f in _factors(a)]
    return [e]


def _zeros(a: Array) -> Array:
    return array(lambda *_: NONE, a.shape)


def _replaced(a: Array, variables: Mapping[Expr, Expr], arrays: Mapping[Any, Array]) -> Array:
    """Return an array with variables and leaves replaced."""
    places = tuple(var("i", (0, None)) for _ in a.shape)
    replaced: Array = substitute(a[places], variables, arrays).data
    return replaced


assert set(FUNCTIONS) <= set(ERROR_RULES)
