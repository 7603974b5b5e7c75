"""Twins: the calls of a tape on memory of their own."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from rewrite_compiler.lang.tape import Copied, Diverged, Ran, Span, Tape, must_hold
from rewrite_compiler.lang.twin import NoTwin, Twin


def test_arrays_and_calls_lie_at_the_same_places_of_other_blocks() -> None:
    tape, weights = Tape(0), np.arange(12, dtype=np.int16).reshape(3, 4)
    given, out = tape.empty((3, 4), np.int16), tape.empty((3, 4), np.int32)
    turned = tape.steady(given)[::-1, 1:]
    tape.assign(out[:, 1:], turned)
    twin = Twin(tape.arena)
    assert twin.of(weights) is weights
    other = twin.of(turned)
    assert (other.shape, other.strides, other.dtype) == (turned.shape, turned.strides, turned.dtype)
    assert not np.may_share_memory(other, given)
    given[...], out[...] = 7, 7
    twin.of(given)[...] = weights
    copy = twin.call(tape.calls[0])
    assert isinstance(copy, Copied)
    copy()
    np.testing.assert_array_equal(twin.of(out)[:, 1:], weights[::-1, 1:])
    assert (out == 7).all()


def test_machine_code_is_called_on_the_other_blocks() -> None:
    tape, asked = Tape(0), list[list[int]]()
    data, fixed, out = tape.empty((8,), np.int16), np.zeros(8, np.int16), tape.empty((4,), np.int32)

    def bind(places: list[int]) -> object:
        asked.append(list(places))
        return lambda: None

    call = Ran(tape.steady(out), [Span(tape.steady(data), 2, 6), Span(fixed, 0, 8)], bind, None, "key")  # type: ignore[arg-type]
    twin = Twin(tape.arena)
    made = twin.call(call)
    assert isinstance(made, Ran)
    made.reads[0].flat[...] = 5
    np.testing.assert_array_equal(twin.of(tape.steady(data))[2:6], 5)
    first, second = asked
    assert first[2] == second[2] == fixed.ctypes.data
    assert second[:2] == [twin.of(tape.steady(x)).ctypes.data for x in (out, data)]


def test_a_condition_holds_for_the_other_contents() -> None:
    tape = Tape(0)
    truth = tape.steady(tape.empty((2,), np.bool_))
    truth[...] = True
    twin = Twin(tape.arena)
    check = twin.call(partial(must_hold, truth))
    with pytest.raises(Diverged):
        check()
    twin.of(truth)[...] = True
    check()


def test_what_numpy_computes_from_arrays_of_its_own_has_no_twin() -> None:
    tape = Tape(0)
    data, total = tape.empty((3,), np.int32), tape.empty((3,), np.int32)
    steady = tape.steady(data)
    tape.again(total, lambda: steady + 1)
    with pytest.raises(NoTwin, match="cannot be made for other memory"):
        Twin(tape.arena).call(tape.calls[0])
