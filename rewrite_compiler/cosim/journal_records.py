"""Records of finished batches: JSON lines that are written and read back bit for bit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..compile.offload.execute import Statistics
from ..ir.program import Data
from .format_errors import OffloadNumerics
from .metrics.host_comparison import HostComparison
from .metrics.scores import Scores

Line = dict[str, Any]


@dataclass(frozen=True)
class FinishedBatch:
    """A batch of finished samples from number `first` of the run on: scores, statistics, and which predictions are equal, [samples].

    Where the report compares two hosts, also the comparison of the outputs with those of the other host.
    """

    first: int
    reference: Scores
    accelerated: Scores
    statistics: Mapping[str, Statistics]
    numerics: Mapping[str, OffloadNumerics]
    instructions: int
    host_batching: tuple[str, ...] = ()
    equal_predictions: Data | None = None
    host_comparison: HostComparison | None = None

    @property
    def samples(self) -> int:
        """The number of samples."""
        return len(self.reference.values)

    def lines(self) -> list[Line]:
        """Return one line for each sample, then one that closes the batch."""
        equal_predictions = [None] * self.samples if self.equal_predictions is None else [bool(s) for s in self.equal_predictions]
        score_rows = zip(_rows(self.reference), _rows(self.accelerated), equal_predictions, strict=True)
        closing = {
            "batch": self.first, "samples": self.samples, "instructions": self.instructions, "host_batching": list(self.host_batching),
            "ends": [self.reference.ends, self.accelerated.ends],
            # of times only those that the report names: a run that goes on writes the bytes of one that was not cut off
            "statistics": {key: {**asdict(s), "seconds": s.seconds if s.slow else 0.0} for key, s in self.statistics.items()},
            "numerics": {key: n.to_record() for key, n in self.numerics.items()},
            "beside": None if self.host_comparison is None else _comparison_record(self.host_comparison),
        }  # fmt: skip
        return [
            *({"sample": self.first + k, "reference": r, "accelerated": a, "same": s} for k, (r, a, s) in enumerate(score_rows)),
            closing,
        ]


def _rows(scores: Scores) -> list[list[float]]:
    """Return the score, the weight and the further numbers of every sample."""
    details = [[]] * len(scores.values) if scores.details is None else scores.details.tolist()
    return [[float(v), float(w), *d] for v, w, d in zip(scores.values, scores.weights, details, strict=True)]


def batch_of_lines(lines: Sequence[Line]) -> FinishedBatch:
    """Return the batch that these lines record, the last of which closes it."""
    *samples, closing = lines
    ends = closing["ends"]
    equal_predictions = [line["same"] for line in samples]
    return FinishedBatch(
        closing["batch"],
        _scores([line["reference"] for line in samples], ends[0]),
        _scores([line["accelerated"] for line in samples], ends[1]),
        {key: _statistics(s) for key, s in closing["statistics"].items()},
        {key: OffloadNumerics.from_record(n) for key, n in closing["numerics"].items()},
        closing["instructions"],
        tuple(closing["host_batching"]),
        None if None in equal_predictions else np.array(equal_predictions, bool),
        None if closing.get("beside") is None else _comparison(closing["beside"]),
    )


def _comparison_record(b: HostComparison) -> Line:
    return {**vars(b), "scores": _rows(b.scores), "ends": b.scores.ends}


def _comparison(record: Mapping[str, Any]) -> HostComparison:
    counts = (record[key] for key in ("values", "differing", "differing_samples", "largest"))
    return HostComparison(_scores(record["scores"], record["ends"]), *counts)


def _scores(rows: Sequence[Sequence[float]], ends: Sequence[float]) -> Scores:
    details = np.array([row[2:] for row in rows], np.float64) if len(rows[0]) > 2 else None
    values, weights = (np.array([row[k] for row in rows], np.float64) for k in (0, 1))
    return Scores(values, weights, (ends[0], ends[1]), details)


def _statistics(record: Mapping[str, Any]) -> Statistics:
    statistics = Statistics(**record)
    statistics.range_in, statistics.range_out = (
        (record["range_in"][0], record["range_in"][1]),
        (record["range_out"][0], record["range_out"][1]),
    )
    statistics.slow = tuple(record["slow"])
    return statistics
