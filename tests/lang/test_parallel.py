"""Loops that run at once give what they give one iteration after the other, whatever their statements touch."""

from __future__ import annotations

import random

import numpy as np
import pytest

from rewrite_compiler.lang import Expr, Leaf, Step, array, leaf, let, loop, reduce_sum, seq, update, updates, wrap
from rewrite_compiler.lang import intervals as iv
from rewrite_compiler.readings.arrays.batched_memory import Memory
from rewrite_compiler.readings.oracle.emit_python import StepFunction
from rewrite_compiler.readings.state.interpreter import Machine

N, LANES = 40, 2
BYTE = iv.of_width(8, True)
A, B = leaf("a", (N, LANES), BYTE), leaf("b", (N, LANES), BYTE)


def run_both(step: Step, seed: int) -> tuple[list[list[int]], list[list[int]], int]:
    """Return both memories after the loops, in order and at once, and the number of vectorised loops."""
    rng = np.random.default_rng(seed)
    before: dict[Leaf, np.ndarray] = {m: rng.integers(-128, 128, (N, LANES)).astype(np.int8) for m in (A, B)}
    flat = {m: x.reshape(-1).tolist() for m, x in before.items()}
    function = StepFunction(step)
    function([flat[m] for m in function.memories])
    machine = Machine({m: Memory(x) for m, x in before.items()})
    machine.run(step)
    return [flat[A], flat[B]], [before[A].reshape(-1).tolist(), before[B].reshape(-1).tolist()], machine.vectorised


def place(dice: random.Random, variables: list[Expr]) -> Expr:
    index: Expr = variables[0] * dice.randint(0, 3)
    for v in variables[1:]:
        index = index + v * dice.randint(-1, 3)
    return (index + dice.randrange(6)) % N


def statement(dice: random.Random, variables: list[Expr]) -> Step:
    to, one, two = (place(dice, variables) for _ in range(3))
    target, first, second = (dice.choice((A, B)) for _ in range(3))
    if dice.random() < 0.25:
        return updates(LANES, lambda o: [(A, (to, o), wrap(B[one, o] + A[to, o], 8)), (B, (two, o), wrap(A[one, o] * 3, 8))])
    if dice.random() < 0.3:
        local = array(lambda o: wrap(first[one, o] * 3 - second[two, LANES - 1 - o], 8), LANES)
        return let(local, lambda t: update(target, LANES, lambda o: ((to, o), wrap(t[LANES - 1 - o] + second[to, o], 8))), "t")
    return update(target, LANES, lambda o: ((to, o), wrap(first[one, o] * 3 + second[two, LANES - 1 - o] + 1, 8)))


def body(dice: random.Random, variables: list[Expr], depth: int) -> Step:
    if depth == 0:
        return statement(dice, variables)
    extent = variables[-1] % 3 + 1 if dice.random() < 0.2 else dice.choice((1, 2, 3, 4))
    inner = loop(extent, lambda k: body(dice, [*variables, k], depth - 1))
    kind = dice.randrange(4)
    return inner if kind < 2 else seq(inner, statement(dice, variables)) if kind == 2 else seq(statement(dice, variables), inner)


@pytest.mark.parametrize("block", range(10))
def test_random_nests(block: int) -> None:
    for seed in range(60 * block, 60 * block + 60):
        dice = random.Random(seed)
        step = loop(dice.choice((2, 3, 5)), lambda x, d=dice: body(d, [x], d.choice((0, 1, 1, 2))))
        in_order, at_once, _ = run_both(step, seed)
        assert in_order == at_once, seed


def test_random_nests_are_often_vectorised() -> None:
    def vectorised(seed: int) -> int:
        dice = random.Random(seed)
        return run_both(loop(dice.choice((2, 3, 5)), lambda x: body(dice, [x], dice.choice((0, 1, 1, 2)))), seed)[2]

    assert sum(vectorised(seed) > 0 for seed in range(100)) >= 30


