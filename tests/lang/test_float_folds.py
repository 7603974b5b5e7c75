"""Folds in floats give what the same folds give element by element, for factors at the ends of their ranges too."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from rewrite_compiler.lang import Array, Expr, Leaf, array, fold, lift, reduce_sum, sat, select, shift_right
from rewrite_compiler.lang import intervals as iv
from rewrite_compiler.lang.substitution import substitute
from rewrite_compiler.readings.kernels import exact_float_folds
from rewrite_compiler.readings.kernels.evaluate import evaluate

ROWS, STEPS, LANES, COLUMNS = 96, 5, 8, 9
INT16 = iv.of_width(16, True)
Step = Callable[[Expr, Expr, Expr], Expr]  # lanes, total, number of the step
Random = np.random.Generator


def folded(bits: tuple[int, int], step: Step, initial: int = 0) -> tuple[Array, Leaf, Leaf]:
    """Return a fold of sums of products of a row and a column."""
    x = Leaf((ROWS, STEPS, LANES), iv.of_width(bits[0], True), False, "x")
    w = Leaf((COLUMNS, STEPS, LANES), iv.of_width(bits[1], True), False, "w")

    def body(i: Expr, j: Expr, k: Expr, total: Expr) -> Expr:
        return step(reduce_sum(lambda c: x[i, k, c] * w[j, k, c], LANES), total, k)

    return array(lambda i, j: fold(STEPS, initial, lambda k, total: body(i, j, k, total), INT16), (ROWS, COLUMNS)), x, w


def rounded(lanes: Expr, total: Expr, _: Expr) -> Expr:
    return sat(total + sat(shift_right(lanes, 6, "half_up"), 16), 16)


def cut(products: Expr, total: Expr, _: Expr) -> Expr:
    """Shift every product on its own, then the sum of a block."""
    (variable,), body = products.data[1], products.args[0]
    lanes = [substitute(body, {variable: lift(n)}) >> 5 for n in range(LANES)]
    return sat(total + sat(shift_right(sum(lanes[1:], lanes[0]), 9, "half_up"), 16), 16)


STEPPED: dict[str, Step] = {
    "products cut one by one": cut,
    "rounded": rounded,
    "floored by 8": lambda lanes, total, _: sat(total + sat(lanes >> 8, 16), 16),
    "floored": lambda lanes, total, _: sat(total + sat(lanes >> 9, 16), 16),
    "clamped without a shift": lambda lanes, total, _: sat(total - sat(lanes - 7, 16), 16),
    "not clamped": lambda lanes, total, _: sat(total + (lanes >> 12), 16),
    "used twice": lambda lanes, total, _: sat(total + sat(lanes >> 4, 16) - sat(lanes + 9, 16), 16),
    "another last step": lambda lanes, total, k: sat(total + sat(lanes >> 6, 16) + select(k == STEPS - 1, 5, 0), 16),
    "an operator without a pass": lambda lanes, total, _: sat(total + sat(lanes ^ 3, 16), 16),
}


def contents(random: Random, leaf: Leaf, kind: str) -> np.ndarray:
    low, high = leaf.interval
    if kind == "random":
        return random.integers(low, high, leaf.shape, endpoint=True)
    if kind == "ends":
        return random.choice(np.array([low, high]), leaf.shape)
    if kind == "ends and ones":
        return random.choice(np.array([low, low, high, high, 1, -1]), leaf.shape)
    return random.choice(np.array([0, 1, -1, 32, 31, -32, -33]), leaf.shape)


@pytest.mark.parametrize("step", STEPPED)
def test_folds_in_floats_are_the_folds(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(len(step))
    for bits, kind, initial in itertools.product(((8, 8), (16, 8), (16, 16)), ("random", "ends", "ends and ones", "ties"), (0, 3)):
        term, x, w = folded(bits, STEPPED[step], initial)
        given = {leaf: contents(random, leaf, kind) for leaf in (x, w)}
        found = evaluate(term, given)
        with monkeypatch.context() as patch:
            patch.setattr(exact_float_folds, "evaluate_fold_in_floats", lambda ev, f: None)
            assert (evaluate(term, given) == found).all(), (bits, kind, initial)


@pytest.mark.parametrize(
    ("bits", "kind", "step", "expected"),
    [
        ((8, 8), "random", "rounded", ("float32", 0)),
        ((16, 8), "ends", "rounded", ("float32", 0)),  # eight products reach 2^25, and where five exceed 2^24, all do 2^22
        ((16, 8), "ends", "floored by 8", ("float32", 1)),  # what is beyond 2^22 is not clamped yet: four products reach 2^24
        ((16, 8), "ends", "not clamped", ("float64", 0)),
        ((16, 8), "ends", "used twice", ("float64", 0)),
        ((16, 16), "ends", "rounded", ("float64", 0)),
        ((16, 16), "ties", "rounded", ("float32", 0)),  # what the factors hold decides
        ((16, 16), "ends", "products cut one by one", ("int32", 0)),
        ((8, 8), "random", "products cut one by one", ("float32", 0)),
    ],
)
def test_the_type_is_the_narrowest_that_is_exact(
    bits: tuple[int, int], kind: str, step: str, expected: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, int]] = []
    choose = exact_float_folds._Floats._type

    def kept(self: exact_float_folds._Floats) -> tuple[type, frozenset[int]]:
        kind, halved = choose(self)
        seen.append((np.dtype(kind).name, len(halved)))
        return kind, halved

    monkeypatch.setattr(exact_float_folds._Floats, "_type", kept)
    term, x, w = folded(bits, STEPPED[step])
    random = np.random.default_rng(1)
    evaluate(term, {leaf: contents(random, leaf, kind) for leaf in (x, w)})
    assert seen == [expected]


def test_a_sum_beyond_24_bits_is_not_added_in_one_float() -> None:
    """2^24 and 1 in one sum of float32 would lose the 1, which decides how the rest is rounded."""
    term, x, w = folded((16, 8), rounded)
    a, b = np.zeros(x.shape, np.int16), np.zeros(w.shape, np.int8)
    a[:, 0], b[:, 0] = [-32768] * 4 + [32767] * 4, [-128] * 4 + [-128] * 4  # 2^24 − (2^24 − 512)
    a[:, 1, 0], b[:, 1, 0] = 31, 1
    assert (evaluate(term, {x: a, w: b}) == 8).all()
    a[:, 1, 0] = 32
    assert (evaluate(term, {x: a, w: b}) == 9).all()


def test_a_sum_that_is_rounded_is_clamped() -> None:
    """Beyond 2^24 the 1 is lost whatever the order is, and the clamp makes one value of both; just below the clamp it decides."""
    term, x, w = folded((16, 8), rounded)
    a, b = np.zeros(x.shape, np.int16), np.zeros(w.shape, np.int8)
    a[:, 0], b[:, 0] = [-32768] * 4 + [1] + [32767] * 3, [-128] * 4 + [1] + [-128] * 3
    assert (evaluate(term, {x: a, w: b}) == 32767).all()
    a[:, 0], b[:, 0] = [32767] * 4 + [-1] * 3 + [32], [127] * 4 + [127] * 3 + [-1]
    a[:, 0, 1:4] = [-32768, 16383, 0]
    found = (32767 * 127 - 32768 * 127 + 16383 * 127 - 3 * 127 - 32 + 32) // 64
    assert (evaluate(term, {x: a, w: b}) == found).all()


def test_a_product_with_the_accumulator_is_no_factor() -> None:
    x = Leaf((ROWS, STEPS), iv.of_width(8, True), False, "x")
    w = Leaf((COLUMNS, STEPS), iv.of_width(8, True), False, "w")
    term = array(lambda i, j: fold(STEPS, 1, lambda k, total: sat(total * x[i, k] + x[i, k] * w[j, k], 16), INT16), (ROWS, COLUMNS))
    random = np.random.default_rng(5)
    given = {leaf: contents(random, leaf, "random") for leaf in (x, w)}
    total = np.ones((ROWS, COLUMNS), np.int64)
    for k in range(STEPS):
        a, b = given[x][:, k], given[w][:, k]
        total = np.clip(total * a[:, None] + np.outer(a, b), -32768, 32767)
    assert (evaluate(term, given) == total).all()
