"""Whole programs on the simulator: against arithmetic by hand, and the same whatever the batch, the threads and the reading."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from command import onnx_model, perceptron, samples
from onnx import helper, numpy_helper

from rewrite_compiler.compile import Plan, calibrated, compile_model
from rewrite_compiler.cosim import Engine, Outcome, Settings, cosimulate
from rewrite_compiler.cosim.metrics.segmentation import segments
from rewrite_compiler.errors import FlexmatchError
from rewrite_compiler.lang.formats import AdaptivFloat
from rewrite_compiler.readings.kernels.format_conversion import codes_of, values_of

Array = np.ndarray


def planned(proto: Any, folder: Path, inputs: Mapping[str, Array]) -> Plan:
    """Compile a model for FlexASR and choose formats on some inputs."""
    path = folder / "app.onnx"
    onnx.save(proto, path)
    return calibrated(compile_model(path, ["flexasr"]), inputs, "inputs", "")


def normal(*shape: int, seed: int = 3, scale: float = 1.0) -> Array:
    return np.random.default_rng(seed).normal(0, scale, shape).astype(np.float32)


def quantised(x: Array, f: Any) -> Array:
    return np.asarray(values_of(f, codes_of(f, x)), np.float64)


def encoded(word: Array, f: Any) -> Array:
    """Return the value of the code of words with 14 fraction bits: five bits, halves toward +∞, saturated; 2^(bias−10) has 0's code."""
    value = word / 2.0**14
    with np.errstate(divide="ignore"):
        exponent = np.floor(np.log2(np.abs(value)))
    step = 2.0 ** (np.where(value == 0, 0, exponent) - 4)
    size = np.abs(value) / step
    rounded = np.where(value < 0, np.ceil(size - 0.5), np.floor(size + 0.5)) * step
    largest = (1 + 15 / 16) * 2.0 ** (f.bias - 3)
    smallest = 2.0 ** (f.bias - 10)
    return np.sign(value) * np.where(rounded <= smallest, 0, np.minimum(rounded, largest))


def linear_by_hand(x: Array, w: Array, b: Array, f: Mapping[str, Any], *, relu: bool = False) -> Array:
    """One call of FlexASR's linear layer for samples [samples, k]: exact sum, floor, bias, clamp, activation, rounding."""
    total = np.floor(quantised(x, f["x"]) @ quantised(w, f["w"]).T * 2.0**14)
    word = np.clip(total + quantised(b, f["b"]) * 2.0**14, 1 - 2**19, 2**19 - 1)
    return encoded(np.maximum(word, 0) if relu else word, f["y"])


def weights(proto: Any, n: int = 0) -> tuple[Array, Array]:
    found = {t.name: numpy_helper.to_array(t) for t in proto.graph.initializer}
    return found[f"w{n}"], found[f"b{n}"]


def run(plan: Plan, inputs: Mapping[str, Array], *, batch: int = 32, threads: int = 1, reading: str = "arrays") -> Outcome:
    return Engine(plan, reading=reading, threads=threads, engine="simulator", audit=0).run(inputs, batch=batch)


def fed(x: Array) -> dict[str, Array]:
    """Return samples [samples, width] of the input "x" [1, width]."""
    return {"x": x[:, None, :]}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Plan, Array]:
    proto, x = perceptron((16, 8, 4)), normal(40, 16)
    return proto, planned(proto, tmp_path_factory.mktemp("small"), fed(x)), x


def test_an_offload_that_feeds_another_is_the_two_by_hand(small: tuple[Any, Plan, Array]) -> None:
    proto, plan, x = small
    first, second = plan.offloads
    assert (first.mapping.name, second.mapping.name) == ("flexasr.linear_relu", "flexasr.linear")
    assert first.node.outputs[0] in second.node.inputs
    assert all(s.host is None for s in segments(plan))
    between = linear_by_hand(x, *weights(proto, 0), first.formats, relu=True)
    expected = linear_by_hand(between, *weights(proto, 1), second.formats)
    np.testing.assert_array_equal(run(plan, fed(x)).outputs["y"][:, 0], expected.astype(np.float32))


@pytest.mark.parametrize(("batch", "threads"), [(1, 1), (7, 1), (7, 2), (32, 2), (64, 1)])
def test_batch_and_threads_change_nothing(batch: int, threads: int, small: tuple[Any, Plan, Array]) -> None:
    _, plan, x = small
    expected, found = run(plan, fed(x)), run(plan, fed(x), batch=batch, threads=threads)
    np.testing.assert_array_equal(found.outputs["y"], expected.outputs["y"])
    assert found.outputs["y"].dtype == np.float32
    for key, s in expected.statistics.items():
        other = found.statistics[key]
        assert (other.values, other.saturated, other.compared) == (s.values, s.saturated, s.compared)
        assert (other.range_in, other.range_out, other.max_abs_error) == (s.range_in, s.range_out, s.max_abs_error)
        assert other.squared_errors == pytest.approx(s.squared_errors, rel=1e-12)


