"""Offloads by their numerics give the bits of the simulator, and the simulator runs along for some samples and sees what does not."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import pytest

from rewrite_compiler.apps import named
from rewrite_compiler.compile import Plan, compile_model
from rewrite_compiler.cosim import Report, Settings, cosimulate
from rewrite_compiler.cosim.validate import EVERY, chosen
from rewrite_compiler.errors import AnswerNo, UsageError
from rewrite_compiler.lang import Array, array, select

SEEN = ("relative_error", "cumulative_error", "max_abs_error", "saturated", "range_in", "range_out", "tensors")
CNN, MLP = named("digits_cnn"), named("digits_mlp")


def ran(plan: Plan, engine: str, **given: Any) -> Report:
    settings = Settings(engine=engine, threads=1, batch=8, **{"samples": 24, **given})
    return cosimulate(plan, CNN.data, calibrate=CNN.calibration, settings=settings)


@pytest.mark.parametrize("accelerator", ["flexasr", "hlscnn", "hlscnn:revision=ext16", "vta"])
def test_engines_give_the_same_bits(accelerator: str) -> None:
    plan = compile_model(CNN.model, [accelerator])
    runs = {engine: ran(plan, engine) for engine in ("recorded", "numerics", "simulator")}
    for engine, found in runs.items():
        assert all((found.accelerated[name] == x).all() for name, x in runs["recorded"].accelerated.items())
        assert found.document["simulator"]["engine"] == engine
        assert {o["engine"] for o in found.document["offloads"]} == {engine}
    offloads = runs["numerics"].document["offloads"]
    for seen, expected in zip(offloads, runs["simulator"].document["offloads"], strict=True):
        assert {n: seen[n] for n in SEEN} == {n: expected[n] for n in SEEN}
    assert all(o["validated_samples"] >= 1 for o in offloads)
    assert runs["numerics"].document["simulator"]["validated"] == sum(o["validated_samples"] for o in offloads)
    assert {o["validated_samples"] for o in runs["recorded"].document["offloads"]} == {0}
    assert runs["numerics"].document["notes"] == runs["simulator"].document["notes"]


def test_what_is_not_proved_at_these_parameters_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = compile_model(CNN.model, ["hlscnn:revision=ext16"])
    assert {o["certified"] for o in ran(plan, "numerics", samples=8).document["offloads"]} == {True}
    monkeypatch.setattr(sys.modules["rewrite_compiler.cosim.cosimulate"], "is_certified", lambda target, variant: False)
    assert {o["certified"] for o in ran(plan, "numerics", samples=8).document["offloads"]} == {False}


@pytest.mark.parametrize("every", [1, 2, EVERY])
def test_one_sample_of_some_batches_is_chosen(every: int) -> None:
    parts = [slice(at, min(at + 32, 1000)) for at in range(0, 1000, 32)]
    found = [chosen(part, 32, every) for part in parts]
    assert 0 in found[0]
    assert all(0 <= n < part.stop - part.start for part, samples in zip(parts, found, strict=True) for n in samples)
    random = [len(samples) - (0 in samples and not k) for k, samples in enumerate(found)]
    assert all(sum(random[k : k + every]) <= 1 for k in range(0, len(parts), every))
    assert sum(map(len, found)) >= len(parts) // every
    assert found == [chosen(part, 32, every) for part in parts]
    assert not any(chosen(part, 32, 0) for part in parts)


def test_nothing_validated_is_said() -> None:
    document = ran(compile_model(CNN.model, ["vta"]), "numerics", samples=8, validate=0).document
    assert document["notes"][-1] == "no sample was computed again on the simulator: --validate 0"
    assert document["simulator"]["validated"] == document["simulator"]["instructions"] == 0


def mutated(plan: Plan, **changes: Any) -> Plan:
    """Return the plan with other parts of its first offload's operation."""
    first, *rest = plan.offloads
    return replace(plan, offloads=(replace(first, mapping=replace(first.mapping, **changes)), *rest))


def off_by_one(codes: Any, *operands: Array, **given: Any) -> Array:
    """Numerics that differ in one element."""
    right = codes(*operands, **given)
    place = [int(n) - 1 for n in right.shape]
    return array(lambda *i: select(sum(a == b for a, b in zip(i, place, strict=True)) == len(place), 1 - right[i], right[i]), right.shape)


def test_a_mutant_of_the_numerics_is_refused_in_the_first_batch() -> None:
    plan = compile_model(CNN.model, ["hlscnn"])
    o = plan.offloads[0]

    def codes(x: Array, w: Array, b: Array, *, strides: Any, pads: Any, p: Any) -> Array:
        return off_by_one(o.mapping.codes, x, w, b, strides=strides, pads=pads, p=p)

    with pytest.raises(AnswerNo) as refused:
        ran(mutated(plan, codes=codes), "numerics", samples=8)
    problem = refused.value.problem
    size = o.tiling.sizes
    assert problem.code == "C104"
    start = f"y[0, {size['n'] - 1}, {size['u'] - 1}, {size['v'] - 1}] of {o.id} (hlscnn.{o.mapping.variant} at "
    assert problem.sentence.startswith(start)
    assert problem.sentence.endswith(", as its numerics say, for sample 0")


def test_a_mutant_of_the_driver_is_refused_in_the_first_batch() -> None:
    plan = compile_model(MLP.model, ["flexasr"])
    drive = plan.offloads[0].mapping.drive

    def wrong(device: Any, x: Any, w: Any, b: Any, f: Any) -> Any:
        assert drive is not None
        return drive(device, x, w ^ 128, b, f)  # every sign

    settings = Settings(engine="numerics", threads=1, batch=8, samples=8)
    with pytest.raises(AnswerNo, match=r"as the [\d,]+ commands of its driver give"):
        cosimulate(mutated(plan, drive=wrong), MLP.data, calibrate=MLP.calibration, settings=settings)


def test_an_unknown_engine_is_refused() -> None:
    plan = compile_model(MLP.model, ["flexasr"])
    with pytest.raises(UsageError, match='engine must be one of recorded, numerics, simulator, not "tape"'):
        cosimulate(plan, MLP.data, calibrate=MLP.calibration, settings=Settings(engine="tape"))
