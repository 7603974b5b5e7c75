"""Offloads by their numerics give the bits of the simulator; the audit computes some samples again, and refuses what differs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rewrite_compiler.apps import find_application
from rewrite_compiler.compile import Plan, compile_model
from rewrite_compiler.compile.offload.execute import PreparedOffload
from rewrite_compiler.compile.offload.specified import NumericsOffload, terms_of, unfolded_terms
from rewrite_compiler.cosim import Report, Settings, cosimulate
from rewrite_compiler.cosim.batch_size import EVERY, default_rate
from rewrite_compiler.cosim.tier import LEAST_COMMAND_BYTES, chosen_engine, chosen_tier, command_bytes_of
from rewrite_compiler.cosim.validation.audit import Audit, _SampledUnit, _unit, _work, audited_samples
from rewrite_compiler.cosim.validation.device_history import DeviceHistory
from rewrite_compiler.cosim.validation.drawn_operands import drawn_codes, with_drawn_sample
from rewrite_compiler.errors import AnswerNo, SpecError, UsageError
from rewrite_compiler.kernels.kernel import Kernel
from rewrite_compiler.lang import Array, array, select
from rewrite_compiler.lang.formats import Int
from rewrite_compiler.readings.arrays.labelled_array import Data
from rewrite_compiler.report.terminal import cosim_lines

SEEN = ("relative_error", "cumulative_error", "max_abs_error", "saturated", "range_in", "range_out", "tensors")
CNN, MLP = find_application("digits_cnn"), find_application("digits_mlp")
ALL = ["flexasr", "hlscnn", "hlscnn:revision=ext16", "vta"]
AUDIT = sys.modules["rewrite_compiler.cosim.validation.audit"]


def ran(plan: Plan, engine: str = "auto", **given: Any) -> Report:
    settings = Settings(engine=engine, **{"threads": 1, "batch": 8, "samples": 24, **given})
    return cosimulate(plan, CNN.data, calibrate=CNN.calibration, settings=settings)


@pytest.mark.parametrize("accelerator", ALL)
def test_engines_give_the_same_bits(accelerator: str) -> None:
    plan = compile_model(CNN.model, [accelerator])
    runs = {engine: ran(plan, engine) for engine in ("auto", "simulator")}
    numerics, simulator = runs["auto"], runs["simulator"]
    assert all((simulator.accelerated[name] == x).all() for name, x in numerics.accelerated.items())
    for found, engine in ((numerics, "numerics"), (simulator, "simulator")):
        assert found.document["simulator"]["engine"] == engine
        assert {o["engine"] for o in found.document["offloads"]} == {engine}
        assert all(o["validated_samples"] >= 1 for o in found.document["offloads"])
        assert found.document["simulator"]["validated"] == sum(o["validated_samples"] for o in found.document["offloads"])
        assert found.document["simulator"]["audited"] >= len(plan.offloads)
        assert found.document["run"]["fallbacks"] == []
    for seen, expected in zip(numerics.document["offloads"], simulator.document["offloads"], strict=True):
        assert {n: seen[n] for n in SEEN} == {n: expected[n] for n in SEEN}
    assert numerics.document["notes"] == simulator.document["notes"]


@pytest.mark.parametrize("accelerator", ALL)
def test_machine_code_gives_the_bits_of_plain_arrays(accelerator: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FLEXMATCH_CACHE", str(tmp_path))
    plan = compile_model(CNN.model, [accelerator])
    native, arrays = (ran(plan, samples=16, tier=tier, threads=2) for tier in ("native", "arrays"))
    assert all((native.accelerated[k] == x).all() for k, x in arrays.accelerated.items())
    assert native.document["offloads"] == arrays.document["offloads"]
    assert native.document["simulator"] == {**arrays.document["simulator"], "tier": "native"}
    assert [n for n in native.document["notes"] if "without machine code" in n] == []


@pytest.mark.parametrize("accelerator", ALL)
def test_the_last_batch_runs_the_machine_code_of_the_others(accelerator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its samples are repeated up to the size of the others; results and counts are of its own alone."""
    printed: list[Kernel] = []
    original = Kernel.__init__
    monkeypatch.setattr(Kernel, "__init__", lambda self, *given: (printed.append(self), original(self, *given))[1])
    terms_of.cache_clear()
    unfolded_terms.cache_clear()
    plan = compile_model(CNN.model, [accelerator])
    uneven = ran(plan, samples=27, batch=10, tier="native", audit=0)
    count = len(printed)
    assert count
    terms_of.cache_clear()
    unfolded_terms.cache_clear()
    ran(plan, samples=20, batch=10, tier="native", audit=0)
    assert len(printed) == 2 * count
    alone = ran(plan, samples=27, batch=27, tier="native", audit=0)
    assert all((uneven.accelerated[k] == x).all() for k, x in alone.accelerated.items())
    assert uneven.document["offloads"] == alone.document["offloads"]


