"""Lowerings of reductions over axes."""

from __future__ import annotations

from collections.abc import Callable

from ...ir.program import Value
from ...ops.op import ShapeError
from ..site.context import Unsupported
from ..site.site import Lowering, Site


def reduced_axes(site: Site) -> tuple[int, ...]:
    """Return the reduced axes counted from the front; all of them when none are named.

    Raises:
        ShapeError: an axis is duplicated or out of range.
        Unsupported: the axes are computed at run time.
    """
    rank = site.rank(0)
    declared = site.ints(1, "axes") if site.has(1) else tuple(site.get("axes", ()))
    if not declared and site.flag("noop_with_empty_axes"):
        return ()
    axes = tuple(sorted(a + rank if a < 0 else a for a in declared)) or tuple(range(rank))
    if len(set(axes)) != len(axes) or any(not 0 <= a < rank for a in axes):
        raise ShapeError(f"Axes of {site.op} must be different and in {-rank}…{rank - 1}, not {declared}")
    return axes


def _reduce(op: str, before: str = "", after: str = "") -> Callable[[Site], list[Value]]:
    def lower(site: Site) -> list[Value]:
        site.require_float_at(0)
        x, axes = site.value(0), reduced_axes(site)
        if 0 in site.shape(0):
            raise Unsupported("it reduces an empty tensor")
        if before:
            x = site.apply("mul", x, x) if before == "square" else site.apply(before, x)
        y = site.apply(op, x, axes=axes, keepdims=site.flag("keepdims", 1)) if axes else x
        return [site.apply(after, y) if after else y]

    return lower


TABLE: dict[str, Lowering] = {
    "ReduceMean": _reduce("reduce_mean"),
    "ReduceSum": _reduce("reduce_sum"),
    "ReduceMax": _reduce("reduce_max"),
    "ReduceMin": _reduce("reduce_max", before="neg", after="neg"),
    "ReduceL1": _reduce("reduce_sum", before="abs"),
    "ReduceL2": _reduce("reduce_sum", before="square", after="sqrt"),
    "ReduceSumSquare": _reduce("reduce_sum", before="square"),
    "ReduceLogSum": _reduce("reduce_sum", after="log"),
}
