"""Lowerings of quantised operators to one integer form: products of codes accumulated in int32, then requantisation.

Scales and zero points must be constant; otherwise (or along a blocked axis) the node stays with the host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...ir.program import Data, Value
from ...ops.op import ShapeError
from ...ops.quantised import CODES, code_range, multiplier_of
from ..site.context import QuantizedTensor, Unsupported
from ..site.site import Lowering, Site
from ..site.zero_point import CentredWeights, centred_weights, integer_products
from .conv import window
from .dynamic_zero import exact_weights, is_moving, less_zero_point, sums_inside

CODE_TYPES = ("int8", "uint8")
MAX_TAPS = 1 << 16  # elements of a window whose codes add up in int32
MAX_SHIFT, MAX_SHIFT_DIFFERENCE = 54, 28  # bits by which factors of a sum are shifted, and by which they differ


def scales(site: Site, n: int) -> Data:
    """Return the scales of an operand [1] or [extent of the quantisation axis].

    Raises:
        ShapeError: a scale is not positive and finite.
        Unsupported: the scales are computed at run time, not float32, or by blocks.
    """
    scale = site.required_data(n, "scales")
    if scale.dtype.kind == "f":
        wrong = scale[~(np.isfinite(scale) & (scale > 0))].reshape(-1)
        if wrong.size:
            raise ShapeError(f"Scale of {site.op} must be positive and finite, not {wrong[0]}")
    if scale.dtype != np.float32 or scale.ndim > 1 or site.get("block_size", 0):
        raise Unsupported("its scales are not float32 numbers, one or one for each place of an axis")
    return scale.reshape(-1)


def _zero_points(site: Site, n: int) -> Data:
    """Return zero points as they are stored, 0 where there are none."""
    return np.asarray(site.required_data(n, "zero points")).reshape(-1) if site.has(n) else np.zeros(1, np.uint8)


def zero_point(site: Site, n: int) -> int:
    """Return the one zero point of an operand.

    Raises:
        Unsupported: the zero points differ or are computed at run time.
    """
    points = np.unique(_zero_points(site, n).astype(np.int64))
    if points.size != 1:
        raise Unsupported("its zero points differ")
    return int(points[0])


def _scaled_axis(site: Site, count: int, rank: int) -> int:
    axis = site.axis(1, rank) if count > 1 else 0
    if count > 1 and not 0 <= axis < rank:
        raise ShapeError(f"Axis of {site.op} must be one of {rank} axes, not {site.get('axis', 1)}")
    return axis


def _quantize_linear(site: Site) -> list[Value]:
    s = scales(site, 1)
    site.require_float_at(0)
    if site.type(site.value(0)).dtype != "float32" or site.get("output_dtype", 0):
        raise Unsupported("it does not quantise float32 numbers to the type of its zero point")
    to = site.type(site.value(2)).dtype if site.has(2) else "uint8"
    return [quantized(site, site.value(0), s, zero_point(site, 2), to, _scaled_axis(site, s.size, site.rank(0)))]


def quantized(site: Site, x: Value, s: Data, zero: int, to: str, axis: int = 0) -> Value:
    """Add a quantisation of real numbers to codes.

    Raises:
        Unsupported: there are no codes of type `to`.
    """
    if to not in CODES:
        raise Unsupported(f"it quantises to {to}")
    return site.apply("quantize", x, site.constant(s, "scale"), axis=axis, zero=zero, to=to)


def _dequantize_linear(site: Site) -> list[Value]:
    s, zero, dtype = scales(site, 1), zero_point(site, 2), site.type(site.value(0)).dtype
    if dtype not in (*CODES, "int32") or (dtype == "int32" and zero) or site.get("output_dtype", 0):
        raise Unsupported(f"it dequantises {dtype}")
    return [dequantized(site, site.value(0), s, zero, _scaled_axis(site, s.size, site.rank(0)))]


def dequantized(site: Site, x: Value, s: Data, zero: int, axis: int = 0) -> Value:
    """Add a dequantisation of codes to real numbers."""
    return site.apply("dequantize", x, site.constant(s, "scale"), axis=axis, zero=zero)


def requantized(
    site: Site, sums: Value, s: Data, zero: int, to: str, *, axis: int, bounds: tuple[int, int] | None = None
) -> Value:  # fmt: skip
    """Add a requantisation of int32 accumulators; `s` are the float32 factors, one or one for each place of `axis`.

    Raises:
        Unsupported: a factor is not a positive multiplier · 2⁻ˢʰⁱᶠᵗ in range.
    """
    pairs = [multiplier_of(float(x)) for x in s]
    if not np.all(np.isfinite(s)) or any(m <= 0 or not 0 <= n <= 62 for m, n in pairs):
        raise Unsupported("the scales of its operands and result are too far apart")
    low, high = bounds or code_range(to)
    multiplier, shift = (tuple(x) for x in zip(*pairs, strict=True))
    return site.apply("requantize", sums, multiplier=multiplier, shift=shift, axis=axis, zero=zero, low=low, high=high, to=to)


def _sum_of_codes(site: Site) -> list[Value]:
    """Lower a sum of codes, scaled by the float32 ratios of their scales to the result's, as the host engine does."""
    _check_codes(site, 0, 3)
    x, z, to = site.value(0), site.value(3), site.type(site.value(0)).dtype
    parts = [scales(site, n) for n in (1, 4, 6)]
    if site.shape(0) != site.shape(3) or any(s.size != 1 for s in parts):
        return _elementwise("add", site)
    pairs = [multiplier_of(float(np.float32(s[0] / parts[2][0]))) for s in parts[:2]]
    if not fits_64_bits(pairs):
        return _elementwise("add", site)
    low, high = code_range(to)
    multiplier, shift = (tuple(values) for values in zip(*pairs, strict=True))
    zeros = (zero_point(site, 2), zero_point(site, 5))
    zero = zero_point(site, 7)
    return [site.apply("quantized_add", x, z, multiplier=multiplier, shift=shift, zeros=zeros, zero=zero, low=low, high=high, to=to)]


