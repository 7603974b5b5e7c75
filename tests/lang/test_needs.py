"""What a step needs to be written before it runs, against what it reads when it is followed element by element."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewrite_compiler.lang import Step, array, assign, leaf, let, loop, reduce_sum, select, seq, update, updates, when, wrap
from rewrite_compiler.readings.arrays.batched_memory import Memory
from rewrite_compiler.readings.state.interpreter import Machine
from rewrite_compiler.readings.state.upward_exposed_reads import ExposedReads, exposed_reads_of

ROWS, LANES = 12, 2
WORD = (-128, 127)
A, B = leaf("a", (ROWS, LANES), WORD), leaf("b", (ROWS, LANES), WORD)
BASE, COUNT, FLAG = (leaf(n, (), (0, 15)) for n in ("base", "count", "flag"))
SIZES = leaf("sizes", (4,), (0, 3))
CONTROL: dict[Any, Any] = {BASE: 0, COUNT: 3, FLAG: 0, SIZES: [0, 3, 1, 2]}


def needs(step: Step, **values: int) -> ExposedReads:
    memories = {x: Memory(np.array(values.get(x.name, default), np.int64)) for x, default in CONTROL.items()}
    memories |= {m: Memory(np.zeros((ROWS, LANES), np.int8)) for m in (A, B)}
    return exposed_reads_of(Machine(memories), step, None, {A: LANES, B: LANES}, frozenset(CONTROL), frozenset())


def rows(found: Any) -> dict[str, list[int]]:
    return {m.name: [n for start, stop in runs.tolist() for n in range(start, stop)] for m, runs in found.items() if len(runs)}


def copy(target: Any, source: Any, to: Any, at: Any) -> Step:
    return update(target, LANES, lambda j: ((to, j), source[at, j]))


CASES: dict[str, tuple[Step, dict[str, int], dict[str, list[int]], dict[str, list[int]]]] = {
    "a row": (copy(A, B, 1, BASE[()]), {"base": 5}, {"b": [5]}, {"a": [1]}),
    "a loop": (loop(COUNT[()], lambda k: copy(A, B, k, 2 * k)), {}, {"b": [0, 2, 4]}, {"a": [0, 1, 2]}),
    "what an earlier iteration wrote": (loop(COUNT[()], lambda k: copy(A, A, k + 1, k)), {}, {"a": [0]}, {"a": [1, 2, 3]}),
    "what a later iteration writes": (loop(COUNT[()], lambda k: copy(A, A, k, k + 1)), {}, {"a": [1, 2, 3]}, {"a": [0, 1, 2]}),
    "what the step before wrote": (seq(copy(A, B, 0, 0), copy(B, A, 3, 0)), {}, {"b": [0]}, {"a": [0], "b": [3]}),
    "what goes together reads the state before": (
        updates(LANES, lambda j: [(A, (0, j), B[0, j]), (B, (0, j), A[0, j])]), {}, {"a": [0], "b": [0]}, {"a": [0], "b": [0]},
    ),
    "a branch on control": (when(FLAG[()] == 2, copy(A, B, 0, 0), copy(A, B, 1, 1)), {"flag": 2}, {"b": [0]}, {"a": [0]}),
    "a branch that differs between iterations": (
        loop(4, lambda k: when(SIZES[k] > 1, copy(A, B, k, k))), {}, {"b": [1, 3]}, {"a": [1, 3]},
    ),
    "a branch on data": (when(B[0, 0] > 0, copy(A, B, 1, 1)), {}, {}, {"a": [1]}),
    "a choice on control": (
        update(A, (4, LANES), lambda i, j: ((i, j), select(i == FLAG[()], B[i, j], 0))), {"flag": 2}, {"b": [2]}, {"a": [0, 1, 2, 3]},
    ),
    "a choice on data": (assign(A, select(B[0, 0] > 0, B[1, 0], B[2, 0]), 0, 0), {}, {"b": [0]}, {"a": [0]}),
    "times zero": (update(A, LANES, lambda j: ((0, j), wrap(B[0, j] * FLAG[()], 8))), {"flag": 0}, {}, {"a": [0]}),
    "times one": (update(A, LANES, lambda j: ((0, j), wrap(B[0, j] * FLAG[()], 8))), {"flag": 1}, {"b": [0]}, {"a": [0]}),
    "a sum whose length differs between iterations": (
        loop(4, lambda k: assign(A, wrap(reduce_sum(lambda i: B[4 + 2 * k + i - k, 0], SIZES[k]), 8), k, 0)), {},
        {"b": [5, 6, 7, 8]}, {"a": [0, 1, 2, 3]},
    ),
    "a local": (
        let(array(lambda i: B[i, 0], 2), lambda x: loop(COUNT[()], lambda k: assign(A, x[k % 2], k, 0))), {},
        {"b": [0, 1]}, {"a": [0, 1, 2]},
    ),
    "no iterations": (loop(COUNT[()], lambda k: copy(A, B, k, k)), {"count": 0}, {}, {}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_is_needed(case: str) -> None:
    step, values, reads, writes = CASES[case]
    found = needs(step, **values)
    assert {m: sorted({*rows(found.reads).get(m, []), *rows(found.in_place).get(m, [])}) for m in ("a", "b")} == {
        m: reads.get(m, []) for m in ("a", "b")
    }
    assert rows(found.writes) == writes


def test_what_is_updated_in_place_for_some_results_only() -> None:
    step = update(A, (4, LANES), lambda i, j: ((i, j), select(i < FLAG[()], A[i, j], 0)))
    found = needs(step, flag=2)
    assert (rows(found.reads), rows(found.in_place)) == ({}, {"a": [0, 1]})
    found = needs(step, flag=9)
    assert (rows(found.reads), rows(found.in_place)) == ({"a": [0, 1, 2, 3]}, {})


Copy = tuple[int, int, int, int, int]  # iterations, target and its step, source and its step
COPIES = st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(0, 2), st.integers(0, 3), st.integers(0, 2))


@settings(max_examples=200, deadline=None)
@given(st.lists(COPIES, min_size=1, max_size=4), st.integers(1, 3))
def test_copies_in_nested_loops(copies: list[Copy], turns: int) -> None:
    def nest(t: Any) -> Step:
        return seq(*(loop(n, lambda k, c=c: copy(A, A, c[1] + c[2] * k, c[3] + c[4] * k + t)) for c in copies for n in c[:1]))

    missing, written = set[int](), set[int]()
    for t in range(turns):
        for n, to, step, source, move in copies:
            for k in range(n):
                missing |= {source + move * k + t} - written
                written.add(to + step * k)
    found = needs(loop(turns, nest))
    assert (rows(found.reads).get("a", []), rows(found.writes).get("a", [])) == (sorted(missing), sorted(written))
