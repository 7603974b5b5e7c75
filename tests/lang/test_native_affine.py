"""Sums of products that begin at a number of their column, in machine code: modulo 2^32, as floats times a power of two."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rewrite_compiler.lang import native_amx
from rewrite_compiler.lang.native_affine import Affine, Factors, Sums
from rewrite_compiler.lang.native_matrix import packed
from rewrite_compiler.lang.native_tiles import is_there

pytestmark = pytest.mark.skipif(not is_there(), reason="needs a processor that adds products of bytes")


SIZES = [
    (1, 1, 1, 4),
    (37, 24, 3, 8),
    (16, 33, 2, 12),
    (9, 70, 5, 32),
    (32, 16, 1, 64),
    (95, 17, 1, 64),
    (100, 70, 5, 100),
    (64, 33, 3, 64),
]


@pytest.mark.parametrize("are_bytes", [True, False], ids=["bytes", "pairs"])
@pytest.mark.parametrize(("rows", "columns", "steps", "width"), SIZES)
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


def factors(rows: int, columns: int, apart: int, width: int, distance: int = 4) -> Factors:
    weights = np.random.default_rng(2).integers(-128, 128, (columns, width))
    first = 12 + apart * np.arange(rows)
    return Factors(first, np.arange(0, distance * width // 4, distance), weights, np.zeros(columns), columns * np.arange(rows))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (factors(32, 5, 40, 40), True),
        (factors(50, 24, 100, 72), True),  # between rows lies something else
        (factors(31, 24, 72, 72), False),
        (factors(64, 24, 36, 72), False),  # rows overlap
        (factors(64, 24, 72, 36, 8), False),  # a row's bytes do not lie side by side
        (replace(factors(64, 24, 72, 72), rows=np.arange(64) ** 2 * 72), False),
    ],
    ids=["32 rows", "a gap", "few rows", "overlapping rows", "odd bytes", "odd rows"],
)
def test_the_matrix_unit_multiplies_rows_at_equal_distances(given: Factors, expected: bool) -> None:
    one = packed(given.rows, given.steps, given.columns, given.starts, given.places, 1.0)
    assert (one is not None) is (expected and native_amx.is_there())
    memory = np.random.default_rng(3).integers(0, 256, given.rows.max() + given.steps.max() + 4, np.uint8)
    found = np.empty((len(given.rows), len(given.columns)), np.float32)
    Sums(Affine(True, 1, 1.0), given)(memory.ctypes.data, found.ctypes.data)
    at = given.rows[:, None] + (given.steps[:, None] + np.arange(4)).reshape(-1)
    np.testing.assert_array_equal(found, (memory[at].astype(np.int64) @ given.columns.T).astype(np.float32))
