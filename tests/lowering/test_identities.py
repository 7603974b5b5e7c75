"""Sums are rewritten where they stay what they are: laws proved by z3, and the bits of the plain reading, ends of ranges often."""

from __future__ import annotations

import numpy as np
import pytest
import z3
from test_printed_kernels import KNOWN, RNG, checked, folded, full_range, printed_texts

from rewrite_compiler.kernels import identities
from rewrite_compiler.lang import Array, Expr, Leaf, array, fold, maximum, minimum, reduce_sum, sat, select, shift_right, wrap
from rewrite_compiler.lang import intervals as iv
from rewrite_compiler.lang.arithmetic import ROUNDINGS
from rewrite_compiler.lang.binders import Comprehension, FoldResult
from rewrite_compiler.lang.expr import var
from rewrite_compiler.lang.traversal import terms_of
from rewrite_compiler.readings.kernels.evaluate import evaluate
from rewrite_compiler.readings.native.jit import host

AMOUNTS = range(1, identities.HALF_BITS)


@pytest.mark.parametrize("amount", AMOUNTS)
def test_floored_products_split_for_all_operands(amount: int) -> None:
    """Of b = h·2^s + l the products with a are numbers of their own: the law holds whatever they are."""
    b, ah, al = z3.Ints("b ah al")
    power, low = 1 << amount, z3.Int("low")
    near = power // 2
    value, scaled = (b + near) % power - near, 1 << identities.HALF_BITS - amount
    solver = z3.Solver()
    solver.add(b >= -(1 << 15), b < 1 << 15, low == value)
    solver.add(
        z3.Or(
            (b - low) / power * power + low != b,
            low * scaled < -(1 << 15), low * scaled >= 1 << 15, (b - low) / power < -(1 << 15), (b - low) / power >= 1 << 15,
            (ah * power + al) / power != ah + (al * scaled) / (1 << identities.HALF_BITS),
        )
    )  # fmt: skip
    assert solver.check() == z3.unsat


@pytest.mark.parametrize("amount", AMOUNTS)
def test_the_halves_of_every_number_are_those_of_the_law(amount: int) -> None:
    b = var("b", iv.of_width(16, True))
    every = np.arange(-(1 << 15), 1 << 15)
    leaf = Leaf((len(every),), b.interval, False, "b")
    high, low = (
        evaluate(array(lambda i, n=n: identities.halves(leaf[i], amount)[n], len(every)), {leaf: every}) for n in (0, 1)
    )  # fmt: skip
    assert np.array_equal((high << amount) + (low >> identities.HALF_BITS - amount), every)
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
        assert any("vpdpwssd" in text for text in printed_texts(made))


def _reductions(e: Expr) -> list[Expr]:
    bodies = [y.body for x in terms_of(e) if x.op == "load" and hasattr(x.data, "fold") for y in x.data.fold.bodies]
    return [x for b in bodies or [e] for x in terms_of(b) if x.op == "reduce"]


def test_terms_that_are_not_evenly_spaced_stay() -> None:
    x = Leaf((9,), (-9, 9), False, "x")
    uneven = x[0] + x[1] + x[3] + x[4]
    assert identities.roll_sum(uneven) is uneven
    even = identities.roll_sum(x[1] + x[3] + 5 + x[5] + x[7])
    assert [e.op for e in terms_of(even) if e.op == "reduce"] == ["reduce"]
    assert identities.roll_sum(even) is even


@pytest.mark.parametrize(("extent", "size"), [(7, 7), (7, 8), (3, 9), (5, 6)])
@pytest.mark.parametrize("features", KNOWN, ids=lambda f: "+".join(sorted(f)) or "plain")
def test_odd_sums_end_where_they_end(extent: int, size: int, features: frozenset[str]) -> None:
    """What lies behind the last of an odd number of factors is no part of the sum, unless it is the zero behind an axis."""
    for bits in ((8, 8), (16, 16)):
        x, w = (Leaf((*lead, size), iv.of_width(b, True), False, n) for lead, b, n in zip(((), (20,)), bits, "xw", strict=True))
        term = array(lambda n: reduce_sum(lambda k: x[k] * w[n, k], extent), (20,))  # noqa: B023
        for samples in (3, 32):
            checked(term, {x: full_range(x, samples)}, {w: full_range(w)}, features)


