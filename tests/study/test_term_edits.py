"""Each alternative of a term computes what it says, at the places where the term has it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from rewrite_compiler.lang import Array, Expr, Leaf, array, clamp, fold, maximum, minimum, sat, select, wrap
from rewrite_compiler.lang.binders import fold_arrays
from rewrite_compiler.lang.traversal import terms_of
from rewrite_compiler.readings.kernels.evaluate import evaluate_together
from rewrite_compiler.study.numerics.edits import SourceTerms, edits_of
from rewrite_compiler.study.numerics.source_places import with_places

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
