"""Sums of products by the matrix unit: the words of integer arithmetic modulo 2^32, whatever the shapes, and those of other code."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewrite_compiler.lang import native_amx, native_fold, native_jit
from rewrite_compiler.lang.blocked import packed_columns, words_of
from rewrite_compiler.lang.native_fold import Kernel, run_fold
from rewrite_compiler.lang.straight import Op
from rewrite_compiler.lang.tape import Ran, Tape

has_unit = pytest.mark.skipif(not native_amx.is_there(), reason="this processor has no matrix unit, or the system keeps it")
LANES = 16
LEAST = -(1 << 15)


def step(width: int) -> tuple[Op, ...]:
    return Op("acc"), Op("dot", (), (0, 0, 0, width // 2)), Op("add", (0, 1))


class Case:
    """Random factors; rows and steps lie apart from each other, `gap` elements between two steps."""

    def __init__(self, rows: int, columns: int, steps: int, width: int, gap: int, *, kind: str = "<i4", has_start: bool = False) -> None:
        rng = np.random.default_rng(rows * columns + steps)
        self.padded, tiles = -(-rows // 4) * 4, -(-columns // LANES)
        factors = rng.integers(LEAST, -LEAST, (rows, steps, width + gap)).astype(np.int16)
        factors[rng.random(factors.shape) < 0.1] = LEAST
        b = rng.integers(LEAST, -LEAST, (columns, steps, width)).astype(np.int16)
        b[rng.random(b.shape) < 0.1] = LEAST
        places = np.minimum(np.arange(self.padded), rows - 1)
        tables = [(factors, (places * steps * (width + gap)).astype(np.int32), (np.arange(steps) * (width + gap)).astype(np.int32))]
        wide = tiles * LANES
        start = rng.integers(-(1 << 31), 1 << 31, (self.padded, wide)).astype(np.int32) if has_start else None
        packed = packed_columns([words_of(b, is_pairs=True)], tiles, LANES)
        self.kernel = Kernel(step(width), 1, width // 2, kind, native_amx.FORM, has_start)
        self.given = (tables, packed, start)
        self.numbers = [self.padded, tiles, steps, wide]
        exact = factors[..., :width].reshape(rows, -1).astype(np.int64) @ b.reshape(columns, -1).T.astype(np.int64)
        exact = exact + (start[:rows, :columns] if start is not None else 0)
        self.expected = exact.astype(np.uint64).astype(np.uint32).astype(np.int32).astype(kind)

    def found(self, tape: Tape | None = None) -> np.ndarray:
        shape = (self.padded, self.numbers[3])
        out = np.zeros(shape, self.kernel.kind) if tape is None else tape.empty(shape, self.kernel.kind)
        run_fold(self.kernel, *self.given, out, self.numbers, tape)
        rows, columns = self.expected.shape
        return out[:rows, :columns]

    def holds(self) -> None:
        np.testing.assert_array_equal(self.found(), self.expected)


@pytest.fixture
def every_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give small sums to the unit, too; fewer rows have room at a time."""
    for name in ("LEAST_ROWS", "LEAST_TILES", "LEAST_ELEMENTS", "LEAST_WIDTH"):
        monkeypatch.setattr(native_amx, name, 1)


@has_unit
@pytest.mark.usefixtures("every_sum")
@pytest.mark.parametrize(("rows", "columns"), list(itertools.product((1, 15, 16, 17, 40), (1, 16, 50))))
def test_every_height_and_breadth(rows: int, columns: int) -> None:
    Case(rows, columns, 9, 16, 0).holds()


@has_unit
@pytest.mark.usefixtures("every_sum")
@pytest.mark.parametrize(("width", "gap"), list(itertools.product((2, 4, 6, 8, 10, 12, 14, 16), (0, 2, 16))))
def test_every_width_of_a_step(width: int, gap: int) -> None:
    """Steps side by side are read as long runs; what is left at the end of a row is shorter."""
    for steps in (1, 2, 7, 8, 33):
        Case(18, 20, steps, width, gap).holds()


@has_unit
@pytest.mark.usefixtures("every_sum")
@pytest.mark.parametrize(("kind", "has_start"), list(itertools.product(("<i4", "<i2", "|u1", "<i8"), (False, True))))
def test_results_of_other_types_and_sums_that_start_somewhere(kind: str, has_start: bool) -> None:
    Case(21, 37, 5, 16, 4, kind=kind, has_start=has_start).holds()


@has_unit
def test_rows_that_are_taken_apart_in_several_turns() -> None:
    """4096 elements of 32 rows fill the room for A; the last turn has fewer rows."""
    assert native_amx.ROOM == 32 * 2 * native_amx.MOST_ELEMENTS
    Case(80, 64, 256, 16, 0).holds()
    Case(600, 64, 16, 16, 0).holds()


@has_unit
@settings(max_examples=25)
@given(rows=st.integers(32, 90), columns=st.integers(49, 90), steps=st.integers(32, 50), gap=st.integers(0, 9), has_start=st.booleans())
def test_words_are_those_of_integers(rows: int, columns: int, steps: int, gap: int, has_start: bool) -> None:
    Case(rows, columns, steps, 8, gap, has_start=has_start).holds()


@has_unit
def test_products_of_the_least_factors_wrap() -> None:
    case = Case(32, 64, 32, 8, 0)
    (factors, *_), columns = case.given[0][0], case.given[1]
    factors.fill(LEAST)
    columns.view(np.int16).fill(LEAST)
    assert (case.found() == (LEAST * LEAST * 256 + (1 << 31)) % (1 << 32) - (1 << 31)).all()


