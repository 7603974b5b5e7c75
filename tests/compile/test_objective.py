"""Objectives: what extraction says a program costs is what its operators cost; no other choice of targets is cheaper."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from command import flexmatch
from small_models import SPELLINGS

from rewrite_compiler.apps import find_application
from rewrite_compiler.compile import Options, Plan, compile_model
from rewrite_compiler.compile.matching.objective import OBJECTIVES, Objective
from rewrite_compiler.compile.plan.plan import Offload
from rewrite_compiler.errors import UsageError
from rewrite_compiler.fit.cost import Price
from rewrite_compiler.fit.host import host_bytes, host_picoseconds, picoseconds_of
from rewrite_compiler.fit.mapping.calls import Tiling
from rewrite_compiler.target import Clock, Cost, Energy, Target, Unit, body_of, find_target, state_memory

SHAPES = {"image": (1, 1, 8, 8)}


@cache
def digits(objective: str, *accel: str) -> Plan:
    return compile_model(find_application("digits_mlp").model, accel, Options(shapes=SHAPES, objective=objective))


def stayed(plan: Plan, o: Offload) -> int:
    """Return the bytes of operands and results of an offload of one call that never cross its links."""
    assert o.price is not None
    assert o.tiling.calls == 1
    (stay,) = plan.residency[o.target.name].stays[o.id]
    return sum(o.price.cost.moved[t] for t in stay.present | stay.kept)


def recomputed(plan: Plan, level: str) -> int:
    """Add up what every operator of the chosen program takes; a tensor that stays on its device is not moved."""
    offloads = {o.node.outputs[0]: o for o in plan.offloads}
    total = 0
    for n in plan.program.nodes:
        if n.outputs[0] in offloads:
            price, mapped_cost = offloads[n.outputs[0]].price, offloads[n.outputs[0]].mapped
            if mapped_cost is not None:
                total += mapped_cost.amount(level)
                continue
            assert price is not None
            price = price.without_bytes(stayed(plan, offloads[n.outputs[0]]))
            total += -(-price.picoseconds // 1000) if level == "nanoseconds" else price.moved_bytes
            continue
        operands, results = ([plan.program.types[v] for v in vs] for vs in (n.inputs, n.outputs))
        own = host_picoseconds(n.operator, operands, results, dict(n.attributes))
        total += -(-own // 1000) if level == "nanoseconds" else host_bytes(n.operator, operands, results)
    return total


CASES = [("cycles", "nanoseconds", "flexasr"), ("bytes", "moved_bytes", "vta")]


@pytest.mark.parametrize(("objective", "level", "target"), CASES)
def test_the_cost_of_a_program_is_that_of_its_operators(objective: str, level: str, target: str) -> None:
    plan = digits(objective, target)
    assert plan.extraction["objective"] == plan.settings["objective"] == objective
    assert (plan.extraction["status"], plan.extraction["gap"]) == ("optimal", 0.0)
    assert plan.extraction["cost"][level] == plan.extraction["bound"][level] == recomputed(plan, level)
    if target == "flexasr":  # all of its operations have a cost
        assert recomputed(plan, level) <= recomputed(digits("offloads", target), level)


def test_two_targets_are_never_worse_than_the_better_of_them() -> None:
    together = digits("cycles", "flexasr", "vta").extraction["cost"]["nanoseconds"]
    assert together <= digits("cycles", "flexasr").extraction["cost"]["nanoseconds"]
    assert together <= recomputed(digits("bytes", "vta"), "nanoseconds")


def test_targets_may_call_operations_alike(tmp_path: Path) -> None:
    """HLSCNN and VTA both have a `conv2d`."""
    plan = compile_model(SPELLINGS["Conv"][0](tmp_path / "small.onnx"), ["hlscnn", "vta"])
    assert sum(n for counts in plan.counts.values() for n in counts.values()) == 1


def test_the_default_counts_as_ever() -> None:
    plan = digits("offloads", "flexasr")
    assert tuple(plan.extraction["cost"]) == ("host_macs", "host_operators", "device_calls", "host_elementwise", "moved_elements")
    assert plan.extraction["objective"] == plan.settings["objective"] == "offloads"
    assert Objective("macs").by_levels((1, 2, 3, 4, 5)) == (1, 3, 2, 4, 5)
    assert Objective("cycles").by_levels((1, 2, 3, 4, 5), 9) == (9, 1, 2, 3, 4, 5)
    assert Objective("energy").by_levels((1, 2, 3, 4, 5), 9) == (1, 2, 9, 3, 4, 5)


def described_anew(name: str, monkeypatch: pytest.MonkeyPatch, **stand_ins: Any) -> Target:
    """Return a shipped target whose own description finds other resources; what its certificates are about is as it was."""
    target = find_target(name)
    assert target.describe is not None
    for part, stand_in in stand_ins.items():
        monkeypatch.setattr(f"rewrite_compiler.targets.{name}.resources.{part}", stand_in)
    return replace(target, describe=partial(target.describe))  # resources are cached by the function


def test_a_faster_clock_earns_offloads(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 500 MHz moving weights takes longer than computing on the host; a thousand times faster everything goes to the device."""
    slow = digits("cycles", "flexasr")
    target = described_anew("flexasr", monkeypatch, Clock=lambda hertz, _: Clock(1000 * hertz, "a test"))
    fast = compile_model(find_application("digits_mlp").model, [target], Options(shapes=SHAPES, objective="cycles"))
    assert len(slow.offloads) == 0
    assert len(fast.offloads) == len(digits("offloads", "flexasr").offloads) > 0
    assert fast.extraction["cost"]["nanoseconds"] < slow.extraction["cost"]["nanoseconds"] == picoseconds_ns(slow)


