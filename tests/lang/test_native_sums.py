"""Sums of products that become floats in registers: the values of plain arithmetic, where they belong, and nowhere else."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewrite_compiler.lang.native_sums import Summed
from rewrite_compiler.lang.native_tiles import is_there
from rewrite_compiler.lang.rounding import Rounding
from rewrite_compiler.lang.straight import Op
from rewrite_compiler.lang.sums import Factors, Sums, seen_in, seen_nothing

pytestmark = pytest.mark.skipif(not is_there(), reason="this processor has no AVX-512 VNNI, and sums are not fused")
END = (1 << 19) - 1
ROUNDING = Rounding(19, 1 << 18, (1 << 18) - 1, 1149763584, 1215823872, 2.0**-14)
LARGEST = float(np.float32(Fraction(31, 2)))
# clamp((sum >> 9) + number of the column)
CODE = (
    Op("acc"), Op("const", (), 9), Op("shr", (0, 1)), Op("array", (), 0), Op("add", (2, 3)), Op("const", (), END), Op("min", (4, 5)),
    Op("const", (), -END), Op("max", (6, 7)),
)  # fmt: skip


def expected(a: np.ndarray, b: np.ndarray, bias: np.ndarray) -> np.ndarray:
    total = (a.astype(np.int64) @ b.T.astype(np.int64) + (1 << 31)) % (1 << 32) - (1 << 31)
    return ROUNDING(np.clip((total >> 9) + bias, -END, END).astype(np.int32))


@settings(max_examples=10)
@given(
    rows=st.integers(1, 20),
    columns=st.integers(1, 70),
    steps=st.integers(1, 3),
    size=st.sampled_from([300, 30_000]),
    seed=st.integers(0, 99),
)
def test_floats_are_those_of_plain_arithmetic(rows: int, columns: int, steps: int, size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = (rng.integers(-size, size, (n, 8 * steps)).astype(np.int16) for n in (rows, columns))
    bias = rng.integers(-END, END, columns).astype(np.int32)
    nobody, unread = rng.integers(rows), rng.integers(columns)
    row_places, column_places = np.arange(rows) * (columns + 3), np.arange(columns) + 1
    row_places[nobody] = column_places[unread] = -1
    out = np.full((rows + 1, columns + 3), np.float32(7))
    call = Summed(
        Sums(4, CODE, 1, ROUNDING, LARGEST),
        Factors(np.arange(rows) * a.shape[1], np.arange(steps) * 8, b, [bias], row_places, column_places),
    )
    seen = seen_nothing()
    call.bind(a.ctypes.data, out.ctypes.data, seen)()
    want = np.full_like(out, 7)
    want[:-1, 1 : columns + 1] = expected(a, b, bias)
    want[nobody], want[:, 1 + unread] = 7, 7
    np.testing.assert_array_equal(out, want)
    read = np.delete(np.delete(expected(a, b, bias), nobody, 0), unread, 1)
    ends = int((np.abs(read) >= np.float32(LARGEST)).sum())
    assert seen_in(seen) == (read.min(initial=np.inf), read.max(initial=-np.inf), ends)
