"""Constant folding: source operators on constant operands evaluated in numpy.

Every function may raise Unsupported; results that would exceed the folding budget are refused before they are computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...ir.program import Data
from ...ops.op import ShapeError
from .context import Unsupported
from .site import Site

EXACT = 2.0**53  # integers up to here are float64 as they stand
Fold = Callable[[Site, Sequence[Data]], Sequence[Data]]


def _elementwise(function: Callable[..., Any]) -> Fold:
    def fold(site: Site, x: Sequence[Data]) -> Sequence[Data]:
        site.context.charge_folding(math.prod(np.broadcast_shapes(*(a.shape for a in x))) * 8)
        return [np.asarray(function(*x))]

    return fold


def check_quotient(site: Site, a: Data | None, b: Data | None) -> None:
    """Check a division of integers; onnxruntime's process ends on the smallest integer divided by −1.

    Raises:
        ShapeError: a constant divisor is 0, or the quotient overflows.
    """
    if b is None or b.dtype.kind not in "iu":
        return
    if not b.all():
        raise ShapeError(f"{site.op} must not divide integers by a constant 0")
    if a is not None and a.dtype.kind == "i" and _hold_together(a == np.iinfo(a.dtype).min, b == -1):
        raise ShapeError(f"{site.op} must not divide the smallest {a.dtype} by -1: no {a.dtype} is the result")


def _hold_together(a: Data, b: Data) -> bool:
    """Tell whether two conditions hold at one position; operands that do not broadcast are refused elsewhere."""
    try:
        return bool(np.any(a & b))
    except ValueError:
        return False


def _quotient(a: Data, b: Data) -> Data:
    if not np.issubdtype(a.dtype, np.integer):
        return a / b
    down = a // b
    return np.asarray(down + ((down < 0) & (down * b != a))).astype(a.dtype)


def _checked_quotient(site: Site, x: Sequence[Data]) -> Sequence[Data]:
    check_quotient(site, *x)
    return _keeping_type(_quotient)(site, x)


def _power(site: Site, x: Sequence[Data]) -> Sequence[Data]:
    if x[0].dtype.kind in "iu" and np.any(np.abs(np.power(*(a.astype(np.float64) for a in x))) > EXACT):
        raise Unsupported("its power of integers is beyond 2⁵³, where hosts differ")
    return _keeping_type(np.power)(site, x)


def _keeping_type(function: Callable[..., Any]) -> Fold:
    def typed(*x: Data) -> Data:
        return np.asarray(function(*x)).astype(x[0].dtype)

    return _elementwise(typed)


def _variadic(function: Callable[[Data, Data], Data]) -> Fold:
    def over_all(*x: Data) -> Data:
        result = x[0]
        for operand in x[1:]:
            result = np.asarray(function(result, operand))
        return result

    return _elementwise(over_all)


def _modulo(site: Site, x: Sequence[Data]) -> Sequence[Data]:
    check_quotient(site, *x)
    function = np.fmod if site.flag("fmod") else np.mod
    return _keeping_type(function)(site, x)


def _cast(site: Site, x: Sequence[Data]) -> Sequence[Data]:
    from ..file.tensors import DTYPES
    from .site import NATIVE

    target = DTYPES.get(int(site.get("to", 0)), "")
    if target not in NATIVE or str(x[0].dtype) not in NATIVE:
        raise Unsupported(f"it casts {x[0].dtype} to {target or 'an unknown type'}")
    site.context.charge_folding(x[0].size * 8)
    return [x[0].astype(target)]


def _concat(site: Site, x: Sequence[Data]) -> Sequence[Data]:
    site.context.charge_folding(sum(a.nbytes for a in x))
    return [np.concatenate(list(x), axis=int(site.get("axis", 0)))]


def _gather(site: Site, x: Sequence[Data]) -> Sequence[Data]:
    data, indices = x
    axis = int(site.get("axis", 0))
    if indices.size and (indices.min() < -data.shape[axis] or indices.max() >= data.shape[axis]):
        raise out_of_range(indices, data.shape[axis], site)
    site.context.charge_folding(indices.size * data.nbytes // max(1, data.shape[axis]))
    return [np.take(data, indices, axis=axis)]


def out_of_range(indices: Data, extent: int, site: Site) -> Exception:
    """Return the refusal of a constant index outside its axis."""
    from ...errors import InputError

    wrong = int(indices[(indices < -extent) | (indices >= extent)].reshape(-1)[0])
    return InputError("F131", f"Index of {site.op} must be in {-extent}…{extent - 1}, not {wrong}", place=site.place)


def _axis(site: Site, default: int, rank: int) -> int:
    axis = site.axis(default, rank)
    if not 0 <= axis < rank:
        raise IndexError(axis)
    return axis


def _gather_elements(site: Site, x: Sequence[Data]) -> Sequence[Data]:
    data, indices = x
    axis = _axis(site, 0, data.ndim)
    extent = data.shape[axis]
    if indices.size and (indices.min() < -extent or indices.max() >= extent):
        raise out_of_range(indices, extent, site)
    site.context.charge_folding(indices.size * data.itemsize)
    grid = list(np.ogrid[tuple(slice(n) for n in indices.shape)])
    grid[axis] = indices
    return [data[tuple(grid)]]


def _gather_nd(site: Site, x: Sequence[Data]) -> Sequence[Data]:
    data, indices = x
    if site.get("batch_dims", 0) or not indices.ndim:
        raise Unsupported("it gathers by batch")
    depth = indices.shape[-1]
    for axis in range(depth):
        column, extent = indices[..., axis], data.shape[axis]
        if column.size and (column.min() < -extent or column.max() >= extent):
            raise out_of_range(column, extent, site)
    site.context.charge_folding(indices.size // max(1, depth) * math.prod(data.shape[depth:]) * data.itemsize)
    return [data[tuple(np.moveaxis(indices, -1, 0))]]


def _constant_of_shape(site: Site, x: Sequence[Data]) -> Sequence[Data]:
    shape = tuple(int(n) for n in x[0])
    value = site.attributes.get("value")
    fill: Data = np.zeros(1, np.float32)
    if value is not None:
        fill, _ = site.context.tensor(value, "the value of ConstantOfShape")
    site.context.charge_folding(math.prod(shape) * fill.itemsize)
    return [np.broadcast_to(fill.reshape(()), shape)]


def _expand(site: Site, x: Sequence[Data]) -> Sequence[Data]:
    shape = np.broadcast_shapes(x[0].shape, tuple(int(n) for n in x[1]))
    site.context.charge_folding(math.prod(shape) * x[0].itemsize)
    return [np.broadcast_to(x[0], shape)]


def _tile(site: Site, x: Sequence[Data]) -> Sequence[Data]:
    repeats = [int(n) for n in x[1]]
    site.context.charge_folding(x[0].nbytes * math.prod(repeats))
    return [np.tile(x[0], repeats)]


def _range(site: Site, x: Sequence[Data]) -> Sequence[Data]:
    start, limit, delta = (a.reshape(())[()] for a in x)
    if not delta:
        raise ShapeError("Step of Range must not be 0")
    count = max(0, math.ceil((float(limit) - float(start)) / float(delta)))
    site.context.charge_folding(count * x[0].itemsize)
    return [(start + np.arange(count) * delta).astype(x[0].dtype)]


def _where(site: Site, x: Sequence[Data]) -> Sequence[Data]:
    return _elementwise(np.where)(site, x)


def _reduction(function: Callable[..., Any]) -> Fold:
    def fold(site: Site, x: Sequence[Data]) -> Sequence[Data]:
        axes = tuple(int(n) for n in x[1]) if len(x) > 1 else tuple(site.get("axes", ()))
        if not axes and site.flag("noop_with_empty_axes"):
            return [x[0]]
        if x[0].size == 0:
            raise Unsupported("it reduces an empty constant")
        site.context.charge_folding(x[0].nbytes)
        return [np.asarray(function(x[0], axis=axes or None, keepdims=bool(site.flag("keepdims", 1)))).astype(x[0].dtype)]

    return fold


def _cumulative_sum(site: Site, x: Sequence[Data]) -> Sequence[Data]:
    if site.flag("exclusive") or site.flag("reverse"):
        raise Unsupported("it is an exclusive or reverse running sum")
    site.context.charge_folding(x[0].nbytes)
    return [np.cumsum(x[0], axis=int(x[1].reshape(())), dtype=x[0].dtype)]


def _non_zero(site: Site, x: Sequence[Data]) -> Sequence[Data]:
    site.context.charge_folding(x[0].size * max(1, x[0].ndim) * 8)
    return [np.asarray(np.nonzero(np.atleast_1d(x[0])), np.int64).reshape(x[0].ndim, -1)]


def _scatter_nd(site: Site, x: Sequence[Data]) -> Sequence[Data]:
    data, indices, updates = x
    if site.get("reduction", "none") != "none":
        raise Unsupported("it combines what it scatters")
    site.context.charge_folding(data.nbytes)
    result = data.copy()
    result[tuple(np.moveaxis(indices, -1, 0))] = updates
    return [result]


def _triangle(site: Site, x: Sequence[Data]) -> Sequence[Data]:
    offset = int(x[1].reshape(())) if len(x) > 1 else 0
    site.context.charge_folding(x[0].nbytes)
    return [np.triu(x[0], offset) if site.flag("upper", 1) else np.tril(x[0], offset)]


def _pad(site: Site, x: Sequence[Data]) -> Sequence[Data]:
    if len(x) > 3 or site.get("mode", "constant") != "constant":
        raise Unsupported("its padding is not constant on all axes")
    data, pads = x[0], [int(n) for n in x[1]]
    if len(pads) != 2 * data.ndim or any(p < 0 for p in pads):
        raise Unsupported("its pads are negative or not two an axis")
    widths = list(zip(pads[: data.ndim], pads[data.ndim :], strict=True))
    site.context.charge_folding(math.prod(n + a + b for n, (a, b) in zip(data.shape, widths, strict=True)) * data.itemsize)
    fill = x[2].reshape(())[()] if len(x) > 2 else 0
    return [np.pad(data, widths, constant_values=fill)]


def _dequantize(site: Site, x: Sequence[Data]) -> Sequence[Data]:
    if site.get("block_size", 0) or x[1].dtype != np.float32:
        raise Unsupported("it is dequantised by blocks")
    axis = _axis(site, 1, x[0].ndim) if x[1].size > 1 else -1
    shape = [-1 if a == axis else 1 for a in range(x[0].ndim)]
    site.context.charge_folding(x[0].size * 4)
    zero = x[2].reshape(shape).astype(np.int32) if len(x) > 2 else 0
    return [((x[0].astype(np.int32) - zero).astype(np.float32) * x[1].reshape(shape)).astype(np.float32)]


FOLDS: dict[str, Fold] = {
    "Add": _keeping_type(np.add),
    "Sub": _keeping_type(np.subtract),
    "Mul": _keeping_type(np.multiply),
    "Div": _checked_quotient,
    "Mod": _modulo,
    "Pow": _power,
    "Neg": _keeping_type(np.negative),
    "Abs": _keeping_type(np.absolute),
    "Sign": _keeping_type(np.sign),
    "Floor": _keeping_type(np.floor),
    "Ceil": _keeping_type(np.ceil),
    "Round": _keeping_type(np.rint),
    "Sqrt": _keeping_type(np.sqrt),
    "Exp": _keeping_type(np.exp),
    "Log": _keeping_type(np.log),
    "Reciprocal": _keeping_type(np.reciprocal),
    "Max": _variadic(np.maximum),
    "Min": _variadic(np.minimum),
    "Sum": _variadic(np.add),
    "And": _elementwise(np.logical_and),
    "Or": _elementwise(np.logical_or),
    "Xor": _elementwise(np.logical_xor),
    "Not": _elementwise(np.logical_not),
    "Equal": _elementwise(np.equal),
    "Less": _elementwise(np.less),
    "LessOrEqual": _elementwise(np.less_equal),
    "Greater": _elementwise(np.greater),
    "GreaterOrEqual": _elementwise(np.greater_equal),
    "IsNaN": _elementwise(np.isnan),
    "Where": _where,
    "Cast": _cast,
    "Concat": _concat,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "ScatterND": _scatter_nd,
    "ConstantOfShape": _constant_of_shape,
    "Expand": _expand,
    "Tile": _tile,
    "Range": _range,
    "Pad": _pad,
    "Trilu": _triangle,
    "CumSum": _cumulative_sum,
    "NonZero": _non_zero,
    "ReduceSum": _reduction(np.sum),
    "ReduceProd": _reduction(np.prod),
    "ReduceMax": _reduction(np.max),
    "ReduceMin": _reduction(np.min),
    "DequantizeLinear": _dequantize,
}

# what onnxruntime's quantiser writes for codes of 4 and 16 bits in operator sets that have none
CONTRIB_CODES = ("com.microsoft", "DequantizeLinear")


def fold(site: Site) -> list[Data] | None:
    """Return the results of a node whose operands are all constant, or None when it is not folded."""
    folding = FOLDS.get(site.op) if site.domain == "" or (site.domain, site.op) == CONTRIB_CODES else None
    if folding is None or not site.inputs or site.inputs[0] is None:
        return None
    operands = [site.context.data(v) for v in site.inputs if v is not None]
    if any(x is None for x in operands) or (None in site.inputs):
        return None
    try:
        with np.errstate(all="ignore"):
            return [np.asarray(a) for a in folding(site, operands)]  # type: ignore[arg-type]
    except Unsupported:
        return None
    except (ValueError, LookupError, TypeError, ArithmeticError):  # operands that do not fit: the lowering says so with a sentence
        return None