def test_the_oracle_gives_the_same_bits(tmp_path: Path) -> None:
    x = normal(2, 5)
    plan = planned(perceptron((5, 3)), tmp_path, fed(x))
    first, second = (run(plan, fed(x), reading=reading).outputs["y"] for reading in ("arrays", "oracle"))
    np.testing.assert_array_equal(first, second)


def split(plan: Plan, *dims: str) -> Any:
    """Return the only offload of a plan after checking that it is split along these dimensions."""
    (o,) = plan.offloads
    assert {d for d, n in o.tiling.sizes.items() if o.tiling.tile[d] < n} == set(dims)
    assert o.tiling.calls > 1
    return o


def test_a_layer_with_more_inputs_than_a_call_takes_is_the_sum_of_its_parts(tmp_path: Path) -> None:
    proto, x = perceptron((4100, 5)), normal(3, 4100)
    plan = planned(proto, tmp_path, fed(x))
    o = split(plan, "k")
    w, b = weights(proto)
    expected = np.zeros((3, 5), np.float32)
    for at in range(0, 4100, o.tiling.tile["k"]):
        part = slice(at, at + o.tiling.tile["k"])
        bias = b if at == 0 else np.zeros_like(b)
        expected += linear_by_hand(x[:, part], w[:, part], bias, o.formats).astype(np.float32)
    np.testing.assert_array_equal(run(plan, fed(x)).outputs["y"][:, 0], expected)


def test_a_layer_with_more_outputs_than_a_call_gives_is_its_parts_side_by_side(tmp_path: Path) -> None:
    proto, x = perceptron((16, 4100)), normal(2, 16)
    plan = planned(proto, tmp_path, fed(x))
    o = split(plan, "n")
    np.testing.assert_array_equal(run(plan, fed(x)).outputs["y"][:, 0], linear_by_hand(x, *weights(proto), o.formats).astype(np.float32))


def outputs_of(proto: Any, inputs: Sequence[Mapping[str, Array]]) -> list[list[Array]]:
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    return [list(session.run(None, dict(one))) for one in inputs]


def test_outputs_that_are_inputs_constants_or_several(tmp_path: Path) -> None:
    """The graph's outputs are a result, an offload's result inside, an input, and a constant."""
    proto = perceptron((16, 8, 4))
    for name in ("r0", "x", "b1"):
        proto.graph.output.append(onnx.ValueInfoProto(name=name))
    x = normal(5, 16)
    plan = planned(proto, tmp_path, fed(x))
    found = run(plan, fed(x), batch=2).outputs
    assert list(found) == ["y", "r0", "x", "b1"]
    np.testing.assert_array_equal(found["x"], x[:, None])
    np.testing.assert_array_equal(found["b1"], np.broadcast_to(weights(proto, 1)[1], (5, 4)))
    (first,) = [o for o in plan.offloads if o.nodes[0] == "gemm0"]
    between = linear_by_hand(x, *weights(proto, 0), first.formats, relu=first.mapping.name.endswith("relu"))
    np.testing.assert_array_equal(found["r0"][:, 0], np.maximum(between, 0).astype(np.float32))


def test_a_program_without_offloads_is_the_reference(tmp_path: Path) -> None:
    node = helper.make_node("Softmax", ["x"], ["y"], axis=-1)
    proto, x = onnx_model([node], {"x": [1, 6]}, ["y"]), normal(9, 6)
    plan = planned(proto, tmp_path, fed(x))
    assert not plan.offloads
    expected = np.stack([y[0] for y in outputs_of(proto, [{"x": row[None]} for row in x])])
    np.testing.assert_array_equal(run(plan, fed(x), batch=4).outputs["y"], expected)


def test_a_second_input_of_each_sample(tmp_path: Path) -> None:
    """A host node behind the offload reads another input: every sample gets its own row."""
    proto = perceptron((16, 4))
    proto.graph.node[0].output[0] = "h"
    proto.graph.node.append(helper.make_node("Mul", ["h", "s"], ["y"], name="scale"))
    proto.graph.input.append(helper.make_tensor_value_info("s", 1, [1, 4]))
    x, s = normal(6, 16), normal(6, 4, seed=8)
    inputs = {**fed(x), "s": s[:, None]}
    plan = planned(proto, tmp_path, inputs)
    (o,) = plan.offloads
    expected = linear_by_hand(x, *weights(proto), o.formats).astype(np.float32) * s
    np.testing.assert_array_equal(run(plan, inputs, batch=4, threads=2).outputs["y"][:, 0], expected)


