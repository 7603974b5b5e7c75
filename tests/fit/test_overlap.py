"""Time with overlap: double buffers of an own target hide transfers behind computation, one room hides nothing, advice says by how much."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnx
import pytest
from command import perceptron
from house import ROOT

from rewrite_compiler.compile import Options, compile_model, to_json
from rewrite_compiler.errors import SpecError
from rewrite_compiler.fit.cost import price_with_overlap
from rewrite_compiler.fit.mapping.calls import Tiling
from rewrite_compiler.fit.overlap import call_commands, memories_of, overlap
from rewrite_compiler.report.page.html import page
from rewrite_compiler.study.designs.advise import advice_document, advise
from rewrite_compiler.study.designs.diff import plan_totals
from rewrite_compiler.target import Resources, Target, load_target
from rewrite_compiler.target.timing import timeline

TOY = re.findall(r"```python file=toy.py\n(.*?)```", (ROOT / "docs/tutorial/first-accelerator.md").read_text("utf-8"), re.DOTALL)[0]
COSTS = """

from rewrite_compiler.target import Clock, Cost, Link, Resources, Unit, state_memory


def describe(ila, parameters):
    memories = [state_memory(ila, name, "depth lane", buffering=BUFFERING) for name in "xwy"]
    links = tuple(Link(*ends, WIDTH, port="bus") for ends in (("host", "x"), ("host", "w"), ("y", "host")))
    return Resources(Clock(100_000_000, "assumed"), tuple(memories), (Unit("dot", ("dense",), ("fixed8",), {"k": 8}),), links)


target = __import__("dataclasses").replace(target, describe=describe)


