"""Scores: the score and weight that a metric gives each sample of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...ir.program import Data


@dataclass(frozen=True)
class Scores:
    """One score and one weight for each sample, [samples]; `ends` are the least and largest true value. NaN is the worst score.

    `details` [samples, numbers] are for metrics that are no mean of scores; where batches have different numbers, missing
    ones are 0.
    """

    values: Data
    weights: Data
    ends: tuple[float, float] = (0.0, 1.0)
    details: Data | None = None

    @property
    def peak(self) -> float:
        """The range of the true values, for the peak signal-to-noise ratio."""
        return self.ends[1] - self.ends[0]

    def take(self, indices: Data) -> Scores:
        """Return the scores of the samples at these indices."""
        details = None if self.details is None else self.details[indices]
        return Scores(self.values[indices], self.weights[indices], self.ends, details)


def concatenated_scores(parts: Sequence[Scores]) -> Scores:
    """Concatenate the scores of several batches."""
    ends = min(s.ends[0] for s in parts), max(s.ends[1] for s in parts)
    details_parts = [s.details for s in parts if s.details is not None]
    widest = max((d.shape[1] for d in details_parts), default=0)
    details = np.concatenate([np.pad(d, ((0, 0), (0, widest - d.shape[1]))) for d in details_parts]) if details_parts else None
    return Scores(np.concatenate([s.values for s in parts]), np.concatenate([s.weights for s in parts]), ends, details)
