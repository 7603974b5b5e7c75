"""Every way to run a step gives the same memories: in order, generated, whole loops at once, with samples, symbolically."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from steps import WORDS, Steps
from terms import contents_of
from walker import Undefined, Walker

from rewrite_compiler.errors import SpecError
from rewrite_compiler.lang import (
    Leaf,
    Step,
    array,
    assign,
    fold,
    let,
    loop,
    reduce_sum,
    require,
    sat,
    select,
    seq,
    together,
    update,
    when,
    wrap,
)
from rewrite_compiler.lang import intervals as iv
from rewrite_compiler.lang.binders import index_variable, scalar_array, static_shape
from rewrite_compiler.readings.arrays.batched_memory import Memory
from rewrite_compiler.readings.arrays.labelled_array import axis_of, storage_dtype
from rewrite_compiler.readings.native.printer import NativeFunction
from rewrite_compiler.readings.oracle.emit_python import StepFunction
from rewrite_compiler.readings.smt.evaluator import SymbolicEvaluator
from rewrite_compiler.readings.state.interpreter import Machine

EXAMPLES = int(os.environ.get("FLEXMATCH_EXAMPLES", "150"))
RANDOM = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
Contents = dict[Leaf, list[int]]


@dataclass(frozen=True)
class Problem:
    """A step, its memories and what they hold before."""

    step: Step
    memories: list[Leaf]
    control: Leaf
    contents: Contents


@st.composite
def problems(draw: st.DrawFn, writes_control: bool = False) -> Problem:
    memories = []
    for n in range(draw(st.integers(1, 3))):
        shape = draw(st.sampled_from([(6,), (8,), (12,), (3, 4), (1,), ()]))
        memories.append(Leaf(shape, iv.of_width(*draw(st.sampled_from(WORDS))), False, f"m{n}"))
    control = Leaf((3,), (0, 7), False, "control")
    made = Steps(draw, list(memories), control, writes_control)
    step = made.loop(4) if draw(st.integers(0, 3)) else made.step(4)
    leaves = [*memories, control]
    return Problem(step, leaves, control, {leaf: contents_of(draw, leaf) for leaf in leaves})


def walked(p: Problem, contents: Contents) -> Contents | None:
    """Return the memories after the step by the reference meaning; None where it has none."""
    walker = Walker({leaf: dict(zip(places(leaf), x, strict=True)) for leaf, x in contents.items()})
    try:
        walker.run(p.step)
    except Undefined:
        return None
    return {leaf: [int(walker.memories[leaf][at]) for at in places(leaf)] for leaf in contents}


def places(leaf: Leaf) -> list[tuple[int, ...]]:
    return list(itertools.product(*map(range, static_shape(leaf))))


def by_oracle(step: Step, contents: Contents) -> Contents:
    after = {leaf: list(x) for leaf, x in contents.items()}
    run = StepFunction(step)
    run([after[leaf] for leaf in run.memories])
    return after


def memory_of(leaf: Leaf, x: list[int]) -> Memory:
    return Memory(np.array(x, storage_dtype(leaf.interval)).reshape(static_shape(leaf)))


def by_arrays(step: Step, contents: Contents) -> tuple[Contents, int]:
    """Return the memories after, and how many loops ran at once."""
    machine = Machine({leaf: memory_of(leaf, x) for leaf, x in contents.items()})
    machine.run(step)
    return {leaf: machine.memories[leaf].full(machine.axes).data.reshape(-1).tolist() for leaf in contents}, machine.vectorised


@RANDOM
@given(st.one_of(problems(), problems(writes_control=True)))
def test_oracle_arrays_and_solver_leave_the_same_memories(p: Problem) -> None:
    expected = walked(p, p.contents)
    if expected is None:
        return
    assert by_oracle(p.step, p.contents) == expected
    assert by_arrays(p.step, p.contents)[0] == expected
    symbolic = SymbolicEvaluator({leaf: np.array([*x, 0], object)[:-1].reshape(static_shape(leaf)) for leaf, x in p.contents.items()})
    symbolic.run(p.step)
    assert {leaf: [int(x) for x in symbolic.memories[leaf].reshape(-1)] for leaf in p.memories} == expected


@RANDOM
@given(st.data())
def test_samples_run_side_by_side(data: st.DataObject) -> None:
    """Memories that differ between samples, control that does not."""
    p = data.draw(problems())
    samples = data.draw(st.integers(1, 3))
    sampled = [m for m in p.memories if m is not p.control and data.draw(st.booleans())]
    every = [{**p.contents, **{m: contents_of(data.draw, m) for m in sampled}} for _ in range(samples)]
    expected = [walked(p, contents) for contents in every]
    if None in expected:
        return
    memories = {leaf: memory_of(leaf, x) for leaf, x in p.contents.items()}
    machine = Machine(memories)
    axis = axis_of(index_variable("sample", samples))
    machine.axes.add(axis, samples)
    for m in sampled:
        rows = np.stack([memory_of(m, contents[m]).data for contents in every])
        assert memories[m].replace_box((0,) * m.rank, rows, (axis,))
    machine.run(p.step)
    for leaf in p.memories:
        store = memories[leaf].full(machine.axes)
        rows = store.data if store.batch else np.broadcast_to(store.data, (samples, *store.element_shape))
        assert [row.reshape(-1).tolist() for row in rows] == [after[leaf] for after in expected if after], leaf.name


# -- loops that look parallel and are not, and loops that are


A = Leaf((16,), (-128, 127), False, "a")
B = Leaf((16,), (-128, 127), False, "b")
C = Leaf((4,), (0, 15), False, "c")
ACC = Leaf((4,), (-(1 << 31), (1 << 31) - 1), False, "acc")
IN_ORDER: dict[str, Step] = {
    "one update that moves elements apart": loop(2, lambda k: update(A, 6, lambda i: (1 + k + i * 2, A[1 + k + i]))),
    "one update that moves elements together": loop(2, lambda k: update(A, 6, lambda i: (1 + k + i, A[1 + k + i * 2]))),
    "reads the element before": loop(15, lambda k: assign(A, A[k], k + 1)),
    "reads two before": loop(14, lambda k: assign(A, wrap(A[k] + 1, 8), k + 2)),
    "every iteration writes one element, values differ by what it held": loop(9, lambda k: assign(A, wrap(A[3] * 2 + k, 8), 3)),
    "writes overlap the next iteration's": loop(5, lambda k: update(A, 4, lambda i: (k * 3 + i, wrap(A[k * 3 + i] + k, 8)))),
    "a saturating sum": loop(16, lambda k: assign(A, sat(A[0] + B[k], 8), 0)),
    "reads after a later iteration's write": seq(loop(8, lambda k: seq(assign(A, k, k), assign(B, A[7], k)))),
    "through an index table": loop(4, lambda k: assign(A, wrap(A[C[k]] + 3, 8), C[3 - k])),
    "an index table that the loop writes": loop(3, lambda k: seq(assign(C, (C[k] + 1) % 16, k + 1), assign(A, k, C[k + 1]))),
    "the loop's condition depends on what it writes": loop(4, lambda k: when(C[0] < 2, assign(C, (C[0] + 1) % 16, 0))),
    "an inner loop that depends on the outer one's": loop(3, lambda k: loop(4, lambda j: assign(A, wrap(A[j + k] + 1, 8), j + k + 1))),
    "an index modulo a constant from what the loop writes": loop(
        3, lambda k: seq(assign(C, k, k), assign(A, B[C[k] % 16], (k + C[0]) % 16))
    ),
    "wraps around": loop(16, lambda k: assign(A, A[(k + 15) % 16], k)),
    "a local taken once an iteration": loop(4, lambda k: let(array(lambda i: A[i], 16), lambda x: assign(A, wrap(x[k] + x[15], 8), k + 1))),
}
AT_ONCE: dict[str, Step] = {
    "its own element": loop(16, lambda k: assign(A, wrap(A[k] * 3 + 1, 8), k)),
    "rows": loop(4, lambda k: update(A, 4, lambda i: (k * 4 + i, B[i * 4 + k]))),
    "reads what a later iteration writes": loop(15, lambda k: assign(A, A[k + 1], k)),
    "a scratch element, written before it is read": loop(16, lambda k: seq(assign(C, k, 2), assign(A, C[2], k))),
    "backwards": loop(16, lambda k: assign(A, B[k], 15 - k)),
    "even and odd": loop(8, lambda k: seq(assign(A, B[2 * k], 2 * k), assign(A, B[2 * k + 1], 2 * k + 1))),
    "swapped pairs": loop(8, lambda k: together(assign(A, A[2 * k + 1], 2 * k), assign(A, A[2 * k], 2 * k + 1))),
    "a wrapping sum": loop(16, lambda k: assign(ACC, wrap(ACC[k % 4] + A[k] * B[k], 32), k % 4)),
}


@pytest.mark.parametrize("name", [*IN_ORDER, *AT_ONCE])
@pytest.mark.parametrize("seed", range(4))
def test_loops_that_alias(name: str, seed: int) -> None:
    step = {**IN_ORDER, **AT_ONCE}[name]
    rng = np.random.default_rng(seed)
    contents = {leaf: rng.integers(leaf.interval[0], leaf.interval[1], leaf.shape, endpoint=True).tolist() for leaf in (A, B, C, ACC)}
    p = Problem(step, [A, B, C, ACC], C, contents)
    expected = walked(p, contents)
    assert expected is not None
    assert by_oracle(step, contents) == expected
    found, vectorised = by_arrays(step, contents)
    assert found == expected
    if name in AT_ONCE:
        assert vectorised, "this loop was run one iteration at a time"


def test_random_steps_do_run_loops_at_once() -> None:
    """The differential test exercises both ways: neither kind of loop is rare in it."""
    seen: Counter[bool] = Counter()

    @settings(max_examples=150, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(problems())
    def count(p: Problem) -> None:
        if walked(p, p.contents) is not None:
            seen[bool(by_arrays(p.step, p.contents)[1])] += 1

    count()
    assert min(seen[True], seen[False]) > 5, seen


@pytest.mark.parametrize("reading", ["oracle", "arrays"])
def test_a_name_holds_what_was_there_and_the_step_reads_what_is(reading: str) -> None:
    """A name was computed from elements that the step then writes, once in order, once in a loop and once where it is chosen."""
    run = {"oracle": by_oracle, "arrays": lambda step, contents: by_arrays(step, contents)[0]}[reading]
    for write in (assign(C, 7, 0), loop(2, lambda k: assign(C, 7 + k, k)), when(C[3] == 4, assign(C, 7, 0))):
        twice = wrap(C[0] + C[0], 4, False)
        step = let(scalar_array(twice), lambda x, write=write, twice=twice: seq(write, assign(C, twice, 2), assign(C, x[()], 3)))
        assert run(step, {C: [3, 1, 2, 4]})[C][2:] == [14, 6]


# -- diagnostics and refusals


@pytest.mark.parametrize("reading", ["oracle", "arrays", "solver"])
def test_a_requirement_that_fails_names_its_values(reading: str) -> None:
    step = loop(4, lambda k: require(C[k] < 9, "I103", "element {k} is {value}", always=True, k=k, value=C[k]))
    contents = [3, 8, 9, 1]
    runs = {
        "oracle": lambda: StepFunction(step)([contents]),
        "arrays": lambda: Machine({C: memory_of(C, contents)}).run(step),
        "solver": lambda: SymbolicEvaluator({C: np.array(contents, object)}).run(step),
    }
    with pytest.raises(SpecError, match=r"\[I103\]: element 2 is 9$"):
        runs[reading]()


def test_only_strict_runs_raise_what_is_not_always_required() -> None:
    step = seq(require(C[0] == 0, "I103", "the first is not zero"), assign(C, 5, 1))
    assert by_oracle(step, {C: [3, 0, 0, 0]})[C] == [3, 5, 0, 0]
    with pytest.raises(SpecError, match="the first is not zero"):
        StepFunction(step, strict=True)([[3, 0, 0, 0]])
    with pytest.raises(SpecError, match="the first is not zero"):
        Machine({C: memory_of(C, [3, 0, 0, 0])}, strict=True).run(step)


def test_a_write_outside_of_a_memory_is_refused() -> None:
    step = loop(4, lambda k: assign(C, 1, k + C[0]))
    with pytest.raises(SpecError, match="c has 4 elements on axis 0; the update writes element 4"):
        Machine({C: memory_of(C, [1, 0, 0, 0])}).run(step)


def test_a_value_wider_than_its_memory_is_refused() -> None:
    with pytest.raises(SpecError, match=r"c holds values in 0…15, not -1…15"):
        assign(C, select(A[0] > 0, C[1], -1), 0)
    with pytest.raises(SpecError, match="axis 0 of c has 4 elements; index 4 is always outside"):
        assign(C, 1, 4)


# -- lengths


N, V, T = Leaf((), (-3, 4), False, "n"), Leaf((8,), (-1000, 1000), False, "v"), Leaf((), (-100_000, 100_000), False, "t")
LENGTHS: dict[str, Step] = {
    "a sum": assign(T, reduce_sum(lambda i, j: V[i % 8] * 2 + j, (N[()], N[()]))),
    "a fold": assign(T, fold(N[()], 3, lambda k, total: sat(total + V[k % 8], 16), iv.of_width(16, True))),
    "an update": update(V, N[()], lambda i: (i % 8, i)),
    "a loop": loop(N[()], lambda k: assign(T, sat(T[()] + k + 1, 16))),
    "a local": let(array(lambda i: V[i % 8] + 1, N[()]), lambda x: when(N[()] > 2, assign(T, x[2]), assign(T, 5))),
}


@pytest.mark.parametrize("name", LENGTHS)
@pytest.mark.parametrize("length", [-3, -1, 0, 1, 4])
def test_below_zero_there_is_nothing(name: str, length: int) -> None:
    step = LENGTHS[name]
    contents: Contents = {N: [length], V: [5, -7, 9, 11, -2, 4, 6, 1], T: [42]}
    expected = walked(Problem(step, [N, V, T], N, contents), contents)
    assert expected is not None
    assert by_oracle(step, contents) == expected
    assert by_arrays(step, contents)[0] == expected
    function, memories = NativeFunction(step), {leaf: memory_of(leaf, x).data for leaf, x in contents.items()}
    function([memories[leaf] for leaf in function.memories])
    assert {leaf: x.reshape(-1).tolist() for leaf, x in memories.items()} == expected
