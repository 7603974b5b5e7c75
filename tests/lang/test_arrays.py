"""The arrays reading: which type a product is computed in, pieces of large arrays, folds computed ahead; the oracle decides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rewrite_compiler.lang import (
    Array,
    Expr,
    Leaf,
    array,
    clamp,
    fold,
    fold_arrays,
    leaf,
    reduce,
    reduce_sum,
    sat,
    select,
    shift_right,
    trunc_div,
    trunc_mod,
)
from rewrite_compiler.readings.arrays import buffer_pool, evaluator, fold_hoisting, labelled_array
from rewrite_compiler.readings.arrays.evaluator import Evaluator
from rewrite_compiler.readings.arrays.labelled_array import Axes, LabelledArray, Store, axis_of
from rewrite_compiler.readings.kernels.evaluate import evaluate
from rewrite_compiler.readings.oracle.emit_python import evaluate as oracle

INT8, INT16 = (-(1 << 7), (1 << 7) - 1), (-(1 << 15), (1 << 15) - 1)


def oracle_of(term: Array, operands: dict[Leaf, np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    flat = {k: v.reshape(-1).tolist() for k, v in operands.items()}
    return np.array(oracle(term, flat, int(np.prod(shape))), np.int64).reshape(shape)


# -- products: exactness bounds


def types_used(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    used: list[Any] = []
    exact = labelled_array._exact_types

    def noted(*arguments: Any) -> Any:
        used.append(exact(*arguments))
        return used[-1]

    monkeypatch.setattr(labelled_array, "_exact_types", noted)
    return used


@pytest.mark.parametrize(
    ("extra", "kind"),
    [(0, np.float32), (1, np.float64)],
    ids=["2^24 exactly", "one more"],
)
def test_float32_is_used_up_to_its_bound(extra: int, kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """1024 products (−128)² make 2^24, the last sum that float32 holds; a further product 1 makes 2^24 + 1."""
    used = types_used(monkeypatch)
    count = 1024 + extra
    a = np.full((1, count), -128, np.int8)
    b = a.copy()
    if extra:
        a[0, -1] = b[0, -1] = 1
    x, y = leaf("x", (1, count), INT8), leaf("y", (1, count), INT8)
    term = array(lambda i, j: reduce_sum(lambda k: x[i, k] * y[j, k], count), (1, 1))
    found = evaluate(term, {x: a, y: b})
    assert found.tolist() == [[(1 << 24) + extra]]
    assert [k for k, _ in used] == [kind]


WIDTHS = {  # K, magnitude of both operands → the type of the product and of its result
    "small": (8, 100, np.float32, np.int32),
    "32 bits": (2, 32767, np.float64, np.int32),
    "33 bits": (8, 32767, np.float64, np.int64),
    "53 bits": (8, 33_000_000, np.float64, np.int64),
    "54 bits": (8, 34_000_000, np.int64, np.int64),
    "65 bits": (3, 2_100_000_000, object, object),
}


@pytest.mark.parametrize("case", WIDTHS)
def test_product_is_exact_at_every_width(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    count, size, kind, result = WIDTHS[case]
    used = types_used(monkeypatch)
    rng = np.random.default_rng(3)
    operands = [rng.choice([-size, size - 1, size], (n, count)).astype(np.int64) for n in (5, 4)]
    word = (-(1 << 31), (1 << 31) - 1)
    x, y = (leaf(n, o.shape, word) for n, o in zip("xy", operands, strict=True))
    term = array(lambda i, j: reduce_sum(lambda k: x[i, k] * y[j, k], count), (5, 4))
    found = evaluate(term, {x: operands[0], y: operands[1]})
    expected = operands[0].astype(object) @ operands[1].astype(object).T
    assert found.astype(object).tolist() == expected.tolist()
    assert used == [(kind, result)]


def test_narrow_product_times_a_wide_factor_is_exact() -> None:
    """A product that fits 32 bits is widened before a factor outside of the sum, or a repetition, makes it larger."""
    x, y, z = leaf("x", (3, 4), INT16), leaf("y", (3, 4), INT16), leaf("z", (3,), (0, 1 << 30))
    data = {x: np.full((3, 4), 20, np.int16), y: np.full((3, 4), 30, np.int16), z: np.array([1, 7, 1 << 30])}
    scaled = array(lambda i: reduce_sum(lambda k: x[i, k] * y[i, k] * z[i], 4), 3)
    assert evaluate(scaled, data).tolist() == [2400, 16800, 2400 << 30]
    repeated = array(lambda i: reduce_sum(lambda k, _: x[i, k] * y[i, k], (4, 1 << 20)), 3)
    assert evaluate(repeated, data).tolist() == [2400 << 20] * 3


# -- elementwise operators

VALUES = np.array([-(1 << 31), -(1 << 20) - 3, -65, -64, -63, -2, -1, 0, 1, 63, 64, 65, (1 << 31) - 1])
UNARY = {
    "mod 64": lambda x: x % 64,
    "div 64": lambda x: x // 64,
    "mod 1": lambda x: x % 1,
    "div 1": lambda x: x // 1,
    "mod 2^40": lambda x: x % (1 << 40),
    "mod 7": lambda x: x % 7,
    "div -8": lambda x: x // -8,
    "mod -8": lambda x: x % -8,
    "clamp": lambda x: clamp(x, -64, 64),
    "clamp that shares its first limit": lambda x: clamp(x, -64, 64) + clamp(x, None, 64),
    "crossed limits": lambda x: select(x < 5, clamp(clamp(x, None, -70), 70, None), x),
    "saturation of a product": lambda x: sat(x * x, 32),
    "choice of wide terms": lambda x: clamp(select(x < 0, x * x * x, x), -9, 9),
    "division by what may be 0": lambda x: select(x == 0, 5, (1 << 40) // select(x == 0, 0, x)),
    "truncated division by what may be 0": lambda x: select(x == 0, 5, trunc_div(x * x, x) + trunc_mod(x * x + 1, x)),
}


@pytest.mark.parametrize("name", UNARY)
def test_elementwise_is_what_the_oracle_gives(name: str) -> None:
    x = leaf("x", VALUES.shape, (-(1 << 31), (1 << 31) - 1))
    term = array(lambda i: UNARY[name](x[i]), len(VALUES))
    assert evaluate(term, {x: VALUES}).tolist() == oracle_of(term, {x: VALUES}, VALUES.shape).tolist()


# -- folds

KINDS: dict[str, tuple[int, int]] = {
    "at once": (1 << 17, 1 << 19),
    "in pieces": (8, 1 << 19),
    "pieces of one element": (1, 1),
    "the inner fold ahead": (1 << 17, 700),
    "nothing ahead": (1 << 17, 1),
}


def saturating(x: Leaf, w: Leaf, f: Expr, i: Expr, end: int) -> Expr:
    """A sum with a rounding and a saturation in each step, over two nested folds; the last step is another one."""

    def step(b: Expr, k: Expr, acc: Expr) -> Expr:
        q = sat(shift_right(reduce_sum(lambda c: x[b, i + k, c] * w[f, b, k, c], 4), 6, "half_up"), 16)
        return sat(select((b == 2) & (k == end), acc - q, acc + q), 16)

    return fold(3, 5, lambda b, outer: fold(end + 1, outer, lambda k, acc: step(b, k, acc), INT16), INT16)


@pytest.mark.parametrize("kind", KINDS)
def test_nested_folds(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    piece, most = KINDS[kind]
    monkeypatch.setattr(evaluator, "PIECE_ELEMENTS", piece)
    monkeypatch.setattr(fold_hoisting, "MAX_HOISTED_ELEMENTS", most)
    rng = np.random.default_rng(4)
    data = [rng.choice([-(1 << 15), (1 << 15) - 1, 100, -3, 0], n).astype(np.int16) for n in ((3, 12, 4), (5, 3, 3, 4))]
    x, w = leaf("x", (3, 12, 4), INT16), leaf("w", (5, 3, 3, 4), INT16)
    term = array(lambda f, i: saturating(x, w, f, i, 2), (5, 10))
    operands = dict(zip((x, w), data, strict=True))
    assert np.array_equal(evaluate(term, operands), oracle_of(term, operands, (5, 10)))


@pytest.mark.parametrize("kind", KINDS)
def test_folds_of_many_samples(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample axis on one operand: every sample is what it is alone."""
    piece, most = KINDS[kind]
    monkeypatch.setattr(evaluator, "PIECE_ELEMENTS", piece)
    monkeypatch.setattr(fold_hoisting, "MAX_HOISTED_ELEMENTS", most)
    rng = np.random.default_rng(5)
    samples = rng.integers(*INT16, (4, 3, 12, 4)).astype(np.int16)
    weights = rng.integers(*INT16, (5, 3, 3, 4)).astype(np.int16)
    x, w = leaf("x", (3, 12, 4), INT16), leaf("w", (5, 3, 3, 4), INT16)
    term = array(lambda f, i: saturating(x, w, f, i, 2), (5, 10))
    axes = Axes()
    sample = axis_of(array(lambda n: n, 4).variables[0])
    axes.add(sample, 4)
    found = Evaluator({x: Store(samples, (sample,)), w: Store(weights)}, axes).store_of(term)
    assert found.batch == (sample,)
    for n in range(4):
        assert np.array_equal(found.data[n], evaluate(term, {x: samples[n], w: weights}))


