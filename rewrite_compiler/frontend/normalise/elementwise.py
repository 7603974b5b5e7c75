"""Lowerings of elementwise operators."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ...ir.program import Data, Value
from ...ops.op import ShapeError
from ..site.constant_folding import check_quotient
from ..site.context import Unsupported
from ..site.site import Lowering, Site

RECENT_NODES = 8  # nodes looked at

_UNARY = {
    "Relu": "relu",
    "Neg": "neg",
    "Abs": "abs",
    "Exp": "exp",
    "Log": "log",
    "Sqrt": "sqrt",
    "Tanh": "tanh",
    "Erf": "erf",
    "Sigmoid": "sigmoid",
    "Reciprocal": "reciprocal",
}
_BINARY = {"Add": "add", "Sub": "sub", "Mul": "mul"}
_VARIADIC = {"Sum": "add", "Max": "max", "Min": "min"}
_INTEGER = ("relu", "neg", "abs", "add", "sub", "mul", "max", "min", "clip")  # operators that int32 has, too


def _require_numbers(site: Site, op: str) -> None:
    """Check that the operands are floats or, where the operator has them, all int32.

    Raises:
        Unsupported: they are of another type, so the host runs the node.
    """
    if op not in _INTEGER or any(site.type(v).dtype != "int32" for v in site.values()):
        site.require_float()


def _unary(op: str) -> Callable[[Site], list[Value]]:
    def lower(site: Site) -> list[Value]:
        _require_numbers(site, op)
        return [site.apply(op, site.value(0))]

    return lower


def binary(site: Site, op: str, x: Value, y: Value) -> Value:
    """Apply a binary operator, with the constant operand of a commutative one on the right."""
    if op in ("add", "mul") and site.context.data(x) is not None and site.context.data(y) is None:
        x, y = y, x
    return site.apply(op, x, y)


def _binary(op: str) -> Callable[[Site], list[Value]]:
    def lower(site: Site) -> list[Value]:
        _require_numbers(site, op)
        return [binary(site, op, site.value(0), site.value(1))]

    return lower


def _pow(site: Site) -> list[Value]:
    """Lower a square to a product and powers ±1/2 to roots, which rules match."""
    exponent = site.data(1)
    is_scalar = exponent is not None and exponent.size == 1 and exponent.ndim <= site.rank(0)
    power = float(exponent.reshape(-1)[0]) if is_scalar and exponent is not None else 0.0
    if power not in (2.0, 0.5, -0.5):
        return _binary("pow")(site)
    site.require_float_at(0)
    x = site.value(0)
    if power == 2.0:
        return [site.apply("mul", x, x)]
    root = site.apply("sqrt", x)
    return [root if power > 0 else site.apply("reciprocal", root)]


def _div(site: Site) -> list[Value]:
    check_quotient(site, site.data(0), site.data(1))
    dividend = site.data(0)
    if dividend is not None and dividend.size == 1 and dividend.ndim <= site.rank(1) and float(dividend.reshape(-1)[0]) == 1:
        site.require_float()
        return [site.apply("reciprocal", site.value(1))]
    if site.has(1) and (_is_root(site, site.value(1)) or _is_number(site.data(1), site.rank(0))):  # x / √v of norms, x / 8 of attention
        site.require_float()
        return [site.apply("mul", site.value(0), site.apply("reciprocal", site.value(1)))]
    return _binary("div")(site)


def _is_number(divisor: Data | None, rank: int) -> bool:
    """Tell whether a divisor is one constant number whose reciprocal is a normal number."""
    if divisor is None or divisor.size != 1 or divisor.ndim > rank or divisor.dtype.kind != "f":
        return False
    number = abs(float(divisor.reshape(-1)[0]))
    least, most = float(np.finfo(divisor.dtype).tiny), float(np.finfo(divisor.dtype).max)
    return least <= number <= most and least <= 1 / number <= most


def _is_root(site: Site, v: Value) -> bool:
    """Tell whether a value is a square root computed by one of the last nodes."""
    return any(n.op == "sqrt" and v in n.outputs for n in site.context.builder.nodes[-RECENT_NODES:])


def _mod(site: Site) -> list[Value]:
    check_quotient(site, site.data(0), site.data(1))
    raise Unsupported("no core operators express it")


def _variadic(op: str) -> Callable[[Site], list[Value]]:
    def lower(site: Site) -> list[Value]:
        _require_numbers(site, op)
        result, *rest = site.values()
        for v in rest:
            result = binary(site, op, result, v)
        return [result]

    return lower


def _mean(site: Site) -> list[Value]:
    """Lower a mean of operands to their sum times the reciprocal of their number."""
    (total,) = _variadic("add")(site)
    return [site.apply("mul", total, site.number(1 / len(site.values()), total, "share"))]


def _clip(site: Site) -> list[Value]:
    _require_numbers(site, "clip")
    bounds = [site.data(n) for n in (1, 2)]
    is_integer = not site.type(site.value(0)).is_float
    if is_integer or any(site.has(n) and bounds[n - 1] is None for n in (1, 2)):
        return [_clip_between(site)]
    low = site.scalar(1, "bounds", site.get("min", float("-inf")))
    high = site.scalar(2, "bounds", site.get("max", float("inf")))
    if math.isnan(low) or math.isnan(high):
        raise Unsupported(f"its bounds are {low} and {high}")
    return [site.apply("clip", site.value(0), low=low, high=high)]


def _clip_between(site: Site) -> Value:
    """Clamp a value to bounds computed at run time."""
    bound_shape = next((site.shape(n) for n in (1, 2) if site.has(n) and site.shape(n) != ()), None)
    if bound_shape is not None:
        raise ShapeError(f"Bounds of Clip must be single numbers, not a tensor of shape {bound_shape}")
    lower_bounded = site.apply("max", site.value(0), site.value(1)) if site.has(1) else site.value(0)
    return site.apply("min", lower_bounded, site.value(2)) if site.has(2) else lower_bounded


TABLE: dict[str, Lowering] = {
    **{name: _unary(op) for name, op in _UNARY.items()},
    **{name: _binary(op) for name, op in _BINARY.items()},
    **{name: _variadic(op) for name, op in _VARIADIC.items()},
    "Pow": _pow,
    "Div": _div,
    "Mod": _mod,
    "Mean": _mean,
    "Clip": _clip,
}