def test_statistics_by_hand(tmp_path: Path) -> None:
    """Formats chosen on small samples, so that larger ones saturate."""
    proto, x = perceptron((16, 6)), normal(20, 16, scale=2.0)
    plan = planned(proto, tmp_path, fed(x * np.float32(0.1)))
    (o,) = plan.offloads
    y = linear_by_hand(x, *weights(proto), o.formats)
    seen = run(plan, fed(x), batch=3).statistics[o.id]
    assert (seen.values, seen.compared) == (120, 20)
    assert seen.saturated == np.count_nonzero(np.abs(y) >= float(o.formats["y"].largest)) > 0
    assert seen.range_in == (float(x.min()), float(x.max()))
    assert seen.range_out == (float(y.min()), float(y.max()))
    w, b = (a.astype(np.float64) for a in weights(proto))
    exact = x.astype(np.float64) @ w.T + b
    error = y.astype(np.float32) - exact
    assert sum(seen.squared_errors) == pytest.approx(float((error**2).sum()), rel=1e-9)
    assert sum(seen.squared_references) == pytest.approx(float((exact**2).sum()), rel=1e-9)
    assert seen.max_abs_error == pytest.approx(float(np.abs(error).max()), rel=1e-9)
    document = cosimulate(plan, data=samples_of(tmp_path, x), settings=Settings(batch=3)).document
    (shown,) = document["offloads"]
    assert shown["relative_error"] == pytest.approx(float(np.sqrt((error**2).sum() / (exact**2).sum())), rel=1e-9)
    assert shown["saturated"] == seen.saturated / 120


def samples_of(folder: Path, x: Array) -> Path:
    np.savez(folder / "data.npz", x=x)
    return folder / "data.npz"


def test_the_first_samples_choose_formats_and_are_not_measured(tmp_path: Path) -> None:
    proto = perceptron((16, 8, 4))
    onnx.save(proto, tmp_path / "app.onnx")
    data = samples(tmp_path / "data.npz", 50, 16, classes=4)
    plan = compile_model(tmp_path / "app.onnx", ["flexasr"])
    report = cosimulate(plan, data=data)
    document = report.document
    assert (document["samples"], document["metric"], document["calibration"]["samples"]) == (18, "top1", 32)
    with np.load(data) as arrays:
        rest, labels = arrays["x"][32:], arrays["labels"][32:]
    expected = np.stack([y[0] for y in outputs_of(proto, [{"x": row[None]} for row in rest])])
    np.testing.assert_allclose(report.reference["y"], expected, rtol=1e-5, atol=1e-6)
    for side, outputs in (("reference", report.reference), ("accelerated", report.accelerated)):
        assert document[side]["value"] == np.mean(outputs["y"].reshape(18, 4).argmax(1) == labels)
    same = np.mean(report.reference["y"].reshape(18, 4).argmax(1) == report.accelerated["y"].reshape(18, 4).argmax(1))
    assert document["paired"]["same_predictions"] == same


def test_a_plan_without_formats_does_not_run(small: tuple[Any, Plan, Array]) -> None:
    _, plan, _ = small
    bare = replace(plan, calibration=None, offloads=tuple(replace(o, formats={}) for o in plan.offloads))
    said = r"^error\[C100\]: the plan is not calibrated: its offloads have no formats\n  help: give --calibrate FILE, .*$"
    with pytest.raises(FlexmatchError, match=said):
        Engine(bare)


def test_segments_take_turns_in_order(tmp_path: Path) -> None:
    """linear → softmax (host) → linear: two segments; nothing is kept longer than it is read."""
    proto = perceptron((16, 8, 4))
    proto.graph.node[1].CopyFrom(helper.make_node("Softmax", ["h0"], ["r0"], name="middle", axis=-1))
    plan = planned(proto, tmp_path, fed(normal(4, 16)))
    found = segments(plan)
    assert [[o.nodes for o in s.offloads] for s in found] == [[("gemm0",)], [("gemm1",)]]
    assert [s.host is not None for s in found] == [False, True]
    p = plan.program
    alive = {*p.inputs}
    for s in found:
        if s.host is not None:
            assert set(s.host.inputs) <= alive
            alive.update(s.host.outputs)
        for o in s.offloads:
            assert {v for v in o.node.inputs if v not in p.constants} <= alive
        alive.update(v for o in s.offloads for v in o.node.outputs)
        alive -= set(s.dead)
    assert set(p.outputs) <= alive
    assert not alive & set(p.inputs)


def test_by_hand_rounds_as_the_specification_does() -> None:
    f = AdaptivFloat(bias=3)
    words = np.array([0, 1, -1, 2**14, 33 * 2**9, -33 * 2**9, 2**19 - 1, 1 - 2**19, 2**7, 2**7 - 1, 17 * 2**3], np.float64)
    assert encoded(words, f).tolist() == [0, 0, 0, 1, 1.0625, -1.0, 1.9375, -1.9375, 0, 0, 2.0**-7 * 1.0625]


@pytest.mark.parametrize(("name", "least"), [("samples", 0), ("audit", 0), ("batch", 0), ("threads", 1)])
def test_counts_that_make_no_sense_are_refused(name: str, least: int) -> None:
    """No sample means all, no audited batch none, and no thread one for each core."""
    for count in {0, least}:
        assert vars(replace(Settings(threads=1), **{name: count}))[name] == count
    with pytest.raises(FlexmatchError) as caught:
        replace(Settings(threads=1), **{name: -1})
    assert str(caught.value) == f"error[F203]: {name} must be a whole number from {least} on, not -1"
