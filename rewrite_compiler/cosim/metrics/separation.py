"""The area under the ROC curve: how often a sample with a label scores above one without it."""

from __future__ import annotations

import numpy as np

from ...errors import InputError
from ...ir.program import Data
from .class_maps import indicators
from .sample_shapes import class_scores
from .scores import Scores


def separation(outputs: Data, labels: Data) -> Scores:
    """Keep each class's scores and truth as details: one column of each for two classes, else one for every class.

    Raises:
        InputError: C100, the labels do not fit the outputs.
    """
    scores, true = _columns(outputs, labels)
    is_nan = np.isnan(scores)
    scores = np.where(is_nan, np.where(true > 0, -np.inf, np.inf), scores)
    sample_scores = np.where(true > 0, scores, -scores).mean(axis=1) if np.isfinite(scores).all() else np.zeros(len(scores))
    return Scores(sample_scores, np.ones(len(scores)), details=np.concatenate([scores, true], axis=1).astype(np.float64))


def _columns(outputs: Data, labels: Data) -> tuple[Data, Data]:
    if labels.ndim > 1:
        return indicators(outputs, labels)
    scores = class_scores(outputs).astype(np.float64)
    classes = max(2, scores.shape[1])
    if labels.max() >= classes:
        raise InputError("C100", f"labels must be below the {classes} classes of the model, not {labels.max()}")
    if scores.shape[1] == 2:
        scores = scores[:, 1:] - scores[:, :1]
    return scores, (labels[:, None] == 1) if scores.shape[1] == 1 else labels[:, None] == np.arange(classes)


def roc_area(scores: Scores) -> float:
    """Return the area under the ROC curve, averaged over classes with both kinds of samples; one half without such a class."""
    assert scores.details is not None
    areas = [_area(s, t > 0) for s, t in zip(*(x.T for x in np.split(scores.details, 2, axis=1)), strict=True) if 0 < t.sum() < len(t)]
    return float(np.mean(areas)) if areas else 0.5


def _area(scores: Data, true: Data) -> float:
    """Return the share of pairs in the right order, ties counted half, by the rank sum of the positive samples (Mann–Whitney)."""
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    positive = int(true.sum())
    return float((ranks[true].sum() - positive * (positive + 1) / 2) / (positive * (len(true) - positive)))