def test_inner_fold_of_varying_length() -> None:
    """The length of an inner fold depends on the step of the outer one: nothing is computed ahead, the values are right."""
    x = leaf("x", (6, 3), INT16)
    data = np.arange(18, dtype=np.int16).reshape(6, 3) - 7
    term = array(lambda i: fold(3, 0, lambda b, a: fold(b + 1, a, lambda k, c: sat(c + x[i, k] * b, 16), INT16), INT16), 6)
    assert np.array_equal(evaluate(term, {x: data}), oracle_of(term, {x: data}, (6,)))


def test_inner_fold_that_does_not_depend_on_the_outer_sum() -> None:
    x = leaf("x", (6, 3), INT16)
    data = np.arange(18, dtype=np.int16).reshape(6, 3) - 7
    term = array(lambda i: fold(3, 0, lambda b, a: sat(2 * a + fold(2, 1, lambda k, c: sat(c * x[i, k] + b, 16), INT16), 16), INT16), 6)
    assert np.array_equal(evaluate(term, {x: data}), oracle_of(term, {x: data}, (6,)))


def test_last_value_and_history_of_one_fold() -> None:
    x = leaf("x", (4,), INT16)
    start = array(lambda i: x[i], 4)

    def both(history: bool) -> Array:
        (result,) = fold_arrays(3, [start], lambda k, a: [array(lambda i: sat(a[i] * 2 + k, 16), 4)], [INT16], history=history)
        return result

    data = np.array([1, -5, 9000, -32768], np.int16)
    last = evaluate(both(False), {x: data})
    assert last.tolist() == [8 + 4, -40 + 4, 32767, -32768]
    assert evaluate(both(True), {x: data})[-1].tolist() == last.tolist()


