"""Machine code does what the meaning says: random steps and terms, loops that alias, diagnostics, refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from test_readings import problems as terms
from test_readings import walked as walked_term
from test_steps import ACC, AT_ONCE, IN_ORDER, RANDOM, A, B, C, Contents, Problem, by_oracle, problems, walked

from rewrite_compiler.errors import SpecError
from rewrite_compiler.ila.simulation.simulator import LEVEL
from rewrite_compiler.lang import Array, Leaf, Step, array, as_real, assign, lift, loop, require, select, update
from rewrite_compiler.lang.binders import static_shape
from rewrite_compiler.lang.step import make_update
from rewrite_compiler.readings.arrays.labelled_array import storage_dtype
from rewrite_compiler.readings.native.printer import NativeFunction, NotNative, native_function

FITS = (-(1 << 63), (1 << 63) - 1)


def by_native(step: Step, contents: Contents) -> Contents | str:
    """Return the memories after the step by machine code, or why it cannot run there."""
    function = native_function(step, False, LEVEL)
    if isinstance(function, str):
        return function
    after = {leaf: np.array(x, storage_dtype(leaf.interval)).reshape(static_shape(leaf)) for leaf, x in contents.items()}
    function([after[leaf] for leaf in function.memories])
    return {leaf: data.reshape(-1).tolist() for leaf, data in after.items()}


@RANDOM
@given(problems(writes_control=True))
def test_random_steps(p: Problem) -> None:
    expected = walked(p, p.contents)
    if expected is None:
        return
    found = by_native(p.step, p.contents)
    if isinstance(found, str):
        assert "64 bits" in found
        return
    assert found == expected


@RANDOM
@given(terms())
def test_random_terms(problem: tuple[Array, list[Leaf], Contents]) -> None:
    term, _, contents = problem
    expected = walked_term(term, contents)
    if expected is None or not (FITS[0] <= (term.interval[0] or 0) and (term.interval[1] or 0) <= FITS[1]):
        return
    out = Leaf(term.shape, FITS, False, "out")
    step = update(out, term.shape, lambda *i: (i, term[i]))
    found = by_native(step, {**contents, out: [0] * math.prod(static_shape(out))})
    assert isinstance(found, str) or found[out] == expected


@pytest.mark.parametrize("name", [*IN_ORDER, *AT_ONCE])
def test_loops_that_alias(name: str) -> None:
    step = {**IN_ORDER, **AT_ONCE}[name]
    rng = np.random.default_rng(3)
    contents = {leaf: rng.integers(leaf.interval[0], leaf.interval[1], leaf.shape, endpoint=True).tolist() for leaf in (A, B, C, ACC)}
    assert by_native(step, contents) == by_oracle(step, contents)


def test_a_diagnostic_names_its_values() -> None:
    step = loop(4, lambda k: require(C[k] < 9, "I103", "element {k} is {value}", always=True, k=k, value=C[k]))
    with pytest.raises(SpecError, match=r"\[I103\]: element 2 is 9$"):
        NativeFunction(step)([np.array([3, 8, 9, 1], np.uint8)])
    NativeFunction(step)([np.array([3, 8, 7, 1], np.uint8)])


@pytest.mark.parametrize(
    ("step", "sentence"),
    [
        (loop(4, lambda k: assign(A, A[k + C[0]], k)), r"\[I103\]: an index lies outside of its array$"),
        (assign(A, select(lift(7) // C[1] > 3, 1, 0), 0), r"\[I102\]: division by zero$"),
        (assign(A, select((C[0] >> C[2] - 3) > 3, 1, 0), 0), r"\[I102\]: a shift by a negative amount$"),
    ],
)
def test_what_has_no_value(step: Step, sentence: str) -> None:
    function = NativeFunction(step)
    memories = {A: np.zeros(16, np.int8), C: np.array([15, 0, 2, 0], np.uint8)}
    with pytest.raises(SpecError, match=sentence):
        function([memories[leaf] for leaf in function.memories])


def test_a_branch_that_is_not_taken_is_not_evaluated() -> None:
    step = loop(4, lambda k: assign(A, select(C[k] == 0, 100, 50 // C[k]), k))
    assert by_native(step, {A: [0] * 16, C: [0, 5, 0, 7]}) == by_oracle(step, {A: [0] * 16, C: [0, 5, 0, 7]})


def test_what_does_not_fit_a_word_is_refused_with_a_reason() -> None:
    wide = Leaf((2,), FITS, False, "wide")
    with pytest.raises(
        NotNative, match=r"add takes values in \(-18446744073709551616, 18446744073709551614\), more than a word of 64 bits"
    ):
        NativeFunction(assign(A, select(wide[0] + wide[1] > 0, 1, 0), 0))
    with pytest.raises(NotNative, match="is a real number"):
        NativeFunction(assign(A, select(as_real(C[0]) / 3 > 1, 1, 0), 0))


def test_memories_of_another_form_are_refused() -> None:
    function = NativeFunction(make_update(C, (), (), 0, 3))
    with pytest.raises(SpecError, match=r"c must be 4 elements of uint8 in one piece, not 4 of int64$"):
        function([np.zeros(4, np.int64)])
    with pytest.raises(SpecError, match=r"c must be 4 elements of uint8 in one piece, not 5 of uint8$"):
        function([np.zeros(5, np.uint8)])
    with pytest.raises(SpecError, match="in one piece"):
        function([np.zeros(8, np.uint8)[::2]])


def test_arrays_of_a_length_known_at_run_time() -> None:
    def step() -> Step:
        kept = array(lambda i: A[i] + 1, (C[0] + 1,))
        return loop(C[0] + 1, lambda k: assign(B, select(kept[k] > 100, 100, kept[C[0]] // 2), k % 16))

    made = step()
    for n in (0, 3, 15):
        contents = {A: list(range(90, 106)), B: [0] * 16, C: [n, 0, 0, 0]}
        assert by_native(made, contents) == by_oracle(made, contents)
