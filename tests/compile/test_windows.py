"""Windows of a move are its places for every element, and operands that are read through them give the bits of copies."""

from __future__ import annotations

import numpy as np
import pytest

from rewrite_compiler.compile.host.data_movement import Move
from rewrite_compiler.compile.host.windows import windows_of
from rewrite_compiler.ir.program import Data, Value
from rewrite_compiler.kernels import Lowered, NotLowered
from rewrite_compiler.kernels.windows import Digit, ImplicitIm2col, Windows
from rewrite_compiler.lang import Array, Expr, Leaf, Table, array, reduce_max, reduce_sum, select
from rewrite_compiler.readings.kernels.evaluate import evaluate_together

RNG = np.random.default_rng(0)
# channels, height, width, kernel, stride, pads before and after, whether channels are the last axis of the root
CONVOLUTIONS = [
    (3, 8, 8, 3, 1, (1, 1), False), (4, 8, 6, 3, 1, (1, 1), True), (4, 8, 8, 3, 2, (0, 1), False), (2, 9, 9, 3, 2, (1, 1), True),
    (1, 7, 5, 2, 1, (0, 0), False), (5, 6, 6, 1, 2, (0, 0), True), (2, 12, 12, 5, 1, (2, 2), False), (2, 6, 8, 3, 1, (1, 1), True),
]  # fmt: skip


def places_of(channels: int, height: int, width: int, kernel: int, stride: int, pads: tuple[int, int], is_last: bool) -> tuple[Data, int]:
    """Return the places of rows of windows, [positions, channels · kernel²], and the size of what they are windows of."""
    numbers = 1 + np.arange(channels * height * width).reshape(channels, height, width)
    if is_last:
        numbers = np.moveaxis(1 + np.arange(channels * height * width).reshape(height, width, channels), -1, 0)
    padded = np.pad(numbers, ((0, 0), pads, pads))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), axis=(1, 2))[:, ::stride, ::stride]
    found = windows.transpose(1, 2, 0, 3, 4)
    return found.reshape(found.shape[0] * found.shape[1], -1).astype(np.intp), channels * height * width


def placed(w: Windows) -> Data:
    """Return the places that windows say, element by element."""
    shape = [d.extent for digits in w.digits for d in digits]
    along = [np.full(shape, first) for first in w.origin]
    for n, d in enumerate(d for digits in w.digits for d in digits):
        along[d.axis] = along[d.axis] + d.step * np.arange(d.extent).reshape([-1 if k == n else 1 for k in range(len(shape))])
    inside = np.logical_and.reduce([(x >= 0) & (x < n) for x, n in zip(along, w.shape, strict=True)])
    return np.where(inside, 1 + np.ravel_multi_index([np.clip(x, 0, n - 1) for x, n in zip(along, w.shape, strict=True)], w.shape), 0)


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_rows_of_convolutions_have_windows(case: tuple[int, int, int, int, int, tuple[int, int], bool]) -> None:
    places, size = places_of(*case)
    found = windows_of(places, size)
    assert found is not None
    assert np.array_equal(placed(found).reshape(places.shape), places)


@pytest.mark.parametrize("change", ["one element", "one zero", "other order"])
def test_what_is_no_window_for_every_element_is_none(change: str) -> None:
    places, size = places_of(4, 8, 6, 3, 1, (1, 1), True)
    at = 20, 20
    if change == "one element":
        places[at] = places[at] % size + 1
    elif change == "one zero":
        places[at] = 0
    else:
        places = RNG.permutation(places.reshape(-1)).reshape(places.shape)
    assert windows_of(places, size) is None


DECODED = Table("decoded", lambda c: select(c < 128, c * c, -c - 7 * c % 11), (0, 255))


def product(shape: tuple[int, ...], outer: int, low: int, high: int, *, is_decoded: bool) -> tuple[Leaf, Leaf, Array]:
    """Return rows times a matrix."""
    rows, inner = shape
    x, w = Leaf((rows, inner), (low, high), False, "x"), Leaf((outer, inner), (low, high), False, "w")

    def factor(e: Expr) -> Expr:
        return DECODED(e) if is_decoded else e

    return x, w, array(lambda t, n: reduce_sum(lambda k: factor(x[t, k]) * factor(w[n, k]), inner) + n, (rows, outer))


@pytest.mark.parametrize("samples", [1, 3, 17])
@pytest.mark.parametrize("is_decoded", [False, True])
@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_products_of_windows_give_the_bits_of_copies(
    case: tuple[int, int, int, int, int, tuple[int, int], bool], is_decoded: bool, samples: int
) -> None:
    places, size = places_of(*case)
    low, high, zero = (0, 255, 7) if is_decoded else (-128, 127, -3)
    x, w, term = product(places.shape, 6, low, high, is_decoded=is_decoded)
    found = windows_of(places, size)
    assert found is not None
    unfolded = ImplicitIm2col([term], x, found, zero)
    kind = np.uint8 if is_decoded else np.int8
    root, matrix = RNG.integers(low, high + 1, (samples, size)).astype(kind), RNG.integers(low, high + 1, (6, places.shape[1])).astype(kind)
    copies = Move(Value(0), places, size)(root, zero)
    made = Lowered(unfolded.results, [unfolded.source], samples)
    assert not made.notes
    (y,) = made(unfolded.operands_of({w: matrix}, root))
    wide = evaluate_together(term, {x: copies.astype(np.int64)}, {w: matrix.astype(np.int64)})
    assert np.array_equal(y.reshape(wide.shape), wide)


WINDOWS = Windows((6,), (-1,), ((Digit(2, 0, 3), Digit(3, 0, 1)),))


def test_maxima_and_other_operands_follow_the_digits() -> None:
    x, y = Leaf((6,), (-9, 9), False, "x"), Leaf((6,), (-9, 9), False, "y")
    term = array(lambda n: reduce_max(lambda k: x[k] * (y[k] + n * k), 6), (4,))
    unfolded = ImplicitIm2col([term], x, WINDOWS, 2)
    root, other = RNG.integers(-9, 10, (3, 6)).astype(np.int8), RNG.integers(-9, 10, (3, 6)).astype(np.int8)
    (found,) = Lowered(unfolded.results, [unfolded.source, unfolded.reshaped_operands[y]], 3)(unfolded.operands_of({y: other}, root))
    copies = np.concatenate([np.full((3, 1), 2), root[:, :5]], axis=1)
    assert np.array_equal(found, evaluate_together(term, {x: copies.astype(np.int64), y: other.astype(np.int64)}, {}))


@pytest.mark.parametrize("index", [lambda k: k + 1, lambda k: 2 * k, lambda k: 5 - k])
def test_other_indices_are_refused(index: object) -> None:
    x = Leaf((6,), (-9, 9), False, "x")
    term = array(lambda n: reduce_sum(lambda k: x[index(k)] + n, 3), (4,))  # type: ignore[operator]
    with pytest.raises(NotLowered, match="not read by one variable"):
        ImplicitIm2col([term], x, WINDOWS, 0)


def test_a_variable_over_two_axes_has_the_same_digits_on_both() -> None:
    x = Leaf((6, 6), (-9, 9), False, "x")
    digits = (Digit(2, 0, 3), Digit(3, 0, 1)), (Digit(3, 1, 2), Digit(2, 1, 1))
    term = array(lambda n: reduce_sum(lambda k: x[k, k] + n, 6), (4,))
    with pytest.raises(NotLowered, match="whose axes one variable runs over in two ways"):
        ImplicitIm2col([term], x, Windows((6, 6), (0, 0), digits), 0)
