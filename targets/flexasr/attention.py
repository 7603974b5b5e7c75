"""FlexASR's attention: each query against a matrix that is both keys and values, in one engine of the global buffer."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rewrite_compiler import Tensor, Where
from rewrite_compiler import ops as o
from rewrite_compiler.ila_models.flexasr.attention import LOWEST, MASKED
from rewrite_compiler.ila_models.flexasr.buffers import SMALL
from rewrite_compiler.ila_models.flexasr.numerics import decoded, encoded, exponential, quotient
from rewrite_compiler.lang import AdaptivFloat, Array, Expr, array, lift, maximum, reduce_max, reduce_sum, select, shift, signed
from rewrite_compiler.target import Device, Limit, pad_axis, values_of

from .base import (
    BLOCK,
    LANES,
    MOST_VECTORS,
    Codes,
    Formats,
    adaptivfloat,
    large_buffer_limits,
    scratch_of_large,
    store_timesteps,
    target,
    vectors,
)  # fmt: skip

MOST_ROWS = 1024  # the offset of a score vector has 8 bits
SHARES = AdaptivFloat(bias=3)  # the softmax's format: up to 1.9375
QUERY, SCRATCH = 2, 7  # small-buffer managers of the query and of the scores


@target.accelerates(
    axes="q: m d; e: t d; y: m d",
    formats=dict.fromkeys("qey", adaptivfloat),
    whole="t d",
    trials=tuple({"m": m, "t": t, "d": d} for m, t, d in ((1, 1, 1), (3, 21, 40), (1, MOST_ROWS, 16), (1, 16, MOST_VECTORS * LANES))),
)
def attention(q: Tensor, e: Tensor) -> tuple[Tensor, Where]:
    """Softmax of the products of each query with all rows of a matrix, times the matrix: y = softmax(q·eᵀ)·e."""
    scores = o.matmul(q, o.transpose(e, (1, 0)))
    return o.matmul(o.softmax(scores, axis=1), e), Where(q.rank == 2, e.rank == 2, e.shape[0] > 0)


@attention.limits
def attention_limits(t: int, d: int) -> Iterator[Limit]:
    """Capacities of one query (specification, section 8)."""
    yield Limit("vectors of a timestep", vectors(d), MOST_VECTORS)
    yield Limit("rows of the matrix", t, MOST_ROWS)
    yield Limit("small-buffer vectors", vectors(d) + 4 * _blocks(t), SMALL)
    yield from large_buffer_limits(t, vectors(d))


def _blocks(rows: int) -> int:
    """Return the blocks of rows; whole ones are processed, rows that are missing are zeros."""
    return -(-rows // BLOCK)


attention.residency(scratch_of_large)


@attention.numerics
def attention_codes(q: Array, e: Array, f: Formats) -> Array:
    """Scores, exponentials and their quotients in 32-bit words with 20 fraction bits; shares and results are rounded codes."""
    (queries, width), rows = (int(n) for n in q.shape), int(e.shape[0])  # type: ignore[arg-type]
    padded_rows = BLOCK * _blocks(rows)
    matrix = array(lambda t, j: select(t < rows, e[t, j], 0), (padded_rows, width))

    def score(m: Expr, t: Expr) -> Expr:
        total = signed(reduce_sum(lambda j: decoded(matrix[t, j]) * decoded(q[m, j]), width), 32)
        return select(total == 0, MASKED, signed(shift(total, 8 - f["e"].bias - f["q"].bias), 32))

    words = array(score, (queries, padded_rows))
    parts = array(lambda m, t, n: (words[m, t] >> n * 8) % 256, (queries, padded_rows, 4))  # they are kept in the small buffer
    scores = array(
        lambda m, t: signed(parts[m, t, 0] + (parts[m, t, 1] << 8) + (parts[m, t, 2] << 16) + (parts[m, t, 3] << 24), 32),
        (queries, padded_rows),
    )
    top = array(lambda m: maximum(reduce_max(lambda t: scores[m, t], padded_rows), LOWEST), (queries,))
    weights = array(lambda m, t: exponential(signed(scores[m, t] - top[m], 32)), (queries, padded_rows))
    total = array(lambda m: signed(reduce_sum(lambda t: weights[m, t], padded_rows), 32), (queries,))

    def code(x: Expr, bias: int) -> Expr:
        return encoded(signed(x, 26), lift(bias), 20, 26)

    shares = array(lambda m, t: code(quotient(signed(weights[m, t], 32), total[m]), SHARES.bias), (queries, padded_rows))

    def element(m: Expr, j: Expr) -> Expr:
        word = signed(reduce_sum(lambda t: decoded(matrix[t, j]) * decoded(shares[m, t]), padded_rows), 32)
        return code(shift(word, 8 - f["e"].bias - SHARES.bias), f["y"].bias)

    return array(element, (queries, width))


@attention.driver
def drive_attention(device: Device, q: Codes, e: Codes, f: Formats) -> Codes:
    """Emit one matrix and its queries one after the other: q [(samples,) m, d], e [(samples,) t, d] → y [(samples,) m, d]."""
    rows, width = e.shape[-2:]
    count = vectors(width)
    device.issue("config_gb_core_mem_mngr_large", num_vector_0=count, base_0=0)
    device.issue("config_gb_core_mem_mngr_small", **{f"base_{QUERY}": 0, f"base_{SCRATCH}": count})
    device.issue(
        "config_gb_attention", is_valid=1, memory_index_1=0, memory_index_2=QUERY, num_vector_1=count, num_timestep_1=rows,
        adpbias_1=f["e"].bias, adpbias_2=f["q"].bias, adpbias_3=SHARES.bias, adpbias_4=f["y"].bias,
    )  # fmt: skip
    store_timesteps(device, pad_axis(e, -2, BLOCK * _blocks(rows)), count)
    queries = pad_axis(q, -1, count * LANES)
    return np.stack([_answer(device, queries[..., m, :], count)[..., :width] for m in range(q.shape[-2])], axis=-2)


def _answer(device: Device, query: Codes, count: int) -> Codes:
    """Store a query, run the engine, load the result from where the query was."""
    device.store("gb_core_store_small", index=np.arange(count), vector=query.reshape(*query.shape[:-1], count, LANES))
    device.issue("gb_attention_start")
    device.wait()
    y = device.load("gb_core_load_small", index=np.arange(count))
    return y.reshape(*y.shape[:-2], -1)


def is_usable(q: Codes, e: Codes, f: Formats) -> Codes:
    """Tell of every query whether the exponentials add up to less than 4: the engine divides modulo 4 (specification, 6.7)."""
    scores = np.asarray(values_of(f["q"], q)) @ np.swapaxes(np.asarray(values_of(f["e"], e)), -1, -2)
    return np.asarray(np.exp(scores - scores.max(-1, keepdims=True)).sum(-1) < 4)
