"""Loops of printed C: what does not vary stands before them, indices are checked before them, sums are as narrow as they fit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from test_c import Library, needs_gcc, stored
from test_steps import Contents, by_oracle

from rewrite_compiler.lang import Leaf, Step, array, assign, let, lift, loop, reduce_sum, sat, select, seq, update, when, wrap
from rewrite_compiler.lang.binders import fold, static_shape
from rewrite_compiler.lowering.dead_code import statements_of
from rewrite_compiler.lowering.loop_invariants import hoist_invariants
from rewrite_compiler.lowering.loop_ir import For, If, Statement
from rewrite_compiler.lowering.lower import lower_step
from rewrite_compiler.readings.c.printer import Tables, print_c

N = Leaf((), (0, 12), False, "n")
MODE = Leaf((), (0, 1), False, "mode")
X = Leaf((64,), (-128, 127), False, "x")
W = Leaf((64,), (-32768, 32767), False, "w")
Y = Leaf((16,), (-(1 << 31), (1 << 31) - 1), False, "y")
FAR = Leaf((64,), (0, 20), False, "far")
MEMORIES = (N, MODE, X, W, Y, FAR)


def products(length: int = 8) -> Step:
    """Bytes by halves, from local arrays whose length is known only when the device runs."""
    bytes_ = array(lambda i, k: X[(i * 3 + k * 5) % 64] >> 1, (N[()], length))
    halves = array(lambda i, k: W[(i * 7 + k) % 64], (N[()], length))
    return let(
        bytes_, lambda a: let(halves, lambda b: update(Y, N[()], lambda i: (i, wrap(reduce_sum(lambda k: a[i, k] * b[i, k], length), 32))))
    )


SAME_SUM = update(Y, 16, lambda i: (i, reduce_sum(lambda k: X[k], N[()]) + i))
CHOICE = update(Y, 16, lambda i: (i, select(MODE[()], reduce_sum(lambda k: X[i + k] * W[i], 3), reduce_sum(lambda k: X[i + k], 5))))
CHANGED = loop(8, lambda k: seq(assign(MODE, k % 2), when(MODE[()], update(Y, 2, lambda i: (k + i, X[k])))))
PREFIXES = loop(15, lambda k: assign(Y, sat(reduce_sum(lambda j: Y[j], k + 1) + X[k], 32, True), k + 1))
RUNNING = update(Y, 16, lambda i: (i, fold(N[()], X[i], lambda k, acc: sat(lift(acc) + W[k], 17, True), (-65536, 65535))))
THIRD = N[()] % 4 == 3
START, EVERY = (select(MODE[()] == 0, FAR[k], select(THIRD, FAR[k + 1], FAR[k + 2])) for k in (0, 3))
# two choices, with a question that they share, stand between the start of the inner sum and its loop
BLOCKS = update(Y, 1, lambda i: (i, reduce_sum(lambda v: wrap(reduce_sum(lambda j: X[START + (i + v * EVERY) % 16 + j], 16), 8), N[()])))
STEPS = {
    "blocks": BLOCKS,
    "same_sum": SAME_SUM, "choice": CHOICE, "changed": CHANGED, "prefixes": PREFIXES, "running": RUNNING,
    "products": products(), "gathered": update(Y, N[()], lambda i: (i, X[FAR[i] + i])),
}  # fmt: skip


def contents(seed: int) -> Contents:
    rng = np.random.default_rng(seed)
    return {leaf: rng.integers(*leaf.interval, static_shape(leaf), endpoint=True).reshape(-1).tolist() for leaf in MEMORIES}  # type: ignore[arg-type]


@needs_gcc
def test_loops_compute_what_the_oracle_does(tmp_path: Path) -> None:
    tables = Tables()
    library = Library([print_c(lower_step(s), name, tables) for name, s in STEPS.items()], tables, tmp_path)
    for name, step in STEPS.items():
        for seed in range(8):
            before = contents(seed) | {N: [(0, 1, 12, 5)[seed % 4]]}
            after = stored(before)
            assert library.run(name, after) == 0
            assert {leaf: x.reshape(-1).tolist() for leaf, x in after.items()} == by_oracle(step, before), name


def loops_of(step: Step) -> Iterator[tuple[int, Statement]]:
    """Yield every loop and every choice with the number of loops around it."""

    def below(statements: list[Statement], depth: int) -> Iterator[tuple[int, Statement]]:
        for s in statements:
            yield depth, s
            if isinstance(s, For):
                yield from below(s.body, depth + 1)
            elif isinstance(s, If):
                yield from below([*s.then, *s.otherwise], depth)

    return ((d, s) for d, s in below(hoist_invariants(lower_step(step)).body, 0) if isinstance(s, For | If))


def test_what_does_not_vary_is_computed_before_the_loop() -> None:
    assert [d for d, s in loops_of(SAME_SUM) if isinstance(s, For)] == [0, 0]
    assert [d for d, s in loops_of(PREFIXES) if isinstance(s, For)] == [0, 1]  # each sum reads what the loop has written


def test_what_is_asked_every_time_is_asked_once() -> None:
    assert [d for d, s in loops_of(CHOICE) if isinstance(s, If)] == [0]
    assert [d for d, s in loops_of(CHANGED) if isinstance(s, If)] == [1]


def test_a_loop_with_many_choices_is_not_printed_for_each_way_through_them() -> None:
    modes = Leaf((12,), (0, 1), False, "modes")
    several = update(Y, 16, lambda i: (i, sum(select(modes[k], reduce_sum(lambda j, n=k: X[i + j + n], 3), k) for k in range(12))))
    routine = lower_step(several)
    most = 4 * sum(1 for _ in statements_of(routine.body))
    assert sum(1 for _ in statements_of(hoist_invariants(routine).body)) <= most


def test_indices_are_checked_before_the_loop() -> None:
    text = print_c(lower_step(products()), "f", Tables()).text
    assert "fm_at" not in text
    assert len(re.findall(r"return s->trap = FM_OUTSIDE;", text)) >= 2


def test_an_index_that_depends_on_data_is_checked_where_it_is() -> None:
    outside = Leaf((N[()] + 1,), (0, 255), False, "outside")
    text = print_c(lower_step(update(Y, 16, lambda i: (i, outside[FAR[i]]))), "f", Tables()).text
    assert re.search(r"fm_at\(s, \(int64_t\)m\d\[i1\]", text)


@needs_gcc
@pytest.mark.parametrize(("count", "answer"), [(0, 0), (1, 0), (4, 0), (5, -1), (12, -1)])
def test_a_loop_that_would_leave_an_array_traps(count: int, answer: int, tmp_path: Path) -> None:
    """The array has sixteen elements and one for every element of N; five for every element of N are read."""
    taken = array(lambda i: X[i], N[()] + 16)
    step = let(taken, lambda a: update(Y, N[()], lambda i: (i, reduce_sum(lambda k: a[i * 5 + k], 5))))
    tables = Tables()
    library = Library([print_c(lower_step(step), "f", tables)], tables, tmp_path)
    assert library.run("f", stored(contents(1) | {N: [count]})) == answer


def test_sums_of_short_products_are_short() -> None:
    text = print_c(lower_step(products()), "f", Tables()).text
    assert re.search(r"int32_t r\d+ = 0;", text)
    assert "int8_t *a" not in text  # as wide as what they are multiplied with
    long = print_c(lower_step(products(2000)), "f", Tables()).text
    assert re.search(r"int64_t r\d+ = 0;", long)
