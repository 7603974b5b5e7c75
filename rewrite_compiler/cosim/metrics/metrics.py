"""Metrics: how good the outputs for a data set are, sample by sample, and whether two runs differ.

A metric gives each sample a score and a weight; its value is made from their weighted mean, or from all samples at once.
Two runs on the same samples are compared pairwise, so that what both do to a sample alike drops out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ...data.dataset import CLASSIFICATION, LANGUAGE_MODEL, MAPS, Dataset
from ...errors import InputError, UsageError
from ...ir.program import Data
from .class_maps import intersections, mean_over_classes, mean_over_labels, right_places, shares_of_labels
from .custom_metric import own_scores
from .paired_test import Interval, difference_of_proportions, exact_difference, mcnemar
from .regression import absolute_error, explained, flat, spread_of, squared_error, worst_if_nan
from .scores import Scores
from .separation import area, separation

LABELS, TARGETS, REFERENCE, ANY = "labels", "targets", "the reference's outputs", "what the data has"
RESAMPLES, SEED = 2000, 0
NORMAL_95 = 1.959963984540054


@dataclass(frozen=True)
class Metric:
    """A metric: what it compares outputs with, how it scores samples, how their mean becomes its value; `whole` takes all at once."""

    name: str
    against: str
    score: Callable[[Data, Data], Scores]
    finish: Callable[[float, float], float] = lambda mean, peak: mean
    lower_is_better: bool = True
    is_proportion: bool = False
    is_maximum: bool = False
    whole: Callable[[Scores], float] | None = None
    sha256: str = ""  # of the file of one of the user's own

    def value(self, scores: Scores) -> float:
        """Return the value over all samples."""
        if self.is_maximum:
            return float(scores.values.max())
        if self.whole is not None:
            return self.whole(scores)
        return self.finish(float(scores.values.sum() / scores.weights.sum()), scores.peak)

    def loss(self, first: float, second: float) -> float:
        """Return by how much the second value is worse than the first."""
        return second - first if self.lower_is_better else first - second


@dataclass(frozen=True)
class Exact:
    """McNemar's exact test of the samples that changed, and the exact interval of the difference given their number."""

    p_value: float
    interval: Interval


@dataclass(frozen=True)
class Paired:
    """A second run against a first on the same samples: difference of the metric's value, and single samples."""

    difference: float
    interval: tuple[float, float] | None
    method: str
    better: int
    worse: int
    same: int
    mcnemar: Exact | None = None


def metric_of(name: str, task: str = "") -> Metric:
    """Return a metric by name, the usual one of a task when the name is empty, or one of the user's own, MODULE:FUNCTION."""
    usual = {CLASSIFICATION: "top1", MAPS: "pixel-accuracy", LANGUAGE_MODEL: "perplexity"}
    metric_name = name or usual.get(task, "max-relative-error")
    if metric_name in METRICS:
        return METRICS[metric_name]
    if ":" not in metric_name:
        raise UsageError("F203", f'there is no metric called "{metric_name}"', help=f"known: {', '.join(METRICS)}, or MODULE:FUNCTION")
    scores, lower, digest = own_scores(metric_name)
    return Metric(metric_name, ANY, lambda y, truth: Scores(scores(y, truth), np.ones(len(y))), lower_is_better=lower, sha256=digest)


def truth_for(metric: Metric, data: Dataset, reference: Data) -> Data:
    """Return what the metric compares outputs with; targets, where the data has them, come before the reference's outputs."""
    if metric.against == ANY and data.labels is not None:
        return data.labels
    if metric.against in (REFERENCE, ANY):
        return reference if data.targets is None else data.targets
    truth = data.labels if metric.against == LABELS else data.targets
    if truth is None:
        raise InputError("C100", f"metric {metric.name} needs {metric.against}, which the data does not have", place=data.place)
    return truth


def paired(metric: Metric, first: Scores, second: Scores) -> Paired:
    """Compare the scores of two runs on the same samples.

    The 95 % interval of the difference (second − first) is Tango's score interval for proportions; for other metrics the
    percentile interval of a bootstrap over samples with a fixed seed; a maximum has none.
    """
    low, high = (second, first) if metric.lower_is_better else (first, second)
    better, worse = (int(np.count_nonzero(a.values < b.values)) for a, b in ((low, high), (high, low)))  # also where both are infinite
    difference = _difference(metric.value(first), metric.value(second))
    interval, method = _interval(metric, first, second, better, worse)
    of_pairs = Exact(mcnemar(better, worse), exact_difference(better, worse, len(first.values))) if metric.is_proportion else None
    return Paired(difference, interval, method, better, worse, len(first.values) - better - worse, of_pairs)


def _difference(first: float, second: float) -> float:
    return 0.0 if first == second else second - first


def _interval(metric: Metric, first: Scores, second: Scores, better: int, worse: int) -> tuple[Interval | None, str]:
    if metric.is_maximum:
        return None, "a maximum has no interval"
    if metric.is_proportion:
        return difference_of_proportions(better, worse, len(first.values), NORMAL_95), "Tango's score interval for paired proportions"
    return _bootstrap(metric, first, second), f"percentile bootstrap over samples, {RESAMPLES} resamples, seed {SEED}"


