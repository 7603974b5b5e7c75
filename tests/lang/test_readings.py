"""Every reading gives the same answer: random terms, walked, generated, vectorised, and known to the solver."""

from __future__ import annotations

import contextlib
import itertools
import os
from typing import Any

import numpy as np
import pytest
import z3
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from terms import Terms, contents_of
from walker import Undefined, Walker

from rewrite_compiler.errors import SpecError
from rewrite_compiler.lang import Array, Expr, Leaf, Table, array, clz, concat, const, number_at, select
from rewrite_compiler.lang.binders import entries_of, index_variable, scalar_array, static_shape
from rewrite_compiler.lang.traversal import terms_of
from rewrite_compiler.readings.arrays.evaluator import Evaluator
from rewrite_compiler.readings.arrays.labelled_array import Axes, Store, axis_of, storage_dtype
from rewrite_compiler.readings.kernels.evaluate import evaluate
from rewrite_compiler.readings.oracle.emit_python import evaluate as oracle
from rewrite_compiler.readings.smt.bitvector_evaluator import evaluator_for, prefers_bits
from rewrite_compiler.readings.smt.evaluator import SymbolicEvaluator, prove_equal, truth
from rewrite_compiler.readings.smt.normal_form_evaluator import NormalFormEvaluator, Z3Translator, variables
from rewrite_compiler.readings.smt.polynomial_terms import Terms as NormalTerms

EXAMPLES = int(os.environ.get("FLEXMATCH_EXAMPLES", "150"))
RANDOM = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))


@st.composite
def problems(draw: st.DrawFn, depth: int = 4) -> tuple[Array, list[Leaf], dict[Leaf, list[int]]]:
    """Draw an array term over two or three operands, and their contents."""
    t = Terms(draw)
    for n in range(draw(st.integers(2, 3))):
        t.leaf(f"x{n}")
    extents = tuple(draw(st.integers(1, 3)) for _ in range(draw(st.integers(0, 2))))
    term = array(t.with_variables(extents, depth), extents)
    return term, t.leaves, {leaf: contents_of(draw, leaf) for leaf in t.leaves}


def walked(term: Array, contents: dict[Leaf, list[int]]) -> list[int] | None:
    """Return the elements by the reference meaning; None where the term has no value."""
    memories = {leaf: dict(zip(itertools.product(*map(range, static_shape(leaf))), x, strict=True)) for leaf, x in contents.items()}
    try:
        return list(Walker(memories).contents(term, {}).values())
    except Undefined:
        return None


def stored(leaf: Leaf, elements: list[int], lead: tuple[int, ...] = ()) -> np.ndarray:
    return np.array(elements, storage_dtype(leaf.interval)).reshape((*lead, *static_shape(leaf)))


def flat(data: Any) -> list[int]:
    return [int(x) for x in np.asarray(data).reshape(-1)]


@RANDOM
@given(problems())
def test_oracle_arrays_and_intervals_agree_with_the_meaning(problem: tuple[Array, list[Leaf], dict[Leaf, list[int]]]) -> None:
    term, _, contents = problem
    expected = walked(term, contents)
    if expected is None:
        return
    low, high = term.interval
    assert low <= min(expected)
    assert max(expected) <= high
    assert oracle(term, contents, len(expected)) == expected
    assert flat(evaluate(term, {leaf: stored(leaf, x) for leaf, x in contents.items()})) == expected
    exact = {leaf: np.array([*x, 0], object)[:-1].reshape(static_shape(leaf)) for leaf, x in contents.items()}
    assert [int(truth(x) if isinstance(x, bool) else x) for x in SymbolicEvaluator(exact).array(term).reshape(-1)] == expected


