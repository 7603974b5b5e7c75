"""Sums and folds of products as kernels of machine code get them: windows, strides, axes in any order, weights of their own a batch."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rewrite_compiler.lang import Array, Expr, Leaf, array, fold, native_fold, native_jit, reduce_sum, sat, select, shift_right, wrap
from rewrite_compiler.lang import intervals as iv
from rewrite_compiler.lang.arith import ROUNDINGS, maximum
from rewrite_compiler.lang.arrays import Evaluator, evaluate
from rewrite_compiler.lang.binders import static_shape
from rewrite_compiler.lang.kernels import Kernels
from rewrite_compiler.lang.named import Data, Store, storage_dtype
from rewrite_compiler.lang.python import evaluate as oracle

EXAMPLES = int(os.environ.get("FLEXMATCH_EXAMPLES", "150")) // 3
FORMS = [form for form in native_fold.FORMS if not form or form in native_jit.host()[1]]
WIDTHS = [(8, True), (8, False), (16, True), (7, True), (4, False), (12, True), (15, False)]
KINDS = ("product", "wrapped", "blocks", "lanes", "single")
MOST = 20_000  # products, for the oracle


@dataclass(frozen=True)
class Sizes:
    """Extents: batch, rows and columns of the result, filters in groups, and what is summed: rows, columns and channels of a window."""

    batch: int
    filters: tuple[int, int]
    outer: tuple[int, int]
    window: tuple[int, int]
    channels: int
    strides: tuple[int, int]

    @property
    def products(self) -> int:
        return int(np.prod((self.batch, *self.filters, *self.outer, *self.window, self.channels)))


@st.composite
def sizes(draw: st.DrawFn) -> Sizes:
    def one(*choices: int) -> int:
        return draw(st.sampled_from(choices))

    outer, filters = (one(1, 2, 3, 5, 8, 13), one(1, 1, 2, 4, 7)), (one(1, 3, 8, 15, 16, 17, 33), one(1, 1, 2, 3))
    window, strides = (one(1, 2, 3, 5), one(1, 2, 3)), (one(1, 2, 3), one(1, 1, 2))
    return Sizes(one(1, 1, 1, 2, 3), filters, outer, window, one(1, 2, 3, 4, 6, 8, 10, 16), strides)


def permuted(draw: st.DrawFn, name: str, extents: Sequence[int]) -> tuple[Leaf, Callable[..., Expr]]:
    """Return an operand whose axes lie in any order, and how it is read in the order that is meant."""
    order = draw(st.permutations(range(len(extents))))
    leaf = Leaf(tuple(extents[n] for n in order), iv.of_width(*draw(st.sampled_from(WIDTHS))), False, name)
    return leaf, lambda *index: leaf[tuple(index[n] for n in order)]


@st.composite
def terms(draw: st.DrawFn) -> tuple[Array, list[Leaf]]:
    s = draw(sizes().filter(lambda s: s.products <= MOST))
    (down, right), (rows, columns), bits = s.strides, s.window, draw(st.sampled_from((8, 12, 16, 20, 32)))
    reached = [(n - 1) * step + k for n, step, k in zip(s.outer, s.strides, s.window, strict=True)]
    x, image = permuted(draw, "x", (s.batch, *reached, s.channels))
    own = (s.batch,) if draw(st.integers(0, 4)) == 0 else ()
    w, weight = permuted(draw, "w", (*s.filters, *s.window, s.channels, *own))
    start = Leaf((s.outer[0], s.filters[0]), iv.of_width(bits, True), False, "start")
    kind, rounding = draw(st.sampled_from(KINDS)), draw(st.sampled_from(ROUNDINGS))
    lost, cut = draw(st.sampled_from((0, 1, 5, 9))), draw(st.integers(1, 5))
    is_finished, has_start = draw(st.booleans()), draw(st.booleans())
    width = iv.of_width(bits, True)

    def element(b: Expr, f: Expr, g: Expr, i: Expr, j: Expr) -> Expr:
        def product(k: Expr, m: Expr, c: Expr | int) -> Expr:
            return image(b, i * down + k, j * right + m, c) * weight(f, g, k, m, c, *([b] if own else []))

        def step(k: Expr, m: Expr, total: Expr) -> Expr:
            if kind == "single":
                return fold(s.channels, total, lambda c, t: sat(t + product(k, m, c), bits), width)
            if kind == "lanes":
                lanes = [product(k, m, c) >> cut for c in range(s.channels)]
                block = sum(lanes[1:], lanes[0])
            else:
                block = reduce_sum(lambda c: product(k, m, c), s.channels)
            if kind == "wrapped":
                return wrap(total + block, bits)
            return sat(total + sat(shift_right(block, lost, rounding), bits), bits)

        def tap(k: Expr, m: Expr, total: Expr) -> Expr:
            plain = step(k, m, total)
            is_last = (k == rows - 1) & (m == columns - 1)
            return select(is_last, sat(maximum(plain + 3, 0), bits), plain) if is_finished else plain

        if kind == "product":
            return wrap(reduce_sum(product, (rows, columns, s.channels)), bits)
        return fold(rows, start[i, f] if has_start else 0, lambda k, t: fold(columns, t, lambda m, u: tap(k, m, u), width), width)

    order = draw(st.permutations(range(5)))
    extents = (s.batch, *s.filters, *s.outer)
    made = array(lambda *at: element(*(at[order.index(n)] for n in range(5))), tuple(extents[n] for n in order))
    return made, [leaf for leaf in (x, w, start) if leaf in made.reads]


def contents(draw: st.DrawFn, leaf: Leaf) -> Data:
    """Return elements at random, at the ends of the range only, or all the least one."""
    (low, high), kind = leaf.interval, storage_dtype(leaf.interval)
    random = np.random.default_rng(draw(st.integers(0, 99)))
    how = draw(st.sampled_from(("random", "random", "ends", "least")))
    if how == "random":
        return random.integers(low, high, static_shape(leaf), kind, endpoint=True)
    return random.choice(np.array([low, high] if how == "ends" else [low], kind), static_shape(leaf))


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_every_form_gives_what_the_oracle_gives(data: st.DataObject) -> None:
    term, leaves = data.draw(terms())
    given_data = {leaf: contents(data.draw, leaf) for leaf in leaves}
    count = int(np.prod(static_shape(term)))
    expected = oracle(term, {leaf: x.reshape(-1).tolist() for leaf, x in given_data.items()}, count)
    assert evaluate(term, given_data).reshape(-1).tolist() == expected
    for form in FORMS:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(native_fold, "best_form", lambda form=form: form)
            ev = Evaluator({leaf: Store(x) for leaf, x in given_data.items()})
            ev.kernels = Kernels()
            with np.errstate(all="ignore"):
                assert ev.store_of(term).data.reshape(-1).tolist() == expected, form