def test_products_of_16_bits_split_at_8_bits_for_all_operands() -> None:
    """The parts of b are those of a floored product at 8 bits: h and l, of which 2^8·h + l is b."""
    every = np.arange(-(1 << 15), 1 << 15)
    leaf = Leaf((len(every),), iv.of_width(16, True), False, "b")
    high, low = (evaluate(array(lambda i, n=n: identities.halves(leaf[i], 8)[n], len(every)), {leaf: every}) for n in (0, 1))
    assert np.array_equal((high << 8) + (low >> 8), every)


@pytest.mark.parametrize("amount", [1, 2, 5, 16, 40])
def test_halves_away_from_zero_are_one_shift_for_all_integers(amount: int) -> None:
    x, half = z3.Int("x"), 1 << amount - 1
    power = 2 * half  # z3 divides by a positive number like ⌊·⌋
    solver = z3.Solver()
    solver.add(z3.If(x < 0, -((-x + half) / power), (x + half) / power) != (x + half - z3.If(x < 0, 1, 0)) / power)
    assert solver.check() == z3.unsat
    e = identities.round_half_away(shift_right(var("x", iv.of_width(48, True)), amount, "half_away"))
    assert e.op == "shr"


def test_other_selections_stay() -> None:
    x = var("x", iv.of_width(16, True))
    for e in (select(x < 0, -((-x + 3) >> 3), (x + 3) >> 3), select(x < 1, -((-x + 4) >> 3), (x + 4) >> 3), select(x < 0, x, -x)):
        assert identities.round_half_away(e) is e


def saturating(steps: int, summand: iv.Interval, bounds: tuple[int, int], first: int = 0) -> Expr:
    """Return a fold that adds elements and saturates."""
    x = Leaf((steps,), summand, False, "x")
    return fold(steps, first, lambda k, t: maximum(minimum(t + x[k], bounds[1]), bounds[0]), bounds)


@pytest.mark.parametrize(
    ("summand", "bounds", "first", "is_sum"),
    [
        ((-4, 3), (-40, 30), 0, True),
        ((-4, 3), (-39, 30), 0, False),
        ((-4, 3), (-40, 29), 0, False),
        ((-4, 3), (-41, 31), 1, True),
        ((-4, 3), (-40, 30), 1, False),
        ((2, 3), (0, 30), 0, True),  # the total only grows
        ((2, 3), (0, 29), 0, False),
    ],
)
def test_folds_become_sums_where_no_partial_sum_reaches_a_bound(
    summand: iv.Interval, bounds: tuple[int, int], first: int, is_sum: bool
) -> None:
    result = saturating(10, summand, bounds, first)
    total = identities.unsaturated_fold(result.data.fold)
    assert (total is not None) == is_sum


@pytest.mark.parametrize("features", KNOWN, ids=lambda f: "+".join(sorted(f)) or "plain")
def test_wide_sums_and_accumulators_of_all_ranges(features: frozenset[str]) -> None:
    """Sums beyond 32 bits: split operands, blocks, folds that never saturate and those that just do."""
    for lanes, bits, accumulator in ((2, (16, 16), 24), (8, (16, 16), 48), (9, (16, 8), 40), (3, (24, 24), 24), (1, (12, 12), 28)):
        x, w, term = folded(lanes, 5, bits, accumulator, "half_away")
        assert not checked(term, {x: full_range(x, 17)}, {w: full_range(w)}, features).notes


@pytest.mark.parametrize("bits", [(16, 8), (16, 16), (8, 16)])
@pytest.mark.parametrize("size", [1024, 1026, 1031])
def test_long_sums_are_sums_of_blocks(bits: tuple[int, int], size: int) -> None:
    x, w = (Leaf((*lead, size), iv.of_width(b, True), False, n) for lead, b, n in zip(((), (5,)), bits, "xw", strict=True))
    term = array(lambda n: reduce_sum(lambda k: x[k] * w[n, k], size), (5,))
    low, high = (np.full((17, size), x.interval[n]) for n in (0, 1))
    for moving in (full_range(x, 17), low, high):
        for shared in (full_range(w), np.full(w.shape, w.interval[0]), np.full(w.shape, w.interval[1])):
            checked(term, {x: moving.astype(np.int16)}, {w: shared.astype(np.int16)})


