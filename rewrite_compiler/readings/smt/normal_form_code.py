"""Terms of integers as code on normal forms: closures that take an evaluator, made once for each term.

Where all operands are integers, as in addresses and control, they are computed at once; else the operator makes a normal form.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np

from ...errors import SpecError
from ...lang import intervals as iv
from ...lang.binders import Leaf
from ...lang.expr import INTEGER, Expr, fold_constant
from .evaluator import UNROLLED_SHIFTS
from .polynomial_terms import Number, Term, Terms, interval_of

Code = Callable[[Any], Any]  # evaluator → value
CHECKED = ("div", "mod", "tdiv", "tmod", "shl", "shr")  # operators that have no value for some integers


class NotInteger(Exception):
    """A term uses real numbers, which have no normal form here."""


def integer_of(x: Any) -> Any:
    """Return a value as an integer or a term.

    Raises:
        NotInteger: it is another number.
    """
    if type(x) is Term or type(x) is int:
        return x
    if isinstance(x, bool | np.integer):
        return int(x)
    raise NotInteger(repr(x))


Reading = Callable[..., Number]


def _constant_result(e: Expr, a: Number, b: Number) -> int | None:
    return None if isinstance(a, Term) or isinstance(b, Term) else fold_constant(e.op, a, b)


def _negate(terms: Terms, e: Expr, a: Number) -> Number:
    return terms.linear_combination([(-1, a)])


def _complement(terms: Terms, e: Expr, a: Number) -> Number:
    return terms.linear_combination([(1, 1), (-1, a)])


def _shift(terms: Terms, e: Expr, a: Number, b: Number) -> Number:
    constant = _constant_result(e, a, b)
    if constant is not None:
        return constant
    if not isinstance(b, Term):
        return terms.product(a, 1 << b) if e.op == "shl" else terms.quotient(a, 1 << b)
    low, high = e.args[1].interval
    if low is None or high is None or high - low > UNROLLED_SHIFTS:
        raise SpecError("I102", f"a shift by a symbolic amount needs a bounded one, not {(low, high)}")
    result: Number | None = None
    for n in range(max(high, 0), max(low, 0) - 1, -1):
        shifted = terms.product(a, 1 << n) if e.op == "shl" else terms.quotient(a, 1 << n)
        result = shifted if result is None else terms.select(terms.compare("eq", b, n), shifted, result)
    assert result is not None
    return result


_DIVIDED = {"div": iv.floor_div, "mod": iv.floor_mod, "tdiv": iv.trunc_div, "tmod": iv.trunc_mod}


def _divide(terms: Terms, e: Expr, a: Number, b: Number) -> Number:
    constant = _constant_result(e, a, b)
    if constant is not None:
        return constant
    if not isinstance(b, Term) and b > 0 and e.op in ("div", "mod"):
        return terms.quotient(a, b) if e.op == "div" else terms.modulo(a, b)
    return terms.apply(e.op, None, (a, b), _DIVIDED[e.op](interval_of(a), interval_of(b)))


def _bits(terms: Terms, e: Expr, a: Number, b: Number) -> Number:
    constant = _constant_result(e, a, b)
    if constant is not None:
        return constant
    if all(iv.inside(x.interval, iv.TRUTH) for x in e.args):
        conjunction = terms.product(a, b)
        disjunction = terms.linear_combination([(1, a), (1, b), (-1 if e.op == "bitor" else -2, conjunction)])
        return conjunction if e.op == "bitand" else disjunction
    word = iv.width_of(iv.hull(*(x.interval for x in e.args)))
    if word is None:
        raise SpecError("I102", f"{e.op} needs bounded operands in a proof")
    return terms.apply(e.op, word, (a, b), e.interval)


def _wrap(terms: Terms, e: Expr, a: Number) -> Number:
    bits, signed = e.data
    half = 1 << bits - 1 if signed else 0
    if iv.inside(interval_of(a), iv.of_width(bits, signed)):
        return a
    return terms.linear_combination([(1, terms.modulo(terms.linear_combination([(1, a), (1, half)]), 1 << bits)), (-1, half)])


def _clz(terms: Terms, e: Expr, a: Number) -> Number:
    return terms.apply("clz", e.data, (a,), e.interval) if isinstance(a, Term) else e.data - a.bit_length()


READINGS: dict[str, Reading] = {
    "add": lambda t, e, a, b: a + b,
    "sub": lambda t, e, a, b: a - b,
    "mul": lambda t, e, a, b: t.product(a, b),
    "neg": _negate,
    "not": _complement,
    **dict.fromkeys(("shl", "shr"), _shift),
    **dict.fromkeys(("div", "mod", "tdiv", "tmod"), _divide),
    **{op: lambda t, e, a, b: t.compare(e.op, a, b) for op in ("eq", "ne", "lt", "le")},
    **{op: lambda t, e, a, b: t.extremum(e.op, a, b) for op in ("min", "max")},
    **dict.fromkeys(("bitand", "bitor", "bitxor"), _bits),
    "wrap": _wrap,
    "extract": lambda t, e, a: t.modulo(t.quotient(a, 1 << e.data[0]), 1 << e.data[1]),
    "clz": _clz,
}


@lru_cache(maxsize=1 << 12)
def code_of(root: Expr) -> Code:
    """Return the code of a term that is no constant and no variable."""
    return _Coder(root).code(root)


class _Coder:
    """Makes the code of one term; subterms that several others share, or that vary less than these, are computed once."""

    def __init__(self, root: Expr) -> None:
        self.uses: Counter[Expr] = Counter()
        self.codes: dict[Expr, Code] = {}
        pending = [root]
        while pending:
            e = pending.pop()
            for a in _coded_operands(e):
                self.uses[a] += 1
                if self.uses[a] == 1:
                    pending.append(a)

    def code(self, e: Expr) -> Code:
        """Return the code of a term, which keeps nothing."""
        if e not in self.codes:
            self.codes[e] = self._code(e)
        return self.codes[e]

    def _operand(self, e: Expr, user: Expr) -> Code:
        """Return the code of an operand."""
        if e.op == "const":
            value = e.data
            return lambda _: value
        if e.op == "var":
            return lambda ev: ev.variable_values[e]
        code, free = self.code(e), e.free
        is_short = e.op not in ("reduce", "load") and not any(a.args for a in e.args)
        if is_short or (self.uses[e] == 1 and free == user.free):
            return code

        def kept(ev: Any) -> Any:
            scopes = ev.scopes
            depth = len(scopes) - 1
            while depth and scopes[depth].isdisjoint(free):
                depth -= 1
            memo = ev.memos[depth]
            value = memo.get(e)
            if value is None:
                value = memo[e] = code(ev)
            return value

        return kept

    def _code(self, e: Expr) -> Code:
        op = e.op
        operands = [self._operand(a, e) for a in _coded_operands(e)]
        if op == "load":
            return _load(e, operands)
        if op in READINGS and not e.real:
            return _binary(e, *operands) if len(operands) == 2 else _unary(e, *operands)
        if op == "table":
            return lambda ev: ev.table_entry(e, [integer_of(a(ev)) for a in operands])
        if op == "reduce":
            return lambda ev: ev.reduction(e)
        return _select(*operands) if op == "select" else _refusal(op)


def _coded_operands(e: Expr) -> tuple[Expr, ...]:
    """Return the operands that a term's own code computes: a reduction has a scope of its own."""
    return () if e.op == "reduce" else e.args


