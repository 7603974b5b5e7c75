"""Machine code on whole grids, folds and products: random steps and terms with samples, extremes, every form of the kernel."""

from __future__ import annotations

import ctypes
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from terms import contents_of
from test_readings import problems as terms
from test_readings import walked as walked_term
from test_steps import Contents, Problem, memory_of, problems, walked

from rewrite_compiler.lang import (
    Array,
    Expr,
    Fixed,
    Leaf,
    Step,
    array,
    const,
    fold,
    fold_arrays,
    kernels,
    loop,
    native_fold,
    native_jit,
    products,
    reduce,
    reduce_sum,
    sat,
    select,
    update,
)
from rewrite_compiler.lang import intervals as iv
from rewrite_compiler.lang.arith import ROUNDINGS, maximum, minimum, shift_right
from rewrite_compiler.lang.array_kernels import ArrayKernels
from rewrite_compiler.lang.arrays import Evaluator, evaluate
from rewrite_compiler.lang.binders import index_variable
from rewrite_compiler.lang.expr import wrap
from rewrite_compiler.lang.kernels import Kernels
from rewrite_compiler.lang.machine import Machine
from rewrite_compiler.lang.memory import Memory
from rewrite_compiler.lang.named import Store, axis_of, storage_dtype
from rewrite_compiler.lang.tape import Tape

FEW = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
INT8, INT16, INT32 = (iv.of_width(n, True) for n in (8, 16, 32))
BOTH = [Kernels, ArrayKernels]
FORMS = [form for form in native_fold.FORMS if not form or form in native_jit.host()[1]]


