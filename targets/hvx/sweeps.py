"""HVX's operations on every byte of vectors: saturating sums, bytes limited to bounds, and maximum pools, which are extremes of taps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from rewrite_compiler.ila_models.hvx.state import VECTOR
from rewrite_compiler.lang import Array, Fixed, array, maximum, minimum, sat
from rewrite_compiler.target import (
    RANKS,
    StreamedDevice,
    axis_sizes,
    bordered_codes,
    element_pattern,
    fixed_byte,
    fixed_nearest,
    pad_axis,
    pool_pattern,
    split_bytes,
    tile_count,
    window_counts,
    window_maxima,
    window_taps,
)

from .base import BYTES, Codes, Parameters, Program, Shape, place, results, set_registers, target

FIRST, SECOND, RESULT, CONSTANTS, SPLAT = 0, 1, 8, 9, 9  # vector registers, and a scalar one
BYTE = Fixed(8)
LEAST, LARGEST = -128, 127
Formats = Mapping[str, Fixed]
Steps = Sequence[tuple[str, int]]  # instructions, each with a constant in all lanes of its second source


def _program(count: int, operands: str, sources: int, steps: int, packets: int, p: Parameters) -> Program:
    """Return the program for so many vectors of results, each from so many vectors of the operands together, and so many steps."""
    vectors = {**dict.fromkeys(operands, sources // len(operands) * count), "y": count}
    computed = sources - 1 + steps
    return Program(p, vectors, vectors, 2 + 2 * (sources + computed) + count * (sources + computed + 1), packets)


def _sweep(device: StreamedDevice, m: Program, operands: Mapping[str, Codes], merge: str, steps: Steps) -> Codes:
    """Emit the work on operands [(samples,) byte]: all sources of a vector of results, which are merged two by two, then the steps."""
    count, addresses = m.vectors["y"], list(m.vectors)
    place(device, m, **{name: split_bytes(x) for name, x in operands.items()})
    set_registers(device, {n: m.places[name] for n, name in enumerate(addresses)})
    for n, (_, constant) in enumerate(steps):
        set_registers(device, {SPLAT: constant % (1 << 8)})
        device.issue("vsplat_b_r", vd=CONSTANTS + n, rt=SPLAT)
    for _ in range(count):
        found = FIRST
        for n in range(sum(m.vectors[name] for name in operands) // count):
            device.issue("vmem_load_step", vd=min(n, SECOND), rt=min(n, len(operands) - 1), step=1)
            if n:
                device.issue(merge, vd=RESULT, vu=found, vv=SECOND)
                found = RESULT
        for n, (name, _) in enumerate(steps):
            device.issue(name, vd=RESULT, vu=found, vv=CONSTANTS + n)
            found = RESULT
        device.issue("vmem_store_step", vs=found, rt=len(operands), step=1)
    return results(device, m)


# -- element by element


def _steps(kind: str, f: Formats, low: float = 0, high: float = 0) -> Steps:
    """Return what is done to each vector behind a sum; the bounds of a clip are the codes nearest to them."""
    if kind == "add":
        return ()
    least, most = (0, None) if kind == "relu" else (fixed_nearest(low, f["x"]), fixed_nearest(high, f["x"]))
    return (("vmax_b_b_b", least), *([] if most is None else [("vmin_b_b_b", most)]))


def _plan(*, rank: int, operands: str, steps: int, p: Parameters, **sizes: int) -> Program:
    """A packet holds one load and one store beside an operation, so that loads decide, or the operations."""
    count, computed = tile_count(math.prod(sizes[d] for d in RANKS[rank].split()), VECTOR), len(operands) - 1 + steps
    return _program(count, operands, len(operands), steps, count * max(len(operands), computed), p)


def _drive(
    device: StreamedDevice, *, rank: int, kind: str, operands: str, f: Formats, p: Parameters, low: float = 0, high: float = 0, **x: Codes
) -> Codes:  # fmt: skip
    """Emit the operation on x and, for a sum, z [(samples,) …]."""
    steps, (first, *_) = _steps(kind, f, low, high), x.values()
    lead, shape = first.shape[: first.ndim - rank], first.shape[first.ndim - rank :]
    m = _plan(rank=rank, operands=operands, steps=len(steps), p=p, **axis_sizes(RANKS[rank], first))
    rows = {name: pad_axis(x[name].reshape(*lead, -1), -1, m.vectors["y"] * VECTOR) for name in operands}
    y = _sweep(device, m, rows, "vadd_b_b_b_sat", steps)
    return y[..., : math.prod(shape)].reshape(*y.shape[:-1], *shape)


def _codes(*operands: Array, kind: str, f: Formats, low: float = 0, high: float = 0) -> Array:
    """Saturated sums of codes, or the larger of code and zero, or codes within bounds."""
    if kind == "add":
        return array(lambda *i: sat(operands[0][i] + operands[1][i], 8), operands[0].shape)
    least, *most = (constant for _, constant in _steps(kind, f, low, high))
    return array(lambda *i: minimum(maximum(operands[0][i], least), most[0] if most else LARGEST), operands[0].shape)


_SUM: dict[str, Any] = {"formats": dict.fromkeys("xzy", fixed_byte), "shared": ("x z y",)}
_CLIPS = ({"low": -0.25, "high": 3.0}, {"low": -math.inf, "high": 3.0}, {"low": 0.0, "high": 6.0})


def _declare(rank: int) -> None:
    shapes = ((*(1,) * (rank - 1), 17), (3, 2, 11, 7)[:rank], (2, 3, 5, 9)[:rank])
    for kind, operands, steps, declared in (("add", "xz", 0, _SUM), ("relu", "x", 1, BYTES), ("clip", "x", 2, BYTES)):
        pattern = element_pattern(kind, rank)
        bounds: Sequence[dict[str, float]] = _CLIPS if kind == "clip" else ({},) * len(shapes)
        trials = [pattern.element_trial(*shape, **bound) for shape, bound in zip(shapes, bounds, strict=True)]
        mapping = target.offers(pattern, trials=trials, **declared)
        mapping.implement(
            partial(_plan, rank=rank, operands=operands, steps=steps), partial(_drive, rank=rank, kind=kind, operands=operands),
            partial(_codes, kind=kind), moves=True,
        )  # fmt: skip


for _rank in RANKS:
    _declare(_rank)


# -- maximum pools: the taps of a vector of windows lie one behind the other


def _pool(b: int, c: int, i: int, j: int, kernel: Shape, strides: Shape, pads: Shape, p: Parameters) -> Program:
    """Loads decide."""
    count, taps = tile_count(b * c * math.prod(window_counts((i, j), kernel, strides, pads)), VECTOR), math.prod(kernel)
    return _program(count, "x", taps, 0, count * (taps + 1), p)


def _drive_pool(device: StreamedDevice, x: Codes, *, kernel: Shape, strides: Shape, pads: Shape, p: Parameters) -> Codes:
    """Emit one pool of codes: x [(samples,) b, c, i, j] → [(samples,) b, c, u, v]."""
    m = _pool(**axis_sizes("b c i j", x), kernel=kernel, strides=strides, pads=pads, p=p)
    taps = window_taps(bordered_codes(x, pads, LEAST), kernel, strides)
    lead, shape = x.shape[:-4], taps.shape[-4:]
    rows = pad_axis(taps.reshape(*lead, math.prod(kernel), -1), -1, m.vectors["y"] * VECTOR)
    items = rows.reshape(*rows.shape[:-1], m.vectors["y"], VECTOR).swapaxes(-3, -2)
    y = _sweep(device, m, {"x": items.reshape(*lead, -1)}, "vmax_b_b_b", ())
    return y[..., : math.prod(shape)].reshape(*y.shape[:-1], *shape)


POOL = pool_pattern("max_pool")
max_pool = target.offers(
    POOL, **BYTES,
    trials=(
        POOL.trial(c=16, i=4, kernel=2, strides=2),
        POOL.trial(c=5, i=20, kernel=3, strides=2, pads=1),
        POOL.trial(b=2, c=5, i=6, j=9, kernel=(3, 2), strides=(1, 2), pads=(1, 0, 0, 1)),
    ),
)  # fmt: skip
max_pool.implement(_pool, _drive_pool, partial(window_maxima, least=LEAST), moves=True)
