"""Variants of a plan share recordings of offloads and host parts, and give what a run of each alone gives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rewrite_compiler.apps import named
from rewrite_compiler.compile import Plan, compile_model
from rewrite_compiler.compile.execute import Prepared
from rewrite_compiler.compile.numerics import Specified, is_certified, refused
from rewrite_compiler.compile.plan import tensors_of
from rewrite_compiler.cosim import bank as banks
from rewrite_compiler.cosim.bank import Bank, Room
from rewrite_compiler.cosim.provenance import NoShortcut
from rewrite_compiler.cosim.run import Engine
from rewrite_compiler.cosim.variants import Variants
from rewrite_compiler.data import samples_for
from rewrite_compiler.study.candidates import bench
from rewrite_compiler.study.trials import with_float, with_formats_of
from rewrite_compiler.target import simulated_device

CASES = [("digits_cnn", "flexasr"), ("digits_cnn", "hlscnn"), ("digits_cnn", "vta"), ("digits_mlp", "flexasr"), ("digits_mlp", "vta")]
SAMPLES, BATCH = 11, 4  # the last batch is not full


def planned(app: str, accel: str) -> tuple[Plan, dict[str, Any]]:
    shipped = named(app)
    plan = compile_model(shipped.model, [accel], calibrate=shipped.calibration)
    return plan, samples_for(plan.source, shipped.data).evenly(SAMPLES).inputs


def variants(plan: Plan) -> list[Plan]:
    """Return the plan, with another format of its first offload, without its last one, and with one alone."""
    o = plan.offloads[0]
    f = o.formats["x"]
    (field,) = {"fraction", "bias"} & f.parameters.keys()
    changed = replace(f, **{field: int(f.parameters[field]) - 1})  # type: ignore[arg-type]
    ids = {o.id for o in plan.offloads}
    return [
        plan,
        with_formats_of(plan, {o.id: o.mapping.with_format(o.formats, "x", changed)}),
        with_float(plan, {plan.offloads[-1].id}),
        with_float(plan, ids - {o.id}),
    ]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("app", "accel"), CASES)
def test_variants_give_what_runs_alone_give(app: str, accel: str, threads: int) -> None:
    plan, inputs = planned(app, accel)
    shared = Variants(Bank("native"), BATCH)
    for variant in variants(plan):
        expected = Engine(variant, compared=0, engine="simulator", audit=0).run(inputs, batch=SAMPLES).outputs
        found = shared.outputs(variant, inputs, threads=threads)
        assert found.keys() == expected.keys()
        for name, x in expected.items():
            np.testing.assert_array_equal(found[name], x)


@pytest.mark.parametrize("reading", ["native", "arrays"])
def test_only_offloads_that_differ_are_recorded(reading: str) -> None:
    plan, inputs = planned("digits_cnn", "vta")
    shared = Variants(Bank(reading), BATCH)
    shared.outputs(plan, inputs)
    assert len(shared.bank.units) == len(plan.offloads)
    assert all(u.is_played for u in shared.bank.units.values())
    shared.outputs(variants(plan)[1], inputs)
    assert len(shared.bank.units) == len(plan.offloads) + 1


def test_what_is_seen_once_is_not_recorded_unless_it_is_worth_it() -> None:
    plan, inputs = planned("digits_mlp", "vta")
    shared = Variants(Bank("native", at_once=False), SAMPLES)
    first = shared.outputs(plan, inputs)
    assert not any(u.is_played for u in shared.bank.units.values())
    for _ in range(2):
        again = shared.outputs(plan, inputs)
        assert all(u.is_played for u in shared.bank.units.values())
        for name, x in first.items():
            np.testing.assert_array_equal(again[name], x)


@pytest.mark.parametrize("app", ["digits_mlp", "digits_cnn"])
def test_without_shortcuts_devices_play(app: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(*_: object) -> None:
        raise NoShortcut("not today")

    plan, inputs = planned(app, "flexasr")
    expected = Engine(plan, compared=0, engine="simulator", audit=0).run(inputs, batch=SAMPLES).outputs
    monkeypatch.setattr(banks, "shortcut", nothing)
    shared = Variants(Bank("native"), BATCH)
    for _ in range(2):
        found = shared.outputs(plan, inputs, threads=2)
        for name, x in expected.items():
            np.testing.assert_array_equal(found[name], x)
    assert all(u.is_played and u.shortcut is None and u.idle for u in shared.bank.units.values())


def test_host_parts_of_the_last_programs_are_kept() -> None:
    plan, inputs = planned("digits_mlp", "vta")
    shared = Variants(Bank("native"), BATCH)
    shared.outputs(plan, inputs)
    ((_, hosts),) = shared.hosts.values()
    shared.outputs(with_float(plan, {plan.offloads[0].id}), inputs, is_last=True)
    shared.outputs(variants(plan)[1], inputs)
    ((_, again),) = shared.hosts.values()
    assert again is hosts


def test_the_oracle_takes_one_sample_at_a_time() -> None:
    plan, inputs = planned("digits_mlp", "vta")
    few = {name: x[:2] for name, x in inputs.items()}
    expected = Engine(plan, compared=0, engine="simulator", audit=0).run(few, batch=2).outputs
    found = Variants(Bank("oracle"), 1).outputs(plan, few, threads=2)
    for name, x in expected.items():
        np.testing.assert_array_equal(found[name], x)


@pytest.mark.parametrize(("value", "why"), [(0, ""), (7, ""), (-2, "must be in 0…7, not -2"), (8, "must be in 0…7, not 8")])
def test_the_smallest_tile_tells_formats_that_a_device_does_not_take(value: int, why: str) -> None:
    plan, _ = planned("digits_mlp", "flexasr")
    o = plan.offloads[0]
    f = replace(o.formats["w"], bias=value)  # type: ignore[call-arg]
    found = refused(replace(o, formats=o.mapping.with_format(o.formats, "w", f)))
    assert why in found if why else not found


@pytest.mark.parametrize(("app", "accel"), CASES)
def test_numerics_give_what_a_simulator_gives(app: str, accel: str) -> None:
    plan, _ = planned(app, accel)
    kept = bench(plan, samples_for(plan.source, named(app).data)).kept
    for o in plan.offloads:
        assert is_certified(o.target, o.mapping.variant)
        tensors, fixed = tensors_of(o), plan.program.constants
        operands = [v.name for v in o.mapping.operands]
        constants = {n: fixed[tensors[n]] for n in operands if tensors[n] in fixed}
        moving = {n: kept[tensors[n]] for n in operands if n not in constants}
        device = simulated_device(o.target.ila(), samples=len(next(iter(moving.values()))))
        expected = Prepared(o, constants).run(device, moving)[0]
        for found, x in zip(Specified(o, constants).results(moving), expected, strict=True):
            np.testing.assert_array_equal(found, x)


def test_without_room_for_a_device_offloads_run_on_simulators(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise NoShortcut("none is looked for")

    monkeypatch.setattr(banks, "shortcut", refuse)
    plan, inputs = planned("digits_mlp", "flexasr")
    expected = Engine(plan, compared=0, engine="simulator", audit=0).run(inputs, batch=SAMPLES).outputs
    ample = Variants(Bank("native"), BATCH)
    ample.outputs(plan, inputs)
    sizes = [u.idle[0].tape.arena.size for u in ample.bank.units.values()]
    for left, played in ((sum(sizes), len(sizes)), (sizes[0], 1), (0, 0)):
        shared = Variants(Bank("native", room=Room(left)), BATCH)
        found = shared.outputs(plan, inputs)
        assert sum(u.is_played is True for u in shared.bank.units.values()) == played
        assert shared.bank.room.left == left - sum(sizes[:played])
        for name, x in expected.items():
            np.testing.assert_array_equal(found[name], x)
