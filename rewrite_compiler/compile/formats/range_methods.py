"""Calibration methods: the magnitude that a tensor's format must represent, from its values.

`max` takes the largest magnitude. The others may clip: `percentile` takes the magnitude that 99.9 % of the values do not
exceed, `mse` the magnitude whose format has the least squared error on the values, `entropy` the one whose format changes
their distribution least (Kullback and Leibler's divergence).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from ...errors import UsageError
from ...ir.program import Data
from ...lang.formats import Format
from ...readings.kernels.format_conversion import codes_of, values_of

METHODS = ("max", "percentile", "mse", "entropy")
PERCENTILE = 99.9
KEPT_VALUES = 1 << 16  # of a tensor, evenly spaced over all samples
HALVINGS = 8  # candidate magnitudes of mse and entropy: the largest, and so many halves of it
BINS = 2048
FormatFor = Callable[[float], Format]


@dataclass(frozen=True)
class Method:
    """A choice of calibration methods: one for all activations, and others for single tensors by OFFLOAD.TENSOR."""

    usual: str = "max"
    single: Mapping[str, str] = field(default_factory=dict)

    def of(self, offload: str, tensor: str, *, is_constant: bool) -> str:
        """Return the method of a tensor; weights use `max` unless they are named."""
        return self.single.get(f"{offload}.{tensor}", "max" if is_constant else self.usual)

    @property
    def needs_values(self) -> bool:
        """Whether a method needs values, not only largest magnitudes."""
        return self.usual != "max" or any(m != "max" for m in self.single.values())


def method_of(text: str) -> Method:
    """Parse METHOD, or METHOD and OFFLOAD.TENSOR=METHOD separated by commas; an empty text is `max`.

    Raises:
        UsageError: (F203) a method does not exist.
    """
    usual, single = "max", {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        place, _, name = part.rpartition("=")
        if name not in METHODS:
            methods = ", ".join(METHODS)
            raise UsageError(
                "F203", f'a calibration method must be one of {methods}, not "{name}"', help="or OFFLOAD.TENSOR=METHOD for one tensor"
            )
        if place:
            single[place] = name
        else:
            usual = name
    return Method(usual, single)


def magnitude(method: str, largest: float, values: Data, choose: FormatFor) -> float:
    """Return the magnitude to represent, from the largest magnitude and values of a tensor; `choose` gives the format of a magnitude."""
    sizes = np.abs(values[values != 0]).astype(np.float64)
    if method == "max" or not sizes.size or largest == 0:
        return largest
    if method == "percentile":
        return float(np.quantile(np.abs(values).astype(np.float64), PERCENTILE / 100, method="higher")) or largest
    candidates = [largest * 2.0**-k for k in range(HALVINGS)]
    error = _squared_error if method == "mse" else _divergence
    return min(candidates, key=lambda c: error(sizes, choose(c)))


def _squared_error(sizes: Data, f: Format) -> float:
    return float(np.sum((values_of(f, codes_of(f, sizes)) - sizes) ** 2))


def _divergence(sizes: Data, f: Format) -> float:
    """Return KL(P ‖ Q): P the histogram of magnitudes, Q the same after each code's share is spread over its bins."""
    top = max(float(sizes.max()), 1e-30)
    counts, edges = np.histogram(sizes, BINS, (0.0, top))
    codes = codes_of(f, (edges[:-1] + edges[1:]) / 2)
    limit = min(float(f.largest), top)
    unclipped = (edges[:-1] + edges[1:]) / 2 <= limit
    unclipped_counts = counts.astype(np.float64) * unclipped
    p = unclipped_counts.copy()
    p[np.flatnonzero(unclipped)[-1] if unclipped.any() else 0] += counts[~unclipped].sum()
    q = np.zeros(BINS)
    for code in np.unique(codes):
        group = (codes == code) & (p > 0)
        if group.any():
            q[group] = unclipped_counts[group].sum() / group.sum()
    p, q = p / p.sum(), np.maximum(q / max(q.sum(), 1e-30), 1e-12)
    is_positive = p > 0
    return float(np.sum(p[is_positive] * np.log(p[is_positive] / q[is_positive])))
