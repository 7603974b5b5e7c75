"""Timing of command streams: equal to a simulation cycle by cycle, between its bounds, and a pipeline where rooms allow one."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewrite_compiler.errors import SpecError
from rewrite_compiler.target import load_target
from rewrite_compiler.target.timing import Command, Region, Wait, queued_commands, timeline

regions = st.builds(lambda m, a, n: Region(m, a, a + n), st.sampled_from("AB"), st.integers(0, 3), st.integers(1, 2))
few = st.lists(regions, max_size=2).map(tuple)
streams = st.lists(
    st.builds(Command, st.just("c"), st.sampled_from(("unit", "link")), st.integers(0, 5), few, few, st.sampled_from(("", "q"))),
    max_size=14,
)
rooms = st.fixed_dictionaries({"A": st.integers(1, 3), "B": st.integers(1, 2)})


def conflicts(stream: Sequence[Command], counts: dict[str, int]) -> list[set[int]]:
    """Return for each command the earlier ones that must have ended, from the whole history of versions, address by address."""
    history: dict[tuple[str, int], list[tuple[int, int, bool]]] = {}  # of an address: version, command, whether it wrote
    waits: list[set[int]] = []
    for n, c in enumerate(stream):
        before: set[int] = set()
        entries = []
        for r in c.reads:
            cells = [history.get((r.memory, a), []) for a in range(r.start, r.stop)]
            newest = max((v for cell in cells for v, *_ in cell), default=0)
            before |= {k for cell in cells for v, k, wrote in cell if wrote and v == newest}
            entries.append((r, newest, False))
        for r in c.writes:
            cells = [history.get((r.memory, a), []) for a in range(r.start, r.stop)]
            newest = max((v for cell in cells for v, *_ in cell), default=0)
            version = newest + any(v == newest and not wrote for cell in cells for v, _, wrote in cell)
            before |= {k for cell in cells for v, k, wrote in cell if v <= version - counts[r.memory] or (v == version and wrote)}
            entries.append((r, version, True))
        for r, version, wrote in entries:
            for a in range(r.start, r.stop):
                history.setdefault((r.memory, a), []).append((version, n, wrote))
        waits.append(before)
    return waits


def stepped(stream: Sequence[Command], counts: dict[str, int]) -> list[tuple[int, int]]:
    """Return when every command runs, cycle by cycle: what is at the head of its queue, free to go and has its resource starts."""
    waits, spans, time = conflicts(stream, counts), dict[int, tuple[int, int]](), 0
    while len(spans) < len(stream):
        for _ in stream:  # commands of no cycles free others at once
            for n, c in enumerate(stream):
                earlier = [k for k in range(n) if stream[k].lane == c.lane]
                holders = [k for k, (a, b) in spans.items() if stream[k].resource == c.resource and a <= time < b]
                done = {k for k, (_, b) in spans.items() if b <= time}
                if n not in spans and not holders and {*earlier, *waits[n]} <= done:
                    spans[n] = time, time + c.cycles
                    break
        time += 1
    return [spans[n] for n in range(len(stream))]


@given(streams, rooms)
@settings(max_examples=300, deadline=None)
def test_a_timeline_is_what_a_simulation_cycle_by_cycle_gives(stream: list[Command], counts: dict[str, int]) -> None:
    found = timeline(stream, counts)
    assert [(s.start, s.end) for s in found.spans] == stepped(stream, counts)
    assert max(found.busy().values(), default=0) <= found.cycles <= found.serial_cycles == sum(c.cycles for c in stream)
    assert sum(found.busy().values()) == found.serial_cycles
    more = timeline(stream, {name: n + 1 for name, n in counts.items()})
    assert all(s.stall is None or s.stall.cycles > 0 for s in more.spans)


def tiles(count: int, load: int, compute: int, store: int) -> list[Command]:
    x, y = Region("in", 0, 1), Region("out", 0, 1)
    each = (
        Command("load", "port in", load, writes=(x,)),
        Command("compute", "unit", compute, (x,), (y,)),
        Command("store", "port out", store, (y,)),
    )
    return [*each] * count


@pytest.mark.parametrize(("load", "compute", "store"), [(3, 10, 2), (10, 3, 2), (2, 3, 10), (4, 4, 4)])
def test_double_buffers_make_a_pipeline(load: int, compute: int, store: int) -> None:
    stream = tiles(20, load, compute, store)
    both = timeline(stream, {"in": 2, "out": 2})
    assert both.cycles == load + compute + store + 19 * max(load, compute, store)
    neither = timeline(stream)
    assert neither.cycles == 20 * (load + compute) + store if store <= load + compute else True
    assert both.cycles < neither.cycles <= neither.serial_cycles
    waits = {(resource, wait) for resource, wait, _ in neither.stalls()}
    assert ("port in", Wait.ROOM) in waits
    assert ("unit", Wait.DATA) in waits


def test_one_port_is_given_to_who_is_ready() -> None:
    x, y = Region("in", 0, 1), Region("out", 0, 1)
    each = [
        Command("load", "port", 4, writes=(x,), queue="loads"), Command("compute", "unit", 9, (x,), (y,)),
        Command("store", "port", 4, (y,), queue="stores"),
    ]  # fmt: skip
    both = timeline(each * 5, {"in": 2, "out": 2})
    port = sorted((s.start, s.end) for s in both.spans if s.command.resource == "port")
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(port))
    assert both.cycles == 4 + 5 * 9 + 4  # the unit never waits: the next tile is there before it is done
    assert timeline(each * 5).cycles == timeline(each * 5).serial_cycles == 5 * 17


def test_accumulation_in_place_waits_for_itself() -> None:
    acc = Region("acc", 0, 4)
    stream = [Command("gemm", "unit", 5, (acc,), (acc,)), Command("alu", "other", 1, (acc,), (acc,)), Command("store", "port", 2, (acc,))]
    assert [(s.start, s.end) for s in timeline(stream, {"acc": 2}).spans] == [(0, 5), (5, 6), (6, 8)]


def test_tokens_order_queues_and_a_missing_one_is_refused() -> None:
    ila = load_target("vta").configured({}).ila()
    cycles = {"load_inp": 7, "gemm": 10, "store": 3}
    issued = [
        ("load_inp", {"push_next": 1}), ("gemm", {"pop_prev": 1, "push_next": 1, "push_prev": 1}),
        ("load_inp", {"pop_next": 1, "push_next": 1}), ("store", {"pop_prev": 1}), ("gemm", {"pop_prev": 1}),
    ]  # fmt: skip
    found = timeline(queued_commands(ila, issued, lambda name, _: cycles[name]))
    assert [(s.command.name, s.start, s.end) for s in found.spans] == [
        ("load_inp", 0, 7), ("gemm", 7, 17), ("load_inp", 17, 24), ("store", 17, 20), ("gemm", 24, 34),
    ]  # fmt: skip
    assert found.stalls()["compute", Wait.TOKEN, "l2g"] == 14
    assert found.cycles == 34 < found.serial_cycles == 37
    with pytest.raises(SpecError, match=r"gemm of queue compute takes a token of l2g that no command before it gives"):
        timeline(queued_commands(ila, [("gemm", {"pop_prev": 1})], lambda *_: 1))