def test_instructions_add_what_needs_more_than_32_bits() -> None:
    """Where the widest sum of pairs has 32 bits, longer ones are blocks or split factors of it."""
    if "avx512vnni" not in host()[1]:
        pytest.skip("vpdpwssd")
    for bits, lanes in (((16, 8), 1024), ((16, 16), 8)):
        x, w, term = folded(lanes, 2, bits, 48, "floor")
        made = checked(term, {x: full_range(x, 16)}, {w: full_range(w)})
        assert any("vpdpwssd" in text for text in printed_texts(made))


@pytest.mark.parametrize("features", KNOWN, ids=lambda f: "+".join(sorted(f)) or "plain")
@pytest.mark.parametrize("width", [20, 32, 33])
def test_wide_sums_that_wrap_are_computed_in_32_bits(width: int, features: frozenset[str]) -> None:
    """Modulo 2^32 a sum is that of its terms modulo 2^32; with 33 bits it is not, and the sum is split."""
    size = 300
    x, w, b = (Leaf((*lead, size), iv.of_width(16, True), False, n) for n, lead in (("x", ()), ("w", (5,)), ("b", ())))

    def total(n: Expr) -> Expr:
        return reduce_sum(lambda k: x[k] * w[n, k], size)

    terms = {
        "sum": array(lambda n: wrap(total(n), width) >> 3, (5,)),
        "ring": array(lambda n: wrap(b[n] * 7 - total(n), width) >> 3, (5,)),
        "no ring": array(lambda n: wrap(total(n) >> 2, width), (5,)),
        "unsigned": array(lambda n: wrap(total(n), width, False) >> 3, (5,)),
    }
    for name, term in terms.items():
        for moving in (full_range(x, 17), np.full((17, size), x.interval[0])):
            shared = {w: full_range(w)} | ({b: full_range(b)} if name == "ring" else {})
            lowered = checked(term, {x: moving.astype(np.int16)}, shared, features)
            (kernel,) = [k for leaf, k in lowered.kernels.items() if leaf in lowered.stages.results]
            assert (len(_reductions(kernel.value.body)) == 1) == (name in ("sum", "ring") and width <= 32)


def all_terms(a: Comprehension) -> list[Expr]:
    """Return the terms of an array and of the folds in it."""
    terms = list(terms_of(a.body))
    folds = [e.data.fold for e in terms if e.op == "load" and isinstance(e.data, FoldResult)]
    return terms + [x for f in folds for body in f.bodies if isinstance(body, Comprehension) for x in terms_of(body.body)]


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("lanes", [2, 3, 4, 7, 9])
def test_roundings_of_split_sums_are_those_of_the_whole(lanes: int, rounding: str) -> None:
    """A sum of 33 bits or more is rounded in 32: of a·2^8 + b the part b alone is shifted; small sums, whose sign and ties count, too."""
    x, w, term = folded(lanes, 3, (16, 16), 24, rounding)
    small = RNG.integers(-6, 7, (40, *x.shape)).astype(np.int16)
    for moving, shared in ((full_range(x, 40), full_range(w)), (small, RNG.integers(-6, 7, w.shape).astype(np.int16))):
        made = checked(term, {x: moving}, {w: shared})
        assert not made.notes
        (kernel,) = [k for leaf, k in made.kernels.items() if leaf in made.stages.results]
        assert not any(e.op in ("shr", "lt") and not iv.inside(e.args[0].interval, iv.of_width(32, True)) for e in all_terms(kernel.value))


@pytest.mark.parametrize(("power", "amount"), [(8, 5), (8, 8), (3, 1)])
def test_a_multiple_of_the_divisor_leaves_the_floor(power: int, amount: int) -> None:
    a, b = z3.Ints("a b")
    whole = a * (1 << power) + b
    solver = z3.Solver()
    solver.add(
        z3.Or(
            whole / (1 << amount) != a * (1 << power - amount) + b / (1 << amount),
            (whole < 0) != (a + b / (1 << power) < 0),
        )
    )
    assert solver.check() == z3.unsat
