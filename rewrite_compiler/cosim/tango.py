"""The 95 % interval of a difference of two proportions seen on the same samples."""

from __future__ import annotations

import math
from collections.abc import Callable

Interval = tuple[float, float]
HALVINGS = 60


def difference_of_proportions(better: int, worse: int, samples: int, z: float) -> Interval:
    """Return the score interval of Tango (1998) for p₂ − p₁ from paired outcomes.

    `better` samples succeed only the second time, `worse` only the first. A difference d is inside when
    |better − worse − n·d| ≤ z · √(n·(2q + d·(1 − d))), q being the likeliest share of `worse` under d. Unlike Wald's
    interval it does not collapse when no sample changes.
    """

    def deviation(d: float) -> float:
        q = _likeliest(better, worse, samples, d)
        spread = math.sqrt(max(samples * (2 * q + d * (1 - d)), 0.0))
        off = better - worse - samples * d
        return 0.0 if off == 0 else math.copysign(math.inf, off) if spread == 0 else off / spread

    middle = (better - worse) / samples
    return _crossing(lambda d: deviation(d) > z, -1.0, middle), _crossing(lambda d: deviation(d) >= -z, middle, 1.0)


def _likeliest(better: int, worse: int, samples: int, d: float) -> float:
    """Return the maximum-likelihood share of samples that succeed only the first time, given the difference d."""
    a = 2 * samples
    b = -better - worse + (2 * samples - better + worse) * d
    c = -worse * d * (1 - d)
    return float((math.sqrt(max(b * b - 4 * a * c, 0.0)) - b) / (2 * a))


def _crossing(before: Callable[[float], bool], low: float, high: float) -> float:
    """Return where `before` turns from true to false between low and high."""
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if before(middle) else (low, middle)
    return (low + high) / 2