def fits_64_bits(pairs: Sequence[tuple[int, int]]) -> bool:
    """Tell whether codes times these factors (multiplier, shift) add up within 64 bits."""
    return all(m > 0 and 0 <= n <= MAX_SHIFT for m, n in pairs) and abs(pairs[0][1] - pairs[1][1]) <= MAX_SHIFT_DIFFERENCE


def weights(site: Site, n: int, zero: int, axis: int) -> tuple[Value, int]:
    """Return weights as int8 with zero point 0 where their range allows it, else as they are with their one zero point."""
    data = site.data(n)
    if data is None:
        return site.value(n), zero_point(site, zero)
    points = _zero_points(site, zero)
    _check_points(site, points, data, axis)
    if data.dtype == np.int8 and not points.any():
        return site.value(n), 0
    shifted = centred_weights(data, points, axis)
    if shifted.has_offsets:
        return site.value(n), zero_point(site, zero)
    site.context.charge_folding(data.size)
    return site.constant(shifted.codes, "weights"), 0


def _check_points(site: Site, points: Data, data: Data, axis: int) -> None:
    extent = data.shape[axis] if data.ndim else 1
    if points.size not in (1, extent):
        raise ShapeError(f"Zero points of {site.op} must be 1 or {extent} numbers, not {points.size}")


def record_codes(site: Site, results: Sequence[Value | None]) -> None:
    """Record the codes of a constant that a folded DequantizeLinear gave; weights as int8 where their range allows it."""
    if site.op != "DequantizeLinear" or site.get("block_size", 0) or not results or results[0] is None:
        return
    data, s = site.data(0), site.data(1)
    assert data is not None
    assert s is not None
    axis = site.axis(1, data.ndim) if s.size > 1 else 0
    try:
        codes, zero = weights(site, 0, 2, axis) if str(data.dtype) in CODE_TYPES else (site.value(0), zero_point(site, 2))
    except (Unsupported, ShapeError):
        return
    site.context.dequantized[results[0]] = QuantizedTensor(codes, s.reshape(-1), axis, zero)


def _check_codes(site: Site, *places: int) -> None:
    for n in places:
        if site.type(site.value(n)).dtype not in CODE_TYPES:
            raise Unsupported(f"it works on {site.type(site.value(n)).dtype}")


