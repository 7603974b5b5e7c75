"""C code does what the meaning says: random steps compiled with gcc, reals as written, what is dead left out, refusals."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from printed_c import Library, needs_gcc
from test_steps import ACC, AT_ONCE, IN_ORDER, A, B, C, Contents, Problem, by_oracle, problems, walked

from rewrite_compiler.errors import SpecError
from rewrite_compiler.lang import (
    FLOAT16,
    AdaptivFloat,
    Array,
    Fixed,
    Leaf,
    Step,
    array,
    assign,
    call,
    const,
    lift,
    loop,
    reduce_sum,
    require,
    sat,
    select,
)
from rewrite_compiler.lang.binders import fold, static_shape
from rewrite_compiler.lowering.lower import lower_array, lower_step
from rewrite_compiler.readings.arrays.labelled_array import Data, storage_dtype
from rewrite_compiler.readings.c.printer import NoC, Style, Tables, print_c
from rewrite_compiler.readings.kernels.format_conversion import codes_of, values_of

REAL = (None, None)


def stored(contents: Contents) -> dict[Leaf, Data]:
    return {leaf: np.array(x, storage_dtype(leaf.interval, leaf.real)).reshape(static_shape(leaf)) for leaf, x in contents.items()}


@needs_gcc
@settings(max_examples=1, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
@given(st.lists(problems(writes_control=True), min_size=40, max_size=40))
def test_random_steps(tmp_path_factory: pytest.TempPathFactory, found: list[Problem]) -> None:
    """Forty steps in one file; compiling one by one would take minutes."""
    tables, printed = Tables(), []
    cases: dict[str, tuple[Problem, Contents]] = {}
    for n, p in enumerate(found):
        expected = walked(p, p.contents)
        try:
            made = print_c(lower_step(p.step), f"f{n}", tables)
        except NoC:  # more than a word holds
            continue
        if expected is not None:
            printed.append(made)
            cases[made.name] = p, expected
    library = Library(printed, tables, tmp_path_factory.mktemp("c"))
    for name, (p, expected) in cases.items():
        after = stored(p.contents)
        assert library.run(name, after) == 0
        assert {leaf: x.reshape(-1).tolist() for leaf, x in after.items()} == expected


@needs_gcc
def test_loops_that_alias(tmp_path: Path) -> None:
    tables = Tables()
    steps = {f"f{n}": step for n, step in enumerate((*IN_ORDER.values(), *AT_ONCE.values()))}
    library = Library([print_c(lower_step(s), name, tables) for name, s in steps.items()], tables, tmp_path)
    rng = np.random.default_rng(3)
    contents = {leaf: rng.integers(leaf.interval[0], leaf.interval[1], leaf.shape, endpoint=True).tolist() for leaf in (A, B, C, ACC)}
    for name, step in steps.items():
        after = stored(contents)
        assert library.run(name, after) == 0
        assert {leaf: x.reshape(-1).tolist() for leaf, x in after.items()} == by_oracle(step, contents)


def evaluated(terms: Sequence[Array], folder: Path, given: dict[Leaf, Data], real: str = "double") -> list[Data]:
    """Return what array terms give in C."""
    tables = Tables()
    printed = [print_c(lower_array(t), f"f{n}", tables, Style(real, unbounded=True)) for n, t in enumerate(terms)]
    library = Library(printed, tables, folder)
    found = []
    for t, f in zip(terms, printed, strict=True):
        out = np.zeros(
            [int(n) for n in t.shape], {"float": np.float32, "double": np.float64}[real] if t.real else storage_dtype(t.interval)
        )  # type: ignore[arg-type]
        assert library.run(f.name, {m: given.get(m, out) for m in f.memories}) == 0
        found.append(out)
    return found


@needs_gcc
def test_formats_encode_and_decode_as_the_tables_do(tmp_path: Path) -> None:
    formats = (
        Fixed(8, 5),
        Fixed(16, 7, "floor"),
        Fixed(8, 3, "half_up", signed=False),
        AdaptivFloat(bias=3),
        AdaptivFloat(bias=7),
        FLOAT16,
    )
    rng = np.random.default_rng(4)
    ends = [sign * float(f.largest) * scale for f in formats for sign in (1, -1) for scale in (1, 1.001, 0.5, 2.0**-9, 3 * 2.0**-9)]
    values = np.concatenate([rng.normal(0, s, 300) for s in (0.01, 1, 40)] + [np.array([0.0, *ends])]).astype(np.float32).astype(np.float64)
    x = Leaf((len(values),), REAL, True, "x")
    encoders = [array(lambda i, f=f: f.encode(x[i]), len(values)) for f in formats]
    for f, codes in zip(formats, evaluated(encoders, tmp_path, {x: values}), strict=True):
        assert np.array_equal(codes, codes_of(f, values)), f
    for n, f in enumerate(formats):
        folder = tmp_path / str(n)  # a library is loaded once a path
        folder.mkdir()
        codes = codes_of(f, values[np.abs(values) <= float(f.largest)]).astype(np.int64)  # terms have no infinity
        c = Leaf((len(codes),), f.codes, False, "c")
        (back,) = evaluated([array(lambda i, f=f, c=c: f.decode(c[i]), len(codes))], folder, {c: codes.astype(storage_dtype(f.codes))})
        assert np.array_equal(back, values_of(f, codes)), f


@needs_gcc
def test_float_sums_are_in_the_order_of_the_loop(tmp_path: Path) -> None:
    """Single precision, no contraction: what numpy computes one product and one sum after the other."""
    rng = np.random.default_rng(5)
    a, b = (rng.normal(0, 1, (7, 33)).astype(np.float32) for _ in range(2))
    x, y = (Leaf((7, 33), REAL, True, name) for name in "xy")
    (found,) = evaluated([array(lambda i, j: reduce_sum(lambda k: x[i, k] * y[j, k], 33), (7, 7))], tmp_path, {x: a, y: b}, "float")
    expected = np.zeros((7, 7), np.float32)
    for k in range(33):
        expected = expected + a[:, None, k] * b[None, :, k]
    assert np.array_equal(found, expected)
    assert not np.array_equal(found, a @ b.T)


def traps() -> dict[str, tuple[Step, int]]:
    return {
        "index": (loop(4, lambda k: assign(A, A[k + C[0]], k)), -1),
        "division": (assign(A, select(lift(7) // C[1] > 3, 1, 0), 0), -2),
        "shift": (assign(A, select((C[0] >> C[2] - 3) > 3, 1, 0), 0), -3),
    }


@needs_gcc
def test_traps_and_diagnostics_are_answers(tmp_path: Path) -> None:
    tables = Tables()
    said = loop(4, lambda k: require(C[k] < 9, "I103", "element {k} is {value}", always=True, k=k, value=C[k]))
    steps = {**{name: step for name, (step, _) in traps().items()}, "said": said}
    library = Library([print_c(lower_step(s), name, tables, first_raise=5) for name, s in steps.items()], tables, tmp_path)
    zeros = {leaf: [0] * int(leaf.shape[0]) for leaf in (A, B, C, ACC)}
    for name, (_, answer) in traps().items():
        assert library.run(name, stored({**zeros, C: [200 if name == "index" else 0, 0, 0, 0]})) == answer
    assert library.run("said", stored({**zeros, C: [3, 8, 9, 1]})) == 5
    assert library.run("said", stored({**zeros, C: [3, 8, 7, 1]})) == 0


def test_what_nothing_reads_is_left_out() -> None:
    """A fold keeps the history of its accumulator only where something reads it."""
    total = array(lambda: fold(8, 0, lambda k, acc: sat(lift(acc) + C[k % 4], 20, False), (0, (1 << 20) - 1)), ())
    text = print_c(lower_array(total), "total", Tables()).text
    assert "a1" not in text


@pytest.mark.parametrize(
    ("term", "sentence"),
    [
        (array(lambda: call("exp", const(0.5)), ()), "exp has no C form"),
        (array(lambda: (lift(1) << C[0] + 60) % 7, ()), r".*more than a word of 64 bits holds"),
    ],
)
def test_what_has_no_c_form_is_said(term: Array, sentence: str) -> None:
    with pytest.raises(SpecError) as caught:
        print_c(lower_array(term), "f", Tables())
    assert re.fullmatch(sentence, caught.value.problem.sentence)


def test_large_arrays_are_static_without_a_heap() -> None:
    x = Leaf((3000,), REAL, True, "x")
    running = array(lambda i: reduce_sum(lambda k: x[(i + k) % 3000], 3), 3000)
    twice = lower_array(array(lambda i: reduce_sum(lambda k: running[(i * 7 + k) % 3000], 2), 5))
    without, usual = (print_c(twice, "f", Tables(), Style("float", heap=heap)).text for heap in (False, True))
    assert re.search(r"static float a\d+\[3000\]", without)
    assert "fm_new" not in without
    assert "fm_new" in usual
