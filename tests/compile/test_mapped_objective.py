"""The objective edp: mappers price what devices do, no plan of the same work costs less, and what they found is kept."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from command import flexmatch

from rewrite_compiler.apps import find_application
from rewrite_compiler.compile import Options, Plan, compile_model
from rewrite_compiler.compile.matching.objective import objective_for
from rewrite_compiler.errors import InputError, UsageError
from rewrite_compiler.fit.api import map as best_of
from rewrite_compiler.fit.mapped_cost import MappedCost, MappedCosts
from rewrite_compiler.fit.mappers.search import CLOSE
from rewrite_compiler.fit.mapping.architectures import find_clusters
from rewrite_compiler.fit.mapping.clusters import Cluster, Clusters
from rewrite_compiler.fit.mapping.device import access_energy, device_clusters
from rewrite_compiler.ir.program import Builder
from rewrite_compiler.ir.types import TensorType
from rewrite_compiler.target import Clock, Energy, Link, Memory, Resources, Target, Unit, body_of, find_target

ACCEL = ("flexasr", "vta")
SHAPES = {"image": (1, 1, 8, 8)}


def digits(objective: str) -> Plan:
    return compile_model(find_application("digits_mlp").model, ACCEL, Options(shapes=SHAPES, objective=objective))


def test_a_plan_has_the_least_product_of_energy_and_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of as much work left to the host; the other plan's operations are priced by the same mappers, most of them kept."""
    monkeypatch.setenv("FLEXMATCH_CACHE", str(tmp_path))
    best, other = digits("edp"), digits("offloads")
    objective = objective_for("edp", [find_target(name) for name in ACCEL])
    values = []
    for plan in (best, other):
        types = [[plan.program.types[v] for v in o.node.inputs] for o in plan.offloads]
        costs = [objective.mapped_cost(o.mapping, t, dict(o.node.attributes)) for o, t in zip(plan.offloads, types, strict=True)]
        values.append(sum(c.amount("picojoule_microseconds") for c in costs if isinstance(c, MappedCost)))
    host = [{k: plan.extraction["cost"][k] for k in ("host_macs", "host_operators")} for plan in (best, other)]
    assert host[0] == host[1]
    assert best.extraction["cost"]["picojoule_microseconds"] == values[0] < values[1]
    assert {o.target.name for o in best.offloads} != {o.target.name for o in other.offloads}
    assert all(o.mapped and o.mapped.energy_fj > 0 for o in best.offloads)
    assert all(o.mapped is None for o in other.offloads)
    assert best.run["mapper"]["searched"] == best.run["mapper"]["products"] > 0
    again = digits("edp")
    assert again.run["mapper"] == {**best.run["mapper"], "searched": 0}
    assert [o.mapped for o in again.offloads] == [o.mapped for o in best.offloads]


def test_what_was_found_is_of_one_architecture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEXMATCH_CACHE", str(tmp_path))
    plan = digits("edp")
    o = next(o for o in plan.offloads if o.target.name == "vta")
    assert o.mapped is not None
    slower = replace(o.mapped.architecture, levels=tuple(replace(c, children=1) for c in o.mapped.architecture.levels))
    costs = MappedCosts()
    body = body_of(o.mapping, [plan.program.types[v] for v in o.node.inputs], dict(o.node.attributes))
    assert costs.of(body, o.mapped.architecture, "edp") == o.mapped
    assert (costs.products, costs.searched) == (1, 0)
    assert costs.of(body, slower, "edp").cycles > o.mapped.cycles
    assert (costs.products, costs.searched) == (2, 1)


