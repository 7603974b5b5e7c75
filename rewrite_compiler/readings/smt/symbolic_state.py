"""The z3 reading of steps on a symbolic state: conditions, addresses and loop bounds may depend on data.

Registers are bit-vectors, memories with axes z3 arrays from a flat index. A loop with a symbolic bound is unrolled `rounds`
times, under the premise that it ends by then.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import z3

from ...errors import SpecError
from ...lang.binders import Comprehension, Fold, Leaf, Table, static_shape
from ...lang.expr import Expr, lift
from ...lang.step import Let, Loop, Require, Seq, Step, Together, Update, When
from ..arrays.labelled_array import Data
from .bitvector_evaluator import BitvectorEvaluator
from .bitvector_operators import maximum, minimum, resize, width_of
from .evaluator import Value, truth

INDEX_BITS = 32
Write = tuple[Leaf, Value, Value, Any]  # memory, flat index, value, condition


class SymbolicState(BitvectorEvaluator):
    """Evaluates integer terms and runs steps on bit-vectors and arrays of them."""

    def __init__(
        self,
        memories: Mapping[Leaf, Data],
        arrays: Mapping[Leaf, z3.ArrayRef],
        rounds: int,
        tables: Mapping[Table, z3.ArrayRef] | None = None,
    ) -> None:
        """Start from `memories` (object arrays of bit-vectors and numbers) and `arrays` (elements as wide as the leaf stores them).

        `tables` are arrays from flat indices that stand for tables, signed words each.
        """
        super().__init__(memories)
        self.tables = dict(tables or {})
        self.arrays = dict(arrays)
        self.rounds, self.premises = rounds, list[z3.BoolRef]()
        self.runs = list[z3.BoolRef]()  # for each premise, that its loop runs at all

    # -- terms

    def _value(self, e: Expr) -> Value:
        return self.divide(e) if e.op in ("div", "mod") and (e.args[1].interval[0] or 0) > 0 else super()._value(e)

    def divide(self, e: Expr) -> Value:
        """Return a quotient or remainder by a positive divisor without a case distinction; by a power of two it is a bit field."""
        a, b = self.value(e.args[0]), self.value(e.args[1])
        n, width = e.args[1].value, max(width_of(x.interval) for x in (e, *e.args))
        if not any(isinstance(x, z3.ExprRef) for x in (a, b)):
            return a // b if e.op == "div" else a % b
        if isinstance(n, int) and n & n - 1 == 0:
            k = n.bit_length() - 1
            low = z3.ZeroExt(1, z3.Extract(k - 1, 0, resize(a, max(width, k + 1)))) if k else z3.BitVecVal(0, 2)
            return resize(resize(a, width) >> k if e.op == "div" else low, width_of(e.interval))
        if (e.args[0].interval[0] or 0) < 0 or e.args[0].interval[0] is None:
            return super()._value(e)
        x, y = resize(a, width), resize(b, width)
        return resize(x / y if e.op == "div" else z3.SRem(x, y), width_of(e.interval))

    def _load(self, e: Expr) -> Value:
        if e.data in self.arrays:
            return self.extend(z3.Select(self.arrays[e.data], self.flat_index(e.data, e.args)), e.data)
        if isinstance(e.data, Comprehension) and not all(isinstance(n, int) for n in e.data.shape):
            indices = tuple(self.value(i) for i in e.args)
            return self._bind(e.data.variables, indices, lambda: self.value(e.data.body))
        return super()._load(e)

    def reduction(self, e: Expr) -> Value:
        """Return the value of a reduction."""
        monoid, variables = e.data
        extents = e.args[1:]
        if all(n.value is not None for n in extents) or (monoid != "sum" and any((n.interval[0] or 0) < 1 for n in extents)):
            return super().reduction(e)
        width, result = width_of(e.interval), None
        for point in itertools.product(*(self.rounds_of(n) for n in extents)):
            is_active: Any = True
            for _, condition in point:
                is_active = _conjunction(is_active, condition)
            value = resize(self._bind(variables, tuple(k for k, _ in point), lambda: self.value(e.args[0])), width)
            if monoid == "sum":
                total = resize(0, width) if result is None else result
                result = total + value if is_active is True else z3.If(is_active, total + value, total)
            elif result is None:
                result = value  # the first is always active, because no extent is 0
            else:
                extremum = resize((minimum if monoid == "min" else maximum)(result, value), width)
                result = extremum if is_active is True else z3.If(is_active, extremum, result)
        return 0 if result is None else result

    def _table(self, e: Expr) -> Value:
        if e.data not in self.tables:
            return super()._table(e)
        total = lift(0)
        for x, n, d in zip(e.args, e.data.shape, e.data.domains, strict=True):
            total = total * n + (x - (d[0] or 0))
        element = z3.Select(self.tables[e.data], z3.simplify(resize(self.value(total), INDEX_BITS)))
        return resize(element, width_of(e.interval))

    def extend(self, element: z3.BitVecRef, leaf: Leaf) -> z3.BitVecRef:
        """Return an element as a signed word that holds the leaf's interval."""
        is_signed = (leaf.interval[0] or 0) < 0
        extra_bits = width_of(leaf.interval) - element.size()
        return (z3.SignExt if is_signed else z3.ZeroExt)(extra_bits, element) if extra_bits > 0 else element

    def flat_index(self, leaf: Leaf, indices: Sequence[Expr]) -> z3.BitVecRef:
        """Return the row-major index of an element, in `INDEX_BITS` bits."""
        total = lift(0)
        for i, n in zip(indices, static_shape(leaf), strict=True):
            total = total * n + i
        return z3.simplify(resize(self.value(total), INDEX_BITS))

    def rounds_of(self, e: Expr) -> list[tuple[int, Any]]:
        """Return the iterations of a loop, each with the condition under which it runs."""
        extent = self.value(e)
        if isinstance(extent, z3.ExprRef):
            simplified = z3.simplify(extent)
            extent = simplified.as_signed_long() if z3.is_bv_value(simplified) else extent
        if not isinstance(extent, z3.ExprRef):
            return [(k, True) for k in range(int(extent))]
        count = min(self.rounds, e.interval[1] if e.interval[1] is not None else self.rounds)
        if e.interval[1] is None or e.interval[1] > count:
            self.premises.append(_comparison(extent, count, lambda a, b: a <= b))
            self.runs.append(_comparison(extent, 0, lambda a, b: b < a))
        return [(k, _comparison(extent, k, lambda a, b: b < a)) for k in range(count)]

    def _fold(self, f: Fold) -> tuple[list[Data], list[Data]]:
        current = [self.array(first) for first in f.initial]
        for k, is_active in self.rounds_of(f.extent):
            previous = current

            def advance() -> list[Data]:
                self.memories.update(zip(f.accumulators, previous, strict=True))  # noqa: B023
                return [self.array(b) for b in f.bodies]

            following = self._bind((f.variable,), (k,), advance)
            current = [_merge(is_active, a, b, width_of(x.interval)) for x, a, b in zip(f.accumulators, following, previous, strict=True)]
        return current, [np.empty((0, *x.shape), object) for x in current]

    # -- steps

    def execute(self, step: Step, when: Any = True) -> None:
        """Run a step under the condition `when`.

        Raises:
            SpecError: a diagnostic of the step always fires.
        """
        if isinstance(step, Seq):
            for part in step.steps:
                self.execute(part, when)
        elif isinstance(step, Update | Together):
            self.write([w for u in (step.updates if isinstance(step, Together) else (step,)) for w in self.writes(u, when)])
        elif isinstance(step, Loop):
            for k, is_active in self.rounds_of(step.extent):
                self._bind((step.variable,), (k,), lambda: self.execute(step.body, _conjunction(when, is_active)))  # noqa: B023
        elif isinstance(step, When):
            self._clear_memo()
            condition = truth(self.value(step.condition))
            self.execute(step.then, _conjunction(when, condition))
            self.execute(step.otherwise, _conjunction(when, not condition if isinstance(condition, bool) else z3.Not(condition)))
        elif isinstance(step, Let):
            self._clear_memo()
            self.memories[step.local] = self.array(step.array)
            self._clear_memo()
            self.execute(step.body, when)
        elif isinstance(step, Require) and step.always:
            raise SpecError("I102", "a diagnostic that always stops has no state after it")

    def writes(self, u: Update, when: Any) -> list[Write]:
        """Return the writes of an update, every value computed in the state before it."""
        self._clear_memo()
        pending_writes: list[Write] = []
        for point in itertools.product(*(self.rounds_of(n) for n in u.extents)):
            is_active = when
            for _, condition in point:
                is_active = _conjunction(is_active, condition)

            def evaluated_write() -> Write:
                return u.memory, self.address(u), self.value(u.value), is_active  # noqa: B023

            if is_active is not False:
                pending_writes.append(self._bind(u.variables, tuple(k for k, _ in point), evaluated_write))
        return pending_writes

    def address(self, u: Update) -> Value:
        """Return where an update writes: a flat index in an array, else constant indices."""
        if u.memory in self.arrays:
            return self.flat_index(u.memory, u.address)
        return tuple(self.number(lift(a)) for a in u.address)

    def write(self, writes: Iterable[Write]) -> None:
        """Store values in order; a memory that was never written (an operand of a command) starts as 0."""
        for leaf, place, value, when in writes:
            if leaf in self.arrays:
                array = self.arrays[leaf]
                updated = z3.Store(array, place, resize(value, array.sort().range().size()))
                self.arrays[leaf] = updated if when is True else z3.If(when, updated, array)
            else:
                if leaf not in self.memories:
                    self.memories[leaf] = np.full(static_shape(leaf), 0, object)
                width, stored = width_of(leaf.interval), self.memories[leaf][place]
                updated = resize(value, width)
                self.memories[leaf][place] = updated if when is True else z3.If(when, updated, resize(stored, width))
        self._clear_memo()


def _comparison(extent: z3.BitVecRef, n: int, test: Any) -> Any:
    return z3.simplify(test(resize(extent, INDEX_BITS), resize(n, INDEX_BITS)))


def _conjunction(a: Any, b: Any) -> Any:
    if a is False or b is False or (isinstance(b, z3.ExprRef) and z3.is_false(b)):
        return False
    if a is True:
        return b
    return a if b is True else z3.And(a, b)


def _merge(is_active: Any, after: Data, before: Data, width: int) -> Data:
    if is_active is True:
        return after
    merged = np.empty(after.shape, object)
    for place in np.ndindex(*after.shape):
        merged[place] = z3.If(is_active, resize(after[place], width), resize(before[place], width))
    return merged


def size_of(leaf: Leaf) -> int:
    """Return the number of elements of a leaf."""
    return math.prod(static_shape(leaf))
