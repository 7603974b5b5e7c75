"""Metrics: scores of the outputs for a data set, sample by sample, and the paired comparison of two runs.

A metric gives each sample a score and a weight; its value derives from their weighted mean, or from all samples at once.
Two runs on the same samples are compared pairwise, so that what both do to a sample alike cancels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

import numpy as np

from ...data.dataset import CLASSIFICATION, LANGUAGE_MODEL, MAPS, Dataset
from ...errors import InputError, UsageError
from ...ir.program import Data
from .class_maps import intersections, label_accuracy, mean_over_classes, mean_over_labels, place_accuracy
from .custom_metric import Score, custom_scores, scores_of_function
from .edit_distance import alignment_errors, sequence_errors
from .paired_test import Interval, difference_of_proportions, exact_difference, mcnemar
from .regression import absolute_error, flattened_pair, r_squared, squared_error, squared_error_with_moments, worst_if_nan
from .sample_shapes import class_scores, shape_text, without_unit_axes
from .scores import Scores
from .separation import roc_area, separation

FEWEST = 6  # samples with an interval: of fewer even a change of all of them may be chance (sign test, 2 · 2^-6 < 5 %)
RESAMPLES, SEED = 2000, 0
NORMAL_95 = 1.959963984540054


class TruthSource(StrEnum):
    """What a metric compares outputs with, as refusals name it."""

    LABELS = "labels"
    """The labels of the data."""
    TARGETS = "targets"
    """The true values of the data."""
    REFERENCE = "the reference's outputs"
    """The true values of the data where it has them, else the outputs of the float32 reference."""
    ANY = "what the data has"
    """Labels, true values or the reference's outputs, the first that exist."""


@dataclass(frozen=True)
class Metric:
    """A metric: what outputs are compared with, how samples are scored, and how the value derives from their mean.

    Some metrics compute the value from the scores of all samples instead; `is_maximum` takes the largest score.
    """

    name: str
    truth_source: TruthSource
    score: Callable[[Data, Data], Scores]
    finish: Callable[[float, float], float] = lambda mean, peak: mean
    lower_is_better: bool = True
    is_proportion: bool = False
    is_maximum: bool = False
    aggregate: Callable[[Scores], float] | None = None
    sha256: str = ""  # of the file of one of the user's own

    def value(self, scores: Scores) -> float:
        """Return the value of the metric over all samples."""
        if self.is_maximum:
            return float(scores.values.max())
        if self.aggregate is not None:
            return self.aggregate(scores)
        return self.finish(float(scores.values.sum() / scores.weights.sum()), scores.peak)

    def loss(self, first: float, second: float) -> float:
        """Return by how much the second value is worse than the first."""
        return second - first if self.lower_is_better else first - second


@dataclass(frozen=True)
class ExactTest:
    """McNemar's exact test on the discordant samples, and the exact interval of the difference conditional on their number."""

    p_value: float
    interval: Interval


@dataclass(frozen=True)
class PairedComparison:
    """The paired comparison of a second run with a first: the difference of the metric's values, and counts of samples."""

    difference: float
    interval: tuple[float, float] | None
    method: str
    better: int
    worse: int
    same: int
    mcnemar: ExactTest | None = None


def metric_of(name: str | Callable[[Data, Data], object], task: str = "") -> Metric:
    """Return a metric by its name, the default one of a task when the name is empty, or a user's own, MODULE:FUNCTION or a function.

    Raises:
        UsageError: F203, there is no such metric.
        InputError: R100, the module of a user's metric cannot be imported.
    """
    if not isinstance(name, str):
        return _own_metric(*scores_of_function(name))
    defaults = {CLASSIFICATION: "top1", MAPS: "pixel-accuracy", LANGUAGE_MODEL: "perplexity"}
    metric_name = name or defaults.get(task, "max-relative-error")
    if metric_name in METRICS:
        return METRICS[metric_name]
    if ":" not in metric_name:
        raise UsageError("F203", f'there is no metric called "{metric_name}"', help=f"known: {', '.join(METRICS)}, or MODULE:FUNCTION")
    return _own_metric(metric_name, *custom_scores(metric_name))


def _own_metric(name: str, scores: Score, lower: bool, digest: str) -> Metric:
    """Return a user's metric."""
    return Metric(name, TruthSource.ANY, lambda y, truth: Scores(scores(y, truth), np.ones(len(y))), lower_is_better=lower, sha256=digest)


def truth_of_data(metric: Metric, data: Dataset) -> Data | None:
    """Return the labels or true values that the metric compares outputs with; None where it takes the reference's outputs.

    Raises:
        InputError: C100, the metric needs labels or targets that the data does not have.
    """
    if metric.truth_source == TruthSource.ANY and data.labels is not None:
        return data.labels
    if metric.truth_source in (TruthSource.REFERENCE, TruthSource.ANY):
        return data.targets
    truth = data.labels if metric.truth_source == TruthSource.LABELS else data.targets
    if truth is None:
        raise InputError("C100", f"metric {metric.name} needs {metric.truth_source}, which the data does not have", place=data.place)
    return truth