def test_energies_that_targets_do_not_declare_are_the_mappers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of as much work left to the host, no plan has less energy; with the same mappings of products kept, nothing is searched again."""
    monkeypatch.setenv("FLEXMATCH_CACHE", str(tmp_path))
    least, other = digits("energy"), digits("edp")
    energies = []
    for plan in (least, other):
        costs = [o.mapped for o in plan.offloads]
        assert all(c is not None and c.architecture.source for c in costs)
        objective = objective_for("energy", [find_target(name) for name in ACCEL])
        types = [[plan.program.types[v] for v in o.node.inputs] for o in plan.offloads]
        costs = [objective.mapped_cost(o.mapping, t, dict(o.node.attributes)) for o, t in zip(plan.offloads, types, strict=True)]
        energies.append(sum(c.energy_fj for c in costs if isinstance(c, MappedCost)))
    assert least.extraction["cost"]["femtojoules"] == energies[0] <= energies[1]
    assert "flexasr and vta give no energies: mappers price operations for the objective energy" in least.notes
    assert least.run["mapper"]["searched"] == least.run["mapper"]["products"] > 0
    assert digits("energy").run["mapper"] == {**least.run["mapper"], "searched": 0}


def small_memories(name: str, resources: Resources | None) -> Clusters:
    """Return the architecture of a target; of flexasr, with memories of two elements."""
    clusters = device_clusters(name, resources)
    levels = tuple(replace(c, capacity=2 if c.capacity else None) for c in clusters.levels)
    return replace(clusters, levels=levels) if name == "flexasr" else clusters


def test_an_operation_without_a_mapping_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three operands of a product never fit: another target takes it, or the host, and the plan says why; the next run remembers."""
    monkeypatch.setenv("FLEXMATCH_CACHE", str(tmp_path))
    monkeypatch.setattr("rewrite_compiler.fit.mapping.device.device_clusters", small_memories)
    sentence = "no mapper prices it for the objective edp: No mapping is legal on flexasr: at on_chip tiles take 3 of 2 elements"
    model, options = find_application("digits_mlp").model, Options(shapes=SHAPES, objective="edp")
    alone, both = (compile_model(model, names, options) for names in ("flexasr", ACCEL))
    assert alone.run["mapper"]["searched"] > 0
    assert both.offloads
    assert {o.target.name for o in both.offloads} == {"vta"}
    assert all(o.target.name != "flexasr" for o in alone.offloads if o.macs)
    for plan in (alone, both):
        assert f"flexasr.linear is left out on 3 kinds of operands: {sentence}" in plan.notes
    assert [h.why_not for h in alone.host if h.why_not.endswith(sentence)]
    assert compile_model(model, "flexasr", options).run["mapper"] == {**alone.run["mapper"], "searched": 0}


LEVEL_OF = {"cycles": "nanoseconds", "energy": "femtojoules", "bytes": "moved_bytes", "edp": "picojoule_microseconds"}


