"""Hash-consed integer terms in a polynomial normal form: equal terms are one object, so that most equations need no solver.

Sums are linear combinations; coefficients are reduced inside of a modulus; a quotient and a remainder of one number that are
recombined become the number. Every rewrite is an identity of integers, and every term has an interval.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Union

from ...lang import intervals as iv
from ...lang.intervals import Interval

MEMORISED = 1 << 20  # results of operators, some 200 MB
DISTRIBUTED = 4  # terms of a sum, up to which a product with it becomes a sum
_FLATTENED = ("sum", "mul")  # operators that a product looks into
Number = Union[int, "Term"]


class Term:
    """An operator on terms, made by `Terms` only; `data` are its attributes."""

    __slots__ = ("args", "data", "interval", "number", "op", "terms")

    def __init__(self, terms: Terms, number: int, op: str, data: Any, args: tuple[Term, ...], interval: Interval) -> None:
        self.terms, self.number, self.op, self.data, self.args, self.interval = terms, number, op, data, args, interval

    def __add__(self, other: Number) -> Number:
        return self.terms.once(_plus, self, other) if isinstance(other, Term) else self.terms.plus(self, int(other))

    def __sub__(self, other: Number) -> Number:
        return self.terms.linear_combination([(1, self), (-1, other)]) if isinstance(other, Term) else self.terms.plus(self, -int(other))

    def __rsub__(self, other: Number) -> Number:
        return self.terms.linear_combination([(-1, self), (1, other)])

    def __mul__(self, other: Number) -> Number:
        return self.terms.once(_times, self, other)

    def __mod__(self, other: int) -> Number:
        return self.terms.once(_modulo, self, other)

    def __floordiv__(self, other: int) -> Number:
        return self.terms.once(_quotient, self, other)

    def __neg__(self) -> Number:
        return self.terms.linear_combination([(-1, self)])

    __radd__, __rmul__, __truediv__ = __add__, __mul__, __floordiv__

    def __repr__(self) -> str:
        text = f"{self.data}" if not self.args else ", ".join(map(repr, self.args))
        return f"{self.op}({text})" if self.args or self.op != "var" else text


class Terms:
    """The hash-consing table of one proof. With `unbounded` a product of elements has no interval, so no wrap of a sum is dropped."""

    def __init__(self, *, unbounded: bool = False) -> None:
        self.unbounded = unbounded
        self.interned: dict[tuple[Any, ...], Term] = {}
        self.results: dict[tuple[Any, ...], Number] = {}  # of operators that have been applied to terms

    def once(self, operator: Callable[[Term, Any], Number], a: Term, other: Any) -> Number:
        """Return an operator's result: vectors hold the same terms in many lanes, and each is rewritten once."""
        key = operator, a, other
        result = self.results.get(key)
        if result is None:
            if len(self.results) == MEMORISED:
                self.results.clear()
            result = self.results[key] = operator(a, other)
        return result

    def make(self, op: str, data: Any, args: tuple[Term, ...], interval: Interval) -> Number:
        """Return the hash-consed term of an operator, without rewriting; the number where its interval has one value."""
        if interval[0] is not None and interval[0] == interval[1]:
            return interval[0]
        key = (op, data, args[0].number) if len(args) == 1 else (op, data, *[a.number for a in args])
        term = self.interned.get(key)
        if term is None:
            term = self.interned[key] = Term(self, len(self.interned), op, data, args, interval)
        return term

    def variable(self, name: str, interval: Interval) -> Number:
        """Return a variable with an interval."""
        return self.make("var", name, (), interval)

    def total(self, values: Iterable[Number]) -> Number:
        """Return the sum of values."""
        return self.linear_combination((1, v) for v in values)

    def linear_combination(self, parts: Iterable[tuple[int, Number]]) -> Number:
        """Return a linear combination: the sum of factors times values."""
        constant, factors, terms = 0, dict[int, int](), dict[int, Term]()
        for factor, value in parts:
            if not isinstance(value, Term):
                constant += factor * int(value)
                continue
            inner = zip(value.data[1], value.args, strict=True) if value.op == "sum" else ((1, value),)
            constant += factor * value.data[0] if value.op == "sum" else 0
            for c, t in inner:
                factors[t.number] = factors.get(t.number, 0) + factor * c
                terms[t.number] = t
        return self._sum(constant, {terms[n]: c for n, c in factors.items() if c})

    def plus(self, value: Number, n: int) -> Number:
        """Return the sum of a value and a number: terms and their factors stay as they are."""
        if not isinstance(value, Term):
            return value + n
        if not n:
            return value
        (constant, factors), args = (value.data, value.args) if value.op == "sum" else ((0, (1,)), (value,))
        if constant == -n and factors == (1,):
            return args[0]
        data = constant + n, factors
        interned_term = self.interned.get(("sum", data, *[t.number for t in args]))
        return self.make("sum", data, args, iv.add(value.interval, (n, n))) if interned_term is None else interned_term

    def _sum(self, constant: int, factors: dict[Term, int]) -> Number:
        merge = self._merge_digits(factors)
        if merge is not None:
            digits, factor, number = merge
            return self.linear_combination([(1, constant), (factor, number), *((c, t) for t, c in factors.items() if t not in digits)])
        if not factors:
            return constant
        if len(factors) == 1 and not constant:
            ((t, c),) = factors.items()
            if c == 1:
                return t
        ordered = sorted(factors.items(), key=_first_number)
        data = constant, tuple([c for _, c in ordered])
        interned_term = self.interned.get(("sum", data, *[t.number for t, _ in ordered]))
        if interned_term is not None:
            return interned_term
        interval: Interval = (constant, constant)
        for t, c in ordered:
            interval = iv.add(interval, _scale(t.interval, c))
        return self.make("sum", data, tuple([t for t, _ in ordered]), interval)

    def _merge_digits(self, factors: dict[Term, int]) -> tuple[tuple[Term, Term], int, Number] | None:
        """Return two digits of one number, their factor and the number: x mod m + m · ⌊x / m⌋ = x, also below a larger modulus."""
        for low, c in factors.items():
            if low.op == "div" and -c == low.data * factors.get(low.args[0], 0):  # x − m · ⌊x / m⌋
                return (low, low.args[0]), factors[low.args[0]], self.modulo(low.args[0], low.data)
            if low.op != "mod":
                continue
            (x,), m = low.args, low.data
            if factors.get(x) == -c:  # x − x mod m
                return (low, x), -c * m, self.quotient(x, m)
            for high, times in factors.items():
                number = self._number_of_digits(high, low) if times == c * m else None
                if number is not None:
                    return (low, high), c, number
        return None

    def _number_of_digits(self, high: Term, low: Term) -> Number | None:
        """Return the number whose digits are `high` and, below it, `low`; None where they are not of one."""
        m, shifted = low.data, high.args[0] if high.op == "mod" else high
        if shifted.op != "div" or shifted.data % m:
            return None
        x = self.quotient(shifted.args[0], shifted.data // m)  # ⌊y / (a · m)⌋ is ⌊x / m⌋ of x = ⌊y / a⌋
        if self.modulo(x, m) is not low:
            return None
        return self.modulo(x, m * high.data) if high.op == "mod" else x

    def product(self, a: Number, b: Number) -> Number:
        """Return a product: a number is distributed over a sum, factors are a sorted multiset."""
        if not isinstance(a, Term):
            return self._multiple(int(a), b)
        if not isinstance(b, Term):
            return self._multiple(int(b), a)
        if a.op not in _FLATTENED and b.op not in _FLATTENED:
            return self._product_of_two(a, b) if a.number <= b.number else self._product_of_two(b, a)
        if any(x.op == "sum" for x in (a, b)) and all(x.op != "sum" or len(x.args) <= DISTRIBUTED for x in (a, b)):
            return self.linear_combination((c * e, self.product(s, t)) for c, s in _summands(a) for e, t in _summands(b))
        factors = [f for x in (a, b) for f in (x.args if x.op == "mul" else (x,))]
        factors.sort(key=_number)
        if self.unbounded and all(_is_element(f) for f in factors):
            return self.make("mul", None, tuple(factors), iv.EVERYTHING)
        interval = factors[0].interval
        for f in factors[1:]:
            interval = iv.mul(interval, f.interval)
        return self.make("mul", None, tuple(factors), interval)

    def _multiple(self, n: int, a: Number) -> Number:
        """Return n times a value."""
        if n == 1 and isinstance(a, Term):
            return a
        return self.linear_combination([(n, a)]) if n else 0

    def _product_of_two(self, a: Term, b: Term) -> Number:
        """Return the product of two terms that are neither sums nor products, in order; its interval is known where it is made."""
        term = self.interned.get(("mul", None, a.number, b.number))
        if term is not None:
            return term
        is_unbounded = self.unbounded and _is_element(a) and _is_element(b)
        return self.make("mul", None, (a, b), iv.EVERYTHING if is_unbounded else iv.mul(a.interval, b.interval))

    def modulo(self, a: Number, m: int) -> Number:
        """Return a mod m for a positive number m: coefficients are reduced modulo m, inner moduli that do not matter are dropped."""
        if not isinstance(a, Term):
            return a % m
        if iv.inside(a.interval, (0, m - 1)):
            return a
        if a.op == "sum":
            return self._sum_modulo(a, m)
        if a.op == "mod" and a.data % m == 0:
            return self.modulo(a.args[0], m)
        return self.make("mod", m, (a,), iv.floor_mod(a.interval, (m, m)))

    def _sum_modulo(self, a: Term, m: int) -> Number:
        constant, numbers = a.data
        parts = [(_nearest(c, m), t.args[0] if _is_needless(t, c, m) else t) for c, t in zip(numbers, a.args, strict=True)]
        is_reduced = all(c == n and t is x for (c, t), n, x in zip(parts, numbers, a.args, strict=True))
        total = self.plus(a, constant % m - constant) if is_reduced else self.linear_combination([(1, constant % m), *parts])
        if isinstance(total, Term) and total.op == "sum" and total is not a and not _is_reduced(total, m):
            return self._sum_modulo(total, m)
        if not isinstance(total, Term) or iv.inside(total.interval, (0, m - 1)) or total.op != "sum":
            return self.modulo(total, m)
        return self.make("mod", m, (total,), iv.floor_mod(total.interval, (m, m)))

    def quotient(self, a: Number, m: int) -> Number:
        """Return ⌊a / m⌋ for a positive number m."""
        if not isinstance(a, Term):
            return a // m
        if m == 1:
            return a
        if a.op == "sum" and a.data[0] % m == 0 and all(c % m == 0 for c in a.data[1]):
            return self.linear_combination([(1, a.data[0] // m), *((c // m, t) for c, t in zip(a.data[1], a.args, strict=True))])
        multiple = self._without_remainder(a, m) if a.op == "sum" else None
        if multiple is not None:
            return self.quotient(multiple, m)
        if a.op == "div":
            return self.quotient(a.args[0], a.data * m)
        if a.op == "mod" and a.data % m == 0:
            return self.modulo(self.quotient(a.args[0], m), a.data // m)
        return self.make("div", m, (a,), iv.floor_div(a.interval, (m, m)))

    def _without_remainder(self, a: Term, m: int) -> Number | None:
        """Return x where a sum is x − x mod m."""
        remainders = (t for c, t in zip(a.data[1], a.args, strict=True) if c == -1 and t.op == "mod" and t.data == m)
        candidates = ((t, self.linear_combination([(1, a), (1, t)])) for t in remainders)
        return next((x for t, x in candidates if self.modulo(x, m) is t), None)

    def extremum(self, op: str, a: Number, b: Number) -> Number:
        """Return the smaller or the larger of two values."""
        if not isinstance(a, Term) and not isinstance(b, Term):
            return min(a, b) if op == "min" else max(a, b)
        x, y = interval_of(a), interval_of(b)
        is_at_most, is_at_least = _is_at_most(x, y), _is_at_most(y, x)
        if is_at_most or is_at_least or a is b:
            return a if (is_at_most or a is b) == (op == "min") or a is b else b
        return self.apply(op, None, self._sorted(a, b), _EXTREMA[op](x, y))

    def compare(self, op: str, a: Number, b: Number) -> Number:
        """Return 1 where a comparison holds, else 0."""
        x, y = interval_of(a), interval_of(b)
        outcome = _COMPARED[op](x, y) if a is not b else op in ("eq", "le")
        if outcome is not None:
            return int(outcome)
        return self.apply(op, None, self._sorted(a, b) if op in ("eq", "ne") else (a, b), iv.TRUTH)

    def select(self, c: Number, a: Number, b: Number) -> Number:
        """Return a where c is not 0, else b."""
        if not isinstance(c, Term):
            return a if c else b
        if a is b or (not isinstance(a, Term) and not isinstance(b, Term) and a == b):
            return a
        return self.apply("ite", None, (c, a, b), iv.hull(interval_of(a), interval_of(b)))

    def apply(self, op: str, data: Any, values: Iterable[Number], interval: Interval) -> Number:
        """Return an operator that is uninterpreted but for its interval."""
        return self.make(op, data, tuple([v if type(v) is Term else self.as_term(v) for v in values]), interval)

    def as_term(self, value: Number) -> Term:
        """Return a number as a constant term; a term unchanged."""
        if isinstance(value, Term):
            return value
        key = ("const", int(value))
        if key not in self.interned:
            self.interned[key] = Term(self, len(self.interned), "const", int(value), (), (int(value), int(value)))
        return self.interned[key]

    def _sorted(self, a: Number, b: Number) -> tuple[Term, Term]:
        x, y = self.as_term(a), self.as_term(b)
        return (x, y) if x.number <= y.number else (y, x)


def _scale(a: Interval, c: int) -> Interval:
    low, high = a if c > 0 else (a[1], a[0])
    return None if low is None else c * low, None if high is None else c * high


def interval_of(value: Number) -> Interval:
    """Return the interval of a term or number."""
    return value.interval if isinstance(value, Term) else (value, value)


def _is_element(t: Term) -> bool:
    """Tell whether a term is a variable, or a table applied to variables."""
    return t.op == "var" or (t.op == "table" and all(a.op == "var" for a in t.args))


def _number(t: Term) -> int:
    return t.number


def _first_number(entry: tuple[Term, int]) -> int:
    return entry[0].number


def _nearest(c: int, m: int) -> int:
    """Return the representative of c modulo m that is nearest to 0."""
    return (c + (m - 1) // 2) % m - (m - 1) // 2


def _summands(a: Term) -> Iterator[tuple[int, Number]]:
    """Yield the summands of a term with their factors."""
    if a.op != "sum":
        yield 1, a
        return
    yield a.data[0], 1
    yield from zip(a.data[1], a.args, strict=True)


def _is_reduced(a: Term, m: int) -> bool:
    constant, numbers = a.data
    is_low = 0 <= constant < m and all(c == _nearest(c, m) for c in numbers)
    return is_low and not any(_is_needless(t, c, m) for c, t in zip(numbers, a.args, strict=True))


def _is_needless(t: Term, c: int, m: int) -> bool:
    """Tell whether a summand c · (x mod n) is c · x modulo m."""
    return t.op == "mod" and c * t.data % m == 0


def _is_at_most(x: Interval, y: Interval) -> bool:
    return x[1] is not None and y[0] is not None and x[1] <= y[0]


def _is_less(x: Interval, y: Interval) -> bool:
    return x[1] is not None and y[0] is not None and x[1] < y[0]


def _three_valued(is_true: bool, is_false: bool) -> bool | None:
    return True if is_true else False if is_false else None


def _equal(x: Interval, y: Interval) -> bool | None:
    return _three_valued(x == y and x[0] is not None and x[0] == x[1], _is_less(x, y) or _is_less(y, x))


def _unequal(x: Interval, y: Interval) -> bool | None:
    is_equal = _equal(x, y)
    return None if is_equal is None else not is_equal


_COMPARED: dict[str, Callable[[Interval, Interval], bool | None]] = {
    "eq": _equal,
    "ne": _unequal,
    "lt": lambda x, y: _three_valued(_is_less(x, y), _is_at_most(y, x)),
    "le": lambda x, y: _three_valued(_is_at_most(x, y), _is_less(y, x)),
}
_EXTREMA = {"min": iv.minimum, "max": iv.maximum}


# -- operators that are computed once for the same operands


def _plus(a: Term, b: Term) -> Number:
    return a.terms.total((a, b))


def _times(a: Term, b: Number) -> Number:
    return a.terms.product(a, b)


def _modulo(a: Term, m: int) -> Number:
    return a.terms.modulo(a, m)


def _quotient(a: Term, m: int) -> Number:
    return a.terms.quotient(a, m)