def test_index_forms() -> None:
    """A term that is linear in its variables is found once, whatever its coefficients are read from."""
    n = leaf("n", (), (0, 9))
    i, j = array(lambda i, j: i, (4, 5)).variables
    constant, terms = labelled_array.linear((i * n[()] - 3 * (j + 2)) * 2 + i) or (None, ())
    axes = Axes()
    reading = Evaluator({n: Store(np.array(6))}, axes)
    values = {v.data: reading.value(c).data for v, c in terms}
    assert isinstance(constant, Expr)
    assert int(reading.value(constant).data) == -12
    assert values == {i.data: 13, j.data: -6}
    assert labelled_array.linear(i * j) is None
    assert labelled_array.linear(i // 2) is None
    assert axes.union_of_ordered((), ()) == ()
    assert reading.value(n[()] + 1) == LabelledArray(7, ())


@pytest.mark.parametrize("monoid", ["sum", "max", "min"])
def test_a_reduction_that_is_too_large_is_computed_piece_by_piece(monoid: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rewrite_compiler.readings.arrays.evaluator.GRID_ELEMENTS", 8)
    x, y = (Leaf((3, 5), INT8, False, name) for name in "xy")
    term = array(lambda i: reduce(monoid, lambda j, k: x[i, k] + y[j, k] * (i - 1), (3, 5)), 3)
    data = {v: np.random.default_rng(n).integers(-128, 128, (3, 5)).astype(np.int8) for n, v in enumerate((x, y))}
    assert (evaluate(term, data) == oracle_of(term, data, (3,))).all()


def test_an_array_of_the_pool_is_handed_out_again_when_nobody_holds_it() -> None:
    """A view of it holds it, too."""
    size = buffer_pool.MIN_BYTES + 8  # of this test alone
    first, second = (buffer_pool.pooled_array((size,), np.uint8) for _ in range(2))
    assert not np.shares_memory(first, second)
    place, view = first.ctypes.data, first[8:]
    del first
    third = buffer_pool.pooled_array((size,), np.uint8)
    assert not np.shares_memory(third, view)
    del view
    assert buffer_pool.pooled_array((size // 8,), np.int64).ctypes.data == place