def _bootstrap(metric: Metric, first: Scores, second: Scores) -> Interval:
    random = np.random.default_rng(SEED)
    n = len(first.values)
    differences = np.empty(RESAMPLES)
    for k in range(RESAMPLES):
        drawn = random.integers(0, n, n)
        differences[k] = _difference(*(metric.value(s.take(drawn)) for s in (first, second)))
    low, high = np.quantile(differences, [0.025, 0.975], method="inverted_cdf")
    return float(low), float(high)


# -- scores


def _ranks(outputs: Data, labels: Data) -> Data:
    """Return the place of the true class among the classes of each sample, 0 the best; none for a sample with a NaN.

    An output of one whole number a sample is the class itself.
    """
    _check_one_class(labels)
    if is_class(outputs):
        return np.where(outputs.reshape(-1) == labels, 0, int(labels.max()) + 1)
    logits = outputs.reshape(len(outputs), -1)
    classes = logits.shape[1]
    if labels.max() >= classes:
        raise InputError("C100", f"labels must be below the {classes} classes of the model, not {labels.max()}")
    true_logits = logits[np.arange(len(labels)), labels][:, None]
    earlier = np.arange(classes) < labels[:, None]
    ranks = ((logits > true_logits) | ((logits == true_logits) & earlier)).sum(axis=1)
    return np.where(np.isnan(logits.astype(np.float64)).any(axis=1), classes, ranks)


def _check_one_class(labels: Data) -> None:
    if labels.ndim > 1:
        shape_text = ", ".join(map(str, labels.shape[1:]))
        raise InputError(
            "C100", f"labels of this metric must be one class a sample, [samples], not [samples, {shape_text}]",
            help="--metric pixel-accuracy and mean-iou score a class for each place, multilabel-f1 and auc several for each sample",
        )  # fmt: skip


def is_class(outputs: Data) -> bool:
    """Tell whether outputs are one whole number a sample: a class, not numbers for all of them."""
    return outputs.dtype.kind in "iu" and outputs.size == len(outputs)


def predicted_classes(outputs: Data) -> Data:
    """Return the class that each sample's output says."""
    return outputs.reshape(-1) if is_class(outputs) else outputs.reshape(len(outputs), -1).argmax(axis=1)


def _top(k: int) -> Callable[[Data, Data], Scores]:
    return lambda outputs, labels: Scores((_ranks(outputs, labels) < k).astype(float), np.ones(len(outputs)))


def _negative_log_likelihood(outputs: Data, targets: Data) -> Scores:
    """Sum over the positions of a sample of −ln softmax(logits)[target]; the weight is the number of positions."""
    samples, positions = len(outputs), targets.size // len(targets)
    if targets.dtype.kind not in "iu" or outputs.size % (samples * positions):
        raise InputError("C100", f"targets must be one token for each row of logits, not {targets.dtype}{list(targets.shape)}")
    logits = outputs.reshape(samples, positions, -1)
    tokens = targets.reshape(samples, positions)
    if not 0 <= tokens.min() <= tokens.max() < logits.shape[2]:
        raise InputError("C100", f"targets must be tokens 0 to {logits.shape[2] - 1}, not {tokens.min()} to {tokens.max()}")
    totals = np.empty(samples)
    for s in range(samples):  # one sample at a time: the logits of a language model are large
        rows = logits[s].astype(np.float64)
        rows -= rows.max(axis=1, keepdims=True)
        totals[s] = (np.log(np.exp(rows).sum(axis=1)) - rows[np.arange(positions), tokens[s]]).sum()
    return Scores(worst_if_nan(totals), np.full(samples, float(positions)))


def _cosine(outputs: Data, truth: Data) -> Scores:
    """Cosine of the angle between the outputs of a sample and the true ones; two that are both zero agree."""
    actual, expected = flat(outputs, truth)
    lengths = np.linalg.norm(actual, axis=1) * np.linalg.norm(expected, axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        cosines = np.where((actual == expected).all(axis=1), 1.0, (actual * expected).sum(axis=1) / lengths)
    return Scores(np.where(np.isnan(cosines), -1.0, cosines), np.ones(len(actual)))


def _classified(outputs: Data, labels: Data) -> Scores:
    """Whether the class is right, and both classes; a sample with a NaN has a class of its own."""
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
    actual, expected = flat(outputs, truth)
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
        Metric("top1", LABELS, _top(1), lower_is_better=False, is_proportion=True),
        Metric("top5", LABELS, _top(5), lower_is_better=False, is_proportion=True),
        Metric("f1", LABELS, _classified, lower_is_better=False, whole=_f1),
        Metric("perplexity", TARGETS, _negative_log_likelihood, _perplexity),
        Metric("pixel-accuracy", LABELS, right_places, lower_is_better=False),
        Metric("mean-iou", LABELS, intersections, lower_is_better=False, whole=mean_over_classes),
        Metric("multilabel-f1", LABELS, shares_of_labels, lower_is_better=False, whole=mean_over_labels),
        Metric("auc", LABELS, separation, lower_is_better=False, whole=area),
        Metric("mse", REFERENCE, squared_error),
        Metric("rmse", REFERENCE, squared_error, lambda mean, peak: math.sqrt(mean)),
        Metric("mae", REFERENCE, absolute_error),
        Metric("r2", REFERENCE, spread_of, lower_is_better=False, whole=explained),
        Metric("psnr", REFERENCE, squared_error, _psnr),
        Metric("cosine", REFERENCE, _cosine, lower_is_better=False),
        Metric("max-relative-error", REFERENCE, _relative_error, is_maximum=True),
    )
}