def test_small_batches_do_not_mean_more_audits() -> None:
    assert [default_rate(batch) for batch in (1, 8, 32, 48, 1000)] == [256, 32, EVERY, 5, 1]


def test_the_engine_is_numerics_unless_the_oracle_is_asked_for() -> None:
    assert chosen_engine("auto", "native") == chosen_engine("auto", "arrays") == "numerics"
    assert chosen_engine("auto", "oracle") == "simulator"
    assert chosen_engine("simulator", "native") == "simulator"


def test_machine_code_is_made_for_three_batches_where_it_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rewrite_compiler.cosim.tier.machine_code_refusal", lambda: "")
    assert [chosen_tier("auto", n, 32) for n in (1, 95, 96, 97)] == ["arrays", "arrays", "native", "native"]
    assert [chosen_tier("auto", 1, 32, n) for n in (LEAST_COMMAND_BYTES - 1, LEAST_COMMAND_BYTES)] == ["arrays", "native"]
    monkeypatch.setattr("rewrite_compiler.cosim.tier.machine_code_refusal", lambda: "there is no llvmlite")
    assert [chosen_tier(tier, 96, 32, 1 << 30) for tier in ("auto", "native")] == ["arrays", "native"]


def test_commands_of_a_plan_are_counted_where_they_are_many() -> None:
    bytes_of = {name: command_bytes_of(compile_model(CNN.model, [name]).offloads) for name in ("hvx", "flexasr")}
    assert bytes_of["hvx"] > 40 * bytes_of["flexasr"]


def test_what_is_not_proved_at_these_parameters_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = compile_model(CNN.model, ["hlscnn:revision=ext16"])
    assert {o["certified"] for o in ran(plan, samples=8).document["offloads"]} == {True}
    monkeypatch.setattr(sys.modules["rewrite_compiler.cosim.cosimulate"], "is_certified", lambda target, variant: False)
    document = ran(plan, samples=8).document
    assert {o["certified"] for o in document["offloads"]} == {False}
    assert f"; 0 of {len(plan.offloads)} proved at these parameters" in " ".join(" ".join(cosim_lines(document)).split())


@pytest.mark.parametrize("every", [1, 2, EVERY])
def test_one_sample_of_some_batches_is_chosen(every: int) -> None:
    parts = [slice(at, min(at + 32, 1000)) for at in range(0, 1000, 32)]
    found = [audited_samples(part, 32, every) for part in parts]
    assert 0 in found[0]
    assert all(0 <= n < part.stop - part.start for part, samples in zip(parts, found, strict=True) for n in samples)
    random = [len(samples) - (0 in samples and not k) for k, samples in enumerate(found)]
    assert all(sum(random[k : k + every]) <= 1 for k in range(0, len(parts), every))
    assert sum(map(len, found)) >= len(parts) // every
    assert found == [audited_samples(part, 32, every) for part in parts]
    assert not any(audited_samples(part, 32, 0) for part in parts)
    later = [audited_samples(slice(at, at + 32), 32, every) for at in range(32, 32 * 400 * every, 32)]
    assert {n for samples in later for n in samples} > {0, 31}  # of a batch the first and the last, and others


def test_every_unit_of_a_dimension_is_drawn() -> None:
    random = np.random.default_rng(0)
    drawn = {(u.start, u.stop) for u in (_unit(slice(3, 20), 4, random) for _ in range(200))}
    assert drawn == {(3, 7), (7, 11), (11, 15), (15, 19), (19, 20)}


