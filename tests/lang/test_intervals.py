"""Intervals are sound for every operator, and tight where their functions say so."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from walker import MEANING, Undefined

from rewrite_compiler.lang import intervals as iv
from rewrite_compiler.lang.expr import ARITHMETIC
from rewrite_compiler.lang.intervals import Interval

SMALL = st.integers(-20, 20)
LARGE = st.one_of(SMALL, st.integers(-(1 << 70), 1 << 70))
AMOUNT = st.integers(0, 80)
BINARY = sorted(op for op in ARITHMETIC if op not in ("neg", "not", "select"))
SHIFTS = ("shl", "shr")
# operators whose interval of two bounded operands is the hull of the values, no wider
TIGHT = ("add", "sub", "mul", "div", "tdiv", "shl", "shr", "min", "max")


def around(value: int, low_by: int | None, high_by: int | None) -> Interval:
    return None if low_by is None else value - low_by, None if high_by is None else value + high_by


@st.composite
def intervals_with_a_value(draw: st.DrawFn, values: st.SearchStrategy[int], lowest: int | None = None) -> tuple[Interval, int]:
    value = draw(values)
    slack = st.one_of(st.none(), st.integers(0, 5), st.integers(0, 1 << 40))
    low, high = around(value, draw(slack), draw(slack))
    return (low if lowest is None else max(lowest, lowest if low is None else low), high), value


def holds(a: Interval, x: int) -> bool:
    return (a[0] is None or a[0] <= x) and (a[1] is None or x <= a[1])


@pytest.mark.parametrize("op", BINARY)
@settings(max_examples=200)
@given(data=st.data())
def test_every_value_is_inside(op: str, data: st.DataObject) -> None:
    a, x = data.draw(intervals_with_a_value(LARGE))
    b, y = data.draw(intervals_with_a_value(AMOUNT, 0) if op in SHIFTS else intervals_with_a_value(LARGE))
    try:
        value = MEANING[op](None, x, y)
    except Undefined:
        return
    assert holds(ARITHMETIC[op](a, b), value), (a, b, x, y, value)


@pytest.mark.parametrize("op", BINARY)
def test_every_small_interval(op: str) -> None:
    ends = (-7, -4, -1, 0, 1, 3, 8)
    spans = [(a, b) for a in ends for b in ends if a <= b]
    for a, b in itertools.product(spans, spans):
        if op in SHIFTS and b[0] < 0:
            continue
        values = [v for x in range(a[0], a[1] + 1) for y in range(b[0], b[1] + 1) if (v := value_or_none(op, x, y)) is not None]
        if not values:
            continue
        low, high = ARITHMETIC[op](a, b)
        assert low is not None
        assert high is not None
        assert low <= min(values), (a, b)
        assert max(values) <= high, (a, b)
        if op in TIGHT:
            assert (low, high) == (min(values), max(values)), (a, b)


def value_or_none(op: str, x: int, y: int) -> int | None:
    try:
        return int(MEANING[op](None, x, y))
    except Undefined:
        return None


@pytest.mark.parametrize("op", BINARY)
@settings(max_examples=100)
@given(data=st.data())
def test_an_interval_grows_with_its_operands(op: str, data: st.DataObject) -> None:
    """What holds for part of the operands' values holds for all of them: never a narrower result for wider operands."""
    a, x = data.draw(intervals_with_a_value(SMALL))
    b, y = data.draw(intervals_with_a_value(AMOUNT, 0) if op in SHIFTS else intervals_with_a_value(SMALL))
    if value_or_none(op, x, y) is not None:
        assert iv.inside(ARITHMETIC[op]((x, x), (y, y)), ARITHMETIC[op](a, b))


@pytest.mark.parametrize("op", ["bitand", "bitor", "bitxor"])
def test_bits_of_zeros_are_zeros(op: str) -> None:
    assert ARITHMETIC[op]((0, 0), (0, 0)) == (0, 0)


@given(intervals_with_a_value(LARGE), st.integers(1, 70), st.booleans())
def test_words(found: tuple[Interval, int], bits: int, signed: bool) -> None:
    a, x = found
    low, high = iv.of_width(bits, signed)
    assert high is not None
    assert low is not None
    assert high - low + 1 == 1 << bits
    word = iv.width_of(a)
    if word is None:
        assert not iv.is_bounded(a)
        return
    assert holds(iv.of_width(*word), x)
    narrower = word[0] - 1
    assert narrower < 1 or not iv.inside(a, iv.of_width(narrower, word[1])) or (a == (0, 0) and word == (1, False))


