"""Quantised source operators: the host runs them; their scales must make sense."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...ir.program import Value
from ...ops.op import ShapeError
from ..context import Unsupported
from ..site import Site
from .table import Lowering

# source operator → the places of its scales
SCALES = {
    "QuantizeLinear": (1,),
    "DequantizeLinear": (1,),
    "QLinearConv": (1, 4, 6),
    "QLinearMatMul": (1, 4, 6),
}


def _quantised(op: str) -> Callable[[Site], list[Value]]:
    def lower(site: Site) -> list[Value]:
        for n in SCALES[op]:
            _check_scale(site, n)
        raise Unsupported("it is quantised arithmetic")

    return lower


def _check_scale(site: Site, n: int) -> None:
    scale = site.data(n)
    if scale is None or scale.dtype.kind != "f":
        return
    wrong = scale[~(np.isfinite(scale) & (scale > 0))].reshape(-1)
    if wrong.size:
        raise ShapeError(f"Scale of {site.op} must be positive and finite, not {wrong[0]}")


TABLE: dict[str, Lowering] = {op: _quantised(op) for op in SCALES}