def _convolution(site: Site, x: int, x_zero: int, w: int, w_zero: int) -> Value:
    _check_codes(site, x, w)
    kernel = site.shape(w)[2:]
    if tuple(site.get("kernel_shape", kernel) or kernel) != kernel or len(kernel) + 2 != site.rank(x):
        raise ShapeError(f"{site.op} needs x[N, C, …] and w[O, C/group, …] of one rank, not {site.shape(x)} and {site.shape(w)}")
    places = window(site, kernel)
    attributes = {**places, "group": int(site.get("group", 1))}
    if not is_moving(site, x_zero):
        return _sums(site, "integer_conv", site.value(x), (w, w_zero, 0), {**attributes, "x_zero": zero_point(site, x_zero)})
    filters = exact_weights(site, w, w_zero, 0)
    sums = _sums(site, "integer_conv", site.value(x), (w, w_zero, 0), {**attributes, "x_zero": 0})
    return less_zero_point(site, sums, x_zero, sums_inside(filters, site.shape(x)[2:], places))


def _sums(site: Site, op: str, x: Value, weight: tuple[int, int, int], attributes: Mapping[str, Any]) -> Value:
    """Add products with an operand of codes, given with its zero points and its axis of filters or rows."""
    n, zero, axis = weight
    data = site.data(n)
    if data is None:
        rows = site.value(n) if axis == 0 else site.transpose(site.value(n), (1, 0))
        return site.apply(op, x, rows, **attributes, w_zero=zero_point(site, zero))
    points = _zero_points(site, zero)
    _check_points(site, points, data, axis)
    site.context.charge_folding(data.size)
    shifted = centred_weights(data, points, axis)
    by_row = shifted if axis == 0 else CentredWeights(shifted.codes.T, shifted.offsets)
    return integer_products(op, x, by_row, attributes, lambda o, v, a: site.apply(o, *v, **a), lambda d: site.constant(d, "weights"))


def _product(site: Site, a: int, a_zero: int, b: int, b_zero: int, *, is_transposed: bool = False) -> Value:
    """Add a product with a matrix of codes."""
    _check_codes(site, a, b)
    if site.rank(b) != 2 or not site.rank(a):
        raise Unsupported("its second operand is not a matrix")
    x, columns = site.value(a), site.shape(b)[0 if is_transposed else 1]
    row = site.reshape(x, (1, *site.shape(a))) if site.rank(a) == 1 else x
    axis, moves = (0 if is_transposed else 1), is_moving(site, a_zero)
    sums_by_row = exact_weights(site, b, b_zero, axis).sum(axis=1 - axis) if moves else np.zeros(0, np.int64)
    product = _sums(site, "integer_dense", row, (b, b_zero, axis), {"x_zero": 0 if moves else zero_point(site, a_zero)})
    if moves:
        product = less_zero_point(site, product, a_zero, sums_by_row)
    return site.reshape(product, (columns,)) if site.rank(a) == 1 else product


def _factor(site: Site, x: int, w: int, y: int) -> Data:
    """Return the float32 requantisation factors, multiplied in the order of the host engine."""
    x_scale, y_scale = scales(site, x), scales(site, y)
    if x_scale.size != 1 or y_scale.size != 1:
        raise Unsupported("its activations have a scale for each place of an axis")
    return np.asarray(x_scale * scales(site, w) / y_scale)


def _qlinear_conv(site: Site) -> list[Value]:
    factor = _factor(site, 1, 4, 6)
    sums = _convolution(site, 0, 2, 3, 5)
    if site.has(8):
        sums = site.apply("bias_add", sums, site.value(8), axis=1)
    return [requantized(site, sums, factor, zero_point(site, 7), site.type(site.value(7)).dtype, axis=1)]


def _qlinear_matmul(site: Site) -> list[Value]:
    factor = _factor(site, 1, 4, 6)
    sums = _product(site, 0, 2, 3, 5)
    shape = site.type(sums).shape
    rows = site.reshape(sums, (1, *shape)) if len(shape) == 1 else sums
    codes = requantized(site, rows, factor, zero_point(site, 7), site.type(site.value(7)).dtype, axis=max(len(shape), 2) - 1)
    return [site.reshape(codes, shape)]


def _qgemm(site: Site) -> list[Value]:
    """Lower A·B + C of codes: with an output scale to codes, else to real numbers."""
    if float(site.get("alpha", 1.0)) != 1.0 or site.flag("transA"):
        raise Unsupported("it scales or transposes its first operand")
    sums = _product(site, 0, 2, 3, 5, is_transposed=bool(site.flag("transB")))
    if site.has(6):
        columns = site.type(sums).shape[1]
        if site.type(site.value(6)).size != columns:
            raise Unsupported("its bias is not one number a column")
        sums = site.apply("bias_add", sums, site.reshape(site.value(6), (columns,)), axis=1)
    if site.has(7):
        return [requantized(site, sums, _factor(site, 1, 4, 7), zero_point(site, 8), site.type(site.value(8)).dtype, axis=1)]
    return [dequantized(site, sums, np.asarray(scales(site, 1) * scales(site, 4)), 0, axis=1)]


