"""Sums are rewritten where they stay what they are: laws proved by z3, and the bits of the plain reading, ends of ranges often."""

from __future__ import annotations

import numpy as np
import pytest
import z3
from test_printed_kernels import KNOWN, checked, full_range

from rewrite_compiler.kernels import sums
from rewrite_compiler.lang import Array, Expr, Leaf, array, fold, reduce_sum, sat, wrap
from rewrite_compiler.lang import intervals as iv
from rewrite_compiler.lang.expr import var
from rewrite_compiler.lang.traversal import terms_of
from rewrite_compiler.readings.kernels.evaluate import evaluate
from rewrite_compiler.readings.native.jit import host

AMOUNTS = range(1, sums.HALF_BITS)


@pytest.mark.parametrize("amount", AMOUNTS)
def test_floored_products_split_for_all_operands(amount: int) -> None:
    """Of b = h·2^s + l the products with a are numbers of their own: the law holds whatever they are."""
    b, ah, al = z3.Ints("b ah al")
    power, low = 1 << amount, z3.Int("low")
    near = power // 2
    value, scaled = (b + near) % power - near, 1 << sums.HALF_BITS - amount
    solver = z3.Solver()
    solver.add(b >= -(1 << 15), b < 1 << 15, low == value)
    solver.add(
        z3.Or(
            (b - low) / power * power + low != b,
            low * scaled < -(1 << 15), low * scaled >= 1 << 15, (b - low) / power < -(1 << 15), (b - low) / power >= 1 << 15,
            (ah * power + al) / power != ah + (al * scaled) / (1 << sums.HALF_BITS),
        )
    )  # fmt: skip
    assert solver.check() == z3.unsat


@pytest.mark.parametrize("amount", AMOUNTS)
def test_the_halves_of_every_number_are_those_of_the_law(amount: int) -> None:
    b = var("b", iv.of_width(16, True))
    every = np.arange(-(1 << 15), 1 << 15)
    leaf = Leaf((len(every),), b.interval, False, "b")
    high, low = (
        evaluate(array(lambda i, n=n: sums.halves(leaf[i], amount)[n], len(every)), {leaf: every}) for n in (0, 1)
    )  # fmt: skip
    assert np.array_equal((high << amount) + (low >> sums.HALF_BITS - amount), every)
    assert all(x.min() >= -(1 << 15) and x.max() < 1 << 15 for x in (high, low))


def truncated(lanes: int, amount: int, bits: tuple[int, int], steps: int = 3, offset: int = 0) -> tuple[Leaf, Leaf, Array]:
    """Return a fold of rounded sums of truncated products, each sum written term by term."""
    x = Leaf((steps * lanes + offset,), iv.of_width(bits[0], True), False, "x")
    w = Leaf((5, steps * lanes + offset), iv.of_width(bits[1], True), False, "w")

    def step(n: Expr, k: Expr, total: Expr) -> Expr:
        terms = [x[k * lanes + j + offset] * w[n, k * lanes + j + offset] >> amount for j in range(lanes)]
        return sat(total + (wrap(sum(terms[1:], terms[0]), 32) + 8 >> 4), 16)

    return x, w, array(lambda n: fold(steps, 0, lambda k, t: step(n, k, t), 16), (5,))


@pytest.mark.parametrize("features", KNOWN, ids=lambda f: "+".join(sorted(f)) or "plain")
@pytest.mark.parametrize("amount", [1, 5, 8, 15])
@pytest.mark.parametrize("lanes", [4, 7, 8, 16])
def test_truncated_products_of_all_ranges(lanes: int, amount: int, features: frozenset[str]) -> None:
    for bits, offset in (((16, 16), 0), ((16, 8), 2), ((8, 16), 1), ((12, 12), 0)):
        x, w, term = truncated(lanes, amount, bits, offset=offset)
        for samples in (3, 17):
            assert not checked(term, {x: full_range(x, samples)}, {w: full_range(w)}, features).notes


def test_truncated_products_become_sums_of_pairs() -> None:
    x, w, term = truncated(8, 5, (16, 16))
    made = checked(term, {x: full_range(x, 16)}, {w: full_range(w)})
    (kernel,) = [k for leaf, k in made.kernels.items() if leaf in made.stages.results]
    assert {e.args[0].op for e in _reductions(kernel.value.body)} == {"mul", "shr"}
    if "avx512vnni" in host()[1]:
        assert "vpdpwssd" in kernel.text  # type: ignore[union-attr]


def _reductions(e: Expr) -> list[Expr]:
    bodies = [y.body for x in terms_of(e) if x.op == "load" and hasattr(x.data, "fold") for y in x.data.fold.bodies]
    return [x for b in bodies or [e] for x in terms_of(b) if x.op == "reduce"]


def test_terms_that_are_not_evenly_spaced_stay() -> None:
    x = Leaf((9,), (-9, 9), False, "x")
    uneven = x[0] + x[1] + x[3] + x[4]
    assert sums.roll_sum(uneven) is uneven
    even = sums.roll_sum(x[1] + x[3] + 5 + x[5] + x[7])
    assert [e.op for e in terms_of(even) if e.op == "reduce"] == ["reduce"]
    assert sums.roll_sum(even) is even


@pytest.mark.parametrize(("extent", "size"), [(7, 7), (7, 8), (3, 9), (5, 6)])
@pytest.mark.parametrize("features", KNOWN, ids=lambda f: "+".join(sorted(f)) or "plain")
def test_odd_sums_end_where_they_end(extent: int, size: int, features: frozenset[str]) -> None:
    """What lies behind the last of an odd number of factors is no part of the sum, unless it is the zero behind an axis."""
    for bits in ((8, 8), (16, 16)):
        x, w = (Leaf((*lead, size), iv.of_width(b, True), False, n) for lead, b, n in zip(((), (20,)), bits, "xw", strict=True))
        term = array(lambda n: reduce_sum(lambda k: x[k] * w[n, k], extent), (20,))  # noqa: B023
        for samples in (3, 32):
            checked(term, {x: full_range(x, samples)}, {w: full_range(w)}, features)
