"""Queues and tokens against all legal interleavings of small random programs, each executed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewrite_compiler.errors import FlexmatchError, SpecError
from rewrite_compiler.ila import Bits, Ila, Match, Queue, assemble
from rewrite_compiler.ila.simulation.simulator import DeviceHang
from rewrite_compiler.ila.simulation.stream_device import Stream
from rewrite_compiler.lang import Array, Step, assign, wrap

CELLS = 4
TOKENS = {"pop_prev": Bits(2, 2), "pop_next": Bits(3, 3), "push_prev": Bits(4, 4), "push_next": Bits(5, 5)}
FIELDS = {**TOKENS, "dst": Bits(8, 9), "src": Bits(12, 13), "number": Bits(16, 19)}
# queue → operand → token: a chain a ⇄ b ⇄ c, as in a machine that loads, computes and stores
TAKES = {"a": {"pop_next": "ba"}, "b": {"pop_prev": "ab", "pop_next": "cb"}, "c": {"pop_prev": "bc"}}
GIVES = {"a": {"push_next": "ab"}, "b": {"push_prev": "ba", "push_next": "bc"}, "c": {"push_prev": "cb"}}
Row = tuple[str, dict[str, int]]


@cache
def chain() -> Ila:
    """Return a model with three queues whose instructions are m[dst] := 2 · m[src] + number."""
    m = Ila("chain")
    m.input("data", 8, 4)
    cells = m.register("cells", 8, shape=(CELLS,), binding="data")
    for code, name in enumerate(TAKES):

        def step(**operands: Array) -> Step:
            """Double a cell and add."""
            f = {k: v[()] for k, v in operands.items()}
            return assign(cells, wrap(2 * cells[f["src"]] + f["number"], 8, False), f["dst"])

        m.instruction(name, Match(m.word("data", 0, 1) == code, {"data": code}), FIELDS)(step)
        unconnected = tuple(TOKENS.keys() - TAKES[name].keys() - GIVES[name].keys())
        m.queues.append(Queue(name, frozenset({name}), TAKES[name], GIVES[name], unconnected))
    return m


@st.composite
def programs(draw: Any) -> list[Row]:
    rows = []
    for _ in range(draw(st.integers(1, 6))):
        queue = draw(st.sampled_from("abc"))
        operands = [*TAKES[queue], *GIVES[queue]]
        tokens = {o: draw(st.sampled_from((0, 0, 0, 1))) for o in operands}
        rows.append((queue, {**tokens, "dst": draw(st.integers(0, 3)), "src": draw(st.integers(0, 3)), "number": draw(st.integers(1, 9))}))
    return rows


def interleavings(rows: Sequence[Row], done: tuple[int, ...] = (), tokens: Counter[str] | None = None) -> Iterator[tuple[int, ...]]:
    """Yield every order in which the queues may run, each as far as it gets."""
    held = tokens or Counter()
    stuck = True
    for queue in TAKES:
        n = next((n for n, (q, _) in enumerate(rows) if q == queue and n not in done), None)
        if n is None:
            continue
        asked = [t for o, t in TAKES[queue].items() if rows[n][1][o]]
        if any(held[t] == 0 for t in asked):
            continue
        stuck = False
        given_now = [t for o, t in GIVES[queue].items() if rows[n][1][o]]
        yield from interleavings(rows, (*done, n), held - Counter(asked) + Counter(given_now))
    if stuck:
        yield done


def result(rows: Sequence[Row], order: Sequence[int]) -> tuple[int, ...]:
    cells = [0] * CELLS
    for n in order:
        f = rows[n][1]
        cells[f["dst"]] = (2 * cells[f["src"]] + f["number"]) % 256
    return tuple(cells)


def ran(rows: Sequence[Row], *, strict: bool) -> tuple[tuple[int, ...], FlexmatchError | None]:
    device = Stream(chain(), strict=strict, reading="oracle")
    words = [assemble(chain().instructions[queue], **fields)["data"] for queue, fields in rows]
    refusal: FlexmatchError | None = None
    try:
        device.run(words)
    except FlexmatchError as problem:
        refusal = problem
    return tuple(device.state("cells").tolist()), refusal


@settings(max_examples=400)
@given(programs())
def test_verdict_is_that_of_all_interleavings(rows: list[Row]) -> None:
    orders = set(interleavings(rows))
    complete = [o for o in orders if len(o) == len(rows)]
    cells, refusal = ran(rows, strict=True)
    assert isinstance(refusal, DeviceHang) == (not complete)
    if refusal is None:
        assert {result(rows, o) for o in complete} == {cells}
    elif refusal.problem.code == "I107":
        first, second = [int(w) for w in refusal.problem.sentence.split() if w.isdigit()][:2]
        assert {o.index(first) < o.index(second) for o in complete} == {False, True}
    elif refusal.problem.code == "I108":
        given_in_all = sum(f[o] for q, f in rows for o in GIVES[q])
        assert given_in_all > sum(f[o] for q, f in rows for o in TAKES[q])


@settings(max_examples=200)
@given(programs())
def test_without_diagnostics_a_legal_order_runs(rows: list[Row]) -> None:
    """All that can run runs, in a legal order, and a device that waits for ever says so."""
    orders = set(interleavings(rows))
    cells, refusal = ran(rows, strict=False)
    assert cells in {result(rows, o) for o in orders}
    assert (refusal is not None) == all(len(o) < len(rows) for o in orders)


def test_a_stream_in_dependency_order_runs_as_written() -> None:
    rows: list[Row] = [
        ("a", {"push_next": 1, "dst": 0, "src": 0, "number": 1}),
        ("b", {"pop_prev": 1, "push_next": 1, "dst": 1, "src": 0, "number": 2}),
        ("c", {"pop_prev": 1, "dst": 2, "src": 1, "number": 3}),
    ]
    assert ran(rows, strict=True) == ((1, 4, 11, 0), None)


def test_token_orders_only_what_follows_it() -> None:
    """The second giving releases the second taking: what comes between is open."""
    rows: list[Row] = [
        ("a", {"push_next": 1, "dst": 0, "src": 0, "number": 1}),
        ("b", {"pop_prev": 1, "dst": 1, "src": 0, "number": 1}),
        ("a", {"dst": 1, "src": 1, "number": 1}),
    ]
    _, refusal = ran(rows, strict=True)
    assert isinstance(refusal, SpecError)
    assert refusal.problem.sentence == (
        "instruction 1 (b) and instruction 2 (a) may run in either order, but the first writes and the second reads element 1 of cells"
    )


def test_missing_token_of_two_queues() -> None:
    rows: list[Row] = [("a", {"pop_next": 1}), ("c", {"pop_prev": 1}), ("b", {"pop_next": 1, "push_next": 1})]
    with pytest.raises(DeviceHang) as refusal:
        Stream(chain()).run([assemble(chain().instructions[q], **f)["data"] for q, f in rows])
    assert refusal.value.problem.sentence == (
        "no interrupt can come: queue a waits at instruction 0 (a) for a token of ba that nothing gives; "
        "queue b waits at instruction 2 (b) for a token of cb that nothing gives; "
        "queue c waits at instruction 1 (c) for a token of bc that instruction 2 (b) would give"
    )


def test_a_race_names_the_row_of_a_memory_of_rows() -> None:
    m = Ila("rows")
    m.input("data", 8, 4)
    cells = m.memory("cells", (CELLS, 2), 8)
    for code, name in enumerate("ab"):

        def step(**operands: Array) -> Step:
            """Store a number in the second half of a row."""
            return assign(cells, operands["number"][()], operands["dst"][()], 1)

        m.instruction(name, Match(m.word("data", 0, 1) == code, {"data": code}), {"dst": Bits(8, 9), "number": Bits(16, 19)})(step)
        m.queues.append(Queue(name, frozenset({name}), {}, {}, ()))
    device = Stream(m, strict=True, reading="oracle")
    with pytest.raises(SpecError) as refusal:
        device.run([assemble(m.instructions[name], dst=3, number=n)["data"] for n, name in enumerate("ab")])
    assert refusal.value.problem.code == "I107"
    assert refusal.value.problem.sentence.endswith(" element 3 of cells")
