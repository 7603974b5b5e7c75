"""FlexASR's operations beside the linear layer: certificates, errors against their meanings, models from end to end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from command import onnx_model
from onnx import helper, numpy_helper

from rewrite_compiler.compile import Plan, calibrated, compile_model, plan_onnx
from rewrite_compiler.compile.verify import check_plan
from rewrite_compiler.cosim import Engine
from rewrite_compiler.ila import Ila
from rewrite_compiler.ir.evaluate import run
from rewrite_compiler.ir.types import TensorType
from rewrite_compiler.prove.mappings.mappings import prove_mapping
from rewrite_compiler.readings.kernels.format_conversion import codes_of, values_of
from rewrite_compiler.target import Mapping as Operation
from rewrite_compiler.target import SimulatedDevice, body_of, find_target
from rewrite_compiler.targets.flexasr.layer_norm import is_usable

TARGET = find_target("flexasr")
Array = np.ndarray


@cache
def model() -> Ila:
    return TARGET.ila()


# -- certificates

# of the symbolic run; GRU and LSTM, more than half a minute each, are judged by `flexmatch prove --accel flexasr`
INSTRUCTIONS = {"layer_norm": 8, "layer_norm_of_batch": 8, "max_pool": 6, "mean_pool": 6, "rnn": 372}


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_every_operation_is_proved(name: str) -> None:
    proof = prove_mapping(TARGET.mappings[name], model())
    assert proof.is_proved, proof
    assert f"({INSTRUCTIONS[name]} instructions), random codes at " in proof.strength


WRONG = {
    "max_pool": "mean_pool",  # the engine in the wrong mode
    "mean_pool": "max_pool",
}


@pytest.mark.parametrize("name", WRONG)
def test_the_wrong_mode_is_refuted(name: str) -> None:
    proof = prove_mapping(replace(TARGET.mappings[name], drive=TARGET.mappings[WRONG[name]].drive), model())
    assert (proof.verdict, proof.code) == ("refuted", "I105")


@pytest.mark.parametrize("swapped", [("g", "b"), ("x", "g")])
def test_layer_norm_with_formats_exchanged_is_refuted(swapped: tuple[str, str]) -> None:
    m = TARGET.mappings["layer_norm"]
    first, second = swapped
    assert m.drive is not None

    def drive(device: Any, x: Array, g: Array, b: Array, f: Mapping[str, Any]) -> Array:
        return np.asarray(m.drive(device, x=x, g=g, b=b, f={**f, first: f[second], second: f[first]}))  # type: ignore[misc]

    proof = prove_mapping(replace(m, drive=drive, trials=m.trials[:2]), model())
    assert (proof.verdict, proof.code) == ("refuted", "I105")


# -- error against the meaning: 100 samples, standard normal times a scale, rounded to their formats first

SAMPLES = 100
MOVING = ("x", "h", "c")  # operands that differ between samples
# operation → operand → shape and scale; `statics`; bounds of the mean error of a sample
CASES: dict[str, tuple[dict[str, tuple[tuple[int, ...], float]], dict[str, Any], tuple[float, float]]] = {
    "linear": ({"x": ((16, 64), 1.0), "w": ((64, 64), 0.125), "b": ((64,), 0.125)}, {}, (0.012, 0.015)),
    "lstm": (
        {"x": ((4, 1, 64), 1.0), "w": ((256, 64), 0.125), "r": ((256, 64), 0.125), "b": ((512,), 0.125),
         "h": ((1, 64), 0.5), "c": ((1, 64), 0.5)},
        {}, (0.012, 0.025),
    ),
    "gru": (
        {"x": ((4, 1, 64), 1.0), "w": ((192, 64), 0.125), "r": ((192, 64), 0.125), "b": ((384,), 0.125), "h": ((1, 64), 0.5)},
        {}, (0.012, 0.025),
    ),
    "rnn": (
        {"x": ((4, 1, 64), 1.0), "w": ((64, 64), 0.125), "r": ((64, 64), 0.125), "b": ((128,), 0.125), "h": ((1, 64), 0.5)},
        {}, (0.012, 0.025),
    ),
    "layer_norm": ({"x": ((16, 64), 0.5), "g": ((64,), 1.0), "b": ((64,), 1.0)}, {"epsilon": 1e-12}, (0.012, 0.016)),
    "max_pool": ({"x": ((8, 4, 64), 1.0)}, {}, (0.0, 0.0)),
    "mean_pool": ({"x": ((16, 2, 64), 1.0)}, {}, (0.014, 0.017)),
}  # fmt: skip


def measured(name: str) -> Array:
    """Return ‖device − meaning‖ / ‖meaning‖ of every sample; weights and formats are the same for all samples."""
    operands, statics, _ = CASES[name]
    random = np.random.default_rng(2022)
    lead = {n: (SAMPLES,) if n in MOVING else () for n in operands}
    drawn = {n: random.normal(0, scale, (*lead[n], *shape)) for n, (shape, scale) in operands.items()}
    return errors_of(TARGET.mappings[name], drawn, statics)


def meanings(m: Operation, drawn: Mapping[str, Array], statics: Mapping[str, Any]) -> list[Array]:
    """Return every result of the meaning in float64, samples first."""
    shapes = [drawn[v.name].shape[1:] if v.name in MOVING else drawn[v.name].shape for v in m.operands]
    body = body_of(m, [TensorType(s) for s in shapes], statics)
    rows = []
    for n in range(len(drawn["x"])):
        found = run(
            body, {v: drawn[o.name][n] if o.name in MOVING else drawn[o.name] for v, o in zip(body.inputs, m.operands, strict=True)}
        )
        rows.append([found[v] for v in body.outputs])
    return [np.stack(column) for column in zip(*rows, strict=True)]


def errors_of(m: Operation, drawn: Mapping[str, Array], statics: Mapping[str, Any]) -> Array:
    """Run samples on the device and as their meaning; formats from the largest magnitudes of operands and results."""
    results = dict(zip(m.axes.results, meanings(m, drawn, statics), strict=True))
    formats = m.formats_for({n: float(np.abs(x).max()) for n, x in {**drawn, **results}.items()})
    codes = {n: codes_of(formats[n], x).astype(np.int64) for n, x in drawn.items()}
    rounded = {n: np.asarray(values_of(formats[n], c), np.float64) for n, c in codes.items()}
    expected = meanings(m, rounded, statics)[0]
    device = SimulatedDevice(model().simulator(strict=True, samples=len(expected)))
    found = m.run_driver(device, codes, formats, statics)
    first = found[0] if isinstance(found, tuple) else found
    value = np.asarray(values_of(formats[m.axes.result], first), np.float64)
    axes = tuple(range(1, value.ndim))
    return np.asarray(np.sqrt(((value - expected) ** 2).sum(axes) / np.maximum((expected**2).sum(axes), 1e-30)))


@pytest.mark.parametrize("name", CASES)
def test_error_against_the_meaning(name: str) -> None:
    low, high = CASES[name][2]
    assert low <= measured(name).mean() <= high


# -- rows that the layer norm cannot take


def row_error(x: Array) -> tuple[bool, float]:
    """Return whether a row is usable, and its error without scale and bias."""
    m = TARGET.mappings["layer_norm"]
    n = x.shape[-1]
    drawn, statics = {"x": x[None, None], "g": np.ones(n), "b": np.zeros(n)}, {"epsilon": 1e-12}
    (y,) = meanings(m, drawn, statics)
    f = m.formats_for({n: float(np.abs(a).max()) for n, a in {**drawn, "y": y}.items()})
    return bool(is_usable(codes_of(f["x"], x[None]), f)[0]), float(errors_of(m, drawn, statics)[0])


def spread(n: int, scale: float, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(0, scale, n)


ROWS = {
    "an ordinary row": (spread(64, 0.5), True),
    "a small variance": (spread(64, 0.05), True),
    "squares of one vector at 32": (np.tile([1.5, -1.5], 32), False),
    "squares of one vector below 32": (np.tile([1.375, -1.375], 32), True),
    "the sum of a row at 512": (np.full(1024, 0.55) + spread(1024, 0.1), False),
    "one large element": (np.eye(1, 64)[0] * 6.0, False),
    "squares of a row at 512": (np.tile([1.25, -1.25], 170 * 8), False),
    "a variance below 2^-10": (spread(64, 0.01), False),
    "a constant row": (np.full(64, 0.5), False),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_outside_the_range_are_told_apart(name: str) -> None:
    row, usable = ROWS[name]
    told, error = row_error(row)
    assert told == usable
    if usable:
        assert error < 0.05
    elif np.ptp(row) > 0.1:
        assert error > 0.2


# -- models from end to end


def initial(**arrays: Array) -> list[Any]:
    return [numpy_helper.from_array(a.astype(np.float32), n) for n, a in arrays.items()]


def weights(*shape: int, scale: float = 0.2, seed: int = 1) -> Array:
    return np.random.default_rng(seed).normal(0, scale, shape)


def recurrent(op: str, gates: int, **attributes: Any) -> Any:
    nodes = [
        helper.make_node(op, ["x", "w", "r", "b"], ["y4", "h"], name="layer", hidden_size=32, **attributes),
        helper.make_node("Squeeze", ["y4", "axis"], ["y"], name="squeeze"),
    ]
    constants = initial(w=weights(1, gates * 32, 16), r=weights(1, gates * 32, 32, seed=2), b=weights(1, gates * 64, seed=3))
    return onnx_model(nodes, {"x": [6, 1, 16]}, ["y"], [*constants, numpy_helper.from_array(np.array([1]), "axis")])


def pooled(op: str, shape: tuple[int, ...], **attributes: Any) -> Any:
    return onnx_model([helper.make_node(op, ["x"], ["y"], name="pool", **attributes)], {"x": shape}, ["y"])


def normalised(*shape: int) -> Any:
    node = helper.make_node("LayerNormalization", ["x", "g", "b"], ["y"], name="norm", axis=-1, epsilon=1e-5)
    n = shape[-1]
    return onnx_model([node], {"x": shape}, ["y"], initial(g=1 + weights(n), b=weights(n, seed=2)))


# what → model, offloads by operation, largest relative error of 8 samples, standard normal times 0.5
MODELS: dict[str, tuple[Callable[[], Any], dict[str, int], float]] = {
    "layer norm of rank 2": (lambda: normalised(8, 64), {"layer_norm": 1}, 0.03),
    "layer norm of rank 3": (lambda: normalised(1, 8, 64), {"layer_norm": 1}, 0.03),
    "layer norm of rank 4": (lambda: normalised(1, 2, 4, 64), {"layer_norm": 1}, 0.03),
    "layer norm of 24": (lambda: normalised(8, 24), {}, 0.0),
    "MaxPool 2×2": (lambda: pooled("MaxPool", (1, 6, 8, 8), kernel_shape=[2, 2], strides=[2, 2]), {"max_pool": 1}, 0.03),
    "MaxPool 2×2 of odd sizes": (lambda: pooled("MaxPool", (1, 6, 7, 5), kernel_shape=[2, 2], strides=[2, 2]), {"max_pool": 1}, 0.03),
    "MaxPool that overlaps": (lambda: pooled("MaxPool", (1, 6, 7, 7), kernel_shape=[2, 4], strides=[1, 2]), {"max_pool": 1}, 0.03),
    "MaxPool of one axis": (lambda: pooled("MaxPool", (1, 20, 12), kernel_shape=[4], strides=[4]), {"max_pool": 1}, 0.03),
    "MaxPool 3×3": (lambda: pooled("MaxPool", (1, 6, 9, 9), kernel_shape=[3, 3], strides=[3, 3]), {}, 0.0),
    "MaxPool with padding": (lambda: pooled("MaxPool", (1, 6, 8, 8), kernel_shape=[2, 2], strides=[2, 2], pads=[1] * 4), {}, 0.0),
    "AveragePool 2×2": (lambda: pooled("AveragePool", (1, 6, 8, 8), kernel_shape=[2, 2], strides=[2, 2]), {"mean_pool": 1}, 0.05),
    "GlobalAveragePool": (lambda: pooled("GlobalAveragePool", (1, 20, 8, 8)), {"mean_pool": 1}, 0.15),
    "GlobalMaxPool": (lambda: pooled("GlobalMaxPool", (1, 20, 8, 8)), {"max_pool": 1}, 0.03),
    "mean of 7×7": (lambda: pooled("GlobalAveragePool", (1, 20, 7, 7)), {}, 0.0),
    "GRU": (lambda: recurrent("GRU", 3, linear_before_reset=1), {"gru": 1}, 0.06),
    "GRU with its reset before the product": (lambda: recurrent("GRU", 3), {"linear": 6, "rnn": 6}, 0.06),
    "RNN": (lambda: recurrent("RNN", 1), {"rnn": 1}, 0.06),
    "RNN with ReLU": (lambda: recurrent("RNN", 1, activations=["Relu"]), {}, 0.0),
}


def planned(path: Path, proto: Any) -> tuple[Plan, Array, Array]:
    """Return a calibrated plan, 8 samples, and what onnxruntime gives for them."""
    import onnxruntime

    onnx.save(proto, path)
    shape = [d.dim_value for d in proto.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(4).normal(0, 0.5, (8, *shape)).astype(np.float32)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    reference = np.stack([session.run(None, {"x": one})[0] for one in x])
    return calibrated(compile_model(path, ["flexasr"]), {"x": x}, "samples"), x, reference


@pytest.mark.parametrize("what", MODELS)
def test_model_from_end_to_end(what: str, tmp_path: Path) -> None:
    make, counts, most = MODELS[what]
    plan, x, reference = planned(tmp_path / "app.onnx", make())
    assert plan.counts == {"flexasr": counts}
    assert plan.device_calls == {"flexasr": counts}
    assert (plan.egraph["stop"]["reason"], plan.extraction["status"]) == ("saturated", "optimal")
    assert check_plan(plan, plan_onnx(plan), tmp_path / "app.onnx").relative_difference <= 1e-5
    found = Engine(plan, threads=1).run({"x": x}, batch=4).outputs["y"]
    error = float(np.linalg.norm(found - reference) / np.linalg.norm(reference))
    assert (0 < error <= most) if counts else error <= 1e-6


@pytest.mark.parametrize("what", ["layer norm of rank 2", "MaxPool 2×2", "GRU"])
def test_batches_and_readings_change_nothing(what: str, tmp_path: Path) -> None:
    plan, x, _ = planned(tmp_path / "app.onnx", MODELS[what][0]())
    runs = [
        Engine(plan, reading=r, threads=1, engine="simulator").run({"x": x[:2]}, batch=b).outputs["y"]
        for r, b in (("arrays", 2), ("arrays", 1), ("oracle", 1))
    ]
    assert all(np.array_equal(runs[0], y) for y in runs[1:])
