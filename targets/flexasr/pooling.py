"""FlexASR's pooling: the LayerReduce engine combines timesteps 2i and 2i+1 in place, once for each halving of a window."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from rewrite_compiler import Tensor, Where
from rewrite_compiler import ops as o
from rewrite_compiler.ila_models.flexasr.numerics import MAXIMUM, MEAN, SUM
from rewrite_compiler.lang import Array, Table, array
from rewrite_compiler.target import Device, Limit

from .base import (
    LANES,
    LARGE,
    MOST_VECTORS,
    Codes,
    Formats,
    adaptivfloat,
    large_buffer_limits,
    load_timesteps,
    scratch_of_large,
    store_timesteps,
    target,
    vectors,
)  # fmt: skip

AXES = "x: u w n; y: u n"
UNITS = {"n": LANES}
SHARED = ("x y",)  # pooled in place; the engine does not know the format
TRIALS = (
    {"u": 1, "w": 2, "n": 16},
    {"u": 9, "w": 4, "n": 33},
    {"u": 3, "w": 64, "n": 16},
    {"u": 128, "w": 2, "n": MOST_VECTORS * LANES},
    {"u": 32_767, "w": 2, "n": 16},
)
MODES = {"max_pool": (0, MAXIMUM), "mean_pool": (1, MEAN), "add_pool": (2, SUM)}


@target.accelerates(axes=AXES, formats=dict.fromkeys("xy", adaptivfloat), units=UNITS, shared=SHARED, whole="w", trials=TRIALS)
def max_pool(x: Tensor) -> tuple[Tensor, Where]:
    """The largest of w rows, w a power of two: y[u, n] = max over i of x[u, i, n]."""
    return o.reduce_max_(x, axes=(1,), keepdims=0), Where(x.rank == 3, x.shape[1] > 1, LARGE % x.shape[1] == 0)


@target.accelerates(axes=AXES, formats=dict.fromkeys("xy", adaptivfloat), units=UNITS, shared=SHARED, whole="w", trials=TRIALS)
def mean_pool(x: Tensor) -> tuple[Tensor, Where]:
    """The mean of w rows, w a power of two: y[u, n] = Σ_i x[u, i, n] / w."""
    return o.reduce_mean_(x, axes=(1,), keepdims=0), Where(x.rank == 3, x.shape[1] > 1, LARGE % x.shape[1] == 0)


@target.accelerates(axes=AXES, formats=dict.fromkeys("xy", adaptivfloat), units=UNITS, shared=SHARED, whole="w", trials=TRIALS)
def add_pool(x: Tensor) -> tuple[Tensor, Where]:
    """The sum of w rows, w a power of two: y[u, n] = Σ_i x[u, i, n]."""
    return o.reduce_sum_(x, axes=(1,), keepdims=0), Where(x.rank == 3, x.shape[1] > 1, LARGE % x.shape[1] == 0)


def pooling_limits(u: int, w: int, n: int) -> Iterator[Limit]:
    """Capacities of one call (specification, section 8)."""
    yield Limit("vectors of a timestep", vectors(n), MOST_VECTORS)
    yield from large_buffer_limits(u * w, vectors(n))


def pooling_codes(x: Array, pair: Table) -> Array:
    """Combine neighbouring rows, then neighbouring results, until one row of a window is left; every step rounds."""
    u, rows, n = x.shape
    while int(rows) > 1:  # type: ignore[arg-type]
        rows = int(rows) // 2  # type: ignore[arg-type]
        x = _halved(x, (u, rows, n), pair)
    last = x
    return array(lambda i, j: last[i, 0, j], (u, n))


def _halved(x: Array, shape: tuple[object, ...], pair: Table) -> Array:
    return array(lambda i, k, j: pair(x[i, 2 * k, j], x[i, 2 * k + 1, j]), shape)  # type: ignore[arg-type]


def drive_pooling(device: Device, x: Codes, f: Formats, mode: int) -> Codes:
    """Emit one call: x [(samples,) u, w, n] → y [(samples,) u, n], all codes; one run of the engine halves every window."""
    *_, windows, rows, lanes = x.shape
    count = vectors(lanes)
    device.issue("config_gb_core_mem_mngr_large", num_vector_0=count, base_0=0)
    store_timesteps(device, x.reshape(*x.shape[:-3], windows * rows, lanes), count)
    while rows > 1:
        device.issue("config_gb_layer_reduce", is_valid=1, mode=mode, memory_index_1=0, num_vector_1=count, num_timestep_1=windows * rows)
        device.issue("gb_layer_reduce_start")
        device.wait()
        rows //= 2
    # no trial: of one row there is no pooling, as the guard says
    return load_timesteps(device, windows, count, 0)[..., :lanes]


for mapping in (max_pool, mean_pool, add_pool):
    mode, pair = MODES[mapping.variant]
    mapping.limits(pooling_limits)
    mapping.residency(scratch_of_large)
    mapping.driver(partial(drive_pooling, mode=mode))
    mapping.numerics(partial(pooling_codes, pair=pair))
