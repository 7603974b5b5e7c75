"""The array algebra of drivers: machine integers and a proof's terms are laid out alike, and come back as they were."""

from __future__ import annotations

import numpy as np
import pytest
import z3
from hypothesis import given
from hypothesis import strategies as st

from rewrite_compiler.readings.smt.polynomial_terms import Terms
from rewrite_compiler.target import join_bytes, low_bits, pad_axis, split_bytes, tile, untile, widen

WORDS = np.array([[0, 1, -1, 255], [-256, 2**31 - 1, -(2**31), 77]])


@pytest.mark.parametrize("kind", [np.int64, object])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 8])
def test_words_are_split_and_joined(kind: type, count: int) -> None:
    words = np.clip(WORDS, -(1 << 8 * count - 1), (1 << 8 * count - 1) - 1).astype(kind)
    split = split_bytes(words, count)
    assert split.shape == (2, 4 * count)
    assert split.reshape(-1, count)[3].tolist() == list(int(words[0, 3]).to_bytes(count, "little", signed=True))
    assert np.array_equal(join_bytes(split.reshape(2, 4, count)), words)


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int16, np.uint16, np.int32])
def test_codes_of_any_type_become_words(kind: type) -> None:
    codes = np.array([np.iinfo(kind).min, 0, 5, np.iinfo(kind).max], kind)
    assert np.array_equal(split_bytes(codes, 4), split_bytes(codes.astype(np.int64), 4))


def test_bytes_that_do_not_lie_side_by_side() -> None:
    planes = np.stack([split_bytes(WORDS.reshape(-1) >> 8 * n) for n in range(4)])
    assert planes.dtype == np.uint8
    assert np.array_equal(join_bytes(planes.T), WORDS.reshape(-1))


def test_terms_are_split_and_joined() -> None:
    x = z3.Int("x")
    words = np.array([x, 5], object)
    back = join_bytes(split_bytes(words, 2).reshape(2, 2))
    solver = z3.Solver()
    solver.add(x >= -(1 << 15), x < 1 << 15, back[0] != x)
    assert solver.check() == z3.unsat
    assert back[1] == 5


def test_the_bytes_above_a_code_are_the_number_zero() -> None:
    code = Terms().variable("x", (0, 255))
    first, *above = split_bytes(np.array([code], object), 4)
    assert first is code
    assert [(type(x), x) for x in above] == [(int, 0)] * 3


@pytest.mark.parametrize("kind", [np.int16, object])
@pytest.mark.parametrize(("bits", "expected"), [(8, 254), (4, 14)])
def test_low_bits(kind: type, bits: int, expected: int) -> None:
    assert low_bits(np.array([-2, 3], kind), bits).tolist() == [expected, 3]


def test_widening_leaves_terms_alone() -> None:
    assert widen(np.array([1], np.uint8)).dtype == np.int64
    assert widen(np.array([z3.Int("x")], object)).dtype == object


@pytest.mark.parametrize("kind", [np.int8, object])
def test_padding(kind: type) -> None:
    x = np.array([[1, 2], [3, 4]], kind)
    assert pad_axis(x, -1, 3).tolist() == [[1, 2, 0], [3, 4, 0]]
    assert pad_axis(x, 0, 2) is x


@given(
    st.lists(st.integers(0, 7), min_size=3, max_size=3), st.lists(st.integers(1, 4), min_size=2, max_size=2), st.permutations([-3, -2, -1])
)
def test_tiles_and_back(shape: list[int], sizes: list[int], order: list[int]) -> None:
    x, axes = np.arange(np.prod(shape)).reshape(shape) + 1, order[:2]
    blocks = tile(x, dict(zip(axes, sizes, strict=True)))
    assert blocks.shape[3:] == tuple(sizes)
    assert blocks.sum() == x.sum()
    back = untile(blocks, axes)
    assert np.array_equal(back[tuple(map(slice, shape))], x)
    assert back.sum() == x.sum()
    assert np.array_equal(tile(x.astype(object), dict(zip(axes, sizes, strict=True))), blocks)


def test_tiles_with_zeros_around_other_axes() -> None:
    x = np.arange(1, 7).reshape(3, 2)
    assert tile(x, {0: 2}, {-1: (1, 0)}).tolist() == [[[0, 0], [1, 3], [2, 4]], [[0, 0], [5, 0], [6, 0]]]


def test_large_tiles() -> None:
    x = np.arange(2 * 70 * 40 * 30, dtype=np.int16).reshape(2, 70, 40, 30)
    blocks = tile(x, {-3: 16})
    expected = np.moveaxis(np.pad(x, [(0, 0), (0, 10), (0, 0), (0, 0)]).reshape(2, 5, 16, 40, 30), 2, -1)
    assert np.array_equal(blocks, expected)
    assert np.array_equal(untile(blocks, [-3])[:, :70], x)