@pytest.fixture(autouse=True)
def everything_is_large(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Give small grids to machine code too, and keep objects out of the user's folder."""
    monkeypatch.setattr(kernels, "LEAST_ELEMENTS", 1)
    monkeypatch.setattr(products, "LEAST_WORK", 1)
    monkeypatch.setenv("FLEXMATCH_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


def run_with_samples(step: Step, every: list[Contents], sampled: list[Leaf], used: Kernels) -> list[Contents]:
    """Return the memories after the step for each sample, run side by side by machine code."""
    machine = Machine({leaf: memory_of(leaf, x) for leaf, x in every[0].items()}, kernels=used)
    sample = axis_of(index_variable("sample", len(every)))
    machine.axes.add(sample, len(every))
    for leaf in sampled:
        stacked = np.stack([memory_of(leaf, contents[leaf]).data for contents in every])
        assert machine.memories[leaf].overlay([0] * leaf.rank, stacked, (sample,))  # type: ignore[attr-defined]
    machine.run(step)
    found: list[Contents] = []
    for n in range(len(every)):
        after = {}
        for leaf in every[0]:
            store = machine.memories[leaf].full(machine.axes)  # type: ignore[attr-defined]
            after[leaf] = (store.data[n] if sample in store.batch else store.data).reshape(-1).tolist()
        found.append(after)
    return found


@pytest.mark.parametrize("made", BOTH)
@FEW
@given(st.data())
def test_random_steps_with_samples(made: type[Kernels], data: st.DataObject) -> None:
    p: Problem = data.draw(problems())
    sampled = [m for m in p.memories if m is not p.control and m.rank and data.draw(st.booleans())]
    every = [{**p.contents, **{m: contents_of(data.draw, m) for m in sampled}} for _ in range(3)]
    expected = [walked(p, contents) for contents in every]
    if None not in expected:
        assert run_with_samples(p.step, every, sampled, made()) == expected


@pytest.mark.parametrize("made", BOTH)
def test_a_diagonal_is_one_axis(made: type[Kernels]) -> None:
    """A loop that writes a diagonal runs at once: its axis is in both indices."""
    m, shift = Leaf((3, 4), (0, 255), False, "m"), Leaf((3,), (0, 7), False, "shift")

    def element(k: Expr, i: Expr, j: Expr) -> tuple[tuple[Expr, Expr], Expr]:
        at, other = k + i + j, (k + i + j + shift[0]) % 3
        return ((2 + at + shift[0]) % 3, at), minimum(m[at, at] + m[other, at], 255)

    step = loop(shift[0] % 4, lambda k: update(m, (1, 1), lambda i, j: element(k, i, j)))
    contents: Contents = {m: list(range(3, 15)), shift: [7, 0, 0]}
    expected = walked(Problem(step, [m, shift], shift, contents), contents)
    assert expected is not None
    assert run_with_samples(step, [contents] * 3, [], made()) == [expected] * 3


@pytest.mark.parametrize("made", BOTH)
@FEW
@given(terms())
def test_random_terms(made: type[Kernels], problem: tuple[Array, list[Leaf], Contents]) -> None:
    term, leaves, contents = problem
    expected = walked_term(term, contents)
    if expected is None:
        return
    shapes = {leaf: tuple(n for n in leaf.shape if isinstance(n, int)) for leaf in leaves}
    ev = Evaluator({leaf: Store(np.array(contents[leaf], storage_dtype(leaf.interval)).reshape(shapes[leaf])) for leaf in leaves})
    ev.kernels = made()
    with np.errstate(all="ignore"):
        assert np.asarray(ev.store_of(term).data).reshape(-1).tolist() == expected


# -- blocked folds


def by_machine_code(
    term: Array, given: dict[Leaf, np.ndarray[Any, Any]], made: type[Kernels] = Kernels
) -> tuple[np.ndarray[Any, Any], Kernels]:
    ev = Evaluator({leaf: Store(x) for leaf, x in given.items()})
    ev.kernels = made()
    with np.errstate(all="ignore"):
        return ev.store_of(term).data, ev.kernels


def filled(random: np.random.Generator, leaf: Leaf, how: str) -> np.ndarray[Any, Any]:
    low, high = leaf.interval[0] or 0, leaf.interval[1] or 0
    shape = tuple(n for n in leaf.shape if isinstance(n, int))
    kind = storage_dtype(leaf.interval)
    if how == "random":
        return random.integers(low, high, shape, kind, endpoint=True)
    if how == "small":
        return random.integers(-99, 99, shape).astype(kind)
    return random.choice(np.array([low, high] if how == "extremes" else [low], kind), shape)


def blocks(x: Leaf, w: Leaf, lost: int, *, is_finished: bool = False) -> Array:
    """A convolution that rounds and saturates each block of eight lanes; with `lost`, each product is cut first.

    Where it is finished, the last step adds a bias and cuts off what is negative.
    """

    def element(f: Expr, i: Expr, j: Expr) -> Expr:
        def tap(b: Expr, r: Expr, total: Expr) -> Expr:
            lanes = [(w[f, b, r, k], x[b, i * 2 + r, j, k]) for k in range(8)]
            if lost:
                found = lanes[0][0] * lanes[0][1] >> lost
                for p, q in lanes[1:]:
                    found = found + (p * q >> lost)
            else:
                found = reduce_sum(lambda k: w[f, b, r, k] * x[b, i * 2 + r, j, k], 8)
            plain = sat(total + sat(shift_right(found, 9 - lost, "half_up"), 16), 16)
            return select((b == 2) & (r == 1), sat(maximum(plain + 77, 0), 16), plain) if is_finished else plain

        return fold(3, select(i == 1, f - 4, 0), lambda b, a: fold(2, a, lambda r, acc: tap(b, r, acc), INT16), INT16)

    return array(element, (11, 3, 5))


@pytest.mark.parametrize(("form", "lost", "how"), list(itertools.product(FORMS, (0, 4), ("random", "extremes", "least"))))
def test_blocked_fold(form: str, lost: int, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_fold, "best_form", lambda: form)
    x, w = Leaf((3, 6, 5, 8), INT16, False, "x"), Leaf((11, 3, 2, 8), INT16 if lost else INT8, False, "w")
    term = blocks(x, w, lost)
    random = np.random.default_rng(3)
    operands = {leaf: filled(random, leaf, how) for leaf in (x, w)}
    found, used = by_machine_code(term, operands)
    assert used.folds == 1
    assert (found == evaluate(term, operands)).all()


@pytest.mark.parametrize(("lost", "how"), list(itertools.product((0, 4), ("random", "extremes"))))
def test_last_step_of_its_own(lost: int, how: str) -> None:
    x, w = Leaf((3, 6, 5, 8), INT16, False, "x"), Leaf((11, 3, 2, 8), INT16 if lost else INT8, False, "w")
    term = blocks(x, w, lost, is_finished=True)
    operands = {leaf: filled(np.random.default_rng(5), leaf, how) for leaf in (x, w)}
    found, used = by_machine_code(term, operands)
    assert used.folds == 1
    assert (found == evaluate(term, operands)).all()
    assert (found != evaluate(blocks(x, w, lost), operands)).any()


def test_blocks_that_could_leave_a_word_are_not_given_to_machine_code() -> None:
    """Eight products of 16 bits reach 2^33: the sum of pairs would wrap."""
    x, w = Leaf((3, 6, 5, 8), INT16, False, "x"), Leaf((11, 3, 2, 8), INT16, False, "w")
    operands = {leaf: filled(np.random.default_rng(3), leaf, "least") for leaf in (x, w)}
    found, used = by_machine_code(blocks(x, w, 0), operands)
    assert used.folds == 0
    assert (found == evaluate(blocks(x, w, 0), operands)).all()


@pytest.mark.parametrize(
    ("form", "how", "bits"), list(itertools.product((*FORMS, "numpy"), ("random", "small", "extremes", "least"), (20, 32)))
)
def test_product_modulo_a_word(form: str, how: str, bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small factors are multiplied in float32 by numpy, others in float64."""
    if form != "numpy":
        monkeypatch.setattr(native_fold, "best_form", lambda: form)
    x, y = Leaf((2, 9, 21), INT16, False, "x"), Leaf((2, 21, 5), INT16, False, "y")
    term = array(lambda b, i, j: wrap(reduce_sum(lambda k: x[b, i, k] * y[b, k, j], 21), bits), (2, 9, 5))
    operands = {leaf: filled(np.random.default_rng(4), leaf, how) for leaf in (x, y)}
    found, used = by_machine_code(term, operands, ArrayKernels if form == "numpy" else Kernels)
    assert used.products == 1
    exact = np.einsum("bik,bkj->bij", *(operands[leaf].astype(object) for leaf in (x, y)))
    half = 1 << bits - 1
    assert (found == (exact + half) % (2 * half) - half).all()


@pytest.mark.parametrize(("form", "rows", "columns"), list(itertools.product(FORMS, (4, 8, 20), (16, 31, 50))))
def test_products_of_every_height_and_breadth(form: str, rows: int, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of rows and tiles stay in registers; what is left at the right and below has blocks of its own."""
    monkeypatch.setattr(native_fold, "best_form", lambda: form)
    x, y = Leaf((rows, 72), INT16, False, "x"), Leaf((columns, 72), INT16, False, "y")
    operands = {leaf: filled(np.random.default_rng(rows + columns), leaf, "random") for leaf in (x, y)}
    summed = array(lambda i, j: wrap(reduce_sum(lambda k: x[i, k] * y[j, k], 72), 32), (rows, columns))
    exact = operands[x].astype(np.int64) @ operands[y].T.astype(np.int64)
    found, used = by_machine_code(summed, operands)
    assert used.products == 1
    assert (found == exact.astype(np.int32)).all()


@pytest.mark.parametrize("form", FORMS)
def test_sums_in_order_that_start_somewhere(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_fold, "best_form", lambda: form)
    x, y, start = Leaf((19, 5, 8), INT8, False, "x"), Leaf((37, 5, 8), INT8, False, "y"), Leaf((19, 37), INT16, False, "start")
    operands = {leaf: filled(np.random.default_rng(9), leaf, "random") for leaf in (x, y, start)}

    def element(i: Expr, j: Expr) -> Expr:
        return fold(5, start[i, j], lambda b, total: wrap(total + reduce_sum(lambda k: x[i, b, k] * y[j, b, k], 8), 32), INT32)

    found, used = by_machine_code(array(element, (19, 37)), operands)
    whole = [operands[leaf].reshape(-1, 40).astype(np.int64) for leaf in (x, y)]
    assert used.folds == 1
    assert (found == operands[start] + whole[0] @ whole[1].T).all()


def test_product_that_may_leave_a_word_is_not_given_to_machine_code() -> None:
    x, y = Leaf((8, 16), INT16, False, "x"), Leaf((8, 16), INT16, False, "y")
    term = array(lambda i, j: reduce_sum(lambda k: x[i, k] * y[j, k], 16), (8, 8))
    operands = {leaf: np.full((8, 16), -(1 << 15), np.int16) for leaf in (x, y)}
    found, used = by_machine_code(term, operands)
    assert used.products == 0
    assert (found == 1 << 34).all()


@pytest.mark.parametrize("made", BOTH)
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_codes_of_floats(rounding: str, made: type[Kernels]) -> None:
    """Machine code encodes as numpy does: ties, both ends, infinities."""
    values = np.concatenate([np.arange(-70_000, 70_000) / 256, [1e30, -1e30, np.inf, -np.inf, -0.0]]).astype(np.float32)
    f = Fixed(16, 7, rounding)
    x = Leaf((len(values),), iv.EVERYTHING, True, "x")
    term, flat = array(lambda i: f.encode(x[i]), len(values)), values.astype(np.float64).clip(-1e38, 1e38)
    found, used = by_machine_code(term, {x: flat}, made)
    assert used.grids == 1
    assert (found == evaluate(term, {x: flat})).all()
    assert (found == f.codes_of(values)).all()


def test_an_index_of_extent_1_stays_0_beside_an_unrolled_axis() -> None:
    def element(i: Expr, j: Expr) -> Expr:
        def both(k: Expr, a: Array, b: Array) -> list[Array]:
            return [array(lambda q: wrap(a[(q + 1) % 2] + b[()] + j, 20, True), (2,)), array(lambda: sat(b[()] - a[0], 20, True), ())]

        first, second = fold_arrays(2, [array(lambda _: const(0), (2,)), array(lambda: i, ())], both, [iv.of_width(20, True)] * 2)
        return first[0] - second[()]

    ev = Evaluator({})
    ev.kernels = Kernels()
    assert np.asarray(ev.store_of(array(element, (2, 1))).data).reshape(-1).tolist() == [0, 2]


# -- what is kept on disk


def test_compiled_objects_are_kept_and_rebuilt_when_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEXMATCH_CACHE", str(tmp_path))
    counts = native_jit.Counts()
    monkeypatch.setattr(native_jit, "counts", counts)
    text = 'define i64 @"run"(i64 %x) {\n  %y = add i64 %x, 41\n  ret i64 %y\n}\n'

    def answer() -> int:
        native_jit.compiled.cache_clear()
        _, address = native_jit.compiled(text)
        return int(ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(address)(1))

    assert answer() == answer() == 42
    assert (counts.compiled, counts.loaded, counts.rebuilt) == (1, 1, 0)
    (entry,) = (tmp_path / "objects").iterdir()
    assert entry.stat().st_mode & 0o077 == 0
    whole = entry.read_bytes()
    for damaged in (b"", whole[:-1], whole[:40] + bytes([whole[40] ^ 1]) + whole[41:], b"x" * len(whole)):
        entry.write_bytes(damaged)
        assert answer() == 42
        assert entry.read_bytes() == whole
    assert (counts.compiled, counts.rebuilt) == (5, 4)


def test_a_choice_whose_other_side_is_wider_than_a_word_is_left_to_numpy() -> None:
    """The condition is the same everywhere, so only the narrow side is computed; its place is among integers of any size."""
    x = Leaf((3,), INT8, False, "x")
    term = array(lambda i: select(x[i] < 100, x[i] * 3 + i, x[i] * (1 << 70)), 3)
    found, used = by_machine_code(term, {x: np.array([5, -7, 99], np.int8)})
    assert found.tolist() == [15, -20, 299]
    assert list(used.refused) == [kernels.TOO_WIDE]


def test_without_machine_code_numpy_runs_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise OSError("no such library")

    monkeypatch.setattr(native_jit, "host", broken)
    assert kernels.loaded_kernels() == "machine code cannot be made here: no such library"


@pytest.mark.parametrize("made", BOTH)
@pytest.mark.parametrize("monoid", ["sum", "max", "min"])
@pytest.mark.parametrize("shape", [(3, 5, 16), (70, 2, 3), (1, 9, 100), (4, 1, 1)])
def test_reductions_of_terms(monoid: str, shape: tuple[int, int, int], made: type[Kernels]) -> None:
    """Over one or two axes, the last of a length that is compiled in or is not; nested ones; totals beyond 32 bits."""
    n, rows, columns = shape
    x = Leaf(shape, INT16, False, "x")
    data = np.random.default_rng(n).integers(-(1 << 15), 1 << 15, shape).astype(np.int16)

    def term(i: Expr, j: Expr, k: Expr) -> Expr:
        return wrap((x[i, j, k] * x[i, j, k] >> 3) - 7 * x[i, j, k], 30)

    whole = np.vectorize(lambda v: ((v * v >> 3) - 7 * v + (1 << 29)) % (1 << 30) - (1 << 29))(data.astype(np.int64))
    operation = {"sum": np.sum, "max": np.max, "min": np.min}[monoid]
    ev = Evaluator({x: Store(data)})
    ev.kernels = made()
    both = ev.store_of(array(lambda i: reduce(monoid, lambda j, k: term(i, j, k), (rows, columns)), n)).data
    last = ev.store_of(array(lambda i, j: wrap(reduce(monoid, lambda k: term(i, j, k), columns), 20), (n, rows))).data
    nested = array(lambda i: reduce(monoid, lambda j: wrap(reduce(monoid, lambda k: term(i, j, k), columns), 20), rows), n)
    wrapped = (operation(whole, 2) + (1 << 19)) % (1 << 20) - (1 << 19)
    assert np.array_equal(both, operation(whole, (1, 2)))
    assert np.array_equal(last, wrapped)
    assert np.array_equal(ev.store_of(nested).data, operation(wrapped, 1))
    assert ev.kernels.grids >= 3 or data.size < 1 << 3


@pytest.mark.parametrize("made", BOTH)
def test_reductions_with_samples_are_played(made: type[Kernels]) -> None:
    """A recorded reduction is computed again from other contents."""
    x = Leaf((6, 16), INT16, False, "x")
    machine = Machine({x: Memory(np.zeros((6, 16), np.int16))}, kernels=made())
    sample = axis_of(index_variable("sample", 5))
    machine.axes.add(sample, 5)
    tape = machine.axes.tape = Tape(sample)
    random = np.random.default_rng(1)
    first, second = (random.integers(-99, 99, (5, 6, 16)).astype(np.int16) for _ in range(2))
    slot = tape.copied(first)
    assert machine.memories[x].overlay([0, 0], slot, (sample,))  # type: ignore[attr-defined]
    found = machine.evaluator.value(reduce("max", lambda i: wrap(reduce_sum(lambda j: x[i, j] * 3 + 1, 16), 9), 6))
    for data in (first, second):
        slot[...] = data
        for call in tape.calls[1:]:
            call()
        sums = (data.astype(np.int64) * 3 + 1).sum(2)
        assert np.array_equal(found.data, ((sums + 256) % 512 - 256).max(1))
    assert not tape.refused


@pytest.mark.parametrize("made", BOTH)
@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("columns", [1, 3, 16])
def test_products_of_a_matrix_and_a_vector_of_each_sample(rows: int, columns: int, made: type[Kernels]) -> None:
    """Along the rows of a matrix or down its columns; sums wrap at 32 bits."""
    x, w = Leaf((rows, columns), INT16, False, "x"), Leaf((rows + columns,), INT16, False, "w")
    machine = Machine({leaf: Memory(np.zeros(leaf.shape, np.int16)) for leaf in (x, w)}, kernels=made())  # type: ignore[arg-type]
    sample = axis_of(index_variable("sample", 4))
    machine.axes.add(sample, 4)
    tape = machine.axes.tape = Tape(sample)
    random = np.random.default_rng(rows)
    every = {leaf: random.choice([-(1 << 15), (1 << 15) - 1, 77], (2, 4, *leaf.shape)).astype(np.int16) for leaf in (x, w)}  # type: ignore[misc]
    slots = {leaf: tape.copied(data[0]) for leaf, data in every.items()}
    for leaf, slot in slots.items():
        assert machine.memories[leaf].overlay([0] * leaf.rank, slot, (sample,))  # type: ignore[attr-defined]
    along = array(lambda i: wrap(reduce_sum(lambda j: x[i, j] * w[j], columns), 32), rows)
    down = array(lambda j: wrap(reduce_sum(lambda i: x[i, j] * w[i], rows), 32), columns)
    found = [machine.evaluator.store_of(a).data for a in (along, down)]
    calls = tape.calls[2:]
    for n in (0, 1):
        for leaf, slot in slots.items():
            slot[...] = every[leaf][n]
        for call in calls:
            call()
        matrix, vector = (every[leaf][n].astype(np.int64) for leaf in (x, w))
        expected = (matrix @ vector[:, :columns, None])[..., 0], (vector[:, None, :rows] @ matrix)[:, 0]
        for y, z in zip(found, expected, strict=True):
            assert np.array_equal(y, z.astype(np.int32))
    assert not tape.refused
