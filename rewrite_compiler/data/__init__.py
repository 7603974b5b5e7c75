"""Data sets: samples for a model's inputs, with labels or targets, read from untrusted files."""

from .dataset import (
    CALIBRATION_SAMPLES,
    CLASSIFICATION,
    LANGUAGE_MODEL,
    SAMPLES,
    Dataset,
    Samples,
    check_existence,
    load_data,
    samples_for,
    single_samples,
)

__all__ = [
    "CALIBRATION_SAMPLES", "CLASSIFICATION", "LANGUAGE_MODEL", "SAMPLES", "Dataset", "Samples", "check_existence", "load_data",
    "samples_for", "single_samples",
]  # fmt: skip