def _refusal(op: str) -> Code:
    def refuse(_: Any) -> Any:
        raise NotInteger(op)

    return refuse


def _select(condition: Code, a: Code, b: Code) -> Code:
    def select(ev: Any) -> Any:
        c = condition(ev)
        if type(c) is not Term:
            return a(ev) if c else b(ev)
        return ev.terms.select(c, integer_of(a(ev)), integer_of(b(ev)))

    return select


def _binary(e: Expr, a: Code, b: Code) -> Code:
    if e.args[1].op == "const" and type(e.args[1].data) is int:
        return _with_number(e, a, e.args[1].data)
    reading, op = READINGS[e.op], e.op
    compute = partial(fold_constant, op) if op in CHECKED else INTEGER[op]

    def binary(ev: Any) -> Any:
        x, y = a(ev), b(ev)
        if type(x) is int and type(y) is int:
            return compute(x, y)
        return reading(ev.terms, e, integer_of(x), integer_of(y))

    return binary


def _with_number(e: Expr, a: Code, n: int) -> Code:
    """Return the code of an operator whose right operand is a number."""
    reading, op = READINGS[e.op], e.op
    is_total = op not in CHECKED or 0 < n <= iv.LARGEST_SHIFT
    compute = INTEGER[op] if is_total else partial(fold_constant, op)

    def binary(ev: Any) -> Any:
        x = a(ev)
        return compute(x, n) if type(x) is int else reading(ev.terms, e, integer_of(x), n)

    return binary


def _unary(e: Expr, a: Code) -> Code:
    reading = READINGS[e.op]
    low = -(1 << e.data[0] - 1) if e.op == "wrap" and e.data[1] else 0
    high = low + (1 << e.data[0]) - 1 if e.op == "wrap" else -1

    def unary(ev: Any) -> Any:
        x = a(ev)
        if type(x) is int and low <= x <= high:  # fits its width
            return x
        return reading(ev.terms, e, integer_of(x))

    return unary


def _load(e: Expr, operands: list[Code]) -> Code:
    array = e.data
    is_leaf = isinstance(array, Leaf)

    def load(ev: Any) -> Any:
        data = ev.memories[array] if is_leaf else ev.array(array)
        index = tuple([i(ev) for i in operands])
        is_inside = True
        for i, n in zip(index, data.shape, strict=True):
            if not isinstance(i, int):
                return ev.symbolic_load(data, index)
            is_inside = is_inside and 0 <= i < n
        if not is_inside:
            ev.check_index(e, index, data)
        return data[index]

    def load_of_line(ev: Any) -> Any:
        data = ev.memories[array] if is_leaf else ev.array(array)
        i = index_code(ev)
        if type(i) is int and 0 <= i < data.shape[0]:
            return data[i,]
        return load(ev)

    if len(operands) != 1:
        return load
    (index_code,) = operands
    return load_of_line