def test_every_tile_of_an_offload_is_drawn() -> None:
    o = compile_model(MLP.model, ["flexasr"]).offloads[0]
    halves = {d: -(-n // 2) for d, n in o.tiling.sizes.items()}
    driven = PreparedOffload(replace(o, tiling=replace(o.tiling, tile=halves)), {})
    count = sum(1 for _ in driven.offload.tiling.slices())
    audit = Audit(slice(0, 64), range(64), {}, "arrays")
    assert {_SampledUnit(audit, driven, n).tiles_before for n in range(64)} == {*range(count)} > {0}


def test_drawn_codes_have_both_ends_and_zero_with_their_neighbours() -> None:
    for low, high in ((-(1 << 19), (1 << 19) - 1), (0, (1 << 20) - 1)):
        drawn = drawn_codes(low, high, (2000,), np.random.default_rng(0))
        assert {low, low + 1, max(low, -1), 0, 1, high - 1, high} <= set(drawn.tolist())
        assert low <= drawn.min() <= drawn.max() <= high
        assert len({int(x).bit_length() for x in np.abs(drawn)}) > high.bit_length()
    for given in ([[0, 0, 0]], [[-3, 0, -1]], [[2, 5, 3]]):  # a model's integers stay within 0 and those of the sample
        drawn = with_drawn_sample(np.array(given * 50).reshape(1, -1), 0, Int(8), np.random.default_rng(0))
        assert (drawn.min(), drawn.max()) == (min(0, *given[0]), max(0, *given[0]))


def test_nothing_audited_is_said() -> None:
    document = ran(compile_model(CNN.model, ["vta"]), samples=8, audit=0).document
    assert document["notes"][-1] == "no sample was computed again on the simulator: --audit 0"
    assert document["simulator"]["validated"] == document["simulator"]["instructions"] == document["simulator"]["audited"] == 0


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
        ran(mutated(plan, codes=codes), samples=8)
    problem = refused.value.problem
    size = o.tiling.sizes
    assert problem.code == "C104"
    start = f"y[0, {size['n'] - 1}, {size['u'] - 1}, {size['v'] - 1}] of {o.id} (hlscnn.{o.mapping.variant} at "
    assert problem.sentence.startswith(start)
    assert problem.sentence.endswith(", as it returned, for sample 0")


def test_a_mutant_that_data_never_shows_is_refused_on_drawn_operands() -> None:
    plan = compile_model(CNN.model, ["hlscnn"])
    numerics = plan.offloads[0].mapping.codes
    assert numerics is not None

    def codes(x: Array, w: Array, b: Array, *, strides: Any, pads: Any, p: Any) -> Array:
        right = numerics(x, w, b, strides=strides, pads=pads, p=p)
        return array(lambda *i: select((x[(0,) * x.rank] != 0) & (right[i] > 0), right[i] - 1, right[i]), right.shape)

    with pytest.raises(AnswerNo, match="as it returned, for drawn operands"):
        ran(mutated(plan, codes=codes), samples=8)


@pytest.fixture
def empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A cache of its own: a fault that is planted in the engine while it runs is not in the key of what is kept."""
    monkeypatch.setenv("FLEXMATCH_CACHE", str(tmp_path))
    return tmp_path


def refuse_drawn_operands(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    run = PreparedOffload.run

    def refused(self: PreparedOffload, device: Any, operands: Any, *given: Any) -> Any:
        if device is not None and not given:  # an audited sample has an observer
            raise SpecError(code, "a sum is too large")
        return run(self, device, operands, *given)

    monkeypatch.setattr(PreparedOffload, "run", refused)


@pytest.mark.usefixtures("empty_cache")
def test_a_model_that_refuses_drawn_operands_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_drawn_operands(monkeypatch, "I103")
    for _ in range(2):  # the second run finds what the first one kept
        notes = ran(compile_model(CNN.model, ["vta"]), samples=8).document["notes"]
        assert "vta.conv2d_bias_relu was not computed on drawn operands, which its model refuses: a sum is too large" in notes


@pytest.mark.usefixtures("empty_cache")
def test_commands_that_a_model_refuses_on_drawn_operands_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_drawn_operands(monkeypatch, "I101")
    with pytest.raises(SpecError, match=r"error\[I101\]: a sum is too large"):
        ran(compile_model(MLP.model, ["flexasr"]), samples=8)


def test_the_work_of_a_part_is_its_share() -> None:
    """What the oracle computes again is bounded by it: of a layer without products the elements count."""
    o = compile_model(MLP.model, ["flexasr"]).offloads[0]
    sizes = o.tiling.sizes
    whole, (d, n) = {name: slice(0, size) for name, size in sizes.items()}, next((d, n) for d, n in sizes.items() if n > 1)
    assert _work(o, whole) == o.macs > 0
    assert _work(o, {**whole, d: slice(0, 1)}) == pytest.approx(o.macs / n)
    without_products = replace(o, macs=0)
    assert _work(without_products, whole) == np.prod(list(sizes.values()))


def wrong_driver(plan: Plan) -> Plan:
    """Return the plan with a driver of its first offload that sends other weights."""
    drive = plan.offloads[0].mapping.drive

    def wrong(device: Any, x: Any, w: Any, b: Any, f: Any) -> Any:
        assert drive is not None
        return drive(device, x, w ^ 128, b, f)  # every sign

    return mutated(plan, drive=wrong)


def test_a_mutant_of_the_driver_is_refused_in_the_first_batch() -> None:
    plan = wrong_driver(compile_model(MLP.model, ["flexasr"]))
    with pytest.raises(AnswerNo, match=r"as the [\d,]+ commands of its driver give"):
        cosimulate(plan, MLP.data, calibrate=MLP.calibration, settings=Settings(threads=1, batch=8, samples=8))


def test_a_mutant_of_the_driver_is_refused_where_simulators_run() -> None:
    plan = wrong_driver(compile_model(MLP.model, ["flexasr"]))
    with pytest.raises(AnswerNo, match=r"as codes of its numerics give, not .*, as the simulator returned, for sample 0"):
        cosimulate(plan, MLP.data, calibrate=MLP.calibration, settings=Settings(engine="simulator", threads=1, batch=8, samples=8))


def last_changed(results: dict[str, Data], *, is_sampled: bool) -> dict[str, Data]:
    """Return result codes the last of which is another one."""
    changed = {n: np.array(y) for n, y in results.items()}
    for y in changed.values():
        (y[-1] if is_sampled else y).flat[-1] ^= 1
    return changed


def refused_part(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return results of a method whose last one of several samples is wrong."""

    def wrong(self: PreparedOffload, *given: Any) -> Any:
        results = call(self, *given)
        rank = {n: len(self.offload.mapping.axes.of[n]) for n in results}
        is_batch = all(y.ndim > rank[n] and len(y) > 1 for n, y in results.items())
        return last_changed(results, is_sampled=True) if is_batch else results

    return wrong


@pytest.mark.parametrize("engine", ["numerics", "simulator"])
def test_a_wrong_code_of_last_samples_is_refused_by_the_rate(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = compile_model(CNN.model, ["hlscnn"])
    kind = NumericsOffload if engine == "numerics" else PreparedOffload
    monkeypatch.setattr(kind, "call", refused_part(kind.call))
    with pytest.raises(AnswerNo, match="for sample ") as refused:
        ran(plan, engine, samples=24, batch=2, audit=1)
    assert int(refused.value.problem.sentence.rsplit(" ", 1)[1]) % 2
    ran(plan, engine, samples=4, batch=2, audit=0)


class CountedDevices:
    """Counts the devices that an audit makes, those of the oracle apart."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[Any] = []
        device = AUDIT.simulated_device

        def make(ila: Any, *, reading: str, samples: int = 0) -> Any:
            made = device(ila, reading=reading, samples=samples)
            self.made += [made] if reading != "oracle" else []
            return made

        monkeypatch.setattr(AUDIT, "simulated_device", make)


@pytest.mark.usefixtures("empty_cache")
@pytest.mark.parametrize("accelerator", ALL)
def test_what_agreed_in_an_earlier_process_is_not_simulated_again(accelerator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, devices = compile_model(CNN.model, [accelerator]), CountedDevices(monkeypatch)
    first = ran(plan, samples=16, batch=8, audit=1)
    count = len(devices.made)
    assert count >= 2
    again = ran(plan, samples=16, batch=8, audit=1)
    assert len(devices.made) == count
    assert {**again.document, "run": 0} == {**first.document, "run": 0}
    ran(plan, samples=16, batch=8, audit=1, tier="native")  # another reading of the instructions
    assert len(devices.made) == 2 * count


@pytest.mark.usefixtures("empty_cache")
def test_a_wrong_result_is_refused_where_the_right_one_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device catches up: it executes what an offload of the middle needs, and the sentence names element, sample and commands."""
    plan, devices = compile_model(CNN.model, ["flexasr"]), CountedDevices(monkeypatch)
    instructions = ran(plan, samples=8).document["simulator"]["instructions"]
    call, last = NumericsOffload.call, plan.offloads[-1].id

    def wrong(self: NumericsOffload, *given: Any) -> Any:
        results = call(self, *given)
        return results if self.offload.id != last else {n: y ^ 1 for n, y in results.items()}

    monkeypatch.setattr(NumericsOffload, "call", wrong)
    with pytest.raises(AnswerNo, match=r"as the [\d,]+ commands of its driver give, not .*, as it returned, for sample 0") as refused:
        ran(plan, samples=8)
    assert last in refused.value.problem.sentence
    assert 0 < devices.made[-1].sim.executed <= instructions


@pytest.mark.usefixtures("empty_cache")
def test_a_kept_run_is_of_its_operands_and_of_the_runs_before(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, devices = compile_model(CNN.model, ["hlscnn"]), CountedDevices(monkeypatch)
    ran(plan, samples=8)
    others = replace(plan, offloads=tuple(replace(o, mapping=replace(o.mapping)) for o in plan.offloads))
    for changed in (others, plan):  # operations that no file of their target tells: nothing is kept of them
        count = len(devices.made)
        ran(changed, samples=8)
        assert (len(devices.made) > count) == (changed is others)
    history = DeviceHistory(plan.targets[0].ila, "arrays")
    prepared = PreparedOffload(plan.offloads[0], {})
    keys = []
    for operand in (0, 0, 1):
        history.begin(prepared, {"x": np.array([operand])})
        keys.append(history.key)
    assert len({*keys}) == 3


def test_a_wrong_kernel_is_refused_in_the_first_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    from rewrite_compiler.kernels import Lowered

    call = Lowered.__call__

    def wrong(self: Lowered, *given: Any) -> Any:
        return tuple(np.where(np.arange(y.size).reshape(y.shape) % y[0].size == y[0].size - 1, y ^ 1, y) for y in call(self, *given))

    monkeypatch.setattr(Lowered, "__call__", wrong)
    with pytest.raises(AnswerNo, match="as it returned, for sample 0"):
        ran(compile_model(CNN.model, ["vta"]), tier="native", samples=8)


@pytest.mark.usefixtures("empty_cache")
def test_wrong_generated_python_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    call, device = PreparedOffload.call, AUDIT.simulated_device
    oracles: list[Any] = []

    def made(ila: Any, *, reading: str, samples: int = 0) -> Any:
        found = device(ila, reading=reading, samples=samples)
        oracles.extend([found] if reading == "oracle" else [])
        return found

    def wrong(self: PreparedOffload, on: Any, *given: Any) -> Any:
        results = call(self, on, *given)
        return last_changed(results, is_sampled=False) if any(on is x for x in oracles) else results

    monkeypatch.setattr(AUDIT, "simulated_device", made)
    monkeypatch.setattr(PreparedOffload, "call", wrong)
    with pytest.raises(AnswerNo, match=r"as codes of generated Python give, not .*, as the simulator returned, for sample 0"):
        ran(compile_model(CNN.model, ["vta"]), samples=8)


def test_an_operation_without_numerics_runs_on_the_simulator_and_is_told() -> None:
    plan = compile_model(CNN.model, ["hlscnn"])
    whole, found = ran(plan, samples=8), ran(mutated(plan, codes=None), samples=8)
    first, *rest = found.document["offloads"]
    assert first["engine"] == "simulator"
    assert {o["engine"] for o in rest} == {"numerics"}
    assert all((found.accelerated[k] == x).all() for k, x in whole.accelerated.items())
    m = plan.offloads[0].mapping
    why = f"{m.name} ({m.rule.place}) has no numerics: the commands of its driver run on the simulator for every sample"
    (fallback,) = found.document["run"]["fallbacks"]
    assert (fallback["offload"], fallback["why"]) == (first["id"], [why])
    assert fallback["cpu_seconds"] > 0
    assert why in found.document["notes"]
    assert any("1 offload without machine code of numerics" in line for line in cosim_lines(found.document))


def test_a_term_without_machine_code_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from rewrite_compiler.compile.offload.specified import terms_of
    from rewrite_compiler.kernels import NotLowered

    def refuse(*given: Any) -> None:
        raise NotLowered("add", "of wide words")

    monkeypatch.setattr("rewrite_compiler.kernels.Lowered", refuse)
    terms_of.cache_clear()
    found = ran(compile_model(CNN.model, ["vta"]), tier="native", samples=8).document
    terms_of.cache_clear()
    fallbacks = found["run"]["fallbacks"]
    assert [f["offload"] for f in fallbacks] == [o["id"] for o in found["offloads"]]
    assert all(f["why"][0].endswith("runs on plain arrays: no kernel computes add of wide words") for f in fallbacks)


def test_what_the_simulator_runs_without_machine_code_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "rewrite_compiler.ila.simulation.simulator.machine_code_refusal", lambda: "machine code cannot be made here: no LLVM"
    )
    plan = compile_model(MLP.model, ["flexasr"])
    settings = Settings(samples=4, tier="native", engine="simulator")
    found = cosimulate(plan, MLP.data, calibrate=MLP.calibration, settings=settings).document
    count = len(plan.targets[0].ila().instructions)
    assert f"{count} instructions of flexasr ran without machine code: machine code cannot be made here: no LLVM" in found["notes"]


def test_an_unknown_engine_is_refused() -> None:
    plan = compile_model(MLP.model, ["flexasr"])
    with pytest.raises(UsageError, match='engine must be one of auto, numerics, simulator, not "tape"'):
        cosimulate(plan, MLP.data, calibrate=MLP.calibration, settings=Settings(engine="tape"))