@RANDOM
@given(st.data())
def test_a_sample_axis_changes_no_value(data: st.DataObject) -> None:
    """Some operands differ between samples; what does not depend on them has no sample axis."""
    term, leaves, contents = data.draw(problems())
    samples = data.draw(st.integers(1, 3))
    sampled = [leaf for leaf in leaves if data.draw(st.booleans())]
    every = {leaf: [contents_of(data.draw, leaf) for _ in range(samples)] for leaf in sampled}
    expected = [walked(term, {**contents, **{leaf: rows[n] for leaf, rows in every.items()}}) for n in range(samples)]
    if None in expected:
        return
    sample = index_variable("sample", samples)
    axes = Axes()
    axes.add(axis_of(sample), samples)
    stores = {leaf: Store(stored(leaf, contents[leaf])) for leaf in leaves if leaf not in sampled}
    for leaf in sampled:
        stores[leaf] = Store(stored(leaf, [x for row in every[leaf] for x in row], (samples,)), (axis_of(sample),))
    evaluator = Evaluator(stores, axes)
    with np.errstate(all="ignore"):
        found = evaluator.store_of(term)
    assert set(found.batch) <= {axis_of(sample)}
    rows = np.broadcast_to(found.data, (samples, *found.element_shape)) if not found.batch else found.data
    assert [flat(row) for row in rows] == expected


