"""Loops that accumulate: what runs as one update, what stays a loop, and that both give what the loops say."""

from __future__ import annotations

import random

import numpy as np
import pytest

from rewrite_compiler.errors import SpecError
from rewrite_compiler.lang import Expr, Leaf, Step, array, assign, const, fold, leaf, loop, reduce_sum, seq, update, updates, wrap
from rewrite_compiler.lang import intervals as iv
from rewrite_compiler.lang.binders import scalar_array
from rewrite_compiler.lang.expr import var
from rewrite_compiler.lang.step import Loop
from rewrite_compiler.lang.substitution import substitute
from rewrite_compiler.readings.arrays.batched_memory import Memory
from rewrite_compiler.readings.oracle.emit_python import StepFunction, evaluate
from rewrite_compiler.readings.state import delinearisation, reduction_recognition
from rewrite_compiler.readings.state.footprint import footprint
from rewrite_compiler.readings.state.interpreter import Machine
from rewrite_compiler.readings.state.loop_nest import loop_nest_of
from rewrite_compiler.readings.state.reduction_recognition import accumulation

BYTE, WORD = iv.of_width(8, True), iv.of_width(16, True)
N, LANES = 24, 4
ACC = leaf("acc", (N, LANES), WORD)
COPY = leaf("copy", (N, LANES), BYTE)
INP = leaf("inp", (N, LANES), BYTE)
WGT = leaf("wgt", (N, LANES, LANES), BYTE)
INDEX = leaf("index", (3, N), (0, N - 1))
SHAPES = {ACC: (N, LANES), COPY: (N, LANES), INP: (N, LANES), WGT: (N, LANES, LANES), INDEX: (3, N)}


def contents(rng: np.random.Generator, indices: np.ndarray) -> dict[Leaf, np.ndarray]:
    kinds = {ACC: np.int16, COPY: np.int8, INP: np.int8, WGT: np.int8}
    found = {m: rng.integers(m.interval[0], m.interval[1] + 1, SHAPES[m]).astype(kind) for m, kind in kinds.items()}
    return found | {INDEX: indices.astype(np.uint8)}


def by_loops(step: Step, before: dict[Leaf, np.ndarray]) -> dict[Leaf, list[int]]:
    flat = {m: x.reshape(-1).tolist() for m, x in before.items()}
    function = StepFunction(step)
    function([flat[m] for m in function.memories])
    return flat


def at_once(step: Step, before: dict[Leaf, np.ndarray]) -> tuple[dict[Leaf, list[int]], Machine]:
    memories = {m: Memory(x.copy()) for m, x in before.items()}
    machine = Machine(memories)
    machine.run(step)
    return {m: x.data.reshape(-1).tolist() for m, x in memories.items()}, machine


def place(row: int, k: Expr, y: Expr, step: int) -> Expr:
    return (INDEX[row, k] + y * step) % N


def micro_ops(outer: int, count: int, steps: tuple[int, int, int], has_copy: bool) -> Loop:
    """Return acc[dst] += inp[src] · wgt[w]ᵀ for all y < outer, k < count, with a narrow copy of what is written."""

    def one(y: Expr, k: Expr) -> Step:
        dst, src, w = (place(row, k, y, s) for row, s in enumerate(steps))

        def rows(o: Expr) -> list[tuple[Leaf, tuple[Expr, ...], Expr]]:
            new = wrap(ACC[dst, o] + reduce_sum(lambda c: INP[src, c] * WGT[w, o, c], LANES), 16)
            return [(ACC, (dst, o), new), (COPY, (dst, o), wrap(new, 8))][: 2 if has_copy else 1]

        return updates((LANES,), rows)

    made = loop(outer, lambda y: loop(count, lambda k: one(y, k)))
    assert isinstance(made, Loop)
    return made


PATTERNS = {
    "one place": lambda rng: np.zeros(N),
    "all apart": lambda rng: np.arange(N),
    "any order": lambda rng: rng.permutation(N),
    "twice each": lambda rng: np.arange(N) // 2,
    "four times each, mixed": lambda rng: rng.permutation(np.arange(N) % 6),
    "irregular": lambda rng: rng.integers(0, 5, N),
}


