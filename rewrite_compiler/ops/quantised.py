"""Quantised operators: real numbers to codes and back, products of codes summed as integers, sums to codes again.

A code q of scale s and zero point z stands for (q − z)·s. The integer products and their sums are exact, up to the 32 bits
that hold them; requantisation is the one place that rounds, and its meaning says how.
"""

from __future__ import annotations

import math
from typing import Any

from ..lang.arithmetic import maximum, minimum, rounded, shift_right
from ..lang.binders import Array, array, number_at
from ..lang.expr import Expr, as_real, lift
from ..lang.intervals import of_width
from .conv import WINDOW, conv
from .linear import dense
from .op import ELEMENTWISE, Shape, ShapeError, op

CODES = {"int8": of_width(8, True), "uint8": of_width(8, False), "int16": of_width(16, True), "uint16": of_width(16, False)}
MANTISSA = 24  # bits of a float32 number, and of a multiplier


def _along(label: str, x: Shape, count: int, axis: int) -> None:
    if not 0 <= axis < max(len(x), 1):
        raise ShapeError(f"{label} must lie along an axis of x; x has {len(x)} axes and the axis is {axis}")
    if count != 1 and count != x[axis]:
        raise ShapeError(f"{label} along axis {axis} of {x} must be 1 or {x[axis]} numbers, not {count}")


def _scaled_shape(x: Shape, s: Shape, *, axis: int, **_: object) -> Shape:
    if len(s) != 1:
        raise ShapeError(f"Scales must be a list, not a tensor of shape {s}")
    _along("Scales", x, s[0], axis)
    return x


def _scale_at(s: Array, i: tuple[Expr, ...], axis: int) -> Expr:
    return s[i[axis]] if s.shape[0] != 1 else s[0]


def clamped(e: Expr, low: int, high: int) -> Expr:
    """Return an integer term clamped to low … high."""
    return minimum(maximum(e, low), high)


def code_range(to: str) -> tuple[int, int]:
    """Return the least and the largest code of an element type.

    Raises:
        ShapeError: the type is none of int8, uint8, int16 and uint16.
    """
    if to not in CODES:
        raise ShapeError(f"Codes must be {', '.join(CODES)}, not {to}")
    low, high = CODES[to]
    return int(low), int(high)  # type: ignore[arg-type]


@op("quantize", "x s", _scaled_shape, attributes="axis:int=0 zero:int=0 to:string", kind=ELEMENTWISE, dtype=":to")
def quantize(x: Array, s: Array, *, axis: int, zero: int, to: str) -> Array:
    """The codes of real numbers: x / s rounded to nearest, ties to even, plus the zero point, limited to the element type."""
    low, high = code_range(to)
    return array(lambda *i: clamped(rounded(x[i] / _scale_at(s, i, axis), "half_even") + zero, low, high), x.shape)


@op("dequantize", "x s", _scaled_shape, attributes="axis:int=0 zero:int=0", kind=ELEMENTWISE, dtype="float32")
def dequantize(x: Array, s: Array, *, axis: int, zero: int) -> Array:
    """The real numbers that codes stand for: (x − zero) · s."""
    return array(lambda *i: as_real(x[i] - zero) * _scale_at(s, i, axis), x.shape)


def _requantized_shape(x: Shape, *, multiplier: Shape, shift: Shape, axis: int, low: int, high: int, to: str, **_: int) -> Shape:
    least, most = code_range(to)
    if not least <= low <= high <= most:
        raise ShapeError(f"Bounds of {to} codes must be ordered and in {least}…{most}, not {low} and {high}")
    _along("Multipliers", x, len(multiplier), axis)
    if len(shift) != len(multiplier) or any(n < 0 for n in shift):
        raise ShapeError(f"Each of {len(multiplier)} multipliers needs a shift of zero or more, not {tuple(shift)}")
    return x