@given(intervals_with_a_value(LARGE), intervals_with_a_value(LARGE))
def test_hull_and_inside(first: tuple[Interval, int], second: tuple[Interval, int]) -> None:
    (a, x), (b, y) = first, second
    both = iv.hull(a, b)
    assert iv.inside(a, both)
    assert iv.inside(b, both)
    assert holds(both, x)
    assert holds(both, y)
    if iv.inside(a, b):
        assert holds(b, x)


@given(intervals_with_a_value(SMALL), st.integers(0, 6), st.integers(0, 6), st.data())
def test_a_sum_of_several_values(found: tuple[Interval, int], least: int, more: int, data: st.DataObject) -> None:
    a, _ = found
    count = data.draw(st.integers(least, least + more))
    low, high = (-40 if a[0] is None else a[0]), (40 if a[1] is None else a[1])
    values = data.draw(st.lists(st.integers(min(low, high), high), min_size=count, max_size=count))
    assert holds(iv.scale(a, (least, least + more)), sum(values))
    assert holds(iv.scale(a, (least, None)), sum(values))


@given(intervals_with_a_value(LARGE), SMALL, st.integers(0, 20))
def test_clamp(found: tuple[Interval, int], low: int, span: int) -> None:
    a, x = found
    assert holds(iv.clamp(a, (low, low + span)), min(max(x, low), low + span))


def test_a_shift_by_a_huge_amount_stays_open() -> None:
    """The bounds of 2^(2^31) are not computed."""
    assert iv.shift_left((0, 1), (0, 1 << 31)) == (0, None)
    assert iv.shift_left((-1, 1), (0, 1 << 31)) == (None, None)
    assert iv.shift_left((0, 0), (0, 1 << 31)) == (0, 0)
    assert iv.shift_right((-5, 9), (1, 1 << 40)) == (-3, 4)


OPEN: dict[str, Callable[[Interval, Interval], Interval]] = {k: ARITHMETIC[k] for k in BINARY}


@pytest.mark.parametrize("op", BINARY)
def test_open_operands_are_accepted(op: str) -> None:
    for a, b in itertools.product([(None, None), (0, None), (None, 5), (3, 9)], repeat=2):
        low, high = OPEN[op](a, b)
        assert low is None or high is None or low <= high


@pytest.mark.parametrize("op", BINARY)
def test_every_small_value_is_inside_of_open_intervals(op: str) -> None:
    spans = [(a, b) for a in (None, -3, 0, 2) for b in (None, -1, 0, 3) if a is None or b is None or a <= b]
    for a, b in itertools.product(spans, spans):
        if None not in (*a, *b) or (op in SHIFTS and (b[0] is None or b[0] < 0)):
            continue
        found = ARITHMETIC[op](a, b)
        for x, y in itertools.product((-7, -3, -1, 0, 2, 3, 6), (-4, -1, 0, 1, 3, 5)):
            value = value_or_none(op, x, y) if holds(a, x) and holds(b, y) else None
            assert value is None or holds(found, value), (a, b, x, y)


@pytest.mark.parametrize(
    ("interval", "word"),
    [
        ((0, 0), (1, False)),
        ((0, 255), (8, False)),
        ((-128, 127), (8, True)),
        ((-129, 0), (9, True)),
        ((-1, 0), (1, True)),
        ((-1, 128), (9, True)),
    ],
)
def test_the_narrowest_word_of_an_interval(interval: Interval, word: tuple[int, bool]) -> None:
    assert iv.width_of(interval) == word


def test_a_remainder_has_the_sign_of_what_is_divided() -> None:
    assert iv.trunc_mod((-5, 0), (3, 3)) == (-2, 0)
    assert iv.trunc_mod((0, 5), (3, 3)) == (0, 2)
    assert iv.trunc_mod((-5, 5), (-3, 2)) == (-2, 2)


@pytest.mark.parametrize(("interval", "count"), [
    ((0, 0), 1), ((0, 255), 1), ((-128, 127), 1), ((0, 256), 2), ((-129, 0), 2), ((0, 65535), 2), ((0, 65536), 4), ((0, 2**32 - 1), 4),
    ((-(2**31), 5), 4), ((0, 2**32), 8), ((-(2**31) - 1, 0), 8), ((0, 2**80), 8), ((None, 3), 8), ((3, None), 8),
])  # fmt: skip
def test_the_bytes_of_the_narrowest_machine_word(interval: Interval, count: int) -> None:
    assert iv.storage_bytes(interval) == count


def test_a_conjunction_is_no_larger_than_an_operand_that_is_not_negative() -> None:
    assert iv.bit_and((0, 3), (-8, 7)) == iv.bit_and((-8, 7), (0, 3)) == iv.bit_and((0, 3), (None, None)) == (0, 3)
    assert iv.bit_and((0, None), (1, 6)) == (0, 6)