@pytest.mark.parametrize("has_copy", [False, True])
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("seed", range(3))
def test_same_as_the_loops(seed: int, pattern: str, has_copy: bool) -> None:
    rng, dice = np.random.default_rng(seed), random.Random(seed)
    indices = np.stack([PATTERNS[pattern](rng), rng.integers(0, N, N), rng.integers(0, N, N)])
    step = micro_ops(dice.choice((1, 2, 5)), dice.choice((2, 8, 24)), (dice.choice((0, 1, 6)), 1, dice.choice((0, 2))), has_copy)
    before = contents(rng, indices)
    assert at_once(step, before)[0] == by_loops(step, before)


REGULAR = [p for p in PATTERNS if p != "irregular"]


@pytest.mark.parametrize("has_copy", [False, True])
@pytest.mark.parametrize("pattern", REGULAR)
def test_regular_meetings_run_as_one_update(pattern: str, has_copy: bool) -> None:
    rng = np.random.default_rng(5)
    indices = np.stack([PATTERNS[pattern](rng), rng.integers(0, N, N), rng.integers(0, N, N)])
    step = micro_ops(1, N, (0, 0, 0), has_copy)
    machine = Machine({m: Memory(x) for m, x in contents(rng, indices).items()})
    form = loop_nest_of(step)
    assert form is not None
    assert accumulation(machine, form) is not None
    machine.run(step)
    assert machine.vectorised == 1


def test_irregular_meetings_stay_a_loop() -> None:
    rng = np.random.default_rng(5)
    indices = np.stack([np.array([0] + [1] * (N - 1)), np.arange(N), np.arange(N)])
    step = micro_ops(1, N, (0, 0, 0), False)
    before = contents(rng, indices)
    machine = Machine({m: Memory(x.copy()) for m, x in before.items()})
    form = loop_nest_of(step)
    assert form is not None
    assert accumulation(machine, form) is None
    assert at_once(step, before)[0] == by_loops(step, before)


def own(function: object) -> Step:
    return update(ACC, LANES, function)  # type: ignore[arg-type]


