"""Spoken keywords: the two factors are the Fourier transform, and the models are the mathematics."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from rewrite_compiler import apps
from rewrite_compiler.apps.digits.data import Floats
from rewrite_compiler.apps.keywords import spectrogram as s
from rewrite_compiler.apps.keywords.export import keywords, spectrogram
from rewrite_compiler.apps.keywords.network import NETWORK
from rewrite_compiler.apps.keywords.speech import CALIBRATION, TEST_VOICES, VOICES, WORDS
from rewrite_compiler.compile import Plan, compile_model
from rewrite_compiler.cosim import cosimulate

APP, FRONT = (apps.find_application(name) for name in ("keywords", "spectrogram"))
assert isinstance(APP, apps.App)
assert isinstance(FRONT, apps.App)
DATA = dict(np.load(APP.data))
AUDIO: Floats = DATA["audio"].astype(np.float32)


def stated(place: str, column: int) -> float:
    """Read a figure from a row of the table in the README."""
    assert isinstance(APP, apps.App)
    row = re.search(rf"^\| {re.escape(place)} \|(.*)\|$", (APP.model.parent / "README.md").read_text("utf-8"), re.MULTILINE)
    assert row
    return float(row[1].split("|")[column].split()[0])


def run(path: Path, audio: Floats) -> Floats:
    session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    return np.concatenate([session.run(None, {"audio": x[None]})[0] for x in audio])


def test_both_factors_give_every_bin_of_the_fourier_transform() -> None:
    frame = np.random.default_rng(0).standard_normal(s.FRAME)
    columns = frame.reshape(s.OUTER, s.INNER).T @ s.outer_factor()
    pairs = columns.reshape(s.INNER, s.HALVES, 2).swapaxes(0, 1).reshape(s.HALVES, 1, 2 * s.INNER)
    real, imaginary = np.split((pairs @ s.inner_factor())[:, 0] / s.GAIN, 2, axis=1)
    places = np.arange(s.HALVES)[:, None] + s.OUTER * np.arange(s.INNER)
    assert np.abs(real + 1j * imaginary - np.fft.fft(frame)[places]).max() < 1e-12
    assert set(np.minimum(places, s.FRAME - places).reshape(-1)) == set(range(s.FRAME // 2 + 1))


def test_the_filter_lets_the_band_through_and_nothing_far_from_it() -> None:
    frequency = np.arange(s.RATE // 2)
    response = np.abs(np.exp(-2j * np.pi * frequency[:, None] / s.RATE * np.arange(s.TAPS)) @ s.band_pass())
    low, high = s.BAND
    assert np.abs(response[(frequency > low + 250) & (frequency < high - 250)] - 1).max() < 0.01
    assert response[(frequency < low - 250) | (frequency > high + 250)].max() < 0.01


def test_every_bin_of_the_band_is_in_a_filter_and_a_band_adds_up_to_one() -> None:
    filters = s.mel_filters()
    assert np.allclose(filters.sum(0), 1)
    assert np.allclose(s.filters_of_places().sum(0), 1)
    frequency = np.arange(s.FRAME // 2 + 1) * s.RATE / s.FRAME
    inside = (frequency > s.BAND[0]) & (frequency < s.BAND[1])
    assert (filters.sum(1) > 0).tolist() == inside.tolist()


def test_the_model_is_the_spectrogram_of_numpy() -> None:
    assert isinstance(FRONT, apps.App)
    reference = s.log_mel(AUDIO)[:, None]
    assert np.abs(run(FRONT.model, AUDIO) - reference).max() < 1e-5
    assert np.array_equal(DATA["targets"], reference.astype(np.float32))


def test_a_tone_is_loudest_in_its_band() -> None:
    tone = np.sin(2 * np.pi * 1000 * np.arange(s.SAMPLES) / s.RATE)[None, None]
    loudest = s.log_mel(tone)[0, 2:-2].argmax(1)
    assert set(loudest) == {int(s.mel_filters()[1000 * s.FRAME // s.RATE].argmax())}


def test_models_are_written_again_from_their_weights() -> None:
    assert isinstance(APP, apps.App)
    assert isinstance(FRONT, apps.App)
    assert spectrogram().SerializeToString(deterministic=True) == FRONT.model.read_bytes()
    tensors = {t.name: numpy_helper.to_array(t) for t in onnx.load(APP.model).graph.initializer}
    weights = tuple({i: tensors[f"{layer.op.lower()}_{k}.{i}"] for i in layer.inputs} for k, layer in enumerate(NETWORK))
    assert keywords(weights).SerializeToString(deterministic=True) == APP.model.read_bytes()


def test_the_data_are_every_word_in_voices_that_do_not_train() -> None:
    assert isinstance(APP, apps.App)
    assert isinstance(APP.calibration, Path)
    assert not set(TEST_VOICES) & set(VOICES)
    assert not {v.partition("+")[2] for v in TEST_VOICES} & {v.partition("+")[2] for v in VOICES}
    assert np.bincount(DATA["labels"]).tolist() == [len(TEST_VOICES)] * len(WORDS)
    with np.load(APP.calibration) as part:
        assert len(part["audio"]) == CALIBRATION
        assert not set(map(bytes, part["audio"])) & set(map(bytes, DATA["audio"]))
    assert np.array_equal(AUDIO * 128, np.rint(AUDIO * 128))


def test_the_network_hears_the_words_as_often_as_its_readme_says() -> None:
    assert isinstance(APP, apps.App)
    share = (run(APP.model, AUDIO).argmax(1) == DATA["labels"]).mean()
    assert share == pytest.approx(stated("host, float32", 0) / 100, abs=5e-3)
    assert share > 0.8


def compiled(app: apps.App, target: str) -> Plan:
    return compile_model(app.model, [target])


def test_vta_takes_every_product_and_loses_what_the_readme_says() -> None:
    assert isinstance(FRONT, apps.App)
    plan = compiled(FRONT, "vta")
    assert plan.counts["vta"] == {"dense": 20}
    document = cosimulate(plan, FRONT.data, calibrate=FRONT.calibration, metric="psnr").document
    assert document["reference"]["value"] > 100
    assert document["accelerated"]["value"] == pytest.approx(stated("VTA", 1), abs=0.1)


@pytest.mark.parametrize(
    ("target", "counts"), [("vta", {"conv2d": 2, "dense": 21}), ("flexasr", {"linear": 23, "add_pool": 1, "max_pool": 2})]
)
def test_what_an_accelerator_takes_of_the_whole(target: str, counts: dict[str, int]) -> None:
    assert isinstance(APP, apps.App)
    assert compiled(APP, target).counts[target] == counts
