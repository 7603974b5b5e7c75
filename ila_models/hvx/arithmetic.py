"""HVX lane arithmetic: sums, differences, extremes, logic, averages, absolute values, splats and extensions."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

from rewrite_compiler.lang import Expr, absolute, maximum, minimum

from .encoding import Row
from .lanes import Scalar, Vector

Lanes = Callable[[Expr], Expr]


def _binary(f: Callable[[Expr, Expr], Expr]) -> Callable[[Row, Vector, Vector], Lanes]:
    return lambda _, a, b: lambda n: f(a.lane(n), b.lane(n))


def _average(row: Row, a: Vector, b: Vector) -> Lanes:
    return lambda n: (a.lane(n) + b.lane(n) + ("rnd" in row.flags)) >> 1


def _unary(f: Callable[[Expr], Expr]) -> Callable[[Row, Vector], Lanes]:
    return lambda _, a: lambda n: f(a.lane(n))


def _splat(_: Row, a: Scalar) -> Lanes:
    return lambda _: a.value


ARITHMETIC: Mapping[str, Callable[..., Lanes]] = {
    "vadd": _binary(operator.add),
    "vsub": _binary(operator.sub),
    "vmax": _binary(maximum),
    "vmin": _binary(minimum),
    "vand": _binary(operator.and_),
    "vor": _binary(operator.or_),
    "vxor": _binary(operator.xor),
    "vnot": _unary(lambda a: 255 - a),
    "vavg": _average,
    "vabs": _unary(absolute),
    "vabsdiff": _binary(lambda a, b: absolute(a - b)),
    "vsplat": _splat,
    "vsxt": _unary(lambda a: a),
    "vzxt": _unary(lambda a: a),
    "vunpack": _unary(lambda a: a),
}
