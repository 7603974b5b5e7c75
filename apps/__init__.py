"""Whole applications with their data, small enough to ship, and architectures without data: what `flexmatch demo` runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rewrite_compiler.errors import UsageError

from .gallery import GALLERY, Architecture

_HERE = Path(__file__).parent


@dataclass(frozen=True)
class App:
    """One application: a model, held-back test data, data that calibrate its number formats, if it needs any, and the metric."""

    name: str
    about: str
    model: Path
    data: Path
    calibration: Path | None
    metric: str


def _digits(name: str, about: str) -> App:
    folder = _HERE / "digits"
    return App(f"digits_{name}", about, folder / f"{name}.onnx", folder / "test.npz", folder / "calibration.npz", "top1")


def _spoken(name: str, about: str, metric: str) -> App:
    folder = _HERE / "keywords"
    return App(name, about, folder / f"{name}.onnx", folder / "test.npz", folder / "calibration.npz", metric)


APPS = (
    _digits("cnn", "8×8 digits: two convolutions with batch normalisation, max pooling, one linear layer"),
    _digits("mlp", "8×8 digits: three linear layers"),
    App(
        "codec",
        "32×32 grey images: cosine transform of 8×8 blocks, quantisation, and back",
        _HERE / "codec" / "codec.onnx",
        _HERE / "codec" / "test.npz",
        _HERE / "codec" / "calibration.npz",
        "psnr",
    ),
    _spoken("keywords", "eight spoken words: filter, spectrogram and a small convolutional network", "top1"),
    _spoken("spectrogram", "the front end of the keywords alone: 64-tap filter, Fourier transform of 512 samples, mel bands", "psnr"),
    App(
        "keccak",
        "bits of a block: Keccak-f[1600], the permutation of SHA-3, as sums of codes",
        _HERE / "keccak" / "keccak.onnx",
        _HERE / "keccak" / "test.npz",
        None,  # all of it is codes
        "pixel-accuracy",
    ),
)


def find_application(name: str) -> App | Architecture:
    """Return the application or architecture called `name`.

    Raises:
        UsageError: there is none of that name (F203); the remedy lists them.
    """
    models_by_name: dict[str, App | Architecture] = {a.name: a for a in (*APPS, *GALLERY)}
    if name not in models_by_name:
        raise UsageError("F203", f'there is no application called "{name}"', help=f"known applications: {', '.join(models_by_name)}")
    return models_by_name[name]


__all__ = ["APPS", "GALLERY", "App", "Architecture", "find_application"]
