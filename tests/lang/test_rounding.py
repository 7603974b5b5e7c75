"""Functions of words that round: found from their values, and not where one value is another."""

from __future__ import annotations

import numpy as np
import pytest

from rewrite_compiler.ila_models.flexasr.numerics import ENCODE, WORD20
from rewrite_compiler.lang import AdaptivFloat
from rewrite_compiler.lang.arrays import table_data
from rewrite_compiler.lang.codes import values_of
from rewrite_compiler.lang.rounding import Rounding, rounding

END = (1 << 19) - 1


def through(bias: int, words: np.ndarray) -> np.ndarray:
    codes = table_data(ENCODE[bias])[words - WORD20[0]]
    return values_of(AdaptivFloat(bias=bias), codes).astype(np.float32)


@pytest.mark.parametrize("bias", [0, 3, 7])
def test_encoding_and_decoding_words_is_a_rounding(bias: int) -> None:
    found = rounding(lambda words: through(bias, words), -END, END)
    assert isinstance(found, Rounding)
    assert found.drop == 19
    words = np.arange(-END, END + 1, dtype=np.int32)
    np.testing.assert_array_equal(found(words).view(np.int32), through(bias, words).view(np.int32))


def test_halves_that_go_up_on_one_side_only_are_told_apart() -> None:
    def half_up(words: np.ndarray) -> np.ndarray:
        size = np.maximum(np.frexp(words.astype(np.float64))[1] - 5, 0)
        return np.ldexp(np.floor(np.ldexp(words.astype(np.float64), -size) + 0.5), size).astype(np.float32)

    found = rounding(half_up, -END, END)
    assert found is not None
    assert found.positive == found.negative + 1


def test_a_function_that_differs_in_one_word_is_no_rounding() -> None:
    def odd(words: np.ndarray) -> np.ndarray:
        return through(3, np.where(words == 12_345, 13_400, words))

    assert rounding(odd, -END, END) is None


@pytest.mark.parametrize("ends", [(0, END), (-END, 1), (-(1 << 25), 1 << 25)])
def test_words_of_one_sign_and_those_that_floats_do_not_hold_are_left_alone(ends: tuple[int, int]) -> None:
    assert rounding(lambda words: words.astype(np.float32), *ends) is None


def test_functions_without_a_scale_or_end_are_no_roundings() -> None:
    assert rounding(lambda words: np.zeros(words.shape, np.float32), -END, END) is None
    assert rounding(lambda words: np.full(words.shape, np.inf, np.float32), -END, END) is None