def _real(site: Site, n: int) -> Value:
    """Add the real numbers of an operand that is followed by its scale and zero point."""
    s = scales(site, n + 1)
    if s.size != 1:
        raise Unsupported("its activations have a scale for each place of an axis")
    return dequantized(site, site.value(n), s, zero_point(site, n + 2))


def _elementwise(op: str, site: Site) -> list[Value]:
    _check_codes(site, 0, 3)
    y = site.apply(op, _real(site, 0), _real(site, 3))
    return [quantized(site, y, scales(site, 6), zero_point(site, 7), site.type(site.value(0)).dtype)]


def _pool(site: Site, *, is_global: bool) -> list[Value]:
    _check_codes(site, 0)
    if site.get("channels_last", 0):
        raise Unsupported("its channels are last")
    spatial = site.shape(0)[2:]
    kernel = spatial if is_global else tuple(site.get("kernel_shape", ()))
    places = window(site, kernel)
    flags = {"ceil": site.flag("ceil_mode"), "count_include_pad": site.flag("count_include_pad")}
    if has_constant_divisor(places, flags) and int(np.prod(kernel)) <= MAX_TAPS:
        return [_mean_of_codes(site, kernel, places)]
    y = site.apply("average_pool", _real(site, 0), kernel=kernel, **places, **flags)
    return [quantized(site, y, scales(site, 3), zero_point(site, 4), site.type(site.value(0)).dtype)]


def has_constant_divisor(places: Mapping[str, Any], flags: Mapping[str, int]) -> bool:
    """Tell whether all windows of an average pool have the same number of elements, so that means are sums by a constant."""
    return not flags["ceil"] and (not any(places["pads"]) or bool(flags["count_include_pad"]))


def _mean_of_codes(site: Site, kernel: Sequence[int], places: Mapping[str, Any]) -> Value:
    """Add the codes of means: sums by channel, requantised by the ratio of scales over the number of elements."""
    x, y = scales(site, 1), scales(site, 3)
    if x.size != 1 or y.size != 1:
        raise Unsupported("its activations have a scale for each place of an axis")
    channels = site.shape(0)[1]
    ones = site.constant(np.ones((channels, 1, *kernel), np.int8), "ones")
    sums = site.apply("integer_conv", site.value(0), ones, **places, group=channels, x_zero=zero_point(site, 2), w_zero=0)
    factor = np.asarray(x / (y * np.float32(np.prod(kernel))), np.float32)
    return requantized(site, sums, factor, zero_point(site, 4), site.type(site.value(0)).dtype, axis=1)


def _integer_result(lower: Callable[[Site, int, int, int, int], Value], site: Site) -> list[Value]:
    """Lower an operator whose result is the int32 accumulators: x, w and their zero points."""
    return [lower(site, 0, 2, 1, 3)]


def _with_scale_check(lower: Callable[[Site], Sequence[Value | None]], places: Sequence[int]) -> Lowering:
    """Check constant scales at some operands even where the operator stays opaque."""

    def lowered(site: Site) -> Sequence[Value | None]:
        for n in places:
            if site.data(n) is not None:
                scales(site, n)
        return lower(site)

    return lowered


TABLE: dict[str, Lowering] = {
    "QuantizeLinear": _quantize_linear,
    "DequantizeLinear": _dequantize_linear,
    "QLinearConv": _with_scale_check(_qlinear_conv, (1, 4, 6)),
    "QLinearMatMul": _with_scale_check(_qlinear_matmul, (1, 4, 6)),
    "MatMulInteger": partial(_integer_result, _product),
    "ConvInteger": partial(_integer_result, _convolution),
}
# of the domain com.microsoft
CONTRIB: dict[str, Lowering] = {
    "QuantizeLinear": _quantize_linear,
    "DequantizeLinear": _dequantize_linear,
    "QGemm": _qgemm,
    "QLinearAdd": _sum_of_codes,
    "QLinearMul": partial(_elementwise, "mul"),
    "QLinearAveragePool": partial(_pool, is_global=False),
    "QLinearGlobalAveragePool": partial(_pool, is_global=True),
}
