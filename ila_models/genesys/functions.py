"""GeneSys element functions: what the SIMD array makes of two lanes, by opcode and function.

Sums, extremes, logic and RELU are as published programs show them. Fixed-point products and quotients, the sigmoid and the
hyperbolic tangent follow the reference functions of the compiler's tests; casts keep the low bits. No published program pins
these. Functions without a published definition are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from rewrite_compiler.lang import Expr, bit_not, clamp, lift, maximum, minimum, select, shift_right, trunc_div, wrap

WIDTH = 32
AMOUNTS = 32
ALU, CALCULUS, COMPARISON, CAST = range(4)
# where a piece of the sigmoid begins, the shift of |x|, and what is added for positive x (1 less that for negative x)
SIGMOID = ((Fraction(5), None, Fraction(1)), (Fraction(19, 8), 5, Fraction(27, 32)), (Fraction(1), 3, Fraction(5, 8)),
           (Fraction(0), 2, Fraction(1, 2)))  # fmt: skip


@dataclass(frozen=True, eq=False)
class Lane:
    """One lane of a body: both sources, the old destination, the flag of the last comparison, and the fraction bits."""

    a: Expr
    b: Expr
    old: Expr
    flag: Expr
    fraction: Expr


Function = Callable[[Lane], Expr]


def _product(x: Lane) -> Expr:
    return (x.a * x.b) >> x.fraction


def _quotient(x: Lane) -> Expr:
    quotient = trunc_div(x.a << x.fraction, maximum(maximum(x.b, -x.b), 1))
    return select(x.b == 0, 0, select(x.b < 0, -quotient, quotient))


def _fixed(value: Fraction, fraction: Expr) -> Expr:
    """Return a multiple of 1/32 with so many fraction bits, rounded down."""
    return (lift(int(value * 32)) << fraction) >> 5


def _sigmoid(x: Lane) -> Expr:
    """The line through the pieces; negative arguments mirror it at one half."""
    size = maximum(x.a, -x.a)
    value = lift(0)
    for begin, shift, offset in reversed(SIGMOID):
        piece = _fixed(offset, x.fraction) + (0 if shift is None else size >> shift)
        value = select(size >= _fixed(begin, x.fraction), piece, value)
    return select(x.a < 0, _fixed(Fraction(1), x.fraction) - value, value)


def _tanh(x: Lane) -> Expr:
    one = _fixed(Fraction(1), x.fraction)
    return minimum(maximum(x.a, -one), one)


def _signed_word(bits: int) -> Function:
    return lambda x: wrap(x.a, bits, True)


def _floor(x: Lane) -> Expr:
    return (x.a >> x.fraction) << x.fraction


def _ceil(x: Lane) -> Expr:
    return -((-x.a >> x.fraction) << x.fraction)


def _amount(x: Lane) -> Expr:
    return clamp(x.b, 0, AMOUNTS - 1)


# opcode → function → its name and, where it is known, what it gives
FUNCTIONS: Mapping[int, Mapping[int, tuple[str, Function | None]]] = {
    ALU: {
        0: ("add", lambda x: x.a + x.b),
        1: ("sub", lambda x: x.a - x.b),
        2: ("mul", _product),
        3: ("macc", lambda x: x.old + _product(x)),
        4: ("div", _quotient),
        5: ("max", lambda x: maximum(x.a, x.b)),
        6: ("min", lambda x: minimum(x.a, x.b)),
        7: ("rshift", lambda x: shift_right(x.a, _amount(x))),
        8: ("lshift", lambda x: x.a << _amount(x)),
        9: ("move", lambda x: x.a),
        10: ("cond_move_true", lambda x: select(x.flag == 1, x.a, x.old)),
        11: ("cond_move_false", lambda x: select(x.flag == 0, x.a, x.old)),
        12: ("not", lambda x: bit_not(wrap(x.a, WIDTH, False), WIDTH)),
        13: ("and", lambda x: x.a & x.b),
        14: ("or", lambda x: x.a | x.b),
    },
    COMPARISON: {
        0: ("equal", lambda x: lift(x.a == x.b)),
        1: ("neq", lambda x: lift(x.a != x.b)),
        2: ("gt", lambda x: x.a > x.b),
        3: ("gte", lambda x: x.a >= x.b),
        4: ("lt", lambda x: x.a < x.b),
        5: ("lte", lambda x: x.a <= x.b),
    },
    CAST: {
        0: ("cast_32_16", _signed_word(16)),
        1: ("cast_32_8", _signed_word(8)),
        2: ("cast_32_4", _signed_word(4)),
        3: ("cast_16_32", _signed_word(16)),
        4: ("cast_8_32", _signed_word(8)),
        5: ("cast_4_32", _signed_word(4)),
        8: ("floor", _floor),
        9: ("ceil", _ceil),
    },
}
_KNOWN: Mapping[str, Function] = {
    "relu": lambda x: maximum(x.a, 0),
    "leaky_relu": lambda x: select(x.a < 0, _product(x), x.a),
    "abs": lambda x: maximum(x.a, -x.a),
    "sign": lambda x: lift(x.a > 0) - lift(x.a < 0),
    "sigmoid": _sigmoid,
    "tanh": _tanh,
}
_CALCULUS = {
    "xls": ("relu", "leaky_relu", "sigmoid", "tanh", "exp", "ln", "sqrt", "inv_sqrt", "log2"),
    "csr": ("relu", "leaky_relu", "abs", "sign", "sigmoid", "tanh", "exp", "ln", "sqrt", "inv_sqrt", "log2"),
}


def functions(calculus: str) -> Mapping[int, Mapping[int, tuple[str, Function | None]]]:
    """Return the functions by opcode and number, in one of the two published numberings of the calculus."""
    return {**FUNCTIONS, CALCULUS: {n: (name, _KNOWN.get(name)) for n, name in enumerate(_CALCULUS[calculus])}}
