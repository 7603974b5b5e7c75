"""Sums of products that begin at a number of their column, in machine code: modulo 2^32, as floats times a power of two."""

from __future__ import annotations

import numpy as np
import pytest

from rewrite_compiler.lang.native_affine import Affine, Factors, Sums
from rewrite_compiler.lang.native_tiles import is_there

pytestmark = pytest.mark.skipif(not is_there(), reason="needs a processor that adds products of bytes")


@pytest.mark.parametrize("are_bytes", [True, False], ids=["bytes", "pairs"])
@pytest.mark.parametrize(("rows", "columns", "steps", "width"), [(1, 1, 1, 4), (37, 24, 3, 8), (16, 33, 2, 12), (9, 70, 5, 32)])
def test_sums_wrap_at_32_bits_and_are_scaled(are_bytes: bool, rows: int, columns: int, steps: int, width: int) -> None:
    rng = np.random.default_rng(rows)
    low, high = (-128, 128) if are_bytes else (-(1 << 15), 1 << 15)
    a, b = rng.integers(low, high, (rows, steps * width)), rng.integers(low, high, (columns, steps * width))
    a[0], b[0] = low, low  # the largest product everywhere
    starts = rng.integers(-(2**31), 2**31, columns)
    memory = (a + 128).astype(np.uint8) if are_bytes else a.astype(np.int16)
    size = memory.itemsize
    out = np.full((rows, columns + 3), np.nan, np.float32)
    order = rng.permutation(rows)  # rows of the result lie in any order
    factors = Factors(
        np.arange(rows) * steps * width * size, np.arange(steps) * width * size, b, starts, order * (columns + 3), 128 * are_bytes
    )
    ends = Sums(Affine(are_bytes, width * size // 4, 2.0**-5), factors)(memory.ctypes.data, out.ctypes.data)
    words = ((a @ b.T + starts + 2**31) % 2**32 - 2**31).astype(np.int32)
    expected = words.astype(np.float32) * np.float32(2.0**-5)
    np.testing.assert_array_equal(out[order, :columns], expected)
    assert np.isnan(out[:, columns:]).all()
    assert ends == (expected.min(), expected.max())
