"""Lowerings of convolution and pooling, with explicit pads, strides and dilations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ...ir.program import Value
from ...ir.types import TensorType
from ...ops.conv import window_extents
from ...ops.op import ShapeError
from ..site.context import Unsupported
from ..site.site import Lowering, Site


def window(site: Site, kernel: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """Return strides, dilations and pads of a sliding window over the spatial axes of operand 0; pads are all starts, then all ends.

    Raises:
        ShapeError: the attributes do not match the number of axes, or the kernel or auto_pad is not valid.
    """
    rank = len(kernel)
    strides = tuple(site.get("strides", ()) or (1,) * rank)
    dilations = tuple(site.get("dilations", ()) or (1,) * rank)
    if not len(strides) == len(dilations) == rank == site.rank(0) - 2:
        raise ShapeError(
            f"{site.op} over {site.rank(0) - 2} axes needs as many kernel extents, strides and dilations, "
            f"not {tuple(kernel)}, {strides} and {dilations}"
        )
    pads = _pads(site, kernel, strides, dilations)
    if len(pads) != 2 * rank or any(k < 1 for k in kernel):
        raise ShapeError(f"{site.op} over {rank} axes needs {2 * rank} pads and a positive kernel, not {pads} and {tuple(kernel)}")
    return {"strides": strides, "pads": pads, "dilations": dilations}


def _pads(site: Site, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> tuple[int, ...]:
    mode, rank = site.get("auto_pad", "NOTSET"), len(kernel)
    if mode in ("NOTSET", ""):
        return tuple(site.get("pads", ()) or (0,) * 2 * rank)
    if mode == "VALID":
        return (0,) * 2 * rank
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        raise ShapeError(f'auto_pad of {site.op} must be NOTSET, VALID, SAME_UPPER or SAME_LOWER, not "{mode}"')
    if any(s < 1 for s in strides):
        raise ShapeError(f"Strides must be positive, not {tuple(strides)}")
    before, after = [], []
    for n, k, s, d in zip(site.shape(0)[2:], kernel, strides, dilations, strict=True):
        total = max(0, (-(-n // s) - 1) * s + d * (k - 1) + 1 - n)
        small, large = total // 2, total - total // 2
        before.append(small if mode == "SAME_UPPER" else large)
        after.append(large if mode == "SAME_UPPER" else small)
    return (*before, *after)


def _conv(site: Site) -> list[Value]:
    site.require_float()
    x, w = site.value(0), site.value(1)
    kernel = site.shape(1)[2:]
    kernel_shape = tuple(site.get("kernel_shape", kernel) or kernel)
    if kernel_shape != kernel:
        raise ShapeError(f"kernel_shape of Conv must be that of its filters {kernel}, not {kernel_shape}")
    if site.rank(0) < 3 or site.rank(1) != site.rank(0):
        raise ShapeError(f"Conv needs x[N, C, …] and w[O, C/group, …] of one rank, not {site.shape(0)} and {site.shape(1)}")
    y = site.apply("conv", x, w, **window(site, kernel), group=int(site.get("group", 1)))
    return [site.apply("bias_add", y, site.value(2), axis=1) if site.has(2) else y]


BYTES = ("int8", "uint8")  # codes of quantised models, of which the largest stands for the largest number


def _pool(op: str, *extra: str) -> Callable[[Site], list[Value]]:
    def lower(site: Site) -> list[Value]:
        if op != "max_pool" or site.type(site.value(0)).dtype not in BYTES:
            site.require_float()
        kernel = tuple(site.get("kernel_shape", ()))
        flags = {"ceil": site.flag("ceil_mode")} | {name: site.flag(name) for name in extra}
        places = window(site, kernel)
        _check_padded(site, places["pads"])
        if len(site.outputs) > 1 and site.outputs[1]:
            raise Unsupported("its indices are used")
        if any(p >= k for p, k in zip(places["pads"], kernel * 2, strict=True)):
            raise ShapeError(f"Pads of {site.op} must be smaller than its kernel {kernel}, not {places['pads']}")
        exact, rounded = (window_extents(site.shape(0)[2:], kernel, **places, ceil=ceil) for ceil in (False, bool(flags["ceil"])))
        _check_inside(site, kernel, places, rounded)
        return [site.apply(op, site.value(0), kernel=kernel, **places, **_canonical(flags, places["pads"]), ceil=int(exact != rounded))]

    return lower


def _canonical(flags: Mapping[str, int], pads: Sequence[int]) -> dict[str, int]:
    """Return the flags of a pooling without the rounding; whether padding counts says nothing where there is none."""
    return {name: value if any(pads) else 0 for name, value in flags.items() if name != "ceil"}


def _check_padded(site: Site, pads: Sequence[int]) -> None:
    """Check the size of the padded tensor: a window may be as large, and the host would step through it endlessly."""
    x = site.type(site.value(0))
    extents = (max(0, n + before + after) for n, before, after in zip(x.shape[2:], pads, pads[len(pads) // 2 :], strict=False))
    site.context.check(TensorType((*x.shape[:2], *extents), x.dtype), f"{site.name}/padded")


def _check_inside(site: Site, kernel: Sequence[int], places: Mapping[str, Sequence[int]], extents: Sequence[int]) -> None:
    """Raise Unsupported for a pooling with a window that lies wholly in the padding."""
    strides, pads, dilations = places["strides"], places["pads"], places["dilations"]
    for axis, (n, k, count) in enumerate(zip(site.shape(0)[2:], kernel, extents, strict=True)):
        starts = np.arange(count) * strides[axis] - pads[axis]
        skipped = np.minimum(np.maximum(0, -(starts // dilations[axis])), k)  # taps before the first element
        first = starts + np.minimum(skipped, k - 1) * dilations[axis]
        if not ((skipped < k) & (first < n)).all():
            raise Unsupported("a window lies wholly in its padding")


def _global(op: str) -> Callable[[Site], list[Value]]:
    def lower(site: Site) -> list[Value]:
        site.require_float()
        if site.rank(0) < 3:
            raise ShapeError(f"{site.op} needs x[N, C, …], not {site.shape(0)}")
        return [site.apply(op, site.value(0), axes=tuple(range(2, site.rank(0))), keepdims=1)]

    return lower


TABLE: dict[str, Lowering] = {
    "Conv": _conv,
    "MaxPool": _pool("max_pool"),
    "AveragePool": _pool("average_pool", "count_include_pad"),
    "GlobalAveragePool": _global("reduce_mean"),
    "GlobalMaxPool": _global("reduce_max"),
}
