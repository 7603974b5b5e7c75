"""Variants of a plan share offloads made ready and host parts, and give what a run of each alone gives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rewrite_compiler.apps import find_application
from rewrite_compiler.compile import Plan, calibrated, compile_model
from rewrite_compiler.compile.offload.execute import PreparedOffload
from rewrite_compiler.compile.offload.specified import NumericsOffload, format_refusal, is_certified
from rewrite_compiler.compile.plan.plan import Offload, tensors_of
from rewrite_compiler.cosim.engine import Engine
from rewrite_compiler.cosim.plan_variants import Variants
from rewrite_compiler.data import samples_for
from rewrite_compiler.study.diagnosis.candidates import float_run
from rewrite_compiler.study.diagnosis.trials import with_float, with_formats_of
from rewrite_compiler.target import simulated_device

CASES = [("digits_cnn", "flexasr"), ("digits_cnn", "hlscnn"), ("digits_cnn", "vta"), ("digits_mlp", "flexasr"), ("digits_mlp", "vta")]
SAMPLES, BATCH = 11, 4  # the last batch is not full


def planned(app: str, accel: str) -> tuple[Plan, dict[str, Any]]:
    shipped = find_application(app)
    plan = compile_model(shipped.model, [accel])
    plan = calibrated(plan, samples_for(plan.source, shipped.calibration).inputs, "calibration.npz")  # no law of scaling is judged
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
    shared = Variants("native", BATCH)
    for variant in variants(plan):
        expected = Engine(variant, compared=0, engine="simulator", audit=0).run(inputs, batch=SAMPLES).outputs
        found = shared.outputs(variant, inputs, threads=threads)
        assert found.keys() == expected.keys()
        for name, x in expected.items():
            np.testing.assert_array_equal(found[name], x)


@pytest.mark.parametrize("reading", ["native", "arrays"])
def test_only_offloads_that_differ_are_made_ready(reading: str) -> None:
    plan, inputs = planned("digits_cnn", "vta")
    shared = Variants(reading, BATCH)
    shared.outputs(plan, inputs)
    shared.outputs(plan, inputs)
    assert len(shared.prepared) == len(plan.offloads)
    assert all(isinstance(x, NumericsOffload) and x.is_native == (reading == "native") for x in shared.prepared.values())
    shared.outputs(variants(plan)[1], inputs)
    assert len(shared.prepared) == len(plan.offloads) + 1


def test_only_so_many_bytes_of_constants_are_kept() -> None:
    plan, inputs = planned("digits_mlp", "vta")
    expected = Variants("arrays", BATCH).outputs(plan, inputs)
    shared = Variants("arrays", BATCH, capacity_bytes=0)
    for _ in range(2):
        for name, x in shared.outputs(plan, inputs).items():
            np.testing.assert_array_equal(x, expected[name])
    assert len(shared.prepared) == len(shared.hosts) == 1
    shared.outputs(plan, inputs, is_last=True)
    assert not shared.hosts


def test_operations_without_numerics_run_on_simulators() -> None:
    plan, inputs = planned("digits_mlp", "vta")
    bare = replace(plan, offloads=tuple(replace(o, mapping=replace(o.mapping, codes=None)) for o in plan.offloads))
    shared = Variants("native", BATCH)
    found, expected = shared.outputs(bare, inputs), Variants("native", BATCH).outputs(plan, inputs)
    assert not any(isinstance(x, NumericsOffload) for x in shared.prepared.values())
    for name, x in expected.items():
        np.testing.assert_array_equal(found[name], x)


def test_host_parts_of_the_last_programs_are_kept() -> None:
    plan, inputs = planned("digits_mlp", "vta")
    shared = Variants("native", BATCH)
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
    found = Variants("oracle", 1).outputs(plan, few, threads=2)
    for name, x in expected.items():
        np.testing.assert_array_equal(found[name], x)


@pytest.mark.parametrize(("value", "why"), [(0, ""), (7, ""), (-2, "must be in 0…7, not -2"), (8, "must be in 0…7, not 8")])
def test_the_smallest_tile_tells_formats_that_a_device_does_not_take(value: int, why: str) -> None:
    plan, _ = planned("digits_mlp", "flexasr")
    o = plan.offloads[0]
    f = replace(o.formats["w"], bias=value)  # type: ignore[call-arg]
    found = format_refusal(replace(o, formats=o.mapping.with_format(o.formats, "w", f)))
    assert why in found if why else not found


@pytest.mark.parametrize(("app", "accel"), CASES)
def test_numerics_give_what_a_simulator_gives(app: str, accel: str) -> None:
    plan, _ = planned(app, accel)
    kept = float_run(plan, samples_for(plan.source, find_application(app).data)).tensor_values
    for o in plan.offloads:
        assert is_certified(o.target, o.mapping.variant)
        tensors, fixed = tensors_of(o), plan.program.constants
        operands = [v.name for v in o.mapping.operands]
        constants = {n: fixed[tensors[n]] for n in operands if tensors[n] in fixed}
        moving = {n: kept[tensors[n]] for n in operands if n not in constants}
        device = simulated_device(o.target.ila(), samples=len(next(iter(moving.values()))))
        expected = PreparedOffload(o, constants).run(device, moving)[0]
        for found, x in zip(NumericsOffload(o, constants).results(moving), expected, strict=True):
            np.testing.assert_array_equal(found, x)


def test_what_is_made_ready_is_of_one_operation_on_one_design() -> None:
    o = planned("digits_mlp", "vta")[0].offloads[0]
    constants = {"w": np.zeros((10, 64), np.float32)}
    shared = Variants("oracle", BATCH)

    def ready(variant: Offload, weights: dict[str, Any] = constants) -> int:
        return id(shared._prepared(variant, weights))

    f = o.formats["x"]
    others = [
        replace(o, node=replace(o.node, attributes=(("epsilon", 1.0),))),
        replace(o, tiling=replace(o.tiling, tile={**o.tiling.tile, "n": 1})),
        replace(o, formats={**o.formats, "x": replace(f, width=f.width - 1)}),
        replace(o, target=o.target.configured({"behaviour": "hls"})),
    ]
    assert ready(replace(o, id="another")) == ready(o)
    assert len({ready(o), *map(ready, others), ready(o, {"w": np.zeros((10, 64), np.float32)})}) == len(others) + 2
