"""Elementwise operators, with numpy broadcasting along trailing axes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from fractions import Fraction

from ..lang.arithmetic import absolute, maximum, minimum
from ..lang.binders import Array, array
from ..lang.expr import Expr, call, const, lift, select
from .op import ELEMENTWISE, Op, Shape, ShapeError, op


def broadcast(*shapes: Shape) -> Shape:
    """Return the common shape of operands that broadcast along trailing axes.

    Raises:
        ShapeError: two extents of an axis differ and none of them is 1.
    """
    result = []
    for extents in itertools.zip_longest(*(reversed(s) for s in shapes), fillvalue=1):
        wide = {n for n in extents if n != 1}
        if len(wide) > 1:
            raise ShapeError(
                f"Operands of shapes {' and '.join(map(str, shapes))} do not broadcast: {sorted(wide)[0]} against {sorted(wide)[1]}"
            )
        result.append(wide.pop() if wide else 1)
    return tuple(reversed(result))


def broadcast_read(x: Array, index: Sequence[Expr]) -> Expr:
    """Return the element of `x` that stands at `index` of the broadcast result."""
    tail = index[len(index) - x.rank :]
    return x[tuple(lift(0) if n == 1 else i for i, n in zip(tail, x.shape, strict=True))]


def _same(x: Shape, **_: object) -> Shape:
    return x


def _unary(name: str, function: Callable[[Expr], Expr], doc: str) -> Op:
    def meaning(x: Array) -> Array:
        return array(lambda *i: function(x[i]), x.shape)

    meaning.__doc__ = doc
    return op(name, "x", _same, kind=ELEMENTWISE)(meaning)


def _binary(name: str, function: Callable[[Expr, Expr], Expr], doc: str) -> Op:
    def meaning(x: Array, y: Array) -> Array:
        shape = broadcast(x.shape, y.shape)  # type: ignore[arg-type]
        return array(lambda *i: function(broadcast_read(x, i), broadcast_read(y, i)), shape)

    meaning.__doc__ = doc
    return op(name, "x y", broadcast, kind=ELEMENTWISE)(meaning)


relu = _unary("relu", lambda x: maximum(x, 0), "max(x, 0).")
neg = _unary("neg", lambda x: -x, "−x.")
abs_ = _unary("abs", lambda x: select(x < 0, -x, x) if x.real else absolute(x), "|x|.")
exp = _unary("exp", lambda x: call("exp", x), "eˣ.")
log = _unary("log", lambda x: call("log", x), "ln x.")
sqrt = _unary("sqrt", lambda x: call("sqrt", x), "√x.")
tanh = _unary("tanh", lambda x: call("tanh", x), "tanh x.")
erf = _unary("erf", lambda x: call("erf", x), "The error function of x.")
sigmoid = _unary("sigmoid", lambda x: 1 / (1 + call("exp", -x)), "1 / (1 + e⁻ˣ).")
reciprocal = _unary("reciprocal", lambda x: 1 / x, "1 / x.")

add = _binary("add", lambda x, y: x + y, "x + y.")
sub = _binary("sub", lambda x, y: x - y, "x − y.")
mul = _binary("mul", lambda x, y: x * y, "x · y.")
div = _binary("div", lambda x, y: x / y if x.real else x // y, "x / y; integers round down.")
pow_ = _binary("pow", lambda x, y: call("pow", x, y), "x to the power y.")
max_ = _binary("max", maximum, "The larger of x and y.")
min_ = _binary("min", minimum, "The smaller of x and y.")


@op("clip", "x", _same, attributes="low:float high:float", kind=ELEMENTWISE)
def clip(x: Array, *, low: float, high: float) -> Array:
    """X limited to low … high; an infinite bound is none."""

    def limited(e: Expr) -> Expr:
        e = e if low == float("-inf") else maximum(e, _exact(low, e))
        return e if high == float("inf") else minimum(e, _exact(high, e))

    return array(lambda *i: limited(x[i]), x.shape)


def _exact(bound: float, e: Expr) -> Expr:
    return const(Fraction(bound)) if e.real else lift(int(bound))
