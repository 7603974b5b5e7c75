"""Zero-point centring: products with weights of any zero point as products with int8 weights plus a multiple of a sum.

Σ (x − xz)·(w − wz) = Σ (x − xz)·(w − m) + (m − wz)·Σ (x − xz), with m the middle of the weights' type: equal also modulo 2³².
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...ir.program import Data, Value
from ...ops.op import AttributeValue

MIDDLES = {"int8": 0, "uint8": 128}
Apply = Callable[[str, Sequence[Value], Mapping[str, AttributeValue]], Value]


@dataclass(frozen=True)
class CentredWeights:
    """Weights as int8 with zero point 0, and the offset m − wz of each row or filter: one number, or one for each."""

    codes: Data
    offsets: Data

    @property
    def has_offsets(self) -> bool:
        """Tell whether the offsets need the sums of the other operand's codes."""
        return bool(self.offsets.any())


def centred_weights(data: Data, points: Data, axis: int = 0) -> CentredWeights:
    """Return weights minus their zero points, which are one number or one for each place of an axis."""
    shape = [-1 if a == axis else 1 for a in range(data.ndim)] if points.size > 1 else [1] * data.ndim
    exact = data.astype(np.int16) - points.astype(np.int16).reshape(shape)
    if not exact.size or (exact.min() >= -128 and exact.max() <= 127):
        return CentredWeights(exact.astype(np.int8), np.zeros(1, np.int32))
    middle = MIDDLES[str(data.dtype)]
    return CentredWeights((data.astype(np.int16) - middle).astype(np.int8), middle - points.astype(np.int32).reshape(-1))


def integer_products(
    op: str, x: Value, weights: CentredWeights, attributes: Mapping[str, AttributeValue], apply: Apply, constant: Callable[[Data], Value]
) -> Value:  # fmt: skip
    """Add the integer products of codes with centred weights, filters or rows first, and return the int32 accumulators."""
    products = apply(op, [x, constant(weights.codes)], {**attributes, "w_zero": 0})
    if not weights.has_offsets:
        return products
    rows, *item = weights.codes.shape
    ones = np.ones((rows if attributes.get("group", 1) != 1 else 1, *item), np.int8)
    count = apply(op, [x, constant(ones)], {**attributes, "w_zero": 0})
    by_row = weights.offsets.reshape(-1, *[1] * (len(item) - 1))
    return apply("add", [products, apply("mul", [count, constant(by_row)], {})], {})