def test_inner_loop_that_overwrites_what_an_earlier_iteration_reads_later() -> None:
    """Iteration 0 reads a[2] in its second inner step; iteration 1 writes a[2] in its first."""
    step = loop(
        3, lambda x: loop(2, lambda k: update(A, LANES, lambda o: ((k + 2 * x, o), wrap(A[k + 2 * x, o] + A[1 + k + 4 * x, o], 8))))
    )
    in_order, at_once, _ = run_both(step, 0)
    assert in_order == at_once


def test_earliest_write_counts() -> None:
    """What the next iteration writes twice is lost at the first of both."""
    step = loop(
        2,
        lambda x: seq(
            update(A, LANES, lambda o: ((x, o), wrap(B[x, o] + 1, 8))),
            update(B, LANES, lambda o: ((x + 8, o), A[x + 1, o])),
            update(A, LANES, lambda o: ((x, o), wrap(B[x, o] + 2, 8))),
        ),
    )
    in_order, at_once, _ = run_both(step, 0)
    assert in_order == at_once


def test_update_reads_all_before_it_writes_any() -> None:
    """The rows overlap and differ in stride."""
    for move in (
        lambda i, o: ((1 + 2 * i, o), A[1 + i, o]),
        lambda i, o: ((1 + i, o), A[1 + 2 * i, o]),
        lambda i, o: ((3 * i % N, o), A[i, o]),
    ):
        in_order, at_once, _ = run_both(update(A, (10, LANES), move), 0)
        assert in_order == at_once
    line = leaf("line", (6,), BYTE)
    memory = np.array([0, 1, 2, 3, 4, 5], np.int8)
    Machine({line: Memory(memory)}).run(update(line, 3, lambda i: (1 + 2 * i, line[1 + i])))
    assert memory.tolist() == [0, 1, 2, 2, 4, 3]


def test_iterations_with_places_of_their_own_inside_a_box_that_all_write() -> None:
    """Every iteration writes a[3], a[6], a[9]; a[4] is the first one's alone."""
    step = loop(
        2,
        lambda x: seq(
            loop(3, lambda k: update(A, LANES, lambda o: ((3 * k + 3, o), B[x + k, o]))),
            update(A, LANES, lambda o: ((x + 4, o), B[x + 5, o])),
        ),
    )
    in_order, at_once, vectorised = run_both(step, 0)
    assert in_order == at_once
    assert vectorised


def test_an_inner_loop_of_another_length_in_each_pass_around_it() -> None:
    def through_buffer(x: Expr, p: Expr) -> Step:
        return loop(3 - p, lambda i: seq(update(A, LANES, lambda o: ((i, o), B[x, o])), update(B, LANES, lambda o: ((20 + i, o), A[i, o]))))

    run, expected, _ = run_both(loop(4, lambda x: loop(2, lambda p: through_buffer(x, p))), seed=3)
    assert run == expected


def test_a_local_of_each_iteration_runs_at_once() -> None:
    """Each row is replaced by itself less its sum, as a normalisation does."""

    def row(x: Expr) -> Step:
        total = array(lambda: reduce_sum(lambda o: A[x, o], LANES), ())
        return let(total, lambda t: update(A, LANES, lambda o: ((x, o), wrap(A[x, o] - t[()], 8))), "t")

    in_order, at_once, vectorised = run_both(loop(N, row), 1)
    assert in_order == at_once
    assert vectorised == 1


def test_a_local_that_reads_the_row_before_runs_in_order() -> None:
    def row(x: Expr) -> Step:
        before = array(lambda o: A[x, o], LANES)
        return let(before, lambda t: update(A, LANES, lambda o: ((x + 1, o), wrap(A[x + 1, o] - t[o], 8))), "t")

    in_order, at_once, vectorised = run_both(loop(N - 1, row), 2)
    assert in_order == at_once
    assert vectorised == 0


def test_an_index_that_the_loop_writes_runs_in_order() -> None:
    def row(x: Expr) -> Step:
        return let(array(lambda: A[x, 0] % N, ()), lambda t: update(A, LANES, lambda o: ((t[()], o), wrap(A[x, o] + 1, 8))), "t")

    in_order, at_once, vectorised = run_both(loop(N, row), 3)
    assert in_order == at_once
    assert vectorised == 0
