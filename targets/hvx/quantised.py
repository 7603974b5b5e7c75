"""HVX's products of quantised models: codes of either sign by signed weights, as int32 sums.

A zero point leaves out the same number for each output, zero · Σ w, from which sums start. The codes of sums are `requantise`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from rewrite_compiler import IsConstant, Tensor, Where
from rewrite_compiler import ops as o
from rewrite_compiler.ila_models.hvx.state import VECTOR
from rewrite_compiler.lang import Array, Expr, array, reduce_sum, signed
from rewrite_compiler.lang import Int as Integers
from rewrite_compiler.ops import HasType
from rewrite_compiler.rewrite import Int
from rewrite_compiler.target import Cost, Limit, Resources, StreamedDevice, row_sums, widen

from .base import Codes, target
from .products import SIGNED, UNSIGNED, Product, dense_product, multiply, product_cost, product_limits

ZEROS = {"int8": (-128, 5), "uint8": (200, 3)}  # of trials


def _product(t: int, k: int, n: int) -> Product:
    return replace(dense_product(t, k, n), keeps_sums=True)


def _drive(device: StreamedDevice, x: Codes, w: Codes, b: Codes | None = None, *, x_zero: int, instruction: str) -> Codes:
    """Emit one product: x [(samples,) t, k], w [n, k], b [n] → sums [(samples,) t, n]."""
    rows, inner = x.shape[-2:]
    start = -x_zero * row_sums(widen(w))
    m, sums = _product(rows, inner, len(w)), start if b is None else np.asarray(widen(b) + start)
    return multiply(
        device, m, [[row * inner] for row in range(rows)], x.reshape(*x.shape[:-2], -1), w[:, None], sums, {}, False, instruction
    )


def _sums(x: Array, w: Array, b: Array | None = None, *, x_zero: int) -> Array:
    """Sums of products of codes less the zero point, which wrap at 32 bits."""

    def element(t: Expr, n: Expr) -> Expr:
        total = reduce_sum(lambda k: (x[t, k] - x_zero) * w[n, k], x.shape[1])
        return signed(total if b is None else b[n] + total, 32)

    return array(element, (x.shape[0], w.shape[0]))


def _limits(t: int, k: int, n: int, p: Mapping[str, str]) -> Iterator[Limit]:
    yield from product_limits(_product(t, k, n), p)


def _cost(t: int, k: int, n: int, resources: Resources) -> Cost:
    return product_cost(_product(t, k, n), resources)


def _declare(dtype: str, instruction: str) -> None:
    def dense(x: Tensor, w: Tensor, x_zero: Int) -> tuple[Tensor, Where]:
        """A product of codes with constant weights, as int32 sums."""
        return o.integer_dense(x, w, x_zero=x_zero, w_zero=0), Where(
            x.rank == 2, HasType(x, (dtype,)), HasType(w, ("int8",)), IsConstant(w)
        )

    def dense_bias(x: Tensor, w: Tensor, b: Tensor, x_zero: Int) -> tuple[Tensor, Where]:
        """A product of codes with constant weights, as int32 sums that start at the bias."""
        y, guard = dense(x, w, x_zero)
        return o.bias_add(y, b, 1), Where(*guard.conditions, IsConstant(b))

    codes = {"x": partial(Integers, 8, dtype == "int8"), "w": partial(Integers, 8), "y": partial(Integers, 32)}
    trials = [{"t": t, "k": k, "n": n, "x_zero": zero} for (t, k, n), zero in zip(((3, 6, 37), (2, 150, 140)), ZEROS[dtype], strict=True)]
    for f, axes, bias in ((dense, "", {}), (dense_bias, "b: n; ", {"b": partial(Integers, 32)})):
        f.__name__ = f"{f.__name__}_{dtype}"
        mapping = target.accelerates(
            axes=f"x: t k; w: n k; {axes}y: t n", formats={}, derived=codes | bias, units={"n": VECTOR}, operation="dense", whole="k",
            trials=trials,
        )(f)  # fmt: skip
        mapping.limits(_limits)
        mapping.driver(partial(_drive, instruction=instruction))
        mapping.numerics(_sums)
        mapping.costs(_cost)


for _dtype, _instruction in (("int8", SIGNED), ("uint8", UNSIGNED)):
    _declare(_dtype, _instruction)
