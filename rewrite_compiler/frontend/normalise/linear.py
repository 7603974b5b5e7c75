"""Lowerings of matrix products."""

from __future__ import annotations

from ...ir.program import Value
from ...ops.op import ShapeError
from ..site.site import Lowering, Site


def _matmul(site: Site) -> list[Value]:
    site.require_float()
    a, b = site.value(0), site.value(1)
    rank_a, rank_b = site.rank(0), site.rank(1)
    if not rank_a or not rank_b:
        raise ShapeError(f"MatMul needs operands of rank 1 or more, not {site.shape(0)} and {site.shape(1)}")
    if rank_a > 1 and rank_b > 1:
        return [_matrices(site, a, b)]
    left = site.reshape(a, (1, *site.shape(0))) if rank_a == 1 else a
    right = site.reshape(b, (*site.shape(1), 1)) if rank_b == 1 else b
    product = site.apply("matmul", left, right)
    shape = list(site.type(product).shape)
    if rank_b == 1:
        del shape[-1]
    if rank_a == 1:
        del shape[-1 if rank_b == 1 else -2]
    return [site.reshape(product, shape)]


def _matrices(site: Site, a: Value, b: Value) -> Value:
    """Return a product of matrices; constant operands lose broadcast axes of extent 1."""
    if site.rank(0) == site.rank(1) == 4 and site.data(1) is not None and site.shape(1)[0] == 1:
        return site.apply("matmul", a, site.reshape(b, site.shape(1)[1:]))
    if site.rank(0) == 2 and site.rank(1) == 4 and site.data(0) is not None and site.data(1) is None:
        samples, heads, *matrix = site.shape(1)
        product = site.apply("matmul", a, site.reshape(b, (samples * heads, *matrix)))
        return site.reshape(product, (samples, heads, *site.type(product).shape[1:]))
    return site.apply("matmul", a, b)


def _gemm(site: Site) -> list[Value]:
    site.require_float()
    if site.rank(0) != 2 or site.rank(1) != 2:
        raise ShapeError(f"Gemm needs matrices, not {site.shape(0)} and {site.shape(1)}")
    x = site.transpose(site.value(0), (1, 0)) if site.flag("transA") else site.value(0)
    w = site.value(1) if site.flag("transB") else site.transpose(site.value(1), (1, 0))
    y = _scaled(site, site.apply("dense", x, w), site.get("alpha", 1.0), "alpha")
    return [_biased(site, y, _scaled(site, site.value(2), site.get("beta", 1.0), "beta")) if site.has(2) else y]


def _scaled(site: Site, v: Value, factor: float, name: str) -> Value:
    return v if factor == 1.0 else site.apply("mul", v, site.number(factor, v, name))


def _biased(site: Site, y: Value, c: Value) -> Value:
    (rows, columns), shape = site.type(y).shape, site.type(c).shape
    if shape in ((columns,), (1, columns)):
        if rows == 1 and site.data(2) is None:  # a sum of two rows, as of the two products of a recurrence
            return site.apply("add", y, site.reshape(c, (1, columns)))
        return site.apply("bias_add", y, site.reshape(c, (columns,)), axis=1)
    biased = site.apply("add", y, c)
    if site.type(biased).shape != site.type(y).shape:
        raise ShapeError(f"C of Gemm must broadcast to {site.type(y).shape}, not have shape {shape}")
    return biased


TABLE: dict[str, Lowering] = {"MatMul": _matmul, "Gemm": _gemm}
