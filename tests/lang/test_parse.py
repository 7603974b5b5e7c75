"""What is shown of a term can be read back; what cannot be read is named by its column."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from test_readings import problems
from test_steps import Contents
from test_text import SQUARE, TERMS, N, X, numbered

from rewrite_compiler.errors import SpecError
from rewrite_compiler.lang import Array, Expr, Leaf, array, fold, fold_arrays, parser, sat, wrap
from rewrite_compiler.lang.binders import scalar_array, static_shape
from rewrite_compiler.lang.expr import lift
from rewrite_compiler.lang.printer import show
from rewrite_compiler.readings.oracle.emit_python import evaluate

LEAVES = {"x": X, "n": N}
NAMES = {"square": SQUARE}


def free(e: Expr) -> dict[str, Expr]:
    return {show(v): v for v in e.free}


@pytest.mark.parametrize(("term", "text"), TERMS, ids=[text for _, text in TERMS])
def test_shown_terms_are_read_back(term: Expr, text: str) -> None:
    found = parser.parse(show(term), LEAVES, NAMES, free(term))
    assert numbered(show(found)) == numbered(show(term)) == text
    assert found.interval == term.interval


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(problems())
def test_random_terms_are_read_back(problem: tuple[Array, list[Leaf], Contents]) -> None:
    term, leaves, contents = problem
    if 0 in static_shape(term):
        return
    whole = term[(0,) * term.rank]
    found = parser.parse(show(whole), {leaf.name: leaf for leaf in leaves}, {t.name: t for t in tables_of(whole)})
    assert numbered(show(found)) == numbered(show(whole))
    assert found.interval == whole.interval
    wanted, got = (outcome(e, contents) for e in (whole, found))
    assert wanted == got


def outcome(e: Expr, contents: Contents) -> object:
    try:
        return evaluate(scalar_array(e), dict(contents), 1)
    except (ZeroDivisionError, ValueError, IndexError, OverflowError) as error:
        return type(error)


def test_widths_of_accumulators_are_kept() -> None:
    narrow = fold(3, 0, lambda k, acc: sat(acc + X[0, k], 8), (-128, 127))
    first, second = fold_arrays(3, [array(lambda i: X[i, 0], 4), X], lambda k, a, b: [array(lambda i: wrap(a[i] + b[i, k], 8), 4), b])
    for term in (narrow, first[1], second[1, 2]):
        found = parser.parse(show(term), LEAVES)
        assert numbered(show(found)) == numbered(show(term))
        assert found.data.fold.accumulators[0].interval == term.data.fold.accumulators[0].interval


def test_an_inner_variable_hides_an_outer_one_of_its_name() -> None:
    found = parser.parse("sum(i < 3: i + sum(i < 3: i * 10))", {})
    assert evaluate(scalar_array(found), {}, 1) == [3 + 3 * 30]


@pytest.mark.parametrize(("name", "base"), [("row_no", "row_no"), ("row_no_7", "row_no"), ("row", "row"), ("row7", "row7"), ("_7", "_7")])
def test_a_variable_keeps_its_name_but_for_the_number_that_it_was_shown_with(name: str, base: str) -> None:
    found = parser.parse(f"sum({name} < 3: {name} * 2)", {})
    (variable,) = found.data[1]
    assert (variable.data[0], evaluate(scalar_array(found), {}, 1)) == (base, [6])


SENTENCES = {
    "x[0, 1": "'x[0, 1' is not a whole term: it ends too early",
    "x[0, 1] + + 2": "'x[0, 1] + + 2' cannot be read as a term from column 11 on",
    "y[0]": "y is no array in 'y[0]'",
    "k + 1": "k is not known in 'k + 1'",
    "n": "n is not known in 'n'",
    "cube(3)": "cube is no function in 'cube(3)'",
    "select(1, 2)": "select cannot have 2 operands in 'select(1, 2)'",
    "wrap(3, 8)": "8 is no width for wrap in 'wrap(3, 8)'",
    "sum(3: 4)": "a range must be written as variable < length in 'sum(3: 4)'",
    "array(i < 3: i)": "array binds no variables of a number in 'array(i < 3: i)'",
    "sum(i < 3: i)[0]": "a number stands where an array is wanted in 'sum(i < 3: i)[0]'",
    "x[0]": "x has 2 axes, not 1",
    "fold(3: a = x then x).0[0, 0]": "a range must be written as variable < length in 'fold(3: a = x then x).0[0, 0]'",
}


@pytest.mark.parametrize("text", SENTENCES)
def test_refused(text: str) -> None:
    with pytest.raises(SpecError) as refusal:
        parser.parse(text, LEAVES)
    assert refusal.value.problem.sentence == SENTENCES[text]


def test_a_long_text_is_refused() -> None:
    with pytest.raises(SpecError, match="a term has at most 1048576 characters, not 1048577"):
        parser.parse("1" * ((1 << 20) + 1), {})
    assert lift(1) is parser.parse("1", {})


def tables_of(e: Expr) -> list[object]:
    from rewrite_compiler.lang.traversal import terms_of

    return [x.data for x in terms_of(e) if x.op == "table"]
