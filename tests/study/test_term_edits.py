"""Each alternative of a term computes what it says, at the places where the term has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest

from rewrite_compiler.lang import Array, Expr, Leaf, Table, array, clamp, fold, maximum, minimum, sat, select, switch, wrap
from rewrite_compiler.lang.binders import fold_arrays
from rewrite_compiler.lang.formats import Fixed, Format
from rewrite_compiler.lang.traversal import terms_of
from rewrite_compiler.readings.kernels.evaluate import evaluate_together
from rewrite_compiler.study.numerics.edits import SourceTerms, edits_of, next_step
from rewrite_compiler.study.numerics.format_reads import Read, observed
from rewrite_compiler.study.numerics.source_places import with_places
from rewrite_compiler.study.numerics.table_constants import fitted_constants

X = Leaf((4, 4), (-128, 127), False, "x")
CODES = np.random.default_rng(3).integers(-128, 128, (4, 4))


def limited_sums(i: Expr) -> Expr:
    """Return the second of two sums that begin at 40."""
    forty = array(lambda _: sat(X[0, 0] - X[0, 0] + 40, 9), (2,))
    (sums,) = fold_arrays(4, [forty], lambda k, acc: [array(lambda j: sat(acc[j] + X[i, k] * j, 11), (2,))], [(-1024, 1023)])
    return sums[1]


# alternative → the term of row i, and its value after the edit
EDITS: dict[str, tuple[Callable[[Expr], Expr], Callable[[int], int]]] = {
    "wider_clamp": (lambda i: clamp(X[i, 0], -8, 7), lambda i: CODES[i, 0]),
    "wider_clamp of one end": (lambda i: minimum(7, X[i, 0]), lambda i: CODES[i, 0]),
    "wider_wrap": (lambda i: wrap(X[i, 0], 4, True), lambda i: CODES[i, 0]),
    "saturate": (lambda i: wrap(X[i, 0], 4, True), lambda i: np.clip(CODES[i, 0], -8, 7)),
    "nearest": (lambda i: (X[i, 0] + 3) >> 3, lambda i: CODES[i, 0] + 4 >> 3),
    "nearest of a plain shift": (lambda i: (X[i, 0] + X[i, 1]) >> 3, lambda i: CODES[i, 0] + CODES[i, 1] + 4 >> 3),
    "shift_less": (lambda i: X[i, 0] >> 3, lambda i: CODES[i, 0] >> 2),
    "shift_less of a factor": (lambda i: (X[i, 0] >> 3) * X[i, 1], lambda i: (CODES[i, 0] >> 2) * CODES[i, 1]),
    "shift_more": (lambda i: X[i, 0] >> 3, lambda i: CODES[i, 0] >> 4),
    "shift_less to the left": (lambda i: X[i, 0] << 3, lambda i: CODES[i, 0] << 2),
    "shift_less of none": (lambda i: X[i, 0] << (X[i, 1] & 1), lambda i: CODES[i, 0]),
    "shift_more to the left": (lambda i: X[i, 0] << 3, lambda i: CODES[i, 0] << 4),
    "shift_more to the left by data": (lambda i: X[i, 0] << X[i, 1] % 4, lambda i: CODES[i, 0] << CODES[i, 1] % 4 + 1),
    "swap_operands": (lambda i: X[i, 0] - X[i, 1], lambda i: CODES[i, 1] - CODES[i, 0]),
    "swap_branches": (lambda i: select(X[i, 0] < 0, X[i, 1], X[i, 2]), lambda i: CODES[i, 2 if CODES[i, 0] < 0 else 1]),
    "swap_indices": (lambda i: X[i, 2], lambda i: CODES[2, i]),
    "flip": (lambda i: maximum(X[i, 0], X[i, 1]), lambda i: min(CODES[i, 0], CODES[i, 1])),
    "from_zero": (lambda i: fold(4, 40, lambda k, acc: sat(acc + X[i, k], 11), 11), lambda i: CODES[i].sum()),
    "from_zero of an array": (limited_sums, lambda i: CODES[i].sum()),
    "no_constant": (lambda i: X[i, 0] + 9, lambda i: CODES[i, 0]),
    "twice_constant": (lambda i: 12 - X[i, 0], lambda i: 24 - CODES[i, 0]),
    "twice_constant of a sum": (lambda i: X[i, 0] + 9, lambda i: CODES[i, 0] + 18),
    "half_constant": (lambda i: X[i, 0] - 12, lambda i: CODES[i, 0] - 6),
    "at_least_zero": (lambda i: clamp(X[i, 0], -8, 7), lambda i: np.clip(CODES[i, 0], 0, 7)),
}


def terms_with_places(term: Callable[[Expr], Expr]) -> tuple[Array, SourceTerms]:
    result, places = with_places(lambda: array(term, 4))
    return result, SourceTerms((result,), places.of_terms, tuple(e for e in terms_of(result.body) if e.reads))


@pytest.mark.parametrize("name", EDITS)
def test_an_alternative_computes_what_it_says(name: str) -> None:
    term, expected = EDITS[name]
    result, terms = terms_with_places(term)
    (edit,) = [e for e in edits_of(terms) if e.key == name.partition(" ")[0]]
    found = evaluate_together(terms.rewriter(edit, inlines=False).array(result), {X: CODES[None]})[0]
    assert found.tolist() == [expected(n) for n in range(4)]


def test_a_shift_is_edited_by_up_to_three_bits() -> None:
    result, terms = terms_with_places(lambda i: X[i, 0] >> 4)
    edit = next(e for e in edits_of(terms) if e.key == "shift_less")
    texts = []
    for bits in (1, 2, 3):
        found = evaluate_together(terms.rewriter(edit, inlines=False).array(result), {X: CODES[None]})[0]
        assert found.tolist() == [CODES[n, 0] >> 4 - bits for n in range(4)]
        texts.append(edit.after)
        edit = next_step(edit) or edit
    assert texts == ["one bit less", "2 bits less", "3 bits less"]
    assert next_step(edit) is None
    assert next_step(next(e for e in edits_of(terms) if e.key == "nearest")) is None


def scaled_sum(f: Mapping[str, Format]) -> Array:
    """Return sums shifted by what two lines read of formats, one of them through a helper of the format."""
    first = vars(f["x"])["fraction"] - 2  # no read: nothing is observed behind the format's back
    second = f["x"].fraction + f["w"].fraction
    return array(lambda i: X[i, 0] << second >> first + f["w"].fraction, 4)


def test_fields_of_formats_are_changed_where_they_are_read_and_nowhere_else() -> None:
    formats = {"x": Fixed(8, 4), "w": Fixed(8, 2)}
    reads: dict[Read, None] = {}
    observed_result = scaled_sum(observed(formats, lambda read, value: reads.setdefault(read) or value))
    assert [str(read) for read in reads] == ["x.fraction", "w.fraction", "w.fraction"]
    assert len({read.place for read in reads}) == 3
    assert {read.place.line for read in reads} == {scaled_sum.__code__.co_firstlineno + n for n in (3, 4)}

    def values(a: Array) -> list[int]:
        return [int(x) for x in evaluate_together(a, {X: CODES[None]})[0]]

    assert values(observed_result) == values(scaled_sum(formats)) == [int(c) << 6 >> 4 for c in CODES[:, 0]]
    for read, (left, right) in zip(reads, ((5, 2), (5, 2), (4, 3)), strict=True):
        changed = scaled_sum(observed(formats, lambda r, value, read=read: value + (1 if r == read else 0)))
        assert values(changed) == [int(c) << left + 2 >> right + 2 for c in CODES[:, 0]]
    assert isinstance(observed(formats, lambda read, value: value)["x"], Fixed)


SEGMENTS = ((1, 252, 476, 653, 783, 871, 928, 965), (251, 224, 177, 129, 88, 57, 37, 23))  # of tanh, eight on two units


def piecewise(starts: Sequence[int], slopes: Sequence[int]) -> Table:
    def function(x: Expr) -> Expr:
        segment, offset = x >> 9, x % 512
        return (switch(segment, *slopes) * offset * 2 + (switch(segment, *starts) << 10)) >> 6

    return Table("tanh", function, (0, 4095))


@pytest.mark.parametrize(("which", "segment", "value"), [(0, 3, 1306), (0, 7, 500), (1, 2, 40)])
def test_a_wrong_constant_of_a_segment_is_fitted_to_the_function(which: int, segment: int, value: int) -> None:
    parts = [list(part) for part in SEGMENTS]
    right, parts[which][segment] = parts[which][segment], value
    (constant, fitted), *_ = fitted_constants(piecewise(*parts))
    assert (constant.value, constant.segment + (constant.branch == 2)) == (value, segment)
    assert abs(fitted - right) <= 8
    found = [value for c, value in fitted_constants(piecewise(*SEGMENTS))]
    assert all(abs(c.value - value) <= 8 for c, value in fitted_constants(piecewise(*SEGMENTS))), found
