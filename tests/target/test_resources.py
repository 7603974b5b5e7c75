"""Resources: derived quantities, sizes read from a model's state, graphs of the shipped targets, refusals in one sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rewrite_compiler.errors import SpecError
from rewrite_compiler.report.graphics.architecture import architecture_dot, resource_rows
from rewrite_compiler.target import (
    Clock,
    Energy,
    Link,
    Memory,
    Resources,
    Unit,
    find_target,
    resource_document,
    state_memory,
    target_names,
)  # fmt: skip

CLOCK = Clock(10**9, "a data sheet")
PICO = Energy(1.5, "pJ", "a data sheet")


def test_the_published_example() -> None:
    """32 bits wide, 7 banks, 1,024 deep: 28,672 bytes."""
    m = Memory("scratch", 32, 1024, banks=7)
    assert (m.element_bytes, m.row_bytes, m.elements, m.capacity_bytes) == (4, 28, 7168, 28_672)


def test_what_follows_from_units_links_and_energies() -> None:
    u = Unit("core", ("dense",), ("int8",), {"n": 16, "k": 16}, 4, PICO)
    x = Link("host", "core", 16, 7)
    assert u.per_cycle == 1024
    assert (x.cycles_for(0), x.cycles_for(1), x.cycles_for(16), x.cycles_for(17)) == (0, 7, 7, 14)
    assert x.bytes_per_cycle == 16 / 7
    assert PICO.joules == 1.5e-12
    m = Memory("a", 8, 4, read_energy=PICO, write_energy=PICO)
    assert Resources(CLOCK, (m,), (u,), (x,)).gives_energies
    assert not Resources(CLOCK, (Memory("a", 8, 4),), (u,), (x,)).gives_energies


def graph(*links: Link) -> Resources:
    return Resources(CLOCK, (Memory("a", 8, 4),), (Unit("core", ("dense",), ("int8",), {"n": 1}),), links)


REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: Memory("a", 0, 4), "Width of memory a must be a positive integer, not 0"),
    (lambda: Memory("a", 12, 4), "Width of memory a must be whole bytes, not 12 bits"),
    (lambda: Memory("a", 8, -1), "Depth of memory a must be a positive integer, not -1"),
    (lambda: Memory("a", 8, 4, banks=0), "Banks of memory a must be a positive integer, not 0"),
    (lambda: Memory("a", 8, 4, instances=0), "Instances of memory a must be a positive integer, not 0"),
    (lambda: Unit("u", ("dense",), ("int8",), {"n": 0}), "Step along n of unit u must be a positive integer, not 0"),
    (lambda: Unit("u", ("dense",), ("int8",), {}, packs={"n": 0}), "Word along n of unit u must be a positive integer, not 0"),
    (lambda: Unit("u", (), ("int8",), {}), "Unit u must have an operation and an element type"),
    (lambda: Link("host", "a", 0), "Width of the link from host to a must be a positive integer, not 0"),
    (lambda: Link("host", "a", 8, 0), "Cycles of the link from host to a must be a positive integer, not 0"),
    (lambda: Link("host", "a", 8, 1, -2), "Latency of the link from host to a must be zero or a positive integer, not -2"),
    (lambda: Clock(0, "x"), "Hertz of a clock must be a positive integer, not 0"),
    (lambda: Clock(1000, ""), "A clock of 1,000 Hz must name its source"),
    (lambda: Energy(1.0, "pW", "x"), 'Unit of an energy must be one of fJ, pJ, nJ, µJ, not "pW"'),
    (lambda: Energy(0.0, "pJ", "x"), 'An energy must be positive and name its source, not 0.0 pJ from "x"'),
    (lambda: Energy(1.0, "pJ", ""), 'An energy must be positive and name its source, not 1.0 pJ from ""'),
    (lambda: graph(Link("host", "b", 8)), 'A link must join memories, units or host, not "b"'),
    (lambda: Resources(CLOCK, (Memory("a", 8, 4),) * 2, (), ()), 'Memories and units must have different names, not "a" twice'),
    (lambda: graph().memory("b"), 'There is no memory "b", only a'),
    (lambda: graph().link("host", "a"), "There is no link from host to a"),
]


@pytest.mark.parametrize(("make", "sentence"), REFUSED, ids=[s for _, s in REFUSED])
def test_what_makes_no_sense_is_refused(make: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(SpecError) as caught:
        make()
    assert (caught.value.problem.code, caught.value.problem.sentence) == ("I102", sentence)


CONTRADICTIONS = [
    ({"state": "nothing", "axes": "depth"}, 'The model must have the state "nothing" that the resources name'),
    ({"state": "large", "axes": "depth"}, "The axes of large must be 2 of instance, bank, depth, lane, not depth"),
    ({"state": "large", "axes": "depth width"}, "The axes of large must be 2 of instance, bank, depth, lane, not depth width"),
    ({"state": "large", "axes": "depth lane", "banks": 3}, "The depth of large must divide into 3 banks of words of 1, not 65,536"),
]


@pytest.mark.parametrize(("given", "sentence"), CONTRADICTIONS, ids=[s for _, s in CONTRADICTIONS])
def test_resources_that_contradict_the_model_are_refused(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SpecError) as caught:
        state_memory(find_target("flexasr").ila(), **given)
    assert (caught.value.problem.code, caught.value.problem.sentence) == ("I106", sentence)


# capacities that the three specifications print
PRINTED = [
    ("flexasr", "large", 1 << 20), ("flexasr", "small", 16 << 10), ("flexasr", "weight", 1 << 20), ("flexasr", "input_buffer", 4 << 10),
    ("flexasr", "act_buffer", 512), ("hlscnn", "spad0", 0x7F_C000), ("hlscnn", "spad1", 0x7F_C000),
    ("hlscnn:revision=uni16", "spad0", 0x2_0000),
    ("vta", "inp", 32 << 10), ("vta", "wgt", 256 << 10), ("vta", "acc", 128 << 10), ("vta", "uop", 32 << 10),
    ("vta:log_wgt_buffer=17", "wgt", 128 << 10), ("vta:log_block=5", "wgt", 256 << 10),
]  # fmt: skip


@pytest.mark.parametrize(("target", "memory", "size"), PRINTED)
def test_memories_have_the_sizes_of_the_model(target: str, memory: str, size: int) -> None:
    found = find_target(target).resources()
    assert found is not None
    assert found.memory(memory).capacity_bytes == size


def test_units_follow_from_parameters() -> None:
    narrow, wide = (find_target(f"vta:log_block={n}").resources() for n in (4, 5))
    assert narrow is not None
    assert wide is not None
    assert (narrow.units[0].per_cycle, wide.units[0].per_cycle) == (256, 1024)


@pytest.mark.parametrize("name", target_names())
def test_the_graph_of_a_shipped_target_can_be_printed(name: str) -> None:
    found = find_target(name).resources()
    assert found is not None
    rows = list(resource_rows(found))
    document = resource_document(found)
    assert len(rows) == 1 + sum(len(document[key]) for key in ("memories", "units", "links", "notes"))  # type: ignore[arg-type]
    assert all(text for row in rows for text in row)
    drawn = architecture_dot(name, found)
    assert drawn.count(" -> ") == len(found.links)
    assert drawn.count("shape=") == 1 + len(found.memories) + len(found.units)
    assert not found.gives_energies  # no figure with a source is known, so none is given
