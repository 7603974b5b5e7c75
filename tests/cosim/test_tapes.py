"""Batches on tapes: the same bits as on simulators of their own, and refused where other samples lead elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from command import onnx_model, perceptron
from onnx import helper, numpy_helper

from rewrite_compiler.compile import Plan, calibrated, compile_model
from rewrite_compiler.cosim import Engine, remote
from rewrite_compiler.ila import Ila
from rewrite_compiler.lang import native_chain
from rewrite_compiler.lang.tape import SCRAMBLED, Arena, Call, Diverged, Tape
from rewrite_compiler.lang.twin import NoTwin, Twin
from rewrite_compiler.target import SimulatedDevice, TapedDevice, simulated_device
from rewrite_compiler.target.taped import LONG

Array = np.ndarray
BATCH = 6


def normal(*shape: int, seed: int = 5) -> Array:
    return np.random.default_rng(seed).normal(0, 1, shape).astype(np.float32)


def convolution() -> Any:
    """Return two convolutions with a ReLU between them, [1, 5, 9, 9]."""
    weights = {"w0": normal(6, 5, 3, 3, seed=1), "w1": normal(9, 6, 1, 1, seed=2)}
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w1"], ["y"], strides=[2, 2]),
    ]
    constants = [numpy_helper.from_array(w, n) for n, w in weights.items()]
    return onnx_model(nodes, {"x": (1, 5, 9, 9)}, {"y": (1, 9, 5, 5)}, constants)


CASES = [("flexasr", (1, 24)), ("hlscnn:revision=ext8", (1, 5, 9, 9)), ("vta", (1, 5, 9, 9))]


@pytest.mark.parametrize(("accel", "shape"), CASES, ids=[a for a, _ in CASES])
def test_a_tape_gives_the_bits_of_the_simulators(accel: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    x = {"x": normal(3 * BATCH, *shape)}
    onnx.save(perceptron((24, 8)) if accel == "flexasr" else convolution(), tmp_path / "app.onnx")
    plan = calibrated(compile_model(tmp_path / "app.onnx", [accel]), x, "inputs", "")
    assert plan.offloads
    taped = Engine(plan, engine="recorded", audit=0, reading="native")
    found = taped.run(x, batch=BATCH)
    assert [len(v) for v in taped.tapes.idle.values()] == [1], list(taped.tapes.refused)
    plain = Engine(plan, engine="simulator", audit=0).run(x, batch=3 * BATCH)
    np.testing.assert_array_equal(found.outputs["y"], plain.outputs["y"])
    assert not taped.tapes.refused
    assert found.instructions == 3 * plain.instructions
    seen, expected = (r.statistics[plan.offloads[0].id] for r in (found, plain))
    assert (seen.values, seen.saturated, seen.range_out) == (expected.values, expected.saturated, expected.range_out)


def test_what_an_event_calls_of_machine_code_is_one_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    chained = native_chain.chained

    def watched(calls: Iterable[Call]) -> list[Call]:
        found = chained(calls)
        made.append(len(found))
        return found

    monkeypatch.setattr(native_chain, "chained", watched)
    x = {"x": normal(3 * BATCH, 1, 24)}
    onnx.save(perceptron((24, 8)), tmp_path / "app.onnx")
    plan = calibrated(compile_model(tmp_path / "app.onnx", ["flexasr"]), x, "inputs", "")
    engine = Engine(plan, engine="recorded", audit=0, reading="native")
    engine.tapes.moving.update({o.id: "" for o in plan.offloads})  # no shortcuts: the recording itself is played
    found = engine.run(x, batch=BATCH)
    np.testing.assert_array_equal(found.outputs["y"], Engine(plan, engine="simulator", audit=0).run(x, batch=3 * BATCH).outputs["y"])
    ((group,),) = engine.tapes.idle.values()
    long = [e for device in group.values() for e in device.events if len(e.calls) >= LONG]
    assert 0 < len(long) <= len(made)  # while it was played
    assert all(len(e.chains) < len(e.calls) for e in long)


def test_a_last_batch_of_another_size_runs_by_itself(tmp_path: Path) -> None:
    plan, x = small_plan(tmp_path)
    engine = Engine(plan, engine="recorded", audit=0, reading="native")
    found = engine.run({"x": x["x"][:15]}, batch=BATCH)
    np.testing.assert_array_equal(found.outputs["y"], Engine(plan, engine="simulator", audit=0).run({"x": x["x"][:15]}).outputs["y"])


def test_two_threads_have_tapes_of_their_own(tmp_path: Path) -> None:
    plan, x = small_plan(tmp_path)
    engine = Engine(plan, engine="recorded", audit=0, reading="native", threads=2)
    found = engine.run(x, batch=4)
    assert 1 <= len(engine.tapes.idle[4]) <= 2
    np.testing.assert_array_equal(found.outputs["y"], Engine(plan, engine="simulator", audit=0).run(x).outputs["y"])


def other_group(engine: Engine, x: Mapping[str, Array]) -> Any:
    """Return what another thread plays while the first one has the recording, and the outputs of a batch."""
    engine.tapes.expected = 9
    engine.batch(lambda part: {n: v[part] for n, v in x.items()}, slice(0, 4))
    (mine,) = engine.tapes.idle.pop(4)
    found = engine.batch(lambda part: {n: v[part] for n, v in x.items()}, slice(4, 8))
    (other,) = engine.tapes.idle.pop(4)
    return mine, other, found.outputs


@pytest.mark.parametrize("has_shortcuts", [True, False])
def test_another_thread_plays_the_same_recording_on_its_own_memory(has_shortcuts: bool, tmp_path: Path) -> None:
    x = {"x": normal(8, 1, 5, 9, 9)}
    onnx.save(convolution(), tmp_path / "app.onnx")
    plan = calibrated(compile_model(tmp_path / "app.onnx", ["hlscnn:revision=ext8"]), x, "inputs", "")
    engine = Engine(plan, engine="recorded", audit=0, reading="native", threads=2)
    if not has_shortcuts:
        engine.tapes.moving.update({o.id: "" for o in plan.offloads})
    mine, other, outputs = other_group(engine, x)
    (first,), (second,) = mine.values(), other.values()
    assert second.twin_of[0] is first
    assert bool(second.shortcuts) == has_shortcuts
    assert len(second.made) == (0 if has_shortcuts else len(first.events))
    np.testing.assert_array_equal(outputs["y"], Engine(plan, engine="simulator", audit=0).run(x).outputs["y"][4:])
    assert not engine.tapes.first  # no third thread


@pytest.mark.parametrize("is_right", [True, False])
def test_a_twin_that_cannot_be_made_or_gives_other_outputs_is_another_recording(
    is_right: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def call(self: Twin, call: Any) -> Any:
        if is_right:
            raise NoTwin
        return lambda: None

    monkeypatch.setattr(Twin, "call", call)
    plan, x = small_plan(tmp_path)
    engine = Engine(plan, engine="recorded", audit=0, reading="native", threads=2)
    engine.tapes.moving.update({o.id: "" for o in plan.offloads})
    _, other, outputs = other_group(engine, x)
    assert all(device.twin_of is None for device in other.values())
    np.testing.assert_array_equal(outputs["y"], Engine(plan, engine="simulator", audit=0).run({"x": x["x"][4:8]}).outputs["y"])


def small_plan(folder: Path) -> tuple[Plan, Mapping[str, Array]]:
    x = {"x": normal(40, 1, 16)}
    onnx.save(perceptron((16, 8, 4)), folder / "app.onnx")
    return calibrated(compile_model(folder / "app.onnx", ["flexasr"]), x, "inputs", ""), x


# -- devices


def taped(ila: Ila, samples: int) -> TapedDevice:
    inner = simulated_device(ila, reading="native", samples=samples)
    assert isinstance(inner, SimulatedDevice)
    tape = inner.sim.machine.axes.tape = Tape(inner.sim.sample_axis)
    return TapedDevice(inner, tape)


def test_a_driver_that_sends_something_else_leaves_the_tape() -> None:
    from rewrite_compiler.ila_models import hlscnn

    ila = hlscnn.build(revision="ext8")
    device = taped(ila, 2)
    device.issue("cfg_wr_soc_mem_base", base=16)
    device.rewind()
    with pytest.raises(Diverged):
        device.issue("cfg_wr_soc_mem_base", base=32)
    device.rewind()
    device.issue("cfg_wr_soc_mem_base", base=16)
    with pytest.raises(Diverged):
        device.wait()


# -- tapes


def test_blocks_are_used_again_when_no_view_of_them_is_left() -> None:
    arena = Arena()
    first = arena.empty((3, 5), np.int16)
    view = first[1:, ::2]
    place = first.ctypes.data
    del first
    assert arena.empty((3, 5), np.int16).ctypes.data != place
    del view
    assert arena.empty((15,), np.int16).ctypes.data == place


def test_a_tape_copies_again_and_keeps_what_does_not_depend_on_samples() -> None:
    tape = Tape(0)
    given = tape.empty((4, 3), np.int32)
    given[...] = 1
    fixed = np.arange(3)
    copy = tape.copied(given.T)
    total = tape.empty((4, 3), np.int64)
    steady, weights = tape.steady(given), tape.steady(fixed)
    tape.again(total, lambda: steady * weights)
    fixed[...] = 9
    tape.arena.scramble()
    assert (copy == np.frombuffer(bytes([SCRAMBLED] * 4), np.int32)[0]).all()
    given[...] = np.arange(12).reshape(4, 3)
    for call in tape.calls:
        call()
    np.testing.assert_array_equal(copy, given.T)
    np.testing.assert_array_equal(total, given * np.arange(3))


def test_what_leaks_out_of_the_tape_refuses_it() -> None:
    tape = Tape(0)
    tape.assign(np.zeros(4), tape.empty((4,), np.float64))
    assert tape.refused == "contents that depend on samples were written to where they do not"


def test_workers_of_a_cluster_play_tapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker does not know how many batches it will get: it records the second one, and plays from the third on."""
    x = {"x": normal(2, 1, 24)}
    onnx.save(perceptron((24, 8)), tmp_path / "app.onnx")
    engine = Engine(
        calibrated(compile_model(tmp_path / "app.onnx", ["flexasr"]), x, "inputs", ""), engine="recorded", audit=0, reading="native"
    )
    monkeypatch.setattr(remote, "engine_of", lambda job: engine)
    found, counts = [], []
    for _ in range(3):
        found.append(remote.batch_of((slice(0, 2), x), object()))  # type: ignore[arg-type]
        counts.append(len(engine.tapes.idle))
    assert counts == [0, 1, 1], list(engine.tapes.refused)
    assert len({f.outputs["y"].tobytes() for f in found}) == 1
