"""A folder with a model, data, and its plans with and without formats; each test works in a copy of it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import onnx
import pytest
from command import flexmatch, perceptron, samples


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """app.onnx, test.npz (48 samples), calibration.npz, app.flexasr.* (no formats) and ready.* (calibrated)."""
    folder = tmp_path_factory.mktemp("prepared")
    onnx.save(perceptron((16, 8, 4)), folder / "app.onnx")
    samples(folder / "test.npz", 48, 16, classes=4)
    samples(folder / "calibration.npz", 8, 16, seed=2)
    back = os.getcwd()
    os.chdir(folder)
    try:
        assert flexmatch("app.onnx", "--accel", "flexasr", "-q").code == 0
        assert flexmatch("app.onnx", "--accel", "flexasr", "-q", "--calibrate", "calibration.npz", "-o", "ready").code == 0
    finally:
        os.chdir(back)
    return folder


@pytest.fixture
def folder(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the prepared folder, as working directory."""
    copy = tmp_path / "work"
    shutil.copytree(prepared, copy)
    monkeypatch.chdir(copy)
    return copy