@dense.costs
def cost(t, k, n, resources):
    moved = {"x": t * k, "w": n * k, "y": 8 * n}
    return Cost("dot", WORK * t * n * k // 8, sum(map(resources.link("host", "x").cycles_for, moved.values())), moved)


@dense.levels
def levels(t, k, n):
    return {"x": {"x": (n * k, t * k)}, "w": {"w": (n * k, n * k)}, "y": {"y": (8 * n, 8 * n)}}
"""


def machine(folder: Path, buffering: int, work: int = 1, width: int = 8) -> Target:
    """Return the tutorial's machine with memories, links and costs."""
    constants = f"BUFFERING, WORK, WIDTH = {buffering}, {work}, {width}"
    file = folder / f"toy_{buffering}_{work}_{width}.py"
    file.write_text(f"{TOY}\n{constants}\n{COSTS}".replace("trials=trials", "trials=trials, units={'n': 1}"), "utf-8")
    return load_target(str(file))


def tiles(t: int) -> Tiling:
    return Tiling({"t": t, "k": 64, "n": 16}, {"t": 1, "k": 64, "n": 16})


def resources_of(target: Target) -> Resources:
    resources = target.resources()
    assert resources is not None
    return resources


@pytest.mark.parametrize("work", [1, 2, 10])
def test_double_buffers_hide_what_is_shorter(work: int, tmp_path: Path) -> None:
    target = machine(tmp_path, 2, work)
    m, resources, count = target.mappings["dense"], resources_of(target), 12
    found = overlap(m, tiles(count), {}, resources)
    assert found is not None
    load_w, load_x, compute, store = 128, 8, work * 128, 16
    assert found.serial_cycles == count * (load_w + load_x + compute + store)
    transfers = load_w + load_x + store
    assert count * max(transfers, compute) <= found.cycles <= count * max(transfers, compute) + compute + transfers
    if compute > transfers:
        assert found.cycles == load_w + load_x + count * compute + store  # the unit never waits after the first tile
    price = price_with_overlap(m, tiles(count), {}, resources)
    assert price is not None
    assert price.cycles == price.cost.cycles - price.hidden_cycles
    assert max(price.cost.compute_cycles, price.cost.transfer_cycles) <= price.cycles < price.cost.cycles
    assert [lane.resource for lane in found.lanes] == ["links", "dot"]
    waits = {lane.resource: lane.waits for lane in found.lanes}
    assert waits["links"] if compute > transfers else waits["dot"]


def test_a_tensor_is_brought_to_the_memory_of_its_levels_that_a_link_joins_to_the_host() -> None:
    """Each once: the first that its levels name, of those that the host reaches before others; parts of a tile count, not the layer."""
    asked = []

    def accesses(sizes: dict[str, int], attributes: dict[str, Any]) -> Any:
        asked.append((sizes, attributes))
        return {"registers": {"x": (4, 4), "y": (1, 1)}, "buffer": {"x": (8, 8), "w": (8, 8)}, "table": {"w": (1, 1), "b": (1, 1)}}

    def places(*links: tuple[str, str], levels: Any = accesses) -> dict[str, str]:
        resources: Any = SimpleNamespace(links=[SimpleNamespace(source=a, sink=b) for a, b in links])
        return memories_of(SimpleNamespace(accesses=levels), tiles(3), {"axis": 1}, resources)  # type: ignore[arg-type]

    assert places() == {"x": "registers", "y": "registers", "w": "buffer", "b": "table"}
    assert places(("host", "buffer"), ("buffer", "registers")) == {"x": "buffer", "w": "buffer", "y": "registers", "b": "table"}
    assert places(("table", "host")) == {"w": "table", "b": "table", "x": "registers", "y": "registers"}
    assert places(levels=lambda *_: None) == {}
    assert asked == [({"t": 1, "k": 64, "n": 16}, {"axis": 1})] * 3


def test_a_single_call_has_nothing_to_overlap_with(tmp_path: Path) -> None:
    target = machine(tmp_path, 2)
    found = overlap(target.mappings["dense"], tiles(1), {}, resources_of(target))
    assert found is not None
    assert found.hidden_cycles == 0


def test_one_room_hides_nothing(tmp_path: Path) -> None:
    target = machine(tmp_path, 1)
    m, resources = target.mappings["dense"], resources_of(target)
    assert overlap(m, tiles(5), {}, resources) is None
    price = price_with_overlap(m, tiles(5), {}, resources)
    assert price is not None
    assert (price.cycles, price.hidden_cycles) == (price.cost.cycles, 0)


def test_many_calls_go_on_as_the_last_ones_did(tmp_path: Path) -> None:
    target = machine(tmp_path, 2)
    m, resources = target.mappings["dense"], resources_of(target)
    found = overlap(m, tiles(500), {}, resources)
    cost = m.cost({"t": 1, "k": 64, "n": 16}, {}, resources)
    assert found is not None
    assert cost is not None
    commands = [c for _ in range(500) for c in call_commands(m, cost, {"x": "x", "w": "w", "y": "y"})]
    assert found.cycles == timeline(commands, {"x": 2, "w": 2, "y": 2}).cycles


def test_advice_says_what_a_double_buffer_saves_and_the_plan_holds_it(tmp_path: Path) -> None:
    model = tmp_path / "app.onnx"
    onnx.save(perceptron((64, 64, 64)), model)
    options = Options(shapes={"x": (6, 64)})
    single, double = machine(tmp_path, 1, 2), machine(tmp_path, 2, 2)
    document = advice_document(advise([model], single, options))
    buffers = {c["name"]: c for c in document["changes"] if c["kind"] == "buffer"}
    assert {"x", "w", "y", "every memory"} == buffers.keys()
    every = buffers["every memory"]
    assert every["saved_nanoseconds"] > buffers["x"]["saved_nanoseconds"] >= 0
    plans = {n: compile_model(model, [t], options) for n, t in (("single", single), ("double", double))}
    cycles = {n: sum(o.price.cycles for o in plan.offloads if o.price) for n, plan in plans.items()}
    assert every["totals"]["device_cycles"] == cycles["double"] < cycles["single"]
    (first, *_) = to_json(plans["double"])["offloads"]
    assert first["cost"]["hidden_cycles"] > 0
    assert [lane["resource"] for lane in first["cost"]["lanes"]] == ["links", "dot"]
    assert "what each unit and link works and waits for" in page(to_json(plans["double"]), None)
    assert "what each unit and link works and waits for" not in page(to_json(plans["single"]), None)


def with_two_tiles(target: Target, memory: str) -> Target:
    resources = resources_of(target)
    memories = tuple(replace(m, buffering=2) if m.name == memory else m for m in resources.memories)
    changed_resources = replace(resources, memories=memories)
    return replace(target, describe=lambda *_: changed_resources)


@pytest.mark.parametrize("memory", ["x", "w", "y"])
def test_what_one_double_buffer_saves_is_what_the_target_with_it_saves(memory: str, tmp_path: Path) -> None:
    model = tmp_path / "app.onnx"
    onnx.save(perceptron((64, 64, 64)), model)
    options = Options(shapes={"x": (6, 64)})
    single = machine(tmp_path, 1, 2)
    document = advice_document(advise([model], single, options))
    saved = {c["name"]: c["saved_nanoseconds"] for c in document["changes"] if c["kind"] == "buffer"}
    before, after = (plan_totals(compile_model(model, [t], options)) for t in (single, with_two_tiles(single, memory)))
    assert saved[memory] == before.nanoseconds - after.nanoseconds
    assert saved["x"] > 0


def test_what_a_wider_port_saves_is_what_the_target_with_it_saves(tmp_path: Path) -> None:
    model = tmp_path / "app.onnx"
    onnx.save(perceptron((64, 64, 64)), model)
    options = Options(shapes={"x": (6, 64)})
    document = advice_document(advise([model], machine(tmp_path, 1), options))
    (link,) = [c for c in document["changes"] if c["kind"] == "link"]
    assert (link["name"], link["from"], link["to"]) == ("port bus", "8 bytes", "16 bytes")
    narrow, wide = (plan_totals(compile_model(model, [machine(tmp_path, 1, 1, width)], options)) for width in (8, 16))
    assert link["totals"] == wide.document()
    assert link["saved_nanoseconds"] == narrow.nanoseconds - wide.nanoseconds > 0


def test_links_of_a_port_are_as_wide_as_each_other(tmp_path: Path) -> None:
    graph = resources_of(machine(tmp_path, 1))
    with pytest.raises(SpecError, match='Links of the port "bus" must be as wide as each other, as that to w is not'):
        replace(graph, links=tuple(replace(x, width_bytes=16 if x.sink == "w" else 8) for x in graph.links))


def test_a_memory_holds_at_least_one_tile(tmp_path: Path) -> None:
    target = machine(tmp_path, 2)
    with pytest.raises(Exception, match="Buffering of memory x must be a positive integer, not 0"):
        replace(resources_of(target).memory("x"), buffering=0)