@settings(max_examples=max(40, EXAMPLES // 4), deadline=None, suppress_health_check=list(HealthCheck))
@given(problem=problems(depth=3), symbols=st.booleans())
def test_normal_forms_are_the_meaning(problem: tuple[Array, list[Leaf], dict[Leaf, list[int]]], symbols: bool) -> None:
    """On numbers, and on symbols that are replaced by the numbers afterwards."""
    term, _, contents = problem
    expected, terms, translated = walked(term, contents), NormalTerms(), Z3Translator()
    if expected is None:
        return
    numbers = {leaf: np.array([*x, 0], object)[:-1].reshape(static_shape(leaf)) for leaf, x in contents.items()}
    operands = {leaf: variables(terms, f"{leaf.name} ", static_shape(leaf), leaf.interval) for leaf in contents} if symbols else numbers
    values: list[Any] = []
    with contextlib.suppress(SpecError) if symbols else contextlib.nullcontext():  # control that depends on data
        values = list(NormalFormEvaluator(operands, terms).array(term).flat)
    pairs = [(v, x) for leaf, a in operands.items() for v, x in zip(a.flat, contents[leaf], strict=True) if not isinstance(v, int)]
    substitution = [(z3.Int(str(v)), z3.IntVal(x)) for v, x in pairs]
    for value, number in zip(values, expected[: len(values)], strict=True):
        result = z3.simplify(z3.substitute(z3.IntVal(0) + translated.of(value), *substitution))
        assert not z3.is_int_value(result) or result.as_long() == number
        assert symbols or z3.is_int_value(result)


@pytest.mark.parametrize("number", [1 << 63, 1 << 64, (1 << 70) + 1])
def test_a_choice_may_be_of_numbers_beyond_64_bits(number: int) -> None:
    """The choice differs between elements, and its branches do not."""
    x = Leaf((4,), (0, 1), False, "x")
    term, contents = array(lambda i: select(x[i] > 0, const(number), const(-3)) >> 1, (4,)), {x: [0, 1, 1, 0]}
    expected = [-2, number >> 1, number >> 1, -2]
    assert walked(term, contents) == expected
    assert flat(evaluate(term, {x: stored(x, contents[x])})) == expected


@pytest.mark.parametrize("numbers", [(3, -5, 3, 200, 7), (0, 1 << 40), (1 << 63, -(1 << 64), 5), (9, 9)])
def test_a_number_of_a_list_is_its_entry_in_every_reading(numbers: tuple[int, ...]) -> None:
    """The list stands for the entries where they are read, its term where it is proved."""
    x = Leaf((6,), (0, len(numbers) - 1), False, "x")
    term, contents = array(lambda i: number_at("listed", numbers, x[i]), (6,)), {x: [n % len(numbers) for n in (4, 0, 3, 1, 2, 4)]}
    expected = [numbers[n] for n in contents[x]]
    assert walked(term, contents) == oracle(term, {x: contents[x]}, 6) == expected
    assert flat(evaluate(term, {x: stored(x, contents[x])})) == expected
    assert term.interval == (min(numbers), max(numbers))
    e = number_at("listed", numbers, index_variable("n", len(numbers)))
    if len(set(numbers)) > 1:
        assert e.data is number_at("listed", [*numbers], x[0]).data
        assert flat(Evaluator({}).store_of(entries_of(Table("again", e.data.function, *e.data.domains))).data) == [*numbers]


@pytest.mark.parametrize("engine", ["integers", "words"])
@settings(max_examples=max(40, EXAMPLES // 8), deadline=None, suppress_health_check=list(HealthCheck))
@given(problem=problems(depth=2))
def test_the_solver_computes_the_same(engine: str, problem: tuple[Array, list[Leaf], dict[Leaf, list[int]]]) -> None:
    """With every operand symbolic and then fixed by premises, the solver proves the value, in both of its engines."""
    term, _, contents = problem
    expected = walked(term, contents)
    if expected is None or (engine == "words" and is_open(term.body)):
        return
    reading, premises = evaluator_for([], contents, bits=engine == "words")
    for leaf, data in reading.memories.items():
        premises += [s == x for s, x in zip(data.reshape(-1), contents[leaf], strict=True)]
    values = reading.array(term).reshape(-1)
    verdict = prove_equal(list(zip(values, expected, strict=True)), premises, 20)
    assert verdict.outcome == "proved", (term, contents, expected, verdict)


def is_open(e: Expr) -> bool:
    """Tell whether a term below has no bounds: it has no word of bits."""
    tables = [x.data.body for x in terms_of(e) if x.op == "table"]
    return any(None in x.interval for t in (e, *tables) for x in terms_of(t))


x8, y8 = Leaf((), (0, 255), False, "x"), Leaf((), (-128, 127), False, "y")
a8, b8 = x8[()], y8[()]
IDENTITIES: dict[str, tuple[Expr, Expr]] = {
    "exclusive or twice": ((a8 ^ b8) ^ b8, a8 + 0),
    "and plus or": ((a8 & b8) + (a8 | b8), a8 + b8),
    "the two halves of a byte": (concat((a8[4:8], 4), (a8[0:4], 4)), a8 + 0),
    "a mask is a remainder": (b8 & 15, b8 % 16),
    "leading zeros find the binade": (select(a8 > 0, (const(1) << (7 - clz(a8, 8))) <= a8, 1), const(1)),
    "complement": (b8 ^ -1, -b8 - 1),
}


@pytest.mark.parametrize("name", IDENTITIES)
def test_words_of_bits_prove_what_is_about_bits(name: str) -> None:
    left, right = IDENTITIES[name]
    assert prefers_bits([left, right])
    reading, premises = evaluator_for([left, right], [x8, y8])
    assert prove_equal([(reading.value(left), reading.value(right))], premises, 20).outcome == "proved"


def test_words_of_bits_refute_with_a_model_that_the_oracle_confirms() -> None:
    left, right = a8 | b8, a8 + b8
    reading, premises = evaluator_for([left, right], [x8, y8])
    verdict = prove_equal([(reading.value(left), reading.value(right))], premises, 20)
    assert verdict.outcome == "refuted"
    operands = {x8: [int(verdict.model.get("x", 0))], y8: [int(verdict.model.get("y", 0))]}
    assert oracle(scalar_array(left), operands, 1) != oracle(scalar_array(right), operands, 1)


def test_what_the_terms_prefer() -> None:
    assert not prefers_bits([a8 + b8])
    assert not prefers_bits([(a8 < b8) & (a8 > 3)])
    assert not prefers_bits([const(1) & (a8 < b8)])  # what a decided condition leaves is logic, too
    assert not prefers_bits([(a8 & b8) * (1 << 60)])
    assert prefers_bits([a8 + (a8 & 1)])


@pytest.mark.parametrize("reading", ["oracle", "arrays"])
def test_a_branch_that_is_not_taken_is_not_evaluated(reading: str) -> None:
    x = Leaf((4,), (-8, 7), False, "x")

    def element(i: Expr) -> Expr:
        return select(x[i] == 0, 100, 50 // x[i]) + select(i < 3, x[(i + 1) % 4], -1)

    values = [0, 7, -8, 0]
    expected = [107, -1, -7, 99]
    found = oracle(array(element, 4), {x: values}, 4) if reading == "oracle" else flat(evaluate(array(element, 4), {x: np.array(values)}))
    assert found == expected
