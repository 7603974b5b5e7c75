"""Metrics: how good the outputs for a data set are, sample by sample, and whether two runs differ.

A metric gives each sample a score and a weight; its value is made from their weighted mean (or their maximum). Two runs
on the same samples are compared pairwise, so that what both do to a sample alike drops out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..errors import InputError, UsageError
from ..ir.program import Data
from .data import CLASSIFICATION, LANGUAGE_MODEL, Dataset
from .tango import Interval, difference_of_proportions

LABELS, TARGETS, REFERENCE = "labels", "targets", "the reference's outputs"
RESAMPLES, SEED = 2000, 0
NORMAL_95 = 1.959963984540054


@dataclass(frozen=True)
class Scores:
    """One score and one weight a sample; `peak` is the range of the true values, for psnr. A NaN counts as the worst score."""

    values: Data
    weights: Data
    peak: float = 1.0


@dataclass(frozen=True)
class Metric:
    """A metric: what it compares outputs with, how it scores samples, how their mean becomes its value."""

    name: str
    against: str
    score: Callable[[Data, Data], Scores]
    finish: Callable[[float, float], float] = lambda mean, peak: mean
    lower_is_better: bool = True
    is_proportion: bool = False
    is_maximum: bool = False

    def value(self, scores: Scores) -> float:
        """Return the value over all samples."""
        if self.is_maximum:
            return float(scores.values.max())
        return self.finish(float(scores.values.sum() / scores.weights.sum()), scores.peak)


@dataclass(frozen=True)
class Paired:
    """A second run against a first on the same samples: difference of the metric's value, and single samples."""

    difference: float
    interval: tuple[float, float] | None
    method: str
    better: int
    worse: int
    same: int


def metric_of(name: str, task: str = "") -> Metric:
    """Return a metric by name, or the usual one of a task when the name is empty; UsageError lists the names."""
    usual = {CLASSIFICATION: "top1", LANGUAGE_MODEL: "perplexity"}
    chosen = name or usual.get(task, "max-relative-error")
    if chosen not in METRICS:
        raise UsageError("F203", f'there is no metric called "{chosen}"', help=f"known: {', '.join(METRICS)}")
    return METRICS[chosen]


def truth_for(metric: Metric, data: Dataset, reference: Data) -> Data:
    """Return what the metric compares outputs with; targets, where the data has them, come before the reference's outputs."""
    if metric.against == REFERENCE:
        return reference if data.targets is None else data.targets
    found = data.labels if metric.against == LABELS else data.targets
    if found is None:
        raise InputError("C100", f"metric {metric.name} needs {metric.against}, which the data does not have", place=data.place)
    return found


def paired(metric: Metric, first: Scores, second: Scores) -> Paired:
    """Compare the scores of two runs on the same samples.

    The 95 % interval of the difference (second − first) is Tango's score interval for proportions; for other metrics the
    percentile interval of a bootstrap over samples with a fixed seed; a maximum has none.
    """
    gain = (first.values - second.values) * (1 if metric.lower_is_better else -1)
    better, worse = int((gain > 0).sum()), int((gain < 0).sum())
    difference = _difference(metric.value(first), metric.value(second))
    interval, method = _interval(metric, first, second, better, worse)
    return Paired(difference, interval, method, better, worse, len(gain) - better - worse)


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
    found = np.empty(RESAMPLES)
    for k in range(RESAMPLES):
        drawn = random.integers(0, n, n)
        ends = [metric.value(Scores(s.values[drawn], s.weights[drawn], s.peak)) for s in (first, second)]
        found[k] = _difference(*ends)
    low, high = np.quantile(found, [0.025, 0.975], method="inverted_cdf")
    return float(low), float(high)


# -- scores


def _ranks(outputs: Data, labels: Data) -> Data:
    """Return the place of the true class among the classes of each sample, 0 the best; none for a sample with a NaN."""
    logits = outputs.reshape(len(outputs), -1)
    classes = logits.shape[1]
    if labels.max() >= classes:
        raise InputError("C100", f"labels must be below the {classes} classes of the model, not {labels.max()}")
    own = logits[np.arange(len(labels)), labels][:, None]
    earlier = np.arange(classes) < labels[:, None]
    ranks = ((logits > own) | ((logits == own) & earlier)).sum(axis=1)
    return np.where(np.isnan(logits.astype(np.float64)).any(axis=1), classes, ranks)


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
    return Scores(_worst_if_nan(totals), np.full(samples, float(positions)))


def _flat(outputs: Data, truth: Data) -> tuple[Data, Data]:
    if outputs.shape != truth.shape and outputs.size != truth.size:
        raise InputError("C100", f"true values must have the shape of the outputs {list(outputs.shape)}, not {list(truth.shape)}")
    return outputs.reshape(len(outputs), -1).astype(np.float64), truth.reshape(len(truth), -1).astype(np.float64)


def _worst_if_nan(errors: Data) -> Data:
    return np.where(np.isnan(errors), np.inf, errors)


def _squared_error(outputs: Data, truth: Data) -> Scores:
    found, wanted = _flat(outputs, truth)
    return Scores(_worst_if_nan(((found - wanted) ** 2).sum(axis=1)), np.full(len(found), float(found.shape[1])), float(np.ptp(wanted)))


def _relative_error(outputs: Data, truth: Data) -> Scores:
    """Largest deviation of a sample over the largest true value of the sample."""
    found, wanted = _flat(outputs, truth)
    largest = np.abs(wanted).max(axis=1)
    deviation = np.abs(found - wanted).max(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(deviation == 0, 0.0, deviation / largest)
    return Scores(_worst_if_nan(ratio), np.ones(len(found)))


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
        Metric("perplexity", TARGETS, _negative_log_likelihood, _perplexity),
        Metric("mse", REFERENCE, _squared_error),
        Metric("psnr", REFERENCE, _squared_error, _psnr),
        Metric("max-relative-error", REFERENCE, _relative_error, is_maximum=True),
    )
}
