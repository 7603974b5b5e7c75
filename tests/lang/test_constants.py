"""What a tape keeps of contents that do not change: one copy of each, in place, whatever becomes of the original."""

from __future__ import annotations

from collections.abc import Callable
from weakref import ref

import numpy as np
import pytest

from rewrite_compiler.lang.tape import LARGE, PAGE, Tape

SIDE = 64
assert 2 * SIDE * SIDE >= LARGE


def weights() -> np.ndarray:
    return np.arange(SIDE * SIDE, dtype=np.int16).reshape(SIDE, SIDE)


VIEWS = (lambda x: x, lambda x: x[::-1], lambda x: x[:, 1:], lambda x: x.T, lambda x: np.broadcast_to(x, (3, *x.shape)))


@pytest.mark.parametrize("seen", VIEWS)
def test_equal_contents_are_held_once(seen: Callable[[np.ndarray], np.ndarray]) -> None:
    tape, first, second = Tape(0), seen(weights()), seen(weights())
    kept = tape.steady(first)
    assert tape.steady(second) is kept
    assert kept.strides == first.strides
    assert not np.may_share_memory(kept, first)
    np.testing.assert_array_equal(kept, first)


def test_one_element_makes_another_copy() -> None:
    """Also where it is none of those that are looked at first."""
    tape, other = Tape(0), weights()
    kept = tape.steady(weights())
    for place in range(SIDE):
        other[0, place] += 1
        assert tape.steady(other) is not kept
        other[0, place] -= 1
    assert tape.steady(other) is kept


def test_what_changes_later_is_kept_as_it_was() -> None:
    tape, given = Tape(0), weights()
    kept = tape.steady(given)
    given[...] = 0
    np.testing.assert_array_equal(kept, weights())
    assert not tape.steady(given).any()


def test_types_and_layouts_are_told_apart() -> None:
    tape = Tape(0)
    kept = [tape.steady(x) for x in (weights(), weights().astype(np.uint16), np.asfortranarray(weights()), weights().reshape(-1))]
    assert len({id(x) for x in kept}) == len(kept)


def test_floats_that_are_equal_may_have_other_bits() -> None:
    tape, zeros = Tape(0), np.zeros(LARGE, np.float32)
    kept = [tape.steady(x) for x in (zeros, -zeros)]
    assert [bool(np.signbit(x).any()) for x in kept] == [False, True]


def test_copies_begin_where_a_line_of_a_cache_does() -> None:
    assert Tape(0).steady(weights()).ctypes.data % PAGE == 0


def test_copies_end_with_their_calls() -> None:
    tape = Tape(0)
    gone = ref(tape.steady(weights()))
    assert gone() is None
    np.testing.assert_array_equal(tape.steady(weights()), weights())


def test_what_is_made_of_them_is_made_once_and_ends_with_them() -> None:
    tape, made = Tape(0), list[np.ndarray]()

    def doubled(x: np.ndarray) -> np.ndarray:
        made.append(2 * x)
        return made[-1]

    kept, other = tape.steady(weights()), tape.steady(weights() + 1)
    found = tape.once(kept, doubled)
    np.testing.assert_array_equal(found, 2 * weights())
    assert tape.once(kept, doubled) is found
    np.testing.assert_array_equal(tape.once(other, doubled), 2 * (weights() + 1))
    assert len(made) == 2
    gone = ref(found)
    del kept, found
    assert gone() is None
