"""The comparison of two hosts on the same samples, for the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...ir.program import Data
from .metrics import Metric
from .scores import Scores, concatenated_scores

COMPARED_HOST = {"exact": "onnxruntime"}  # host → the one that a report compares it with


@dataclass(frozen=True)
class HostComparison:
    """A batch on the other host: its scores, and how many values of all outputs differ, at most by `largest`."""

    scores: Scores
    values: int
    differing: int
    differing_samples: int
    largest: float


def compare_hosts(outputs: Mapping[str, Data], other: Mapping[str, Data], scores: Scores) -> HostComparison:
    """Compare the outputs [samples, …] of a batch on two hosts; NaN equals NaN."""
    first, second = (np.concatenate([x.reshape(len(x), -1) for x in host_outputs.values()], axis=1) for host_outputs in (outputs, other))
    equal = (first == second) | ((first != first) & (second != second))
    with np.errstate(invalid="ignore", over="ignore"):
        deviations = np.where(equal, 0.0, np.abs(first.astype(np.float64) - second.astype(np.float64)))
    largest = float(np.nanmax(deviations, initial=0.0))
    return HostComparison(scores, equal.size, int(np.count_nonzero(~equal)), int(np.count_nonzero(~equal.all(axis=1))), largest)


def hosts_document(host: str, metric: Metric, parts: Sequence[HostComparison]) -> dict[str, Any] | None:
    """Return how two hosts differ over a run as JSON; None when only one ran."""
    if not parts:
        return None
    return {
        "other": COMPARED_HOST[host],
        "value": metric.value(concatenated_scores([b.scores for b in parts])),
        "values": sum(b.values for b in parts),
        "differing_values": sum(b.differing for b in parts),
        "differing_samples": sum(b.differing_samples for b in parts),
        "largest_difference": max(b.largest for b in parts),
    }


def hosts_text(host: str, metric: str, value: float | None, document: Mapping[str, Any]) -> str:
    """Return how two hosts differ as one sentence."""
    values_text = f"{metric} is {_value_text(value)} and {_value_text(document['value'])}"
    if not document["differing_values"]:
        return f"hosts {host} and {document['other']}: all {document['values']:,} output values are equal; {values_text}"
    differ = (
        f"{document['differing_values']:,} of {document['values']:,} output values differ, by at most {document['largest_difference']:.3g}"
    )
    return f"hosts {host} and {document['other']}: {differ}; {values_text}"


def _value_text(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.6g}"