# a loop over k that looks like an accumulation and is none
OTHERS = {
    "saturating": lambda k: own(lambda o: ((0, o), (ACC[0, o] + INP[k, o]) // 2)),
    "narrower than the memory": lambda k: own(lambda o: ((0, o), wrap(ACC[0, o] + INP[k, o], 8))),
    "reads another place": lambda k: own(lambda o: ((0, o), wrap(ACC[1, o] + INP[k, o], 16))),
    "adds what it writes": lambda k: own(lambda o: ((0, o), wrap(ACC[0, o] + ACC[k, o], 16))),
    "places not separable": lambda k: own(lambda o: (((k + o) % N, o), wrap(ACC[(k + o) % N, o] + INP[k, o], 16))),
    "two statements": lambda k: seq(own(lambda o: ((0, o), wrap(ACC[0, o] + INP[k, o], 16))), assign(COPY, 0, k, 0)),
    "copy of another place": lambda k: updates(
        LANES, lambda o: [(ACC, (0, o), wrap(ACC[0, o] + INP[k, o], 16)), (COPY, (1, o), wrap(ACC[0, o] + INP[k, o], 8))]
    ),
    "copy that knows the iteration": lambda k: updates(
        LANES, lambda o: [(ACC, (0, o), wrap(ACC[0, o] + INP[k, o], 16)), (COPY, (0, o), wrap(ACC[0, o] + INP[k, o] + k, 8))]
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_what_stays_a_loop(name: str) -> None:
    step = loop(N, OTHERS[name])
    assert isinstance(step, Loop)
    before = contents(np.random.default_rng(1), np.zeros((3, N)))
    form = loop_nest_of(step)
    assert form is None or accumulation(Machine({m: Memory(x) for m, x in before.items()}), form) is None
    assert at_once(step, before)[0] == by_loops(step, before)


# a loop over k whose iterations never meet
APART = {
    "own place": lambda k: own(lambda o: ((k, o), wrap(3 * ACC[k, o] + INP[k, o], 16))),
    "reversed": lambda k: own(lambda o: ((N - 1 - k, o), ACC[N - 1 - k, o] // 2)),
    "two memories": lambda k: updates(LANES, lambda o: [(ACC, (k, o), wrap(-ACC[k, o], 16)), (COPY, (k, o), wrap(ACC[k, o], 8))]),
    "reads what none writes": lambda k: own(lambda o: ((2 * k, o), wrap(ACC[2 * k, o] + ACC[2 * k + 1, LANES - 1 - o], 16))),
    "by table": lambda k: own(lambda o: ((INDEX[0, k], o), wrap(ACC[INDEX[0, k], o] * k, 16))),
}


@pytest.mark.parametrize("name", APART)
def test_iterations_apart_run_as_one_update(name: str) -> None:
    rng = np.random.default_rng(1)
    step = loop(N // 2, APART[name])
    before = contents(rng, np.stack([rng.permutation(N)] * 3))
    found, machine = at_once(step, before)
    assert found == by_loops(step, before)
    assert machine.vectorised == 1


def test_nothing_is_left_behind() -> None:
    """Index tables and locals of one execution are not kept by the machine."""
    rng = np.random.default_rng(2)
    before = contents(rng, np.stack([np.arange(N) // 2, np.arange(N), np.arange(N)]))
    _, machine = at_once(micro_ops(1, N, (0, 0, 0), True), before)
    assert set(machine.memories) == set(before)


# -- updates that share their values


def test_swap_reads_before_it_writes() -> None:
    a, b = leaf("a", (4,), BYTE), leaf("b", (4,), BYTE)
    for step in (
        updates(4, lambda i: [(a, i, b[i]), (b, i, a[i])]),
        updates(4, lambda i: [(a, i, b[i]), (b, (i + 1) % 4, a[i])]),
        updates(3, lambda i: [(a, i, b[i + 1]), (b, i, a[i])]),
    ):
        before = {a: np.array([1, 2, 3, 4], np.int8), b: np.array([5, 6, 7, 8], np.int8)}
        assert at_once(step, before)[0] == by_loops(step, before)


# -- substitution


def test_substitute() -> None:
    x, y = leaf("x", (4,), BYTE), leaf("y", (), BYTE)
    inner = x[0] + 1
    term = reduce_sum(lambda c: array(lambda i: inner * x[i], 4)[c], 4) * inner
    found = substitute(term, {inner: y[()]})
    assert found is substitute(found, {inner: const(0)})
    assert x not in substitute(inner, {inner: y[()]}).reads
    assert found.reads == {x, y}


def value_of(term: Expr, x: Leaf, memory: np.ndarray) -> int:
    return int(evaluate(scalar_array(term), {x: memory.tolist()}, 1)[0])


def folded(x: Leaf, start: Expr, steps: Expr | int) -> Expr:
    """A fold of a fold, which reads a memory at what varies outside of both."""

    def inner(k: Expr, acc: Expr) -> Expr:
        return fold(2, acc, lambda m, a: wrap(a * 3 + x[(start + k + m) % 4] * start, 8), WORD)

    return fold(steps, x[start], lambda k, acc: wrap(acc + inner(k, acc) + k * start, 8), WORD)


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("steps", [3, None])
def test_substitute_inside_of_folds(number: int, steps: int | None) -> None:
    x, i = leaf("x", (4,), BYTE), var("i", (0, 3))
    term = folded(x, i, i if steps is None else steps)
    found = substitute(term, {i: const(number)})
    assert not found.free
    memory = np.array([5, -7, 100, -128], np.int8)
    assert value_of(found, x, memory) == value_of(folded(x, const(number), number if steps is None else steps), x, memory)


def test_a_fold_inside_of_its_own_copy_keeps_its_accumulator() -> None:
    x, i = leaf("x", (4,), BYTE), var("i", (-128, 127))
    term = fold(3, i, lambda k, acc: wrap(acc * 2 + x[k] + i, 8), WORD)
    value, memory = wrap(term, 8), np.array([1, 2, 3, 4], np.int8)
    once = {n: value_of(substitute(value, {i: const(n)}), x, memory) for n in range(-128, 128)}
    twice = substitute(value, {i: substitute(value, {i: const(9)})})
    assert value_of(twice, x, memory) == once[once[9]]
    assert substitute(value, {const(77): const(1)}) is value


# -- footprints


def test_footprint_is_what_the_addresses_say() -> None:
    rng = np.random.default_rng(3)
    indices = rng.integers(0, N, (3, N))
    step = micro_ops(2, 5, (3, 1, 0), True)
    machine = Machine({m: Memory(x) for m, x in contents(rng, indices).items()})
    found = footprint(machine, step, frozenset((ACC, COPY, INP, WGT)))
    pairs = [(y, k) for y in range(2) for k in range(5)]
    dst = {((int(indices[0, k]) + 3 * y) % N) * LANES + o for y, k in pairs for o in range(LANES)}
    src = {((int(indices[1, k]) + y) % N) * LANES + c for y, k in pairs for c in range(LANES)}
    weights = {int(indices[2, k]) * LANES * LANES + n for k in range(5) for n in range(LANES * LANES)}

    def joined(kept: dict[Leaf, list[np.ndarray]]) -> dict[Leaf, set[int]]:
        return {m: set(np.concatenate(x).tolist()) for m, x in kept.items()}

    assert joined(found.writes) == {ACC: dst, COPY: dst}
    assert joined(found.reads) == {ACC: dst, INP: src, WGT: weights}


def test_footprint_follows_loops_whose_control_varies() -> None:
    triangle = loop(4, lambda y: loop(y, lambda x: assign(ACC, INP[x, 0], y, x)))
    machine = Machine({m: Memory(x) for m, x in contents(np.random.default_rng(0), np.zeros((3, N))).items()})
    found = footprint(machine, triangle, frozenset((ACC,)))
    assert np.sort(np.concatenate(found.writes[ACC])).tolist() == [LANES * y + x for y in range(4) for x in range(y)]


def test_footprint_refuses_addresses_that_the_step_computes() -> None:
    step = seq(assign(INDEX, 1, 0, 0), assign(ACC, 0, INDEX[0, 0], 0))
    machine = Machine({m: Memory(x) for m, x in contents(np.random.default_rng(0), np.zeros((3, N))).items()})
    with pytest.raises(SpecError) as refusal:
        footprint(machine, step, frozenset((ACC,)))
    assert refusal.value.problem.sentence == (
        "the footprint of a step cannot be known before it runs: index[0, 0] depends on what it writes"
    )


@pytest.mark.parametrize("has_copy", [False, True])
@pytest.mark.parametrize("extents", [(2, 3, 4), (4, 1, 3), (3, 8, 1), (2, 2, 6)])
def test_tables_made_by_nested_loops_are_nests_of_loops(
    extents: tuple[int, int, int], has_copy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Micro-ops of a convolution: filters, blocks, taps; nothing has to be gathered by tables of iterations."""
    monkeypatch.setattr(reduction_recognition, "MAX_GATHERED_ITERATIONS", 0)
    rng = np.random.default_rng(7)
    n, b, t = (x.reshape(-1) for x in np.indices(extents))
    indices = np.zeros((3, N), np.int64)
    indices[:, : len(n)] = 6 * n + 1, b + 2 * t, n * extents[1] * extents[2] + b * extents[2] + t
    step = micro_ops(2, len(n), (3, 5, 0), has_copy)
    before = contents(rng, indices)
    after, machine = at_once(step, before)
    assert after == by_loops(step, before)
    assert machine.vectorised == 1


@pytest.mark.parametrize("seed", range(4))
def test_digits_are_found_only_where_all_values_follow(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = np.stack([(5 * np.arange(4)[:, None] + np.arange(3)).reshape(-1), (np.arange(4)[:, None] - 2 * np.arange(3)).reshape(-1)])
    assert delinearisation.mixed_radix_of(values) == [4, 3]
    values[rng.integers(2), rng.integers(3, 12)] += 1
    assert delinearisation.mixed_radix_of(values) != [4, 3]


def test_a_table_is_separable_where_it_is_a_sum_along_its_axes() -> None:
    rows, columns = np.array([5, 7, 4]), np.array([0, 3, 3, 9])
    table = rows[:, None] + columns
    first, steps = delinearisation.separable_parts(table) or (None, [])
    assert first == 5
    assert [s.tolist() for s in steps] == [[0, 2, -1], [0, 3, 3, 9]]
    table[2, 3] += 1
    assert delinearisation.separable_parts(table) is None