def picoseconds_ns(plan: Plan) -> int:
    return sum(-(-picoseconds_of(plan.program, [n]) // 1000) for n in plan.program.nodes)


@pytest.mark.parametrize("objective", ["cycles", "bytes"])
def test_an_operation_without_a_cost_is_priced_by_a_mapper_where_there_is_an_architecture(tmp_path: Path, objective: str) -> None:
    """Its cost is that of the mapping; without links of its memories it is not used, and a note says so either way."""
    target = find_target("vta")
    bare = replace(target, mappings={n: replace(m, price=None) if n == "dense_bias" else m for n, m in target.mappings.items()})
    path = SPELLINGS["Gemm"][0](tmp_path / "small.onnx")
    node = compile_model(path, [bare]).source.sources[0].name
    plan = compile_model(path, [bare], Options(objective=objective, on=(f"vta={node}",)))  # in cycles the host is cheaper
    (offload,) = plan.offloads
    assert offload.mapping.variant == "dense_bias"
    assert offload.price is None
    assert offload.mapped is not None
    level = {"cycles": "nanoseconds", "bytes": "moved_bytes"}[objective]
    assert plan.extraction["cost"][level] == recomputed(plan, level) >= offload.mapped.amount(level) > 0
    assert f"the costs of vta.dense_bias are not given: mappers price operations for the objective {objective}" in plan.notes
    resources = target.resources()
    assert resources is not None
    unlinked = replace(bare, describe=lambda *_: replace(resources, links=()))
    without = compile_model(path, [unlinked], Options(objective=objective, only=("dense_bias",)))
    assert f"vta.dense_bias is not used: objective {objective} needs its cost, which the target does not give" in without.notes
    assert not without.offloads


def test_an_objective_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        digits("speed", "flexasr")
    sentence = f'Objective must be one of {", ".join(OBJECTIVES)}, not "speed"'
    assert (caught.value.problem.code, caught.value.problem.sentence) == ("F203", sentence)


def test_the_command_line_takes_an_objective_and_the_plan_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = SPELLINGS["Gemm"][0](tmp_path / "small.onnx")
    made = flexmatch(path, "--accel", "flexasr", "--objective", "bytes", "-o", "plan")
    assert (made.code, made.err) == (0, "")
    assert json.loads(Path("plan.json").read_text("utf-8"))["settings"]["objective"] == "bytes"
    refused = flexmatch(path, "--accel", "flexasr", "--objective", "speed")
    assert (refused.code, refused.out) == (2, "")


# -- prices of tilings


def test_tiles_are_counted_by_their_sizes() -> None:
    tiling = Tiling({"t": 10, "k": 7, "n": 4}, {"t": 4, "k": 7, "n": 3})
    found = {tuple(sizes.values()): calls for sizes, calls in tiling.regions()}
    assert found == {(4, 7, 3): 2, (4, 7, 1): 2, (2, 7, 3): 1, (2, 7, 1): 1}
    slices = [tuple(s.stop - s.start for s in part.values()) for part in tiling.slices()]
    assert {shape: slices.count(shape) for shape in slices} == found


def test_a_price_names_what_bounds_it() -> None:
    price = Price(Cost("core", 10, 30, {"x": 160}), 1_000_000, 16, added_elements=8)
    assert (price.picoseconds, price.bytes, price.host_bytes, price.bound) == (40 * 1_000_000 + 8 * 260, 160, 96, "transfer")
    assert price.utilisation(320) == 0.5
    assert price.utilisation(0) is None


def test_an_offload_says_what_it_costs_and_what_the_host_would_take() -> None:
    plan = digits("offloads", "flexasr")
    for o in plan.offloads:
        assert o.price is not None
        assert o.host_picoseconds == picoseconds_of(
            body_of(o.mapping, [plan.program.types[v] for v in o.node.inputs], dict(o.node.attributes))
        )
        assert o.price.cost.compute_cycles > 0


def test_energy_decides_where_every_figure_has_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    pico = Energy(1.0, "pJ", "assumed for this test")
    target = described_anew(
        "vta", monkeypatch,
        Unit=lambda *given, **more: Unit(*given, **more, energy=pico),
        state_memory=lambda *given: replace(state_memory(*given), read_energy=pico, write_energy=pico),
    )  # fmt: skip
    resources = target.resources()
    assert resources is not None
    memories = resources.memories
    plan = compile_model(find_application("digits_mlp").model, [target], Options(shapes=SHAPES, objective="energy", only=("dense",)))
    expected = 0
    for o in plan.offloads:
        levels = o.mapping.accesses(o.tiling.tile, {})
        assert levels is not None
        sizes = {m.name: m.element_bytes for m in memories}
        accessed = sum((reads + writes) / sizes[memory] for memory, found in levels.items() for reads, writes in found.values())
        expected += round((accessed + o.macs) * 1000)
    assert len(plan.offloads) == 3
    assert plan.extraction["cost"]["femtojoules"] == plan.extraction["bound"]["femtojoules"] == expected
