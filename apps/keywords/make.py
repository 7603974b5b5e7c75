"""Speak, train, and write models and data: `python -m rewrite_compiler.apps.keywords.make [FOLDER]`, with espeak-ng installed."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from ..digits.data import Images
from ..digits.network import accuracy
from .export import keywords, spectrogram
from .network import NETWORK, spectrograms, trained
from .spectrogram import log_mel
from .speech import calibration, split


def write_data(path: Path, part: Images) -> None:
    """Write audio, whose 8 bits a sample float16 has, the features and the labels."""
    targets = log_mel(part.image)[:, None].astype(np.float32)
    np.savez_compressed(path, audio=part.image.astype(np.float16), targets=targets, labels=part.labels)


def main(folder: Path) -> None:
    """Write everything into a folder."""
    training, test = split()
    write_data(folder / "test.npz", test)
    write_data(folder / "calibration.npz", calibration(training))
    (folder / "spectrogram.onnx").write_bytes(spectrogram().SerializeToString(deterministic=True))
    weights = trained(training)
    (folder / "keywords.onnx").write_bytes(keywords(weights).SerializeToString(deterministic=True))
    print(f"{accuracy(NETWORK, weights, spectrograms(test)):.1%} of the test samples")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
