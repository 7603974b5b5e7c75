"""Paired proportions: the 95 % interval of their difference, and exact tests on the discordant samples."""

from __future__ import annotations

import math
from collections.abc import Callable

Interval = tuple[float, float]
HALVINGS = 60
MANY = 500  # changed samples from which on sums over them are read off the incomplete beta function


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


def mcnemar(better: int, worse: int) -> float:
    """Return the two-sided p-value of McNemar's exact test: the probability of so uneven a split of the discordant samples."""
    n, least = better + worse, min(better, worse)
    if better == worse:
        return 1.0
    if n > MANY:
        return min(1.0, 2 * _at_least(n - least, n, 0.5))
    return min(1.0, 2 * sum(math.comb(n, k) for k in range(least + 1)) / (1 << n))


def exact_difference(better: int, worse: int, samples: int, tail: float = 0.025) -> Interval:
    """Return the exact interval (Clopper and Pearson, 1934) of p₂ − p₁ given the number of discordant samples; [0, 0] without any."""
    changed = better + worse
    if not changed:
        return 0.0, 0.0
    low = 0.0 if better == 0 else _crossing(lambda p: _at_least(better, changed, p) < tail, 0.0, 1.0)
    high = 1.0 if worse == 0 else _crossing(lambda p: 1 - _at_least(better + 1, changed, p) > tail, 0.0, 1.0)
    return (2 * low - 1) * changed / samples, (2 * high - 1) * changed / samples


def _at_least(k: int, n: int, p: float) -> float:
    """Return the probability of k or more successes in n Bernoulli trials."""
    if k <= 0 or k > n:
        return float(k <= 0)
    if p in (0.0, 1.0):
        return float(k <= n * p)
    if n > MANY:
        return _beta(k, n - k + 1, p)
    logs = math.log(p), math.log1p(-p)
    total = math.lgamma(n + 1)
    terms = (total - math.lgamma(i + 1) - math.lgamma(n - i + 1) + i * logs[0] + (n - i) * logs[1] for i in range(k, n + 1))
    return min(1.0, math.fsum(map(math.exp, terms)))


def _beta(a: int, b: int, x: float) -> float:
    """Return the regularised incomplete beta function I(x; a, b) for a > 0, b > 0 by Lentz's algorithm for its continued fraction."""
    if x > (a + 1) / (a + b + 2):
        return 1.0 - _beta(b, a, 1 - x)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)) / a
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    fraction = d
    for m in range(1, 10 * (100 + math.isqrt(a + b))):
        steps = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)), -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for step in steps:
            d, c = 1 / (1 + step * d), 1 + step / c
            fraction *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return min(1.0, front * fraction)


def _likeliest(better: int, worse: int, samples: int, d: float) -> float:
    """Return the maximum-likelihood share of samples that succeed only the first time, given the difference d."""
    a = 2 * samples
    b = -better - worse + (2 * samples - better + worse) * d
    c = -worse * d * (1 - d)
    return float((math.sqrt(max(b * b - 4 * a * c, 0.0)) - b) / (2 * a))


def _crossing(predicate: Callable[[float], bool], low: float, high: float) -> float:
    """Return by bisection where `predicate` turns from true to false between low and high."""
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if predicate(middle) else (low, middle)
    return (low + high) / 2