def test_every_objective_has_its_own_best_mapping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A product's cost by each objective is what map finds, no other's is further below it than searches leave open, and two differ."""
    monkeypatch.setenv("FLEXMATCH_CACHE", str(tmp_path))
    builder = Builder("product")
    operands = (builder.input("x", TensorType((96, 80))), builder.constant(np.zeros((64, 80), np.float32)))
    program = builder.finish(builder.apply("dense", operands, {}))
    machine = device_clusters("mine", memories(600, 96))
    costs = {goal: MappedCosts().of(program, machine, goal) for goal in LEVEL_OF}
    for goal, cost in costs.items():
        found = best_of(cost.products[0].problem, machine, objective=goal, budget=1_000)["cost"]
        assert (cost.cycles, cost.energy_fj, cost.elements) == (found["cycles"], found["energy_fj"], found["traffic"]["host"])
        assert cost.amount(LEVEL_OF[goal]) * (1 - CLOSE) <= min(other.amount(LEVEL_OF[goal]) for other in costs.values())
    assert [costs["cycles"].amount(level) for level in ("nanoseconds", "femtojoules", "moved_bytes")] == [
        costs["cycles"].cycles,
        costs["cycles"].energy_fj,
        costs["cycles"].elements,
    ]  # fmt: skip  -- at 1 GHz
    assert len({(c.cycles, c.energy_fj, c.elements) for c in costs.values()}) > 1


def memories(*sizes: int, energy: Energy | None = None) -> Resources:
    """Memories one behind the other, a unit of 4 operations a cycle at the last."""
    rooms = tuple(Memory(f"m{k}", 8, n, read_energy=energy, write_energy=energy) for k, n in enumerate(sizes))
    ends = ("host", *(m.name for m in rooms))
    links = tuple(Link(a, b, 8 >> k) for k, (a, b) in enumerate(pairwise(ends)))
    return Resources(Clock(10**9, "test"), rooms, (Unit("mac", ("dense",), ("i8",), {"n": 4}, energy=energy),), links)


def test_memories_are_levels_by_their_distance_from_the_host() -> None:
    clusters = device_clusters("mine", memories(102_400, 512))
    assert [(c.name, c.capacity, c.children, c.width) for c in clusters.levels] == [
        ("host", None, 1, None), ("m0", 102_400, 1, 8), ("m1", 512, 4, 4),
    ]  # fmt: skip
    assert (clusters.energies, clusters.operations) == ({"host": 100_000, "m0": 3_000, "m1": 500}, {"mac2": 250})
    assert [access_energy(n) for n in (512, 51_456, 102_400, 460_800, 819_200)] == [500, 1_750, 3_000, 11_794, 20_588]
    declared = device_clusters("mine", memories(64, energy=Energy(2.0, "pJ", "a data sheet")))
    assert (declared.energies["m0"], declared.operations["mac2"]) == (2_000, 2_000)
    vta = find_clusters("vta")
    assert (vta.units, vta.levels[1].capacity, vta.hertz) == (256, 458_752, 10**8)


def test_what_is_no_architecture_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError) as refusal:
        device_clusters("mine", None)
    assert refusal.value.problem.sentence == "mine gives no resources, so it is no architecture of memories and units"
    with pytest.raises(InputError) as refusal:
        device_clusters("mine", replace(memories(64), links=()))
    assert refusal.value.problem.sentence == "mine has no memory that a link joins to the host"
    monkeypatch.setattr(Target, "resources", lambda _: None)
    for name in ("edp", "energy"):
        with pytest.raises(UsageError) as usage:
            objective_for(name, [find_target("vta")])
        assert usage.value.problem.sentence == f"Objective {name} needs memories and units, which vta does not give"


@pytest.mark.parametrize("objective", ["edp", "energy"])
def test_a_target_that_no_link_joins_to_the_host_is_not_used(objective: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Target, "resources", lambda _: replace(memories(64), links=()))
    assert objective_for(objective, [find_target("vta")]).unusable == {"vta": "vta has no memory that a link joins to the host"}
    assert objective_for("bytes", [find_target("vta")]).unusable == {}


def test_an_accelerator_is_an_architecture_of_map() -> None:
    answer = flexmatch("map", "gemm:m=64,n=64,k=64", "--arch", "vta", "--budget", "500")
    assert answer.code == 0, answer.err
    assert "on_chip  holds 458,752 elements" in answer.out
    assert "100.0% of the units" in answer.out


def test_times_and_products_are_rounded_up() -> None:
    """A cycle at 3 Hz takes 333,333,333,333.3 ps."""
    cost = MappedCost(Clusters("slow", (Cluster("DRAM"),), 3), (), 1, 1, 1)
    assert cost.picoseconds == 333_333_333_334
    assert cost.amount("nanoseconds") == 333_333_334
    assert cost.amount("picojoule_microseconds") == 334


def test_a_cost_is_of_one_operation_on_operands_of_some_types_with_attributes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[Any]()
    monkeypatch.setattr("rewrite_compiler.compile.matching.objective.body_of", lambda *question: question)
    vta = find_target("vta")
    objective = objective_for("edp", [vta])
    vars(objective)["mapped"] = SimpleNamespace(of=lambda body, clusters, name: asked.append(body) or len(asked))
    dense, other = vta.mappings["dense"], vta.mappings["conv2d"]
    one, two = ([TensorType((n, 16))] for n in (1, 2))
    questions = [(dense, one, {"strides": (1, 1)}), (dense, one, {"strides": (2, 2)}), (dense, two, {"strides": (1, 1)}), (other, one, {})]
    assert [objective.mapped_cost(*q) for q in questions * 2] == [1, 2, 3, 4] * 2
    assert asked == questions
