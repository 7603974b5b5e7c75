"""The shipped applications: accuracy through onnxruntime, sizes, held-back split, and a trainer that repeats itself."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest

from rewrite_compiler import apps
from rewrite_compiler.apps.digits import data, train
from rewrite_compiler.apps.digits.data import Floats
from rewrite_compiler.apps.digits.layers import FLATTEN, MAX_POOL, RELU, BatchNorm, Conv, Layer, Linear
from rewrite_compiler.errors import UsageError

Arrays = dict[str, npt.NDArray[np.generic]]

FLOOR = {"digits_cnn": 0.97, "digits_mlp": 0.95}
FOLDER = Path(apps.__file__).parent


def arrays(path: Path) -> Arrays:
    with np.load(path) as file:
        return dict(file)


def correct_share(app: apps.App) -> float:
    """Run every test image alone through onnxruntime."""
    session = onnxruntime.InferenceSession(app.model.read_bytes(), providers=["CPUExecutionProvider"])
    held_back = arrays(app.data)
    (name,) = (i.name for i in session.get_inputs())
    answers = [session.run(None, {name: sample[None]})[0].argmax() for sample in held_back[name]]
    return float((np.array(answers) == held_back["labels"]).mean())


def stated_share(app: apps.App) -> float:
    """Read an application's top-1 from the table in its README."""
    found = re.search(rf"^\| `{app.name}` .* \| ([\d.]+) % \|$", (app.model.parent / "README.md").read_text("utf-8"), re.MULTILINE)
    assert found
    return float(found[1]) / 100


@pytest.mark.parametrize("app", [a for a in apps.APPS if a.name in FLOOR], ids=lambda app: app.name)
class TestEveryApp:
    def test_it_is_as_accurate_as_its_readme_says(self, app: apps.App) -> None:
        share = correct_share(app)
        assert share >= FLOOR[app.name]
        assert share == pytest.approx(stated_share(app), abs=5e-4)

    def test_its_model_is_valid_and_takes_one_sample(self, app: apps.App) -> None:
        model = onnx.load(app.model)
        onnx.checker.check_model(model, full_check=True)
        assert [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim] == [1, 1, 8, 8]

    def test_its_data_has_one_array_per_input_and_labels(self, app: apps.App) -> None:
        inputs = {i.name for i in onnx.load(app.model).graph.input}
        for path in (app.data, app.calibration):
            held = arrays(path)
            assert held.keys() == inputs | {"labels"}
            assert {len(array) for array in held.values()} == {len(held["labels"])}

    def test_it_is_found_by_its_name(self, app: apps.App) -> None:
        assert apps.find_application(app.name) is app


def test_the_convolutional_model_keeps_batch_normalisation_apart() -> None:
    ops = [node.op_type for node in onnx.load(apps.find_application("digits_cnn").model).graph.node]
    assert ops == ["Conv", "BatchNormalization", "Relu", "Conv", "BatchNormalization", "Relu", "MaxPool", "Flatten", "Gemm"]


def test_the_fully_connected_model_is_spelt_with_gemm() -> None:
    ops = [node.op_type for node in onnx.load(apps.find_application("digits_mlp").model).graph.node]
    assert ops == ["Flatten", "Gemm", "Relu", "Gemm", "Relu", "Gemm"]


def test_an_unknown_application_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError) as caught:
        apps.find_application("digits_rnn")
    known = "digits_cnn, digits_mlp, codec, keywords, spectrogram, keccak, "
    known += "resnet20, resnet50, mobilenet_v2, efficientnet, resmlp, transformer, language_model"
    assert str(caught.value) == f'error[F203]: there is no application called "digits_rnn"\n  help: known applications: {known}'


def test_everything_shipped_is_less_than_a_megabyte() -> None:
    assert sum(path.stat().st_size for path in FOLDER.rglob("*") if path.suffix in {".onnx", ".npz"}) < 1 << 20


def test_no_test_image_is_a_training_image() -> None:
    training, test = (set(map(bytes, part.image)) for part in data.split(train.SEED))
    assert len(training) == 1297
    assert len(test) == 500
    assert not training & test


def test_the_shipped_data_are_the_split() -> None:
    training, test = data.split(train.SEED)
    for name, part in (("test", test), ("calibration", data.calibration(training))):
        shipped = arrays(FOLDER / "digits" / f"{name}.npz")
        np.testing.assert_array_equal(shipped["image"], part.image)
        np.testing.assert_array_equal(shipped["labels"], part.labels)


def test_training_repeats_itself_and_learns(tmp_path: Path) -> None:
    written = []
    for run in ("first", "second"):
        (tmp_path / run).mkdir()
        shares = train.write_all(tmp_path / run, epochs=1)
        written.append({path.name: path.read_bytes() for path in (tmp_path / run).iterdir()})
    assert written[0] == written[1]
    assert written[0].keys() == {"cnn.onnx", "mlp.onnx", "test.npz", "calibration.npz"}
    assert shares["cnn"] > 0.6
    assert shares["mlp"] > 0.2


SHAPES = {"Conv": (3, 2, 4, 4), "BatchNormalization": (3, 2, 4, 4), "Gemm": (3, 5)}
LAYERS = (Conv(2, 4), BatchNorm(2), Linear(5, 4), RELU, FLATTEN, MAX_POOL)


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.op)
def test_every_derivative_agrees_with_a_difference_quotient(layer: Layer) -> None:
    rng = np.random.default_rng(1)
    values = layer.start(rng) | {"": rng.standard_normal(SHAPES.get(layer.op, (3, 2, 4, 4)))}
    toward = {name: rng.standard_normal(value.shape) for name, value in values.items()}

    def output(step: float) -> Floats:
        moved = {name: value + step * toward[name] for name, value in values.items()}
        return layer.forward(moved, moved[""])[0]

    y, backward = layer.forward(values, values[""])
    weight = rng.standard_normal(y.shape)
    at_input, at_params = backward(weight)
    derivative = sum(float((g * toward[name]).sum()) for name, g in (at_params | {"": at_input}).items())
    quotient = float(((output(1e-6) - output(-1e-6)) * weight).sum()) / 2e-6
    assert quotient == pytest.approx(derivative, rel=1e-5)


def test_frozen_statistics_are_those_of_the_training_images() -> None:
    training, _ = data.split(train.SEED)
    x = training.image.repeat(2, axis=1)
    layer = BatchNorm(2)
    frozen = layer.freeze(layer.start(np.random.default_rng(0)), x)
    y, _ = layer.forward(frozen, x)
    np.testing.assert_allclose(y.mean((0, 2, 3)), 0, atol=1e-4)
    np.testing.assert_allclose(y.var((0, 2, 3)), 1, rtol=1e-3)
