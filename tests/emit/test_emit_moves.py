"""Moves of a C program: what only the first inference sends, what both do, and the elements that cells gather."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rewrite_compiler.emit.c.cells import cells_of, gather_of
from rewrite_compiler.emit.c.command_stream import Fill, Move, Pause
from rewrite_compiler.emit.c.resident_weights import aligned_moves, stays_of
from rewrite_compiler.emit.mmio.trace import Cost, cycles_of, merged_trace, part_of
from rewrite_compiler.emit.rtl.command_fifos import _ready
from rewrite_compiler.emit.rtl.rom import filled_entries
from rewrite_compiler.ila.traces.trace import Header, Section, Trace, Wait
from rewrite_compiler.lang.binders import Leaf, scalar_array
from rewrite_compiler.readings.oracle.emit_python import evaluate
from rewrite_compiler.readings.verilog.reader import Expression, Statement
from rewrite_compiler.target import Stay


def test_only_constants_of_the_program_are_there_and_results_go_back() -> None:
    stay = Stay({"w": 0, "x": 64}, frozenset("wx"), frozenset("y"))
    residency = SimpleNamespace(stays={"a": (stay, Stay({"v": 8}))}, lasting={"a": (frozenset("wu"), frozenset("v"))})
    plan: Any = SimpleNamespace(residency={"device": residency})

    def found(constants: str, name: str = "a", target: str = "device") -> list[list[str]]:
        o: Any = SimpleNamespace(id=name, target=SimpleNamespace(name=target))
        pairs = stays_of(plan, o, frozenset(constants))
        assert all(not s.kept for pair in pairs for s in pair)
        assert all(first.at == later.at for first, later in pairs)
        return [["".join(sorted(s.present)) for s in pair] for pair in pairs]

    assert found("wuv") == [["w", "uw"], ["", "v"]]
    assert found("w") == [["w", "w"], ["", ""]]
    assert found("v") == [["", ""], ["", "v"]]
    assert found("w", "b") == found("w", "a", "another") == []


def test_moves_of_both_inferences_are_one_where_they_are_equal() -> None:
    def aligned(first: list[Move], later: list[Move]) -> list[tuple[tuple[Move, ...], tuple[Move, ...]]]:
        recorders: Any = SimpleNamespace(moves=first), SimpleNamespace(moves=later)
        return [(g.first, g.later) for g in aligned_moves(*recorders)]

    x, y, wait = Fill("dram", 0, None, 8), Fill("dram", 8, None, 8), Pause((1, 2))
    assert aligned([x, y, wait], [y, wait]) == [((x,), ()), ((y, wait), (y, wait))]
    others = (Pause((1,)), Pause((1, 3)), Fill("dram", 0, None, 9), Fill("sram", 0, None, 8), Fill("dram", 1, None, 8))
    for a in (x, wait):
        for b in others:
            assert aligned([a, y], [b, y]) == [((a,), (b,)), ((y,), (y,))]


def test_cells_that_share_an_element_gather_it_once() -> None:
    x, y = (cells_of(Leaf((2,), (0, 7), False, name)) for name in "xy")
    cells = np.array([x[0] + x[0] * x[1], (x[1] + y[0]) * (y[0] + x[1]), x[1] - x[1] * 2, 5], object)
    found = gather_of(cells)
    assert found.forms[1:3] == ("(v[0] + (v[0] * v[1]))", "((v[0] + v[1]) * (v[1] + v[0]))")
    assert [leaf.name for leaf in found.sources] == ["x", "y"]
    assert found.indices.tolist()[:2] == [[0, 1], [1, 0]]
    assert found.source_numbers.tolist()[:2] == [[0, 0], [0, 1]]
    assert (found.form_numbers.tolist()[3], found.indices[3, 0]) == (0, 5)


def test_a_memory_is_filled_where_every_word_is_set_once() -> None:
    def number(n: int) -> Expression:
        return Expression("number", value=n, width=32, signed=True)

    def set_word(n: int, value: int) -> Statement:
        return Statement("set", 1, terms=(Expression("at", (number(n),), name="rom"), number(value)))

    words = [set_word(n, 7 * n) for n in range(3)]
    assert filled_entries(words, {"rom": 3})["rom"].tolist() == [0, 7, 14]
    for statements in (words[:2], [*words, words[1]], [*words, set_word(3, 1)][1:], []):
        assert filled_entries(statements, {"rom": 3}) == {}


@pytest.mark.parametrize(
    ("take", "give", "taken", "given", "is_ready"),
    [
        (0, 0, 0, 65535, 1), (1, 0, 0, 0, 0), (1, 0, 1, 65535, 1), (0, 1, 0, 65534, 1), (0, 1, 0, 65535, 0), (1, 1, 1, 0, 1),
        (1, 1, 0, 0, 0), (1, 1, 1, 65535, 0),
    ],
)  # fmt: skip
def test_a_command_is_accepted_where_its_tokens_are_there_and_fit(take: int, give: int, taken: int, given: int, is_ready: int) -> None:
    """A counter of sixteen bits that is full takes no further token."""
    flags = [Leaf((), (0, 1), False, name) for name in ("take", "give")]
    counters = [Leaf((), (0, 65535), False, name) for name in ("taken", "given")]
    ready = _ready([(flag[()], counter, change) for flag, counter, change in zip(flags, counters, (-1, 1), strict=True)])
    contents: Any = {leaf: [n] for leaf, n in zip((*flags, *counters), (take, give, taken, given), strict=True)}
    assert evaluate(scalar_array(ready), contents, 1) == [is_ready]


def test_the_parts_of_a_trace_are_the_trace() -> None:
    sections = [
        Section(n, "a", n // 2, phase, phase in ("constants", "run")) for n, phase in enumerate(("constants", "inputs", "run", "results"))
    ]
    trace = Trace(Header("device", {}, "0" * 64, {"inputs": "zeros"}), tuple(item for s in sections for item in (s, Wait())))
    constant, inference = (part_of(trace, constant=x) for x in (True, False))
    assert [s.part for s in constant.items if isinstance(s, Section)] == [0, 2]
    assert [part.header.about["part"] for part in (constant, inference)] == ["constant", "inference"]
    assert merged_trace([inference, constant]) == merged_trace([constant, inference]) == trace
    assert merged_trace([constant]) == constant


def test_phases_without_a_price_have_no_cycles() -> None:
    """Transfers share their cycles by bytes; the run takes those of the computation."""
    rows = [
        Cost("a", "inputs", False, 1, 30),
        Cost("a", "results", False, 1, 10),
        Cost("a", "run", False, 1, 99),
        Cost("b", "run", False, 1, 0),
    ]
    price = SimpleNamespace(cost=SimpleNamespace(compute_cycles=7, transfer_cycles=100))
    plan: Any = SimpleNamespace(offloads=[SimpleNamespace(id="a", price=price), SimpleNamespace(id="b", price=None)])
    assert cycles_of(rows, plan) == [75, 25, 7, None]
