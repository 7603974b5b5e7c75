"""Terms and steps as text: what messages, reports and the documentation show."""

from __future__ import annotations

import re

import pytest

from rewrite_compiler.lang import (
    NOTHING,
    Expr,
    Leaf,
    Step,
    Table,
    array,
    as_real,
    assign,
    call,
    clz,
    extract,
    floor,
    fold,
    fold_arrays,
    let,
    loop,
    reduce_max,
    reduce_sum,
    require,
    select,
    seq,
    together,
    trunc_div,
    update,
    when,
    wrap,
)
from rewrite_compiler.lang.binders import scalar_array
from rewrite_compiler.lang.expr import const, var
from rewrite_compiler.lang.printer import show, show_array, show_step

X = Leaf((4, 4), (-128, 127), False, "x")
N = Leaf((), (0, 9), False, "n")
a, b, n = X[0, 1], X[2, 3], N[()]
SQUARE = Table("square", lambda v: v * v, (0, 9))


def numbered(text: str) -> str:
    """Return text with its variables numbered from 0 in order of appearance."""
    found: dict[str, int] = {}
    return re.sub(r"\b([a-z]+\d?)_(\d+)\b", lambda m: f"{m[1]}_{found.setdefault(m[2], len(found))}", text)


TERMS: list[tuple[Expr, str]] = [
    (a + b * 2, "x[0, 1] + x[2, 3] * 2"),
    ((a + b) * 2, "(x[0, 1] + x[2, 3]) * 2"),
    (a - (b - n), "x[0, 1] - (x[2, 3] - n[])"),
    ((a - b) - n, "x[0, 1] - x[2, 3] - n[]"),
    (a // 3 % n, "x[0, 1] // 3 % n[]"),
    (a // (b % 3), "x[0, 1] // (x[2, 3] % 3)"),
    ((a << n) + 1, "(x[0, 1] << n[]) + 1"),
    (a << n + 1, "x[0, 1] << n[] + 1"),
    ((a & b) | (a ^ b), "x[0, 1] & x[2, 3] | x[0, 1] ^ x[2, 3]"),
    (a & (b | n), "x[0, 1] & (x[2, 3] | n[])"),
    ((a < b) & ~(a == n), "(x[0, 1] < x[2, 3]) & not(x[0, 1] == n[])"),
    (-a, "neg(x[0, 1])"),
    (select(a > b, a, -1), "select(x[2, 3] < x[0, 1], x[0, 1], -1)"),
    (wrap(a * b, 8), "wrap(x[0, 1] * x[2, 3], i8)"),
    (wrap(a + b, 4, False), "wrap(x[0, 1] + x[2, 3], u4)"),
    (extract(n + 3, 1, 3), "(n[] + 3)[1:4]"),
    (n[2], "n[][2:3]"),
    (clz(n, 5), "clz(n[], 5)"),
    (trunc_div(a, b), "tdiv(x[0, 1], x[2, 3])"),
    (SQUARE(n), "square(n[])"),
    (as_real(a) / 3, "real(x[0, 1]) / 3"),
    (call("exp", a), "exp(real(x[0, 1]))"),
    (floor(as_real(a) / b), "floor(real(x[0, 1]) / real(x[2, 3]))"),
    (reduce_sum(lambda c: X[0, c], 4), "sum(c0_0 < 4: x[0, c0_0])"),
    (reduce_max(lambda i, j: X[i, j] * n, (4, 4)), "max(c0_0 < 4, c1_1 < 4: x[c0_0, c1_1] * n[])"),
    (array(lambda i: X[i, 0] + 1, 4)[2], "array(i_0 < 4: x[i_0, 0] + 1)[2]"),
    (
        fold(3, 0, lambda k, t: wrap(t + X[k, 0], 8), (-128, 127)),
        "fold(k_0 < 3: acc0 in [-128, 127] = array(: 0) then array(: wrap(acc0[] + x[k_0, 0], i8))).0[]",
    ),
]


@pytest.mark.parametrize(("term", "text"), TERMS, ids=[text for _, text in TERMS])
def test_terms(term: Expr, text: str) -> None:
    assert numbered(show(term)) == text
    assert numbered(repr(term)) == text


def test_arrays() -> None:
    assert show_array(X) == "x"
    (history,) = fold_arrays(2, [scalar_array(0)], lambda k, t: [scalar_array(t[()] + k)], history=True)
    assert numbered(show_array(history)) == "scan(k_0 < 2: acc0 = array(: 0) then array(: acc0[] + k_0)).0"


STEPS: list[tuple[Step, str]] = [
    (NOTHING, "nothing"),
    (assign(N, 3), "n := 3"),
    (assign(X, 1, 0, 2), "x[0, 2] := 1"),
    (update(X, 4, lambda i: ((i, 0), i)), "x[i_0, 0] := i_0   for all i_0 < 4"),
    (together(assign(X, 1, 0, 0), assign(X, 2, 0, 1)), "x[0, 0] := 1\nand x[0, 1] := 2"),
    (loop(4, lambda k: seq(assign(X, 1, k, 0), assign(N, k))), "for k_0 < 4:\n    x[k_0, 0] := 1\n    n := k_0"),
    (when(n == 3, assign(N, 1)), "when n[] == 3:\n    n := 1"),
    (when(n == 3, assign(N, 1), assign(N, 2)), "when n[] == 3:\n    n := 1\nelse:\n    n := 2"),
    (let(array(lambda i: X[i, 0], 4), lambda kept: assign(X, kept[1], 0, 0)), "let local = array(i_0 < 4: x[i_0, 0])\nx[0, 0] := local[1]"),
    (require(n < 5, "I103", "n must be less than five"), "require n[] < 5: I103 n must be less than five"),
]


@pytest.mark.parametrize(("step", "text"), STEPS, ids=[text.splitlines()[0] for _, text in STEPS])
def test_steps(step: Step, text: str) -> None:
    assert numbered(show_step(step)) == text
    assert numbered(show_step(step, 1)) == "\n".join("    " + line for line in text.splitlines())


def test_a_term_has_no_truth_value_and_says_which_it_is() -> None:
    with pytest.raises(TypeError, match=re.escape("a term has no truth value: x[0, 1] < x[2, 3]; use select() or when(), and for")):
        bool(a < b)
    with pytest.raises(TypeError, match="a term is not a sequence"):
        list(a)


def test_variables_of_one_name_are_told_apart() -> None:
    first, second = var("i", (0, 3)), var("i", (0, 3))
    assert show(first + second) != show(first + first)
    assert str(const(7)) == "7"
