"""The codec: its model is the transform of blocks, and each accelerator loses what its number format loses."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from rewrite_compiler import apps
from rewrite_compiler.apps.codec.export import to_onnx
from rewrite_compiler.apps.codec.make import main
from rewrite_compiler.apps.codec.transform import LEVELS, STEPS, coded, cosines, decoded
from rewrite_compiler.apps.digits.data import Floats
from rewrite_compiler.compile import compile_model
from rewrite_compiler.cosim import cosimulate

APP = apps.find_application("codec")
assert isinstance(APP, apps.App)
IMAGES: Floats = np.load(APP.data)["image"]


def stated(place: str) -> float:
    """Read the signal-to-noise ratio of a place from the table in the README."""
    assert isinstance(APP, apps.App)
    row = re.search(rf"^\| {place} \| ([\d.]+) \|", (APP.model.parent / "README.md").read_text("utf-8"), re.MULTILINE)
    assert row
    return float(row[1])


def test_the_waves_are_orthonormal() -> None:
    waves = cosines().reshape(64, 64)
    assert np.abs(waves @ waves.T - np.eye(64)).max() < 1e-12


def test_the_model_is_the_codec_but_for_ties_of_rounding() -> None:
    assert isinstance(APP, apps.App)
    session = onnxruntime.InferenceSession(APP.model.read_bytes(), providers=["CPUExecutionProvider"])
    restored = np.concatenate([session.run(None, {"image": x[None]})[0] for x in IMAGES])
    blocks = np.abs(restored - decoded(coded(IMAGES))).reshape(len(IMAGES), 4, 8, 4, 8).max((2, 4))
    ties = np.abs(np.abs(ratios(IMAGES) % 1 - 0.5)) < 1e-5
    assert blocks[~ties.any(1)].max() < 1e-5
    assert ties.any(1).mean() < 0.02


def ratios(images: Floats) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Return the coefficients over their steps before rounding, by matrices: C · block · Cᵀ."""
    waves = cosines().reshape(8, 8, 8, 8)
    line = waves[:, 0, :, 0] / waves[:1, 0, :1, 0]  # cosines of one axis, up to the constant wave
    line = line / np.linalg.norm(line, axis=1, keepdims=True)
    blocks = (images[:, 0].astype(float) - 128 / LEVELS).reshape(len(images), 4, 8, 4, 8).swapaxes(2, 3)
    return np.moveaxis((line @ blocks @ line.T).reshape(len(images), 4, 4, 64) / STEPS, 3, 1)


def test_the_reference_of_blocks_is_the_product_with_matrices() -> None:
    difference = np.abs(coded(IMAGES) - ratios(IMAGES))
    assert difference.max() < 0.5 + 1e-9


def test_codes_of_a_flat_block_are_its_level_alone() -> None:
    flat = np.full((1, 1, 8, 8), 200 / LEVELS)
    codes = coded(flat)[0, :, 0, 0]
    assert codes[0] == round((200 - 128) * 8 / 16)
    assert not codes[1:].any()
    assert np.abs(decoded(coded(flat)) * LEVELS - 200).max() <= 1


def test_model_and_data_can_be_made_again(tmp_path: Path) -> None:
    assert isinstance(APP, apps.App)
    main(tmp_path)
    assert (tmp_path / "codec.onnx").read_bytes() == APP.model.read_bytes() == to_onnx().SerializeToString()
    for path in (APP.data, APP.calibration):
        stored, again = np.load(path), np.load(tmp_path / path.name)
        assert np.array_equal(stored["image"], again["image"])
        assert np.array_equal(stored["targets"], stored["image"])
    onnx.checker.check_model(onnx.load(APP.model), full_check=True)


@pytest.mark.parametrize(
    ("target", "title", "offloads"), [("vta", "VTA", {"conv2d": 2}), ("flexasr", "FlexASR", {"linear": 2})], ids=["vta", "flexasr"]
)
def test_what_an_accelerator_takes_and_loses(target: str, title: str, offloads: dict[str, int]) -> None:
    assert isinstance(APP, apps.App)
    plan = compile_model(APP.model, [target])
    assert plan.counts[target] == offloads
    document = cosimulate(plan, APP.data, calibrate=APP.calibration, metric="psnr").document
    assert document["reference"]["value"] == pytest.approx(stated("host, float32"), abs=0.01)
    assert document["accelerated"]["value"] == pytest.approx(stated(title), abs=0.05)
