"""Real functions in single precision as terms: sums and products in a fixed order, so every reading of them has the same bits.

The exact host and generated C evaluate these terms, each operation rounded to float32; no library's function is called.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cache

from ..arithmetic import maximum, minimum
from ..expr import Expr, call, clamp, const, round_even, select, var
from .polynomials import exp_series, polynomial, scaled, split
from .power import power
from .trigonometric import cosine, sine

LOG2E = const(math.log2(math.e))
LN2_HIGH = const(Fraction(355, 512))  # few enough bits that its product with an exponent is exact
LN2_LOW = const(math.log(2) - 355 / 512)
LARGEST = const(Fraction((1 << 24) - 1) * (1 << 104))
ROOT2 = const(math.sqrt(2))


def _exp(x: Expr) -> Expr:
    """e^x = 2ⁿ · e^r with |r| ≤ ln 2 / 2, the latter by its series."""
    limited = minimum(maximum(x, const(Fraction(-104))), const(Fraction(89)))
    n = clamp(round_even(limited * LOG2E), -150, 129)
    remainder = limited - n * LN2_HIGH - n * LN2_LOW
    return select(x != x, x, scaled(exp_series(remainder), n))


def _log(x: Expr) -> Expr:
    """ln x = e · ln 2 + 2 · artanh(f / (2 + f)) with x = 2ᵉ · (1 + f)."""
    y, e = split(x)
    upper = y > ROOT2
    y, e = select(upper, y * Fraction(1, 2), y), select(upper, e + 1, e)
    f = y - 1
    s = f / (f + 2)
    series = s * polynomial(s * s, [Fraction(2, 2 * k + 1) for k in range(6)])
    value = e * LN2_HIGH + (e * LN2_LOW + series)
    zero = x - x  # not a number for an infinite x, which is answered before
    ends = select(x == 0, const(Fraction(-1)) / (x * x), select(x < 0, zero / zero, value))
    return select(x != x, x, select(x > LARGEST, x, ends))


def _tanh(x: Expr) -> Expr:
    """The series near 0, else 1 − 2 / (e²ˣ + 1)."""
    a = select(x < 0, -x, x)
    near = x * polynomial(x * x, TANH)
    tail = 1 - 2 / (call("exp", minimum(a, const(Fraction(20))) * 2) + 1)
    return select(x != x, x, select(a < Fraction(1, 2), near, select(x < 0, -tail, tail)))


def _erf(x: Expr) -> Expr:
    """The series near 0, else 1 − t · e^(−x² + polynomial in t) with t = 1 / (1 + x/2)."""
    a = select(x < 0, -x, x)
    near = x * polynomial(
        x * x, [Fraction(2 * (-1) ** k, math.factorial(k) * (2 * k + 1)) / Fraction(math.sqrt(math.pi)) for k in range(12)]
    )
    limited = minimum(a, const(Fraction(6)))
    t = 1 / (limited * Fraction(1, 2) + 1)
    tail = 1 - t * call("exp", polynomial(t, ERFC) - limited * limited)
    return select(x != x, x, select(a < 1, near, select(x < 0, -tail, tail)))


# x + …: tanh x = x · Σ c (x²)ᵏ
TANH = tuple(
    Fraction(n, d) for n, d in ((1, 1), (-1, 3), (2, 15), (-17, 315), (62, 2835), (-1382, 155925), (21844, 6081075), (-929569, 638512875))
)
# erfc x = t · exp(−x² + Σ c tᵏ) with a relative error below 1.2e-7 (a published Chebyshev fit)
ERFC = (
    -1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806, 0.27886807, -1.13520398, 1.48851587, -0.82215223, 0.17087277,
)  # fmt: skip
DEFINITIONS: Mapping[str, Callable[..., Expr]] = {
    "exp": _exp, "log": _log, "tanh": _tanh, "erf": _erf, "sin": sine, "cos": cosine, "pow": power,
}  # fmt: skip


@cache
def definition(function: str) -> tuple[tuple[Expr, ...], Expr]:
    """Return the operands of a real function, as variables, and its definition."""
    operands = tuple(var(name, real=True) for name in parameters(function))
    return operands, DEFINITIONS[function](*operands)


def parameters(function: str) -> tuple[str, ...]:
    """Return the names of a real function's operands."""
    return ("x", "y") if function == "pow" else ("x",)
