"""What lowering emits: sums that a term uses twice once, accumulators that change places by copies."""

from __future__ import annotations

from textwrap import dedent

import numpy as np
import pytest

from rewrite_compiler.lang import Array, Expr, Leaf, array, reduce_sum, select, update, wrap
from rewrite_compiler.lang.binders import fold_arrays, scalar_array
from rewrite_compiler.lowering.listing import listing
from rewrite_compiler.lowering.lower import lower_array
from rewrite_compiler.readings.arrays.evaluator import Evaluator
from rewrite_compiler.readings.native.printer import NativeFunction
from rewrite_compiler.readings.oracle.emit_python import StepFunction


def results(a: Array) -> list[list[int]]:
    """Return the elements of a vector by numpy, by the generated Python and by machine code."""
    out = Leaf(a.shape, (-(1 << 31), (1 << 31) - 1), False, "out")
    step = update(out, a.shape, lambda i: (i, a[i]))
    plain, python, native = np.asarray(Evaluator({}).store_of(a).data), [0] * a.shape[0], np.zeros(a.shape[0], np.int32)
    StepFunction(step)([python])
    NativeFunction(step)([native])
    return [plain.tolist(), python, native.tolist()]


def test_a_sum_that_a_term_uses_twice_is_one_loop() -> None:
    x, w = Leaf((64,), (-128, 127), False, "x"), Leaf((16, 64), (-128, 127), False, "w")

    def rounded(n: Expr) -> Expr:
        total = reduce_sum(lambda k: w[n, k] * x[k], 64)
        return select(total < 0, -((-total + 4) >> 3), (total + 4) >> 3)

    expected = """
        for i1 < 16
            var r2 <- 0
            for i3 < 64
                r2 <- (r2 + (m1[((i1 * 64) + i3)] * m2[i3]))
            m0[i1] <- select((r2 < 0), neg(((neg(r2) + 4) >> 3)), ((r2 + 4) >> 3))
    """
    assert listing(lower_array(array(rounded, 16))) == dedent(expected).strip()


def test_a_choice_that_a_term_uses_twice_is_made_once() -> None:
    x = Leaf((16,), (-128, 127), False, "x")

    def squared(n: Expr) -> Expr:
        chosen = select(x[n] < 0, reduce_sum(lambda k: x[k], 16), x[n])
        return chosen * chosen

    assert listing(lower_array(array(squared, 16))).count("if ") == 1


@pytest.mark.parametrize("steps", [0, 1, 4, 5])
def test_accumulators_change_places(steps: int) -> None:
    exchanged = fold_arrays(steps, [scalar_array(3), scalar_array(5)], lambda k, a, b: [scalar_array(b[()]), scalar_array(a[()])], [16, 16])
    sums = fold_arrays(steps, [scalar_array(0), scalar_array(1)],
                       lambda k, a, b: [scalar_array(b[()]), scalar_array(wrap(a[()] + b[()], 16))], [16, 16])  # fmt: skip
    for (a, b), (x, y) in ((exchanged, (3, 5) if steps % 2 == 0 else (5, 3)), (sums, {0: (0, 1), 1: (1, 1), 4: (3, 5), 5: (5, 8)}[steps])):
        assert results(array(lambda n, a=a, b=b: a[()] * 100 + b[()] + n, 2)) == [[100 * x + y, 100 * x + y + 1]] * 3
