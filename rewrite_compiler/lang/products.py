"""Products of matrices of 16-bit factors, exact in words of 32 bits or modulo 2^32, by the kernel of blocked folds."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from . import intervals as iv
from .blocked import INT16, INT32, LANES, offsets, packed_columns, words_of
from .expr import Expr
from .named import Axes, Axis, Data, Named
from .straight import Op

LEAST_WORK, MOST_BATCHES = 1 << 12, 64
STEP = (Op("acc"), Op("dot", (), (0, 0, 0, LANES // 2)), Op("add", (0, 1)))


def is_exact(e: Expr, pair: Sequence[Expr], *, modular: bool) -> bool:
    """Tell whether a sum of products of `pair` is right in words of 32 bits: sums wrap there, and the whole must not, or may."""
    return not e.real and all(iv.inside(f.interval, INT16) for f in pair) and (modular or iv.inside(e.interval, INT32))


def product(a: Named, b: Named, over: Sequence[Axis], axes: Axes) -> Named | None:
    """Return Σ_over a·b of 16-bit integers modulo 2^32; None where it is too small to be worth a call."""
    shared = [v for v in a.axes if v in b.axes]
    batch, summed = [v for v in shared if v not in over], [v for v in shared if v in over]
    rows, columns = ([v for v in x.axes if v not in shared] for x in (a, b))
    if not set(over) <= set(shared) or not summed:
        return None
    sizes = [math.prod(axes.shape(x)) for x in (batch, rows, columns, summed)]
    if math.prod(sizes) < LEAST_WORK or sizes[0] > MOST_BATCHES:
        return None
    if sizes[1] < sizes[2]:
        a, b, rows, columns = b, a, columns, rows
        sizes[1], sizes[2] = sizes[2], sizes[1]
    count, m, n, k = sizes
    left, right = (_matrices(x, [*batch, *x_axes, *summed], (count, size, k)) for x, x_axes, size in ((a, rows, m), (b, columns, n)))
    found = np.stack([_multiplied(left[i], right[i]) for i in range(count)]) if count > 1 else _multiplied(left[0], right[0])
    return axes.ordered(found.reshape(axes.shape([*batch, *rows, *columns])), [*batch, *rows, *columns])


def _matrices(x: Named, order: Sequence[Axis], shape: tuple[int, int, int]) -> Data:
    """Return [batch, rows, K] with 16-bit elements, K filled up with zeros to whole steps."""
    data = x.data.transpose([x.axes.index(v) for v in order])
    k = -(-shape[2] // LANES) * LANES
    if k == shape[2]:
        return np.ascontiguousarray(data, np.int16).reshape(shape)
    found = np.zeros((*shape[:2], k), np.int16)
    found[..., : shape[2]] = data.reshape(shape)
    return found


def _multiplied(a: Data, b: Data) -> Data:
    from .native_fold import FORMS, ROWS, Kernel, best_form, run_fold

    form = best_form()
    lanes, _ = FORMS[form]
    (m, k), n = a.shape, len(b)
    padded, tiles, steps = -(-m // ROWS) * ROWS, -(-n // lanes), k // LANES
    packed = packed_columns([words_of(b.reshape(n, steps, LANES), is_pairs=True)], tiles, lanes)
    out = np.empty((padded, tiles * lanes), np.int32)
    kernel = Kernel(STEP, 1, packed.shape[2], out.dtype.str, form, False)
    given = (a, offsets(((k, m),), padded), offsets(((LANES, steps),), steps))
    run_fold(kernel, [given], packed, None, out, [padded, tiles, steps, tiles * lanes])
    return out[:m, :n]
