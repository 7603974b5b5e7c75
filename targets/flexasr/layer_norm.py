"""FlexASR's layer norm: one engine of the global buffer, in place, one timestep after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from rewrite_compiler import IsConstant, Tensor, Where
from rewrite_compiler import ops as o
from rewrite_compiler.ila_models.flexasr.numerics import INVSQRT, encode, fixed
from rewrite_compiler.lang import Array, Expr, array, lift, reduce_sum, signed, trunc_div
from rewrite_compiler.rewrite import Float
from rewrite_compiler.target import USUAL, Device, Limit, Room, Stay, values_of

from .base import (
    LANES,
    MOST_VECTORS,
    Codes,
    Formats,
    adaptivfloat,
    large_buffer_limits,
    load_timesteps,
    rows_room,
    store_timesteps,
    target,
    vectors,
)  # fmt: skip

DRAWS = {"x": (0.0, 0.5), "g": (1.0, 0.1)}  # the squares of a vector must add up to less than 32 (specification, section 6.5)


@target.accelerates(
    axes="x: t n; g: n; b: n; y: t n",
    formats=dict.fromkeys("xgby", adaptivfloat),
    shared=("x y",),  # normalised in place: one format
    whole="n",
    draws=DRAWS,
    trials=tuple({"t": t, "n": n, "epsilon": 1e-5} for t, n in ((1, 16), (2, 48), (17, 256), (256, MOST_VECTORS * LANES))),
)
def layer_norm(x: Tensor, g: Tensor, b: Tensor, epsilon: Float) -> tuple[Tensor, Where]:
    """Layer norm of every row: (x − μ) / √(σ² + ε) · g + b; the device has no ε and takes whole vectors only."""
    # a padded row has another mean and another variance
    return o.layer_norm(x, g, b, axis=1, epsilon=epsilon), Where(x.rank == 2, x.shape[1] % LANES == 0, IsConstant(g), IsConstant(b))


@target.accelerates(
    axes="x: s t n; g: n; b: n; y: s t n",
    formats=dict.fromkeys("xgby", adaptivfloat),
    shared=("x y",),
    operation="layer_norm",
    whole="n",
    draws=DRAWS,
    trials=tuple({"s": s, "t": t, "n": n, "epsilon": 1e-5} for s, t, n in ((1, 1, 16), (3, 7, 48))),
)
def layer_norm_of_batch(x: Tensor, g: Tensor, b: Tensor, epsilon: Float) -> tuple[Tensor, Where]:
    """Layer norm of the rows of a batch of sequences, one after the other."""
    return o.layer_norm(x, g, b, axis=2, epsilon=epsilon), Where(x.rank == 3, x.shape[2] % LANES == 0, IsConstant(g), IsConstant(b))


@layer_norm.limits
def layer_norm_limits(t: int, n: int) -> Iterator[Limit]:
    """Capacities of one call (specification, section 8)."""
    yield Limit("vectors of a timestep", vectors(n), MOST_VECTORS)
    yield from large_buffer_limits(t, vectors(n))


@layer_norm_of_batch.limits
def batch_limits(s: int, t: int, n: int) -> Iterator[Limit]:
    """Capacities of one call on all rows of a batch."""
    yield from layer_norm_limits(s * t, n)


@layer_norm.residency
def layer_norm_rooms(t: int, n: int) -> Iterator[Room]:
    """Where the tensors of one call lie: x and y in one place, for which y stands."""
    yield rows_room("y", t, vectors(n))


@layer_norm_of_batch.residency
def batch_rooms(s: int, t: int, n: int) -> Iterator[Room]:
    """Where the tensors of one call on all rows of a batch lie."""
    yield from layer_norm_rooms(s * t, n)


@layer_norm.numerics
def layer_norm_codes(x: Array, g: Array, b: Array, f: Formats) -> Array:
    """Sums wrap at 20 bits a vector and 24 bits a row; both divisions go toward zero; then four 20-bit operations and one rounding."""
    t, n = (int(size) for size in x.shape)  # type: ignore[arg-type]
    bias = f["x"].bias

    def word(t: Expr, j: Expr) -> Expr:
        return fixed(x[t, j], bias)

    def mean_of(t: Expr, term: Callable[[Expr], Expr]) -> Expr:
        def vector(v: Expr) -> Expr:
            return signed(reduce_sum(lambda j: term(word(t, v * LANES + j)), LANES), 20)

        return signed(trunc_div(signed(reduce_sum(vector, n // LANES), 24), n), 20)

    mean = array(lambda t: mean_of(t, lambda a: a), (t,))
    square = array(lambda t: mean_of(t, lambda a: signed((a * a) >> 14, 20)), (t,))
    scale = array(lambda t: INVSQRT(signed(square[t] - signed((mean[t] * mean[t]) >> 14, 20), 20)), (t,))

    def element(t: Expr, j: Expr) -> Expr:
        y = signed((signed(word(t, j) - mean[t], 20) * scale[t]) >> 14, 20)
        y = signed((y * fixed(g[j], f["g"].bias)) >> 14, 20)
        return encode(signed(y + fixed(b[j], f["b"].bias), 20), lift(bias))

    return array(element, (t, n))


def is_usable(x: Codes, f: Formats) -> Codes:
    """Tell of every row of codes x [(samples,) t, n] whether no sum wraps and the variance is at least 2^-10.

    Of other rows the device returns what the numerics say, which has nothing to do with a layer norm (specification, 6.5).
    """
    words = np.asarray(values_of(f["x"], x) * (1 << 14)).astype(np.int64)
    squares = ((words * words) >> 14).reshape(*x.shape[:-1], -1, LANES).sum(-1)  # of a vector; they bound its sum too
    total, square = words.sum(-1), squares.sum(-1)
    mean = total // x.shape[-1]
    variance = square // x.shape[-1] - ((mean * mean) >> 14)
    return np.asarray((squares < 1 << 19).all(-1) & (square < 1 << 23) & (np.abs(total) < 1 << 23) & (variance >= 16))


@layer_norm.driver
def drive_layer_norm(device: Device, x: Codes, g: Codes, b: Codes, f: Formats, stay: Stay = USUAL) -> Codes:
    """Emit one call: x [(samples,) t, n], g and b [n] → y [(samples,) t, n], all codes."""
    timesteps, count, base_y = x.shape[-2], vectors(x.shape[-1]), stay.base("y")
    device.issue("config_gb_core_mem_mngr_large", num_vector_0=count, base_0=base_y)
    device.issue("config_gb_core_mem_mngr_small", base_5=0, base_6=count)
    for base, a in ((0, g), (count, b)):
        device.store("gb_core_store_small", index=base + np.arange(count), vector=a.reshape(count, LANES))
    store_timesteps(device, x, count, base_y)
    device.issue(
        "config_gb_layer_norm", is_valid=1, memory_index_1=0, num_vector_1=count, num_timestep_1=timesteps,
        adpbias_1=f["x"].bias, adpbias_3=f["b"].bias, adpbias_4=f["g"].bias,
    )  # fmt: skip
    device.issue("gb_layer_norm_start")
    device.wait()
    return stay.result("y", lambda: load_timesteps(device, timesteps, count, base_y))


@layer_norm_of_batch.numerics
def batch_codes(x: Array, g: Array, b: Array, f: Formats) -> Array:
    """The rows of all sequences as those of one."""
    s, t, n = (int(size) for size in x.shape)  # type: ignore[arg-type]
    rows = layer_norm_codes(array(lambda r, j: x[r // t, r % t, j], (s * t, n)), g, b, f)
    return array(lambda i, k, j: rows[i * t + k, j], (s, t, n))


@layer_norm_of_batch.driver
def drive_batch(device: Device, x: Codes, g: Codes, b: Codes, f: Formats, stay: Stay = USUAL) -> Codes:
    """Emit one call: x [(samples,) s, t, n], g and b [n] → y [(samples,) s, t, n], all codes."""
    y: Codes = drive_layer_norm(device, x.reshape(*x.shape[:-3], -1, x.shape[-1]), g, b, f, stay)
    return y.reshape(*y.shape[:-2], *x.shape[-3:])