@op(
    "requantize", "x", _requantized_shape, dtype=":to",
    attributes="multiplier:ints shift:ints axis:int=0 zero:int=0 low:int high:int to:string",
)  # fmt: skip
def requantize(x: Array, *, multiplier: Shape, shift: Shape, axis: int, zero: int, low: int, high: int, to: str) -> Array:
    """The codes of sums: x · multiplier / 2^shift rounded to nearest, ties to even, plus the zero point, limited to low … high."""

    def element(*i: Expr) -> Expr:
        place = i[axis] if i else lift(0)
        m, n = (number_at("by_place", values, place) for values in (multiplier, shift))
        return clamped(shift_right(x[i] * m, n, "half_even") + zero, low, high)

    return array(element, x.shape)


def _quantized_add_shape(
    x: Shape, z: Shape, *, multiplier: Shape, shift: Shape, zeros: Shape, low: int, high: int, to: str, **_: int
) -> Shape:
    if x != z:
        raise ShapeError(f"Codes that are added must have one shape, not {x} and {z}")
    for label, values in (("multipliers", multiplier), ("shifts", shift), ("zero points", zeros)):
        if len(values) != 2:
            raise ShapeError(f"Codes that are added need 2 {label}, one for each operand, not {tuple(values)}")
    return _requantized_shape(x, multiplier=multiplier[:1], shift=(min(shift),), axis=0, low=low, high=high, to=to)


@op(
    "quantized_add", "x z", _quantized_add_shape, dtype=":to",
    attributes="multiplier:ints shift:ints zeros:ints zero:int=0 low:int high:int to:string",
)  # fmt: skip
def quantized_add(x: Array, z: Array, *, multiplier: Shape, shift: Shape, zeros: Shape, zero: int, low: int, high: int, to: str) -> Array:
    """The codes of a sum: each operand less its zero point, times multiplier / 2^shift; nearest, ties to even, limited."""
    most = max(shift)
    weight = [m << (most - n) for m, n in zip(multiplier, shift, strict=True)]

    def element(*i: Expr) -> Expr:
        total = (x[i] - zeros[0]) * weight[0] + (z[i] - zeros[1]) * weight[1]
        return clamped(shift_right(total, most, "half_even") + zero, low, high)

    return array(element, x.shape)


def multiplier_of(scale: float) -> tuple[int, int]:
    """Return a float32 number as an integer of 24 bits and a shift: scale = multiplier / 2^shift, exactly."""
    mantissa, exponent = math.frexp(scale)
    return int(mantissa * (1 << MANTISSA)), MANTISSA - exponent


def _centred(x: Array, zero: int) -> Array:
    return array(lambda *i: x[i] - zero, x.shape)


def _conv_shape(x: Shape, w: Shape, *, x_zero: int, w_zero: int, **attributes: Any) -> Shape:
    return conv.shape(x, w, **attributes)  # type: ignore[return-value]


def _conv_macs(x: Shape, w: Shape, *, x_zero: int, w_zero: int, **attributes: Any) -> int:
    assert conv.macs is not None
    return conv.macs(x, w, **attributes)


@op(
    "integer_conv", "x w", _conv_shape, attributes=f"{WINDOW} group:int=1 x_zero:int=0 w_zero:int=0", macs=_conv_macs, dtype="int32"
)  # fmt: skip
def integer_conv(x: Array, w: Array, *, x_zero: int, w_zero: int, **attributes: Any) -> Array:
    """Cross-correlation of codes less their zero points: zeros around the image are zero points."""
    return conv.meaning(_centred(x, x_zero), _centred(w, w_zero), **attributes)  # type: ignore[return-value]


def _dense_shape(x: Shape, w: Shape, **_: int) -> Shape:
    return dense.shape(x, w)  # type: ignore[return-value]


@op(
    "integer_dense", "x w", _dense_shape, attributes="x_zero:int=0 w_zero:int=0", dtype="int32",
    macs=lambda x, w, **_: math.prod(x) * w[0],
)  # fmt: skip
def integer_dense(x: Array, w: Array, *, x_zero: int, w_zero: int) -> Array:
    """Rows of codes times rows of codes, each less its zero point: y[…, n] = Σ_k (x[…, k] − x_zero) · (w[n, k] − w_zero)."""
    return dense.meaning(_centred(x, x_zero), _centred(w, w_zero))  # type: ignore[return-value]
