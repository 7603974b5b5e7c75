"""Zero points of activations that are computed at run time, as dynamic quantisation writes them.

Σ (x − z)·w = Σ x·w − z·Σ w: the product is of the codes as they are, and the zero point multiplies sums of weights, which are
known at compile time. All of it is exact in int32. Around an image there are zero points, which count as nothing, so that
the weights of a window are added up over the taps that lie inside of the image.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...ir.program import Data, OpaqueOp, Value
from ...ir.types import TensorType
from ..graph.opaque import canonical_node, key_of
from ..site.context import Unsupported
from ..site.site import Site


def is_moving(site: Site, n: int) -> bool:
    """Tell whether a zero point is computed at run time and is one number."""
    return site.has(n) and site.data(n) is None and site.type(site.value(n)).size == 1


def exact_weights(site: Site, n: int, zero: int, axis: int) -> Data:
    """Return constant weights less their zero points, which are one number or one for each place of an axis, in int64.

    Raises:
        Unsupported: weights or zero points are computed at run time.
    """
    data = site.required_data(n, "weights").astype(np.int64)
    points = np.asarray(site.required_data(zero, "zero points")).astype(np.int64).reshape(-1) if site.has(zero) else np.zeros(1, np.int64)
    shape = [-1 if a == axis else 1 for a in range(data.ndim)] if points.size > 1 else [1] * data.ndim
    if points.size not in (1, data.shape[axis]):
        raise Unsupported("its zero points are not one number or one for each filter or row")
    return np.asarray(data - points.reshape(shape))


def sums_inside(filters: Data, extents: Sequence[int], places: Mapping[str, Any]) -> Data:
    """Return for filters [O, C, taps …] the sums of weights [1, O, results …] that fall on elements of an image of these extents."""
    sums = filters.sum(axis=1)
    rank = len(extents)
    for axis, extent in enumerate(extents):
        taps = filters.shape[2 + axis]
        stride, dilation = places["strides"][axis], places["dilations"][axis]
        before, after = places["pads"][axis], places["pads"][axis + rank]
        count = (extent + before + after - (taps - 1) * dilation - 1) // stride + 1
        element = np.arange(count)[None, :] * stride + np.arange(taps)[:, None] * dilation - before
        inside = ((element >= 0) & (element < extent)).astype(np.int64)
        sums = np.tensordot(sums, inside, axes=([1], [0]))  # the axis of taps leaves in front, that of results comes last
    if all((sums[..., :1] == sums).all() for sums in (np.moveaxis(sums, a, -1) for a in range(1, rank + 1))):
        sums = sums[(slice(None), *(slice(0, 1),) * rank)]
    return np.asarray(sums[None])


def less_zero_point(site: Site, products: Value, n: int, sums: Data) -> Value:
    """Subtract the zero point times sums of weights from int32 products.

    Raises:
        Unsupported: a sum of weights does not fit int32.
    """
    if np.abs(sums).max(initial=0) >= 1 << 31:
        raise Unsupported("sums of its weights do not fit int32")
    zero = widened(site, site.reshape(site.value(n), ()))
    return site.apply("add", products, site.apply("mul", zero, site.constant((-sums).astype(np.int32), "weight_sums")))


def widened(site: Site, codes: Value) -> Value:
    """Return codes as int32: a conversion, which the host makes."""
    from onnx import TensorProto, helper

    payload = canonical_node(helper.make_node("Cast", ["codes"], ["wide"], to=TensorProto.INT32))
    op = OpaqueOp("Cast", "", payload.SerializeToString(deterministic=True), "it casts codes to int32", site.context.opset, 0)
    key = key_of(op, len(site.context.builder.nodes))
    (wide,) = site.context.opaque(op, key, [codes], [TensorType(site.type(codes).shape, "int32")], (site.origin,), f"{site.name}_zero")
    return wide
