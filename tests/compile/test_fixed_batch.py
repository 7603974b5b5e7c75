"""Models of a fixed batch take data one sample at a time, checked as the first and the last sample of the model's own batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from command import flexmatch

from rewrite_compiler.compile import Options, Plan, compile_model, plan_onnx
from rewrite_compiler.compile.verify import PlanDiffers, check_plan
from rewrite_compiler.cosim import cosimulate
from rewrite_compiler.errors import UsageError
from rewrite_compiler.frontend import load

FIXED = 16
NET = """<ir_version: 10, opset_import: ["": 21]>
net (float[16, 3, 8, 8] x) => (float[16, 10] y) <float[8, 3, 3, 3] w, float[10, 512] m, int64[2] s = {16, 512}> {
    c = Conv<pads = [1, 1, 1, 1]>(x, w)
    r = Relu(c)
    f = Reshape(r, s)
    y = Gemm<transB = 1>(f, m)
}"""
MEETING = """<ir_version: 10, opset_import: ["": 21]>
net (float[16, 4] x) => (float[16, 4] y) <int64[1] axes = {0}> {
    m = ReduceMean(x, axes)
    y = Sub(x, m)
}"""


def written(path: Path, text: str) -> Path:
    """Write a model given as text, its weights drawn."""
    random = np.random.default_rng(5)
    model = onnx.parser.parse_model(text)
    for weight in model.graph.value_info:
        extents = [d.dim_value for d in weight.type.tensor_type.shape.dim]
        model.graph.initializer.append(onnx.numpy_helper.from_array((random.standard_normal(extents) / 8).astype(np.float32), weight.name))
    del model.graph.value_info[:]
    onnx.save(model, path)
    return path


def compiled(path: Path, samples: int) -> Plan:
    shape = tuple(d.dim_value for d in onnx.load(path).graph.input[0].type.tensor_type.shape.dim)
    return compile_model(path, ["vta"], Options(shapes={"x": (samples, *shape[1:])}))


@pytest.mark.parametrize("samples", [1, 3, 20])
def test_a_plan_for_another_number_of_samples_equals_its_model(tmp_path: Path, samples: int) -> None:
    path = written(tmp_path / "net.onnx", NET)
    plan = compiled(path, samples)
    assert plan.notes == (
        f"dimension 0 of the inputs is 16 in the model and was set to {samples}: every sample is computed on its own",
    )  # fmt: skip
    assert [plan.source.types[v].shape for v in plan.source.outputs] == [(samples, 10)]
    checked = check_plan(plan, plan_onnx(plan), path)
    assert checked.against == "model"
    assert checked.relative_difference is not None
    assert checked.relative_difference < 1e-5


def test_samples_that_meet_cannot_be_set(tmp_path: Path) -> None:
    path = written(tmp_path / "meeting.onnx", MEETING)
    with pytest.raises(UsageError) as caught:
        compiled(path, 1)
    assert caught.value.problem.code == "F134"
    assert caught.value.problem.sentence == (
        "Dimension 0 of the inputs must be 16, as the model fixes it, not 1: "
        'reduce_mean "m" cannot be taken apart: it works along axis 0 of (1, 4), which carries the samples'
    )


def test_a_plan_of_samples_taken_apart_wrongly_differs_from_its_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "meeting.onnx", MEETING)
    wrong = onnx.load(path)
    for value in (*wrong.graph.input, *wrong.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = 1
    alone = load.import_model(wrong, path, "", {}, Options().limits).program

    def apart(*_: Any) -> Any:
        return alone

    monkeypatch.setattr(load, "with_samples", apart)
    plan = compiled(path, 1)
    with pytest.raises(PlanDiffers):
        check_plan(plan, plan_onnx(plan), path)


def test_data_that_comes_one_by_one_sets_the_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "net.onnx", NET)
    random = np.random.default_rng(1)
    np.savez("one.npz", x=random.standard_normal((40, 3, 8, 8)).astype(np.float32), labels=random.integers(0, 10, 40))
    answer = flexmatch("cosim", "net.onnx", "--accel", "vta", "--data", "one.npz", "--json", "report.json")
    assert answer.code == 0, answer.err
    assert "samples    8 " in answer.out
    assert "dimension 0 of the inputs is 16 in the model and was set to 1" in answer.out
    assert flexmatch("compile", "net.onnx", "--accel", "vta", "--calibrate", "one.npz").code == 0


def test_data_that_fits_the_fixed_batch_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = written(tmp_path / "net.onnx", NET)
    np.savez("whole.npz", x=np.random.default_rng(1).standard_normal((2, FIXED, 3, 8, 8)).astype(np.float32))
    plan = compile_model(path, "vta", calibrate="whole.npz")
    assert plan.source.types[plan.source.inputs[0]].shape == (FIXED, 3, 8, 8)


def test_data_that_fits_neither_way_says_what_the_model_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "net.onnx", NET)
    np.savez("other.npz", x=np.zeros((4, 3, 9, 9), np.float32))
    answer = flexmatch("cosim", "net.onnx", "--accel", "vta", "--data", "other.npz")
    assert (answer.code, answer.err.splitlines()[0]) == (
        3, 'other.npz: error[C100]: array "x" for the input "x" must have shape [samples, 16, 3, 8, 8], not [4, 3, 9, 9]',
    )  # fmt: skip


def test_a_plan_of_a_fixed_batch_takes_single_samples(tmp_path: Path) -> None:
    path = written(tmp_path / "net.onnx", NET)
    data = {"x": np.random.default_rng(3).standard_normal((5, 3, 8, 8)).astype(np.float32)}
    report = cosimulate(compile_model(path, ["vta"]), data, calibrate=data)
    alone = cosimulate(compile_model(path, ["vta"], calibrate=data), data)
    np.testing.assert_array_equal(report.accelerated["y"], alone.accelerated["y"])
    calibrated = compile_model(path, ["vta"], calibrate={"x": np.concatenate([data["x"]] * 4)[None, :16]})
    assert calibrated.calibrated
    assert len(cosimulate(calibrated, data).accelerated["y"]) == 5