def truth_for(metric: Metric, data: Dataset, reference: Data) -> Data:
    """Return what the metric compares outputs with; targets, where the data has them, take precedence over the reference's outputs.

    Raises:
        InputError: C100, the metric needs labels or targets that the data does not have.
    """
    truth = truth_of_data(metric, data)
    return reference if truth is None else truth


def compare_paired(metric: Metric, first: Scores, second: Scores) -> PairedComparison:
    """Compare the scores of two runs on the same samples.

    The 95 % interval of the difference (second − first) is Tango's score interval for proportions; for other metrics the
    percentile interval of a bootstrap over samples with a fixed seed; a maximum has none, nor have fewer than FEWEST samples.
    """
    low, high = (second, first) if metric.lower_is_better else (first, second)
    better, worse = (int(np.count_nonzero(a.values < b.values)) for a, b in ((low, high), (high, low)))  # also where both are infinite
    difference = _difference(metric.value(first), metric.value(second))
    interval, method = _interval(metric, first, second, better, worse)
    of_pairs = ExactTest(mcnemar(better, worse), exact_difference(better, worse, len(first.values))) if metric.is_proportion else None
    return PairedComparison(difference, interval, method, better, worse, len(first.values) - better - worse, of_pairs)


def _difference(first: float, second: float) -> float:
    return 0.0 if first == second else second - first


def _interval(metric: Metric, first: Scores, second: Scores, better: int, worse: int) -> tuple[Interval | None, str]:
    if metric.is_maximum:
        return None, "a maximum has no interval"
    if metric.is_proportion:
        return difference_of_proportions(better, worse, len(first.values), NORMAL_95), "Tango's score interval for paired proportions"
    if len(first.values) < FEWEST:
        return None, f"fewer than {FEWEST} samples decide nothing"
    return _bootstrap(metric, first, second), f"percentile bootstrap over samples, {RESAMPLES} resamples, seed {SEED}"


def _bootstrap(metric: Metric, first: Scores, second: Scores) -> Interval:
    random = np.random.default_rng(SEED)
    n = len(first.values)
    differences = np.empty(RESAMPLES)
    for k in range(RESAMPLES):
        indices = random.integers(0, n, n)
        differences[k] = _difference(*(metric.value(s.take(indices)) for s in (first, second)))
    low, high = np.quantile(differences, [0.025, 0.975], method="inverted_cdf")
    return float(low), float(high)


# -- scores


def _ranks(outputs: Data, labels: Data) -> Data:
    """Return the rank of the true class among the logits of each sample, 0 the best; the number of classes for a sample with a NaN.

    An output of one integer for each sample is the class itself.
    """
    _check_one_class(labels)
    if is_class(outputs):
        return np.where(outputs.reshape(-1) == labels, 0, int(labels.max()) + 1)
    logits = class_scores(outputs)
    classes = logits.shape[1]
    if labels.max() >= classes:
        raise InputError("C100", f"labels must be below the {classes} classes of the model, not {labels.max()}")
    true_logits = logits[np.arange(len(labels)), labels][:, None]
    earlier = np.arange(classes) < labels[:, None]
    ranks = ((logits > true_logits) | ((logits == true_logits) & earlier)).sum(axis=1)
    return np.asarray(np.where(np.isnan(logits.astype(np.float64)).any(axis=1), classes, ranks))


def _check_one_class(labels: Data) -> None:
    if labels.ndim > 1:
        raise InputError(
            "C100", f"labels of this metric must be one class a sample, [samples], not {shape_text(labels)}",
            help="--metric pixel-accuracy and mean-iou score a class for each place, multilabel-f1 and auc several for each sample",
        )  # fmt: skip


def is_class(outputs: Data) -> bool:
    """Tell whether outputs are one integer for each sample: a class, not logits."""
    return outputs.dtype.kind in "iu" and outputs.size == len(outputs)


def predicted_classes(outputs: Data) -> Data:
    """Return the predicted class of each sample, [samples]."""
    return outputs.reshape(-1) if is_class(outputs) else outputs.reshape(len(outputs), -1).argmax(axis=1)


def _top(k: int) -> Callable[[Data, Data], Scores]:
    return lambda outputs, labels: Scores((_ranks(outputs, labels) < k).astype(float), np.ones(len(outputs)))


