"""What no term can be made of is refused where it is written, with the operands and the range that they had to have."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rewrite_compiler.errors import SpecError
from rewrite_compiler.lang import Leaf, Table, array, assign, call, clz, extract, floor, lift, round_even, rounded, shift_right
from rewrite_compiler.lang.binders import static_shape
from rewrite_compiler.lang.expr import const, var
from rewrite_compiler.lang.step_parser import MOST_CHARACTERS, leaves_and_tables, parse_step

N, R = Leaf((), (-3, 8), False, "n")[()], Leaf((), (None, None), True, "r")[()]
A, K = Leaf((4,), (0, 7), False, "a"), Leaf((), (0, 255), False, "k")
SQUARE, OTHER = (Table("f", lambda n, m=m: n * m, (0, 3)) for m in (2, 3))

REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "a rounding of shifts": (lambda: shift_right(N, 2, "up"), 'there is no rounding "up"'),
    "a rounding of reals": (lambda: rounded(R, "up"), 'there is no rounding "up"'),
    "a real function": (lambda: call("cube", R), 'there is no real function "cube"'),
    "a negation": (lambda: ~N, "~ needs a truth value (0 or 1), not n[] in (-3, 8)"),
    "bits of what may be negative": (lambda: extract(N, 0, 2), "a bit field needs a non-negative integer, not n[] in (-3, 8)"),
    "bits of a real": (lambda: extract(R, 0, 2), "a bit field needs a non-negative integer, not r[] in (None, None)"),
    "zeros before what may be negative": (lambda: clz(N, 4), "clz of 4 bits needs a value in 0…15, not n[] in (-3, 8)"),
    "zeros of a narrower word": (lambda: clz(K[()], 7), "clz of 7 bits needs a value in 0…127, not k[] in (0, 255)"),
    "a quotient by zero": (lambda: const(3) // 0, "div of 3 by zero"),
    "a remainder by zero": (lambda: const(3) % 0, "mod of 3 by zero"),
    "a negative shift": (lambda: const(3) << -1, "shift of 3 by the negative amount -1"),
    "a shift to the right by less than none": (lambda: const(3) >> -1, "shift of 3 by the negative amount -1"),
    "bits of two reals": (lambda: R & R, "bitand needs integers, not r[] and r[]"),
    "an index too many": (lambda: A[0, 0], "a has 1 axes, not 2"),
    "a real index": (lambda: A[R], "axis 0 of a is indexed by a real term"),
    "an index below": (lambda: A[-1], "axis 0 of a has 4 elements; index -1 is always outside"),
    "an index behind the end": (lambda: A[4], "axis 0 of a has 4 elements; index 4 is always outside"),
    "ten axes": (lambda: array(lambda *_: 0, (1,) * 10), "an array has at most 9 axes, not 10"),
    "a shape that is a term": (
        lambda: static_shape(array(lambda i: i, (K[()],))),
        "the shape of an array must be known, not (k[],)",
    ),
    "a table without an end": (lambda: Table("g", lambda n: n, (0, None)), "table g needs a bounded domain, not (0, None)"),
    "a table of 2^21": (lambda: Table("g", lambda n: n, (1, 1 << 21)), "table g has 2097152 entries, more than 2^20"),
    "a table of something else": (
        lambda: Table("g", lambda n: n + var("m"), (0, 3)),
        "table g uses a variable that is not one of its parameters",
    ),
    "an entry that is not there": (lambda: SQUARE(N), "table f is defined on (0, 3), not on (-3, 8)"),
    "two tables of a name": (
        lambda: leaves_and_tables(assign(A, SQUARE(A[0] & 3) + OTHER(A[1] & 3) & 7, 0)),
        "two tables of a step are called f",
    ),
    "a long step": (
        lambda: parse_step(" " * (MOST_CHARACTERS + 1), {}),
        f"a step has at most {MOST_CHARACTERS} characters, not {MOST_CHARACTERS + 1}",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_with_its_operands(name: str) -> None:
    make, sentence = REFUSED[name]
    with pytest.raises(SpecError) as refusal:
        make()
    assert refusal.value.problem.sentence == sentence


def test_what_just_fits_is_a_term() -> None:
    """The neighbours of what is refused above."""
    assert clz(K[()], 8).interval == (0, 8)
    assert Table("g", lambda n: n, (1, 1 << 20)).shape == (1 << 20,)
    assert A[3].interval == A[0].interval == (0, 7)
    assert array(lambda *_: 0, (1,) * 9).rank == 9
    assert static_shape(array(lambda i: i, (4,))) == (4,)
    assert SQUARE(3).op == "table"


def test_integers_are_rounded_already_and_constants_at_once() -> None:
    assert rounded(N, "half_even") is N
    assert floor(N) is N
    assert round_even(N) is N
    half = lift(5) / 2
    assert [floor(half).value, round_even(half).value, round_even(lift(7) / 2).value] == [2, 2, 4]
    assert clz(const(5), 8).value == 5
    assert extract(const(0b1101), 1, 2).value == 0b10
