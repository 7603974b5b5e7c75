"""Scores of segmentation maps, one class for each place of an output, and of multi-label classification."""

from __future__ import annotations

import numpy as np

from ...errors import InputError
from ...ir.program import Data
from .sample_shapes import is_same_sample, order_help, sample_text, shape_text, without_unit_axes
from .scores import Scores

VOID = 255  # the class of places that are left out, as data sets of street scenes and of objects have it
HALF = 0.5  # share from which on a label is given


def place_accuracy(outputs: Data, labels: Data) -> Scores:
    """Score each sample by its number of places with the right class; its weight is the number of places that count.

    `outputs` are logits [samples, classes, places…], with the axis of classes anywhere, or classes; `labels` are [samples, places…].

    Raises:
        InputError: C100, the labels have another shape, or a class that the model does not have.
    """
    predicted, true, classes = _maps(outputs, labels)
    counts = true < classes
    return Scores(((predicted == true) & counts).sum(axis=1).astype(float), counts.sum(axis=1).astype(float))


def intersections(outputs: Data, labels: Data) -> Scores:
    """Keep the numbers of hits, guesses and members of each class in each sample as details [samples, classes · 3].

    Raises:
        InputError: C100, the labels have another shape, or a class that the model does not have.
    """
    predicted, true, classes = _maps(outputs, labels)
    details = np.zeros((len(true), classes, 3))
    for n, (p, t) in enumerate(zip(predicted, true, strict=True)):
        p, t = p[t < classes], t[t < classes]
        for k, class_numbers in enumerate((t[p == t], p[p >= 0], t)):
            details[n, :, k] = np.bincount(class_numbers, minlength=classes)
    accuracy = place_accuracy(outputs, labels)
    return Scores(accuracy.values, accuracy.weights, details=details.reshape(len(true), -1))


def mean_over_classes(scores: Scores) -> float:
    """Return the mean intersection over union, hits / (guesses + members − hits), over classes that occur or are predicted."""
    assert scores.details is not None
    hits, guesses, members = scores.details.sum(axis=0).reshape(-1, 3).T
    union = guesses + members - hits
    return float(np.mean(hits[union > 0] / union[union > 0])) if union.any() else 0.0


def _maps(outputs: Data, labels: Data) -> tuple[Data, Data, int]:
    """Return predicted and true classes [samples, places] and how many there are; a place with a NaN has the class −1."""
    axis = _class_axis(outputs, labels)
    true = labels.reshape(len(labels), -1)
    if axis is None:
        predicted = outputs.reshape(len(outputs), -1).astype(np.int64)
        valid_classes = [x[x != VOID] for x in (predicted, true)]
        return predicted, true, int(max(x.max(initial=0) for x in valid_classes)) + 1
    classes = outputs.shape[axis]
    invalid = true[(true >= classes) & (true != VOID)]
    if invalid.size:
        raise InputError("C100", f"labels must be below the {classes} classes of the model, or {VOID} for none, not {invalid[0]}")
    with_nan = np.isnan(outputs.astype(np.float64)).any(axis=axis).reshape(len(outputs), -1)
    return np.where(with_nan, -1, outputs.argmax(axis=axis).reshape(len(outputs), -1)), true, min(classes, VOID)


def _class_axis(outputs: Data, labels: Data) -> int | None:
    """Return the axis of the outputs that counts classes; None when outputs are classes themselves."""
    label_shape = without_unit_axes(labels.shape[1:])
    if outputs.dtype.kind in "iu" and without_unit_axes(outputs.shape[1:]) == label_shape:
        return None
    candidates = [a for a in range(1, outputs.ndim) if without_unit_axes(outputs.shape[1:a] + outputs.shape[a + 1 :]) == label_shape]
    axis = next((a for a in candidates if outputs.shape[a] > 1), next(iter(candidates), None))
    if axis is None or labels.ndim < 2:
        sentence = f"labels must be one class for each place of the output {shape_text(outputs)}, without its axis of classes"
        raise InputError("C100", f"{sentence}, not {shape_text(labels)}", help=_fitting_labels(outputs))
    return axis


def _fitting_labels(outputs: Data) -> str:
    """Return which labels would fit an output: of its own shape where it gives classes, else without the first axis that counts."""
    axis = next((a for a in range(1, outputs.ndim) if outputs.shape[a] > 1), None)
    if outputs.dtype.kind in "iu" or axis is None:
        shape, condition = outputs.shape[1:], "where each number of the output is a class"
    else:
        shape, condition = (
            outputs.shape[1:axis] + outputs.shape[axis + 1 :],
            f"where axis {axis} has the classes, {outputs.shape[axis]} of them",
        )
    return f"{condition}, give labels of shape {sample_text(without_unit_axes(shape))}"


# -- several labels for each sample


def indicators(outputs: Data, labels: Data) -> tuple[Data, Data]:
    """Return the outputs as scores [samples, classes] and the labels as indicators of the same shape.

    Raises:
        InputError: C100, the labels are not 0 or 1 for each output.
    """
    scores = outputs.reshape(len(outputs), -1).astype(np.float64)
    truth = labels.reshape(len(labels), -1)
    if not is_same_sample(outputs, labels) or truth.max() > 1:
        expected = sample_text(without_unit_axes(outputs.shape[1:]) or (1,))
        sentence = f"labels must be 0 or 1 for each of the {scores.shape[1]} outputs of a sample, {expected}"
        help_ = order_help(outputs, labels) if truth.max() < 2 else "a class of several is one column of 0 and 1, the true one 1"
        raise InputError(
            "C100", f"{sentence}, not up to {truth.max()} in {shape_text(labels)}", help=help_ or "--metric top1 scores one class a sample"
        )  # fmt: skip
    return scores, truth


def label_accuracy(outputs: Data, labels: Data) -> Scores:
    """Score each sample by the share of labels on which prediction and truth agree; the details are both, [samples, 2 · labels].

    Raises:
        InputError: C100, the labels are not 0 or 1 for each output.
    """
    scores, true = indicators(outputs, labels)
    predicted = scores > HALF
    details = np.concatenate([predicted, true.astype(bool)], axis=1).astype(float)
    return Scores((predicted == true).mean(axis=1), np.ones(len(true)), details=details)


def mean_over_labels(scores: Scores) -> float:
    """Return the macro F1 score, the mean of 2·TP / (2·TP + FP + FN) over the labels that occur."""
    assert scores.details is not None
    predicted, true = np.split(scores.details, 2, axis=1)
    hits, total = (predicted * true).sum(axis=0), (predicted + true).sum(axis=0)
    present = true.any(axis=0)
    return float(np.mean(2 * hits[present] / total[present])) if present.any() else 0.0
