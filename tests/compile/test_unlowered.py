"""Calibration runs the model as it was imported, and gives the formats that its lowered form gives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rewrite_compiler.apps.digits import data as digits
from rewrite_compiler.compile import Plan, calibrated, compile_model
from rewrite_compiler.compile.formats import unlowered
from rewrite_compiler.compile.formats.calibrate import is_calibrated_by
from rewrite_compiler.compile.formats.range_methods import method_of
from rewrite_compiler.compile.formats.unlowered import FloatRun
from rewrite_compiler.cosim.cosimulate import dataset_for, with_formats
from rewrite_compiler.data import samples_for

FOLDER = Path(digits.__file__).parent
MODELS = {  # under ../shared: accelerator, model, calibration samples
    "windows of a residual network": ("flexasr", "trained/resnet20_ts17.onnx", "trained/resnet20_ts17.calibration.toml"),
    "batch norm in the model": ("flexasr", "trained/resnet20_ts13_bn.onnx", "trained/resnet20_ts13_bn.calibration.toml"),
    "layouts that move over pooling": ("flexasr", "trained/mnist-8.onnx", "trained/mnist-8.mnist_500.toml"),
    "point-wise convolutions": ("flexasr", "trained/mbv2_cifar10_float.onnx", "trained/mbv2_cifar10_float.calibration.toml"),
}


def formats(plan: Plan) -> list[object]:
    return [o.formats for o in plan.offloads]


def formatted(plan: Plan, samples: Path, method: str = "") -> Plan:
    return calibrated(plan, samples_for(plan.source, samples).inputs, "samples", method=method)


def both(plan: Plan, samples: Path, method: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Plan, Plan, list[bool]]:
    """Calibrate by the model, and by the lowered program; tell which was run."""
    used = list[bool]()
    run = FloatRun.run
    monkeypatch.setattr(FloatRun, "run", lambda self, values: used.append(self.is_unlowered) or run(self, values))
    here = formatted(plan, samples, method=method)
    monkeypatch.setattr(FloatRun, "_agrees", lambda *_: False)
    there = formatted(plan, samples, method=method)
    monkeypatch.undo()
    return here, there, used


@pytest.mark.parametrize("method", ["max", "percentile", "mse", "entropy"])
def test_formats_are_those_of_the_lowered_program(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = compile_model(FOLDER / "cnn.onnx", ["flexasr"])
    here, there, used = both(plan, FOLDER / "calibration.npz", method, monkeypatch)
    assert formats(here) == formats(there)
    assert set(used) == {True, False}


@pytest.mark.shared
@pytest.mark.parametrize("name", MODELS)
def test_formats_of_large_models(name: str, shared_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    accel, model, samples = MODELS[name]
    plan = compile_model(shared_dir / "models" / model, [accel])
    data = dataset_for(plan, shared_dir / "models" / samples).split(64)[0]
    here, there, used = both(plan, data, "max", monkeypatch)  # type: ignore[arg-type]
    assert formats(here) == formats(there)
    assert set(used) == {True, False}


def test_a_model_that_gives_other_values_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that stands for something else: the lowered program decides."""
    plan = compile_model(FOLDER / "cnn.onnx", ["flexasr"])
    expected = formats(formatted(plan, FOLDER / "calibration.npz"))
    constants = {v: 3 * x for v, x in plan.source.constants.items()}
    wrong = replace(plan, source=replace(plan.source, constants=constants))
    used = list[bool]()
    run = FloatRun.run
    monkeypatch.setattr(FloatRun, "run", lambda self, values: used.append(self.is_unlowered) or run(self, values))
    assert formats(formatted(wrong, FOLDER / "calibration.npz")) == expected
    assert not any(used)
    monkeypatch.setattr(unlowered, "DIFFERENCE", 1e9)
    assert formats(formatted(wrong, FOLDER / "calibration.npz")) != expected


def test_what_these_samples_calibrated_is_not_calibrated_again(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = compile_model(FOLDER / "mlp.onnx", ["flexasr"], calibrate=FOLDER / "calibration.npz")
    data = dataset_for(plan, FOLDER / "test.npz")
    by_least_error, _ = with_formats(plan, data, FOLDER / "calibration.npz", "mse")
    assert by_least_error.calibration != plan.calibration
    first = plan.offloads[0]
    wider = next(f for o in plan.offloads[1:] for f in o.formats.values() if f != first.formats["x"])
    edited = replace(plan, offloads=(replace(first, formats={**first.formats, "x": wider}), *plan.offloads[1:]))
    again, _ = with_formats(edited, data, FOLDER / "calibration.npz")
    assert formats(again) == formats(plan) != formats(edited)
    monkeypatch.setattr(FloatRun, "__init__", lambda *_: pytest.fail("a float run"))
    assert with_formats(plan, data, FOLDER / "calibration.npz")[0] is plan


def test_every_format_that_somebody_changed_is_calibrated_anew() -> None:
    plan = compile_model(FOLDER / "mlp.onnx", ["flexasr"], calibrate=FOLDER / "calibration.npz")
    given, method = plan.calibration, method_of("")
    assert given is not None
    assert is_calibrated_by(plan, given.sha256, given.samples, method)
    for place, o in enumerate(plan.offloads):
        for name, f in o.formats.items():
            field, value = next((key, value) for key, value in f.parameters.items() if isinstance(value, int))
            edited = replace(o, formats={**o.formats, name: replace(f, **{field: value + 1})})
            changed = replace(plan, offloads=(*plan.offloads[:place], edited, *plan.offloads[place + 1 :]))
            assert not is_calibrated_by(changed, given.sha256, given.samples, method)
