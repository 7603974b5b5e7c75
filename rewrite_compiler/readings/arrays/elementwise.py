"""Elementwise operators of the arrays reading: numpy on aligned operands, exact in the type of the term's interval."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...lang.expr import Expr
from .labelled_array import LabelledArray, dtype_of
from .scope import Evaluation

Rule = Callable[[Evaluation, Expr], LabelledArray]


def _elementwise(function: Callable[..., Any]) -> Rule:
    def rule(ev: Evaluation, e: Expr) -> LabelledArray:
        operands = [ev.value(a) for a in e.args]
        axes = ev.axes.union_of_ordered(*(x.axes for x in operands))
        data = (
            ev.cast(x.data, e) if x.axes in ((), axes) else ev.axes.align(LabelledArray(ev.cast(x.data, e), x.axes), axes) for x in operands
        )
        return LabelledArray(function(e, *data), axes)

    return rule


def _compare(function: Callable[[Any, Any], Any]) -> Rule:
    def rule(ev: Evaluation, e: Expr) -> LabelledArray:
        a, b = ev.value(e.args[0]), ev.value(e.args[1])
        axes = ev.axes.union_of_ordered(a.axes, b.axes)
        result = function(ev.axes.align(a, axes), ev.axes.align(b, axes))
        return LabelledArray(np.asarray(result).view(np.uint8) if axes else int(result), axes)

    return rule


def _div(e: Expr, x: Any, y: Any) -> Any:
    return x >> y.bit_length() - 1 if _is_power_of_two(y) else x // _divisor(y)


def _mod(e: Expr, x: Any, y: Any) -> Any:
    return x & y - 1 if _is_power_of_two(y) else x % _divisor(y)


def _divisor(y: Any) -> Any:
    """Return y, where it is 0 in a branch that is not taken something else."""
    return np.where(y == 0, 1, y) if isinstance(y, np.ndarray) else y or 1


def _is_power_of_two(y: Any) -> bool:
    return isinstance(y, int) and y > 0 and y & y - 1 == 0


def wrap_to_width(e: Expr, x: Any) -> Any:
    """Return a number or an array modulo 2^n, in the range of the word."""
    bits, signed = e.data
    if isinstance(x, np.ndarray) and signed and bits in (8, 16, 32) and x.dtype != object:
        return x.astype(f"int{bits}").astype(dtype_of(e.interval), copy=False)
    if bits >= 64 and isinstance(x, np.ndarray | np.generic) and x.dtype != object:
        return x  # a signed word of 64 bits already
    half = 1 << bits - 1 if signed else 0
    return ((x + half) & ((1 << bits) - 1)) - half


def _clz(e: Expr, x: Any) -> Any:
    if not isinstance(x, np.ndarray):
        return e.data - int(x).bit_length()
    return (
        e.data - np.frexp(x.astype(np.float64))[1].astype(np.int64)
        if e.data <= 53
        else np.vectorize(lambda v: e.data - int(v).bit_length())(x)
    )


def _shift_amount(n: Any) -> Any:
    """Return an amount that is not negative (in a branch that is not taken it may be) and that a machine word can be shifted by."""
    if not isinstance(n, np.ndarray):
        return max(n, 0)
    return np.maximum(n, 0) if n.dtype == object else np.clip(n, 0, 63)


def _trunc_div(x: Any, y: Any) -> Any:
    """Return x / y toward zero; |x| is not formed, as it may need one more bit than x."""
    divisor = _divisor(y)
    quotient = x // divisor
    return quotient + ((x - quotient * divisor != 0) & ((x < 0) != (divisor < 0)))


def _call(e: Expr, *x: Any) -> Any:
    return FUNCTIONS[e.data](*x)


def _to_real(ev: Evaluation, e: Expr) -> LabelledArray:
    x = ev.value(e.args[0])
    return LabelledArray(x.data.astype(ev.real) if isinstance(x.data, np.ndarray) else float(x.data), x.axes)


def _to_integer(number: Callable[[Any], int], numeric: Callable[[Any], Any]) -> Rule:
    def rule(ev: Evaluation, e: Expr) -> LabelledArray:
        x = ev.value(e.args[0])
        return LabelledArray(numeric(x.data).astype(np.int64) if isinstance(x.data, np.ndarray) else number(x.data), x.axes)

    return rule


def _clamp(ev: Evaluation, e: Expr) -> LabelledArray:
    """Return the minimum or maximum; a clamp, a minimum of a maximum or the reverse, is one pass."""
    first = e.args[0]
    limits = {x.op: x.args[1].value for x in (e, first) if x.op in ("min", "max")}
    low, high = limits.get("max"), limits.get("min")
    if not e.real and low is not None and high is not None and low <= high and first not in ev.scope.terms:
        x = ev.value(first.args[0])
        if x.axes:
            return LabelledArray(np.clip(ev.cast(x.data, first), int(low), int(high)), x.axes)
    return (_MINIMUM if e.op == "min" else _MAXIMUM)(ev, e)


def _pythonic(operation: Callable[[Any, Any], Any], numeric: Callable[[Any, Any], Any]) -> Callable[[Expr, Any, Any], Any]:
    """Return `numeric` for arrays and the exact Python `operation` for two numbers."""

    def apply(e: Expr, x: Any, y: Any) -> Any:
        if isinstance(x, np.ndarray) or isinstance(y, np.ndarray):
            return numeric(x, y)
        return operation(x, y)

    return apply


_MINIMUM = _elementwise(_pythonic(min, np.minimum))
_MAXIMUM = _elementwise(_pythonic(max, np.maximum))
_erf = np.frompyfunc(math.erf, 1, 1)
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "tanh": np.tanh,
    "sin": np.sin,
    "cos": np.cos,
    "pow": np.power,
    "erf": lambda x: np.asarray(_erf(x)).astype(x.dtype) if isinstance(x, np.ndarray) else math.erf(x),
}
ELEMENTWISE: dict[str, Rule] = {
    "real": _to_real,
    "floor": _to_integer(math.floor, np.floor),
    "rint": _to_integer(round, np.rint),
    "add": _elementwise(lambda e, x, y: x + y),
    "sub": _elementwise(lambda e, x, y: x - y),
    "mul": _elementwise(lambda e, x, y: x * y),
    "neg": _elementwise(lambda e, x: -x),
    "not": _elementwise(lambda e, x: 1 - x),
    "div": _elementwise(_div),
    "mod": _elementwise(_mod),
    "rdiv": _elementwise(lambda e, x, y: np.divide(x, y)),
    "tdiv": _elementwise(lambda e, x, y: _trunc_div(x, y)),
    "tmod": _elementwise(lambda e, x, y: x - y * _trunc_div(x, y)),
    "shl": _elementwise(lambda e, x, y: x << _shift_amount(y)),
    "shr": _elementwise(lambda e, x, y: x >> _shift_amount(y)),
    "min": _clamp,
    "max": _clamp,
    "bitand": _elementwise(lambda e, x, y: x & y),
    "bitor": _elementwise(lambda e, x, y: x | y),
    "bitxor": _elementwise(lambda e, x, y: x ^ y),
    "eq": _compare(lambda x, y: x == y),
    "ne": _compare(lambda x, y: x != y),
    "lt": _compare(lambda x, y: x < y),
    "le": _compare(lambda x, y: x <= y),
    "extract": _elementwise(lambda e, x: (x >> e.data[0]) & ((1 << e.data[1]) - 1)),
    "wrap": _elementwise(wrap_to_width),
    "clz": _elementwise(_clz),
    "call": _elementwise(_call),
}
