"""Polynomials of addresses and lengths: what is one, its arithmetic, and the terms and texts they stand for."""

from __future__ import annotations

import pytest

from rewrite_compiler.ila.polynomial import NotPolynomial, Poly, Symbols, add, coefficient, multiply, polynomial, scale, term_of, text_of
from rewrite_compiler.lang import Expr, Leaf, select, trunc_div
from rewrite_compiler.lang.expr import const, var

ROWS, PITCH = (Leaf((), (0, 255), False, name) for name in ("rows", "pitch"))
TABLE, DATA = Leaf((8,), (0, 255), False, "table"), Leaf((8,), (0, 255), False, "data")
K, J = var("i", (0, 7)), var("j", (0, 7))
rows, pitch = ROWS[()], PITCH[()]


def symbols() -> Symbols:
    found = Symbols(frozenset({ROWS, PITCH, TABLE}))
    for v in (K, J):
        found.declare(v)
    return found


POLYNOMIALS: list[tuple[Expr, Poly, str]] = [
    (const(0), {}, "0"),
    (const(7), {(): 7}, "7"),
    (K * pitch + J - 3, {("i", "pitch"): 1, ("j",): 1, (): -3}, "i·pitch + j - 3"),
    ((K + 2) * (K - 2), {("i", "i"): 1, (): -4}, "i·i - 4"),
    (-(K * 2) + (J << 3), {("i",): -2, ("j",): 8}, "-2·i + 8·j"),
    (K * rows - rows * K, {}, "0"),
    (TABLE[K] * 2, {("table[i_0]",): 2}, "2·(table[i_0])"),
    ((K + J) // 4 + 1, {("(i_0 + j_1) // 4",): 1, (): 1}, "((i_0 + j_1) // 4) + 1"),
    ((K + rows) % pitch, {("(i_0 + rows) % pitch",): 1}, "((i_0 + rows) % pitch)"),
    (rows // pitch, {("rows // pitch",): 1}, "(rows // pitch)"),
]


def unnumbered(text: str) -> str:
    """Return text without the numbers that tell variables of one name apart."""
    numbers = {str(v.data[1]) if isinstance(v.data, tuple) else "": n for n, v in enumerate((K, J))}
    for number, n in numbers.items():
        text = text.replace(f"i_{number}", f"i_{n}").replace(f"j_{number}", f"j_{n}")
    return text


@pytest.mark.parametrize(("term", "expected", "text"), POLYNOMIALS, ids=[text for *_, text in POLYNOMIALS])
def test_terms_are_polynomials_of_variables_and_control(term: Expr, expected: Poly, text: str) -> None:
    s = symbols()
    p = polynomial(term, s)
    assert {tuple(map(unnumbered, m)): c for m, c in p.items()} == expected
    assert unnumbered(text_of(p)) == text
    assert polynomial(term_of(p, s), s) == p


REFUSED: list[tuple[Expr, str]] = [
    (K + DATA[0], "depends on the data data"),
    (DATA[K] * rows, "depends on the data data"),
    (K // (J + 1), "is no polynomial of loop variables"),
    (K % (J + 1), "is no polynomial of loop variables"),
    (trunc_div(K - 3, 2), "is no polynomial of loop variables"),
    (rows << K, "is no polynomial of loop variables"),
    (select(K < 3, K, J), "is no polynomial of loop variables"),
    (select(K < 3, K, J) // 2, "is no polynomial of loop variables"),
]


@pytest.mark.parametrize(("term", "why"), REFUSED)
def test_other_terms_are_refused(term: Expr, why: str) -> None:
    with pytest.raises(NotPolynomial, match=why):
        polynomial(term, symbols())


def test_no_coefficient_is_0() -> None:
    p: Poly = {("i",): 2, (): -1}
    assert add(p, scale(p, -1)) == scale(p, 0) == multiply(p, {}) == {}
    assert add(p, {(): 1}) == {("i",): 2}
    assert multiply({("i",): 1, (): 1}, {("i",): 1, (): -1}) == {("i", "i"): 1, (): -1}
    assert multiply({("j",): 2}, {("i",): 3}) == {("i", "j"): 6}


def test_the_factor_of_a_variable_is_that_of_monomials_in_which_it_stands_once() -> None:
    p: Poly = {("i",): 2, ("i", "rows"): 4, ("rows",): 5, (): 1, ("i", "i"): 3, ("i", "i", "rows"): 9}
    assert coefficient(p, "i") == {(): 2, ("rows",): 4}
    assert coefficient(p, "rows") == {("i", "i"): 9, ("i",): 4, (): 5}
    assert coefficient(p, "j") == {}


def test_terms_of_one_name_are_told_apart() -> None:
    s = symbols()
    again, other = var("i", (0, 3)), Leaf((), (0, 3), False, "rows")
    assert (s.declare(again), s.declare(again), s.declare(K)) == ("i2", "i2", "i")
    assert (s.atom(rows), s.atom(other[()]), s.atom(rows)) == ("rows", "rows2", "rows")
    assert [s.term(n) for n in ("i", "i2", "rows", "rows2")] == [K, again, rows, other[()]]