def _negative_log_likelihood(outputs: Data, targets: Data) -> Scores:
    """Sum over the positions of a sample of −ln softmax(logits)[target]; the weight is the number of positions."""
    samples, positions = len(outputs), targets.size // len(targets)
    rows = without_unit_axes(targets.shape[1:])
    vocabulary = outputs.size // (samples * positions)
    if targets.dtype.kind not in "iu" or without_unit_axes(outputs.shape[1:]) != (*rows, *without_unit_axes((vocabulary,))):
        sentence = f"targets must be one token for each row of the logits {shape_text(outputs)}, not {targets.dtype}{shape_text(targets)}"
        raise InputError("C100", sentence, help="the last axis of the logits counts the tokens, the first one the samples")
    logits = outputs.reshape(samples, positions, -1)
    tokens = targets.reshape(samples, positions)
    if not 0 <= tokens.min() <= tokens.max() < logits.shape[2]:
        raise InputError("C100", f"targets must be tokens 0 to {logits.shape[2] - 1}, not {tokens.min()} to {tokens.max()}")
    totals, exponentials = np.empty(samples), np.empty(logits.shape[1:], np.float32 if logits.dtype == np.float32 else np.float64)
    for s in range(samples):  # one sample at a time: the logits of a language model are large
        # exponentials of float32 logits are correct to 2^-22, and their errors average out in the sum, which is in float64
        rows = logits[s] if logits.dtype == np.float32 else logits[s].astype(np.float64)
        largest = rows.max(axis=1)
        np.exp(np.subtract(rows, largest[:, None], out=exponentials), out=exponentials)
        sums = exponentials.sum(axis=1, dtype=np.float64)
        totals[s] = (np.log(sums) + largest - rows[np.arange(positions), tokens[s]].astype(np.float64)).sum()
    return Scores(worst_if_nan(totals), np.full(samples, float(positions)))


def _cosine(outputs: Data, truth: Data) -> Scores:
    """Cosine of the angle between a sample's outputs and the true values; two zero vectors agree."""
    actual, expected = flattened_pair(outputs, truth)
    lengths = np.linalg.norm(actual, axis=1) * np.linalg.norm(expected, axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        cosines = np.where((actual == expected).all(axis=1), 1.0, (actual * expected).sum(axis=1) / lengths)
    return Scores(np.where(np.isnan(cosines), -1.0, cosines), np.ones(len(actual)))


def _classified(outputs: Data, labels: Data) -> Scores:
    """Whether the class is right, with both classes as details; a sample with a NaN has the class −1."""
    is_correct = _ranks(outputs, labels) == 0
    logits = outputs.reshape(len(outputs), -1)
    predicted = np.where(np.isnan(logits.astype(np.float64)).any(axis=1), -1, predicted_classes(outputs))
    return Scores(is_correct.astype(float), np.ones(len(outputs)), details=np.stack([predicted, labels], axis=1).astype(np.float64))


def _f1(scores: Scores) -> float:
    """Return the mean over the true classes of 2·TP / (2·TP + FP + FN)."""
    assert scores.details is not None
    predicted, true = scores.details.astype(np.int64).T
    classes = int(scores.details.max()) + 1
    hits, guesses, members = (np.bincount(x, minlength=classes) for x in (true[predicted == true], predicted[predicted >= 0], true))
    present = members > 0
    return float(np.mean(2 * hits[present] / (guesses + members)[present]))


def _relative_error(outputs: Data, truth: Data) -> Scores:
    """Largest deviation of a sample over the largest true value of the sample."""
    actual, expected = flattened_pair(outputs, truth)
    largest = np.abs(expected).max(axis=1)
    deviation = np.abs(actual - expected).max(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(deviation == 0, 0.0, deviation / largest)
    return Scores(worst_if_nan(ratio), np.ones(len(actual)))


def _perplexity(mean: float, _: float) -> float:
    return math.exp(mean) if mean < 709 else math.inf


def _psnr(mean: float, peak: float) -> float:
    if mean == 0:
        return math.inf
    return 10 * math.log10(peak * peak / mean) if peak > 0 and mean < math.inf else -math.inf


METRICS = {
    m.name: m
    for m in (
        Metric("top1", TruthSource.LABELS, _top(1), lower_is_better=False, is_proportion=True),
        Metric("top5", TruthSource.LABELS, _top(5), lower_is_better=False, is_proportion=True),
        Metric("f1", TruthSource.LABELS, _classified, lower_is_better=False, aggregate=_f1),
        Metric("perplexity", TruthSource.TARGETS, _negative_log_likelihood, _perplexity),
        Metric("token-error-rate", TruthSource.TARGETS, sequence_errors),
        Metric("ctc-error-rate", TruthSource.TARGETS, partial(alignment_errors, is_blank_last=False)),
        Metric("ctc-error-rate-blank-last", TruthSource.TARGETS, partial(alignment_errors, is_blank_last=True)),
        Metric("pixel-accuracy", TruthSource.LABELS, place_accuracy, lower_is_better=False),
        Metric("mean-iou", TruthSource.LABELS, intersections, lower_is_better=False, aggregate=mean_over_classes),
        Metric("multilabel-f1", TruthSource.LABELS, label_accuracy, lower_is_better=False, aggregate=mean_over_labels),
        Metric("auc", TruthSource.LABELS, separation, lower_is_better=False, aggregate=roc_area),
        Metric("mse", TruthSource.REFERENCE, squared_error),
        Metric("rmse", TruthSource.REFERENCE, squared_error, lambda mean, peak: math.sqrt(mean)),
        Metric("mae", TruthSource.REFERENCE, absolute_error),
        Metric("r2", TruthSource.REFERENCE, squared_error_with_moments, lower_is_better=False, aggregate=r_squared),
        Metric("psnr", TruthSource.REFERENCE, squared_error, _psnr),
        Metric("cosine", TruthSource.REFERENCE, _cosine, lower_is_better=False),
        Metric("max-relative-error", TruthSource.REFERENCE, _relative_error, is_maximum=True),
    )
}