@has_unit
def test_threads_have_tiles_of_their_own() -> None:
    cases = [Case(64, 80, 20 + n, 16, n) for n in range(8)]
    with ThreadPoolExecutor(4) as threads:
        for case, found in zip(cases * 8, threads.map(Case.found, cases * 8), strict=True):
            np.testing.assert_array_equal(found, case.expected)


@has_unit
def test_a_recording_plays_it_and_its_fold_is_as_of_other_code() -> None:
    tape, case = Tape(0), Case(33, 70, 33, 8, 0)
    out = case.found(tape)
    tape.arena.scramble()
    (call,) = tape.calls
    call()
    np.testing.assert_array_equal(out, case.expected)
    fold = call.fold  # type: ignore[attr-defined]
    assert fold.width == 8
    assert fold.numbers.tolist() == [36, 5, 33, 80, 80]
    np.testing.assert_array_equal(fold.steps, case.given[0][0][2])


@has_unit
@pytest.mark.usefixtures("every_sum")
@pytest.mark.parametrize(("width", "steps", "has_start"), list(itertools.product((2, 6, 16), (1, 5, 33), (False, True))))
def test_columns_that_do_not_change_are_taken_apart_once(width: int, steps: int, has_start: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rewrite_compiler.lang.tape.LARGE", 1)
    tape, case = Tape(0), Case(37, 40, steps, width, 2, has_start=has_start)
    outs = [case.found(tape) for _ in range(2)]
    tape.arena.scramble()
    for out, call in zip(outs, tape.calls, strict=True):
        call()
        np.testing.assert_array_equal(out, case.expected)
    first, second = (call.run.args[3] for call in tape.calls)  # type: ignore[attr-defined]
    assert first == second != case.given[1].ctypes.data


@pytest.mark.parametrize("form", [native_amx.FORM, native_fold.VECTORS, ""])
def test_a_recorded_call_keeps_no_block_in_use(form: str) -> None:
    """What it reads and writes is free for others once nobody else holds it."""
    if form == native_amx.FORM and not native_amx.is_there():
        pytest.skip("this processor has no matrix unit, or the system keeps it")
    lanes = native_fold.FORMS[form][0]
    if form not in ("", *native_jit.host()[1]):
        pytest.skip(f"this processor has no {form}")
    tape, kernel = Tape(0), Kernel(step(16), 1, 8, "<i4", form, False)
    rows, steps = np.arange(32, dtype=np.int32) * 512, np.arange(32, dtype=np.int32) * 16
    columns = np.zeros((80 // lanes, 32, 8, lanes), np.int32)
    places = []
    for _ in range(3):
        a, out = tape.empty((32, 512), np.int16), tape.empty((32, 80), np.int32)
        a.fill(1)
        run_fold(kernel, [(a, rows, steps)], columns, None, out, [32, 80 // lanes, 32, 80], tape)
        places.append((a.ctypes.data, out.ctypes.data))
        del a, out
    assert len(tape.calls) == 3
    assert len(set(places)) == 1


@has_unit
def test_other_columns_are_taken_apart_on_the_way() -> None:
    tape, case = Tape(0), Case(40, 70, 33, 8, 0)
    out = case.found(tape)
    (call,) = tape.calls
    assert isinstance(call, Ran)
    others = -np.maximum(case.given[1].view(np.int16), 1 - (1 << 15))
    call.bind([call.out.ctypes.data, others.ctypes.data, *(r.address + r.offset for r in call.reads[1:])])()
    case.given = (case.given[0], others.view(np.int32), None)
    np.testing.assert_array_equal(out, case.found())


@pytest.mark.parametrize("has_start", [False, True])
def test_without_the_unit_vectors_compute_the_same(has_start: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if native_fold.VECTORS not in native_jit.host()[1]:
        pytest.skip("this processor has no AVX-512 VNNI")
    monkeypatch.setattr(native_amx, "is_there", lambda: False)
    assert native_fold.best_form() == native_fold.VECTORS
    Case(40, 70, 33, 8, 2, has_start=has_start).holds()


def test_small_sums_are_left_to_vectors() -> None:
    steps, tiling = np.arange(0, 512, 16, dtype=np.int32), native_amx.Tiling("<i4", 16, 0, False)
    for numbers in ([28, 4, 32, 64, 64], [32, 3, 32, 48, 48], [32, 4, 15, 64, 64]):
        assert native_amx.ready(tiling, steps, np.array(numbers, np.int64)) is None


@pytest.mark.parametrize(
    ("steps", "width", "expected"),
    [
        ([0, 16, 32, 48, 64], 16, (64, 16, [0, 64])),
        ([0, 16, 64, 80], 16, (32, 0, [0, 64])),
        ([0, 12, 24], 12, (64, 36, [0])),
        ([0, 20, 40], 12, (4, 0, [0, 4, 8, 20, 24, 28, 40, 44, 48])),
        ([0, 0], 8, (8, 0, [0, 0])),
    ],
)
def test_steps_side_by_side_are_one_run(steps: list[int], width: int, expected: tuple[int, int, list[int]]) -> None:
    wide, rest, first = native_amx.joined(np.array(steps, np.int32).tobytes(), width)
    assert (wide, rest, first.tolist()) == expected
