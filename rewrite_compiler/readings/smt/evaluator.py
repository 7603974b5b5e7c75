"""The z3 reading: terms over unbounded integers and reals, loops unrolled at concrete shapes.

A value is a Python number while it is constant and a z3 term afterwards, so that control stays concrete and proofs see only
data. Real functions are uninterpreted, tables on request. `unknown` is never a pass.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import z3

from ...errors import SpecError
from ...lang import intervals as iv
from ...lang.binders import Array, Comprehension, Fold, FoldResult, Leaf, Table
from ...lang.expr import INTEGER, Expr, fold_constant, lift
from ...lang.step import Let, Loop, Require, Seq, Step, Together, Update, When
from ..arrays.labelled_array import Data
from ..oracle.emit_python import diagnostic, table_entries
from .bitvector_operators import to_common_width
from .solver import Outcome, Verdict, solve
from .term_bounds import Bounds
from .uninterpreted_products import refute_by_ranges

Value = Any  # int, Fraction, z3.ArithRef or z3.BoolRef
UNROLLED_SHIFTS = 256


class SymbolicEvaluator:
    """Evaluates terms and runs steps on memories of z3 terms and numbers."""

    def __init__(self, memories: Mapping[Leaf, Data], *, uninterpreted_tables: bool = False) -> None:
        """Start from `memories`, object arrays, which steps write in place."""
        self.memories = dict(memories)
        self.uninterpreted_tables = uninterpreted_tables
        self.axioms: list[z3.BoolRef] = []
        self.table_intervals: dict[str, iv.Interval] = {}
        self.bounds = Bounds(self.table_intervals)
        self.variable_values: dict[Expr, Value] = {}
        self.memos: list[dict[Any, Any]] = [{}]
        self.scopes: list[frozenset[Expr]] = [frozenset()]

    def bind(self, leaf: Leaf, data: Data) -> None:
        """Bind a leaf to its elements."""
        self.memories[leaf] = data
        self._clear_memo()

    # -- terms

    def array(self, a: Array) -> Data:
        """Return the elements of an array term as an object array."""
        if isinstance(a, Leaf):
            return self.memories[a]
        return self._memoise(a, a.free, partial(self._array, a))  # type: ignore[no-any-return]

    def value(self, e: Expr) -> Value:
        """Return the value of a term."""
        if e.op == "const":
            return e.data
        if e.op == "var":
            return self.variable_values[e]
        return self._memoise(e, e.free, lambda: self._value(e))

    def number(self, e: Expr) -> int:
        """Return the value of a term that controls: a loop bound, a condition or an index.

        Raises:
            SpecError: the term depends on data.
        """
        value = self.value(e)
        if isinstance(value, z3.ExprRef):
            value = _constant_value(value)
        if value is None:
            raise SpecError("I102", f"{e!r} depends on data where control is needed")
        return int(value)

    def _memoise(self, key: Any, free: frozenset[Expr], compute: Callable[[], Any]) -> Any:
        memo = self.memo_for(free)
        if key not in memo:
            memo[key] = compute()
        return memo[key]

    def memo_for(self, free: frozenset[Expr]) -> dict[Any, Any]:
        """Return the memo of the innermost scope that binds one of these variables."""
        depth, levels = len(self.scopes) - 1, self.scopes
        while depth and levels[depth].isdisjoint(free):
            depth -= 1
        return self.memos[depth]

    def _map_points(self, variables: Sequence[Expr], ranges: Sequence[range], compute: Callable[[], Any]) -> list[Any]:
        """Return the results of `compute` at every point of ranges, the last variable varying fastest."""
        self.scopes.append(frozenset(variables))
        self.memos.append({})
        results = []
        try:
            values = self.variable_values
            for point in itertools.product(*ranges):
                for variable, n in zip(variables, point, strict=True):
                    values[variable] = n
                self.memos[-1] = {}
                results.append(compute())
        finally:
            self.scopes.pop()
            self.memos.pop()
        return results

    def _bind(self, variables: Sequence[Expr], values: Sequence[Value], compute: Callable[[], Any]) -> Any:
        self.variable_values.update(zip(variables, values, strict=True))
        self.scopes.append(frozenset(variables))
        self.memos.append({})
        try:
            return compute()
        finally:
            self.scopes.pop()
            self.memos.pop()

    def _value(self, e: Expr) -> Value:
        if e.op == "select":
            return self._select(e)
        if e.op == "load":
            return self._load(e)
        if e.op == "reduce":
            return self.reduction(e)
        if e.op == "table":
            return self._table(e)
        if e.op == "call":
            return apply_uninterpreted(e.data, [_real(self.value(a)) for a in e.args])
        operands = [self.value(a) for a in e.args]
        if e.op == "wrap" and self._fits(e, operands[0]):
            return operands[0]
        return OPERATORS[e.op](e, *operands)

    def _fits(self, e: Expr, x: Value) -> bool:
        """Tell whether a wrapped value cannot leave its width, so that the wrap is the identity."""
        x = number_of(x)
        return isinstance(x, z3.ArithRef) and iv.inside(self.bounds.of(x), iv.of_width(*e.data))

    def _select(self, e: Expr) -> Value:
        condition = truth(self.value(e.args[0]))
        if isinstance(condition, bool):
            return self.value(e.args[1] if condition else e.args[2])
        a, b = self.value(e.args[1]), self.value(e.args[2])
        if e.real:
            a, b = _real(a), _real(b)
        return z3.If(condition, _term(number_of(a)), _term(number_of(b)))

    def _load(self, e: Expr) -> Value:
        data = self.array(e.data)
        index = [self.value(i) for i in e.args]
        for i in index:
            if not isinstance(i, int):
                return self.symbolic_load(data, index)
        self.check_index(e, index, data)
        return data[tuple(index)]

    def check_index(self, e: Expr, index: Sequence[int], data: Data) -> None:
        """Refuse an index outside of an array.

        Raises:
            SpecError: I103, a position lies outside of its axis.
        """
        for axis, (i, n) in enumerate(zip(index, data.shape, strict=True)):
            if not 0 <= i < n:
                raise SpecError("I103", f"index {i} of axis {axis} is outside of {e!r} ({n})")

    def symbolic_load(self, data: Data, index: Sequence[Value]) -> Value:
        """Return an element at an index that is no number."""
        result: Value = None
        for place in itertools.product(*(range(n) for n in data.shape)):
            equalities = [p == i for p, i in zip(place, index, strict=True)]
            element = _term(number_of(data[place]))
            result = element if result is None else z3.If(z3.And(*equalities), element, result)
        return result

    def reduction(self, e: Expr) -> Value:
        """Return the value of a reduction."""
        ranges = [range(self.number(n)) for n in e.args[1:]]
        return self.reduced(e, self._map_points(e.data[1], ranges, partial(self.value, e.args[0])))

    def reduced(self, e: Expr, values: Sequence[Value]) -> Value:
        """Return what a reduction makes of the values of its body.

        Raises:
            SpecError: it is an extremum of no elements.
        """
        monoid, _ = e.data
        if not values:
            if monoid == "sum":
                return Fraction(0) if e.real else 0
            raise SpecError("I102", f"the {monoid} of no elements has no value")
        return self._combined(e, monoid, values)

    def _combined(self, e: Expr, monoid: str, values: Sequence[Value]) -> Value:
        if monoid == "sum":
            return _sum(values)
        result = values[0]
        for v in values[1:]:
            result = _extremum(monoid, result, v)
        return result

    def _table(self, e: Expr) -> Value:
        table: Table = e.data
        operands = [number_of(self.value(a)) for a in e.args]
        if all(isinstance(x, int) for x in operands):
            flat = 0
            for x, n, d in zip(operands, table.shape, table.domains, strict=True):
                flat = flat * n + x - (d[0] or 0)
            return table_entries(table)[flat]
        if self.uninterpreted_tables:
            self.table_intervals[f"table_{table.name}"] = e.interval
            return self._with_axioms(apply_uninterpreted(f"table_{table.name}", [_term(x) for x in operands], integer=True), e.interval)
        return self._bind(table.parameters, operands, lambda: self.value(table.body))

    def _with_axioms(self, x: Value, interval: iv.Interval) -> Value:
        if interval[0] is not None:
            self.axioms.append(x >= interval[0])
        if interval[1] is not None:
            self.axioms.append(x <= interval[1])
        return x

    def _array(self, a: Array) -> Data:
        if isinstance(a, FoldResult):
            last, every = self._memoise(a.fold, a.free, lambda: self._fold(a.fold))
            return every[a.component] if a.history else last[a.component]  # type: ignore[no-any-return]
        if not isinstance(a, Comprehension):
            raise SpecError("I102", "not an array term")
        shape = tuple(self.number(lift(n)) for n in a.shape)
        data = np.empty(math.prod(shape), object)
        for n, value in enumerate(self._map_points(a.variables, [range(n) for n in shape], partial(self.value, a.body))):
            data[n] = value
        return data.reshape(shape)

    def _fold(self, f: Fold) -> tuple[list[Data], list[Data]]:
        current = [self.array(first) for first in f.initial]
        history: list[list[Data]] = [[] for _ in current]
        for k in range(self.number(f.extent)):
            previous = current

            def advance() -> list[Data]:
                self.memories.update(zip(f.accumulators, previous, strict=True))  # noqa: B023
                return [self.array(b) for b in f.bodies]

            current = self._bind((f.variable,), (k,), advance)
            for states, state in zip(history, current, strict=True):
                states.append(state)
        return current, [_stack(states, state.shape) for states, state in zip(history, current, strict=True)]

    # -- steps

    def run(self, step: Step) -> None:
        """Run a step; its conditions, loop bounds and addresses must not depend on data.

        Raises:
            SpecError: one of them does, an index lies outside of its array, or a diagnostic of the step fires.
        """
        if isinstance(step, Seq):
            for part in step.steps:
                self.run(part)
        elif isinstance(step, Update):
            self._update((step,))
        elif isinstance(step, Together):
            self._update(step.updates)
        elif isinstance(step, Loop):
            for k in range(self._current_number(step.extent)):
                self._bind((step.variable,), (k,), lambda: self.run(step.body))
        elif isinstance(step, When):
            self.run(step.then if self._current_number(step.condition) else step.otherwise)
        elif isinstance(step, Let):
            self._clear_memo()
            self.memories[step.local] = self.array(step.array)
            self._clear_memo()
            self.run(step.body)
        elif isinstance(step, Require) and not self._current_number(step.condition):
            raise diagnostic(step.code, step.sentence, **{name: self.number(e) for name, e in step.values})

    def _current_number(self, e: Expr) -> int:
        self._clear_memo()
        return self.number(e)

    def _clear_memo(self) -> None:
        self.memos = [{} for _ in self.memos]

    def _update(self, updates: Iterable[Update]) -> None:
        self._clear_memo()
        writes = [w for u in updates for w in self._writes(u)]
        for leaf, place, value in writes:
            self.memories[leaf][place] = value
        self._clear_memo()

    def _writes(self, u: Update) -> list[tuple[Leaf, tuple[int, ...], Value]]:
        element, memory = u.memory[u.address], self.memories[u.memory]

        def evaluated_write() -> tuple[Leaf, tuple[int, ...], Value]:
            place = tuple([self.number(a) for a in u.address])
            self.check_index(element, place, memory)
            return u.memory, place, number_of(self.value(u.value))

        return self._map_points(u.variables, [range(self.number(n)) for n in u.extents], evaluated_write)


def _stack(rows: Sequence[Data], shape: tuple[int, ...]) -> Data:
    data = np.empty((len(rows), *shape), object)
    for n, row in enumerate(rows):
        data[n, ...] = row
    return data


def fresh_variables(prefix: str, shape: Sequence[int], *, real: bool = False) -> Data:
    """Return an object array of fresh z3 variables, named by `prefix` and index."""
    data = np.empty(tuple(shape), object)
    for place in itertools.product(*(range(n) for n in shape)):
        name = prefix + "".join(f"_{i}" for i in place)
        data[place] = z3.Real(name) if real else z3.Int(name)
    return data


def interval_constraints(data: Data, interval: iv.Interval) -> list[z3.BoolRef]:
    """Return the constraints that every symbolic element of an array lies in an interval."""
    low, high = interval
    terms = [x for x in np.asarray(data, object).flat if isinstance(x, z3.ExprRef)]
    return [c for x in terms for c in ([x >= low] if low is not None else []) + ([x <= high] if high is not None else [])]


def prove_equal(pairs: Iterable[tuple[Value, Value]], premises: Sequence[z3.BoolRef] = (), seconds: float = 5.0) -> Verdict:
    """Prove that both sides of every pair are equal under the premises; a model of a difference refutes."""
    open_pairs = [(a, b) for a, b in pairs if not _normal_forms_equal(a, b)]
    if not open_pairs:
        return Verdict(Outcome.PROVED)
    goal = z3.Or(*[_disequality(a, b) for a, b in open_pairs])
    return refute([goal, *premises], seconds)


def refute(constraints: Sequence[z3.BoolRef], seconds: float = 5.0) -> Verdict:
    """Prove that the constraints have no solution; a solution is the verdict's model. `seconds` are those of an idle processor.

    Where z3 decides neither, products are abstracted to an uninterpreted function within their ranges.
    """
    formulas = [c if isinstance(c, z3.BoolRef) else z3.BoolVal(bool(c)) for c in constraints]
    first = solve(formulas, seconds)
    second = refute_by_ranges(formulas, seconds) if first.outcome == Outcome.UNKNOWN else first
    return first if second.outcome == Outcome.UNKNOWN else second


def apply_uninterpreted(name: str, operands: Sequence[Value], *, integer: bool = False) -> Value:
    """Return an application of an uninterpreted function on reals, or on integers."""
    sort = z3.IntSort() if integer else z3.RealSort()
    function = z3.Function(name, *[sort] * (len(operands) + 1))
    return function(*[_term(x) for x in operands])


def truth(x: Value) -> Any:
    """Return whether a value is not 0, as bool or z3 Bool."""
    if isinstance(x, z3.BoolRef):
        simplified = z3.simplify(x)
        return True if z3.is_true(simplified) else False if z3.is_false(simplified) else x
    return x != 0 if isinstance(x, z3.ExprRef) else bool(x)


def number_of(x: Value) -> Value:
    """Return a truth value as 0 or 1, any other value as it is."""
    return z3.If(x, z3.IntVal(1), z3.IntVal(0)) if isinstance(x, z3.BoolRef) else int(x) if isinstance(x, bool | np.integer) else x


def _normal_forms_equal(a: Value, b: Value) -> bool:
    if not isinstance(a, z3.ExprRef) and not isinstance(b, z3.ExprRef):
        return bool(a == b)
    if isinstance(a, z3.BitVecRef) or isinstance(b, z3.BitVecRef):
        return bool(z3.is_true(z3.simplify(z3.Not(_disequality(a, b)))))
    x, y = _term(number_of(a)), _term(number_of(b))
    if x.eq(y):
        return True
    if x.is_real() != y.is_real():
        return False
    difference = z3.simplify(x - y, som=True, sort_sums=True)
    return _constant_value(difference) == 0


def _disequality(a: Value, b: Value) -> z3.BoolRef:
    if isinstance(a, z3.BitVecRef) or isinstance(b, z3.BitVecRef):
        x, y = to_common_width(a, b)
        return x != y
    return _term(number_of(a)) != _term(number_of(b))


def _constant_value(x: z3.ExprRef) -> int | Fraction | None:
    s = z3.simplify(x)
    if z3.is_int_value(s):
        return int(s.as_long())
    if z3.is_rational_value(s):
        return Fraction(s.numerator_as_long(), s.denominator_as_long())
    return int(s.as_signed_long()) if z3.is_bv_value(s) else None


def _term(x: Value) -> z3.ArithRef:
    if isinstance(x, z3.ExprRef):
        return number_of(x) if isinstance(x, z3.BoolRef) else x
    return z3.RealVal(str(x)) if isinstance(x, Fraction) else z3.IntVal(int(x))


def _real(x: Value) -> Value:
    if isinstance(x, z3.ExprRef):
        x = number_of(x)
        return x if x.is_real() else z3.ToReal(x)
    return Fraction(x)


def _sum(values: Sequence[Value]) -> Value:
    numbers = [number_of(v) for v in values]
    constant = sum((v for v in numbers if not isinstance(v, z3.ExprRef)), Fraction(0) if isinstance(numbers[0], Fraction) else 0)
    terms = [v for v in numbers if isinstance(v, z3.ExprRef)]
    if not terms:
        return constant
    total = terms[0] if len(terms) == 1 else z3.Sum(*terms)
    return total if constant == 0 else total + _term(constant)


def _extremum(op: str, a: Value, b: Value) -> Value:
    a, b = number_of(a), number_of(b)
    if not isinstance(a, z3.ExprRef) and not isinstance(b, z3.ExprRef):
        return min(a, b) if op == "min" else max(a, b)
    x, y = _term(a), _term(b)
    return z3.If(x <= y if op == "min" else x >= y, x, y)


def _arithmetic(op: str) -> Callable[[Expr, Value, Value], Value]:
    def apply(e: Expr, a: Value, b: Value) -> Value:
        a, b = number_of(a), number_of(b)
        if not isinstance(a, z3.ExprRef) and not isinstance(b, z3.ExprRef):
            return INTEGER[op](a, b) if e.real or op in ("add", "sub", "mul") else fold_constant(op, a, b)
        if op == "mul" and any(not isinstance(x, z3.ExprRef) and x == 0 for x in (a, b)):
            return Fraction(0) if e.real else 0
        return INTEGER[op](_term(a), _term(b)) if op in ("add", "sub", "mul") else _shift(op, e, a, b)

    return apply


def _shift(op: str, e: Expr, a: Value, b: Value) -> Value:
    x = _term(a)
    if isinstance(b, z3.ExprRef):
        return _shift_by_cases(op, e, x, b)
    return x * (1 << b) if op == "shl" else x / (1 << b)


def _shift_by_cases(op: str, e: Expr, x: Value, n: Value) -> Value:
    low, high = e.args[1].interval
    if low is None or high is None or high - low > UNROLLED_SHIFTS:
        raise SpecError("I102", f"a shift by a symbolic amount needs a bounded one, not {(low, high)}")
    result = _shift(op, e, x, max(high, 0))
    for amount in range(high - 1, max(low, 0) - 1, -1):
        result = z3.If(n == amount, _shift(op, e, x, amount), result)
    return result


def _divide(e: Expr, a: Value, b: Value) -> Value:
    a, b = number_of(a), number_of(b)
    if not isinstance(a, z3.ExprRef) and not isinstance(b, z3.ExprRef) and b:
        return fold_constant(e.op, a, b)
    x, y = _term(a), _term(b)  # by a constant 0, too: in a branch that is not taken it has no meaning, and needs none
    quotient = x / y  # z3: the remainder is in 0 … |y|−1
    floor = z3.If(z3.And(y < 0, x % y != 0), quotient - 1, quotient) if not _is_positive(e.args[1]) else quotient
    if e.op == "div":
        return floor
    if e.op == "mod":
        return x - y * floor if not _is_positive(e.args[1]) else x % y
    toward_zero = z3.If(z3.And(x < 0, x % y != 0), z3.If(y > 0, quotient + 1, quotient - 1), quotient)
    return toward_zero if e.op == "tdiv" else x - y * toward_zero


def _is_positive(e: Expr) -> bool:
    return e.interval[0] is not None and e.interval[0] > 0


def _real_divide(e: Expr, a: Value, b: Value) -> Value:
    x, y = _real(a), _real(b)
    if not isinstance(x, z3.ExprRef) and not isinstance(y, z3.ExprRef) and y != 0:
        return x / y
    return _term(x) / _term(y)


def _compare(op: str) -> Callable[[Expr, Value, Value], Value]:
    def apply(e: Expr, a: Value, b: Value) -> Value:
        a, b = number_of(a), number_of(b)
        if not isinstance(a, z3.ExprRef) and not isinstance(b, z3.ExprRef):
            return INTEGER[op](a, b)
        x, y = _term(a), _term(b)
        return {"eq": x == y, "ne": x != y, "lt": x < y, "le": x <= y}[op]

    return apply


def _bits(op: str) -> Callable[[Expr, Value, Value], Value]:
    def apply(e: Expr, a: Value, b: Value) -> Value:
        if any(isinstance(x, z3.ExprRef) for x in (a, b)) and all(iv.inside(x.interval, iv.TRUTH) for x in e.args):
            return _logic(op, truth(a), truth(b))
        a, b = number_of(a), number_of(b)
        if not isinstance(a, z3.ExprRef) and not isinstance(b, z3.ExprRef):
            return fold_constant(op, a, b)
        word = iv.width_of(iv.hull(*(x.interval for x in e.args)))
        if word is None:
            raise SpecError("I102", f"{op} needs bounded operands in a proof")
        x, y = (z3.Int2BV(_term(v), word[0]) for v in (a, b))
        result = {"bitand": x & y, "bitor": x | y, "bitxor": x ^ y}[op]
        return z3.BV2Int(result, word[1])

    return apply


def _logic(op: str, a: Value, b: Value) -> Value:
    return {"bitand": z3.And(a, b), "bitor": z3.Or(a, b), "bitxor": z3.Xor(a, b)}[op]


def _wrap(e: Expr, a: Value) -> Value:
    bits, signed = e.data
    half = 1 << bits - 1 if signed else 0
    a = number_of(a)
    return (a + half) % (1 << bits) - half


def _extract(e: Expr, a: Value) -> Value:
    low, width = e.data
    a = number_of(a)
    return a >> low & (1 << width) - 1 if not isinstance(a, z3.ExprRef) else a / (1 << low) % (1 << width)


def _clz(e: Expr, a: Value) -> Value:
    a = number_of(a)
    if not isinstance(a, z3.ExprRef):
        return e.data - int(a).bit_length()
    result: Value = z3.IntVal(0)
    for n in range(1, e.data + 1):
        result = z3.If(a < 1 << e.data - n, z3.IntVal(n), result)
    return result


def _not(e: Expr, a: Value) -> Value:
    return z3.Not(a) if isinstance(a, z3.BoolRef) else 1 - a


def _floor(e: Expr, a: Value) -> Value:
    return z3.ToInt(a) if isinstance(a, z3.ExprRef) else Fraction(a).__floor__()


def _round_even(e: Expr, a: Value) -> Value:
    if not isinstance(a, z3.ExprRef):
        return round(Fraction(a))
    floor = z3.ToInt(a)
    twice_fraction = 2 * (a - z3.ToReal(floor))
    return z3.If(z3.Or(twice_fraction < 1, z3.And(twice_fraction == 1, floor % 2 == 0)), floor, floor + 1)


OPERATORS: dict[str, Callable[..., Value]] = {
    **{op: _arithmetic(op) for op in ("add", "sub", "mul", "shl", "shr")},
    **dict.fromkeys(("div", "mod", "tdiv", "tmod"), _divide),
    **{op: _compare(op) for op in ("eq", "ne", "lt", "le")},
    **{op: _bits(op) for op in ("bitand", "bitor", "bitxor")},
    "min": lambda e, a, b: _extremum("min", a, b),
    "max": lambda e, a, b: _extremum("max", a, b),
    "neg": lambda e, a: -number_of(a),
    "not": _not,
    "rdiv": _real_divide,
    "real": lambda e, a: _real(a),
    "floor": _floor,
    "rint": _round_even,
    "wrap": _wrap,
    "extract": _extract,
    "clz": _clz,
}
