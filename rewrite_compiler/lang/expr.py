"""Expr: a pure, hash-consed term over exact integers and reals, with its interval and its free variables.

A term has no width: finite width appears only at `wrap`, `sat` and state elements, and `wrap` and `sat` vanish where
the interval proves them no-ops. Equal terms are one object, so identity is structural equality; `==` and `<` build
terms, and `bool()` of a term is an error.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from fractions import Fraction
from typing import Any
from weakref import WeakValueDictionary

from ..errors import SpecError
from . import intervals as iv
from .intervals import Interval

Scalar = int | Fraction
_interned: WeakValueDictionary[tuple[Any, ...], Expr] = WeakValueDictionary()
_serial = itertools.count()
PRINTERS: list[Callable[[Expr], str]] = []  # what shows a term: the printer enters itself when it is imported

# op → interval of the result from the intervals of the operands (integers only)
ARITHMETIC: dict[str, Callable[..., Interval]] = {
    "add": iv.add,
    "sub": iv.sub,
    "mul": iv.mul,
    "neg": iv.neg,
    "div": iv.floor_div,
    "mod": iv.floor_mod,
    "tdiv": iv.trunc_div,
    "tmod": iv.trunc_mod,
    "shl": iv.shift_left,
    "shr": iv.shift_right,
    "min": iv.minimum,
    "max": iv.maximum,
    "bitand": iv.bit_and,
    "bitor": iv.bit_or,
    "bitxor": iv.bit_or,
    "eq": lambda a, b: iv.TRUTH,
    "ne": lambda a, b: iv.TRUTH,
    "lt": lambda a, b: iv.TRUTH,
    "le": lambda a, b: iv.TRUTH,
    "not": lambda a: iv.TRUTH,
    "select": lambda c, a, b: iv.hull(a, b),
}
COMPARISONS = frozenset({"eq", "ne", "lt", "le"})
REAL_OPS = frozenset({"add", "sub", "mul", "neg", "min", "max", "select"}) | COMPARISONS
# real functions: numeric in numeric readings, uninterpreted with listed axioms in proofs
FUNCTIONS = ("exp", "log", "sqrt", "tanh", "erf", "sin", "cos", "pow")


class NoTruthValue(TypeError):
    """Signals that Python asks a term whether it is true: `and`, `or`, `not`, `if`, or a chain of comparisons."""


class Expr:
    """One node of a term: operator, operand terms, static data, interval, sort and free variables."""

    __slots__ = ("__weakref__", "args", "data", "free", "interval", "op", "reads", "real")
    op: str
    args: tuple[Expr, ...]
    data: Any
    interval: Interval
    real: bool
    free: frozenset[Expr]
    reads: frozenset[Any]  # the leaves (operands, state memories) it depends on

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise NoTruthValue(f"a term has no truth value: {self!r}; use select() or when(), and for conditions & or commas instead of `and`")

    def __repr__(self) -> str:
        return PRINTERS[0](self) if PRINTERS else object.__repr__(self)

    def __add__(self, other: Operand) -> Expr:
        return binary("add", self, other)

    def __radd__(self, other: Operand) -> Expr:
        return binary("add", other, self)

    def __sub__(self, other: Operand) -> Expr:
        return binary("sub", self, other)

    def __rsub__(self, other: Operand) -> Expr:
        return binary("sub", other, self)

    def __mul__(self, other: Operand) -> Expr:
        return binary("mul", self, other)

    def __rmul__(self, other: Operand) -> Expr:
        return binary("mul", other, self)

    def __floordiv__(self, other: Operand) -> Expr:
        return binary("div", self, other)

    def __rfloordiv__(self, other: Operand) -> Expr:
        return binary("div", other, self)

    def __mod__(self, other: Operand) -> Expr:
        return binary("mod", self, other)

    def __rmod__(self, other: Operand) -> Expr:
        return binary("mod", other, self)

    def __truediv__(self, other: Operand) -> Expr:
        return binary("rdiv", self, other)

    def __rtruediv__(self, other: Operand) -> Expr:
        return binary("rdiv", other, self)

    def __lshift__(self, other: Operand) -> Expr:
        return binary("shl", self, other)

    def __rlshift__(self, other: Operand) -> Expr:
        return binary("shl", other, self)

    def __rshift__(self, other: Operand) -> Expr:
        return binary("shr", self, other)

    def __rrshift__(self, other: Operand) -> Expr:
        return binary("shr", other, self)

    def __and__(self, other: Operand) -> Expr:
        return binary("bitand", self, other)

    def __rand__(self, other: Operand) -> Expr:
        return binary("bitand", other, self)

    def __or__(self, other: Operand) -> Expr:
        return binary("bitor", self, other)

    def __ror__(self, other: Operand) -> Expr:
        return binary("bitor", other, self)

    def __xor__(self, other: Operand) -> Expr:
        return binary("bitxor", self, other)

    def __neg__(self) -> Expr:
        return unary("neg", self)

    def __invert__(self) -> Expr:
        return unary("not", self)

    def __eq__(self, other: Operand) -> Expr:  # type: ignore[override]
        return binary("eq", self, other)

    def __ne__(self, other: Operand) -> Expr:  # type: ignore[override]
        return binary("ne", self, other)

    def __lt__(self, other: Operand) -> Expr:
        return binary("lt", self, other)

    def __le__(self, other: Operand) -> Expr:
        return binary("le", self, other)

    def __gt__(self, other: Operand) -> Expr:
        return binary("lt", other, self)

    def __ge__(self, other: Operand) -> Expr:
        return binary("le", other, self)

    def __getitem__(self, bits: int | slice) -> Expr:
        """Return bit `bits`, or the unsigned field lo:hi (hi excluded) of a non-negative integer term."""
        low, high = (bits.start or 0, bits.stop) if isinstance(bits, slice) else (bits, bits + 1)
        return extract(self, low, high - low)

    def __iter__(self) -> Iterator[Expr]:
        raise TypeError("a term is not a sequence")

    @property
    def value(self) -> Scalar | None:
        """The constant this term is, or None."""
        return self.data if self.op == "const" else None


Operand = Expr | int | Fraction
NO_VARIABLES: frozenset[Expr] = frozenset()


def eq(a: object, b: object) -> bool:
    """Tell whether two terms are the same term (structural equality)."""
    return a is b


def node(op: str, args: Sequence[Expr], data: Hashable, interval: Interval, real: bool, free: frozenset[Expr] | None = None) -> Expr:
    """Return the one term with these parts (hash consing); the only place where terms are made."""
    key = (op, real, data, *map(id, args))
    interned = _interned.get(key)
    if interned is not None:
        return interned
    term = object.__new__(Expr)
    term.op, term.args, term.data, term.interval, term.real = op, tuple(args), data, interval, real
    term.free = NO_VARIABLES.union(*(a.free for a in args)) if free is None else free
    term.reads = frozenset(data.reads if op == "load" else ()).union(*(a.reads for a in args))  # type: ignore[attr-defined]
    _interned[key] = term
    return term


def const(value: Scalar | float) -> Expr:
    """Return a constant; a Python float is taken as the exact rational it is."""
    if isinstance(value, int):
        return node("const", (), int(value), (int(value), int(value)), False)
    return node("const", (), Fraction(value), iv.EVERYTHING, True)


def lift(x: Operand | float) -> Expr:
    """Return `x` as a term."""
    return x if isinstance(x, Expr) else const(x)


def var(name: str, interval: Interval = iv.EVERYTHING, *, real: bool = False) -> Expr:
    """Return a fresh variable: two calls give two variables, also of one name."""
    term = node("var", (), (name, next(_serial)), interval, real)
    term.free = frozenset((term,))
    return term


def as_real(x: Expr) -> Expr:
    """Return an integer term as a real one."""
    if x.real:
        return x
    if x.op == "const":
        return node("const", (), Fraction(x.data), iv.EVERYTHING, True)
    return node("real", (x,), None, iv.EVERYTHING, True)


def unary(op: str, a: Operand) -> Expr:
    """Return −a ("neg"), or the negation of a truth value ("not").

    Raises:
        SpecError: the operand of "not" is not within 0 … 1.
    """
    x = lift(a)
    if op == "not":
        if x.real or not iv.inside(x.interval, iv.TRUTH):
            raise SpecError("I102", f"~ needs a truth value (0 or 1), not {x!r} in {x.interval}", help="use bit_not(x, width)")
        if x.op == "not":
            return x.args[0]
    if x.value is not None:
        return const(-x.value if op == "neg" else 1 - int(x.value))
    return node(op, (x,), None, iv.EVERYTHING if x.real else ARITHMETIC[op](x.interval), x.real)


def binary(op: str, a: Operand, b: Operand) -> Expr:
    """Return a ∘ b, constants folded and identities simplified; an integer becomes real where the other side is.

    Raises:
        SpecError: the operator needs integers and a side is real, or constants have no result (x // 0).
    """
    x, y = lift(a), lift(b)
    if op == "rdiv" or x.real or y.real:
        return _real_binary(op, as_real(x), as_real(y))
    if x.value is not None and y.value is not None:
        return const(fold_constant(op, int(x.value), int(y.value)))
    short = _identity(op, x, y)
    if short is not None:
        return short
    return node(op, (x, y), None, ARITHMETIC[op](x.interval, y.interval), False)


def select(condition: Operand, then: Operand, otherwise: Operand) -> Expr:
    """Return `then` where the condition is 1, else `otherwise`; the other branch is not evaluated."""
    c, a, b = lift(condition), lift(then), lift(otherwise)
    if a.real or b.real:
        a, b = as_real(a), as_real(b)
    if c.value is not None:
        return a if c.value else b
    if a is b:
        return a
    return node("select", (c, a, b), None, iv.EVERYTHING if a.real else iv.hull(a.interval, b.interval), a.real)


def extract(a: Operand, low: int, width: int) -> Expr:
    """Return bits low … low+width−1 of a non-negative integer as an unsigned one.

    Raises:
        SpecError: the operand is real or may be negative.
    """
    x = lift(a)
    if x.value is not None:
        return const(int(x.value) >> low & (1 << width) - 1)
    if x.real or x.interval[0] is None or x.interval[0] < 0:
        raise SpecError("I102", f"a bit field needs a non-negative integer, not {x!r} in {x.interval}", help="wrap it unsigned first")
    if low == 0 and iv.inside(x.interval, (0, (1 << width) - 1)):
        return x
    shifted = iv.shift_right(x.interval, (low, low))
    return node("extract", (x,), (low, width), iv.minimum(shifted, (0, (1 << width) - 1)), False)


def wrap(a: Operand, bits: int, signed: bool = True) -> Expr:
    """Return a mod 2^bits in the signed or unsigned range; `a` itself where its interval fits."""
    x, word = lift(a), iv.of_width(bits, signed)
    if x.value is not None:
        return const((int(x.value) - word[0]) % (1 << bits) + word[0])  # type: ignore[operator]
    return x if iv.inside(x.interval, word) else node("wrap", (x,), (bits, signed), word, False)


def sat(a: Operand, bits: int, signed: bool = True) -> Expr:
    """Return `a` clamped to the range of a word; `a` itself where its interval fits."""
    return clamp(a, *iv.of_width(bits, signed))


def clamp(a: Operand, low: int | None, high: int | None) -> Expr:
    """Return `a` limited to low … high."""
    x = lift(a)
    if high is not None and (x.interval[1] is None or x.interval[1] > high):
        x = binary("min", x, high)
    if low is not None and (x.interval[0] is None or x.interval[0] < low):
        x = binary("max", x, low)
    return x


def clz(a: Operand, bits: int) -> Expr:
    """Return the number of leading zeros of `a` in an unsigned word of `bits` bits.

    Raises:
        SpecError: the operand is real or may lie outside of such a word.
    """
    x = lift(a)
    if x.real or not iv.inside(x.interval, (0, (1 << bits) - 1)):
        raise SpecError("I102", f"clz of {bits} bits needs a value in 0…{(1 << bits) - 1}, not {x!r} in {x.interval}")
    if x.value is not None:
        return const(bits - int(x.value).bit_length())
    high, low = x.interval[0] or 0, x.interval[1] or 0
    return node("clz", (x,), bits, (bits - low.bit_length(), bits - high.bit_length()), False)


def floor(a: Operand) -> Expr:
    """Return the largest integer not above a real term."""
    x = lift(a)
    if not x.real:
        return x
    if x.value is not None:
        return const(x.value.numerator // x.value.denominator)
    return node("floor", (x,), None, _integer_bounds(x), False)


def round_even(a: Operand) -> Expr:
    """Return the integer nearest to a real term, the even one of two."""
    x = lift(a)
    if not x.real:
        return x
    if x.value is not None:
        return const(round(x.value))
    return node("rint", (x,), None, _integer_bounds(x), False)


def _integer_bounds(x: Expr) -> Interval:
    """Return integers between which a real term lies; `min` and `max` with constants limit it."""
    if x.op == "const":
        return math.floor(x.data), math.ceil(x.data)
    if x.op in ("min", "max", "neg"):
        return ARITHMETIC[x.op](*map(_integer_bounds, x.args))
    return x.args[0].interval if x.op == "real" else iv.EVERYTHING


def call(function: str, *operands: Operand) -> Expr:
    """Return a real function of real terms: numeric in numeric readings, uninterpreted in proofs.

    Raises:
        SpecError: the function is none of FUNCTIONS.
    """
    if function not in FUNCTIONS:
        raise SpecError("I102", f'there is no real function "{function}"', help=f"known: {', '.join(FUNCTIONS)}")
    return node("call", tuple(as_real(lift(x)) for x in operands), function, iv.EVERYTHING, True)


def fold_constant(op: str, x: int, y: int) -> int:
    """Return x ∘ y of two integers.

    Raises:
        SpecError: the divisor is zero, or a shift is by a negative amount or too many bits.
    """
    if op in ("div", "mod", "tdiv", "tmod") and y == 0:
        raise SpecError("I102", f"{op} of {x} by zero")
    if op in ("shl", "shr") and y < 0:
        raise SpecError("I102", f"shift of {x} by the negative amount {y}")
    if op == "shl" and y > iv.LARGEST_SHIFT and x:
        raise SpecError("I102", f"shift of {x} by {y} bits; the largest amount of a left shift is {iv.LARGEST_SHIFT}")
    return INTEGER[op](x, y)


def _trunc_div(x: int, y: int) -> int:
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


INTEGER: dict[str, Callable[[int, int], int]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x // y,
    "mod": lambda x, y: x % y,
    "tdiv": _trunc_div,
    "tmod": lambda x, y: x - y * _trunc_div(x, y),
    "shl": lambda x, y: x << y,
    "shr": lambda x, y: x >> y,
    "min": min,
    "max": max,
    "bitand": lambda x, y: x & y,
    "bitor": lambda x, y: x | y,
    "bitxor": lambda x, y: x ^ y,
    "eq": lambda x, y: int(x == y),
    "ne": lambda x, y: int(x != y),
    "lt": lambda x, y: int(x < y),
    "le": lambda x, y: int(x <= y),
}
_NEUTRAL_RIGHT = {"add": 0, "sub": 0, "mul": 1, "div": 1, "tdiv": 1, "shl": 0, "shr": 0, "bitor": 0, "bitxor": 0}
_NEUTRAL_LEFT = {"add": 0, "mul": 1, "bitor": 0, "bitxor": 0}
_ABSORBING = {"mul": 0, "bitand": 0}
_DECIDED: dict[str, Callable[[Interval, Interval], bool | None]] = {
    "lt": lambda a, b: _ordered(a, b, True),
    "le": lambda a, b: _ordered(a, b, False),
    "eq": lambda a, b: False if _disjoint(a, b) else None,
    "ne": lambda a, b: True if _disjoint(a, b) else None,
}


def _identity(op: str, x: Expr, y: Expr) -> Expr | None:
    if y.op == "const":
        if _NEUTRAL_RIGHT.get(op) == y.data:
            return x
        if _ABSORBING.get(op) == y.data:
            return y
    if x.op == "const":
        if _NEUTRAL_LEFT.get(op) == x.data:
            return y
        if _ABSORBING.get(op) == x.data:
            return x
    if op in _DECIDED:
        truth = _DECIDED[op](x.interval, y.interval)
        return None if truth is None else const(int(truth))
    if op in ("min", "max"):
        return _redundant(op, x, y)
    return None


def _redundant(op: str, x: Expr, y: Expr) -> Expr | None:
    is_less = _ordered(x.interval, y.interval, False)
    is_greater = _ordered(y.interval, x.interval, False)
    if is_less or is_greater:
        return x if bool(is_less) == (op == "min") else y
    return None


def _ordered(a: Interval, b: Interval, strict: bool) -> bool | None:
    if a[1] is not None and b[0] is not None and (a[1] < b[0] or (not strict and a[1] == b[0])):
        return True
    if b[1] is not None and a[0] is not None and (b[1] < a[0] or (strict and b[1] == a[0])):
        return False
    return None


def _disjoint(a: Interval, b: Interval) -> bool:
    return _ordered(a, b, True) is True or _ordered(b, a, True) is True


def _real_binary(op: str, x: Expr, y: Expr) -> Expr:
    if op not in REAL_OPS and op != "rdiv":
        raise SpecError("I102", f"{op} needs integers, not {x!r} and {y!r}")
    if x.value is not None and y.value is not None and not (op == "rdiv" and y.value == 0):
        value = x.value / y.value if op == "rdiv" else INTEGER[op](x.value, y.value)  # type: ignore[arg-type]
        return const(int(value)) if op in COMPARISONS else const(Fraction(value))
    truth = op in COMPARISONS
    return node(op, (x, y), None, iv.TRUTH if truth else iv.EVERYTHING, not truth)
