"""The errors of number formats in an offload: ranges, magnitudes, saturation, underflow and relative errors, on some samples.

The error of an offload is given twice: *isolated*, against its float meaning on its own operands, and *cumulative*, against
the value that the float32 run of the application has at this place.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from ..ir.program import Data
from ..lang.formats import Format
from ..readings.kernels.format_conversion import codes_of, values_of

LEAST_EXPONENT, MOST_EXPONENT = -40, 40  # of the histogram; what lies outside is counted in its ends


def squared_norm(x: Data) -> float:
    """Return the sum of squares in float64, added in numpy's own order: that of BLAS depends on the processor and its threads."""
    return float(np.sum(np.square(x, dtype=np.float64)))


def relative_error(squared_errors: Iterable[float], squares: Iterable[float]) -> float | None:
    """Return the root of the relative squared error, the same whatever the order of the samples, or None without a reference."""
    total = math.fsum(squares)
    return (math.fsum(squared_errors) / total) ** 0.5 if total else None


def _no_counts() -> list[int]:
    return [0] * (MOST_EXPONENT - LEAST_EXPONENT + 1)


@dataclass
class TensorNumerics:
    """Statistics of one tensor in its format; `counts` is a histogram of magnitudes by binade, from 2^LEAST_EXPONENT on."""

    values: int = 0
    zeros: int = 0
    saturated: int = 0
    underflowed: int = 0
    low: float = np.inf
    high: float = -np.inf
    squared_errors: list[float] = field(default_factory=list)  # of each array that was counted
    squares: list[float] = field(default_factory=list)
    counts: list[int] = field(default_factory=_no_counts)

    def add_values(self, x: Data, decoded: Data, largest: float) -> None:
        """Count values and what their format, whose largest value is `largest`, represents them by (an array of the same shape)."""
        if not x.size:
            return
        size = np.abs(x)
        self.values += x.size
        self.zeros += int(np.count_nonzero(size == 0))
        self.saturated += int(np.count_nonzero((size > largest) & (decoded != x)))
        self.underflowed += int(np.count_nonzero((decoded == 0) & (size > 0)))
        self.low, self.high = min(self.low, float(x.min())), max(self.high, float(x.max()))
        self.squared_errors.append(squared_norm(decoded.astype(np.float64) - x))
        self.squares.append(squared_norm(x))
        exponents = np.clip(np.frexp(size[size > 0])[1] - 1, LEAST_EXPONENT, MOST_EXPONENT) - LEAST_EXPONENT
        self.counts = [int(n) for n in np.bincount(exponents, minlength=len(self.counts)) + np.array(self.counts)]

    def merge(self, other: TensorNumerics) -> None:
        """Add the statistics of other samples."""
        for name in ("values", "zeros", "saturated", "underflowed", "squared_errors", "squares"):
            vars(self)[name] += vars(other)[name]
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        self.counts = [a + b for a, b in zip(self.counts, other.counts, strict=True)]


@dataclass
class OffloadNumerics:
    """The statistics of an offload's tensors by name, and the cumulative error of its first result."""

    tensors: dict[str, TensorNumerics] = field(default_factory=dict)
    squared_errors: list[float] = field(default_factory=list)  # of each sample
    squares: list[float] = field(default_factory=list)

    def add_operand(self, name: str, x: Data, f: Format) -> None:
        """Count an operand as its format rounds it."""
        self.tensors.setdefault(name, TensorNumerics()).add_values(x, values_of(f, codes_of(f, x)), float(f.largest))

    def add_result(self, name: str, expected: Data, actual: Data, f: Format) -> None:
        """Count a result: its float meaning, and what the device returns."""
        self.tensors.setdefault(name, TensorNumerics()).add_values(expected, actual, float(f.largest))

    def add_cumulative_error(self, actual: Data, reference: Data) -> None:
        """Add the difference between a result and its value in the float32 run of the application."""
        self.squared_errors.append(squared_norm(actual.astype(np.float64) - reference))
        self.squares.append(squared_norm(reference))

    @property
    def cumulative(self) -> float | None:
        """The relative error of the first result against the float32 run."""
        return relative_error(self.squared_errors, self.squares)

    def merge(self, other: OffloadNumerics) -> None:
        """Add the statistics of other samples."""
        self.squared_errors += other.squared_errors
        self.squares += other.squares
        for name, t in other.tensors.items():
            self.tensors.setdefault(name, TensorNumerics()).merge(t)

    def to_record(self) -> dict[str, Any]:
        """Return the statistics as a JSON object."""
        return asdict(self)

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> OffloadNumerics:
        """Return the statistics of a JSON object."""
        tensors = {name: TensorNumerics(**t) for name, t in record["tensors"].items()}
        return cls(tensors, record["squared_errors"], record["squares"])


def tensor_document(name: str, f: Format, t: TensorNumerics) -> dict[str, Any]:
    """Return the report of one tensor of an offload; its histogram without empty binades at the ends."""
    nonempty_bins = [k for k, n in enumerate(t.counts) if n]
    first, last = (nonempty_bins[0], nonempty_bins[-1]) if nonempty_bins else (0, -1)
    return {
        "tensor": name, "format": f.name, "values": t.values, "zeros": t.zeros, "saturated": t.saturated, "underflowed": t.underflowed,
        "range": [t.low, t.high], "largest": float(f.largest),
        "relative_error": relative_error(t.squared_errors, t.squares),
        "histogram": {"first_exponent": first + LEAST_EXPONENT if nonempty_bins else None, "counts": t.counts[first : last + 1]},
    }  # fmt: skip


def first_diverging(errors: Iterable[tuple[str, float | None]], threshold: float) -> dict[str, Any] | None:
    """Return the first offload whose cumulative error exceeds a threshold, or None."""
    return next(
        ({"offload": key, "relative_error": e, "threshold": threshold} for key, e in errors if e is not None and e > threshold), None
    )
