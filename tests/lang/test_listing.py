"""Listings of steps for readers: short variables, choices as cases, names for long terms that occur again."""

from __future__ import annotations

import pytest

from rewrite_compiler.lang import (
    NOTHING,
    Expr,
    Leaf,
    Step,
    Table,
    array,
    assign,
    extract,
    fold,
    let,
    loop,
    reduce_max,
    reduce_sum,
    require,
    select,
    seq,
    together,
    update,
    when,
    wrap,
)
from rewrite_compiler.lang.listing import LONG_TERM, StepWriter, diagnostics_of, step_listing

X = Leaf((4, 4), (-128, 127), False, "x")
N = Leaf((), (0, 9), False, "n")
a, b, n = X[0, 1], X[2, 3], N[()]
SQUARE = Table("square", lambda v: v * v, (0, 9))

TERMS: list[tuple[Expr, str]] = [
    ((a + b) * 2, "(x[0, 1] + x[2, 3]) * 2"),
    (a - (b - n), "x[0, 1] - (x[2, 3] - n)"),
    ((a - b) - n, "x[0, 1] - x[2, 3] - n"),
    (n + 4096, "n + 0x1000"),
    (n + 4112, "n + 0x1010"),
    (n + 4095, "n + 4095"),
    (n + 4097, "n + 4097"),
    (n + 4080, "n + 4080"),
    (wrap(a * b, 8), "signed8(x[0, 1] * x[2, 3])"),
    (wrap(a + b, 4, False), "unsigned4(x[0, 1] + x[2, 3])"),
    (extract(n + 3, 1, 3), "(n + 3)[3:1]"),
    (extract(n + 3, 1, 2), "(n + 3)[2:1]"),
    (n[2], "n[2]"),
    (SQUARE(n), "square(n)"),
    (select(n == 3, a, b), "(x[0, 1] if n == 3 else x[2, 3])"),
    (select(n == 3, a, select(n == 4, b, 0)), "(n → 3: x[0, 1], 4: x[2, 3], else 0)"),
    (select(n == 3, a, select(n == 4, b, select(n == 5, 7, 0))), "(n → 3: x[0, 1], 4: x[2, 3], 5: 7, else 0)"),
    (select(n == 3, a, select(a == 4, b, 0)), "(x[0, 1] if n == 3 else (x[2, 3] if x[0, 1] == 4 else 0))"),
    (select(n == a, a, select(n == b, b, 0)), "(x[0, 1] if n == x[0, 1] else (x[2, 3] if n == x[2, 3] else 0))"),
    (reduce_sum(lambda c: X[0, c], 4), "sum(x[0, i] for i in 0 … 3)"),
    (reduce_max(lambda i, j: X[i, j] * n, (4, 3)), "max(x[i, j] * n for i in 0 … 3, j in 0 … 2)"),
    (array(lambda i: X[i, 0] + 1, 4)[2], "[x[i, 0] + 1 for i in 0 … 3][2]"),
    (fold(3, 0, lambda k, t: wrap(t + X[k, 0], 8), (-128, 127)), "fold(acc0 from 0; for i in 0 … 2: acc0 := signed8(acc0 + x[i, 0]))"),
]


@pytest.mark.parametrize(("term", "text"), TERMS, ids=[text for _, text in TERMS])
def test_terms(term: Expr, text: str) -> None:
    assert StepWriter().expr(term) == text


STEPS: list[tuple[Step, list[str]]] = [
    (NOTHING, ["nothing changes"]),
    (require(n < 5, "I103", "n must be less than five"), ["nothing changes"]),
    (assign(N, 3), ["n := 3"]),
    (update(X, 4, lambda i: ((i, 0), i)), ["x[i, 0] := i   for i in 0 … 3"]),
    (together(assign(X, 1, 0, 0), assign(X, 2, 0, 1)), ["x[0, 0] := 1", "x[0, 1] := 2"]),
    (loop(4, lambda k: seq(assign(X, 1, k, 0), assign(N, k))), ["for i in 0 … 3:", "    x[i, 0] := 1", "    n := i"]),
    (loop(n, lambda k: assign(N, k)), ["for i in 0 … n - 1:", "    n := i"]),
    (when(n == 3, assign(N, 1)), ["when n == 3:", "    n := 1"]),
    (when(n == 3, assign(N, 1), assign(N, 2)), ["when n == 3:", "    n := 1", "else:", "    n := 2"]),
    (when(n == 3, require(n < 5, "I102", "a sentence"), assign(N, 2)), ["when not (n == 3):", "    n := 2"]),
    (when(n == 3, require(n < 5, "I102", "a sentence")), ["nothing changes"]),
    (
        let(array(lambda i: X[i, 0], 4), lambda kept: assign(X, kept[1], 0, 0)),
        ["let local = [x[i, 0] for i in 0 … 3]", "x[0, 0] := local[1]"],
    ),
]


@pytest.mark.parametrize(("step", "lines"), STEPS, ids=[lines[0] for _, lines in STEPS])
def test_steps(step: Step, lines: list[str]) -> None:
    assert step_listing(step) == lines


def named(length: int) -> Expr:
    """Return a term whose text has so many characters."""
    term = Leaf((), (0, 9), False, "a" * (length - 4))[()] * 2
    assert len(StepWriter().expr(term + 0)) == length
    return term


def test_a_term_that_occurs_again_has_a_name_where_it_is_longer_than_the_limit() -> None:
    short, long = named(LONG_TERM), named(LONG_TERM + 1)
    assert step_listing(assign(X, wrap(short * short, 8), 0, 0)) == [f"x[0, 0] := signed8({'a' * 44} * 2 * ({'a' * 44} * 2))"]
    assert step_listing(assign(X, wrap(long * long, 8), 0, 0)) == ["x[0, 0] := signed8(t1 * t1)", f"    with t1 = {'a' * 45} * 2"]
    assert step_listing(assign(X, wrap(long * 30, 8), 0, 0)) == [f"x[0, 0] := signed8({'a' * 45} * 2 * 30)"]  # once


def test_a_name_is_defined_once_and_beside_its_first_use() -> None:
    long = named(LONG_TERM + 1)
    twice = seq(assign(X, wrap(long * long, 8), 0, 0), assign(X, wrap(long * long, 8), 0, 1))
    name = f"    with t1 = {'a' * 45} * 2"
    assert step_listing(twice) == ["x[0, 0] := signed8(t1 * t1)", name, "x[0, 1] := signed8(t1 * t1)"]


def test_diagnostics_are_found_wherever_they_are_and_each_once() -> None:
    def check(code: str) -> Step:
        return require(n < 5, code, f"sentence of {code}")

    kept = array(lambda i: X[i, 0], 4)
    step = seq(
        check("I101"),
        when(n == 3, check("I102"), check("I103")),
        loop(4, lambda k: check("I104")),
        let(kept, lambda local: seq(assign(X, local[1], 0, 0), check("I105"))),
        check("I101"),
    )
    assert diagnostics_of(step) == [(code, f"sentence of {code}") for code in ("I101", "I102", "I103", "I104", "I105")]
