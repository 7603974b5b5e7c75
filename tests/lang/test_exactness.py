"""Products of integers by BLAS only where every partial sum is exact: sums of magnitudes at 2^24, 2^53 and 2^63."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewrite_compiler.lang import Leaf, array, fold, reduce_sum, sat, shift_right
from rewrite_compiler.lang import intervals as iv
from rewrite_compiler.readings.kernels.evaluate import evaluate

F32, F64 = 1 << 24, 1 << 53


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The types in which products are computed, in order."""
    used: list[str] = []
    multiply = np.matmul

    def spy(a: np.ndarray, b: np.ndarray, **options: object) -> np.ndarray:
        used.append(str(np.result_type(a, b)))
        return multiply(a, b, **options)

    monkeypatch.setattr(np, "matmul", spy)
    return used


def product(rows: list[list[int]], columns: list[list[int]], bits: tuple[int, int] = (62, 62)) -> list[list[int]]:
    """Return rows · columnsᵀ by the arrays reading; `bits` are the widths of the operands' signed words."""
    count = len(rows[0])
    x = Leaf((len(rows), count), iv.of_width(bits[0], True), False, "x")
    y = Leaf((len(columns), count), iv.of_width(bits[1], True), False, "y")
    term = array(lambda i, j: reduce_sum(lambda c: x[i, c] * y[j, c], count), (len(rows), len(columns)))
    found = evaluate(term, {x: np.array(rows, np.int64), y: np.array(columns, np.int64)})
    return [[int(v) for v in row] for row in found]


def exact(rows: list[list[int]], columns: list[list[int]]) -> list[list[int]]:
    return [[sum(a * b for a, b in zip(r, c, strict=True)) for c in columns] for r in rows]


def check(rows: list[list[int]], columns: list[list[int]], bits: tuple[int, int] = (62, 62)) -> None:
    assert product(rows, columns, bits) == exact(rows, columns)


def test_the_last_sum_that_single_precision_holds(engines: list[str]) -> None:
    """1024 products (−128)² are 2^24; two equal rows keep numpy from a shorter way."""
    row = [-128] * 1024
    check([row, row], [row, row], (8, 8))
    assert engines == ["float32"]


def test_one_more_product_needs_double_precision(engines: list[str]) -> None:
    """2^24 + 1 is no 24-bit significand: in single precision every order of the sum fails."""
    row, other = [*[-128] * 1024, 1], [*[-128] * 1024, 1]
    check([row, row], [other, other], (8, 8))
    assert engines == ["float64"]
    in_single = np.float32(0)
    for a, b in zip(row, other, strict=True):
        in_single += np.float32(a) * np.float32(b)
    assert int(in_single) != F32 + 1


def test_a_small_sum_can_hide_inexact_partial_sums(engines: list[str]) -> None:
    """The bound is on the sum of magnitudes: 2^24 + 1 − 2^24 is 1, and single precision would give 0."""
    row, other = [4096, 1, 4096], [4096, 1, -4096]
    check([row, row], [other, other], (14, 14))
    assert engines == ["float64"]
    assert np.float32(F32) + np.float32(1) - np.float32(F32) == 0


def test_actual_values_may_allow_what_their_words_do_not(engines: list[str]) -> None:
    row = [100] * 64
    check([row, row], [row, row], (32, 32))
    assert engines == ["float32"]


def test_the_last_sum_that_double_precision_holds(engines: list[str]) -> None:
    row, other = [1 << 26] * 2, [1 << 26] * 2
    check([row, row], [other, other])
    assert engines == ["float64"]


def test_one_more_product_needs_integers(engines: list[str]) -> None:
    row, other = [1 << 26, 1 << 26, 1], [1 << 26, 1 << 26, 1]
    check([row, row], [other, other])
    assert engines == ["int64"]
    assert int(np.float64(F64) + 1) != F64 + 1


@pytest.mark.parametrize("extra", [0, 1])
def test_sums_at_the_edge_of_64_bits(extra: int, engines: list[str]) -> None:
    row = [1 << 31, 1 << 31, extra]
    other = [(1 << 31) - 1, 1 << 30, 1]
    check([row, row], [other, other])
    check([[-a for a in row], row], [other, other])
    row = [-(1 << 61), 1 << 61, 1 << 61]
    check([row, row], [[2, 2, 2], [2, -2, extra]])
    assert "float64" not in engines


def test_products_beyond_64_bits_stay_exact() -> None:
    row = [(1 << 61) - 1, -(1 << 61), 7]
    check([row, row], [row, [1, 1, 1 << 61]])


SIZES = st.sampled_from([2, 3, 7, 64, 65, 257, 1024, 1025])


@settings(max_examples=60)
@given(SIZES, st.integers(1, 31), st.integers(1, 31), st.integers(0, 1 << 30), st.booleans())
def test_products_of_extreme_words(count: int, left: int, right: int, seed: int, same_sign: bool) -> None:
    """Operands at the ends of their words, the worst case for every bound."""
    rng = np.random.default_rng(seed)

    def extremes(rows: int, bits: int) -> list[list[int]]:
        low, high = -(1 << bits - 1), (1 << bits - 1) - 1
        picked = np.full((rows, count), low) if same_sign else rng.choice([low, high, low + 1, high - (bits > 1)], (rows, count))
        return picked.tolist()

    check(extremes(3, left), extremes(2, right), (left, right))


@settings(max_examples=40)
@given(st.integers(1, 8), st.integers(0, 1 << 30), st.sampled_from([(8, 8), (16, 8), (16, 16)]))
def test_a_fold_of_rounded_blocks(blocks: int, seed: int, bits: tuple[int, int]) -> None:
    """Blocks of eight products, rounded and saturated in order: whole-length products would be wrong."""
    rng = np.random.default_rng(seed)
    words = [iv.of_width(b, True) for b in bits]
    x, y = (Leaf((3, blocks * 8), w, False, n) for w, n in zip(words, "xy", strict=True))

    def element(i: object, j: object) -> object:
        def step(k: object, total: object) -> object:
            lanes = reduce_sum(lambda c: x[i, k * 8 + c] * y[j, k * 8 + c], 8)
            return sat(total + sat(shift_right(lanes, 6, "half_up"), 16), 16)

        return fold(blocks, 0, step, iv.of_width(16, True))

    a, b = (rng.integers(w[0], w[1], (3, blocks * 8), endpoint=True) for w in words)

    def clamp(v: int) -> int:
        return min(max(v, -(1 << 15)), (1 << 15) - 1)

    expected = np.zeros((3, 3), int)
    for i in range(3):
        for j in range(3):
            for k in range(blocks):
                block = slice(k * 8, k * 8 + 8)
                lanes = sum(int(u) * int(v) for u, v in zip(a[i, block], b[j, block], strict=True))
                expected[i, j] = clamp(int(expected[i, j]) + clamp((lanes + 32) >> 6))
    found = evaluate(array(element, (3, 3)), {x: a, y: b})  # type: ignore[arg-type]
    assert (found == expected).all()
