"""The z3 reading on bit-vectors: for terms of bit operations that fit 64 bits, which are slow on unbounded integers."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import z3

from ...lang import intervals as iv
from ...lang.binders import Leaf, static_shape
from ...lang.expr import Expr
from ...lang.traversal import terms_of
from ..arrays.labelled_array import Data
from .bitvector_operators import WORDS, maximum, minimum, resize, to_common_width, width_of
from .evaluator import SymbolicEvaluator, Value, fresh_variables, interval_constraints, truth

WORD_BITS = 64
BIT_OPERATIONS = frozenset({"bitand", "bitor", "bitxor", "extract", "clz"})


class BitvectorEvaluator(SymbolicEvaluator):
    """Evaluates integer terms on signed bit-vectors as wide as their intervals need; memories hold these and numbers."""

    def _value(self, e: Expr) -> Value:
        if e.op not in WORDS:
            return super()._value(e)
        operands = [self.value(a) for a in e.args]
        if not any(isinstance(x, z3.ExprRef) for x in operands):
            return super()._value(e)
        return WORDS[e.op](e, *operands)

    def _select(self, e: Expr) -> Value:
        condition = truth(self.value(e.args[0]))
        condition = truth(condition) if isinstance(condition, z3.BoolRef) else condition
        if isinstance(condition, bool):
            return self.value(e.args[1] if condition else e.args[2])
        width = width_of(e.interval)
        return z3.If(condition, *(resize(self.value(a), width) for a in e.args[1:]))

    def symbolic_load(self, data: Data, index: Sequence[Value]) -> Value:
        """Return an element at an index that is no number."""
        elements = to_common_width(*data.reshape(-1))
        result: Any = None
        for place, element in zip(itertools.product(*(range(n) for n in data.shape)), elements, strict=True):
            equalities = [x == y for x, y in (to_common_width(p, i) for p, i in zip(place, index, strict=True))]
            result = element if result is None else z3.If(z3.And(*equalities), element, result)
        return result

    def _combined(self, e: Expr, monoid: str, values: Sequence[Value]) -> Value:
        if not any(isinstance(v, z3.ExprRef) for v in values):
            return super()._combined(e, monoid, values)
        if monoid == "sum":
            total = resize(values[0], width_of(e.interval))
            for v in values[1:]:
                total = total + resize(v, width_of(e.interval))
            return total
        result = values[0]
        for v in values[1:]:
            result = minimum(result, v) if monoid == "min" else maximum(result, v)
        return result


def prefers_bits(terms: Iterable[Expr]) -> bool:
    """Tell whether bit-vectors suit the terms: all are integers of at most 64 bits, and one is a bit operation."""
    uses_bits = False
    for t in terms:
        for x in terms_of(t):
            if x.real or x.op in ("floor", "rint") or None in x.interval or width_of(x.interval) > WORD_BITS:
                return False
            is_logic = all(iv.inside(a.interval, iv.TRUTH) for a in x.args)
            uses_bits = uses_bits or (x.op in BIT_OPERATIONS and not is_logic)
    return uses_bits


def fresh_words(leaf: Leaf) -> Data:
    """Return an object array of fresh bit-vectors, of a leaf's shape."""
    names, width = fresh_variables(leaf.name, static_shape(leaf)), width_of(leaf.interval)
    data = np.empty(names.shape, object)
    for place in np.ndindex(names.shape):
        data[place] = z3.BitVec(str(names[place]), width)
    return data


def evaluator_for(terms: Sequence[Expr], leaves: Iterable[Leaf], *, bits: bool | None = None) -> tuple[SymbolicEvaluator, list[z3.BoolRef]]:
    """Return an evaluator with symbolic leaves, and the premises that they lie in their intervals.

    `bits` chooses bit-vectors (True) or unbounded integers (False); without it the terms do.
    """
    use_bits = prefers_bits(terms) if bits is None else bits
    memories = {leaf: fresh_words(leaf) if use_bits else fresh_variables(leaf.name, static_shape(leaf)) for leaf in leaves}
    premises = [c for leaf, data in memories.items() for c in interval_constraints(data, leaf.interval)]
    return (BitvectorEvaluator if use_bits else SymbolicEvaluator)(memories), premises
