"""The reading as polynomial normal forms: both sides of an equation become one object, or a question for z3.

Integers only. Values differ from those of the z3 reading; loops, arrays, steps and their limits are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import z3

from ...errors import SpecError
from ...lang import intervals as iv
from ...lang.binders import Array, Comprehension, Leaf
from ...lang.expr import Expr
from ...lang.step import Update
from ..arrays.labelled_array import Data
from .evaluator import SymbolicEvaluator, Value, apply_uninterpreted
from .normal_form_code import TableFunction, array_code, code_of, integer_of, updates_code
from .polynomial_terms import Number, Term, Terms


class NormalFormEvaluator(SymbolicEvaluator):
    """Evaluates terms and runs steps on memories of normal forms and numbers; tables are uninterpreted."""

    def __init__(self, memories: Mapping[Leaf, Data], terms: Terms) -> None:
        super().__init__(memories, uninterpreted_tables=True)
        self.terms = terms

    def number(self, e: Expr) -> int:
        """Return the value of a term that controls: a loop bound, a condition or an index.

        Raises:
            SpecError: the term depends on data.
        """
        value = self.value(e)
        if isinstance(value, Term):
            raise SpecError("I102", f"{e!r} depends on data where control is needed")
        return int(value)

    def value(self, e: Expr) -> Value:
        """Return the value of a term."""
        op = e.op
        if op == "const":
            return e.data
        if op == "var":
            return self.variable_values[e]
        memo = self.memo_for(e.free)
        result = memo.get(e)
        if result is None:
            result = memo[e] = code_of(e)(self)
        return result

    def array_within(self, a: Array, variables: Sequence[Expr], values: Sequence[int]) -> Data:
        """Return the elements of an array where some variables have values."""
        return self._bind(variables, values, partial(self.array, a))  # type: ignore[no-any-return]

    def _array(self, a: Array) -> Data:
        return array_code(a)(self) if isinstance(a, Comprehension) else super()._array(a)

    def _update(self, updates: Iterable[Update]) -> None:
        self._clear_memo()
        updates = tuple(updates)
        for u, writes in zip(updates, updates_code(updates)(self), strict=True):
            memory = self.memories[u.memory]
            for place, value in writes:
                memory[place] = value
        self._clear_memo()

    def symbolic_load(self, data: Data, index: Sequence[Value]) -> Value:
        """Return an element at an index that is no number."""
        result: Value = None
        for place in np.ndindex(*data.shape):
            element = integer_of(data[place])
            is_place: Number = 1
            for p, i in zip(place, index, strict=True):
                is_place = self.terms.product(is_place, self.terms.compare("eq", p, i))
            result = element if result is None else self.terms.select(is_place, element, result)
        return result

    def _combined(self, e: Expr, monoid: str, values: Sequence[Value]) -> Value:
        numbers = [integer_of(v) for v in values]
        if monoid == "sum":
            return self.terms.total(numbers)
        result = numbers[0]
        for v in numbers[1:]:
            result = self.terms.extremum(monoid, result, v)
        return result


def variables(terms: Terms, prefix: str, shape: Sequence[int], interval: iv.Interval) -> Data:
    """Return an object array of variables, named as those of the z3 reading."""
    data = np.empty(tuple(shape), object)
    for place in np.ndindex(*shape):
        data[place] = terms.variable(prefix + "".join(f"_{i}" for i in place), interval)
    return data


# -- as z3 terms


class Z3Translator:
    """Translates normal forms to z3 terms, each once; `axioms` bound the results of tables."""

    def __init__(self) -> None:
        self.translated: dict[int, z3.ArithRef] = {}
        self.axioms: list[z3.BoolRef] = []
        self.names: dict[TableFunction, str] = {}

    def of(self, root: Number) -> Any:
        """Return the z3 term of a normal form; a number unchanged."""
        if not isinstance(root, Term):
            return root
        work = [root]
        while work:
            t = work[-1]
            pending = [a for a in t.args if a.number not in self.translated] if t.number not in self.translated else []
            work.extend(pending)
            if not pending:
                work.pop()
                if t.number not in self.translated:
                    self.translated[t.number] = self._term(t, [self.translated[a.number] for a in t.args])
        return self.translated[root.number]

    def _term(self, t: Term, args: list[z3.ArithRef]) -> z3.ArithRef:
        if t.op == "table":
            name = self.names.setdefault(t.data, f"table_{t.data.table.name}" + "'" * self._namesakes(t.data))
            x = apply_uninterpreted(name, args, integer=True)
            low, high = t.interval
            self.axioms += [c for c in (None if low is None else x >= low, None if high is None else x <= high) if c is not None]
            return x
        return _AS_Z3[t.op](t, *args)

    def _namesakes(self, table: TableFunction) -> int:
        return sum(n.table.name == table.table.name for n in self.names if n != table)


def _z3_sum(t: Term, *args: z3.ArithRef) -> z3.ArithRef:
    constant, numbers = t.data
    parts = [a if c == 1 else a * c for c, a in zip(numbers, args, strict=True)]
    return z3.Sum(*parts, *([z3.IntVal(constant)] if constant else []))


def _z3_bits(t: Term, a: z3.ArithRef, b: z3.ArithRef) -> z3.ArithRef:
    bits, signed = t.data
    x, y = z3.Int2BV(a, bits), z3.Int2BV(b, bits)
    return z3.BV2Int({"bitand": x & y, "bitor": x | y, "bitxor": x ^ y}[t.op], signed)


def _z3_divide(t: Term, a: z3.ArithRef, *args: z3.ArithRef) -> z3.ArithRef:
    if not args:
        return a / t.data if t.op == "div" else a % t.data
    (b,) = args
    quotient, remainder = a / b, a % b  # z3: the remainder is in 0 … |b|−1
    floor = z3.If(z3.And(b < 0, remainder != 0), quotient - 1, quotient)
    toward_zero = z3.If(z3.And(a < 0, remainder != 0), z3.If(b > 0, quotient + 1, quotient - 1), quotient)
    rounded = floor if t.op in ("fdiv", "fmod") else toward_zero
    return rounded if t.op in ("fdiv", "tdiv") else a - b * rounded


def _z3_product(t: Term, *args: z3.ArithRef) -> z3.ArithRef:
    result = args[0]
    for a in args[1:]:
        result = result * a
    return result


def _z3_clz(t: Term, a: z3.ArithRef) -> z3.ArithRef:
    result: z3.ArithRef = z3.IntVal(0)
    for n in range(1, t.data + 1):
        result = z3.If(a < 1 << t.data - n, z3.IntVal(n), result)
    return result


def _z3_truth(t: Term, a: z3.ArithRef, b: z3.ArithRef) -> z3.ArithRef:
    holds = {"eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b}[t.op]
    return z3.If(holds, z3.IntVal(1), z3.IntVal(0))


_AS_Z3: dict[str, Callable[..., z3.ArithRef]] = {
    "var": lambda t: z3.Int(t.data),
    "const": lambda t: z3.IntVal(t.data),
    "sum": _z3_sum,
    "mul": _z3_product,
    **dict.fromkeys(("div", "mod", "fdiv", "fmod", "tdiv", "tmod"), _z3_divide),
    **dict.fromkeys(("bitand", "bitor", "bitxor"), _z3_bits),
    **dict.fromkeys(("eq", "ne", "lt", "le"), _z3_truth),
    "min": lambda t, a, b: z3.If(a <= b, a, b),
    "max": lambda t, a, b: z3.If(a >= b, a, b),
    "ite": lambda t, c, a, b: z3.If(c != 0, a, b),
    "clz": _z3_clz,
}
